select
    cell_id,
    benchmark,
    suite,
    suite_version,
    suite_digest,
    dataset_version,
    grader,
    category,
    harness,
    harness_version,
    mode,
    model,
    user_model,
    config_hash,
    isolation,
    task_id,
    any_value(difficulty) as difficulty,

    count(*) as planned,
    count(*) filter (where is_result) as n,
    count(*) filter (where outcome = 'solved') as c,
    c / nullif(n, 0) as rate,
    avg(score) filter (where is_result) as mean_score,
    count(*) filter (where outcome in ('infra_error', 'grader_error')) as errors
from results
group by all

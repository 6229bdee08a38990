select
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
    cell_id,
    ending,
    outcome,
    blame,
    error_class,

    count(*) as attempts
from results
where tries > 0
group by all

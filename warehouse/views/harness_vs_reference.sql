-- The same tasks with the same model in the reference harness: what the harness itself brings.
with

harnesses as (
    select * from task_results where harness <> 'reference' and n > 0
),

reference as (
    select * from task_results where harness = 'reference' and n > 0
),

pairs as (
    select
        harnesses.*,
        reference.harness_version as reference_version,
        reference.config_hash as reference_config_hash,
        reference.cell_id as reference_cell_id,
        reference.rate as reference_rate,
        reference.n as reference_n
    from harnesses
    inner join reference
        on reference.suite_digest = harnesses.suite_digest
       and reference.task_id = harnesses.task_id
       and reference.grader = harnesses.grader
       and reference.model = harnesses.model
       and reference.user_model is not distinct from harnesses.user_model
       and reference.isolation = harnesses.isolation
)

select
    any_value(benchmark) as benchmark,
    any_value(suite) as suite,
    any_value(suite_version) as suite_version,
    any_value(suite_digest) as suite_digest,
    any_value(dataset_version) as dataset_version,
    grader,
    category,
    any_value(harness) as harness,
    any_value(harness_version) as harness_version,
    any_value(mode) as mode,
    any_value(model) as model,
    any_value(user_model) as user_model,
    any_value(config_hash) as config_hash,
    any_value(isolation) as isolation,
    cell_id,
    any_value(reference_version) as reference_version,
    any_value(reference_config_hash) as reference_config_hash,
    reference_cell_id,

    count(*) as tasks,
    sum(n)::bigint as n,
    sum(reference_n)::bigint as reference_n,
    avg(rate) as pass_at_1,
    avg(reference_rate) as reference_pass_at_1,
    avg(rate - reference_rate) as difference,
    count(*) filter (where rate > reference_rate) as better,
    count(*) filter (where rate < reference_rate) as worse,
    count(*) filter (where rate = reference_rate) as same
from pairs
group by grouping sets (
    (cell_id, reference_cell_id, grader, category),
    (cell_id, reference_cell_id, grader)
)

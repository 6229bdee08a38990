-- Failures are paid for too: their cost is in the numerator. One unmeasured attempt makes it NULL.
with

sums as (
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

        count(*) as n,
        count(cost) as priced,
        count(*) filter (where outcome = 'solved') as solved,
        coalesce(sum(cost::decimal(38, 12)), 0)::double as cost_known,
        coalesce(sum(cost::decimal(38, 12)) filter (where outcome = 'failed'), 0)::double
            as cost_of_failures_known
    from results
    where is_result
    group by grouping sets ((cell_id, grader, category), (cell_id, grader))
)

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

    n,
    solved,
    priced / n as cost_coverage,
    cost_known,
    case when priced = n then cost_known end as cost,
    case when priced = n then cost_of_failures_known end as cost_of_failures,
    case when priced = n then cost_known end / n as mean_cost,
    case when priced = n then cost_known end / nullif(solved, 0) as cost_per_solved
from sums

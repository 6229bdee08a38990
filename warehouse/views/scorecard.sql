-- A row a category and, with category NULL, a row for the whole suite. Only attempts with a result count in a
-- rate, and the coverage beside it says how many those are.
with

task_rates as (
    select
        cell_id,
        grader,
        category,
        count(*) as planned_tasks,
        count(*) filter (where n > 0) as tasks,
        avg(rate) as pass_at_1,
        stddev_samp(rate) as spread
    from task_results
    group by grouping sets ((cell_id, grader, category), (cell_id, grader))
),

suite_sizes as (
    select suite_digest, category, count(*) as suite_tasks
    from tasks
    group by grouping sets ((suite_digest, category), (suite_digest))
),

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

        count(*) as planned,
        count(*) filter (where is_result) as n,
        count(*) filter (where outcome = 'solved') as solved,
        count(*) filter (where outcome = 'failed') as failed,
        count(*) filter (where outcome = 'infra_error') as infra_errors,
        count(*) filter (where outcome = 'grader_error') as grader_errors,
        count(*) filter (where outcome = 'cancelled') as cancelled,
        count(*) filter (where outcome = 'skipped') as skipped,
        count(*) filter (where outcome = 'graded_otherwise') as graded_otherwise,
        count(*) filter (where outcome is null) as not_run,
        bool_and(sealed) as sealed,

        avg(score) filter (where is_result) as mean_score,

        count(cost) filter (where is_result) as priced,
        sum(cost::decimal(38, 12)) filter (where is_result)::double as cost_known,
        count(*) filter (where tries > 0 and spend is null) as spend_unknown,
        sum(spend::decimal(38, 12))::double as spend_known,

        count(output) filter (where is_result) as metered,
        avg(input_uncached) filter (where is_result) as input_uncached,
        avg(cache_read) filter (where is_result) as cache_read,
        avg(cache_write) filter (where is_result) as cache_write,
        avg(output) filter (where is_result) as output,
        avg(reasoning) filter (where is_result) as reasoning,

        avg(wall_s) filter (where is_result) as wall_s,
        avg(wall_s - startup_s) filter (where is_result) as wall_s_after_startup,
        avg(waited_s) filter (where is_result) as waited_s,
        avg(cpu_s) filter (where is_result) as cpu_s,

        coalesce(sum(tool_calls) filter (where is_result), 0)::bigint as tool_calls,
        coalesce(sum(tool_errors) filter (where is_result), 0)::bigint as tool_errors,
        case
            when count(model_calls) filter (where is_result) = count(*) filter (where is_result)
            then coalesce(sum(model_calls) filter (where is_result), 0)::bigint
        end as model_calls,
        any_value(origin) as origin,
        count(*) filter (where origin = 'imported' and starts_with(task_id, 'unmapped-')) as unmapped,
        histogram(ending) filter (where is_result) as endings,

        min(started_at) as first_at,
        max(ended_at) as last_at
    from results
    group by grouping sets ((cell_id, grader, category), (cell_id, grader))
),

hats as (
    select
        cell_id,
        grader,
        category,
        list(pass_hat_k order by k) as pass_hat_k
    from pass_hat_k
    group by cell_id, grader, category
),

-- Wilson's interval at the number of independent attempts that tasks, as clusters, are worth
sized as (
    select
        *,
        case
            when tasks < 2 then null
            when pass_at_1 <= 0 or pass_at_1 >= 1 then tasks
            when spread = 0 then n
            else least(n, pass_at_1 * (1 - pass_at_1) * tasks / (spread * spread))
        end as worth,
        1.959963984540054 as z
    from sums
    left join (select * exclude (category), category as of_category from task_rates) task_rates
        on task_rates.cell_id = sums.cell_id
       and task_rates.grader = sums.grader
       and task_rates.of_category is not distinct from sums.category
),

intervals as (
    select
        *,
        (pass_at_1 + z * z / (2 * worth)) / (1 + z * z / worth) as centre,
        z / (1 + z * z / worth)
            * sqrt(pass_at_1 * (1 - pass_at_1) / worth + z * z / (4 * worth * worth)) as half
    from sized
)

select
    intervals.benchmark,
    intervals.suite,
    intervals.suite_version,
    intervals.suite_digest,
    intervals.dataset_version,
    intervals.grader,
    intervals.category,
    intervals.harness,
    intervals.harness_version,
    intervals.mode,
    intervals.model,
    intervals.user_model,
    intervals.config_hash,
    intervals.isolation,
    intervals.cell_id,
    intervals.sealed,
    intervals.origin,

    intervals.planned,
    intervals.n,
    intervals.n / intervals.planned as coverage,
    intervals.tasks,
    intervals.planned_tasks,
    suite_sizes.suite_tasks,
    intervals.planned_tasks >= suite_sizes.suite_tasks as whole,
    intervals.solved,
    intervals.failed,
    intervals.infra_errors,
    intervals.grader_errors,
    intervals.cancelled,
    intervals.skipped,
    intervals.graded_otherwise,
    intervals.not_run,
    intervals.unmapped,

    intervals.pass_at_1,
    case when worth > 0 then greatest(0, least(pass_at_1, centre - half)) end as pass_at_1_low,
    case when worth > 0 then least(1, greatest(pass_at_1, centre + half)) end as pass_at_1_high,
    hats.pass_hat_k,
    intervals.mean_score,
    floors_beside.floor,
    floors_beside.floor_user_model,

    case when priced = intervals.n then cost_known end / nullif(solved, 0) as cost_per_solved,
    case when priced = intervals.n then cost_known end / nullif(intervals.n, 0) as mean_cost,
    case when priced = intervals.n and intervals.n > 0 then cost_known end as cost,
    priced / nullif(intervals.n, 0) as cost_coverage,
    case when spend_unknown = 0 then coalesce(spend_known, 0) end as spend,

    case when metered = intervals.n then input_uncached end as input_uncached,
    case when metered = intervals.n then cache_read end as cache_read,
    case when metered = intervals.n then cache_write end as cache_write,
    case when metered = intervals.n then output end as output,
    case when metered = intervals.n then reasoning end as reasoning,

    intervals.wall_s,
    intervals.wall_s_after_startup,
    intervals.waited_s,
    intervals.cpu_s,

    intervals.tool_calls,
    intervals.tool_errors,
    tool_errors / nullif(tool_calls, 0) as tool_error_rate,
    intervals.model_calls,
    intervals.endings,

    intervals.first_at,
    intervals.last_at
from intervals
left join hats
    on hats.cell_id = intervals.cell_id
   and hats.grader = intervals.grader
   and hats.category is not distinct from intervals.category
left join floors_beside
    on floors_beside.cell_id = intervals.cell_id
   and floors_beside.grader = intervals.grader
   and floors_beside.category is not distinct from intervals.category
left join suite_sizes
    on suite_sizes.suite_digest = intervals.suite_digest
   and suite_sizes.category is not distinct from intervals.category

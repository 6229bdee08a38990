-- One harness in another mode beside the same harness in mode `once`: what the mode brings, and what it costs,
-- bucket by bucket of difficulty. A mode that costs more and gains nothing is told so.
with

task_sums as (
    select
        cell_id,
        benchmark,
        suite,
        suite_version,
        suite_digest,
        dataset_version,
        grader,
        harness,
        harness_version,
        mode,
        model,
        user_model,
        config_hash,
        isolation,
        task_id,
        any_value(difficulty) as difficulty,
        count(*) as n,
        count(*) filter (where outcome = 'solved') as c,
        c / n as rate,
        case when count(cost) = n then avg(cost) end as cost,
        case when count(wall_s) = n then avg(wall_s) end as seconds
    from results
    where is_result
    group by all
),

-- a harness is the same in two modes where its program is: by exact version, and by the name's first part
pairs as (
    select
        modes.*,
        once.cell_id as once_cell_id,
        once.harness as once_harness,
        once.n as once_n,
        once.rate as once_rate,
        once.cost as once_cost,
        once.seconds as once_seconds
    from task_sums as modes
    inner join task_sums as once
        on once.mode = 'once'
       and modes.mode <> 'once'
       and once.suite_digest = modes.suite_digest
       and once.task_id = modes.task_id
       and once.grader = modes.grader
       and once.model = modes.model
       and once.user_model is not distinct from modes.user_model
       and once.isolation = modes.isolation
       and once.harness_version = modes.harness_version
       and split_part(once.harness, '-', 1) = split_part(modes.harness, '-', 1)
),

sums as (
    select
        any_value(benchmark) as benchmark,
        any_value(suite) as suite,
        any_value(suite_version) as suite_version,
        any_value(suite_digest) as suite_digest,
        any_value(dataset_version) as dataset_version,
        grader,
        difficulty,
        any_value(harness) as harness,
        any_value(harness_version) as harness_version,
        any_value(mode) as mode,
        any_value(model) as model,
        any_value(user_model) as user_model,
        any_value(config_hash) as config_hash,
        any_value(isolation) as isolation,
        cell_id,
        any_value(once_harness) as once_harness,
        once_cell_id,

        count(*) as tasks,
        sum(n)::bigint as n,
        sum(once_n)::bigint as once_n,
        avg(rate) as pass_at_1,
        avg(once_rate) as once_pass_at_1,
        avg(rate - once_rate) as delta,
        count(*) filter (where rate > once_rate) as better,
        count(*) filter (where rate < once_rate) as worse,
        case when count(cost) = count(*) then avg(cost) end as cost,
        case when count(once_cost) = count(*) then avg(once_cost) end as once_cost,
        case when count(cost - once_cost) = count(*) then avg(cost - once_cost) end as delta_cost,
        count(*) filter (where cost > once_cost) as dearer,
        count(*) filter (where cost < once_cost) as cheaper,
        case when count(seconds - once_seconds) = count(*) then avg(seconds - once_seconds) end as delta_seconds
    from pairs
    group by grouping sets (
        (cell_id, once_cell_id, grader, difficulty),
        (cell_id, once_cell_id, grader)
    )
    -- tasks without a difficulty are in the row of the whole suite alone
    having grouping(difficulty) = 1 or difficulty is not null
),

-- exact sign tests, two-sided, over tasks: how likely so one-sided a split is where the mode changes nothing
tested as (
    select
        *,
        least(1.0, 2 * list_sum(list_transform(
            range(0, least(better, worse) + 1),
            lambda i: exp(
                lgamma(better + worse + 1) - lgamma(i + 1) - lgamma(better + worse - i + 1)
                - (better + worse) * ln(2)
            )
        ))) as p_value,
        case when delta_cost is not null then least(1.0, 2 * list_sum(list_transform(
            range(0, least(dearer, cheaper) + 1),
            lambda i: exp(
                lgamma(dearer + cheaper + 1) - lgamma(i + 1) - lgamma(dearer + cheaper - i + 1)
                - (dearer + cheaper) * ln(2)
            )
        ))) end as cost_p_value
    from sums
)

select
    *,
    case when delta > 0 then delta_cost / delta end as dollars_per_extra_solve,
    case
        when p_value < 0.05 and delta > 0 then 'gain'
        when p_value < 0.05 and delta < 0 then 'loss'
        when tasks < 6 then 'too few tasks'
        when cost_p_value < 0.05 and delta_cost > 0 then 'cost without gain'
        when cost_p_value < 0.05 and delta_cost < 0 then 'saving'
        else 'tied within noise'
    end as verdict
from tested

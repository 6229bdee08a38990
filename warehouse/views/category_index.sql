-- Weighted over categories. A set that does not cover its suite has no index, whatever it scored.
with

sizes as (
    select suite_digest, category, count(*) as suite_tasks
    from tasks
    group by suite_digest, category
),

rates as (
    select
        cell_id,
        suite_digest,
        grader,
        category,
        count(*) as planned_tasks,
        avg(rate) as rate,
        sum(n)::bigint as n,
        sum(planned)::bigint as planned
    from task_results
    group by cell_id, suite_digest, grader, category
),

cell_graders as (
    select distinct
        benchmark, suite, suite_version, suite_digest, dataset_version, grader, harness,
        harness_version, mode, model, user_model, config_hash, isolation, cell_id
    from task_results
),

-- every category of the suite, also one that was not run
weighed as (
    select
        cell_graders.*,
        sizes.category,
        sizes.suite_tasks,
        coalesce(rates.planned_tasks, 0) as planned_tasks,
        rates.rate,
        coalesce(rates.n, 0) as n,
        coalesce(rates.planned, 0) as planned,
        case
            when coalesce(json_array_length(json_keys(suites.weights)), 0) = 0 then 1
            else coalesce(json_extract(suites.weights, '$."' || sizes.category || '"')::double, 0)
        end as weight
    from cell_graders
    inner join suites using (suite_digest)
    inner join sizes using (suite_digest)
    left join rates
        on rates.cell_id = cell_graders.cell_id
       and rates.grader = cell_graders.grader
       and rates.category = sizes.category
)

select
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
    cell_id,

    count(*) filter (where weight > 0) as categories,
    sum(n)::bigint as n,
    sum(n) / sum(planned) as coverage,
    case
        when count(*) filter (where weight > 0 and rate is null) = 0
        then sum(weight * rate) filter (where weight > 0) / sum(weight) filter (where weight > 0)
    end as category_index
from weighed
group by all
having bool_and(planned_tasks >= suite_tasks)

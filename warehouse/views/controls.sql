-- Oracle, null agent and vandal say whether a suite measures anything: nobody passes it, nobody fails it,
-- or damage goes unseen.
with

playing as (
    select cell_id, behaviour
    from sweep_cells
    where behaviour in ('oracle', 'null', 'vandal')
    union
    -- stamps alone, where the manifest is lost
    select
        cell_id,
        regexp_extract(coalesce(model_id, model), '(oracle|null|vandal)$') as behaviour
    from tries
    where endpoint_kind = 'scripted'
      and cell_id is not null
      and regexp_matches(coalesce(model_id, model), '(^|[:/_-])(oracle|null|vandal)$')
),

by_task as (
    select
        any_value(benchmark) as benchmark,
        any_value(suite) as suite,
        any_value(suite_version) as suite_version,
        suite_digest,
        any_value(dataset_version) as dataset_version,
        grader,
        user_model,
        behaviour,
        task_id,
        sum(planned) as planned,
        sum(n) as n,
        sum(c) as c,
        sum(errors) as errors
    from task_results
    inner join playing using (cell_id)
    group by suite_digest, grader, user_model, behaviour, task_id
)

select
    any_value(by_task.benchmark) as benchmark,
    any_value(by_task.suite) as suite,
    any_value(by_task.suite_version) as suite_version,
    by_task.suite_digest,
    any_value(by_task.dataset_version) as dataset_version,
    by_task.grader,
    by_task.user_model,
    by_task.behaviour,

    count(*) as tasks,
    count(*) filter (where by_task.c = by_task.n and by_task.n > 0) as solved,
    avg(by_task.c / nullif(by_task.n, 0)) as rate,
    sum(by_task.planned)::bigint as planned,
    sum(by_task.n)::bigint as n,
    sum(by_task.n) / sum(by_task.planned) as coverage,
    sum(by_task.errors)::bigint as errors,
    count(tasks.unsolvable) as unsolvable
from by_task
left join tasks
    on tasks.suite_digest = by_task.suite_digest
   and tasks.task_id = by_task.task_id
group by by_task.suite_digest, by_task.grader, by_task.user_model, by_task.behaviour

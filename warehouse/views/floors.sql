-- A floor is a result like any other: what the agent scores that does nothing.
with

null_agents as (
    select cell_id
    from sweep_cells
    where behaviour = 'null'
    union
    -- stamps alone, where the manifest is lost
    select cell_id
    from tries
    where endpoint_kind = 'scripted'
      and regexp_matches(coalesce(model_id, model), '(^|[:/_-])null$')
),

its_tasks as (
    select
        suite_digest,
        any_value(benchmark) as benchmark,
        any_value(suite) as suite,
        any_value(suite_version) as suite_version,
        any_value(dataset_version) as dataset_version,
        grader,
        user_model,
        category,
        task_id,
        sum(n) as n,
        sum(c) as c
    from task_results
    semi join null_agents using (cell_id)
    where n > 0
    group by suite_digest, grader, user_model, category, task_id
)

select
    any_value(benchmark) as benchmark,
    any_value(suite) as suite,
    any_value(suite_version) as suite_version,
    suite_digest,
    any_value(dataset_version) as dataset_version,
    grader,
    category,
    user_model,

    avg(c / n) as floor,
    count(*) as tasks,
    list(task_id order by task_id) as task_ids,
    sum(n)::bigint as n
from its_tasks
group by grouping sets (
    (suite_digest, grader, user_model, category),
    (suite_digest, grader, user_model)
)

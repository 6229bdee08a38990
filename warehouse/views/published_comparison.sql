-- A published run beside one of ours, over the tasks that both have: what has no task is in neither rate.
with

published as (
    select
        task_results.*,
        tasks.task_id is not null as mapped
    from task_results
    semi join (select distinct cell_id from attempts where origin = 'imported') imports
        on imports.cell_id = task_results.cell_id
    left join tasks
        on tasks.suite_digest = task_results.suite_digest
       and tasks.task_id = task_results.task_id
),

-- how much of what was published can be compared at all
whole as (
    select cell_id, grader, count(*) as published_tasks, count(*) filter (where not mapped) as unmapped_tasks
    from published
    group by cell_id, grader
),

ours as (
    select task_results.*
    from task_results
    anti join published using (cell_id)
    where n > 0
),

pairs as (
    select
        published.*,
        ours.cell_id as our_cell_id,
        ours.grader as our_grader,
        ours.harness as our_harness,
        ours.model as our_model,
        ours.user_model as our_user_model,
        ours.n as our_n,
        ours.rate as our_rate
    from published
    inner join ours
        on ours.suite_digest = published.suite_digest
       and ours.task_id = published.task_id
       and split_part(ours.grader, '@', 1) = published.benchmark
    where published.mapped and published.n > 0
)

select
    any_value(pairs.benchmark) as benchmark,
    any_value(pairs.suite) as suite,
    any_value(pairs.suite_version) as suite_version,
    any_value(pairs.suite_digest) as suite_digest,
    pairs.cell_id,
    pairs.grader,
    any_value(pairs.harness) as harness,
    any_value(pairs.model) as model,
    any_value(pairs.user_model) as user_model,
    pairs.our_cell_id,
    pairs.our_grader,
    any_value(our_harness) as our_harness,
    any_value(our_model) as our_model,
    any_value(our_user_model) as our_user_model,

    count(*) as tasks,
    any_value(published_tasks) as published_tasks,
    any_value(unmapped_tasks) as unmapped_tasks,
    tasks / any_value(published_tasks) as coverage,
    sum(n)::bigint as n,
    sum(our_n)::bigint as our_n,
    avg(rate) as pass_at_1,
    avg(our_rate) as our_pass_at_1,
    avg(our_rate - rate) as difference,
    count(*) filter (where our_rate > rate) as better,
    count(*) filter (where our_rate < rate) as worse,
    count(*) filter (where our_rate = rate) as same
from pairs
inner join whole using (cell_id, grader)
group by pairs.cell_id, pairs.grader, pairs.our_cell_id, pairs.our_grader

-- Every attempt under each grader that has judged its cell, so that no figure mixes two graders.
with

-- `--fresh` runs a repeat again under a new key: the newest that was brought to a result stands for it
all_attempts as materialized (
    select *
    from attempts
    qualify row_number() over (
        partition by cell_id, task_id, repeat, seed
        order by
            coalesce(outcome in ('solved', 'failed', 'grader_error'), false) desc,
            list_max(sweep_ids) desc
    ) = 1
),

graders_seen as (
    select distinct cell_id, grader
    from all_attempts
    where grader is not null
),

-- where nothing of a cell is graded yet, the grader of the other cells of the suite, else the planned one
graders_of_suites as (
    select suite_digest, max(grader) as grader
    from all_attempts
    group by suite_digest
),

graders_to_come as (
    select
        all_attempts.cell_id,
        coalesce(any_value(graders_of_suites.grader), max(sweep_cells.grader)) as grader
    from all_attempts
    anti join graders_seen using (cell_id)
    left join graders_of_suites using (suite_digest)
    left join sweep_cells using (cell_id)
    group by all_attempts.cell_id
),

graders as (
    select * from graders_seen
    union all
    select * from graders_to_come
),

judged as (
    select
        all_attempts.* exclude (grader, outcome),
        coalesce(graders.grader, 'none') as grader,
        case
            when all_attempts.grader is not null
             and all_attempts.grader <> graders.grader then 'graded_otherwise'
            else all_attempts.outcome
        end as outcome
    from all_attempts
    left join graders using (cell_id)
)

select
    *,
    coalesce(outcome in ('solved', 'failed'), false) as is_result
from judged

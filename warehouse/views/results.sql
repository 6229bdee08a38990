-- Every attempt under each grader that has judged its cell, so that no figure mixes two graders.
with

all_attempts as materialized (
    select * from attempts
),

graders_seen as (
    select distinct cell_id, grader
    from all_attempts
    where grader is not null
),

-- where nothing is graded yet, the grader that the sweep planned with
graders_planned as (
    select cell_id, max(grader) as grader
    from sweep_cells
    where cell_id not in (select cell_id from graders_seen)
    group by cell_id
),

graders as (
    select * from graders_seen
    union all
    select * from graders_planned
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

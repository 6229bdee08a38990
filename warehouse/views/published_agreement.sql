-- What was published of an imported attempt beside what our grader makes of the same evidence.
with

imported as (
    select
        attempts.*,
        tasks.task_id is not null as mapped,
        tasks.grader as grader_name
    from attempts
    left join tasks
        on tasks.suite_digest = attempts.suite_digest
       and tasks.task_id = attempts.task_id
    where attempts.origin = 'imported'
),

-- the newest version that has judged it
regraded as (
    select imported.cell_id, current_grade.*
    from imported
    inner join current_grade
        on current_grade.attempt_key = imported.attempt_key
       and current_grade.grader_name = imported.grader_name
    qualify row_number() over (
        partition by imported.cell_id, current_grade.attempt_key
        order by current_grade.graded_at desc, current_grade.grade_file desc
    ) = 1
)

select
    imported.attempt_key,
    imported.cell_id,
    imported.benchmark,
    imported.suite,
    imported.suite_version,
    imported.suite_digest,
    imported.harness,
    imported.model,
    imported.user_model,
    imported.task_id,
    imported.repeat,
    imported.mapped,

    imported.grader as published_by,
    imported.score as published_reward,
    regraded.grader as regraded_by,
    regraded.score as regraded_reward,
    abs(imported.score - regraded.score) < 1e-6 as agree,
    case
        when not imported.mapped then 'its task is not known'
        when imported.score is null then 'no reward was published'
        when regraded.grader is null then 'not regraded yet'
        when regraded.score is null then regraded.error_type || ': ' || regraded.error_message
    end as left_out
from imported
left join regraded
    on regraded.attempt_key = imported.attempt_key
   and regraded.cell_id = imported.cell_id

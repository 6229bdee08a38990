select
    attempts.attempt_key,
    attempts.cell_id,
    attempts.benchmark,
    attempts.suite,
    attempts.suite_version,
    attempts.suite_digest,
    attempts.task_id,
    attempts.category,
    attempts.repeat,
    attempts.harness,
    attempts.mode,
    attempts.model,
    attempts.grader,
    attempts.grade_file,

    attempts.outcome,
    checks.position,
    checks.name as check_name,
    checks.scope,
    checks.headline,
    checks.passed,
    checks.weight,
    checks.error_type,
    checks.finding,
    tasks.unsolvable
from attempts
inner join checks using (attempt_key, grade_file)
left join tasks
    on tasks.suite_digest = attempts.suite_digest
   and tasks.task_id = attempts.task_id

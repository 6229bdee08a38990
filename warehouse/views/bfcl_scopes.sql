-- BFCL judges one response, an agent may call again: the same attempts by three readings of their calls.
with

verdicts as (
    select
        results.*,
        checks.name as check_name,
        checks.passed
    from results
    inner join checks using (attempt_key, grade_file)
    where results.benchmark = 'bfcl'
      and results.is_result
      and checks.name in ('attempt', 'attempt_strict', 'first_response')
),

by_task as (
    select
        any_value(benchmark) as benchmark,
        any_value(suite) as suite,
        any_value(suite_version) as suite_version,
        any_value(suite_digest) as suite_digest,
        any_value(dataset_version) as dataset_version,
        any_value(harness) as harness,
        any_value(harness_version) as harness_version,
        any_value(mode) as mode,
        any_value(model) as model,
        any_value(user_model) as user_model,
        any_value(config_hash) as config_hash,
        any_value(isolation) as isolation,
        cell_id,
        grader,
        category,
        task_id,
        avg(passed::int) filter (where check_name = 'attempt') as attempt,
        avg(passed::int) filter (where check_name = 'attempt_strict') as attempt_strict,
        avg(passed::int) filter (where check_name = 'first_response') as first_response,
        count(passed) filter (where check_name = 'attempt') as attempt_n,
        count(passed) filter (where check_name = 'attempt_strict') as attempt_strict_n,
        count(passed) filter (where check_name = 'first_response') as first_response_n
    from verdicts
    group by cell_id, grader, category, task_id
)

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

    avg(attempt) as attempt,
    avg(attempt_strict) as attempt_strict,
    avg(first_response) as first_response,
    sum(attempt_n)::bigint as attempt_n,
    sum(attempt_strict_n)::bigint as attempt_strict_n,
    sum(first_response_n)::bigint as first_response_n
from by_task
group by grouping sets ((cell_id, grader, category), (cell_id, grader))

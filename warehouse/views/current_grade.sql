-- A grade is current if no newer version of its grader has judged the same bundle against the same spec.
-- A grader that could not be asked (its package was gone) does not take back what that version has said.
with

counting_tries as (
    select published.attempt_key, tries.bundle_hash
    from published
    inner join tries using (attempt_key, try)
    where tries.bundle_hash is not null
),

grades_of_them as (
    select grades.*
    from grades
    inner join counting_tries using (attempt_key, bundle_hash)
)

select
    attempt_key,
    grader as grader_name,
    grader_version,
    grader || '@' || grader_version as grader,
    spec_hash,
    bundle_hash,
    grade_file,

    solved,
    score,
    error_type,
    error_message,
    judge_model,
    judge_calls,
    judge_cost,

    graded_at
from grades_of_them
qualify row_number() over (
    partition by attempt_key, grader, spec_hash
    order by
        try_cast(regexp_extract_all(grader_version, '\d+') as bigint[]) desc nulls last,
        (solved is null),
        graded_at desc nulls last,
        grade_file desc
) = 1

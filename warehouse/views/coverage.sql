-- The same rate twice: with errors left out, and with every error counted as a failure.
with

errors_as_failures as (
    select
        cell_id,
        grader,
        category,
        avg(c / nullif(n + errors, 0)) as pass_at_1_errors_as_failures
    from task_results
    group by grouping sets ((cell_id, grader, category), (cell_id, grader))
)

select
    scorecard.benchmark,
    scorecard.suite,
    scorecard.suite_version,
    scorecard.suite_digest,
    scorecard.dataset_version,
    scorecard.grader,
    scorecard.category,
    scorecard.harness,
    scorecard.harness_version,
    scorecard.mode,
    scorecard.model,
    scorecard.user_model,
    scorecard.config_hash,
    scorecard.isolation,
    scorecard.cell_id,

    scorecard.planned,
    scorecard.n,
    scorecard.coverage,
    scorecard.infra_errors,
    scorecard.grader_errors,
    scorecard.cancelled,
    scorecard.skipped,
    scorecard.graded_otherwise,
    scorecard.not_run,

    scorecard.pass_at_1,
    errors_as_failures.pass_at_1_errors_as_failures
from scorecard
left join errors_as_failures
    on errors_as_failures.cell_id = scorecard.cell_id
   and errors_as_failures.grader = scorecard.grader
   and errors_as_failures.category is not distinct from scorecard.category

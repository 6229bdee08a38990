-- Planned attempts, and those whose sweep's manifest is lost, with what came of them.
with

planned_attempts as (
    select
        cell_id,
        attempt_key,
        task_id,
        repeat,
        min(seed) as seed,
        -- a sweep's judge is a part of what is asked: the newest sweep's, or the one that is looked at
        coalesce(
            max(spec_hash) filter (where sweep_id = getvariable('sweep_id')),
            arg_max(spec_hash, sweep_id)
        ) as spec_hash,
        list(distinct sweep_id order by sweep_id) as sweep_ids
    from planned
    group by cell_id, attempt_key, task_id, repeat
),

unplanned_attempts as (
    select
        cell_id,
        attempt_key,
        task_id,
        repeat,
        min(seed) as seed,
        null as spec_hash,
        list(distinct sweep_id order by sweep_id) as sweep_ids
    from tries
    where cell_id is not null
      -- an import counts when it is whole: its manifest is written last
      and origin is distinct from 'imported'
      and (attempt_key, suite_digest) not in (
        select (attempt_key, suite_digest) from planned inner join cells using (cell_id)
      )
    group by cell_id, attempt_key, task_id, repeat
),

asked as (
    select * from planned_attempts
    union all
    select * from unplanned_attempts
),

-- `set variable sweep_id = '…'` narrows every view to one sweep
asked_by_sweep as (
    select *
    from asked
    where getvariable('sweep_id') is null
       or list_contains(sweep_ids, getvariable('sweep_id'))
),

refused_cells as (
    select cell_id, bool_and(refused is not null) as refused
    from sweep_cells
    group by cell_id
),

-- the try that counts, else the last one
told_tries as (
    select
        tries.*,
        published.try is not null as counts
    from tries
    left join published using (attempt_key, try)
    qualify row_number() over (
        partition by tries.attempt_key
        order by published.try is not null desc, tries.try desc
    ) = 1
),

-- what judges were paid, whether or not their grade counts
judgements as (
    select
        attempt_key,
        case
            when count(judge_cost) = count(*) then sum(judge_cost::decimal(38, 12))
        end as judges_spend
    from grades
    where judge_calls > 0
    group by attempt_key
),

all_tries as (
    select
        attempt_key,
        count(*) as tries,
        case when count(cost) = count(*) then sum(cost::decimal(38, 12)) end as tries_spend
    from tries
    group by attempt_key
),

spent as (
    select
        all_tries.attempt_key,
        tries,
        case
            when judgements.attempt_key is null then tries_spend
            else tries_spend + judges_spend
        end::double as spend
    from all_tries
    left join judgements using (attempt_key)
),

joined as (
    select
        asked_by_sweep.*,
        cells.* exclude (cell_id),
        configurations.* exclude (configuration_id),
        coalesce(tasks.category, told_tries.category, 'all') as category,
        coalesce(tasks.difficulty, told_tries.difficulty) as difficulty,
        -- an imported attempt shows the verdict that was published; what we make of it stands beside it
        case
            when told_tries.origin = 'imported' then cells.benchmark || '-published'
            else tasks.grader
        end as grader_asked,
        coalesce(refused_cells.refused, false) as refused,
        published.try is not null as done,
        coalesce(told_tries.counts, false) as counts,
        coalesce(spent.tries, 0) as tries,
        spent.spend,
        told_tries.* exclude (
            cell_id, attempt_key, configuration_id, benchmark, suite, suite_version, suite_digest, task_id,
            category, difficulty, repeat, harness, harness_version, mode, model, user_model,
            config_hash, isolation, dataset_version, seed, sweep_id, counts
        )
    from asked_by_sweep
    left join cells using (cell_id)
    left join configurations using (configuration_id)
    left join refused_cells using (cell_id)
    left join tasks
        on tasks.suite_digest = cells.suite_digest
       and tasks.task_id = asked_by_sweep.task_id
    left join published using (attempt_key)
    left join told_tries using (attempt_key)
    left join spent using (attempt_key)
),

graded as (
    select
        joined.*,
        current_grade.grader,
        current_grade.grade_file,
        current_grade.solved,
        current_grade.score,
        current_grade.error_type as grade_error_type,
        current_grade.error_message as grade_error_message,
        current_grade.judge_model,
        current_grade.judge_calls,
        current_grade.judge_cost
    from joined
    left join current_grade
        on current_grade.attempt_key = joined.attempt_key
       and current_grade.grader_name = coalesce(joined.grader_asked, current_grade.grader_name)
       and current_grade.spec_hash is not distinct from
           coalesce(joined.spec_hash, current_grade.spec_hash)
    qualify row_number() over (
        partition by joined.cell_id, joined.attempt_key, joined.task_id, joined.repeat
        order by current_grade.graded_at desc nulls last, current_grade.grade_file desc nulls last
    ) = 1
),

decided as (
    select
        *,
        case
            when done and not counts then 'grader_error'
            when done and solved then 'solved'
            when done and not solved then 'failed'
            when done then 'grader_error'
            when tries = 0 and refused then 'skipped'
            when tries = 0 then null
            when error_class is not null and error_class <> 'cancelled' then 'infra_error'
            else 'cancelled'
        end as outcome
    from graded
)

select
    attempt_key,
    cell_id,
    benchmark,
    suite,
    suite_version,
    suite_digest,
    dataset_version,
    task_id,
    category,
    difficulty,
    repeat,
    harness,
    harness_version,
    mode,
    model,
    user_model,
    config_hash,
    isolation,
    model_id,
    endpoint_kind,
    sealed,
    unmetered,
    seed,
    sweep_ids,
    origin,

    outcome,
    ending,
    termination,
    detail,
    case
        when outcome = 'solved' then null
        when outcome = 'grader_error' then 'grader'
        else blame
    end as blame,
    case
        when outcome = 'cancelled' and counts is not true then coalesce(
            error_class, case when bundle_hash is null then 'interrupted' else 'unpublished' end
        )
        when outcome is distinct from 'grader_error' then error_class
        when not counts then 'corrupt_bundle'
        when grade_file is null then 'ungraded'
        else coalesce(grade_error_type, 'unnamed')
    end as error_class,
    case when outcome = 'grader_error' then grade_error_message else error_message end as error_message,
    case when outcome in ('solved', 'failed') then score end as score,
    grader,
    grade_file,

    try,
    tries,
    wall_s,
    startup_s,
    waited_s,
    cpu_s,
    tool_lists,
    tool_calls,
    tool_errors,
    model_calls,
    turns,
    input_uncached,
    cache_read,
    cache_write,
    output,
    reasoning,
    case when coalesce(judge_calls, 0) > 0 then cost + judge_cost else cost end as cost,
    spend,
    agent_cost,
    user_model_calls,
    user_input_uncached,
    user_cache_read,
    user_cache_write,
    user_output,
    user_reasoning,
    user_cost,
    user_tool_calls,
    user_tool_errors,
    judge_model,
    judge_calls,
    judge_cost,
    reported_cost,
    reported_user_cost,

    started_at,
    ended_at
from decided

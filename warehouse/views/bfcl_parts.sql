-- The leaderboard's parts as its own aggregation makes them, from the headline scope. A category counts only
-- where all of its tasks were planned; a part is NULL until all of its categories count, the overall until
-- all parts do.
with

categories (category, part, slot, by_size) as (
    values
        ('simple_python', 'non_live', 'simple', false),
        ('simple_java', 'non_live', 'simple', false),
        ('simple_javascript', 'non_live', 'simple', false),
        ('multiple', 'non_live', 'multiple', false),
        ('parallel', 'non_live', 'parallel', false),
        ('parallel_multiple', 'non_live', 'parallel_multiple', false),
        ('live_simple', 'live', 'live', true),
        ('live_multiple', 'live', 'live', true),
        ('live_parallel', 'live', 'live', true),
        ('live_parallel_multiple', 'live', 'live', true),
        ('irrelevance', 'irrelevance', 'irrelevance', false),
        ('live_irrelevance', 'irrelevance', 'live_irrelevance', false),
        ('multi_turn_base', 'multi_turn', 'base', false),
        ('multi_turn_miss_func', 'multi_turn', 'miss_func', false),
        ('multi_turn_miss_param', 'multi_turn', 'miss_param', false),
        ('multi_turn_long_context', 'multi_turn', 'long_context', false),
        ('web_search_base', 'agentic', 'web_search', false),
        ('web_search_no_snippet', 'agentic', 'web_search', false),
        ('memory_kv', 'agentic', 'memory', false),
        ('memory_vector', 'agentic', 'memory', false),
        ('memory_rec_sum', 'agentic', 'memory', false)
),

part_weights (part, weight) as (
    values
        ('non_live', 10),
        ('live', 10),
        ('irrelevance', 10),
        ('multi_turn', 30),
        ('agentic', 40)
),

sizes as (
    select suite_digest, category, count(*) as suite_tasks
    from tasks
    group by suite_digest, category
),

bfcl_tasks as (
    select * from task_results where benchmark = 'bfcl'
),

rates as (
    select
        suite_version,
        dataset_version,
        grader,
        harness,
        harness_version,
        mode,
        model,
        user_model,
        config_hash,
        isolation,
        category,
        suite_digest,
        avg(rate) as rate,
        count(*) as tasks,
        sum(n)::bigint as n,
        sum(planned)::bigint as planned
    from bfcl_tasks
    group by all
),

-- where a category was edited under one version name, neither edition counts
whole_rates as (
    select rates.*
    from rates
    inner join sizes using (suite_digest, category)
    where rates.tasks >= sizes.suite_tasks
    qualify count(*) over (
        partition by
            suite_version, dataset_version, grader, harness, harness_version, mode, model, user_model,
            config_hash, isolation, category
    ) = 1
),

configurations_seen as (
    select distinct
        suite_version, dataset_version, grader, harness, harness_version, mode, model, user_model,
        config_hash, isolation
    from rates
),

wanted as (
    select *
    from configurations_seen
    cross join categories
),

filled as (
    select
        wanted.*,
        whole_rates.rate,
        whole_rates.tasks,
        whole_rates.n,
        whole_rates.planned
    from wanted
    left join whole_rates
        on whole_rates.suite_version = wanted.suite_version
       and whole_rates.dataset_version is not distinct from wanted.dataset_version
       and whole_rates.grader = wanted.grader
       and whole_rates.harness = wanted.harness
       and whole_rates.harness_version is not distinct from wanted.harness_version
       and whole_rates.mode = wanted.mode
       and whole_rates.model = wanted.model
       and whole_rates.user_model is not distinct from wanted.user_model
       and whole_rates.config_hash is not distinct from wanted.config_hash
       and whole_rates.isolation is not distinct from wanted.isolation
       and whole_rates.category = wanted.category
),

slots as (
    select
        * exclude (category, by_size, rate, tasks, n, planned),
        case
            when bool_or(rate is null) then null
            when bool_or(by_size) then sum(rate * tasks) / sum(tasks)
            else avg(rate)
        end as score,
        list(category order by category) filter (where rate is null) as missing,
        coalesce(sum(n), 0)::bigint as n,
        coalesce(sum(planned), 0)::bigint as planned
    from filled
    group by all
),

parts as (
    select
        slots.* exclude (slot, score, missing, n, planned),
        case when count(score) = count(*) then avg(score) end as score,
        list_sort(flatten(list(coalesce(missing, [])))) as missing,
        sum(n)::bigint as n,
        sum(planned)::bigint as planned
    from slots
    group by all
),

overall as (
    select
        parts.* exclude (part, score, missing, n, planned),
        'overall' as part,
        100 as weight,
        case when count(score) = count(*) then sum(score * weight) / sum(weight) end as score,
        list_sort(flatten(list(missing))) as missing,
        sum(n)::bigint as n,
        sum(planned)::bigint as planned
    from parts
    inner join part_weights using (part)
    group by all
),

both_kinds as (
    select parts.*, part_weights.weight
    from parts
    inner join part_weights using (part)
    union all by name
    select * from overall
)

select
    suite_version,
    dataset_version,
    grader,
    harness,
    harness_version,
    mode,
    model,
    user_model,
    config_hash,
    isolation,
    part,
    weight,

    score,
    n,
    n / nullif(planned, 0) as coverage,
    missing
from both_kinds

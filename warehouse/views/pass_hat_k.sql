-- Few tasks differ in (n, c), so C(c,k)/C(n,k) is worked out once a pair: the product of (c-i)/(n-i), i < k.
with

pairs as (
    select
        cell_id,
        grader,
        category,
        n,
        c,
        count(*) as tasks
    from task_results
    group by grouping sets ((cell_id, grader, category, n, c), (cell_id, grader, n, c))
),

lengths as (
    select cell_id, grader, category, max(n) as longest
    from pairs
    group by cell_id, grader, category
),

steps as (
    select
        pairs.*,
        unnest(generate_series(1, longest)) as k
    from pairs
    inner join lengths
        on lengths.cell_id = pairs.cell_id
       and lengths.grader = pairs.grader
       and lengths.category is not distinct from pairs.category
),

chances as (
    select
        *,
        product(case when n >= k then greatest(c - k + 1, 0) / (n - k + 1) end) over (
            partition by cell_id, grader, category, n, c
            order by k
        ) as chance
    from steps
)

select
    cell_id,
    grader,
    category,
    k,
    case when min(n) >= k then sum(tasks * chance) / sum(tasks) end as pass_hat_k,
    sum(tasks)::bigint as tasks,
    coalesce(sum(tasks) filter (where n < k), 0)::bigint as tasks_short
from chances
group by cell_id, grader, category, k

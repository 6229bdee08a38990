-- The floor with the same user, else with the scripted one: who does nothing does not answer its user.
-- It must rest on all tasks that the score rests on: what three tasks ask says nothing of fifty.
with

beside as (
    select
        cell_id,
        any_value(suite_digest) as suite_digest,
        any_value(benchmark) as benchmark,
        grader,
        any_value(user_model) as user_model,
        any_value(origin) as origin,
        category,
        coalesce(
            list(distinct task_id) filter (
                where is_result
                  and (origin is distinct from 'imported' or not starts_with(task_id, 'unmapped-'))
            ),
            []
        ) as task_ids
    from results
    group by grouping sets ((cell_id, grader, category), (cell_id, grader))
)

select
    beside.cell_id,
    beside.grader,
    beside.category,
    first(
        floors.floor
        order by floors.user_model is not distinct from beside.user_model desc, floors.grader desc
    ) as floor,
    first(
        floors.user_model
        order by floors.user_model is not distinct from beside.user_model desc, floors.grader desc
    ) as floor_user_model
from beside
inner join floors
    on floors.suite_digest = beside.suite_digest
   and floors.category is not distinct from beside.category
   and list_has_all(floors.task_ids, beside.task_ids)
   and (
        floors.grader = beside.grader
        -- what was published is of the benchmark's own grader
        or (beside.origin = 'imported' and split_part(floors.grader, '@', 1) = beside.benchmark)
    )
   and (
        floors.user_model is not distinct from beside.user_model
        or floors.user_model = 'scripted'
    )
group by beside.cell_id, beside.grader, beside.category

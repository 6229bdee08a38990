-- The floor with the same user, else with the scripted one: who does nothing does not answer its user.
with

beside as (
    select distinct
        cell_id,
        suite_digest,
        benchmark,
        grader,
        user_model,
        origin,
        unnest([category, null]) as category
    from results
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

-- Where a harness says what it used, beside what the gateway metered.
with

reported as (
    select
        attempts.* exclude (cost),
        tries.cost,  -- a harness knows nothing of judges
        tries.reported_input_uncached,
        tries.reported_cache_read,
        tries.reported_cache_write,
        tries.reported_output,
        tries.reported_cost
    from attempts
    inner join tries using (attempt_key, try)
    where coalesce(
        tries.reported_input_uncached, tries.reported_cache_read, tries.reported_cache_write,
        tries.reported_output, tries.reported_cost
    ) is not null
)

select
    attempt_key,
    try,
    cell_id,
    benchmark,
    suite,
    task_id,
    harness,
    harness_version,
    mode,
    model,

    input_uncached,
    reported_input_uncached,
    cache_read,
    reported_cache_read,
    cache_write,
    reported_cache_write,
    output,
    reported_output,
    cost,
    reported_cost,

    reported_input_uncached - input_uncached as input_uncached_difference,
    reported_output - output as output_difference,
    reported_cost - cost as cost_difference,
    coalesce(reported_input_uncached = input_uncached, true)
        and coalesce(reported_cache_read = cache_read, true)
        and coalesce(reported_cache_write = cache_write, true)
        and coalesce(reported_output = output, true)
        and coalesce(abs(reported_cost - cost) <= 0.01 * cost, true) as agrees
from reported

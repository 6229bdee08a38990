-- What the gateway metered, beside what the scripted model behind it counted by itself.
with

counted as (
    select
        attempts.* exclude (cost),
        (tries.ledger ->> '$.requests')::bigint as ledger_requests,
        (tries.ledger ->> '$.input')::bigint as ledger_input_uncached,
        (tries.ledger ->> '$.cache_read')::bigint as ledger_cache_read,
        (tries.ledger ->> '$.cache_write')::bigint as ledger_cache_write,
        (tries.ledger ->> '$.output')::bigint as ledger_output,
        (tries.ledger ->> '$.reasoning')::bigint as ledger_reasoning
    from attempts
    inner join tries using (attempt_key, try)
    where (tries.ledger ->> '$.requests') is not null
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

    model_calls,
    ledger_requests,
    input_uncached,
    ledger_input_uncached,
    cache_read,
    ledger_cache_read,
    cache_write,
    ledger_cache_write,
    output,
    ledger_output,
    reasoning,
    ledger_reasoning,

    input_uncached = ledger_input_uncached
        and cache_read = ledger_cache_read
        and cache_write = ledger_cache_write
        and output = ledger_output
        and reasoning = ledger_reasoning as agrees
from counted

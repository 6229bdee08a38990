with

agent_calls as (
    select
        results.benchmark,
        results.suite,
        results.suite_version,
        results.suite_digest,
        results.dataset_version,
        results.grader,
        results.category,
        results.harness,
        results.harness_version,
        results.mode,
        results.model,
        results.user_model,
        results.config_hash,
        results.isolation,
        results.cell_id,
        tool_calls.status
    from results
    left join tool_calls
        on tool_calls.attempt_key = results.attempt_key
       and tool_calls.try = results.try
       and tool_calls.requestor = 'agent'
    where results.is_result
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

    count(status) as calls,
    count(*) filter (where status = 'ok') as ok,
    count(*) filter (where status = 'refused') as refused,
    count(*) filter (where status = 'unknown_tool') as unknown_tool,
    count(*) filter (where status = 'tool_error') as tool_error,
    count(*) filter (where status = 'timeout') as timeout,
    count(*) filter (where status = 'crashed') as crashed,
    count(*) filter (where status in ('cancelled', 'unfinished')) as unanswered,
    refused + unknown_tool + tool_error + timeout + crashed as errors,
    errors / nullif(calls, 0) as tool_error_rate
from agent_calls
group by grouping sets ((cell_id, grader, category), (cell_id, grader))

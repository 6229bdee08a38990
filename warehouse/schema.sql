-- The warehouse: an index of the evidence, which `dyno load --rebuild` makes again from bundles alone.
--
-- Rows are added and never edited, with two exceptions that the evidence itself makes: a sweep's manifest
-- is written again when the sweep ends, and a try without attempt.json (`interrupted`) may yet be sealed.
-- Loading replaces those rows whole.
--
-- There is no table of attempts: what came of an attempt follows from its newest grade, so `attempts` is a
-- view and an outcome is stored nowhere. `floors` is a view too: a floor is what the null agent scored.
-- No enums: a word that a later version adds must not need a migration. Times are UTC.
-- Each line: the column, then what it means; docs/views.md is made from these lines.

-- One fact about this file a row.
create table meta (
    key varchar,                     -- `schema`, `tables`, `evidence_root`, `views`
    value varchar                    -- its value, as text
);

-- One sweep a row, from evidence/sweeps/<sweep_id>.json.
create table sweeps (
    sweep_id varchar,                -- the manifest's name
    name varchar,                    -- name of the sweep file
    started_at timestamp,            -- when it was planned
    finished_at timestamp,           -- when it ended; NULL while it runs or if it was killed
    dyno_version varchar,            -- version of dyno that planned it
    cut boolean,                     -- true if `only` or `limit` left tasks out
    definition json,                 -- the sweep as it was asked for
    manifest_sha256 varchar          -- hash of the manifest's bytes
);

-- One harness as it was run with one model a row.
create table configurations (
    configuration_id varchar,        -- hash of the seven columns below
    harness varchar,                 -- name of the harness
    harness_version varchar,         -- exact version of the program
    mode varchar,                    -- how it is run: once, workflow, durable
    model varchar,                   -- name of the model's file
    user_model varchar,              -- model that plays the user; NULL without a simulated user
    config_hash varchar,             -- hash of the harness's and the model's settings
    isolation varchar                -- process or docker
);

-- One suite as it was run a row, from evidence/suites/<suite_digest>/.
create table suites (
    suite_digest varchar,            -- sha256 over the suite's header and tasks
    benchmark varchar,               -- public dataset and grader it comes from
    suite varchar,                   -- name
    suite_version varchar,           -- version
    description varchar,             -- what its author says of it
    dataset_source varchar,          -- package, repository or path
    dataset_version varchar,         -- version of the source
    dataset_sha256 varchar,          -- hash of the source
    dataset_date varchar,            -- day the source was published
    licence varchar,                 -- of the dataset
    grader varchar,                  -- grader@version it was made for
    weights json,                    -- weight of each category in its index; {} weighs them alike
    tasks bigint                     -- number of its tasks
);

-- One task of a suite a row.
create table tasks (
    suite_digest varchar,            -- the suite
    task_id varchar,                 -- id within the suite
    position bigint,                 -- place in the suite, from 0
    category varchar,                -- category
    difficulty varchar,              -- difficulty, where the benchmark states one
    grader varchar,                  -- name of the grader that judges it
    unsolvable varchar               -- why gold is not known to pass, where that is so
);

-- One suite × configuration a row.
create table cells (
    cell_id varchar,                 -- hash of suite_digest and configuration_id
    suite_digest varchar,            -- the suite
    configuration_id varchar,        -- the configuration
    benchmark varchar,               -- the suite's benchmark
    suite varchar,                   -- the suite's name
    suite_version varchar,           -- the suite's version
    dataset_version varchar          -- version of the dataset behind it
);

-- One cell of one sweep a row.
create table sweep_cells (
    sweep_id varchar,                -- the sweep
    cell bigint,                     -- number of the cell in the manifest
    cell_id varchar,                 -- the cell
    grader varchar,                  -- grader@version at planning
    model_id varchar,                -- id sent upstream
    behaviour varchar,               -- oracle, null, noisy, …: which scripted model; NULL: a real one
    sealed boolean,                  -- true if the sandbox hides the rest of the machine
    prices json,                     -- dollars per million tokens
    refused varchar,                 -- why it was not run; NULL if it was
    origin varchar,                  -- imported: somebody else ran it; NULL: dyno did
    stamp json                       -- the stamp it was planned with
);

-- One planned attempt of one sweep a row.
create table planned (
    sweep_id varchar,                -- the sweep
    cell bigint,                     -- number of its cell in the manifest
    cell_id varchar,                 -- the cell
    attempt_key varchar,             -- key: the same in every sweep that asks the same
    task_id varchar,                 -- the task
    repeat bigint,                   -- repeat, from 0
    seed hugeint,                    -- seed
    spec_hash varchar                -- what its grade must answer to; NULL: any grade of the attempt
);

-- One execution of an attempt a row, also those that count for nothing.
create table tries (
    attempt_key varchar,             -- the attempt
    try bigint,                      -- from 1
    bundle_hash varchar,             -- sha256 of attempt.json; NULL: interrupted, nobody sealed it
    sweep_id varchar,                -- the sweep that ran it
    origin varchar,                  -- imported: somebody else ran it; NULL: dyno did
    cell_id varchar,                 -- the cell it was run for
    configuration_id varchar,        -- the configuration it was run with
    benchmark varchar,               -- as stamped
    suite varchar,                   -- as stamped
    suite_version varchar,           -- as stamped
    suite_digest varchar,            -- as stamped
    task_id varchar,                 -- as stamped
    category varchar,                -- as stamped
    difficulty varchar,              -- as stamped
    repeat bigint,                   -- as stamped
    harness varchar,                 -- as stamped
    harness_version varchar,         -- as stamped
    mode varchar,                    -- as stamped
    model varchar,                   -- as stamped
    user_model varchar,              -- as stamped
    config_hash varchar,             -- as stamped
    isolation varchar,               -- as stamped
    model_id varchar,                -- id sent upstream
    endpoint_kind varchar,           -- scripted, http or none
    dataset_version varchar,         -- as stamped
    dataset_sha256 varchar,          -- as stamped
    dyno_version varchar,            -- as stamped
    seed hugeint,                    -- as stamped
    bridge_contract bigint,          -- as stamped
    sealed boolean,                  -- as stamped
    unmetered boolean,               -- true if the harness has a model and login of its own
    parameters json,                 -- forced model parameters
    prices json,                     -- dollars per million tokens
    ending varchar,                  -- clean, budget, timeout, refused, crashed, killed, interrupted
    detail varchar,                  -- how it ended, in words
    blame varchar,                   -- whose doing that was
    error_class varchar,             -- infrastructure error; NULL: this try is a result
    error_message varchar,           -- the error in words
    exit_code bigint,                -- of the harness
    signal bigint,                   -- that ended it
    left_processes bigint,           -- processes it left behind, which were killed
    started_at timestamp,            -- launch (of an interrupted try: its first journal row)
    ended_at timestamp,              -- end (of an interrupted try: its last journal row)
    wall_s double,                   -- seconds from launch to end
    startup_s double,                -- seconds from launch to first contact; NULL: there was none
    waited_s double,                 -- seconds spent waiting for a rate limit
    cpu_s double,                    -- CPU seconds of the harness
    stdout_bytes bigint,             -- kept output
    stderr_bytes bigint,             -- kept output
    dropped boolean,                 -- true if a journal has holes
    budget varchar,                  -- which budget was spent: model_calls, tokens, dollars
    journal_bytes bigint,            -- size of all journals
    tool_lists bigint,               -- how often the tools were listed; NULL: not known
    tool_calls bigint,               -- calls by the agent
    tool_errors bigint,              -- of them refused, unknown, failed, timed out or crashed
    model_calls bigint,              -- model calls by the agent; NULL: not known
    input_uncached bigint,           -- agent's tokens; NULL if any call was not measured
    cache_read bigint,               -- as input_uncached
    cache_write bigint,              -- as input_uncached
    output bigint,                   -- as input_uncached; holds reasoning
    reasoning bigint,                -- as input_uncached
    cost double,                     -- US dollars of the try's model calls, of the user too; NULL if any has none
    unmeasured_calls bigint,         -- model calls without a cost
    agent_cost double,               -- US dollars of the agent's model calls; NULL if any has none
    user_model_calls bigint,         -- model calls by the simulated user; NULL: not known
    user_input_uncached bigint,      -- simulated user's tokens; NULL if any call was not measured
    user_cache_read bigint,          -- as user_input_uncached
    user_cache_write bigint,         -- as user_input_uncached
    user_output bigint,              -- as user_input_uncached; holds reasoning
    user_reasoning bigint,           -- as user_input_uncached
    user_cost double,                -- US dollars of the user's model calls; NULL if any has none
    user_tool_calls bigint,          -- calls of tools by the simulated user
    user_tool_errors bigint,         -- of them refused, unknown, failed, timed out or crashed
    turns bigint,                    -- messages of the user; NULL without a conversation
    termination varchar,             -- how the conversation ended, in the benchmark's word; NULL without one
    reported_input_uncached double,  -- what the harness says it used
    reported_cache_read double,      -- as reported_input_uncached
    reported_cache_write double,     -- as reported_input_uncached
    reported_output double,          -- as reported_input_uncached
    reported_reasoning double,       -- as reported_input_uncached
    reported_cost double,            -- what the harness says it cost
    reported_user_cost double,       -- what it says the simulated user cost
    ledger json                      -- requests and tokens by a scripted model's own count; NULL: a real model
);

-- One attempt that is done a row: which of its tries counts.
create table published (
    attempt_key varchar,             -- the attempt
    try bigint                       -- the try that counts
);

-- One tool call a row, as a bridge saw it.
create table tool_calls (
    attempt_key varchar,             -- the attempt
    try bigint,                      -- the try
    seq bigint,                      -- place in the one order of the try's tool and model rows
    bundle_hash varchar,             -- the bundle; NULL: interrupted
    turn bigint,                     -- turn of the conversation; 0 without one
    requestor varchar,               -- agent, user or store
    called_at timestamp,             -- when it came in
    server varchar,                  -- the bridge
    tool varchar,                    -- name as it was sent
    native varchar,                  -- the benchmark's name; NULL: no such tool
    arguments varchar,               -- raw JSON text (its first 20,000 characters)
    result_seq bigint,               -- seq of the answer; NULL: none
    status varchar,                  -- ok, refused, unknown_tool, tool_error, timeout, crashed, cancelled, unfinished
    is_error boolean,                -- as the agent was told
    ms double,                       -- until the answer
    text varchar,                    -- the answer (its first 2,000 characters)
    cut bigint                       -- bytes of the answer that the journal left out
);

-- One model call a row, as the gateway saw it.
create table model_calls (
    attempt_key varchar,             -- the attempt
    try bigint,                      -- the try; NULL: a judge was asked, which is no part of a try
    judge bigint,                    -- number of the judge's record; NULL: the agent's or the user's call
    seq bigint,                      -- place in the one order of the try's tool and model rows
    bundle_hash varchar,             -- the bundle, or the one that is judged; NULL: interrupted
    turn bigint,                     -- turn of the conversation; 0 without one
    requestor varchar,               -- agent, user or judge
    called_at timestamp,             -- when it came in
    wire varchar,                    -- chat, responses or messages
    stream boolean,                  -- true if streaming was asked for
    model varchar,                   -- model as the client named it
    edits varchar[],                 -- what the gateway changed in the request
    response_seq bigint,             -- seq of the answer; NULL: none
    status varchar,                  -- ok, error, incomplete (cut off), budget (spent), unfinished (no answer)
    http_status bigint,              -- as the harness was told
    ms double,                       -- until the answer's end
    first_byte_ms double,            -- until its first byte
    queued_ms double,                -- of which waiting for a rate limit
    upstream_tries bigint,           -- requests sent upstream
    tool_calls bigint,               -- tool calls in the answer
    input_uncached bigint,           -- tokens; NULL: not measured
    cache_read bigint,               -- tokens; NULL: not measured
    cache_write bigint,              -- tokens; NULL: not measured
    output bigint,                   -- tokens, reasoning included; NULL: not measured
    reasoning bigint,                -- tokens; NULL: not measured
    cost double,                     -- US dollars; NULL: not measured or not priced
    budget varchar,                  -- the budget that was spent, where the gateway answered itself
    error varchar                    -- what went wrong, in words
);

-- One text of a conversation a row: what agent and simulated user say to each other.
create table messages (
    attempt_key varchar,             -- the attempt
    try bigint,                      -- the try
    seq bigint,                      -- place in the one order of the try's journals
    bundle_hash varchar,             -- the bundle; NULL: interrupted
    turn bigint,                     -- messages of the user so far, this one too
    requestor varchar,               -- agent or user: whose text it is
    said_at timestamp,               -- when; NULL: not known
    role varchar,                    -- assistant or user, as the benchmark has it
    opening boolean,                 -- true if the task begins with it
    content varchar                  -- the text (its first 20,000 characters)
);

-- One grade a row; a new one never replaces an old one.
create table grades (
    attempt_key varchar,             -- the attempt
    grade_file varchar,              -- its file's name
    grader varchar,                  -- name of the grader
    grader_version varchar,          -- version of the grader
    spec_hash varchar,               -- what was asked of the grader
    bundle_hash varchar,             -- the bundle that was judged
    graded_at timestamp,             -- when
    solved boolean,                  -- the verdict; NULL: the grader could not judge
    score double,                    -- between 0 and 1
    error_type varchar,              -- why the grader could not judge
    error_message varchar,           -- the same in words
    judge_model varchar,             -- the model that judged a part, as it names itself; NULL: none was asked
    judge_calls bigint,              -- calls of that model; NULL: none was asked
    judge_cost double                -- US dollars of them; NULL: none, or not measured or not priced
);

-- One check of a grade a row.
create table checks (
    attempt_key varchar,             -- the attempt
    grade_file varchar,              -- the grade
    position bigint,                 -- place in the grade, from 0
    name varchar,                    -- name of the check
    passed boolean,                  -- NULL: could not be told
    weight double,                   -- weight in the score
    scope varchar,                   -- which calls it looked at
    headline boolean,                -- true if `solved` rests on it
    error_type varchar,              -- the native grader's word for what is wrong
    finding varchar                  -- what was found, in words that can be argued with
);

-- One thing that could not be loaded a row; looked at again by every load.
create table load_problems (
    path varchar,                    -- relative to the evidence root
    reason varchar                   -- what was found
);

-- One shard that was read to its end a row.
create table shards (
    shard varchar,                   -- its folder's name
    bytes bigint                     -- size of its tries.ndjson by then
);

"""What is asked, as data: tasks, suites, harnesses, models and sweeps.

Every value here is frozen: it travels from a file through planning to a worker and is never edited on
the way. Unknown keys are refused, because a misspelt key that is ignored is a setting that silently
does not hold. `suites/loading.py` reads files into these types and words the errors.

What reaches a harness is an allow-list of a task's fields (`Task.for_agent`): never `grade`, `verify`
or `oracle`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

NAME = r"^[a-z0-9][a-z0-9._-]*$"
TOOL_NAME = r"^[A-Za-z0-9_]{1,64}$"

Role = Literal["system", "user", "assistant"]
Wire = Literal["chat", "responses", "messages", "none"]
Speaks = Literal["mcp", "shell"]
Ending = Literal["clean", "budget", "timeout", "refused", "crashed", "killed", "interrupted"]
Outcome = Literal["solved", "failed", "infra_error", "grader_error", "cancelled", "skipped"]
Blame = Literal["agent", "model", "user", "environment", "harness", "grader", "infra"]


class Frozen(BaseModel):
    """A value that travels: immutable, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


# ---------------------------------------------------------------- tasks


class Message(Frozen):
    """One role-tagged message of the task as the benchmark states it."""

    role: Role
    content: str


class Tool(Frozen):
    """A tool as a bridge lists it."""

    name: str = Field(pattern=TOOL_NAME)
    """The name on every wire: letters, digits and `_`, which no CLI or provider rewrites."""
    native_name: str | None = None
    """The benchmark's own name where the wire refuses it (`math.factorial`); calls by it are accepted
    too, and graders see it."""
    description: str = ""
    input_schema: dict[str, Any]
    """JSON Schema (draft 2020-12) of an object; arguments that do not fit come back as a tool error."""
    result: str | None = None
    """A fixed text returned for every accepted call; None where `run` or the environment answers."""
    run: str | None = None
    """`file.py:function` beside the suite: called with the arguments in a worker process."""


class Functions(Frozen):
    """The environment kind `functions`: tools that are declared, each with a fixed result or code."""

    name: str = Field(default="functions", pattern=TOOL_NAME)
    kind: Literal["functions"] = "functions"
    audience: Literal["agent", "user"] = "agent"
    tools: tuple[Tool, ...] = ()
    result: str | None = None
    """The fixed text for accepted calls of tools that have no `result` of their own."""
    root: str | None = None
    """Folder that `run` files are found in; set by the loader, never by a suite file."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Functions:
        seen: set[str] = set()
        for tool in self.tools:
            for name in {tool.name, tool.native_name or tool.name}:
                if name in seen:
                    raise ValueError(f"two tools answer to the name {name!r}")
                seen.add(name)
        return self


class Tau2World(Frozen):
    """The environment kind `tau2`: the stateful world of one τ²-bench domain, upstream's own code.

    One world with two doors: `tools` are listed on the agent's bridge, `user_tools` on the simulated
    user's. The state it begins with is the task's `setup`. Arguments are judged by upstream, not by the
    schemas, which are only listed.
    """

    name: str = Field(default="tau2", pattern=TOOL_NAME)
    kind: Literal["tau2"]
    audience: Literal["agent"] = "agent"
    domain: str
    """`airline`, `retail`, … as upstream's registry names it."""
    package: str
    """Version of the code in the cache (`26.3`), as `dataset.version` of the suite."""
    tools: tuple[Tool, ...] = ()
    user_tools: tuple[Tool, ...] = ()


def _kind(value: Any) -> str:
    """The kind of an environment; a suite file may leave `kind` out where it means `functions`."""
    if isinstance(value, dict):
        return str(value.get("kind", "functions"))
    return str(getattr(value, "kind", "functions"))


Environment = Annotated[
    Annotated[Functions, Tag("functions")] | Annotated[Tau2World, Tag("tau2")],
    Discriminator(_kind),
]
"""One of the environment kinds."""


class Limits(Frozen):
    """What one attempt may use; None is no limit of its own. Resolved sweep > suite > task > harness."""

    seconds: float | None = Field(default=None, gt=0)
    """Wall-clock deadline of the harness run, without waits for a rate limit."""
    tool_seconds: float | None = Field(default=None, gt=0)
    """Longest single tool call."""
    model_calls: int | None = Field(default=None, gt=0)
    tokens: int | None = Field(default=None, gt=0)
    """Input (cached too) plus output tokens, all model calls of the attempt together."""
    dollars: float | None = Field(default=None, gt=0)
    output_bytes: int | None = Field(default=None, gt=0)
    """How much of stdout and of stderr is kept, each."""

    def over(self, *weaker: Limits) -> Limits:
        """These limits where they are set, else the first of `weaker` that sets them."""
        merged = {
            key: next(
                (v for v in (getattr(o, key) for o in (self, *weaker)) if v is not None), None
            )
            for key in type(self).model_fields
        }
        return Limits(**merged)


DEFAULT_LIMITS = Limits(seconds=300, tool_seconds=60, model_calls=50, output_bytes=1_000_000)


class Grade(Frozen):
    """Which grader judges the task, and what it needs to know. Never shown to a harness."""

    grader: str
    """A module of `tasks/grade/` (`bfcl`, `checks`)."""
    spec: dict[str, Any] = Field(default_factory=dict)
    needs: Literal["judge", "container", "network"] | None = None


class OracleCall(Frozen):
    """One gold tool call."""

    tool: str
    """The tool's wire name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    requestor: Literal["agent", "user"] = "agent"
    """Whose call it is; the oracle asks the user for the user's."""


class Oracle(Frozen):
    """Gold steps, for control models only."""

    calls: tuple[OracleCall, ...] = ()
    """In gold order; in a conversation the user's are among them."""
    vandal: OracleCall | None = None
    """One legal call beside the gold that must cost the task; None lets the vandal repeat or invent one."""
    answer: str = "Done."
    unsolvable: str | None = None
    """Why gold is not known to pass, where that is so (a known-bad entry of the benchmark)."""


class Turn(Frozen):
    """One user turn of a task whose turns are given, with the tools that come and go before it."""

    messages: tuple[Message, ...] = ()
    tools_added: tuple[str, ...] = ()
    tools_removed: tuple[str, ...] = ()


class UserScript(Frozen):
    """What a scripted user says and does: for controls and tests, never for a score of a model.

    It opens with `opening`. Whenever the agent speaks it makes those of `calls` that come next and whose
    tool the agent's message names, and says so; when the agent's message names none, it ends the
    conversation with the first stop token.
    """

    opening: str
    calls: tuple[OracleCall, ...] = ()


class SimulatedUser(Frozen):
    """Who the agent talks to, where a task is a conversation. Who plays it, the sweep says (`user`)."""

    scenario: str
    """The system prompt of a model that plays the user, whole: guidelines and scenario."""
    script: UserScript | None = None
    stops: tuple[str, ...] = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
    """A user's message that holds one of these ends the conversation."""
    max_steps: int = Field(default=200, gt=0)
    """Messages, tool calls and their results, by agent and user together, before it is cut off."""
    max_errors: int = Field(default=10, gt=0)
    """Failed tool calls, of both together, before it is cut off."""


class Verify(Frozen):
    """A check run after the agent and before teardown, isolated; what it leaves is evidence."""

    command: tuple[str, ...]
    seconds: float = Field(default=120, gt=0)


class Task(Frozen):
    """One problem of a suite."""

    id: str = Field(min_length=1, pattern=r"^\S+$")
    category: str = "all"
    difficulty: str | None = None
    messages: tuple[Message, ...] = ()
    """What is asked; of a conversation (`user`), what both have said before it begins."""
    turns: tuple[Turn, ...] = ()
    policy: str | None = None
    environments: tuple[Environment, ...] = ()
    user: SimulatedUser | None = None
    setup: dict[str, Any] | None = None
    """The state that stateful environments begin with, in the benchmark's own form."""
    verify: Verify | None = None
    grade: Grade
    on_error: Literal["grade_work", "not_passed", "zero"] = "grade_work"
    """What an ending other than `clean` means: grade what was recorded, or fail the attempt."""
    oracle: Oracle | None = None
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _asks_something(self) -> Task:
        if bool(self.messages) == bool(self.turns):
            raise ValueError("needs either `messages` or `turns`")
        return self

    @field_validator("environments")
    @classmethod
    def _environment_names_are_unique(
        cls, value: tuple[Environment, ...]
    ) -> tuple[Environment, ...]:
        names = [environment.name for environment in value]
        if len(set(names)) != len(names):
            raise ValueError(f"two environments share a name: {sorted(names)}")
        return value

    def for_agent(self) -> dict[str, Any]:
        """The allow-list: all that a harness may be shown of this task (JSON values)."""
        return self.model_dump(mode="json", include={"messages", "policy"})


# ---------------------------------------------------------------- suites


class Dataset(Frozen):
    """Where a suite's tasks come from."""

    source: str
    version: str
    sha256: str | None = None
    """Hash of the source file or archive, hex."""
    date: str | None = None
    """Day the source was published, ISO."""
    licence: str | None = None


class Shared(Frozen):
    """What all tasks of a suite have alike, stated once; a task that states a field itself keeps its own."""

    policy: str | None = None
    environments: tuple[Environment, ...] = ()


class Suite(Frozen):
    """A pinned, versioned list of tasks (`suite.yaml`; the tasks lie beside it)."""

    name: str = Field(pattern=NAME)
    version: str = Field(min_length=1)
    benchmark: str = Field(pattern=NAME)
    description: str = ""
    dataset: Dataset
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each category in the suite's index; empty weighs them alike."""
    limits: Limits = Limits()
    shared: Shared | None = None
    """Fields of the tasks that are left out of `tasks.jsonl`; tasks are loaded with them filled in."""
    grader: str | None = None
    """grader@version the suite was made for; shown, not enforced."""


class LoadedSuite(Frozen):
    """A suite with its tasks, and the hash by which evidence knows it."""

    suite: Suite
    tasks: tuple[Task, ...]
    digest: str
    """sha256 over the suite's header and all its tasks, canonical JSON."""
    path: str
    """Where it was read from (display only)."""

    def task(self, task_id: str) -> Task:
        """The task of that id (KeyError)."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise KeyError(task_id)


# ---------------------------------------------------------------- harnesses


class Warm(Frozen):
    """A server of pre-imported modules that forks once an attempt, for Python harnesses.

    It saves the imports, not the work: each attempt is a process of its own, forked from one that has
    imported `imports` and nothing else.
    """

    python: str = "{{ python }}"
    script: str
    """Python file run as `__main__` in the fork; `command` then holds its arguments only."""
    imports: tuple[str, ...] = ()


class BudgetError(Frozen):
    """The HTTP reply that this CLI takes as final, told when an attempt's budget is spent."""

    status: int = Field(default=402, ge=400, le=599)
    body: dict[str, Any] = Field(
        default_factory=lambda: {
            "error": {
                "type": "budget_exceeded",
                "code": "budget_exceeded",
                "message": "The budget of this attempt is spent. Stop here.",
            }
        }
    )


class Phase(Frozen):
    """One launch of a harness that runs in several over one HOME (durable resume)."""

    command: tuple[str, ...] = Field(min_length=1)
    kill_after: int | None = Field(default=None, ge=1)
    """Kill this phase, and all it started, once so many of its tool calls have been answered. Where it ends
    before that by itself, its end is the end of the attempt."""


ExitMeaning = Literal[
    "clean", "budget", "timeout", "refused", "crashed", "infra_error", "harness_config_error"
]


class Harness(Frozen):
    """A program that drives a model through a task, wholly described by data."""

    name: str = Field(pattern=NAME)
    description: str = ""
    mode: str = "once"
    command: tuple[str, ...] = ()
    """argv, each a Jinja template (see docs/harnesses.md for the variables)."""
    files: dict[str, str] = Field(default_factory=dict)
    """Path (relative; `home/…` or `work/…`) to a template of its content."""
    env: dict[str, str] = Field(default_factory=dict)
    """All the environment there is beside PATH, HOME, LANG, TZ, TMPDIR and NO_PROXY."""
    stdin: str | None = None
    """A template fed to stdin, which is then closed; None: /dev/null."""
    wire: Wire = "chat"
    speaks: tuple[Speaks, ...] = ("mcp",)
    conversation: Literal["turns", "resume", "tool"] | None = None
    """How it holds a conversation, where a task is one. `tool` (also where nothing is said): it runs once,
    and the user is the tool `respond_to_user`. `turns`: it runs once for each turn of the agent, is given
    policy and transcript, and what it prints to stdout is said to the user. `resume`: the same, but
    later turns run `resume` over the same HOME and working directory and are given the user's message."""
    resume: tuple[str, ...] = ()
    """argv of every turn after the first, for `conversation: resume`."""
    phases: tuple[Phase, ...] = ()
    """Launches in place of `command`, one after the other, over one HOME, working directory and store."""
    store: bool = False
    """Whether it is given a state store that outlives its launches (`store_url`; bridges/store.py)."""
    telemetry: dict[str, Any] = Field(default_factory=dict)
    version_command: tuple[str, ...] | None = None
    version: str | None = None
    """Stated version, where no command tells it."""
    exit_codes: dict[int, ExitMeaning] = Field(default_factory=dict)
    """What exit codes mean; 0 is `clean` and all others `crashed` where nothing is said."""
    budget_error: BudgetError = BudgetError()
    warm: Warm | None = None
    limits: Limits = Limits()
    requires: tuple[str, ...] = ()
    """Programs that must be found (tasks/programs.py), beside those that its commands begin with."""
    native_tools: tuple[str, ...] = ()
    """Tools of its own that it offers the model beside the bridge's and that cannot be switched off: what
    goes through them is not journaled, and a reference has none. A file may say `none`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Free values for the templates, as `settings.…`; part of the configuration."""
    folder: str | None = None
    """What `{{ harness_dir }}` means; set by the loader, never by a file."""

    @field_validator("native_tools", mode="before")
    @classmethod
    def _none_is_a_word(cls, value: Any) -> Any:
        return () if value == "none" else value

    @field_validator("files")
    @classmethod
    def _files_stay_in_the_attempt(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            parts = name.split("/")
            if parts[0] not in ("home", "work") or len(parts) < 2 or {"", ".", ".."} & set(parts):
                raise ValueError(
                    f"{name!r} is not a path inside the attempt: begin it with home/ or work/"
                )
        return value

    @model_validator(mode="after")
    def _has_something_to_run(self) -> Harness:
        if not self.command and not self.phases and self.warm is None:
            raise ValueError("needs `command`, `phases` or `warm`")
        if self.phases:
            self._check_phases()
        if bool(self.resume) != (self.conversation == "resume"):
            raise ValueError("`conversation: resume` and the command `resume` go together")
        return self

    def _check_phases(self) -> None:
        if self.command or self.warm is not None:
            raise ValueError("`phases` stand in place of `command` and `warm`")
        if self.conversation in ("turns", "resume"):
            raise ValueError(f"`phases` and `conversation: {self.conversation}` exclude each other")
        if self.phases[-1].kill_after is not None:
            raise ValueError("the last phase ends by itself: `kill_after` has no place there")


# ---------------------------------------------------------------- models


class Prices(Frozen):
    """US dollars per million tokens, as listed on `date`."""

    date: str
    input: float = Field(ge=0)
    """Uncached input."""
    cache_read: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    output: float = Field(ge=0)


class RateLimits(Frozen):
    """Shared by all attempts of a sweep."""

    requests_per_minute: float | None = Field(default=None, gt=0)
    tokens_per_minute: float | None = Field(default=None, gt=0)
    concurrency: int | None = Field(default=None, gt=0)


class Model(Frozen):
    """An endpoint, a model id, parameters and prices."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")
    description: str = ""
    endpoint: str = Field(pattern=r"^(https?://\S+|scripted:[a-z]+|none)$")
    """Base URL that the wire's path is appended to (`…/v1`), or `scripted:oracle` and its kind."""
    model: str | None = None
    """The id sent upstream; the file's name where absent."""
    wire: Wire = "chat"
    also_speaks: tuple[Wire, ...] = ()
    """Further wires that the endpoint serves at the same base URL; a scripted model plays on all."""
    api_key_env: str | None = None
    """Name of the environment variable with the key; the key itself never enters a file."""
    prices: Prices | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Forced into every request body by the gateway, and stamped."""
    rate_limits: RateLimits = RateLimits()
    scripted: dict[str, Any] = Field(default_factory=dict)
    """Settings of a scripted model (`error_rate`, `playbook`, …)."""
    estimate: dict[str, float] = Field(default_factory=dict)
    """Typical tokens an attempt, for the cost estimate: `input`, `output`."""

    @property
    def is_scripted(self) -> bool:
        """True where dyno itself plays the model: no key, no spend."""
        return self.endpoint.startswith("scripted:")

    @property
    def wires(self) -> tuple[str, ...]:
        """The wires that its endpoint serves."""
        return (self.wire, *self.also_speaks)

    def speaks(self, wire: str) -> bool:
        """Whether a harness of this wire can use it."""
        return self.is_scripted or wire in self.wires

    @property
    def behaviour(self) -> str | None:
        """`oracle`, `null`, … of a scripted model."""
        return self.endpoint.removeprefix("scripted:") if self.is_scripted else None


# ---------------------------------------------------------------- sweeps


class Exclude(Frozen):
    """Cells to leave out: those that match every key given (globs)."""

    suite: str = "*"
    harness: str = "*"
    model: str = "*"


class Retries(Frozen):
    """How often an infrastructure error leads to another try, and after how long."""

    tries: int = Field(default=4, ge=1)
    backoff_seconds: float = Field(default=1.0, ge=0)


class Sweep(Frozen):
    """A matrix of suites × harnesses × models × repeats."""

    name: str = Field(pattern=NAME)
    description: str = ""
    suites: tuple[str, ...] = Field(min_length=1)
    harnesses: tuple[str | Harness, ...] = Field(min_length=1)
    models: tuple[str | Model, ...] = Field(min_length=1)
    exclude: tuple[Exclude, ...] = ()
    user: str | Model | None = None
    """Who plays the simulated user, where tasks are conversations: a model by name or path, `scripted`, or
    `replay:FILE`. Nobody plays it unless this says so: a score depends on it."""
    judge: str | Model | None = None
    """The model that judges, where a grader needs one; by name or path."""
    repeats: int = Field(default=1, ge=1, le=1000)
    only: str | None = None
    """Glob over task ids; results are per task then, and no index is given."""
    limit: int | None = Field(default=None, ge=1)
    """At most so many tasks a suite, the first in its order."""
    concurrency: int = Field(default=4, ge=1, le=512)
    limits: Limits = Limits()
    seed: int = 0
    isolation: Literal["process", "docker"] = "process"
    retries: Retries = Retries()
    budget_dollars: float | None = Field(default=None, gt=0)
    """No new attempt starts once the sweep's metered cost has reached this."""

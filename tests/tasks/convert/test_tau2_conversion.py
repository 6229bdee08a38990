from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from suites.canonical import file_sha256
from suites.errors import InputError
from suites.loading_suites import load_suite
from suites.schema import Task, Tau2World
from tasks.convert.fetch import Package
from tasks.convert.tau2 import (
    Conversion,
    Converted,
    basis_of,
    category_of,
    choose_categories,
    convert_tau2,
    describe_benchmark,
    write,
)
from tasks.convert.tau2_asking import Upstream
from tasks.convert.tau2_oracles import rows_of
from tasks.grade.client import Grading
from tasks.grade.graders import validate_grade
from tasks.grade.jobs import Job, native_names

SIZES = {
    "retail": 114,
    "airline": 50,
    "telecom": 114,
    "telecom-full": 2285,
    "telecom-small": 20,
    "mock": 9,
}
BASES = {
    "retail": {"DB × COMMUNICATE": 114},
    "airline": {"DB × COMMUNICATE": 50},
    "telecom": {"ENV_ASSERTION": 94, "ENV_ASSERTION × ACTION": 20},
    "telecom-full": {"ENV_ASSERTION": 2253, "ENV_ASSERTION × ACTION": 32},
    "telecom-small": {"ENV_ASSERTION": 18, "ENV_ASSERTION × ACTION": 2},
    "mock": {
        "DB × COMMUNICATE": 6,
        "DB × ENV_ASSERTION": 1,
        "ENV_ASSERTION": 1,
        "DB × ACTION": 1,
    },
}


def tasks_of(converted: dict[str, Converted]) -> Iterator[Task]:
    for suite in converted.values():
        yield from suite.tasks


def raw(task: Task) -> dict[str, Any]:
    found: dict[str, Any] = task.grade.spec["task"]
    return found


def world(task: Task) -> Tau2World:
    (environment,) = task.environments
    assert isinstance(environment, Tau2World)
    return environment


def upstream_tasks(tau2: Package, domain: str) -> list[dict[str, Any]]:
    path = tau2.folder / "tau2" / "data" / "tau2" / "domains" / domain / "tasks.json"
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return found


def test_every_task_of_the_split_is_there_in_upstreams_order(
    tau2_converted: dict[str, Converted], tau2: Package
) -> None:
    assert {name: len(suite.tasks) for name, suite in tau2_converted.items()} == SIZES
    stated = {name: c.tasks for name, c in describe_benchmark().categories.items() if c.tasks}
    assert stated == SIZES
    for name, suite in tau2_converted.items():
        category = describe_benchmark().categories[name]
        folder = tau2.folder / "tau2" / "data" / "tau2" / "domains" / category.domain
        split = json.loads((folder / "split_tasks.json").read_text())[category.split]
        theirs = [task for task in upstream_tasks(tau2, category.domain) if task["id"] in split]
        assert [raw(task) for task in suite.tasks] == theirs
        assert [task.id for task in suite.tasks] == [task["id"] for task in theirs]


def test_the_description_counts_what_the_rewards_rest_on(
    tau2_converted: dict[str, Converted],
) -> None:
    for name, suite in tau2_converted.items():
        counted = Counter(" × ".join(basis_of(raw(task))) for task in suite.tasks)
        assert counted == BASES[name]
        for basis, count in BASES[name].items():
            assert f"{basis} in {count}" in suite.suite.description


def test_a_suite_is_stamped_with_the_package_and_its_task_file(
    tau2_converted: dict[str, Converted], tau2: Package
) -> None:
    for name, suite in tau2_converted.items():
        domain = describe_benchmark().categories[name].domain
        path = tau2.folder / "tau2" / "data" / "tau2" / "domains" / domain / "tasks.json"
        assert suite.suite.dataset.sha256 == file_sha256(path)
        assert suite.suite.dataset.version == "26.3"
        assert suite.suite.version == "26.3-1"
        assert suite.suite.grader is not None
        assert suite.suite.grader.startswith("tau2@26.3+")


def test_a_conversation_begins_with_the_greeting_or_with_its_history(
    tau2_converted: dict[str, Converted],
) -> None:
    with_history = []
    for task in tasks_of(tau2_converted):
        history = (raw(task).get("initial_state") or {}).get("message_history")
        said = [(message.role, message.content) for message in task.messages]
        if history:
            with_history.append(task.id)
            assert said == [
                (m["role"], m["content"])
                for m in history
                if m.get("content") and m["role"] != "tool"
            ]
            assert task.setup is not None
            assert task.setup["message_history"] == history
        else:
            assert said == [("assistant", "Hi! How can I help you today?")]
    assert with_history == [
        "update_task_with_message_history",
        "update_task_with_history_and_env_assertions",
    ]


def test_the_setup_is_upstreams_and_leaves_out_what_is_absent(
    tau2_converted: dict[str, Converted],
) -> None:
    for task in tasks_of(tau2_converted):
        stated = raw(task).get("initial_state") or {}
        assert (task.setup or {}) == {k: v for k, v in stated.items() if v is not None}
        assert task.setup != {}
    kinds = Counter(key for task in tasks_of(tau2_converted) for key in task.setup or {})
    assert kinds["initialization_actions"] > 2000
    assert kinds["initialization_data"] == 1


def test_policy_and_tools_are_stated_once_and_filled_in(
    tau2_converted: dict[str, Converted], tau2: Package
) -> None:
    for name, converted in tau2_converted.items():
        lines = (converted.folder / "tasks.jsonl").read_text("utf-8").splitlines()
        assert not [line for line in lines if "policy" in json.loads(line)]
        assert not [line for line in lines if "environments" in json.loads(line)]
        loaded = load_suite(converted.suite.name, validate_grade)
        assert list(loaded.tasks) == list(converted.tasks), name
    policy = tau2.folder / "tau2" / "data" / "tau2" / "domains" / "airline" / "policy.md"
    assert tau2_converted["airline"].tasks[0].policy == policy.read_text()


def test_every_schema_is_valid_json_schema_of_an_object(
    tau2_converted: dict[str, Converted],
) -> None:
    counts = {}
    for name, converted in tau2_converted.items():
        here = world(converted.tasks[0])
        counts[name] = (len(here.tools), len(here.user_tools))
        for tool in (*here.tools, *here.user_tools):
            Draft202012Validator.check_schema(tool.input_schema)
            assert tool.input_schema["type"] == "object"
            assert tool.description
    assert counts["airline"] == (14, 0)
    assert counts["retail"] == (15, 0)
    assert counts["telecom"] == counts["telecom-full"] == counts["telecom-small"] == (13, 30)
    assert counts["mock"] == (4, 0)


def test_the_user_is_told_what_upstreams_simulator_is_told(
    tau2_converted: dict[str, Converted], tau2: Package
) -> None:
    guidelines = tau2.folder / "tau2" / "data" / "tau2" / "user_simulator"
    plain = (guidelines / "simulation_guidelines.md").read_text()
    tools = (guidelines / "simulation_guidelines_tools.md").read_text()
    for name, converted in tau2_converted.items():
        for task in converted.tasks:
            assert task.user is not None
            assert task.user.scenario.startswith(tools if "telecom" in name else plain)
            asked = raw(task)["user_scenario"]["instructions"]
            for text in asked.values() if isinstance(asked, dict) else [asked]:
                for line in (text or "").splitlines():
                    assert line.strip() in task.user.scenario
            assert (task.user.max_steps, task.user.max_errors) == (200, 10)


def test_the_script_opens_with_the_reason_and_holds_the_users_gold_calls(
    tau2_converted: dict[str, Converted],
) -> None:
    for task in tasks_of(tau2_converted):
        assert task.user is not None
        assert task.user.script is not None
        asked = raw(task)["user_scenario"]["instructions"]
        first = asked["reason_for_call"] if isinstance(asked, dict) else asked
        assert task.user.script.opening.startswith(first.strip())
        actions = (raw(task).get("evaluation_criteria") or {}).get("actions") or []
        theirs = [a["name"] for a in actions if a.get("requestor") == "user"]
        assert [call.tool for call in task.user.script.calls] == theirs


def test_gold_is_all_actions_in_order_and_an_answer_with_all_that_must_be_said(
    tau2_converted: dict[str, Converted],
) -> None:
    for task in tasks_of(tau2_converted):
        assert task.oracle is not None
        criteria = raw(task).get("evaluation_criteria") or {}
        actions = criteria.get("actions") or []
        assert [(c.tool, c.arguments, c.requestor) for c in task.oracle.calls] == [
            (a["name"], a["arguments"], "user" if a.get("requestor") == "user" else "agent")
            for a in actions
        ]
        for fact in criteria.get("communicate_info") or []:
            assert fact in task.oracle.answer


def test_gold_is_proven_and_its_failures_are_named(tau2_converted: dict[str, Converted]) -> None:
    failing = {name: sorted(done.unsolvable) for name, done in tau2_converted.items()}
    assert failing == {name: [] for name in SIZES} | {
        "mock": ["update_task_with_history_and_env_assertions"]
    }
    reason = tau2_converted["mock"].unsolvable["update_task_with_history_and_env_assertions"]
    assert "ENV_ASSERTION" in reason.upper()
    for task in tasks_of(tau2_converted):
        assert task.oracle is not None
        assert bool(task.oracle.unsolvable) == (
            task.id == "update_task_with_history_and_env_assertions"
        )


def test_a_vandals_call_is_legal_and_the_tasks_it_does_not_cost_are_named(
    tau2_converted: dict[str, Converted],
) -> None:
    for name in ("retail", "airline", "mock"):
        converted = tau2_converted[name]
        for task in converted.tasks:
            assert task.oracle is not None
            if not task.oracle.unsolvable:
                assert task.oracle.vandal is not None
                assert task.oracle.vandal.tool in {tool.name for tool in world(task).tools}
                assert task.oracle.vandal not in task.oracle.calls
    assert tau2_converted["retail"].unspoilt == ()
    assert tau2_converted["airline"].unspoilt == ()
    assert tau2_converted["mock"].unspoilt == (
        "create_task_1_nl_eval",
    )  # its reward looks at nothing


@pytest.mark.parametrize("name", ["retail", "airline", "mock", "telecom-full"])
def test_the_grader_fails_what_the_world_was_seen_to_cost(
    tau2_converted: dict[str, Converted], tau2: Package, grading: Grading, name: str
) -> None:
    """A world that gold's databases or an assertion's are not is not judged when it is converted."""
    tasks = tau2_converted[name].tasks[:: len(tau2_converted[name].tasks) // 8]
    domain = describe_benchmark().categories[name].domain
    ids = [task["id"] for task in upstream_tasks(tau2, domain)]
    upstream = Upstream(tau2.folder)
    try:
        runs = upstream.run(domain, [(ids.index(raw(task)["id"]), 0) for task in tasks])
    finally:
        upstream.close()
    jobs = []
    for task, run in zip(tasks, runs, strict=True):
        assert task.oracle is not None
        if task.oracle.unsolvable or run["vandal"] is None or not run["vandal"]["costs"]:
            continue
        for calls in (run["gold"], [*run["gold"], run["vandal"]]):
            rows = rows_of(task, calls, task.oracle.answer)
            names = native_names(task)
            jobs.append(Job(task.id, "tau2", task.grade.spec, names, dataset="26.3", rows=rows))
    assert len(jobs) >= 6
    solved = [grade["solved"] for grade in grading.grade_bundles(jobs)]
    assert solved == [True, False] * (len(jobs) // 2)


def test_telecoms_index_is_the_mean_over_its_tasks_as_upstream_has_it(
    tau2_converted: dict[str, Converted],
) -> None:
    telecom = tau2_converted["telecom-full"]
    sizes = Counter(task.category for task in telecom.tasks)
    assert telecom.suite.weights == {kind: float(n) for kind, n in sizes.items()}
    assert set(sizes) == {"mobile_data_issue", "mms_issue", "service_issue"}
    assert not tau2_converted["retail"].suite.weights
    assert category_of("12") == "all"


def test_a_task_that_two_suites_share_is_the_same_in_both(
    tau2_converted: dict[str, Converted],
) -> None:
    full = {task.id: task for task in tau2_converted["telecom-full"].tasks}
    for name in ("telecom", "telecom-small"):
        assert all(task == full[task.id] for task in tau2_converted[name].tasks)


def test_converting_twice_gives_the_same_bytes(
    tau2_converted: dict[str, Converted], tau2: Package, tmp_path: Path
) -> None:
    names = ["airline", "mock", "telecom-small"]
    before = {
        name: [p.read_bytes() for p in sorted(tau2_converted[name].folder.iterdir())]
        for name in names
    }
    with Conversion(tau2) as conversion:
        for name in reversed(names):  # neither does it matter what was converted before
            again = conversion.convert(name)
            write(again)
            assert [p.read_bytes() for p in sorted(again.folder.iterdir())] == before[name]


def test_ids_are_upstreams_without_whitespace(tau2_converted: dict[str, Converted]) -> None:
    for task in tasks_of(tau2_converted):
        assert task.id == re.sub(r"\s+", "_", raw(task)["id"])


# ---------------------------------------------------------------- what cannot be converted


def test_names_are_known_in_every_spelling_and_a_wrong_one_is_refused() -> None:
    assert choose_categories(["tau2-telecom-full", "telecom_small", "mock", "mock"]) == [
        "telecom-full",
        "telecom-small",
        "mock",
    ]
    with pytest.raises(InputError) as caught:
        choose_categories(["airlin"])
    assert "airline" in (caught.value.mend or "")


def test_a_domain_that_only_checkouts_have_is_left_out_and_refused_by_name(tau2: Package) -> None:
    with Conversion(tau2) as conversion:
        assert "banking-knowledge" not in conversion.present(choose_categories())
    with pytest.raises(InputError, match="has no domain 'banking_knowledge'") as caught:
        convert_tau2(categories=["banking-knowledge"])
    assert "--source" in (caught.value.mend or "")

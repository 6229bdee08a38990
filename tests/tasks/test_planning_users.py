"""Who plays a simulated user: in the key of those who meet it, in the stamp, and refused where wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from suites.errors import InputError
from suites.loading import load_sweep
from suites.schema import Harness, Model, Sweep
from tasks.planning import make_plan
from tasks.plans import Plan
from tests.tasks.talking import task, write_suite
from warehouse.evidence import Evidence

PERSON = Model(name="person", endpoint="https://one.example/v1", model="person-1")
OLD_KEY = "fe7abf46dee8c245da0fac394922f3f25762273a8fa44335f8db9cde3967a4c7"
"""Of the task below, made before there were users: what was done then stays done."""


@pytest.fixture
def talking(home: Path, tmp_path: Path) -> str:
    """A suite of two conversations."""
    return write_suite(tmp_path, task(0), task(1))


def plan(suite: str, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "name": "test",
        "suites": [suite],
        "harnesses": [Harness(name="h", command=("true",), version="1")],
        "models": ["oracle"],
        "user": "scripted",
    } | changes
    return make_plan(Sweep.model_validate(values))


def keys(made: Plan) -> list[str]:
    return [planned["key"] for planned in made.manifest["attempts"]]


def write_replay(folder: Path, said: Any) -> str:
    (folder / "said.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return f"replay:{folder / 'said.json'}"


def test_who_plays_the_user_is_in_the_key_the_stamp_and_the_configuration(
    talking: str, tmp_path: Path
) -> None:
    replay = write_replay(tmp_path, [{"content": "Hello."}])
    other = PERSON.model_copy(update={"parameters": {"temperature": 1}})
    plans = {
        name: plan(talking, user=user)
        for name, user in {
            "scripted": "scripted",
            "replay": replay,
            "person": PERSON,
            "other person": other,
        }.items()
    }
    assert len({keys(made)[0] for made in plans.values()}) == 4
    assert len({made.cells[0].config_hash for made in plans.values()}) == 4
    for name, made in plans.items():
        called = name.split()[-1]
        assert made.cells[0].user_model == made.cells[0].stamp["user_model"] == called
        assert made.cells[0].user.kind == ("model" if called == "person" else called)


def test_where_the_users_model_is_and_what_it_costs_leave_the_key_alone(talking: str) -> None:
    moved = PERSON.model_copy(update={"endpoint": "https://two.example/v1", "name": "somebody"})
    assert keys(plan(talking, user=PERSON)) == keys(plan(talking, user=moved))


def test_a_task_without_a_user_has_the_key_it_had(home: Path) -> None:
    for user in (None, "scripted", PERSON):
        made = plan("hello-tools", only="weather", user=user)
        assert keys(made) == [OLD_KEY]
        assert made.cells[0].user_model is None
        assert "user" not in made.cells[0].definitions


def test_a_replayed_user_counts_by_what_it_says_in_the_task(talking: str, tmp_path: Path) -> None:
    said = {"talk-0": [{"content": "Hello."}], "talk-1": [{"content": "Good day."}]}
    before = keys(plan(talking, user=write_replay(tmp_path, said)))
    said["talk-1"] = [{"calls": [{"tool": "look", "arguments": {}}]}, {"content": "Well."}]
    after = keys(plan(talking, user=write_replay(tmp_path, said)))
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_worker_elsewhere_reads_the_same_user(talking: str, home: Path, tmp_path: Path) -> None:
    evidence = Evidence(home / "evidence")
    replay = write_replay(tmp_path, [{"content": "Hello."}])
    for user in ("scripted", PERSON, replay):
        made = plan(talking, user=user)
        made.write(evidence)
        if user == replay:
            (tmp_path / "said.json").unlink()
        assert Plan.read(evidence, made.sweep_id).cells[0].user == made.cells[0].user


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"user": None}, ["is a conversation", "user: scripted", "--user"]),
        ({"user": "gpt-nobody"}, ["`user` is 'gpt-nobody'", "scripted", "replay:FILE"]),
        ({"user": "oracle"}, ["knows the gold", "`scripted`"]),
        ({"user": Model(name="l", endpoint="none")}, ["only a label"]),
        ({"user": Model(name="l", endpoint="https://x/v1", wire="messages")}, ["needs chat"]),
        (
            {"user": Model(name="l", endpoint="https://x/v1", api_key_env="NO_SUCH_KEY_HERE")},
            ["export NO_SUCH_KEY_HERE"],
        ),
        (
            {"judge": Model(name="l", endpoint="https://x/v1", api_key_env="NO_SUCH_KEY_HERE")},
            ["export NO_SUCH_KEY_HERE"],
        ),
        ({"judge": "scripted"}, ["`judge` is 'scripted'", "no model named"]),
        ({"user": "replay:/no/such/file"}, ["/no/such/file", "cannot be read"]),
        (
            {"user": Model(name="p", endpoint="scripted:playbook")},
            ["the model 'p'", "steps"],
        ),
        (
            {"harnesses": [Harness(name="h", command=("true",), version="1", speaks=())]},
            ["speaks to none"],
        ),
    ],
)
def test_a_user_that_cannot_play_is_refused_before_anything_is_spent(
    talking: str, home: Path, changes: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        plan(talking, **changes)
    for part in says:
        assert part in str(caught.value)
    assert not (home / "evidence").exists()


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("[", "is not JSON"),
        ({"talk-0": "hi"}, "talk-0: holds str"),
        ([{"content": 1}], "[0]: is not a message"),
        ([{"calls": [{"tool": "x", "args": {}}]}], "[0]: is not a message"),
        ([{"text": "hi"}], "[0]: is not a message"),
        ({"talk-9": [{"content": "hi"}]}, "holds nothing that the user of the task talk-0 says"),
    ],
)
def test_a_record_that_cannot_be_replayed_is_refused_with_its_place(
    talking: str, tmp_path: Path, said: Any, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        plan(talking, user=write_replay(tmp_path, said))
    assert says in str(caught.value)
    assert "said.json" in str(caught.value)


def test_a_sweep_file_that_names_a_wrong_user_is_told_its_line(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nsuites: [x]\nharnesses: [reference]\nmodels: [oracle]\nuser: orcle\n")
    with pytest.raises(InputError) as caught:
        load_sweep(str(path))
    assert f"{path}:5: user" in str(caught.value)
    assert "did you mean" in str(caught.value)


def test_a_user_can_be_a_named_model_with_other_settings(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        f"name: s\nsuites: [{write_suite(tmp_path)}]\nharnesses: [reference]\nmodels: [oracle]\n"
        "user: {use: 'null', name: mute, parameters: {temperature: 0}}\n"
    )
    cell = make_plan(load_sweep(str(path))).cells[0]
    assert (cell.user.model.name, cell.user.model.parameters) == ("mute", {"temperature": 0})


def test_only_the_cells_with_conversations_are_refused_without_a_user(talking: str) -> None:
    made = plan(talking, suites=["hello-tools", talking], user=None, harnesses=["shell-script"])
    assert [cell.refused is None for cell in made.cells] == [True, False]


def test_a_task_that_needs_a_judge_needs_one_named(home: Path, tmp_path: Path) -> None:
    grade = task()["grade"] | {"needs": "judge"}
    suite = write_suite(tmp_path, task(grade=grade))
    with pytest.raises(InputError, match="names none"):
        plan(suite)
    judge = Model(name="judge", endpoint="https://one.example/v1")
    assert plan(suite, judge=judge).cells[0].judge_definition == judge
    assert plan(write_suite(tmp_path), judge=judge).cells[0].judge_definition == judge
    assert plan("hello-tools", judge=judge).cells[0].judge_definition is None


def test_a_setup_needs_a_world_that_begins_with_it(home: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no environment that begins with one"):
        plan(write_suite(tmp_path, task(setup={"initialization_data": {}})))
    world = {"name": "mock", "kind": "tau2", "domain": "mock", "package": "26.3"}
    made = plan(write_suite(tmp_path, task(setup={"a": 1}, environments=[world], oracle=None)))
    assert made.cells[0].refused is None


def test_a_turns_harness_needs_no_tools_to_talk(home: Path, tmp_path: Path) -> None:
    told = {"name": "h", "command": ["true"], "version": "1", "speaks": [], "conversation": "turns"}
    made = plan(
        write_suite(tmp_path, task(environments=[], oracle=None)), harnesses=[told], models=["null"]
    )
    assert made.cells[0].refused is None


def test_an_environment_cannot_take_the_users_name(home: Path, tmp_path: Path) -> None:
    named = task()["environments"][0] | {"name": "user"}
    with pytest.raises(InputError, match="the user's own server"):
        plan(write_suite(tmp_path, task(environments=[named])))

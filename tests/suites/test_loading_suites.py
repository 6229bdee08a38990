from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from suites.errors import InputError
from suites.home import PROJECT
from suites.loading_suites import list_suites, load_suite, run_files, save_suite, suite_digest
from suites.schema import (
    Dataset,
    Grade,
    Message,
    Shared,
    SimulatedUser,
    Suite,
    Task,
    Tau2World,
    Tool,
)

TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def task(**changes: Any) -> dict[str, Any]:
    """A task as a hand-written file has it."""
    return {
        "id": "one",
        "messages": [{"role": "user", "content": "Do it."}],
        "environments": [{"kind": "functions", "result": "done", "tools": [TOOL]}],
        "grade": {"grader": "checks", "spec": {}},
        **changes,
    }


def tool(**changes: Any) -> dict[str, Any]:
    """A task of one tool that is changed so."""
    return task(
        environments=[{"kind": "functions", "result": "done", "tools": [{**TOOL, **changes}]}]
    )


def suite(*tasks: Any, **changes: Any) -> dict[str, Any]:
    header = {"name": "mine", "version": "1", "benchmark": "mine"}
    return {**header, "tasks": list(tasks) or [task()], **changes}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DYNO_HOME", str(tmp_path / "home"))
    return tmp_path


def write(folder: Path, value: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value, sort_keys=False))
    return path


def refused(folder: Path, value: Any) -> InputError:
    """Why a hand-written suite is refused; its place without the folder's name."""
    path = write(folder, value)
    with pytest.raises(InputError) as caught:
        load_suite(path)
    assert str(caught.value.where).startswith(str(path))
    return caught.value


# ---------------------------------------------------------------- what is there


def test_the_example_suite_is_sound_and_its_code_is_found() -> None:
    loaded = load_suite("hello-tools")
    assert [task.id for task in loaded.tasks] == [
        "weather",
        "fahrenheit",
        "tidy-up",
        "no-tool-fits",
    ]
    assert list(run_files(loaded.tasks)) == ["hello_tools.py"]
    assert loaded.suite.dataset.source == "hello-tools.yaml"
    assert loaded.path == str(PROJECT / "suites" / "benchmarks" / "hello-tools.yaml")


def test_a_suite_is_found_by_name_folder_or_file(folder: Path) -> None:
    loaded = load_suite(write(folder, suite()))
    home = folder / "home" / "suites" / "mine"
    save_suite(home, loaded.suite, loaded.tasks)
    by_name = load_suite("mine")
    assert by_name.path == str(home)
    assert load_suite(home) == by_name == load_suite(home / "suite.yaml")
    assert by_name.digest == loaded.digest
    assert {"hello-tools", "mine"} <= set(list_suites())


def test_a_converted_suite_is_found_before_a_shipped_one(folder: Path) -> None:
    loaded = load_suite("hello-tools")
    home = folder / "home" / "suites" / "hello-tools"
    save_suite(home, loaded.suite, loaded.tasks)
    again = load_suite("hello-tools")
    assert again.path == str(home)
    assert again.digest == loaded.digest
    assert (home / "hello_tools.py").is_file()  # the code goes with it
    assert again.tasks[1].environments[0].root == str(home)


def test_saving_gives_the_same_bytes_and_replaces_what_was_there(folder: Path) -> None:
    loaded = load_suite("hello-tools")
    home = folder / "saved"
    digest = save_suite(home, loaded.suite, loaded.tasks, beside={"omitted.jsonl": b"{}\n"})
    first = {path.name: path.read_bytes() for path in home.iterdir()}
    assert first["digest"] == f"{digest}\n".encode()
    assert first["omitted.jsonl"] == b"{}\n"
    (home / "stray").touch()
    again = load_suite(home)
    save_suite(home, again.suite, again.tasks, beside={"omitted.jsonl": b"{}\n"})
    assert {path.name: path.read_bytes() for path in home.iterdir()} == first
    assert str(PROJECT) not in first["tasks.jsonl"].decode()  # no path of this machine
    assert [path.name for path in folder.iterdir()] == ["saved"]


def test_the_digest_moves_with_every_word_and_with_the_code(folder: Path) -> None:
    (folder / "code.py").write_text("def f(n): return n\n")
    path = write(folder, suite(tool(run="code.py:f")))
    first = load_suite(path)
    assert load_suite(path).digest == first.digest
    (folder / "code.py").write_text("def f(n): return n + 1\n")
    assert load_suite(path).digest != first.digest
    changed = write(folder, suite(tool(run="code.py:f"), description="Other words."))
    assert load_suite(changed).digest not in (
        first.digest,
        load_suite(write(folder, suite())).digest,
    )


def test_the_digest_does_not_depend_on_how_defaults_are_written(folder: Path) -> None:
    short = load_suite(write(folder, suite()))
    long = load_suite(write(folder, suite(task(category="all", limits={}, on_error="grade_work"))))
    assert long.digest == short.digest == suite_digest(short.suite, short.tasks)


# ---------------------------------------------------------------- what is not


@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("hello-tool", "did you mean `hello-tools`?"),
        ("bfcl-simple-python", "it is not converted yet: run `dyno convert bfcl`"),
        ("tau2-telecom-small", "it is not converted yet: run `dyno convert tau2`"),
        (
            "tau2-banking-knowledge",
            "the package does not have it: run `dyno convert tau2 --source PATH/TO/A/CHECKOUT`",
        ),
        ("bfcl-simple-pyton", "did you mean `bfcl-simple-python`?"),
        ("bfcl", "that is a benchmark; its suites are bfcl-simple-python"),
        ("qqq", "known: hello-tools"),
    ],
)
def test_an_unknown_name_is_met_with_the_one_that_was_meant(
    folder: Path, name: str, mend: str
) -> None:
    with pytest.raises(InputError, match=f"no suite named '{name}'") as caught:
        load_suite(name)
    assert (caught.value.mend or "").startswith(mend)


def test_a_path_without_a_suite_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="there is no suite here"):
        load_suite(folder)
    with pytest.raises(InputError, match="there is no suite here"):
        load_suite("./nothing.yaml")


def test_a_benchmarks_description_is_not_taken_for_a_suite(folder: Path) -> None:
    with pytest.raises(InputError, match="has no `tasks`") as caught:
        load_suite(PROJECT / "suites" / "benchmarks" / "bfcl.yaml")
    assert "dyno convert bfcl" in (caught.value.mend or "")


@pytest.mark.parametrize(
    ("value", "where", "words"),
    [
        ("name: [", ":2", "not valid YAML"),
        ("name: a\nname: b\ntasks: []\n", ":2", "`name` is given twice"),
        ("- a list\n", "", "has no `tasks`"),
        (suite(tasks={}), ":4: tasks", "must be a list"),
        (suite(tasks=[]), "", "has no task"),
        (suite(task(), name="Not A Name"), ":1: name", "'Not A Name'"),
        (suite(task(), nmae="x"), ": nmae", "is not a key here"),
        (suite(task(), version=1), ":2: version", "found 1"),
        (suite(task(), weights={"all": 0}), ": weights.all", "is 0.0"),
        (suite(task(), weights={"all": float("nan")}), ": weights.all", "is nan"),
        (suite(task(), weights={"al": 1}), ": weights.al", "no task is of the category 'al'"),
        (
            suite(task(), task(id="two", category="b"), weights={"all": 1}),
            ": weights",
            "leaves out",
        ),
        (suite(task(), task()), ": tasks[1].id", "the id 'one' is taken by"),
        (suite(task(enviroments=[])), ": tasks[0].enviroments", "is not a key here"),
        (suite(task(messages=[])), ": tasks[0]", "either `messages` or `turns`"),
        (suite(task(messages=[{"role": "bot", "content": ""}])), "messages[0].role", "found 'bot'"),
        (suite(task(on_error="pass")), ": tasks[0].on_error", "found 'pass'"),
        (suite(task(limits={"seconds": 0})), ": tasks[0].limits.seconds", "found 0"),
        (suite(task(grade={})), ": tasks[0].grade.grader", "is missing"),
        (suite(tool(name="a.b")), "tools[0].name", "'a.b'"),
        (suite(tool(input_schema={"type": "array"})), "input_schema.type", "not 'array'"),
        (
            suite(tool(input_schema={"type": "object", "properties": {"a": {"type": "dict"}}})),
            "input_schema.properties.a.type",
            "is not valid JSON Schema",
        ),
        (suite(tool(result="a", run="mine.py:f")), ": tasks[0]", "mine.py cannot be read"),
        (suite(tool(run="code.py")), "tools[0].run", "does not name code"),
        (suite(tool(run="../code.py:f")), "tools[0].run", "does not name code"),
        (suite(tool(run="/etc/code.py:f")), "tools[0].run", "does not name code"),
        (suite(tool(run="code.py:g")), "tools[0].run", "defines no function 'g'"),
        (suite(tool(run="bad.py:f")), "tools[0].run", "is not Python"),
        (suite(tool(run="code.py:f", result="a")), "tools[0]", "both `result` and `run`"),
        (
            suite(task(environments=[{"tools": [TOOL]}])),
            "tools[0]",
            "nothing answers a call of 'f'",
        ),
        (suite(task(oracle={"calls": [{"tool": "g"}]})), "oracle.calls[0].tool", "no tool 'g'"),
        (
            suite(task(oracle={"calls": [{"tool": "f", "arguments": {"n": "x"}}]})),
            "oracle.calls[0].arguments",
            "do not fit",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_at_its_place(
    folder: Path, value: Any, where: str, words: str
) -> None:
    (folder / "code.py").write_text("def f(n): return n\n")
    (folder / "bad.py").write_text("def f(n:\n")
    error = refused(folder, value)
    assert where in str(error.where)
    assert words in error.what


def test_the_line_in_a_refusal_is_the_line_of_the_key(folder: Path) -> None:
    text = write(folder, suite(task(), task(id="two", on_error="pass"))).read_text()
    line = next(n for n, row in enumerate(text.splitlines(), 1) if "pass" in row)
    error = refused(folder, text)
    assert str(error.where).endswith(f"mine.yaml:{line}: tasks[1].on_error")


def test_a_misspelt_key_is_met_with_the_right_one(folder: Path) -> None:
    assert refused(folder, suite(task(enviroments=[]))).mend == "did you mean `environments`?"


def test_the_graders_own_refusal_is_placed_in_the_file(folder: Path) -> None:
    def nothing_is_right(task: Task) -> None:
        raise InputError("cannot be judged", where="grade.spec", mend="ask otherwise")

    path = write(folder, suite())
    with pytest.raises(InputError) as caught:
        load_suite(path, nothing_is_right)
    assert str(caught.value.where).endswith(": tasks[0].grade.spec")
    assert caught.value.mend == "ask otherwise"


def save(folder: Path) -> Path:
    loaded = load_suite(write(folder, suite(task(), task(id="two"))))
    home = folder / "home" / "suites" / "mine"
    save_suite(home, loaded.suite, loaded.tasks)
    return home


def test_a_line_of_a_converted_suite_is_refused_by_its_number(folder: Path) -> None:
    home = save(folder)
    lines = (home / "tasks.jsonl").read_text().splitlines()
    (home / "tasks.jsonl").write_text(
        f"{lines[0]}\n\n" + lines[1].replace('"user"', '"bot"') + "\n"
    )
    with pytest.raises(InputError, match="found 'bot'") as caught:
        load_suite("mine")
    assert caught.value.where == f"{home / 'tasks.jsonl'}:3: messages[0].role"
    (home / "tasks.jsonl").write_text("{\n")
    with pytest.raises(InputError, match="JSON") as caught:
        load_suite("mine")
    assert caught.value.where == f"{home / 'tasks.jsonl'}:1"
    (home / "tasks.jsonl").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        load_suite("mine")


def test_a_converted_suite_that_was_edited_is_checked_in_full(folder: Path) -> None:
    home = save(folder)
    lines = [json.loads(line) for line in (home / "tasks.jsonl").read_text().splitlines()]
    lines[1]["environments"][0]["tools"][0]["input_schema"]["properties"]["n"]["type"] = "dict"
    (home / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(InputError, match="not valid JSON Schema") as caught:
        load_suite("mine")
    assert str(caught.value.where).startswith(f"{home / 'tasks.jsonl'}:2: environments[0].tools[0]")


def test_a_folder_that_cannot_be_written_is_one_error(folder: Path) -> None:
    loaded = load_suite(write(folder, suite()))
    (folder / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        save_suite(folder / "file" / "mine", loaded.suite, loaded.tasks)


# ---------------------------------------------------------------- shared fields, and old digests

DIGESTS = {"hello-tools": "f3b590cd7c2bbe7a07bd385badd1367ad0643e49e236171442c86626a1488e7e"}
"""As evidence of the first release knows them: a later field must not orphan it."""


@pytest.mark.parametrize("name", DIGESTS)
def test_a_suite_keeps_the_digest_that_old_evidence_knows_it_by(name: str) -> None:
    assert load_suite(name).digest == DIGESTS[name]


def _world(policy: str | None = "Be kind.") -> tuple[Suite, list[Task]]:
    tool = Tool(name="look", input_schema={"type": "object"})
    world = Tau2World(kind="tau2", domain="mock", package="26.3", tools=(tool,), user_tools=(tool,))
    suite = Suite(
        name="worlds",
        version="1",
        benchmark="tau2",
        dataset=Dataset(source="made", version="1"),
        shared=Shared(policy=policy, environments=(world,)),
    )
    alike = Task(
        id="a",
        messages=(Message(role="assistant", content="Hi!"),),
        policy=policy,
        environments=(world,),
        user=SimulatedUser(scenario="You are Emma."),
        grade=Grade(grader="checks"),
    )
    other = alike.model_copy(update={"id": "b", "policy": None, "environments": ()})
    return suite, [alike, other]


def test_what_a_suite_shares_is_written_once_and_read_back_whole(tmp_path: Path) -> None:
    suite, tasks = _world()
    saved = save_suite(tmp_path / "worlds", suite, tasks)
    lines = [json.loads(line) for line in (tmp_path / "worlds/tasks.jsonl").open()]
    assert "policy" not in lines[0]
    assert "environments" not in lines[0]
    loaded = load_suite(tmp_path / "worlds")
    assert list(loaded.tasks) == tasks
    assert loaded.digest == saved == suite_digest(suite, tasks)
    first = loaded.tasks[0]
    assert first.environments is loaded.suite.shared.environments  # type: ignore[union-attr]


def test_a_world_takes_no_fixed_results(tmp_path: Path) -> None:
    suite, tasks = _world()
    tool = Tool(name="look", input_schema={"type": "object"}, result="fixed")
    world = Tau2World(kind="tau2", domain="mock", package="26.3", tools=(tool,))
    wrong = tasks[0].model_copy(update={"environments": (world,)})
    save_suite(tmp_path / "worlds", suite, [wrong])
    (tmp_path / "worlds/digest").unlink()
    with pytest.raises(InputError, match="the world answers a call of 'look'"):
        load_suite(tmp_path / "worlds")

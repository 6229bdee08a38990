"""Harnesses, models and sweeps from files: what is wrong is named with file, key and mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites.errors import InputError
from suites.loading import adhoc_harness, load_harness, load_model, load_sweep, names, vendors


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "name: a\nsuits: [x]\nharnesses: [reference]\nmodels: [oracle]\n",
            ["suits", "did you mean `suites`"],
        ),
        (
            "name: a\nsuites: [x]\nharnesses: [reference]\nmodels: [null]\n",
            ["models[0]", 'quote it: "null"'],
        ),
        ("name: a\nsuites: []\nharnesses: [reference]\nmodels: [oracle]\n", ["suites"]),
        (
            "name: a\nsuites: [x]\nharnesses: [reference]\nmodels: [oracle]\nrepeats: zero\n",
            ["repeats", "'zero'"],
        ),
        (
            "name: a\nsuites: [x]\nharnesses: [{use: reference}]\nmodels: [oracle]\n",
            ["without a name of its own"],
        ),
        ("name: a\nname: b\nsuites: [x]\n", ["given twice"]),
        ("- 1\n", ["list"]),
        ("name: [\n", ["not valid YAML"]),
    ],
)
def test_wrong_sweep_is_refused_in_words(tmp_path: Path, text: str, says: list[str]) -> None:
    path = write(tmp_path / "bad.yaml", text)
    with pytest.raises(InputError) as caught:
        load_sweep(path)
    for part in (path, *says):
        assert part in str(caught.value)


@pytest.mark.parametrize("load", [load_sweep, load_harness, load_model])
def test_unknown_name_suggests_a_known_one(load: object) -> None:
    misspelt = {load_sweep: "smoek", load_harness: "refrence", load_model: "orcale"}[load]  # type: ignore[index]
    with pytest.raises(InputError, match="did you mean"):
        load(misspelt)  # type: ignore[operator]


def test_every_shipped_file_loads() -> None:
    for name in names("harness"):
        assert load_harness(name).harness.name == name
    for name in names("model"):
        assert load_model(name).name == name
    for name in names("sweep"):
        assert load_sweep(name).name == name


def test_a_sweep_can_change_a_named_harness_and_keeps_the_rest(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.yaml",
        "name: a\nsuites: [x]\nmodels: [oracle]\n"
        "harnesses: [{use: reference, name: reference-5, settings: {steps: 5}}]\n",
    )
    (harness,) = load_sweep(path).harnesses
    assert not isinstance(harness, str)
    assert harness.name == "reference-5"
    assert harness.settings["steps"] == 5
    assert harness.warm == load_harness("reference").harness.warm


def test_vendor_model_needs_no_file() -> None:
    model = load_model("openai/some-model")
    assert (model.model, model.api_key_env, model.prices) == ("some-model", "OPENAI_API_KEY", None)
    assert all(known["endpoint"].startswith("http") for known in vendors().values())
    with pytest.raises(InputError, match="no vendor 'opnai'"):
        load_model("opnai/some-model")


def test_ad_hoc_agent_gets_the_prompt_where_it_asks_for_it_else_on_stdin() -> None:
    asked = adhoc_harness("my-agent --p {prompt} --url {model_url}/x").harness
    assert asked.command == ("my-agent", "--p", "{{ prompt }}", "--url", "{{ model_url }}/x")
    assert asked.stdin is None
    assert adhoc_harness("my-agent").harness.stdin == "{{ prompt }}"


def test_ad_hoc_command_line_is_not_a_template() -> None:
    harness = adhoc_harness("my-agent '{{ evil }}'").harness
    from tasks.attempt.environment import render

    assert render(harness.command[1], {}) == "{{ evil }}"


@pytest.mark.parametrize("command", ["", "my-agent 'open", "my-agent {promt}"])
def test_ad_hoc_command_line_must_parse(command: str) -> None:
    with pytest.raises(InputError, match="--agent"):
        adhoc_harness(command)

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tasks.convert.bfcl_gold import accepted_values, made_up, renderings


def first(
    options: dict[str, Any], types: dict[str, Any], required: list[str], language: str = "python"
) -> dict[str, Any]:
    """The arguments of the preferred rendering of one gold call of `f`."""
    return every(options, types, required, language)[0]


def every(
    options: dict[str, Any], types: dict[str, Any], required: list[str], language: str = "python"
) -> list[dict[str, Any]]:
    document = {"name": "f", "parameters": {"properties": types, "required": required}}
    return [calls[0][1] for calls in renderings([{"f": options}], [document], language)]


def test_what_must_be_given_gets_its_first_value_and_what_may_go_goes() -> None:
    options = {"a": ["", "x", "y"], "b": [2, ""], "c": [""]}
    types = {name: {"type": "string"} for name in "abc"}
    assert first(options, types, ["a"]) == {"a": "x"}
    assert first(options, types, ["a", "b"]) == {"a": "x", "b": 2}
    assert first(options, types, ["a", "c"]) == {"a": "x", "c": ""}


def test_a_dictionary_holds_lists_of_options_one_level_deep() -> None:
    options = {"d": [{"k": [1, 2], "gone": ["x", ""], "deep": [{"raw": [3]}]}]}
    assert first(options, {"d": {"type": "dict"}}, ["d"]) == {"d": {"k": 1, "deep": {"raw": [3]}}}
    listed = {"l": [[{"k": ["a"]}, {"k": ["b"]}]]}
    assert first(listed, {"l": {"type": "array"}}, ["l"]) == {"l": [{"k": "a"}, {"k": "b"}]}


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        ({"type": "boolean"}, True, "true"),
        ({"type": "integer"}, 3, "3"),
        ({"type": "long"}, 10, "10L"),
        ({"type": "float"}, 3.5, "3.5f"),
        ({"type": "double"}, 0.5, "0.5"),
        ({"type": "String"}, "it's", "it's"),
        ({"type": "any"}, 20.5, "20.5"),
        ({"type": "Array", "items": {"type": "integer"}}, [1, 2], "new int[]{1, 2}"),
        (
            {"type": "ArrayList", "items": {"type": "String"}},
            ["a", "b"],
            'new ArrayList<>(Arrays.asList("a", "b"))',
        ),
        ({"type": "ArrayList", "items": {"type": "long"}}, [], "new ArrayList<>()"),
        (
            {"type": "HashMap"},
            {"limit": [50], "on": [True]},
            'new HashMap<String, Object>() {{ put("limit", 50); put("on", true); }}',
        ),
        ({"type": "HashMap"}, {}, "new HashMap<>()"),
    ],
)
def test_java_values_become_source_text(part: Any, value: Any, text: str) -> None:
    assert first({"p": [value]}, {"p": part}, ["p"], "java") == {"p": text}


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        ({"type": "Boolean"}, False, "false"),
        ({"type": "float"}, 4.0, "4.0"),
        ({"type": "Bigint"}, 7, "7n"),
        ({"type": "array"}, ["a", 1], '["a", 1]'),
        ({"type": "dict"}, {"k": ["v"]}, '{"k": "v"}'),
        ({"type": "String"}, "name", "name"),
    ],
)
def test_javascript_values_become_source_text(part: Any, value: Any, text: str) -> None:
    assert first({"p": [value]}, {"p": part}, ["p"], "javascript") == {"p": text}


def test_other_ways_follow_the_preferred_one() -> None:
    part = {"type": "Array", "items": {"type": "String"}}
    assert every({"p": [["a"]]}, {"p": part}, ["p"], "java") == [
        {"p": 'new String[]{"a"}'},
        {"p": "new String[]{a}"},
    ]
    both = every({"p": [1, 2], "q": ["x", "y"]}, {}, ["p", "q"])
    assert both[0] == {"p": 1, "q": "x"}
    assert {"p": 2, "q": "y"} in both
    assert len(both) == 4


def test_every_acceptable_value_is_named_once_varied() -> None:
    assert list(accepted_values(["", 1, [2]])) == [1, [2]]
    assert list(accepted_values(["", "a"])) == ["", "a"]
    found = list(accepted_values([{"a": [1, 2], "b": ["", "x"]}]))
    assert {"a": 1} in found
    assert {"a": 2} in found
    assert {"a": 1, "b": "x"} in found


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]},
        {"anyOf": [{"enum": ["x"]}, {"type": "string"}]},
        {"type": "array", "items": {"type": "number"}, "minItems": 3},
        {"type": "boolean"},
        {"const": "dontcare"},
        {"type": "null"},
        {},
    ],
)
def test_made_up_values_fit_their_schema(schema: dict[str, Any]) -> None:
    assert Draft202012Validator(schema).is_valid(made_up(schema))

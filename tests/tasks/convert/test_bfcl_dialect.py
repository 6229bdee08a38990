from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tasks.convert.bfcl_dialect import UnknownDialect, open_to, tools_of, wire_names


def schema_of(part: dict[str, Any], language: str = "python") -> dict[str, Any]:
    """The schema of one parameter of that dialect."""
    document = {
        "name": "f",
        "description": "Does it.",
        "parameters": {"type": "dict", "properties": {"p": part}, "required": []},
    }
    (tool,) = tools_of([document], language)
    Draft202012Validator.check_schema(tool.input_schema)
    return dict(tool.input_schema["properties"]["p"])


def accepts(schema: dict[str, Any], value: Any) -> bool:
    return bool(Draft202012Validator(schema).is_valid(value))


@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": "integer"}, 1, "1"),
        ({"type": "float"}, 1.5, "1.5"),
        ({"type": "float"}, 1, None),
        ({"type": "boolean"}, True, 1),
        ({"type": "array", "items": {"type": "integer"}}, [1], ["a"]),
        ({"type": "tuple", "items": {"type": "float"}}, [1, 2.5], "1, 2.5"),
        ({"type": "dict", "properties": {"a": {"type": "dict"}}}, {"a": {}}, {"a": 1}),
        (
            {"type": "dict", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"a": 1},
            {},
        ),
    ],
)
def test_each_type_of_the_dialect_is_its_json_schema_type(
    part: Any, right: Any, wrong: Any
) -> None:
    schema = schema_of(part)
    assert accepts(schema, right)
    assert not accepts(schema, wrong)


def test_any_takes_every_value_and_is_shown_as_a_string_first() -> None:
    schema = schema_of({"type": "any", "description": "The data."})
    assert schema["anyOf"][0] == {"type": "string"}
    assert all(accepts(schema, value) for value in ("a", 1, 1.5, None, [1], {"a": 1}))


def test_an_enum_of_strings_is_advice_because_upstream_compares_loosely() -> None:
    schema = schema_of({"type": "string", "enum": ["Celsius", "Kelvin"]})
    assert {"enum": ["Celsius", "Kelvin"]} in schema["anyOf"]
    assert accepts(schema, "celsius")
    assert not accepts(schema, 1)


def test_an_enum_that_fits_its_type_is_kept_exactly() -> None:
    schema = schema_of({"type": "integer", "enum": [1, 2]})
    assert schema == {"type": "integer", "enum": [1, 2]}


def test_an_enum_outside_its_type_widens_the_type() -> None:
    schema = schema_of({"type": "boolean", "enum": ["True", "False", "dontcare"]})
    assert accepts(schema, True)
    assert accepts(schema, "dontcare")
    assert not accepts(schema, "maybe")


def test_an_enum_on_a_list_is_about_its_elements() -> None:
    schema = schema_of({"type": "array", "items": {"type": "string"}, "enum": ["a", "b"]})
    assert accepts(schema, ["a", "b"])
    assert {"enum": ["a", "b"]} in schema["items"]["anyOf"]


def test_a_stated_default_is_a_legal_value_whatever_its_type() -> None:
    assert accepts(schema_of({"type": "string", "default": None}), None)
    assert accepts(schema_of({"type": "integer", "default": "dontcare"}), "dontcare")
    assert not accepts(schema_of({"type": "integer", "default": 3}), None)


def test_parameters_that_are_not_listed_are_left_for_the_grader_to_judge() -> None:
    (tool,) = tools_of(
        [{"name": "f", "description": "", "parameters": {"properties": {}, "required": []}}],
        "python",
    )
    assert accepts(tool.input_schema, {"unheard_of": 1})


@pytest.mark.parametrize(("language", "spoken"), [("java", "Java"), ("javascript", "JavaScript")])
def test_java_and_javascript_parameters_are_strings_of_source_text(
    language: str, spoken: str
) -> None:
    part = {"type": "ArrayList", "items": {"type": "String"}, "description": "Names."}
    schema = schema_of(part, language)
    assert schema["type"] == "string"
    assert schema["description"] == (
        f"Names. Give the source text of a {spoken} ArrayList value. Its elements are of type String."
    )


def test_an_unknown_type_is_not_guessed() -> None:
    with pytest.raises(UnknownDialect, match="quaternion"):
        schema_of({"type": "quaternion"})


def test_names_become_legal_and_stay_apart() -> None:
    long = "a." + "x" * 80
    names = wire_names(
        ["math.factorial", "math_factorial", "math/factorial", "plain", long, long + "y"]
    )
    assert names["math_factorial"] == "math_factorial"
    assert names["plain"] == "plain"
    assert names["math.factorial"] == "math_factorial_2"
    assert len(set(names.values())) == len(names)
    assert all(len(name) <= 64 for name in names.values())


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(UnknownDialect, match="share a name"):
        wire_names(["f", "f"])


def test_a_parameter_that_gold_contradicts_is_opened_without_saying_to_what() -> None:
    (tool,) = tools_of(
        [
            {
                "name": "f",
                "description": "",
                "parameters": {
                    "properties": {
                        "p": {"type": "float", "description": "P."},
                        "q": {"type": "float"},
                    },
                    "required": ["p"],
                },
            }
        ],
        "python",
    )
    opened, names = open_to(tool, [{"p": 1.5}, {"p": "data['sales']"}, {"unknown": 1}])
    assert names == ("p",)
    properties = opened.input_schema["properties"]
    assert properties["p"] == {"description": "P.", "anyOf": [{"type": "number"}, {}]}
    assert properties["q"] == {"type": "number"}

"""JSON Schema: what is refused, what closing admits, how a refusal reads, what is filled in and what is shown."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from guarded_core import ToolParam
from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema import Validator, close, complete, from_params, lint, narrow
from guarded_core.tools.spec import ToolSpec


def tool(**properties: Any) -> dict[str, Any]:
    """The schema of a tool with these arguments."""
    return {"type": "object", "properties": properties}


def defined(use: Any, **definitions: Any) -> dict[str, Any]:
    """The schema of a tool whose argument `a` uses these definitions."""
    return {**tool(a=use), "$defs": definitions}


def reference(name: str) -> dict[str, Any]:
    """A reference to one of the definitions."""
    return {"$ref": f"#/$defs/{name}"}


POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}
CLOSED_POINT = {**POINT, "additionalProperties": False}
# A definition that is one part of a composition, and elsewhere alone.
SHARED = {**tool(a={"allOf": [reference("P"), tool(y={})]}, b=reference("P")), "$defs": {"P": POINT}}
TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": reference("T")}}}
FREE = reference("free")
FREE_DEFINITION = {"free": {"additionalProperties": False, "items": FREE}}


# --- lint ---


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    owner: Node | None = None


class Dog(BaseModel):
    kind: Literal["dog"]
    tags: dict[str, int] = {}


class Arguments(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    limit: int = None  # type: ignore[assignment]
    pair: tuple[int, str] = (1, "a")
    source: str = Field("web", alias="from")
    anything: Any = None


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(Arguments.model_json_schema(), id="pydantic, with a union, an alias and an implicit optional"),
        pytest.param(Node.model_json_schema(), id="pydantic, with a reference at the root"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", **tool(a={"type": "string"})}, id="draft-07"
        ),
        pytest.param({"$ref": "#/definitions/P", "definitions": {"P": POINT}}, id="definitions"),
        pytest.param({**tool(a=reference("T")), "$defs": {"T": TREE}}, id="recursion that consumes"),
        pytest.param({**tool(child={"$ref": "#"})}, id="recursion through the root"),
        pytest.param({"$id": "https://example.com/tool.json", **tool()}, id="an address of its own"),
        pytest.param(tool(a={"pattern": "^[a-z]+$"}, **{"$ref": {"type": "string"}}), id="an argument named $ref"),
        pytest.param(from_params([ToolParam("a", "object", "Any.")]), id="an AiTool's"),
    ],
)
def test_lint_takes_what_frameworks_and_servers_write(schema: dict[str, Any]) -> None:
    """Ordinary schemas of pydantic, MCP servers and AiTools pass, and stay unchanged."""
    before = copy.deepcopy(schema)
    lint(schema)
    assert schema == before


def deep(levels: int) -> dict[str, Any]:
    """A tool whose argument is described by that many levels."""
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return tool(a=schema)


def doubling(levels: int, *, through: str | None = None) -> dict[str, Any]:
    """Each definition asks the next one twice."""
    definitions: dict[str, Any] = {f"d{levels}": {"type": "integer"}}
    for level in range(levels):
        step = reference(f"d{level + 1}")
        definitions[f"d{level}"] = {"anyOf": [step if through is None else {"properties": {through: step}}] * 2}
    return defined(reference("d0"), **definitions)


REFUSED = [
    ([], "a tool's schema is a JSON object"),
    ({"type": "string"}, 'say "type": "object" at the root'),
    ({}, 'say "type": "object" at the root'),
    ({"type": ["object", "null"]}, 'say "type": "object" at the root'),
    ({"anyOf": [{"type": "object"}, {"type": "array"}]}, 'say "type": "object" at the root'),
    (tool(a={"type": "strin"}), "schema at /properties/a/type: not valid JSON Schema"),
    (tool(a={"maximum": float("inf")}), "schema at /properties/a/maximum: not a JSON value"),
    (tool(a={"enum": [{1, 2}]}), "schema at /properties/a/enum/0: not a JSON value"),
    (tool(a={1: 2}), "schema at /properties/a: a key that is not a string"),
    (tool(a={"title": "\ud800"}), "a lone surrogate"),
    (tool(a={"description": "x" * 262_145}), "262144 characters are allowed"),
    (tool(a={"enum": list(range(20_001))}), "20000 values and 64 levels are allowed"),
    (deep(64), "20000 values and 64 levels are allowed"),
    ({**tool(), "$schema": "http://json-schema.org/draft-04/schema#"}, "not a supported draft"),
    ({**tool(), "$schema": "https://example.com/metaschema"}, "not a supported draft"),
    (tool(a={"$ref": "https://example.com/x.json"}), "only references inside the schema"),
    (tool(a={"$ref": "file:///etc/passwd"}), "only references inside the schema"),
    (tool(a={"$ref": "other.json#/$defs/A"}), "only references inside the schema"),
    (tool(a={"$ref": "#anchor"}), "only references inside the schema"),
    (tool(a=reference("Missing")), "schema at /properties/a: $ref names no schema of this document"),
    (tool(a={"$ref": "#/properties/b/enum/0"}, b={"enum": [{"type": "string"}]}), "$ref names no schema"),
    (tool(a={"$ref": "#/properties/b/not"}, b={"not": POINT}), "$ref names no schema"),
    (tool(a={"$id": "https://example.com/a"}), "schema at /properties/a: $id is not supported"),
    (tool(a={"$dynamicRef": "#a"}), "$dynamicRef is not supported"),
    ({**tool(), "$ref": "#"}, "a reference that leads back to itself"),
    (defined(reference("A"), A={"allOf": [reference("B")]}, B={"anyOf": [reference("A")]}), "leads back to itself"),
    (defined(reference("A"), A={"properties": {"c": reference("B")}, **reference("B")}, B=reference("A")), "to itself"),
    (tool(a={"pattern": "(?=a)b"}), "schema at /properties/a: the pattern '(?=a)b' does not run in linear time"),
    (tool(a={"pattern": r"(a)\1"}), "does not run in linear time"),
    (tool(a={"pattern": "(x{1000}){1000}"}), "does not run in linear time"),
    (tool(a={"patternProperties": {"(?<!a)b": {}}}), "does not run in linear time"),
    ({**tool(), "$defs": {"Unused": {"pattern": "(?=a)b"}}}, "does not run in linear time"),
    (tool(a={"type": "integer", "default": "7"}), "schema at /properties/a: the default does not fit"),
    (tool(a={"dependencies": {"b": ["c"]}, "dependentRequired": {"b": ["d"]}}), "dependencies is not supported"),
    (doubling(12), "a reference that leads back to itself, or too long a chain"),
    (doubling(14, through="c"), "one value could be judged more than 10000 times"),
    (
        defined(
            reference("N"),
            N={
                "anyOf": [{"properties": {"c": reference("N")}}, tool(c=reference("N"))],
                "unevaluatedProperties": False,
            },
        ),
        "recursion that judges a value more than once",
    ),
    (
        defined({"allOf": [{"contains": POINT}, {"minItems": 1}]}),
        "contains needs items beside it",
    ),
]


@pytest.mark.parametrize(("schema", "reason"), REFUSED, ids=[reason[:60] for _, reason in REFUSED])
def test_lint_refuses_with_the_reason(schema: Any, reason: str) -> None:
    """What could not be judged safely is the developer's error, with the place and the reason."""
    with pytest.raises(InvalidTool) as caught:
        lint(schema)
    assert reason in str(caught.value)


def test_a_shared_node_is_counted_each_time_it_is_met() -> None:
    """Twenty lines of Python that stand for a million nodes are refused before they are written out."""
    node: Any = {"type": "string"}
    for _ in range(20):
        node = {"anyOf": [node, node]}
    with pytest.raises(InvalidTool, match="20000 values"):
        lint(tool(a=node))


def test_an_unlinted_remote_reference_is_not_fetched() -> None:
    """A validator is built without looking anything up, whatever the schema says."""
    with pytest.raises(InvalidTool, match="does not compile"):
        Validator(tool(a={"$ref": "https://example.com/x.json"}))


def test_a_long_reason_is_bounded_and_escaped() -> None:
    """A place is text of whoever wrote the schema: no line break and no screenful of it comes through."""
    with pytest.raises(InvalidTool) as caught:
        lint(tool(**{"\n" + "x" * 1000: {"$id": "a"}}))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


# --- close ---

CLOSED = {
    "an object": (tool(a=POINT), {**tool(a=CLOSED_POINT), "additionalProperties": False}),
    "no properties": ({"type": "object"}, {"type": "object", "additionalProperties": False}),
    "declared open": ({**tool(), "additionalProperties": True}, {**tool(), "additionalProperties": False}),
    "a map": (
        tool(a={"type": "object", "additionalProperties": {"type": "string"}}),
        {**tool(a={"type": "object", "additionalProperties": False}), "additionalProperties": False},
    ),
    "a map by pattern": (
        tool(a={"type": "object", "patternProperties": {"^x": {}}}),
        {
            **tool(a={"type": "object", "patternProperties": {"^x": False}, "additionalProperties": False}),
            "additionalProperties": False,
        },
    ),
    "list items": (
        tool(a={"type": "array", "items": POINT}),
        {**tool(a={"type": "array", "items": CLOSED_POINT}), "additionalProperties": False},
    ),
    "a tuple": (
        tool(a={"type": "array", "prefixItems": [POINT], "items": False}),
        {**tool(a={"type": "array", "prefixItems": [CLOSED_POINT], "items": False}), "additionalProperties": False},
    ),
    "a free list": (
        tool(a={"type": "array"}),
        {**tool(a={"type": "array", "items": FREE}), "additionalProperties": False, "$defs": FREE_DEFINITION},
    ),
    "anything": (tool(a=True), {**tool(a=FREE), "additionalProperties": False, "$defs": FREE_DEFINITION}),
    "scalars": (
        tool(a={"type": "string"}, b={"enum": [1, {"c": 2}]}, c={"type": ["integer", "null"]}),
        {
            **tool(a={"type": "string"}, b={"enum": [1, {"c": 2}]}, c={"type": ["integer", "null"]}),
            "additionalProperties": False,
        },
    ),
    "a definition": (
        defined(reference("P"), P=POINT),
        {**defined(reference("P"), P=CLOSED_POINT), "additionalProperties": False},
    ),
    "an optional definition": (
        defined({"anyOf": [reference("P"), {"type": "null"}]}, P=POINT),
        {
            **defined({"anyOf": [reference("P"), {"type": "null"}]}, P=CLOSED_POINT),
            "additionalProperties": False,
        },
    ),
    "recursion": (
        defined(reference("T"), T=TREE),
        {**defined(reference("T"), T={**TREE, "additionalProperties": False}), "additionalProperties": False},
    ),
    "a composition": (
        defined({"allOf": [reference("P"), {"properties": {"y": POINT}}]}, P=POINT),
        {
            **defined(
                {"allOf": [reference("P"), {"properties": {"y": CLOSED_POINT}}], "unevaluatedProperties": False},
                P=POINT,
            ),
            "additionalProperties": False,
        },
    ),
    "properties beside alternatives": (
        {**tool(a={}, b={"type": "null"}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {
            **tool(a={"additionalProperties": False, "items": FREE}, b={"type": "null"}),
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            "unevaluatedProperties": False,
            "$defs": FREE_DEFINITION,
        },
    ),
}


@pytest.mark.parametrize(("schema", "closed"), CLOSED.values(), ids=CLOSED)
def test_closing(schema: dict[str, Any], closed: dict[str, Any]) -> None:
    """Every object is closed where it is decided about, and scalars stay as they are."""
    before = copy.deepcopy(schema)
    assert close(schema) == closed
    assert schema == before


@pytest.mark.parametrize(
    ("schema", "arguments", "open_too"),
    [
        (tool(a=POINT), {"a": {"y": 1}}, False),
        (tool(), {"x": 1}, False),
        ({**tool(), "additionalProperties": True}, {"x": 1}, True),
        ({**tool(), "unevaluatedProperties": True}, {"x": 1}, True),
        ({"type": "object"}, {"x": 1}, True),
        (tool(a={"type": "object"}), {"a": {"x": 1}}, True),
        (tool(a={"type": "object", "properties": {}}), {"a": {"x": 1}}, False),
        (tool(a={"anyOf": [{"type": "object"}, {"type": "null"}]}), {"a": {"x": 1}}, True),
        (defined(reference("M"), M={"type": "object", "additionalProperties": {}}), {"a": {"x": 1}}, True),
        (tool(a={"patternProperties": {"^x": {}}}), {"a": {"x": 1}}, True),
        (tool(a={}), {"a": {"x": 1}}, True),
        (tool(a={}), {"a": [[{"x": 1}]]}, True),
        (tool(a={"type": "array"}), {"a": [{"x": 1}]}, True),
        (tool(a={"type": "array", "items": {}}), {"a": [{"x": 1}]}, True),
        (tool(a={"allOf": [{"additionalProperties": True}, POINT]}), {"a": {"y": 1}}, True),
        (tool(a={"allOf": [POINT, {"type": "object"}]}), {"a": {"y": 1}}, False),
        ({**tool(a={}), "if": {"properties": {"b": {"const": 1}}}, "then": {}}, {"b": 1}, False),
        ({**tool(a={}), "not": {"required": ["b"]}}, {"c": 1}, False),
        (tool(a={"items": POINT, "contains": {"required": ["y"]}}), {"a": [{"y": 1}]}, False),
        (SHARED, {"b": {"y": 1}}, False),
    ],
)
def test_undeclared_properties_are_refused(schema: dict[str, Any], arguments: dict[str, Any], open_too: bool) -> None:
    """No undeclared property passes, but for free-form parts that the policy keeps open."""
    lint(schema)
    assert Validator(schema).check(arguments) is None
    assert Validator(close(schema)).check(arguments) is not None
    assert (Validator(close(schema, keep_open=True)).check(arguments) is None) == open_too


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (tool(a=POINT), {"a": {"x": 1}}),
        (defined({"allOf": [reference("P"), {"properties": {"y": {}}}]}, P=POINT), {"a": {"x": 1, "y": 2}}),
        (defined({**reference("P"), "properties": {"y": {}}}, P=POINT), {"a": {"x": 1, "y": 2}}),
        (defined({"if": {"required": ["x"]}, "then": POINT, "else": tool(y={})}), {"a": {"y": 2}}),
        ({**tool(k={}), "dependentSchemas": {"k": {"properties": {"l": {}}}}}, {"k": 1, "l": 2}),
        (defined({"oneOf": [tool(x={}), {"type": "array", "items": POINT}]}), {"a": [{"x": 1}]}),
        (tool(a={"allOf": [{**POINT, "additionalProperties": True}, tool(y={})]}), {"a": {"x": 1, "y": 2}}),
        (SHARED, {"a": {"x": 1, "y": 2}, "b": {"x": 1}}),
        (tool(a={}), {"a": [1, "x", None, {}, [[]]]}),
        ({"$ref": "#/$defs/T", "$defs": {"T": TREE}}, {"v": 1, "kids": [{"v": 2, "kids": []}]}),
        (
            Arguments.model_json_schema(),
            {"pet": {"kind": "cat", "owner": {"value": 1}}, "from": "mail", "pair": [1, "b"]},
        ),
    ],
)
def test_declared_properties_pass(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """What is declared anywhere in a composition is admitted by the closed schema."""
    lint(schema)
    assert Validator(close(schema)).check(arguments) is None


def test_closing_does_not_turn_an_ambiguous_oneof_into_consent() -> None:
    """Two alternatives that both fit are refused, even where only one of them would fit closed."""
    untagged = [tool(p=tool(x={})), tool(p=tool(y={}))]
    tags = [{"p": {"enum": ["u", "v"]}, "q": tool(x={})}, {"p": {"enum": ["v", "w"]}, "q": tool(y={})}]
    tagged = [{**tool(**properties), "required": ["p"]} for properties in tags]
    for alternatives, argument in [(untagged, {"p": {"x": 1}}), (tagged, {"p": "v", "q": {"x": 1}})]:
        schema = tool(a={"oneOf": alternatives})
        for judged in (schema, close(schema), close(schema, keep_open=True)):
            assert Validator(judged).check({"a": argument}) == "at /a: fits more than one of the alternatives"


def test_closing_keeps_a_tagged_union_readable() -> None:
    """Alternatives that a required constant tells apart are closed one by one, without a copy of the original."""
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}, "toy": POINT}, "required": ["kind"]}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}
    assert close(tool(a={"oneOf": [cat, dog]})) == {
        **tool(
            a={
                "oneOf": [
                    {
                        **cat,
                        "properties": {"kind": {"const": "cat"}, "toy": CLOSED_POINT},
                        "additionalProperties": False,
                    },
                    {**dog, "additionalProperties": False},
                ]
            }
        ),
        "additionalProperties": False,
    }


def test_closing_below_not_keeps_its_meaning() -> None:
    """A definition that is closed for arguments still forbids, below a not, all that it forbade."""
    schema = {**defined({"not": reference("P")}, P=tool(p=POINT)), "additionalProperties": True}
    schema["properties"]["b"] = reference("P")
    forbidden = {"a": {"p": {"y": 1}}}
    assert Validator(schema).check(forbidden) is not None
    assert Validator(close(schema)).check(forbidden) is not None


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        (tool(a={"items": [{"type": "integer"}], "additionalItems": False}), {"a": [1]}, {"a": [1, 2]}),
        (tool(a={"items": [{"type": "integer"}]}), {"a": [1]}, {"a": ["x"]}),
        ({**tool(a={}, b={}), "dependencies": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
        ({**tool(a={}, b={}), "dependencies": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, {"a": 1}),
    ],
)
def test_older_spellings_mean_what_they_meant(schema: dict[str, Any], fits: Any, does_not: Any) -> None:
    """Tuples and dependencies of draft-07 are judged, where 2020-12 would pass over them."""
    lint(schema)
    validator = Validator(close(schema))
    assert validator.check(fits) is None
    assert validator.check(does_not) is not None


# --- property: closed is never more than open ---

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES: list[Any] = [True, False, {}, {"type": "string"}, {"type": "object"}, {"type": "array"}, {"const": "x"}]
LEAVES += [{"$ref": "#"}, reference("D"), reference("E"), {"$ref": "#/properties/a"}, {"required": ["a"]}]
LEAVES += [{**tool(a={"const": tag}), "required": ["a"]} for tag in ("x", "y")]


def composed(sub: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Schemas of one to three keywords over `sub`."""
    some = st.lists(sub, min_size=1, max_size=2)
    named = st.dictionaries(NAMES, sub, max_size=2)
    keywords = {
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], some),
        **dict.fromkeys(["properties", "dependentSchemas"], named),
        **dict.fromkeys(["not", "if", "then", "else", "items", "contains"], sub),
        **dict.fromkeys(["additionalProperties", "unevaluatedProperties", "unevaluatedItems"], st.booleans() | sub),
        "patternProperties": st.dictionaries(st.sampled_from(["^u", "b"]), sub, max_size=1),
        "type": st.sampled_from(["object", "array"]),
    }
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=3, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: keywords[key] for key in keys}))


SCHEMAS = st.recursive(st.sampled_from(LEAVES), composed, max_leaves=6)
TOOLS = st.fixed_dictionaries(
    {
        "type": st.just("object"),
        "properties": st.dictionaries(NAMES, SCHEMAS, min_size=1, max_size=2),
        "$defs": st.fixed_dictionaries({"D": SCHEMAS, "E": SCHEMAS}),
    },
    optional={"allOf": st.lists(SCHEMAS, min_size=1, max_size=2), "additionalProperties": st.booleans()},
)
UNDECLARED = "undeclared"
KEYS = st.one_of(NAMES, st.just(UNDECLARED))
VALUES = st.recursive(
    st.sampled_from([None, 1, "x"]),
    lambda sub: st.lists(sub, max_size=2) | st.dictionaries(KEYS, sub, max_size=2),
    max_leaves=5,
)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(schema=TOOLS, payloads=st.lists(st.dictionaries(KEYS, VALUES, max_size=2), min_size=4, max_size=8))
def test_closed_never_admits_more_than_open(schema: dict[str, Any], payloads: list[dict[str, Any]]) -> None:
    """Closed, a schema accepts nothing that it refuses open, and no undeclared name, whatever is composed."""
    try:
        lint(schema)
    except InvalidTool:
        assume(False)
    original, closed = Validator(schema), Validator(close(schema))
    kept_open = Validator(close(schema, keep_open=True))
    for payload in payloads:
        if closed.check(payload) is None:
            assert UNDECLARED not in json.dumps(payload)
            assert kept_open.check(payload) is None
        if kept_open.check(payload) is None:
            assert original.check(payload) is None
        else:
            assert UNDECLARED not in (kept_open.check(payload) or "")


# --- Validator ---

ORDER = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "currency": {"enum": ["EUR", "USD"]},
        "note": {"type": ["string", "null"], "maxLength": 3, "pattern": "^[a-z]*$"},
        "items": {"type": "array", "items": {**POINT, "required": ["x"]}, "minItems": 1, "uniqueItems": True},
        "owner": {"anyOf": [reference("P"), {"type": "null"}]},
        "shape": {"oneOf": [reference("Circle"), reference("Square")]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"anyOf": [{"type": "string", "minLength": 2}, {"type": "string", "maxLength": 0}]},
        "both": {"allOf": [reference("P"), {"properties": {"y": {"type": "integer"}}}]},
        "a/b": {"const": 1},
        "never": False,
    },
    "required": ["amount", "currency"],
    "$defs": {
        "P": POINT,
        "Circle": {**tool(kind={"const": "circle"}, r={"type": "number"}), "required": ["kind", "r"]},
        "Square": {**tool(kind={"const": "square"}, side={"type": "number"}), "required": ["kind", "side"]},
    },
}
GOOD = {"amount": 1, "currency": "EUR"}

REASONS = [
    ({"amount": 1}, "at /: a required property is missing: currency"),
    ({}, "at /: a required property is missing: amount, currency"),
    ({**GOOD, "amount": "secret"}, "at /amount: wrong type, expected integer"),
    ({**GOOD, "amount": True}, "at /amount: wrong type, expected integer"),
    ({**GOOD, "amount": 0}, "at /amount: less than the minimum of 1"),
    ({**GOOD, "amount": 101}, "at /amount: greater than the maximum of 100"),
    ({**GOOD, "currency": "secret"}, "at /currency: not one of the allowed values"),
    ({**GOOD, "note": 5}, "at /note: wrong type, expected string or null"),
    ({**GOOD, "note": "SECRET"}, "at /note: longer than 3 characters; at /note: does not match the pattern"),
    ({**GOOD, "note": "ab\n"}, "at /note: does not match the pattern"),
    ({**GOOD, "secret": 1}, "at /: a property that the schema does not declare"),
    ({**GOOD, "items": []}, "at /items: fewer than 1 items"),
    ({**GOOD, "items": [{"x": 1}, {"x": 1}]}, "at /items: items are not unique"),
    ({**GOOD, "items": [{"x": 1}, {"x": 1.5}]}, "at /items/1/x: wrong type, expected integer"),
    ({**GOOD, "items": [{"x": 1, "secret": 2}]}, "at /items/0: a property that the schema does not declare"),
    ({**GOOD, "owner": {"x": "secret"}}, "at /owner/x: wrong type, expected integer"),
    ({**GOOD, "owner": 5}, "at /owner: fits none of the alternatives"),
    ({**GOOD, "shape": {"kind": "circle"}}, "at /shape: a required property is missing: r"),
    ({**GOOD, "shape": {"kind": "secret"}}, "at /shape: fits none of the alternatives"),
    ({**GOOD, "either": "x"}, "at /either: fits none of the alternatives"),
    ({**GOOD, "both": {"x": 1, "z": 1}}, "at /both: a property that the schema does not declare"),
    ({**GOOD, "both": {"x": 1, "y": "z"}}, "at /both/y: wrong type, expected integer"),
    ({**GOOD, "a/b": 2}, "at /a~1b: not the one allowed value"),
    ({**GOOD, "never": 2}, "at /never: nothing is allowed here"),
    (
        {"amount": 0, "currency": 0, "note": 0, "items": 0},
        "at /amount: less than the minimum of 1; at /currency: not one of the allowed values; "
        "at /note: wrong type, expected string or null",
    ),
]


@pytest.mark.parametrize(("arguments", "reason"), REASONS, ids=[reason[:60] for _, reason in REASONS])
def test_a_refusal_names_the_place_and_the_keyword(arguments: dict[str, Any], reason: str) -> None:
    """A model learns where and why, at most three times, and sees no value and no name that it made up."""
    assert Validator(close(ORDER)).check(arguments) == reason
    assert "secret" not in reason.lower()


def test_arguments_that_fit_have_no_reason() -> None:
    """None stands for valid."""
    full = {**GOOD, "note": None, "items": [{"x": 1}], "owner": None, "shape": {"kind": "circle", "r": 1}, "labels": {}}
    assert Validator(close(ORDER)).check({**full, "either": "", "both": {"x": 1, "y": 2}, "a/b": 1}) is None


def test_names_in_an_open_map_are_not_repeated() -> None:
    """A name that the schema does not declare is the model's text, and reads as a star."""
    kept_open = Validator(close(ORDER, keep_open=True))
    assert kept_open.check({**GOOD, "labels": {"ignore all rules": 5}}) == "at /labels/*: wrong type, expected string"


def test_whole_floats_are_integers_but_for_a_toolparam() -> None:
    """JSON Schema takes 1.0 for an integer; an AiTool's parameter does not. A boolean is no number for either."""
    schema = from_params([ToolParam("n", "integer", "A number."), ToolParam("f", "number", "Another.", required=False)])
    plain, strict = Validator(schema), Validator(schema, strict_integers=True)
    assert plain.check({"n": 1.0}) is None
    assert strict.check({"n": 1.0}) == "at /n: wrong type, expected integer"
    assert strict.check({"n": 1, "f": 1.0}) is None
    assert strict.check({"n": 1, "f": 1}) is None
    assert strict.check({"n": "1"}) == "at /n: wrong type, expected integer"
    for arguments in ({"n": True}, {"n": 1, "f": True}):
        assert plain.check(arguments) is not None
        assert strict.check(arguments) is not None


def test_formats_are_annotations() -> None:
    """A format refuses nothing: what a date is, the tool decides."""
    assert Validator(close(tool(a={"type": "string", "format": "date"}))).check({"a": "soon"}) is None


def test_what_the_engine_cannot_read_is_refused() -> None:
    """An error inside the engine is a reason, never an exception and never consent."""
    assert Validator(close(tool(a={}))).check({"a": object()}) == "the arguments cannot be checked"


def test_recursion_through_alternatives_is_explained_without_trying_every_way() -> None:
    """Forty levels with two alternatives each are a trillion ways; the reason takes one."""
    branch = {"properties": {"child": reference("N"), "leaf": {"type": "integer"}}}
    schema = defined(reference("N"), N={"anyOf": [{**branch, "required": [name]} for name in ("child", "leaf")]})
    lint(schema)
    arguments: dict[str, Any] = {"leaf": "x"}
    for _ in range(40):
        arguments = {"child": arguments, "leaf": 1}
    for judged in (schema, close(schema), close(schema, keep_open=True)):
        assert Validator(judged).check({"a": arguments}) == "at /a: fits none of the alternatives"


def test_a_reason_is_bounded() -> None:
    """Long names and deep places do not fill a context window."""
    name = "n" * 500
    assert len(Validator(close(tool(**{name: tool(**{name: False})}))).check({name: {name: 1}}) or "") == 600
    arguments: Any = {"v": "x"}
    for _ in range(40):
        arguments = {"v": 1, "kids": [arguments]}
    reason = Validator(close({**TREE, "$defs": {"T": TREE}})).check(arguments)
    assert reason == f"at {'/kids/0' * 8}: does not satisfy the schema"


# --- complete ---


@pytest.mark.parametrize(
    ("schema", "arguments", "effective"),
    [
        (tool(a={"default": 1}, b={}), {}, {"a": 1}),
        (tool(a={"default": 1}), {"a": 2}, {"a": 2}),
        (tool(a={"default": 1}), {"a": None}, {"a": None}),
        (tool(a={"default": None}), {}, {"a": None}),
        (tool(a={"type": "integer", "default": None}), {}, {}),
        (tool(a={"type": ["integer", "null"], "default": None}), {}, {"a": None}),
        (tool(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), {}, {"a": None}),
        (tool(a=tool(x={"default": 1})), {}, {}),
        (tool(a=tool(x={"default": 1})), {"a": {}}, {"a": {"x": 1}}),
        (tool(a={**tool(x={"default": 1}), "default": {}}), {}, {"a": {}}),
        (tool(a={"items": tool(x={"default": 1})}), {"a": [{}, {"x": 2}, 3]}, {"a": [{"x": 1}, {"x": 2}, 3]}),
        (tool(a={"prefixItems": [tool(x={"default": 1})]}), {"a": [{}, {}]}, {"a": [{"x": 1}, {}]}),
        (defined(reference("P"), P=tool(x={"default": 1})), {"a": {}}, {"a": {"x": 1}}),
        (defined({**reference("C"), "default": "red"}, C={"enum": ["red"]}), {}, {"a": "red"}),
        (defined(reference("C"), C={"enum": ["red"], "default": "red"}), {}, {"a": "red"}),
        (defined({"anyOf": [reference("P"), {"type": "null"}]}, P=tool(x={"default": 1})), {"a": {}}, {"a": {"x": 1}}),
        (tool(a={"anyOf": [tool(x={"default": 1}), tool(y={"default": 2})]}), {"a": {}}, {"a": {}}),
        (
            tool(a={"allOf": [tool(p=tool(x={"default": 1})), tool(p=tool(y={"default": 2}))]}),
            {"a": {"p": {}}},
            {"a": {"p": {"x": 1, "y": 2}}},
        ),
        ({"$ref": "#/$defs/T", "$defs": {"T": tool(n={"$ref": "#/$defs/T", "default": {}})}}, {}, {"n": {}}),
        (
            {"allOf": [tool(n={"default": {}}), tool(n={"$ref": "#/allOf/1"})], "type": "object"},
            {},
            {"n": {}},
        ),
        (tool(a={"allOf": [tool(p={"default": {}}), tool(p=tool(x={"default": 1}))]}), {"a": {}}, {"a": {"p": {}}}),
        ({"$ref": "#/$defs/P", "$defs": {"P": tool(x={"default": 1})}}, {}, {"x": 1}),
        (
            Node.model_json_schema(),
            {"value": 1, "children": [{"value": 2}]},
            {"value": 1, "children": [{"value": 2, "children": []}]},
        ),
    ],
)
def test_effective_arguments(schema: dict[str, Any], arguments: dict[str, Any], effective: dict[str, Any]) -> None:
    """Absent properties take their declared defaults, at every depth that is there; nothing given is touched."""
    lint(schema)
    before = copy.deepcopy(arguments)
    assert complete(schema, arguments) == effective
    assert complete(close(schema, keep_open=True), arguments) == effective
    assert arguments == before


def test_a_default_is_never_shared() -> None:
    """What one call does to its arguments is not seen by the next one, nor by the schema."""
    schema = tool(a={"type": "array", "default": [{"x": []}], "items": {}})
    complete(schema, {})["a"][0]["x"].append(1)
    assert complete(schema, {}) == {"a": [{"x": []}]}


# --- narrow ---

LOW_POINT = tool(x={"type": "integer", "maximum": 1})
RANGE = {"type": "integer", "minimum": 2, "maximum": 8}
OPTIONAL = {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}

NARROWED = [
    (tool(a={"type": "string"}), "a", {"enum": ["x"]}, tool(a={"type": "string", "enum": ["x"]})),
    (tool(a={"type": "string"}), "/a", {"enum": []}, tool(a={"type": "string", "enum": []})),
    (tool(a={"enum": ["x", 1]}), "a", {"enum": [1, "y", True]}, tool(a={"enum": [1]})),
    (tool(a={"const": "x"}), "a", {"enum": ["x", "y"]}, tool(a={"const": "x", "enum": ["x"]})),
    (tool(a=OPTIONAL), "a", {"enum": ["a", "c", None]}, tool(a={**OPTIONAL, "enum": ["a", None]})),
    (tool(a=RANGE), "a", {"minimum": 3, "maximum": 9}, tool(a={**RANGE, "minimum": 3})),
    (tool(a=RANGE), "a", {"minimum": 1, "maximum": 4.5}, tool(a={**RANGE, "maximum": 4.5})),
    (tool(a=True), "a", {"maximum": 1}, tool(a={"maximum": 1})),
    (tool(a=POINT), "/a/x", {"maximum": 1}, tool(a=LOW_POINT)),
    (
        tool(a={"type": "array", "items": POINT}),
        "/a/*/x",
        {"maximum": 1},
        tool(a={"type": "array", "items": LOW_POINT}),
    ),
    (tool(**{"a/b": {}, "c": {}}), "/a~1b", {"minimum": 1}, tool(**{"a/b": {"minimum": 1}, "c": {}})),
    (
        tool(a={"anyOf": [POINT, {"type": "null"}]}),
        "/a/x",
        {"maximum": 1},
        tool(a={"anyOf": [LOW_POINT, {"type": "null"}]}),
    ),
    (
        {**tool(a=reference("C"), b=reference("C")), "$defs": {"C": {"enum": ["x", "y"], "title": "C"}}},
        "a",
        {"enum": ["x", "z"]},
        {**tool(a={"enum": ["x"], "title": "C"}, b=reference("C")), "$defs": {"C": {"enum": ["x", "y"], "title": "C"}}},
    ),
    (
        {**tool(a={**reference("P"), "title": "Mine"}, b=reference("P")), "$defs": {"P": POINT}},
        "/a/x",
        {"maximum": 1},
        {
            **tool(a={**LOW_POINT, "title": "Mine"}, b=reference("P")),
            "$defs": {"P": POINT},
        },
    ),
    (
        {**tool(a={**reference("P"), "required": ["x"]}), "$defs": {"P": POINT}},
        "/a/x",
        {"maximum": 1},
        {
            **tool(a={"required": ["x"], "allOf": [LOW_POINT]}),
            "$defs": {"P": POINT},
        },
    ),
    (
        {"$ref": "#/$defs/T", "$defs": {"T": TREE}},
        "/kids/*/v",
        {"maximum": 1},
        {
            "type": "object",
            "properties": {
                "v": {"type": "integer"},
                "kids": {
                    "type": "array",
                    "items": {**TREE, "properties": {**TREE["properties"], "v": {"type": "integer", "maximum": 1}}},
                },
            },
            "$defs": {"T": TREE},
        },
    ),
]


@pytest.mark.parametrize(("schema", "pointer", "limits", "shown"), NARROWED)
def test_narrowing(schema: dict[str, Any], pointer: str, limits: dict[str, Any], shown: dict[str, Any]) -> None:
    """The place is limited further than it was, and nothing else changes."""
    before = copy.deepcopy(schema)
    assert narrow(schema, pointer, **limits) == shown
    assert schema == before
    lint(shown)


@pytest.mark.parametrize("pointer", ["b", "/a/y", "/a/*/x", "/a/x/z", "", "/", "/a/0"])
def test_narrowing_a_place_that_is_not_there_changes_nothing(pointer: str) -> None:
    """A rule about an argument that this tool does not have leaves its schema alone."""
    schema = {**tool(a={"anyOf": [reference("P"), {"type": "null"}]}), "$defs": {"P": POINT}}
    assert narrow(schema, pointer, enum=["x"], minimum=1, maximum=2) == schema


# --- from_params ---


def test_declared_parameters_become_a_closed_schema() -> None:
    """Names, types, descriptions and what is required, in the order of declaration."""
    params = [
        ToolParam("account", "string", "Which one."),
        ToolParam("options", "object", "Free inside.", required=False),
        ToolParam("tags", "array", "Free inside.", required=False),
    ]
    schema = from_params(params)
    assert schema == {
        "type": "object",
        "properties": {
            "account": {"type": "string", "description": "Which one."},
            "options": {"type": "object", "description": "Free inside.", "additionalProperties": True},
            "tags": {"type": "array", "description": "Free inside."},
        },
        "required": ["account"],
        "additionalProperties": False,
    }
    assert list(schema["properties"]) == ["account", "options", "tags"]
    assert close(schema, keep_open=True) == schema
    validator = Validator(schema, strict_integers=True)
    assert validator.check({"account": "a", "options": {"x": 1}, "tags": [{"y": 1.0}]}) is None
    assert validator.check({"account": "a", "options": None}) == "at /options: wrong type, expected object"
    assert validator.check({"account": "a", "other": 1}) == "at /: a property that the schema does not declare"


# --- once, at registration ---


WRITTEN = tool(a={"type": "integer"}, b={"type": "object", "additionalProperties": {"type": "string"}})


def test_a_schema_is_closed_and_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At registration, for either word of the policy; a call, a listing and a second call do neither."""
    spec = ToolSpec.of(name="t", description="", schema=WRITTEN)

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a second time")

    for module, name in (
        ("closing", "close_read"), ("linting", "close_read"), ("linting", "compiled"), ("validation", "compiled")
    ):  # fmt: skip
        monkeypatch.setattr(f"guarded_core.tools.schema.{module}.{name}", never)
    assert spec.validator().check({"a": 1}) is None
    assert spec.validator(keep_open=True).check({"b": {"free": "text"}}) is None
    assert spec.closed_schema()["additionalProperties"] is False


@pytest.mark.parametrize("keep_open", [False, True])
def test_what_is_judged_is_what_close_makes(keep_open: bool) -> None:
    """By either word of the policy."""
    spec = ToolSpec.of(name="t", description="", schema=WRITTEN)
    assert spec.closed_schema(keep_open=keep_open) == close(WRITTEN, keep_open=keep_open)


def test_a_shown_schema_is_the_callers_own() -> None:
    """What somebody does to it changes neither what is judged nor what the next one is shown."""
    spec = ToolSpec.of(name="t", description="", schema=WRITTEN)
    shown = spec.closed_schema()
    shown["properties"]["a"]["type"] = "string"
    shown["additionalProperties"] = True
    assert spec.closed_schema() == close(WRITTEN)
    assert spec.validator().check({"a": "x"}) == "at /a: wrong type, expected integer"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda spec: pickle.loads(pickle.dumps(spec)), dataclasses.replace])
def test_a_copied_tool_judges_alike(copied: Callable[[ToolSpec], ToolSpec]) -> None:
    """In another process too, although what is compiled does not travel."""
    parameter = ToolParam("a", "integer", "A number.")
    spec = copied(
        ToolSpec.of(name="t", description="", schema=from_params([parameter]), closed=True, strict_integers=True)
    )
    assert spec.validator().check({"a": 1}) is None
    assert spec.validator().check({"a": 1.0}) == "at /a: wrong type, expected integer"


INSIDE_ITSELF = {
    "type": "object",
    "allOf": [{"unevaluatedProperties": {"anyOf": [{"$ref": "#"}], "unevaluatedProperties": False}}],
    "properties": {"a": {}},
}


def test_a_schema_inside_itself_does_not_end_the_process() -> None:
    """It is judged or refused: older engines overflow their stack on it, and take the application with them."""
    code = """
import json, sys
from guarded_core import InvalidTool, ToolSpec
try:
    print(ToolSpec.of(name="f", description="F.", schema=json.loads(sys.argv[1])).validator().check({"a": []}))
except InvalidTool as error:
    print(error)
"""
    command = [sys.executable, "-c", code, json.dumps(INSIDE_ITSELF)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, bool(ran.stdout)) == (0, True), ran.stderr

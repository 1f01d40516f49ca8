"""Sample arguments of a tool, drawn from its schema: the same ones each time, and most of them odd."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from itertools import chain, islice, zip_longest
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.document import DEFINITIONS, copied, target
from guarded_core.tools.schema.validation import compiled

MOST = 32  # values of one parameter
_NESTED = 4
_ITEMS = 8

TEXTS = (
    *("bob", " A b ", "x,y", "1", '["x", "y"]', "AB-1", "abc", "ABC", "a", "", "Ünï", "2.5", "12345", "10.50"),
    *("GB29NWBK60161331926819", "kim@Example.com", "https://Example.com/a?b=1", "docs/../a.txt", "+4912345", "<a>"),
    *("2026-01-02", "2026-01-02T03:04:05+02:00", "03:04:05", "P1DT2H", "123e4567-e89b-12d3-a456-426614174000"),
    *("192.168.0.1", "true", "null", "{}", '{"a": 1}', "YmI=", "Europe/Berlin"),
)
_BY_FORMAT = {
    "date": ("2026-01-02", "1999-12-31"),
    "date-time": ("2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05Z", "1999-12-31T23:59:59.5Z"),
    "time": ("03:04:05", "23:59:59.25"),
    "duration": ("P1DT2H", "PT90M"),
    "uri": ("https://Example.com", "https://example.com/a?b=1"),
    "email": ("kim@Example.com", "a.b+c@example.org"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-4000-8000-000000000000"),
    "ipv4": ("192.168.0.1", "10.0.0.1"),
    "ipv6": ("2001:DB8::1", "::1"),
}
_NUMBERS = (1, 2, 0, 7, -1, 100, 3, 12345, 1.5, 0.1, -2.25, 10.0)
ANYTHING: tuple[Any, ...] = (*TEXTS, *_NUMBERS, True, False, None, [], ["x"], [1, 2], {}, {"a": 1})


def of_parameters(root: dict[str, Any]) -> dict[str, list[Any]]:
    """For each parameter of a linted schema, up to `MOST` values that fit it."""
    return {name: _values(root, sub) for name, sub in root.get("properties", {}).items()}


def fitting(root: dict[str, Any], node: Any) -> Callable[[Any], bool] | None:
    """Whether a value fits the subschema; None where that cannot be told from it alone."""
    definitions = {keyword: root[keyword] for keyword in DEFINITIONS if keyword in root}
    try:
        return compiled({**definitions, "allOf": [node]}).is_valid
    except InvalidTool:
        return None  # it refers to the root


def _values(root: dict[str, Any], node: Any) -> list[Any]:
    fits = fitting(root, node)
    found: dict[str, Any] = {}
    for value in islice(_drawn(root, node, _NESTED), 8 * MOST) if fits else ():
        if fits and repr(value) not in found and fits(value):
            found[repr(value)] = copied(value)
    return list(found.values())[:MOST]


def _drawn(root: dict[str, Any], node: Any, left: int) -> Iterator[Any]:
    """Values to try, the likelier ones first."""
    if left < 0 or node is False:
        return
    if not isinstance(node, dict):
        yield from ANYTHING
        return
    yield from node.get("examples", ()) if isinstance(node.get("examples"), list) else ()
    if "const" in node or "enum" in node:
        yield from [node["const"]] if "const" in node else node["enum"]
        return
    if "default" in node:
        yield node["default"]
    parts = [target(root, node)] if "$ref" in node else []
    parts += [branch for keyword in ("anyOf", "oneOf", "allOf") for branch in node.get(keyword, ())]
    yield from _in_turn([_drawn(root, part, left - 1) for part in parts])
    declared = node.get("type", None if parts else list(_BY_TYPE))
    types = [declared] if isinstance(declared, str) else declared or []
    yield from _in_turn([_BY_TYPE[kind](root, node, left) for kind in types if kind in _BY_TYPE])


def _in_turn(sources: list[Iterator[Any]]) -> Iterator[Any]:
    missing = object()
    return (value for values in zip_longest(*sources, fillvalue=missing) for value in values if value is not missing)


def _texts(root: dict[str, Any], node: dict[str, Any], left: int) -> Iterator[Any]:
    yield from _BY_FORMAT.get(str(node.get("format")), ())
    if "contentSchema" in node:
        yield from (json.dumps(value) for value in islice(_drawn(root, node["contentSchema"], left - 1), _ITEMS))
    yield from _matching(str(node["pattern"])) if "pattern" in node else ()
    shortest, longest = node.get("minLength", 0), node.get("maxLength", 1 << 16)
    for text in TEXTS:
        yield (text * (1 + shortest // max(len(text), 1)))[:longest] if len(text) < shortest else text[:longest]


def _matching(pattern: str) -> Iterator[str]:
    """Texts of two shapes that the pattern may have been written for."""
    try:
        parsed = importlib.import_module("re._parser").parse(pattern)
        yield from ("".join(_spelled(parsed, which)) for which in (0, 1))
    except Exception:
        return  # a construct that is not spelled here, or another Python


def _spelled(parsed: Any, which: int) -> Iterator[str]:
    for operation, given in parsed:
        match str(operation):
            case "LITERAL":
                yield chr(given)
            case "IN":
                yield _one_of(given, which)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inside = given
                yield from "".join(_spelled(inside, which)) * min(max(least, 1 + which), int(most))
            case "SUBPATTERN":
                yield from _spelled(given[-1], which)
            case "BRANCH":
                yield from _spelled(given[1][which % len(given[1])], which)
            case "ANY" | "NOT_LITERAL":
                yield "x"
            case "AT" | "ASSERT" | "ASSERT_NOT":
                pass
            case _:
                raise ValueError("not spelled here")


def _one_of(given: Any, which: int) -> str:
    wanted = [argument for operation, argument in given if str(operation) in ("LITERAL", "RANGE")]
    classes = {"CATEGORY_DIGIT": "70", "CATEGORY_WORD": "a1", "CATEGORY_SPACE": "  "}
    found = [classes[str(argument)] for operation, argument in given if str(argument) in classes]
    if str(given[0][0]) == "NEGATE" or not (wanted or found):
        return "x"
    if found:
        return found[0][which]
    chosen = wanted[which % len(wanted)]
    return chr(chosen if isinstance(chosen, int) else chosen[which])


def _numbers(root: dict[str, Any], node: dict[str, Any], left: int) -> Iterator[Any]:
    step = node.get("multipleOf", 1)
    for keyword in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        if keyword in node:
            yield from (node[keyword], node[keyword] + step, node[keyword] - step)
    yield from chain(_NUMBERS, (number * step for number in _NUMBERS if step != 1))


def _lists(root: dict[str, Any], node: dict[str, Any], left: int) -> Iterator[Any]:
    first = [list(islice(_drawn(root, sub, left - 1), _ITEMS)) for sub in node.get("prefixItems", ())]
    if all(first):
        for index in range(_ITEMS if first else 0):
            yield [options[index % len(options)] for options in first]
    items = [] if first else list(islice(_drawn(root, node.get("items", True), left - 1), _ITEMS))
    yield from (items[index : index + 2] for index in range(len(items)))
    yield from ([item] for item in items)
    yield []


def _objects(root: dict[str, Any], node: dict[str, Any], left: int) -> Iterator[Any]:
    properties = {name: list(islice(_drawn(root, sub, left - 1), _ITEMS)) for name, sub in _declared(node)}
    required = set(node.get("required", ()))
    for index in range(_ITEMS if properties else 0):
        # Each at another index, so that two that were swapped are seen.
        drawn = {
            name: options[(index + shift) % len(options)]
            for shift, (name, options) in enumerate(properties.items())
            if options
        }
        yield drawn
        yield {name: value for name, value in drawn.items() if name in required}
    more = node.get("additionalProperties", not properties)
    if more is not False:
        yield from ({"a": value} for value in islice(_drawn(root, more, left - 1), _ITEMS))
    yield {}


def _declared(node: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from node.get("properties", {}).items()


_BY_TYPE: dict[str, Any] = {
    "string": _texts,
    "integer": _numbers,
    "number": _numbers,
    "boolean": lambda root, node, left: iter((True, False)),
    "null": lambda root, node, left: iter((None,)),
    "array": _lists,
    "object": _objects,
}

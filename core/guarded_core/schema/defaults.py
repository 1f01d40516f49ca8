"""Declared defaults: checked at registration, filled in at each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, repeat
from typing import Any

from guarded_core.schema.document import json_pointer, kinds, places, refused, target
from guarded_core.schema.validation import compiled_places

_COMPOSING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})


def check_defaults(root: dict[str, Any]) -> None:
    """Refuse a ``default`` that does not fit its own place, unless it is null.

    Frameworks write ``"default": null`` for an argument that may be left out (``def f(limit: int = None)``): where null
    is no value, it stands for none. Raises InvalidTool.
    """
    declaring = [(path, node) for path, node in places(root).items() if isinstance(node, dict) and "default" in node]
    if not declaring:
        return
    compiled = compiled_places(root)
    for path, node in declaring:
        if node["default"] is not None and not compiled["#" + json_pointer(path)].is_valid(node["default"]):
            raise refused(path, "the default does not fit the schema it stands in")


def complete(schema: Mapping[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The effective arguments: valid `arguments` with declared defaults in the place of absent properties.

    Shapes: `schema` is one that `lint` accepts, closed or not. Objects that are present are completed inside too, below
    references, ``allOf``, list items and an alternative that is the only one for objects. A default is taken as it is
    written, as a copy of its own, but for a null where the schema has no null. Given values are kept, and `arguments`
    is not changed.
    """
    root = dict(schema)
    return _object(root, root, arguments)


def _filled(root: dict[str, Any], node: Any, value: Any) -> Any:
    if type(value) is dict:
        return _object(root, node, value)
    if type(value) is list:
        return _array(root, node, value)
    return value


def _object(root: dict[str, Any], node: Any, value: dict[str, Any]) -> dict[str, Any]:
    result = dict(value)
    for part in _parts(root, node, "object"):
        for name, sub in part.get("properties", {}).items():
            if name in value:
                # Once for each part that declares it: each may know other properties of the same object.
                result[name] = _filled(root, sub, result[name])
            elif name not in result:
                for default in _defaults(root, sub):
                    result[name] = _copy(default)
                    break
    return result


def _array(root: dict[str, Any], node: Any, value: list[Any]) -> list[Any]:
    if not any(type(item) in (dict, list) for item in value):
        return value
    for part in _parts(root, node, "array"):
        subs = chain(part.get("prefixItems", ()), repeat(part.get("items", True)))
        value = [_filled(root, sub, item) for sub, item in zip(subs, value, strict=False)]
    return value


def _defaults(root: dict[str, Any], node: Any) -> Iterator[Any]:
    """What an absent property may stand for, the nearest declaration first."""
    for part in _parts(root, node):
        if "default" in part and (part["default"] is not None or "null" in kinds(root, node)):
            yield part["default"]


def _parts(root: dict[str, Any], node: Any, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """The schemas that certainly judge this value, among alternatives the only one that takes a value of this kind."""
    if not isinstance(node, dict):
        return
    yield node
    if not _COMPOSING & node.keys():
        return
    if "$ref" in node:
        yield from _parts(root, target(root, node), kind)
    for branch in node.get("allOf", ()):
        yield from _parts(root, branch, kind)
    for keyword in ("anyOf", "oneOf") if kind is not None else ():
        taking = [branch for branch in node.get(keyword, ()) if kind in kinds(root, branch)]
        if len(taking) == 1:
            yield from _parts(root, taking[0], kind)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {name: _copy(child) for name, child in value.items()}
    if type(value) is list:
        return [_copy(child) for child in value]
    return value

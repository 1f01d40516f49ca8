"""Declared defaults: checked at registration, filled in at each call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any

from guarded_core.tools.schema.document import copied, json_pointer, kinds, places, refused, target
from guarded_core.tools.schema.validation import compiled_places

_COMPOSING = frozenset({"$ref", "allOf", "anyOf", "oneOf"})


def check_defaults(root: dict[str, Any]) -> None:
    """Refuse a ``default`` that does not fit its own place, unless it is null.

    Frameworks write ``"default": null`` for an argument that may be left out (``def f(limit: int = None)``): where null
    is not a value, it stands for none. Raises InvalidTool.
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

    See `Defaults`, which keeps what it finds out about a schema.
    """
    return Defaults(schema).complete(arguments)


class Defaults:
    """Fills in the defaults that one schema declares.

    Shapes: `schema` is one that `lint` accepts, closed or not; it is not changed, nor may it be changed later. Objects
    that are present are completed inside too, below references, ``allOf``, list items and an alternative that is the
    only one for objects. A default is taken as it is written, as a copy of its own, but for a null where the schema has
    no null.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._root = dict(schema)
        # What was found out about subschemas, by their id; two threads may both find it out, and agree.
        self._kinds: dict[int, frozenset[str]] = {}
        self._parts: dict[tuple[int, str], tuple[dict[str, Any], ...]] = {}
        self._absent: dict[int, tuple[Any, ...]] = {}

    def complete(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Valid `arguments`, which are not changed, with defaults in the place of absent properties."""
        return self._object(self._root, arguments)

    def _filled(self, node: Any, value: Any) -> Any:
        if type(value) is dict:
            return self._object(node, value)
        if type(value) is list:
            return self._array(node, value)
        return value

    def _object(self, node: Any, value: dict[str, Any]) -> dict[str, Any]:
        result = dict(value)
        for part in self._judging(node, "object"):
            for name, sub in part.get("properties", {}).items():
                if name in value:
                    # Once for each part that declares it: each may know other properties of the same object.
                    result[name] = self._filled(sub, result[name])
                elif name not in result:
                    for default in self._default(sub):
                        result[name] = copied(default)
        return result

    def _array(self, node: Any, value: list[Any]) -> list[Any]:
        if not any(type(item) in (dict, list) for item in value):
            return value
        for part in self._judging(node, "array"):
            subs = chain(part.get("prefixItems", ()), repeat(part.get("items", True)))
            value = [self._filled(sub, item) for sub, item in zip(subs, value, strict=False)]
        return value

    def _judging(self, node: Any, kind: str) -> tuple[dict[str, Any], ...]:
        found = self._parts.get((id(node), kind))
        if found is None:
            found = self._parts[id(node), kind] = tuple(self._find(node, kind))
        return found

    def _default(self, node: Any) -> tuple[Any, ...]:
        """What an absent property stands for, by the nearest declaration; empty for nothing."""
        found = self._absent.get(id(node))
        if found is None:
            declared = (part["default"] for part in self._find(node) if "default" in part)
            taken = (value for value in declared if value is not None or "null" in self._taken(node))
            found = self._absent[id(node)] = tuple(islice(taken, 1))
        return found

    def _taken(self, node: Any) -> frozenset[str]:
        return kinds(self._root, node, self._kinds)

    def _find(self, node: Any, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """The schemas that certainly judge this value, among alternatives the only one for a value of this kind."""
        if not isinstance(node, dict):
            return
        yield node
        if not _COMPOSING & node.keys():
            return
        if "$ref" in node:
            yield from self._find(target(self._root, node), kind)
        for branch in node.get("allOf", ()):
            yield from self._find(branch, kind)
        for keyword in ("anyOf", "oneOf") if kind is not None else ():
            fitting = [branch for branch in node.get(keyword, ()) if kind in self._taken(branch)]
            if len(fitting) == 1:
                yield from self._find(fitting[0], kind)

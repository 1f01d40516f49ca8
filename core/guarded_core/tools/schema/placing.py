"""The places of the arguments that a subschema judges, and what the policy says of them: open, or left to the tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.document import DEFINITIONS, IN_PLACE, kinds, mapped, subschemas, target
from guarded_core.tools.schema.terms import Terms, Tokens, pointer_of
from guarded_core.tools.schema.validation import compiled

_MAX_PLACES = 10_000
_OPEN_KEYWORDS = ("additionalProperties", "unevaluatedProperties")
# A schema without any of these says nothing of what is in an object or a list.
NOT_FREE = (
    frozenset({"properties", "patternProperties", "items", "prefixItems", "contains", "unevaluatedItems"})
    | IN_PLACE
    | {*_OPEN_KEYWORDS, "$ref", "enum", "const", "required", "dependentRequired", "propertyNames"}
)


def located(root: dict[str, Any]) -> dict[int, tuple[dict[str, Any], list[Tokens]]]:
    """Every subschema that judges a value, by its id: itself, and the places of the arguments that it judges.

    Recursion is followed once round; of more than 10,000 places the rest is left out.
    """
    found: dict[int, tuple[dict[str, Any], list[Tokens]]] = {}
    waiting: list[tuple[Any, Tokens, frozenset[int]]] = [(root, (), frozenset())]
    for node, place, above in waiting:
        if not isinstance(node, dict) or id(node) in above or len(waiting) > _MAX_PLACES:
            continue
        known = found.setdefault(id(node), (node, []))[1]
        if place not in known:
            known.append(place)
        inside = above | {id(node)}
        if "$ref" in node:
            waiting.append((target(root, node), place, inside))
        waiting += [(sub, place + step, inside) for _, _, step, sub in _steps(node)]
    return found


def _steps(node: dict[str, Any]) -> Iterator[tuple[str, str, Tokens, Any]]:
    """Each subschema that judges a value here or below: keyword, name or index, the step to that value, itself."""
    for keyword, path, sub in subschemas(node):
        name = path[1] if len(path) > 1 else ""
        if keyword in IN_PLACE:
            yield keyword, name, (), sub
        elif keyword == "properties":
            yield keyword, name, (name,), sub
        elif keyword not in DEFINITIONS and keyword not in ("propertyNames", "contentSchema"):
            yield keyword, name, (None,), sub


# Free-form places


def free_form(root: dict[str, Any], terms: Terms) -> list[str]:
    """JSON Pointers of the places where the schema takes any object, and which these terms close; ``""`` is all."""
    known: dict[int, frozenset[str]] = {}
    found: dict[Tokens, None] = {}
    for node, places in located(root).values():
        steps: list[Tokens] = [()] if _is_free(root, node, known) else []
        steps += [step for keyword, _, step, sub in _steps(node) if sub is True and keyword not in _OPEN_KEYWORDS]
        found |= {place + step: None for place in places for step in steps if not terms.is_open(place + step)}
    # What stands in a free place goes with it.
    return sorted({pointer_of(place) for place in found if not any(place[:n] in found for n in range(len(place)))})


def _is_free(root: dict[str, Any], node: dict[str, Any], known: dict[int, frozenset[str]]) -> bool:
    if any(node.get(keyword, False) is not False for keyword in _OPEN_KEYWORDS) or node.get("patternProperties"):
        return True
    if {"enum", "const", *IN_PLACE, "$ref"} & node.keys():
        return False  # what is there says it
    found = kinds(root, node, known)
    return ("object" in found and not NOT_FREE & node.keys()) or (
        "array" in found and not {"items", "unevaluatedItems"} & node.keys()
    )


def opened(root: dict[str, Any], terms: Terms) -> tuple[dict[str, Any], frozenset[int]]:
    """The schema with a copy of its own for each place that stays open, and the ids of what is in those copies.

    A definition that is used in other places too stays closed there.
    """
    if not terms.open or terms.is_all_open:
        return root, frozenset()
    opening = _Opening(root, terms)
    return opening.run(), frozenset(opening.ids)


class _Opening:
    def __init__(self, root: dict[str, Any], terms: Terms) -> None:
        self._root = root
        self._terms = terms
        self._names: dict[int, str] = {}  # of open definitions, by the id of the one that was copied
        self._made: dict[str, Any] = {}
        self.ids: set[int] = set()

    def run(self) -> dict[str, Any]:
        root: dict[str, Any] = self._closed(self._root, ())
        return {**root, "$defs": {**root.get("$defs", {}), **self._made}} if self._made else root

    def _closed(self, node: Any, place: Tokens) -> Any:
        """What judges a place that does not stay open: a copy, where one below does."""
        if self._terms.is_open(place):
            return self._open({} if node is True else node)
        if not isinstance(node, dict) or not self._terms.leads_to_open(place):
            return node
        steps = {(keyword, name): step for keyword, name, step, _ in _steps(node)}

        def change(keyword: str, name: str, sub: Any) -> Any:
            return self._closed(sub, place + steps[keyword, name]) if (keyword, name) in steps else sub

        copy = mapped(node, change)
        if "$ref" in node:
            there = target(self._root, node)
            own = self._closed(there, place)
            if own != there or (isinstance(own, dict) and id(own) in self.ids):
                copy["$ref"] = self._reference(own)
        return copy

    def _open(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        copy = mapped(node, lambda keyword, name, sub: self._open(sub))
        if "$ref" in node:
            there = target(self._root, node)
            if id(there) not in self._names:
                self._names[id(there)] = self._reference(None)
                self._made[self._names[id(there)].rpartition("/")[2]] = self._open(there)
            copy["$ref"] = self._names[id(there)]
        self.ids.add(id(copy))
        return copy

    def _reference(self, definition: Any) -> str:
        name = f"open{len(self._made) + 1}"
        while name in self._made or name in self._root.get("$defs", {}):
            name += "_"
        self._made[name] = definition
        return f"#/$defs/{name}"


# Patterns that only the tool checks


def checked_here(root: dict[str, Any], terms: Terms) -> dict[str, Any]:
    """The schema without the patterns that no linear-time engine takes, where the terms leave them to the tool.

    A definition is left to the tool only where every place that uses it is.
    """
    odd = {
        id(node)
        for node, places in located(root).values()
        if not _is_linear(node) and all(map(terms.leaves_patterns_of, places))
    }
    if not odd:
        return root

    def without(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        copy = mapped(node, lambda keyword, name, sub: without(sub))
        if id(node) in odd:
            del copy["pattern"]
        return copy

    left: dict[str, Any] = without(root)
    return left


def opaque_patterns(root: dict[str, Any]) -> list[str]:
    """JSON Pointers of the places with a pattern that no linear-time engine takes."""
    return sorted(
        pointer_of(place) for node, places in located(root).values() if not _is_linear(node) for place in places
    )


def _is_linear(node: dict[str, Any]) -> bool:
    if not isinstance(node.get("pattern"), str):
        return True
    try:
        compiled({"pattern": node["pattern"]})
    except InvalidTool:
        return False
    return True

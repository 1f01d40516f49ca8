"""The closed copy of a schema: it admits declared properties only, and never more than the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.document import (
    ASKING,
    DEFINITIONS,
    IN_PLACE,
    kind_of,
    kinds,
    mapped,
    read,
    subschemas,
    target,
)
from guarded_core.tools.schema.placing import NOT_FREE, opened
from guarded_core.tools.schema.structure import check_structure
from guarded_core.tools.schema.terms import CLOSED, OPEN, Terms

# Of more alternatives than this, not every two are compared.
_MANY = 200
_COMPOSING = (IN_PLACE - {"not"}) | {"$ref"}
_OPEN_KEYWORDS = ("additionalProperties", "unevaluatedProperties")
_DECLARING = frozenset(
    {"properties", "patternProperties", "items", "prefixItems", "contains", "unevaluatedItems", *_OPEN_KEYWORDS}
)


def close(schema: Mapping[str, Any], *, keep_open: bool = False) -> dict[str, Any]:
    """The closed copy of a schema that `lint` accepts: at every depth, an object has only the properties it declares.

    Declared is what ``properties`` names; a pattern declares nothing. Where objects are composed (``allOf``, ``if``,
    properties beside ``anyOf``), the whole is closed with ``unevaluatedProperties``, everywhere else the object itself
    with ``additionalProperties``; alternatives are closed one by one.

    `keep_open` is the policy's word that free-form parts stay as they are: ``additionalProperties`` and
    ``patternProperties`` as declared, and objects, lists and values about which the schema says nothing. Without it,
    such an object is admitted empty only, and a free list or value holds no object with properties.

    The copy accepts nothing that the original refuses: where closing could do that (a ``oneOf`` whose alternatives
    overlap, a reference below ``not`` or ``if``), the original is asked too.

    Raises InvalidTool for what cannot be closed.
    """
    root = read(schema)
    check_structure(root)
    return close_read(root, OPEN if keep_open else CLOSED)


def close_read(root: dict[str, Any], terms: Terms) -> dict[str, Any]:
    """As `close`, of what `read` returned and `check_structure` accepted; `terms` says which places stay open."""
    closed = _Closing(*opened(root, terms), keep_open=terms.is_all_open).run()
    check_structure(closed)
    return closed


class _Closing:
    def __init__(self, root: dict[str, Any], open_nodes: frozenset[int], *, keep_open: bool) -> None:
        self._root = root
        self._open_nodes = open_nodes
        self._keep_open = keep_open
        self._free = self._unused("free")
        self._original = self._unused("original")
        # Ids of schemas that judge a value together with others, so that none of them may close it alone.
        self._parts: set[int] = set()
        self._used: dict[str, Any] = {}
        self._known: dict[int, frozenset[str]] = {}

    def run(self) -> dict[str, Any]:
        known = -1
        while known < len(self._parts):  # until no more definitions turn out to be parts of a composition
            known = len(self._parts)
            self._used = {}
            closed: dict[str, Any] = self._value(self._root)
        if self._used:
            closed["$defs"] = {**closed.get("$defs", {}), **self._used}
        if self._original in self._used:
            closed["allOf"] = [*closed.get("allOf", []), _silent(_reference(self._original))]
        return closed

    def _unused(self, name: str) -> str:
        while name in self._root.get("$defs", {}):
            name += "_"
        return name

    def _value(self, node: Any) -> Any:
        """Close a schema that alone decides about a value."""
        if not isinstance(node, dict):
            return self._free_value() if node and not self._keep_open else node
        if self._stays_open(node) and not NOT_FREE & node.keys():
            return dict(node)
        if self._passes_on(node):
            return self._children(node, self._value)
        if "$ref" in node:
            self._parts.add(id(target(self._root, node)))
        closed = self._children(node, self._part)
        if "enum" in node or "const" in node:
            return closed  # what it admits is spelled out
        composed = bool(_COMPOSING & node.keys())
        found = kinds(self._root, node, self._known)
        if "object" in found and not set(_OPEN_KEYWORDS) & closed.keys():
            closed["unevaluatedProperties" if composed else "additionalProperties"] = False
        if "array" in found and not self._stays_open(node) and not {"items", "unevaluatedItems"} & closed.keys():
            closed["unevaluatedItems" if composed else "items"] = self._free_value()
        self._check_contains(node, closed)
        return closed

    def _part(self, node: Any) -> Any:
        """Close what is inside a schema that judges a value together with others."""
        if not isinstance(node, dict):
            return node
        self._parts.add(id(node))
        if "$ref" in node:
            self._parts.add(id(target(self._root, node)))
        closed = self._children(node, self._part)
        self._check_contains(node, closed)
        return closed

    def _passes_on(self, node: dict[str, Any]) -> bool:
        """Whether the node leaves the whole decision about properties and items to one other keyword of its own."""
        deciding = _COMPOSING & node.keys()
        if len(deciding) != 1 or _DECLARING & node.keys():
            return False
        if "$ref" in deciding:
            there = target(self._root, node)
            return isinstance(there, dict) and id(there) not in self._parts
        return "anyOf" in deciding or "oneOf" in deciding or ("allOf" in deciding and len(node["allOf"]) == 1)

    def _stays_open(self, node: dict[str, Any]) -> bool:
        return self._keep_open or id(node) in self._open_nodes

    def _children(self, node: dict[str, Any], part: Callable[[Any], Any]) -> dict[str, Any]:
        stays_open = self._stays_open(node)

        def change(keyword: str, name: str, sub: Any) -> Any:
            if sub is True and stays_open:
                return sub
            if keyword in ASKING:  # closing a question would turn refusals into consent
                if _has_reference(sub):
                    self._ask()
                # Silenced, so that a property which only the question names is not taken for declared.
                return _silent(sub) if keyword == "if" else sub
            if keyword in DEFINITIONS:
                return self._part(sub) if not isinstance(sub, dict) or id(sub) in self._parts else self._value(sub)
            if keyword in IN_PLACE:
                return part(sub)
            if not stays_open and (keyword == "patternProperties" or keyword in _OPEN_KEYWORDS):
                return False
            return self._value(sub)

        closed = mapped(node, change)
        for keyword in _OPEN_KEYWORDS:
            # True says nothing about validity, but would count each property as declared for the whole.
            if not stays_open and (node.get(keyword) is True or node.get(keyword) == {}):
                del closed[keyword]
        if "oneOf" in node and not self._are_disjoint(node["oneOf"]):
            self._ask()
        return closed

    def _are_disjoint(self, branches: list[Any]) -> bool:
        """Whether no value can fit two of the branches, so that closing them cannot make an overlap disappear."""
        found = [kinds(self._root, branch, self._known) & {"object", "array"} for branch in branches]
        tagged = [(kind, _tags(self._root, branch)) for kind, branch in zip(found, branches, strict=True) if kind]
        return len(tagged) <= _MANY and all(
            not one & other or (one & other == {"object"} and _tags_differ(tags, other_tags))
            for (one, tags), (other, other_tags) in combinations(tagged, 2)
        )

    def _check_contains(self, node: dict[str, Any], closed: dict[str, Any]) -> None:
        if "contains" in node and "items" not in closed and not self._stays_open(node):
            raise InvalidTool("schema: contains needs items beside it, or nothing says what the items declare")

    def _free_value(self) -> dict[str, Any]:
        """Any JSON without a property in it."""
        self._used[self._free] = {"additionalProperties": False, "items": _reference(self._free)}
        return _reference(self._free)

    def _ask(self) -> None:
        """Let the original have its say beside the closed copy."""
        if self._original not in self._used:
            self._used[self._original] = _moved(self._root, _reference(self._original)["$ref"])


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _silent(node: Any) -> dict[str, Any]:
    """The same judgement without its annotations: what it evaluates does not count as evaluated outside."""
    return {"not": {"not": node}}


def _moved(node: Any, prefix: str) -> Any:
    if not isinstance(node, dict):
        return node
    copy = mapped(node, lambda keyword, name, sub: _moved(sub, prefix))
    if "$ref" in copy:
        copy["$ref"] = prefix + copy["$ref"].removeprefix("#")
    return copy


def _has_reference(node: Any) -> bool:
    return isinstance(node, dict) and ("$ref" in node or any(_has_reference(sub) for _, _, sub in subschemas(node)))


def _tags_differ(one: dict[str, set[Any]], other: dict[str, set[Any]]) -> bool:
    return any(not one[name] & other[name] for name in one.keys() & other.keys())


def _tags(root: dict[str, Any], node: Any) -> dict[str, set[Any]]:
    """Required properties with few scalar values, each as (JSON type, value)."""
    while isinstance(node, dict) and "$ref" in node:
        node = target(root, node)
    if not isinstance(node, dict):
        return {}
    found = {}
    for name, sub in node.get("properties", {}).items():
        if isinstance(sub, dict) and name in node.get("required", ()):
            values = [sub["const"]] if "const" in sub else sub.get("enum", ())
            if values and not any(isinstance(value, dict | list) for value in values):
                found[name] = {(kind_of(value), value) for value in values}
    return found

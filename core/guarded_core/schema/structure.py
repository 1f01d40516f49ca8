"""References, patterns and the shape of recursion: what decides whether a schema is judged in bounded time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from guarded_core.errors import InvalidTool
from guarded_core.schema.document import (
    ASKING,
    DEFINITIONS,
    IN_PLACE,
    Path,
    places,
    reference_path,
    refused,
    subschemas,
    target,
)
from guarded_core.schema.validation import compiled

MAX_CHAIN = 16
MAX_VISITS = 10_000

# What they mean depends on more than this document, or on how the validator got here.
_REFUSED = ("$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
_OLD = ("dependencies", "extends", "disallow")
_ALTERNATIVES = frozenset({"anyOf", "oneOf", "if", "then", "else", "dependentSchemas"})
# Children of which a value below meets one, and those that it can meet beside others.
_EXCLUSIVE = frozenset({"properties", "additionalProperties", "prefixItems", "items"})
_OVERLAPPING = frozenset(
    {"patternProperties", "contains", "propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)


def check_structure(root: dict[str, Any]) -> None:
    """References, patterns and bounds of a document that is valid by its metaschema. Raises InvalidTool."""
    everywhere = places(root)
    nameable = places(root, without=ASKING)
    for path, node in everywhere.items():
        if not isinstance(node, dict):
            continue
        for keyword in (*_REFUSED, *_OLD):
            if keyword in node:
                raise refused(path, f"{keyword} is not supported")
        for pattern in (*([node["pattern"]] if "pattern" in node else ()), *node.get("patternProperties", ())):
            _check_pattern(path, pattern)
        if "$ref" in node:
            _check_reference(path, node, nameable)
    _Weight(root).check(everywhere)


def _check_pattern(path: Path, pattern: str) -> None:
    try:
        compiled({"pattern": pattern})
    except InvalidTool:
        raise refused(
            path, f"the pattern {pattern[:100]!r} does not run in linear time (no lookaround, no backreference)"
        ) from None


def _check_reference(path: Path, node: dict[str, Any], nameable: Container[Path]) -> None:
    try:
        there = reference_path(node["$ref"])
    except InvalidTool as error:
        raise refused(path, str(error)) from None
    if there not in nameable:
        # What stands below a not or an if is never closed, so nothing that requires may borrow it from there.
        raise refused(
            path, "$ref names no schema of this document (below not, if, contains or propertyNames none counts)"
        )


class _Weight:
    """How often one value can be judged: a few short lines of anyOf can ask for 2 to the 60th."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._lengths: dict[int, int] = {}
        self._visits: dict[int, int] = {}

    def check(self, everywhere: Mapping[Path, Any]) -> None:
        for path, node in everywhere.items():
            if self._chain(node, MAX_CHAIN) > MAX_CHAIN:
                raise refused(path, "a reference that leads back to itself, or too long a chain of them")
        for path, node in everywhere.items():
            if self._count(node) > MAX_VISITS:
                raise refused(path, f"one value could be judged more than {MAX_VISITS} times")
            # Measured on jsonschema-rs: an unevaluated keyword judges the alternatives below it once more, without the
            # memory of earlier results, so that recursion through them is exponential in the payload's depth.
            whole = isinstance(node, dict) and {"unevaluatedProperties", "unevaluatedItems"} & node.keys()
            if whole and any(self._leads_to(branch, node) for branch in self._alternatives(node)):
                raise refused(path, "recursion through alternatives of a schema that is closed as a whole")

    def _parts(self, node: Any) -> Iterator[tuple[str, Any]]:
        """What judges the same value as `node` does: keyword and subschema, references followed."""
        for keyword, _, sub in subschemas(node):
            if keyword in IN_PLACE:
                yield keyword, sub
        if isinstance(node, dict) and "$ref" in node:
            yield "$ref", target(self._root, node)

    def _chain(self, node: Any, left: int) -> int:
        """The longest way down through parts; more than MAX_CHAIN where it never ends."""
        if left < 0:
            return MAX_CHAIN + 1
        if id(node) not in self._lengths:
            self._lengths[id(node)] = MAX_CHAIN + 1  # met again while still unknown: a loop
            self._lengths[id(node)] = 1 + max((self._chain(sub, left - 1) for _, sub in self._parts(node)), default=0)
        return self._lengths[id(node)]

    def _count(self, node: Any) -> int:
        """How often a value here, or one below it, is judged at most. Recursion counts once: the engine remembers."""
        if id(node) not in self._visits:
            self._visits[id(node)] = 1
            each = [self._count(sub) for keyword, _, sub in subschemas(node) if keyword in _EXCLUSIVE]
            every = [self._count(sub) for keyword, _, sub in subschemas(node) if keyword in _OVERLAPPING]
            every += [self._count(sub) for _, sub in self._parts(node)]
            self._visits[id(node)] = max(each, default=1) + sum(every)
        return self._visits[id(node)]

    def _alternatives(self, node: Any) -> Iterator[Any]:
        for keyword, sub in self._parts(node):
            if keyword in _ALTERNATIVES:
                yield sub
            else:
                yield from self._alternatives(sub)

    def _leads_to(self, start: Any, goal: dict[str, Any]) -> bool:
        seen: set[int] = set()
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node is goal:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                waiting.extend(sub for keyword, _, sub in subschemas(node) if keyword not in DEFINITIONS)
                waiting.extend(sub for _, sub in self._parts(node))
        return False

"""References, patterns and the shape of recursion: what decides whether a schema is judged in bounded time."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.document import (
    ASKING,
    IN_PLACE,
    Path,
    places,
    reference_path,
    refused,
    subschemas,
    target,
)
from guarded_core.tools.schema.validation import compiled

MAX_CHAIN = 16
MAX_VISITS = 10_000
MAX_LEVELS = 200

# What they mean depends on more than this document, on how the validator got here, or on the draft.
_REFUSED = ("$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "dependencies")
# Children of which a value below meets one, and those that it can meet beside others.
_EXCLUSIVE = frozenset({"properties", "additionalProperties", "prefixItems", "items"})
_WHOLE = frozenset({"unevaluatedProperties", "unevaluatedItems"})
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
        for keyword in _REFUSED:
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
        self._returns: dict[int, int] = {}
        self._loop: dict[int, int] = {}  # the loop of references that a schema is part of

    def check(self, everywhere: Mapping[Path, Any]) -> None:
        for path, node in everywhere.items():
            if self._chain(node, MAX_CHAIN) > MAX_CHAIN:
                raise refused(path, "a reference that leads back to itself, or too long a chain of them")
        for path, node in everywhere.items():
            if self._count(node, MAX_LEVELS) > MAX_VISITS:
                raise refused(
                    path, f"one value could be judged more than {MAX_VISITS} times, or {MAX_LEVELS} levels deep"
                )
        self._check_recursion({path: node for path, node in everywhere.items() if isinstance(node, dict)})

    def _check_recursion(self, nodes: Mapping[Path, dict[str, Any]]) -> None:
        # Measured on jsonschema-rs: it remembers what it judged, so that recursion is cheap however often a level asks.
        # In a loop with an unevaluated keyword it does not: then a level that judges the next one twice makes the work
        # exponential in the payload's depth.
        wholes = [node for node in nodes.values() if _WHOLE & node.keys()]
        if not wholes:
            return
        self._loop = _components({id(node): [id(sub) for sub in self._next(node)] for node in nodes.values()})
        loops = {self._loop[id(node)] for node in wholes}
        for path, node in nodes.items():
            if self._loop[id(node)] in loops and self._recurrences(node) > 1:
                raise refused(
                    path, "recursion that judges a value more than once, within unevaluatedProperties or -Items"
                )

    def _parts(self, node: Any) -> Iterator[tuple[str, Any]]:
        """What judges the same value as `node` does: keyword and subschema, references followed."""
        for keyword, _, sub in subschemas(node):
            if keyword in IN_PLACE:
                yield keyword, sub
        if isinstance(node, dict) and "$ref" in node:
            yield "$ref", target(self._root, node)

    def _next(self, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        subs = [sub for keyword, _, sub in subschemas(node) if keyword in _EXCLUSIVE | _OVERLAPPING]
        yield from (sub for sub in (*subs, *(sub for _, sub in self._parts(node))) if isinstance(sub, dict))

    def _chain(self, node: Any, left: int) -> int:
        """The longest way down through parts; more than MAX_CHAIN where it never ends."""
        if left < 0:
            return MAX_CHAIN + 1
        if id(node) not in self._lengths:
            self._lengths[id(node)] = MAX_CHAIN + 1  # met again while still unknown: a loop
            self._lengths[id(node)] = 1 + max((self._chain(sub, left - 1) for _, sub in self._parts(node)), default=0)
        return self._lengths[id(node)]

    def _count(self, node: Any, left: int) -> int:
        """How often a value here, or one below it, is judged at most. Recursion counts once."""
        if left < 0:
            return MAX_VISITS + 1
        if id(node) not in self._visits:
            self._visits[id(node)] = 1
            each = [self._count(sub, left - 1) for keyword, _, sub in subschemas(node) if keyword in _EXCLUSIVE]
            every = [self._count(sub, left - 1) for keyword, _, sub in subschemas(node) if keyword in _OVERLAPPING]
            every += [self._count(sub, left - 1) for _, sub in self._parts(node)]
            self._visits[id(node)] = max(each, default=1) + sum(every)
        return self._visits[id(node)]

    def _recurrences(self, node: Any) -> int:
        """How often one value below is judged by schemas of this node's own loop, each time the node is."""
        if id(node) not in self._returns:
            inside = [
                keyword
                for keyword, _, sub in subschemas(node)
                if keyword in _EXCLUSIVE | _OVERLAPPING and self._is_beside(node, sub)
            ]
            count = int(any(keyword in _EXCLUSIVE for keyword in inside))
            count += sum(keyword in _OVERLAPPING for keyword in inside)
            for _, sub in self._parts(node):
                if self._is_beside(node, sub):
                    count += self._recurrences(sub)
            self._returns[id(node)] = count
        return self._returns[id(node)]

    def _is_beside(self, node: Any, sub: Any) -> bool:
        return isinstance(sub, dict) and self._loop[id(sub)] == self._loop[id(node)]


def _components(graph: Mapping[int, list[int]]) -> dict[int, int]:
    """The strongly connected component of each node (Kosaraju's two passes), as the id of one of its nodes."""
    order: list[int] = []
    seen: set[int] = set()
    for start in graph:
        waiting = [(start, iter(graph[start]))] if start not in seen else []
        seen.add(start)
        while waiting:
            node, following = waiting[-1]
            for there in following:
                if there not in seen:
                    seen.add(there)
                    waiting.append((there, iter(graph[there])))
                    break
            else:
                order.append(node)
                waiting.pop()
    reverse: dict[int, list[int]] = {node: [] for node in graph}
    for node, following_nodes in graph.items():
        for there in following_nodes:
            reverse[there].append(node)
    component: dict[int, int] = {}
    for start in reversed(order):
        stack = [start]
        while stack:
            node = stack.pop()
            if node not in component:
                component[node] = start
                stack.extend(reverse[node])
    return component

"""The narrowed copy of a schema that a model is shown. Showing is a courtesy: each call is judged by the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from guarded_core.tools.schema.document import DEFINITIONS, kind_of, kinds, mapped, target

# Beside a $ref these can stand beside the named schema's own keywords without changing what either means.
_MERGEABLE = (
    frozenset({"title", "description", "default", "examples", "deprecated", "unevaluatedProperties"}) | DEFINITIONS
)

_Change = Callable[[Any], Any]


def narrow(
    schema: Mapping[str, Any],
    pointer: str,
    *,
    enum: Sequence[Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> dict[str, Any]:
    """A copy of a linted schema in which the arguments at `pointer` are limited further.

    Shapes: `pointer` is a parameter's name or a JSON Pointer into the arguments, ``*`` standing for each item of a list
    (``/items/*/sku``). Of `enum`, what the schema admits there is kept; an empty list allows nothing. `minimum` and
    `maximum` never loosen existing ones. References on the way are replaced by a copy of what they name, so that other
    uses of a definition are not narrowed. A place that the schema does not have leaves everything as it is.
    """
    root = dict(schema)

    def tighten(node: Any) -> Any:
        if not isinstance(node, dict):
            return {"enum": []} if node is False else tighten({})
        limits: dict[str, Any] = {}
        if enum is not None:
            limits["enum"] = [value for value in enum if _admits(root, node, value)]
        node = _inlined(root, node)
        if minimum is not None:
            limits["minimum"] = max(minimum, node.get("minimum", minimum))
        if maximum is not None:
            limits["maximum"] = min(maximum, node.get("maximum", maximum))
        return {**node, **limits}

    narrowed: dict[str, Any] = _narrowed(root, root, _parts(pointer), tighten)
    return narrowed


def _parts(pointer: str) -> list[str]:
    if not pointer.startswith("/"):
        return [pointer]
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _narrowed(root: dict[str, Any], node: Any, parts: list[str], tighten: _Change) -> Any:
    """The node with the place narrowed, or the very same node where it has no such place."""
    if not parts:
        return tighten(node)
    if not isinstance(node, dict):
        return node
    head, rest = parts[0], parts[1:]

    def change(keyword: str, name: str, sub: Any) -> Any:
        if keyword in ("allOf", "anyOf", "oneOf"):
            return _narrowed(root, sub, parts, tighten)
        if (keyword == "properties" and name == head) or (keyword in ("items", "prefixItems") and head == "*"):
            return _narrowed(root, sub, rest, tighten)
        return sub

    changed = mapped(node, change)
    if "$ref" in node:
        there = target(root, node)
        narrowed = _narrowed(root, there, parts, tighten)
        if narrowed is not there:
            changed = _merged(changed, narrowed)
    return changed if changed != node else node


def _merged(node: dict[str, Any], named: Any) -> dict[str, Any]:
    """The node with what its ``$ref`` names in the reference's place."""
    rest = {keyword: value for keyword, value in node.items() if keyword != "$ref"}
    if not isinstance(named, dict):
        return {**rest, "allOf": [*rest.get("allOf", []), named]}
    # Definitions are found from the root, not here.
    named = {keyword: value for keyword, value in named.items() if keyword not in DEFINITIONS}
    if rest.keys() <= _MERGEABLE:
        return {**named, **rest}
    return {**rest, "allOf": [*rest.get("allOf", []), named]}


def _inlined(root: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = _merged(node, target(root, node))
    return node


def _admits(root: dict[str, Any], node: Any, value: Any) -> bool:
    """Whether the type and the listed values of the schema leave room for this value."""
    if not isinstance(node, dict):
        return bool(node)
    if kind_of(value) not in kinds(root, node):
        return False
    listed = [node["const"]] if "const" in node else node.get("enum")
    if listed is not None and not any(kind_of(value) == kind_of(kept) and value == kept for kept in listed):
        return False
    if "$ref" in node and not _admits(root, target(root, node), value):
        return False
    return all(_admits(root, branch, value) for branch in node.get("allOf", ())) and all(
        any(_admits(root, branch, value) for branch in node[keyword])
        for keyword in ("anyOf", "oneOf")
        if keyword in node
    )

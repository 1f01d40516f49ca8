"""Whether a tool's schema has a place that a rule's parameter points to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from guarded_core.ground.pointer import Param
from guarded_core.tools.schema.document import target

_SAYS_WHAT_IT_IS = {"type", "enum", "const", "properties", "items", "prefixItems", "$ref", "allOf", "anyOf", "oneOf"}


def missing(schema: Mapping[str, Any], param: Param) -> tuple[str, list[str]] | None:
    """The first name on the way that the schema has no place for, and the names it has there instead.

    None where the schema may have the place. Objects count as closed, which is how calls are judged.
    """
    root = dict(schema)
    nodes = list(_alternatives(root, [root]))
    for token in param.tokens:
        if any(node is True or not _SAYS_WHAT_IT_IS & node.keys() for node in nodes):
            return None
        found = [child for node in nodes for child in _children(node, token)]
        if not found:
            return token or "*", sorted({name for node in nodes for name in node.get("properties", ())})
        nodes = list(_alternatives(root, found))
    return None


def _alternatives(root: dict[str, Any], nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes, and all that ``$ref`` and the combining keywords put in their place; ``false`` is nothing."""
    pending, seen = list(nodes), set()
    for node in pending:
        if not isinstance(node, dict):
            if node is True:
                yield node
        elif id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += [target(root, node)] if "$ref" in node else []
            pending += [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in node.get(keyword, ())]


def _children(node: dict[str, Any], token: str | None) -> Iterator[Any]:
    properties = node.get("properties", {})
    if token is None:
        yield from properties.values()
    elif token in properties:
        yield properties[token]
    yield from node.get("patternProperties", {}).values()
    if node.get("additionalProperties", False) is not False:
        yield node["additionalProperties"]
    if token is None or re.fullmatch("[0-9]+", token):
        yield from node.get("prefixItems", ())
        if "items" in node:
            yield node["items"]

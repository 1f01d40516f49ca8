"""Whether a tool's schema has a place that a rule's parameter points to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from guarded_core.ground.pointer import Param
from guarded_core.tools.reading import Reading, alternatives, children
from guarded_core.tools.schema.document import kinds

_SAYS_WHAT_IT_IS = {"type", "enum", "const", "properties", "items", "prefixItems", "$ref", "allOf", "anyOf", "oneOf"}


def missing(schema: Mapping[str, Any], param: Param) -> tuple[str, list[str]] | None:
    """The first name on the way that the schema has no place for, and the names it has there instead.

    None where the schema may have the place. Objects count as closed, which is how calls are judged.
    """
    root = dict(schema)
    nodes = list(alternatives(root, [root]))
    for token in param.tokens:
        if any(node is True or not _SAYS_WHAT_IT_IS & node.keys() for node in nodes):
            return None
        found = [child for node in nodes for child in children(node, token)]
        if not found:
            return token or "*", sorted({name for node in nodes for name in node.get("properties", ())})
        nodes = list(alternatives(root, found))
    return None


def takes_number(schema: Mapping[str, Any], param: Param) -> bool:
    """Whether a value there can be a number, or text that counts as one; certain only where it says no."""
    root = dict(schema)
    nodes: list[Any] = [root]
    for token in param.tokens:
        nodes = [child for node in alternatives(root, nodes) for child in children(node, token)]
    return not nodes or Reading(root).at(param).is_decimal or any("number" in kinds(root, node) for node in nodes)

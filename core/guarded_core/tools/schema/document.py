"""A JSON Schema as the guard reads it: a bounded plain copy in the words of draft 2020-12, and ways to walk it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from guarded_core.ground.errors import InvalidTool

MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_TEXT = 262_144

Path = tuple[str, ...]

IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
DEFINITIONS = frozenset({"$defs", "definitions"})
# Below these a subschema asks, and requires nothing.
ASKING = frozenset({"not", "if", "contains", "propertyNames", "contentSchema"})
_ONE = frozenset(
    {"not", "if", "then", "else", "items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"}
) | {"contains", "propertyNames", "contentSchema"}
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"}) | DEFINITIONS

_KINDS: dict[type, str] = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}
ALL_KINDS = frozenset(_KINDS.values())

_DRAFTS = frozenset(
    {"json-schema.org/draft/2020-12/schema", "json-schema.org/draft/2019-09/schema", "json-schema.org/draft-07/schema"}
)


def read(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A plain copy in draft 2020-12's spelling, without ``$schema`` and the root's ``$id``.

    Schemas that name draft-07 or 2019-09 are taken: what those drafts spell differently (tuples as a list of ``items``,
    ``dependencies``) is respelled, and what stands beside a ``$ref`` counts, which is only stricter.

    Raises InvalidTool for anything but JSON, more than MAX_DEPTH levels, MAX_NODES values or MAX_TEXT characters, and
    for another draft.
    """
    if not isinstance(schema, Mapping):
        raise InvalidTool("a tool's schema is a JSON object")
    root: dict[str, Any] = _respelled(_Copy().of(schema, ()))
    draft = root.pop("$schema", None)
    if draft is not None and str(draft).removesuffix("#").partition("://")[2] not in _DRAFTS:
        raise refused(("$schema",), "not a supported draft; use 2020-12 (2019-09 and draft-07 are read as 2020-12)")
    # References are local, so the root's own address has no meaning left.
    root.pop("$id", None)
    return root


def copied(value: Any) -> Any:
    """A copy of plain JSON, of which nothing is shared."""
    if type(value) is dict:
        return {name: copied(child) for name, child in value.items()}
    if type(value) is list:
        return [copied(child) for child in value]
    return value


class _Copy:
    """A plain copy of untrusted JSON, counted as it is made, so that a shared node cannot grow into gigabytes."""

    def __init__(self) -> None:
        self._nodes = MAX_NODES
        self._text = MAX_TEXT

    def of(self, value: object, path: Path) -> Any:
        self._nodes -= 1
        if self._nodes < 0 or len(path) > MAX_DEPTH:
            raise refused(path, f"too large: {MAX_NODES} values and {MAX_DEPTH} levels are allowed")
        if isinstance(value, Mapping):
            return {self._string(key, path): self.of(child, (*path, str(key))) for key, child in value.items()}
        if isinstance(value, list | tuple):
            return [self.of(child, (*path, str(index))) for index, child in enumerate(value)]
        if type(value) is str:
            return self._string(value, path)
        if value is None or type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
            return value
        raise refused(path, "not a JSON value (a finite number, a string, true, false, null, a list or an object)")

    def _string(self, text: object, path: Path) -> str:
        if type(text) is not str:
            raise refused(path, "a key that is not a string")
        self._text -= len(text)
        if self._text < 0:
            raise refused(path, f"too large: {MAX_TEXT} characters are allowed")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise refused(path, "a lone surrogate, which is not Unicode text")
        return text


def _respelled(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("items"), list) and "prefixItems" not in node:
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")
    dependencies = node.get("dependencies")
    if isinstance(dependencies, dict) and not {"dependentRequired", "dependentSchemas"} & node.keys():
        del node["dependencies"]
        for name, needed in dependencies.items():
            node.setdefault("dependentRequired" if isinstance(needed, list) else "dependentSchemas", {})[name] = needed
    return mapped(node, lambda keyword, name, sub: _respelled(sub))


def subschemas(node: Any) -> Iterator[tuple[str, Path, Any]]:
    """Each direct subschema: its keyword, its path below `node`, itself. Misshapen keywords have none."""
    if not isinstance(node, dict):
        return
    for keyword, value in node.items():
        if keyword in _ONE:
            yield keyword, (keyword,), value
        elif keyword in _LISTS and isinstance(value, list):
            for index, sub in enumerate(value):
                yield keyword, (keyword, str(index)), sub
        elif keyword in _MAPS and isinstance(value, dict):
            for name, sub in value.items():
                yield keyword, (keyword, name), sub


def mapped(node: dict[str, Any], change: Callable[[str, str, Any], Any]) -> dict[str, Any]:
    """A copy of `node` with ``change(keyword, name or index, subschema)`` in each direct subschema's place."""
    copy = dict(node)
    for keyword, value in node.items():
        if keyword in _ONE:
            copy[keyword] = change(keyword, "", value)
        elif keyword in _LISTS and isinstance(value, list):
            copy[keyword] = [change(keyword, str(index), sub) for index, sub in enumerate(value)]
        elif keyword in _MAPS and isinstance(value, dict):
            copy[keyword] = {name: change(keyword, name, sub) for name, sub in value.items()}
    return copy


def places(root: dict[str, Any], *, without: frozenset[str] = frozenset()) -> dict[Path, Any]:
    """Every subschema of the document by its path, the root included, except below the keywords in `without`."""
    found: dict[Path, Any] = {}
    waiting: list[tuple[Path, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        found[path] = node
        waiting.extend(((*path, *below), sub) for keyword, below, sub in subschemas(node) if keyword not in without)
    return found


@lru_cache(maxsize=256)
def reference_path(reference: str) -> Path:
    """Where a local reference leads. Raises InvalidTool for any other reference."""
    if reference != "#" and not reference.startswith("#/"):
        raise InvalidTool("only references inside the schema, such as #/$defs/Name, are followed")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in unquote(reference).split("/")[1:])


def target(root: dict[str, Any], node: dict[str, Any]) -> Any:
    """The schema that the node's ``$ref`` names. Raises InvalidTool where there is none."""
    found: Any = root
    try:
        for part in reference_path(node["$ref"]):
            found = found[int(part)] if isinstance(found, list) else found[part]
    except (KeyError, IndexError, ValueError, TypeError):
        raise InvalidTool("a reference leads nowhere") from None
    return found


def kind_of(value: object) -> str:
    """The JSON type of a plain value, integers being numbers; empty for what is not JSON."""
    return _KINDS.get(type(value), "")


def kinds(root: dict[str, Any], node: Any, known: dict[int, frozenset[str]] | None = None) -> frozenset[str]:
    """The JSON types that the subschema may accept: certain about what is left out, not about what is in.

    Shapes: `known` remembers answers by the id of a subschema, for who asks about many of one document.
    """
    if not isinstance(node, dict):
        return ALL_KINDS if node else frozenset()
    known = {} if known is None else known
    if id(node) not in known:
        known[id(node)] = _kinds(root, node, known)
    return known[id(node)]


def _kinds(root: dict[str, Any], node: dict[str, Any], known: dict[int, frozenset[str]]) -> frozenset[str]:
    found = ALL_KINDS
    if "type" in node:
        types = node["type"] if isinstance(node["type"], list) else [node["type"]]
        found &= {"number" if name == "integer" else name for name in types}
    if "const" in node:
        found &= {kind_of(node["const"])}
    if "enum" in node:
        found &= {kind_of(value) for value in node["enum"]}
    if "$ref" in node:
        found &= kinds(root, target(root, node), known)
    for branch in node.get("allOf", ()):
        found &= kinds(root, branch, known)
    for keyword in ("anyOf", "oneOf"):
        if keyword in node:
            found &= frozenset().union(*(kinds(root, branch, known) for branch in node[keyword]))
    return found


def json_pointer(path: Path) -> str:
    """The path as a JSON Pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def refused(path: Path, reason: str) -> InvalidTool:
    """The error for a place in the schema. The place is third-party text: escaped and bounded."""
    return InvalidTool(f"schema at {json.dumps(json_pointer(path) or '/')[1:-1][:200]}: {reason}")

"""Judging arguments: compiled once, and what does not fit told by place and keyword."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import jsonschema_rs

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.schema.document import Path, copied, json_pointer, kind_of, kinds, places, read, target

MAX_PROBLEMS = 3
MAX_REASON = 600
MAX_EXPLAINED_DEPTH = 16

_T = TypeVar("_T")
_PATTERNS = jsonschema_rs.RegexOptions()
_UNREADABLE = "the arguments cannot be checked"
_UNDECLARED = "a property that the schema does not declare"


def _fetch_nothing(uri: str) -> Any:
    raise LookupError(uri)


def compiled(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """The schema on jsonschema-rs: linear-time patterns, formats as annotations, nothing fetched.

    Raises InvalidTool where the engine refuses it.
    """
    return _compiled(jsonschema_rs.Draft202012Validator, schema)


def compiled_places(schema: dict[str, Any]) -> jsonschema_rs.ValidatorMap:
    """Each subschema on the same terms, by ``#`` and its JSON Pointer."""
    return _compiled(jsonschema_rs.validator_map_for, schema)


def _compiled(engine: Callable[..., _T], schema: dict[str, Any]) -> _T:
    try:
        return engine(schema, pattern_options=_PATTERNS, validate_formats=False, retriever=_fetch_nothing)
    except Exception as error:
        raise InvalidTool(f"schema: it does not compile: {type(error).__name__}") from None


class Validator:
    """One schema, compiled; judges any number of arguments, from any thread.

    Shapes: `schema` is what `close` returned (or any schema that `lint` accepts). `strict_integers` is a ToolParam's
    rule: at the top level a float such as 1.0 is not an integer. `is_read` says that `read` returned it, or what was
    made of that, and that it is not changed any more: then no copy is made.

    Raises InvalidTool where the schema does not compile.
    """

    __slots__ = ("_explainer", "_integers", "_is_valid", "_schema")

    def __init__(self, schema: Mapping[str, Any], *, strict_integers: bool = False, is_read: bool = False) -> None:
        self._schema: dict[str, Any] = schema if is_read and isinstance(schema, dict) else read(schema)
        self._is_valid = compiled(self._schema).is_valid
        self._explainer: _Explainer | None = None
        self._integers = tuple(
            name
            for name, sub in (self._schema.get("properties", {}) if strict_integers else {}).items()
            if isinstance(sub, dict) and sub.get("type") == "integer"
        )

    @property
    def schema(self) -> dict[str, Any]:
        """A copy of the schema that it judges by."""
        copy: dict[str, Any] = copied(self._schema)
        return copy

    def judges_by(self, schema: dict[str, Any]) -> bool:
        """Whether that is its schema."""
        return self._schema == schema

    def __reduce__(self) -> Any:
        # The compiled form does not travel between processes; it is made again.
        return _rebuilt, (self._schema, bool(self._integers))

    def check(self, arguments: dict[str, Any]) -> str | None:
        """None where the arguments fit, else why not: up to MAX_PROBLEMS places and keywords.

        Shapes: `arguments` is the bounded exact copy that `payload.freeze` made. The reason names properties only where
        the schema declares them, and holds no value.
        """
        try:
            if self._is_valid(arguments):
                if not self._integers:
                    return None
                floats = [name for name in self._integers if type(arguments.get(name)) is float]
                return _joined(_at((name,), "wrong type, expected integer") for name in floats) or None
            if self._explainer is None:
                self._explainer = _Explainer(self._schema)  # two threads may both build one; either serves
            return _joined(self._explainer.problems(arguments))
        except BaseException as error:
            # Whatever the engine raises, a Rust panic (no Exception) among it, is a refusal and never passes.
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                return _UNREADABLE
            raise


def _rebuilt(schema: dict[str, Any], strict_integers: bool) -> Validator:
    return Validator(schema, strict_integers=strict_integers)


def _joined(problems: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(islice(problems, MAX_PROBLEMS)))[:MAX_REASON]


def _at(place: Path, problem: str) -> str:
    return f"at {json_pointer(place) or '/'}: {problem}"


# keyword → what is wrong; {} is the schema's own limit.
_ASSERTIONS = {
    "type": "wrong type, expected {}",
    "enum": "not one of the allowed values",
    "const": "not the one allowed value",
    "required": "a required property is missing: {}",
    "dependentRequired": "a property is missing that another one requires",
    "minimum": "less than the minimum of {}",
    "maximum": "greater than the maximum of {}",
    "exclusiveMinimum": "not greater than {}",
    "exclusiveMaximum": "not less than {}",
    "multipleOf": "not a multiple of {}",
    "minLength": "shorter than {} characters",
    "maxLength": "longer than {} characters",
    "pattern": "does not match the pattern",
    "minItems": "fewer than {} items",
    "maxItems": "more than {} items",
    "uniqueItems": "items are not unique",
    "minProperties": "fewer than {} properties",
    "maxProperties": "more than {} properties",
}
# Judged together with their neighbours: named where nothing simpler explains the refusal.
_OTHERS = ("not", "if", "dependentSchemas", "propertyNames", "contains", "unevaluatedItems", "unevaluatedProperties")


class _Explainer:
    """Finds what does not fit by asking the compiled subschemas.

    Not the engine's own error list: it is complete before the first error can be read, and exponential in the payload's
    depth for a recursive anyOf, which a model could use to stop the process. This walk goes down one way only.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._root = schema
        self._compiled = compiled_places(schema)
        nodes = [(path, node) for path, node in places(schema).items() if isinstance(node, dict)]
        self._pointers = {id(node): "#" + json_pointer(path) for path, node in nodes}
        self._declared = {name for _, node in nodes for name in node.get("properties", ()) if name.isprintable()}

    def problems(self, arguments: dict[str, Any]) -> Iterator[str]:
        """What is wrong with refused arguments, in the schema's order."""
        return self._explain(self._root, arguments, ())

    def _fits(self, node: Any, value: Any) -> bool:
        return node if isinstance(node, bool) else self._compiled[self._pointers[id(node)]].is_valid(value)

    def _explain(self, node: Any, value: Any, place: Path) -> Iterator[str]:
        while isinstance(node, dict) and node.keys() == {"not"} and _is_silent(node["not"]):
            node = node["not"]["not"]
        if not isinstance(node, dict) or len(place) >= MAX_EXPLAINED_DEPTH:
            yield _at(place, "does not satisfy the schema" if node else "nothing is allowed here")
            return
        explained = False
        for problem in self._simple(node, value, place):
            explained = True
            yield problem
        if not explained:
            others = [keyword for keyword in _OTHERS if keyword in node]
            undeclared = others == ["unevaluatedProperties"] and node["unevaluatedProperties"] is False
            yield _at(place, _UNDECLARED if undeclared else f"does not satisfy {' or '.join(others) or 'the schema'}")

    def _simple(self, node: dict[str, Any], value: Any, place: Path) -> Iterator[str]:
        for keyword, text in _ASSERTIONS.items():
            if keyword in node and not compiled({keyword: node[keyword]}).is_valid(value):
                yield _at(place, text.format(_limit(keyword, node[keyword], value)))
        if "$ref" in node:
            yield from self._inside(target(self._root, node), value, place)
        for branch in node.get("allOf", ()):
            yield from self._inside(branch, value, place)
        if "anyOf" in node and not any(self._fits(branch, value) for branch in node["anyOf"]):
            yield from self._alternatives(node["anyOf"], value, place)
        if "oneOf" in node and (fitting := sum(self._fits(branch, value) for branch in node["oneOf"])) != 1:
            if fitting:
                yield _at(place, "fits more than one of the alternatives")
            else:
                yield from self._alternatives(node["oneOf"], value, place)
        if isinstance(value, dict):
            yield from self._properties(node, value, place)
        if isinstance(value, list):
            yield from self._items(node, value, place)

    def _inside(self, node: Any, value: Any, place: Path) -> Iterator[str]:
        if not self._fits(node, value):
            yield from self._explain(node, value, place)

    def _alternatives(self, branches: list[Any], value: Any, place: Path) -> Iterator[str]:
        meant = [branch for branch in branches if self._is_meant(branch, value)]
        if len(meant) == 1:
            yield from self._explain(meant[0], value, place)
        else:
            yield _at(place, "fits none of the alternatives")

    def _is_meant(self, branch: Any, value: Any) -> bool:
        """Whether a refused value looks as if it were written for this branch: by its type, then by constant tags."""
        if kind_of(value) not in kinds(self._root, branch):
            return False
        while isinstance(branch, dict) and "$ref" in branch:
            branch = target(self._root, branch)
        if not isinstance(branch, dict) or not isinstance(value, dict):
            return True
        return all(
            self._fits(sub, value[name])
            for name, sub in branch.get("properties", {}).items()
            if isinstance(sub, dict) and "const" in sub and name in value
        )

    def _properties(self, node: dict[str, Any], value: dict[str, Any], place: Path) -> Iterator[str]:
        properties = node.get("properties", {})
        patterns = [(compiled({"pattern": text}), sub) for text, sub in node.get("patternProperties", {}).items()]
        undeclared = False
        for name, child in value.items():
            subs = [properties[name]] if name in properties else []
            subs += [sub for pattern, sub in patterns if pattern.is_valid(name)]
            if not subs and "additionalProperties" in node:
                if node["additionalProperties"] is False:
                    undeclared = True
                else:
                    subs = [node["additionalProperties"]]
            for sub in subs:
                # A name that the schema does not have is the model's own text.
                yield from self._inside(sub, child, (*place, name if name in self._declared else "*"))
        if undeclared:
            yield _at(place, _UNDECLARED)

    def _items(self, node: dict[str, Any], value: list[Any], place: Path) -> Iterator[str]:
        first = node.get("prefixItems", [])
        for index, child in enumerate(value):
            sub = first[index] if index < len(first) else node.get("items", True)
            yield from self._inside(sub, child, (*place, str(index)))


def _is_silent(negated: Any) -> bool:
    """Whether this is the inside of ``not not``, which `close` puts around a schema to keep its annotations in."""
    return isinstance(negated, dict) and negated.keys() == {"not"}


def _limit(keyword: str, declared: Any, value: Any) -> str:
    """The schema's own words for what it wants."""
    if keyword == "type":
        return " or ".join(declared) if isinstance(declared, list) else str(declared)
    if keyword == "required":
        return ", ".join(name if name.isprintable() else "*" for name in declared if name not in value)
    return str(declared)

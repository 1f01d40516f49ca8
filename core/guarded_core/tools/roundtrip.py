"""Arguments that pass through a pydantic model: parsed once, dumped to JSON, and run as the parse of that JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, Final, get_args

import orjson
from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python

from guarded_core.ground.errors import InvalidTool
from guarded_core.ground.payload import is_json
from guarded_core.tools.parsing import written as written  # it stood here

_MASKED = (SecretStr, SecretBytes, Secret)


def check_model(model: type[BaseModel], tool: str, *, skip: frozenset[str] = frozenset()) -> None:
    """Raise InvalidTool where two different arguments of `model` could share one dump: masked and excluded fields.

    An approver would be shown ``**********``, and an approval of one secret would cover any other. `skip` names fields
    of `model` itself that are never a model's to give.
    """
    _check(model, tool, set(), skip)


def _check(model: type[BaseModel], tool: str, seen: set[type], skip: frozenset[str] = frozenset()) -> None:
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        if name in skip:
            continue
        if field.exclude:
            raise InvalidTool(
                f"tool {tool!r}: argument {name!r} is excluded from dumps, so it cannot be approved; keep it"
            )
        for part in _parts(field.annotation):
            if isinstance(part, type) and issubclass(part, _MASKED):
                raise InvalidTool(
                    f"tool {tool!r}: argument {name!r} is masked ({part.__name__}), so it cannot be approved; "
                    "let the application inject secrets instead of the model"
                )
            if isinstance(part, type) and issubclass(part, BaseModel):
                _check(part, tool, seen)


def _parts(annotation: Any) -> list[Any]:
    inner = [part for arg in get_args(annotation) for part in _parts(arg)]
    return [annotation, *inner]


def dump(parsed: BaseModel, *, exclude: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The parsed arguments as JSON, under the names that the model parses them back from; `exclude` names fields.

    A set has one order, whatever its members hash to in this process.
    """
    dumped = parsed.model_dump(mode="json", by_alias=True, exclude=set(exclude), round_trip=True, warnings="error")
    if not may_hold_sets(type(parsed)):
        return dumped
    # In the order of the fields, which is what model_dump keeps too.
    values = [value for name, value in parsed if name not in exclude]
    if len(values) == len(dumped):
        for name, value in zip(dumped, values, strict=True):
            dumped[name] = ordered(value, dumped[name])
    return dumped


_FIRST = ("function-before", "function-wrap", "function-plain")


def read_first(model: type) -> frozenset[str]:
    """The fields that a function of the tool's own sees before their type does; of version 1, the ``pre`` ones."""
    if not issubclass(model, BaseModel):
        declared: Mapping[str, Any] = getattr(model, "__fields__", {})
        return frozenset(name for name, info in declared.items() if getattr(info, "pre_validators", None))
    found = set()
    pending: list[tuple[str, Any]] = [("", model.__pydantic_core_schema__)]
    for field, node in pending:
        if isinstance(node, list | tuple):
            pending += [(field, member) for member in node]
        elif isinstance(node, dict):
            if field and node.get("type") in _FIRST and _is_own(node.get("function")):
                found.add(field)
            fields = node.get("fields") if node.get("type") == "model-fields" and not field else None
            pending += [(name, sub) for name, sub in (fields or {}).items()]
            skipped = {"metadata", "ref", "default", "function", *(("fields",) if fields else ())}
            pending += [(field, member) for name, member in node.items() if name not in skipped]
    return frozenset(found)


def _is_own(function: Any) -> bool:
    called = function.get("function") if isinstance(function, Mapping) else function
    module = getattr(called, "__module__", None) or ""
    return not module.startswith("pydantic")


class _NoJson:
    """Stands where a value has no JSON form."""


NO_JSON: Final = _NoJson()


def as_json(value: Any) -> Any:
    """The value as JSON, each set in it in one order; `NO_JSON` where it has no such form."""
    if is_json(value):
        return value
    try:
        json = ordered(value, to_jsonable_python(value))
    except (PydanticSerializationError, ValueError):
        return NO_JSON
    return json if is_json(json) else NO_JSON


_PLAIN = (str, int, float, bool, type(None))
# The node types of a core schema that no set comes out of; whatever else there is, now or later, may hold one.
_WITHOUT_SETS = frozenset(
    {
        *("any", "none", "bool", "int", "float", "decimal", "str", "bytes", "date", "time", "datetime", "timedelta"),
        *("literal", "enum", "uuid", "url", "multi-host-url", "list", "tuple", "dict", "nullable", "union", "default"),
        *("model", "model-fields", "model-field", "definitions", "definition-ref"),
    }
)


@lru_cache(maxsize=4096)
def may_hold_sets(model: type[BaseModel]) -> bool:
    """Whether a value parsed by `model` could hold a set: certain where it says no."""
    pending: list[Any] = [model.__pydantic_core_schema__]
    for node in pending:
        if isinstance(node, list | tuple):
            pending += node
        elif isinstance(node, dict):
            kind = node.get("type")
            is_odd = isinstance(kind, str) and kind not in _WITHOUT_SETS
            if is_odd or "default_factory" in node or node.get("post_init") or not _is_plain(node.get("default")):
                return True
            pending += [member for name, member in node.items() if name not in ("metadata", "ref", "default")]
    return False


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return all(map(_is_plain, value.values() if isinstance(value, dict) else value))
    return isinstance(value, _PLAIN)


_UNORDERED = (set, frozenset)


def ordered(parsed: Any, dumped: Any) -> Any:
    """`dumped`, the JSON of `parsed`, with the members of every set in it sorted."""
    if isinstance(parsed, _PLAIN) or not isinstance(dumped, dict | list):
        return dumped
    if isinstance(parsed, BaseModel | Mapping):
        values = list(parsed.values()) if isinstance(parsed, Mapping) else [value for _, value in parsed]
        if isinstance(dumped, dict) and len(values) == len(dumped):
            return {name: ordered(value, own) for value, (name, own) in zip(values, dumped.items(), strict=True)}
    elif dataclasses.is_dataclass(parsed) and isinstance(dumped, dict):
        return {name: ordered(getattr(parsed, name, None), own) for name, own in dumped.items()}
    elif isinstance(parsed, Collection) and isinstance(dumped, list) and len(parsed) == len(dumped):
        members = [ordered(value, own) for value, own in zip(parsed, dumped, strict=True)]
        if not isinstance(parsed, _UNORDERED):
            return members
        return sorted(members, key=lambda member: orjson.dumps(member, option=orjson.OPT_SORT_KEYS))
    return dumped

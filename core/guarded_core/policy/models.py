"""The shape of a policy file, as strict pydantic models.

Tools, roles and rules are modelled after the dataclasses that they become: a setting, its type, its default and its
description are written once, there.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Union, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from guarded_core.approvals.grantable import Grantable
from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import MAX_DEPTH, PayloadLimits
from guarded_core.ground.pointer import ABSENT
from guarded_core.ground.wording import did_you_mean
from guarded_core.policy.effect import EffectKey
from guarded_core.policy.policy import DEFAULT_INPUT_BYTES, DEFAULT_OUTPUT_BYTES, OriginSettings, Role, ToolSettings
from guarded_core.rules.kinds import KINDS
from guarded_core.tools.spec import ToolRisk

_STRICT = ConfigDict(
    extra="forbid", strict=True, use_attribute_docstrings=True, defer_build=True
)  # built when a policy is read
_LIMITS = PayloadLimits()


def _model_of(
    settings: type, *, types: Mapping[str, Any] | None = None, names: Mapping[str, str] | None = None, **extra: Any
) -> type[BaseModel]:
    hints, described = get_type_hints(settings) | dict(types or {}), _descriptions(settings)
    own: dict[str, Any] = {
        f.name: (hints[f.name], Field(_default(f), description=described.get(f.name), alias=(names or {}).get(f.name)))
        for f in fields(settings)
        if f.init
    }
    return create_model(settings.__name__, __config__=_STRICT, __doc__=_summary(settings), **extra, **own)


def _default(f: dataclasses.Field[Any]) -> Any:
    if f.default_factory is not MISSING:
        return f.default_factory()
    if f.default is MISSING:
        return ...
    return None if f.default is ABSENT else f.default


def _summary(settings: type) -> str:
    return inspect.cleandoc(settings.__doc__ or "").split("\n\nAttributes:")[0]


def _descriptions(settings: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for kind in reversed(settings.__mro__):
        listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        found.update(re.findall(r"^ {4}(\w+): (.+)$", listed, re.MULTILINE))
    return found


_GrantTable = _model_of(Grantable)
_EffectTable = _model_of(EffectKey, names={"window": "for"})
_ToolTable = _model_of(
    ToolSettings, types={"risk": ToolRisk | None, "grant": _GrantTable | None, "effect": _EffectTable | None}
)
_RoleTable = _model_of(Role)
_OriginsTable = _model_of(OriginSettings)
_RULE_TABLES = {name: _model_of(kind, kind=(Literal[name], ...)) for name, kind in KINDS.items()}
_RuleTable = Annotated[Union[tuple(_RULE_TABLES.values())], Field(discriminator="kind")]  # type: ignore[valid-type]  # noqa: UP007


class LimitsTable(BaseModel):
    """Bounds of arguments and results."""

    model_config = _STRICT

    input_bytes: Annotated[int, Field(ge=1)] = DEFAULT_INPUT_BYTES
    """Bytes of a call's arguments, as compact JSON."""
    output_bytes: Annotated[int, Field(ge=1)] = DEFAULT_OUTPUT_BYTES
    """Bytes of a tool's result."""
    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = _LIMITS.depth
    """Levels of objects and arrays inside each other, in the arguments."""
    nodes: Annotated[int, Field(ge=1)] = _LIMITS.nodes
    """Values in the arguments, each object and array included."""
    characters: Annotated[int, Field(ge=1)] | None = None
    """Characters of the longest string in the arguments; as many as fit by default."""


class PolicyDocument(BaseModel):
    """A policy of guarded tools: which there are, for whom, within what limits, under which rules."""

    model_config = _STRICT

    version: int = Field(ge=1, le=1)
    """Version of the format: 1."""
    limits: LimitsTable = LimitsTable()
    """Bounds of arguments and results."""
    tools: dict[str, _ToolTable] = {}  # type: ignore[valid-type]
    """The allowlist: each tool that may be called, by its exact name."""
    roles: dict[str, _RoleTable] = {}  # type: ignore[valid-type]
    """Sets of tools for sessions, by name."""
    origins: _OriginsTable = _OriginsTable()  # type: ignore[valid-type]
    """How the words of users are read, for rules about where a value came from."""
    rules: list[_RuleTable] = []  # type: ignore[valid-type]
    """What every call has to pass, judged over its effective arguments."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> PolicyDocument:
        """The document, checked. Raises InvalidPolicy with the place of the first fault."""
        _require_json(document, "")
        try:
            # As JSON: strict, and yet a text is taken for a risk and an array for a set.
            return cls.model_validate_json(json.dumps(document))
        except ValidationError as error:
            faults = error.errors(include_url=False)
        # A setting that is missing may be there under a wrong name.
        fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
        place = _place(fault["loc"]) + (".kind" if fault["type"].startswith("union_tag") else "")
        raise InvalidPolicy(_reason(fault), where=place)


def given(table: BaseModel) -> dict[str, Any]:
    """The settings that a table has, as they were read. Raises InvalidPolicy for what a table inside it cannot say."""
    settings = {name: getattr(table, name) for name in table.model_fields_set if name != "kind"}
    for name, kind in _INSIDE.items():
        if isinstance(table_inside := settings.get(name), BaseModel):
            try:
                settings[name] = kind(**given(table_inside))
            except InvalidPolicy as error:
                raise InvalidPolicy(error.reason, where=f"{name}.{error.where}") from None
    return settings


_INSIDE: Mapping[str, Any] = {"grant": Grantable, "effect": EffectKey}


def policy_json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a policy file, for editors."""
    schema: dict[str, Any] = _without_null(PolicyDocument.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _without_null(schema: Any) -> Any:
    """TOML has no null: what is optional is left out."""
    if isinstance(schema, list):
        return [_without_null(member) for member in schema if member != {"type": "null"}]
    if not isinstance(schema, dict):
        return schema
    kept = {key: _without_null(member) for key, member in schema.items() if key != "default" or member is not None}
    if len(kept.get("anyOf", ())) == 1:
        kept.update(kept.pop("anyOf")[0])
    return kept


def _require_json(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, member in value.items():
            _require_json(member, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for index, member in enumerate(value):
            _require_json(member, f"{where}[{index}]")
    elif value not in (None, True, False) and not isinstance(value, str | int | float):
        raise InvalidPolicy("a date or time is not a JSON value: write it as text, in quotes", where=where)
    elif value in (float("inf"), float("-inf")) or value != value:
        raise InvalidPolicy("must be a finite number", where=where)


def _place(loc: Sequence[int | str]) -> str:
    """``rules[3].param`` for ("rules", 3, "deny_tool_param", "param")."""
    path = (
        [*loc[:2], *loc[3:4]] if loc[0] == "rules" else loc[:5] if loc[2:3] and loc[2] in _INSIDE else loc[:3]
    )  # a tag or a union's member is not part of the file
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _reason(fault: Mapping[str, Any]) -> str:
    match fault["type"], fault["loc"]:
        case _, ("version",):
            return "write version = 1, the only one there is"
        case "extra_forbidden", loc:
            return f"unknown key{did_you_mean(loc[-1], _keys_at(loc))}"
        case "missing", _:
            return "is required"
        case "union_tag_not_found", _:
            return f"a rule needs a kind{did_you_mean('', KINDS)}"
        case "union_tag_invalid", _:
            return f"unknown kind{did_you_mean(fault['ctx']['tag'], KINDS)}"
        case "enum" | "literal_error", _:
            return "unknown value" + did_you_mean(fault["input"], re.findall("'([^']+)'", fault["ctx"]["expected"]))
        case "int_type" | "float_type", (*_, "int" | "float"):
            return "must be a number"
        case "model_type" | "model_attributes_type" | "dict_type", _:
            return "must be a table"
        case _:
            return str(fault["msg"]).replace("Input should", "must", 1)


def _keys_at(loc: Sequence[int | str]) -> Iterable[str]:
    match loc:
        case ["limits", _]:
            return LimitsTable.model_fields
        case ["origins", _]:
            return _OriginsTable.model_fields
        case ["tools", _, "grant", _]:
            return _GrantTable.model_fields
        case ["tools", _, "effect", _]:
            return ["by", "per", "for"]
        case ["tools", _, _]:
            return _ToolTable.model_fields
        case ["roles", _, _]:
            return _RoleTable.model_fields
        case ["rules", _, str(kind), _]:
            return _RULE_TABLES[kind].model_fields
        case _:
            return PolicyDocument.model_fields

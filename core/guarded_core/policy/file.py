"""A policy from TOML and to TOML: a file, or a folder of them that is merged in sorted order."""

from __future__ import annotations

import json
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import PayloadLimits
from guarded_core.policy.effect import EffectKey
from guarded_core.policy.lint import nameless
from guarded_core.policy.models import LimitsTable, PolicyDocument, given, policy_json_schema
from guarded_core.policy.policy import DEFAULT_OUTPUT_BYTES, OriginSettings, Role, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Rule
from guarded_core.rules.kinds import KINDS

__all__ = ["PolicyWarning", "dump_policy", "load_policy", "parse_policy", "policy_json_schema"]


class PolicyWarning(UserWarning):
    """A policy was read that says less than its author may think."""


def load_policy(path: str | os.PathLike[str]) -> ToolExecutionPolicy:
    """The policy of a TOML file, or of all ``*.toml`` of a folder in sorted order.

    A missing or empty folder is a policy that allows nothing; a PolicyWarning says so.

    Raises:
        InvalidPolicy: with the file, the place and what would be right; nothing is half read.
    """
    path = Path(path)
    is_file = path.is_file() or path.suffix == ".toml"
    files = [path] if is_file else sorted(file for file in _listed(path) if file.suffix == ".toml")
    merged = _Merged()
    for file in files:
        merged.add(_read(file), file.name)
    policy = merged.policy()
    if not files:
        _warn(f"no policy file in {path.name!r}, or no such folder: no tool is allowed")
    elif not merged.tools:
        _warn(f"{path.name!r} names no tool: no tool is allowed")
    elif not is_file and not merged.rules:
        _warn(f"{path.name!r} holds no rule")
    return policy


def parse_policy(text: str, *, file: str | None = None) -> ToolExecutionPolicy:
    """The policy of a TOML text; `file` is its name in errors. Raises InvalidPolicy."""
    merged = _Merged()
    merged.add(_parse(text, file), file)
    return merged.policy()


class _Merged:
    """What the files of a folder say together; each thing stands in one of them."""

    def __init__(self) -> None:
        self.limits: dict[str, Any] = {}
        self.tools: dict[str, ToolSettings] = {}
        self.roles: dict[str, Role] = {}
        self.rules: list[Rule] = []
        self.origins = OriginSettings()
        self._rule_places: list[tuple[str, str | None]] = []
        self._files: dict[str, str | None] = {}

    def add(self, document: PolicyDocument, file: str | None) -> None:
        """Take in one file. Raises InvalidPolicy."""
        for name, limit in given(document.limits).items():
            self._claim(f"limits.{name}", file)
            self.limits[name] = limit
        for name, table in document.tools.items():
            self._claim(f"tools.{name}", file)
            self.tools[name] = _made(ToolSettings, table, f"tools.{name}", file)
        for name, table in document.roles.items():
            self._claim(f"roles.{name}", file)
            self.roles[name] = _made(Role, table, f"roles.{name}", file)
        if given(document.origins):
            self._claim("origins.locales", file)
            self.origins = _made(OriginSettings, document.origins, "origins", file)
        rules: list[Any] = document.rules
        self._rule_places += [(f"rules[{index}]", file) for index in range(len(rules))]
        self.rules += [_made(KINDS[rule.kind], rule, f"rules[{index}]", file) for index, rule in enumerate(rules)]

    def policy(self) -> ToolExecutionPolicy:
        """All of it. Raises InvalidPolicy."""
        limits = dict(self.limits)
        output_bytes = limits.pop("output_bytes", DEFAULT_OUTPUT_BYTES)
        limits["bytes"] = limits.pop("input_bytes", LimitsTable().input_bytes)
        try:
            policy = ToolExecutionPolicy(
                self.tools,
                rules=self.rules,
                roles=self.roles,
                limits=PayloadLimits(**limits),
                output_bytes=output_bytes,
                origins=self.origins,
            )
        except InvalidPolicy as error:
            place = ".".join(error.where.split(".")[:2])
            raise InvalidPolicy(error.reason, where=error.where, file=self._files.get(place)) from None
        self._check_names(policy)
        return policy

    def _check_names(self, policy: ToolExecutionPolicy) -> None:
        # A rule for a tool that is not there protects nothing, and nobody would see it.
        found = nameless(policy)
        if found and policy.tools:  # without any tool nothing is allowed, which is said elsewhere
            where, file = self._rule_places[int(found[0].where[len("rules[") : -1])]
            said = [one.message for one in found]
            raise InvalidPolicy("\n".join(said), where=where, file=file)

    def _claim(self, place: str, file: str | None) -> None:
        if place in self._files:
            raise InvalidPolicy(f"stands in {self._files[place]} already", where=place, file=file)
        self._files[place] = file


def _made(kind: Any, table: Any, place: str, file: str | None) -> Any:
    try:
        return kind(**given(table))
    except InvalidPolicy as error:
        where = f"{place}.{error.where}" if error.where else place
        raise InvalidPolicy(error.reason, where=where, file=file) from None


def _listed(folder: Path) -> Iterable[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InvalidPolicy(f"cannot be read: {type(error).__name__}", file=folder.name) from None


def _read(file: Path) -> PolicyDocument:
    try:
        text = file.read_bytes().decode()
    except UnicodeDecodeError:
        raise InvalidPolicy("is not UTF-8", file=file.name) from None
    except FileNotFoundError:
        raise InvalidPolicy("there is no such file; guarded policy init begins one", file=file.name) from None
    except OSError as error:
        raise InvalidPolicy(f"cannot be read: {type(error).__name__}", file=file.name) from None
    return _parse(text, file.name)


def _parse(text: str, file: str | None) -> PolicyDocument:
    try:
        return PolicyDocument.read(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicy(f"is not TOML: {error}", file=file) from None
    except RecursionError:
        raise InvalidPolicy("is nested too deeply", file=file) from None
    except InvalidPolicy as error:
        raise InvalidPolicy(error.reason, where=error.where, file=file) from None


def _warn(message: str) -> None:
    warnings.warn(message, PolicyWarning, stacklevel=3)


def dump_policy(policy: ToolExecutionPolicy) -> str:
    """The policy as a TOML file that reads back as the same policy, hash and all.

    Raises InvalidPolicy where TOML cannot say it: a rule in code, or a null to compare with.
    """
    limits = {"input_bytes": policy.limits.bytes, "output_bytes": policy.output_bytes}
    limits |= {name: getattr(policy.limits, name) for name in ("depth", "nodes", "characters")}
    defaults = LimitsTable().model_dump()
    tables = [
        ("", {"version": 1}),
        ("limits", {name: limit for name, limit in limits.items() if limit != defaults[name]}),
    ]
    tables.append(("origins", _changed(policy.origins)))
    tables += [(f"tools.{_key(name)}", _changed(policy.settings(name))) for name in sorted(policy.tools)]
    tables += [(f"roles.{_key(name)}", _changed(role)) for name, role in sorted(policy.roles.items())]
    parts = [
        _table(f"[{name}]" if name else "", table)
        for name, table in tables
        if table or name not in ("limits", "origins")
    ]
    parts += [_table("[[rules]]", _spec(rule)) for rule in policy.rules]
    return "\n".join(parts)


def _changed(settings: Any) -> dict[str, Any]:
    tables = {f.name: (getattr(settings, f.name), f) for f in fields(settings)}
    return {name: value for name, (value, f) in tables.items() if value != _default(f)}


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def _spec(rule: Rule) -> Mapping[str, Any]:
    if rule.spec is None:
        raise InvalidPolicy(f"the rule {rule.name!r} is code, which no file can hold")
    return rule.spec


def _table(header: str, table: Mapping[str, Any]) -> str:
    lines = [f"{_key(key)} = {_toml(value)}" for key, value in table.items()]
    return "\n".join([header, *lines] if header else lines) + "\n"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key, re.ASCII) else _toml(key)


def _toml(value: Any) -> str:
    match value:
        case None:
            raise InvalidPolicy("TOML has no null, so no file can hold this rule")
        case bool() | int() | float():
            return repr(value).lower()
        case str():
            # A JSON string is a TOML one, but for DEL.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            return "{" + ", ".join(f"{_key(key)} = {_toml(member)}" for key, member in value.items()) + "}"
        case _:
            if is_dataclass(value):
                names = {"window": "for"} if isinstance(value, EffectKey) else {}
                return _toml({names.get(name, name): member for name, member in _changed(value).items()})
            members = sorted(value) if isinstance(value, frozenset) else value
            return "[" + ", ".join(map(_toml, members)) + "]"

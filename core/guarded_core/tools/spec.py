"""What a tool is: its name, risk, parameters and schema, frozen and fingerprinted at registration."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Self

import orjson

from guarded_core.ground.errors import InvalidPolicy, InvalidTool
from guarded_core.ground.payload import PayloadLimits, freeze
from guarded_core.ground.pointer import Param
from guarded_core.tools.reading import UNKNOWN_TOOL, Reading
from guarded_core.tools.schema import Defaults, Validator, from_params, validators
from guarded_core.tools.schema.document import read
from guarded_core.tools.schema.placing import free_form, opaque_patterns
from guarded_core.tools.schema.terms import CLOSED, OPEN, Terms

MAX_IDENTIFIER = 64
MAX_PARAM_DESCRIPTION = 2048
MAX_TOOL_DESCRIPTION = 4096
MAX_PARAMS = 64

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def is_identifier(name: object) -> bool:
    """Whether `name` is 1 to 64 ASCII letters, digits, ``_`` or ``-``."""
    return type(name) is str and _IDENTIFIER.fullmatch(name) is not None


def recorded_name(name: object) -> str:
    """The tool name as records and errors carry it: itself, or ``invalid-tool-`` and 16 hex digits of its SHA-256.

    A model chooses the name; only what could be a tool's name is ever repeated.
    """
    if is_identifier(name):
        return str(name)
    raw = str.__str__(name) if isinstance(name, str) else type(name).__name__
    return "invalid-tool-" + hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class ToolRisk(StrEnum):
    """How much harm a tool can do. There is no default: whoever adds a tool says it."""

    READ_ONLY = "read_only"
    MUTATING = "mutating"
    DESTRUCTIVE = "destructive"
    FINANCIAL = "financial"

    @property
    def needs_approval(self) -> bool:
        """Whether every call needs a person's approval of its exact payload."""
        return self in (ToolRisk.DESTRUCTIVE, ToolRisk.FINANCIAL)

    @property
    def rank(self) -> int:
        """Position from the mildest (0) to the strictest (3)."""
        return list(ToolRisk).index(self)


def strictest(*risks: ToolRisk | str | None) -> ToolRisk | None:
    """The strictest of all declared risks; None where nobody declared one."""
    declared = [parse_risk(risk) for risk in risks if risk is not None]
    return max(declared, key=lambda risk: risk.rank, default=None)


def parse_risk(risk: ToolRisk | str) -> ToolRisk:
    """The risk of that name. Raises InvalidTool with the valid names."""
    try:
        return ToolRisk(risk)
    except ValueError:
        raise InvalidTool(f"unknown risk; one of {', '.join(ToolRisk)}") from None


PARAM_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


@dataclass(frozen=True, slots=True)
class ToolParam:
    """One declared argument of an AiTool.

    Shapes: name an identifier of 1 to 64 bytes; param_type one of PARAM_TYPES; description up to 2048 bytes, not blank.
    Raises InvalidTool for anything else.
    """

    name: str
    param_type: str
    description: str
    required: bool = True

    def __post_init__(self) -> None:
        if not is_identifier(self.name):
            raise InvalidTool("a parameter name is 1 to 64 ASCII letters, digits, '_' or '-'")
        if self.param_type not in PARAM_TYPES:
            raise InvalidTool(f"parameter {self.name!r}: param_type is one of {', '.join(PARAM_TYPES)}")
        _require_text(self.description, MAX_PARAM_DESCRIPTION, f"parameter {self.name!r}: description")


class AiTool(ABC):
    """A tool for the registry: what it is called, what it takes, how dangerous it is, and what it does.

    Subclasses set the four class attributes and write `execute`, which receives the checked arguments (a dict that is
    its own to change) and returns JSON. They are read once, at registration.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[Sequence[ToolParam]]
    risk: ClassVar[ToolRisk]

    @abstractmethod
    def execute(self, payload: dict[str, Any]) -> Any:
        """Do it. May be ``async def``; then only `aexecute` runs it."""


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as the guard judges it: frozen at registration, so that nothing that changes later is judged or run.

    Build it with `of` or `of_ai_tool`.

    Attributes:
        name: the one name it is resolved by.
        description: what the model is told.
        schema: JSON Schema of its arguments, as the tool declares it; not to be changed.
        risk: the strictest declaration made in code; None where only the policy declares one.
        fingerprint: SHA-256 over name, description and schema, in hex; approvals and pins bind to it.
        closed: the schema says itself what is open, and is judged as it is (an AiTool's).
        strict_integers: a float such as 1.0 is not an integer (a ToolParam's rule; JSON Schema takes it for one).
        reading: what the tool makes of values that stand in its arguments.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)
    risk: ToolRisk | None
    fingerprint: str
    closed: bool = False
    strict_integers: bool = False
    reading: Reading = field(default=UNKNOWN_TOOL, repr=False, compare=False)
    _free_form: dict[Terms, list[str]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _validators: dict[Terms, Validator] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        *,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        risk: ToolRisk | str | None = None,
        closed: bool = False,
        strict_integers: bool = False,
        reading: Reading | None = None,
        terms: Terms = CLOSED,
    ) -> Self:
        """A tool with that JSON Schema, a private copy of which is kept; by default it reads what is written.

        `terms` are the policy's; arguments are judged by those in force at each call.

        Raises:
            InvalidTool: the name is not an identifier, the description too long, or the schema does not pass the lint.
        """
        if not is_identifier(name):
            raise InvalidTool("a tool's name is 1 to 64 ASCII letters, digits, '_' or '-'; rename the tool")
        if not isinstance(description, str) or len(description.encode("utf-8", "surrogatepass")) > MAX_DESCRIPTION:
            raise InvalidTool(f"tool {name!r}: the description is text of at most {MAX_DESCRIPTION:,} bytes")
        try:
            frozen = freeze({"name": name, "description": description, "schema": dict(schema)}, _SPEC_LIMITS)
        except ValueError as error:
            raise InvalidTool(f"tool {name!r}: the schema is not bounded JSON: {error}") from None
        own = frozen.value["schema"]
        try:
            compiled = validators(own, closed=closed, strict_integers=strict_integers, terms=terms)
        except InvalidTool as error:
            raise InvalidTool(f"tool {name!r}: {error}{_way_out(name, own, terms)}") from None
        spec = cls(
            name=name,
            description=description,
            schema=own,
            risk=None if risk is None else parse_risk(risk),
            fingerprint=frozen.digest,
            closed=closed,
            strict_integers=strict_integers,
            reading=reading or Reading(own),
        )
        spec._validators.update(compiled)
        return spec

    @classmethod
    def of_ai_tool(cls, tool: AiTool) -> Self:
        """An AiTool's spec. Raises InvalidTool where a bound is not kept."""
        name, description, params = tool.name, tool.description, tuple(tool.parameters)
        _require_text(description, MAX_TOOL_DESCRIPTION, f"tool {name!r}: description")
        if len(params) > MAX_PARAMS or len({param.name for param in params}) != len(params):
            raise InvalidTool(f"tool {name!r}: at most {MAX_PARAMS} parameters, each with a name of its own")
        return cls.of(
            name=name,
            description=description,
            schema=from_params(params),
            risk=tool.risk,
            closed=True,
            strict_integers=True,
        )

    def closed_schema(self, *, keep_open: bool = False, terms: Terms | None = None) -> dict[str, Any]:
        """A copy of the schema that arguments are judged on: all objects closed, but for what the policy keeps open."""
        return self.validator(keep_open=keep_open, terms=terms).schema

    def validator(self, *, keep_open: bool = False, terms: Terms | None = None) -> Validator:
        """The compiled closed schema; compiled at registration, and once more where a policy's terms change.

        Raises InvalidTool where the schema cannot be judged on these terms.
        """
        wanted = terms or (OPEN if keep_open else CLOSED)
        found = self._validators.get(wanted)
        if found is None:  # also where the spec was not made by `of`
            found = self._validators[wanted] = validators(
                self.schema, closed=self.closed, strict_integers=self.strict_integers, terms=wanted
            )[wanted]
        return found

    def shown_schema(self, terms: Terms = CLOSED) -> dict[str, Any]:
        """The schema as a model is shown it: the tool's own, with the free-form parts closed that these terms close."""
        return self.closed_schema(terms=terms) if self.free_form(terms) else dict(self.schema)

    def free_form(self, terms: Terms = CLOSED) -> list[str]:
        """JSON Pointers of the places where the schema takes any object, but which these terms close."""
        if terms not in self._free_form:
            self._free_form[terms] = [] if self.closed else free_form(read(self.schema), terms)
        return self._free_form[terms]

    def opaque_patterns(self) -> list[str]:
        """JSON Pointers of the places with a pattern that cannot be checked in linear time."""
        return opaque_patterns(read(self.schema))

    @cached_property
    def defaults(self) -> Defaults | None:
        """Fills in what an argument that is left out means; None where there is no default."""
        return Defaults(self.schema) if b'"default"' in orjson.dumps(self.schema) else None


MAX_DESCRIPTION = 65_536
_SPEC_LIMITS = PayloadLimits(bytes=1 << 20, nodes=1 << 16, depth=64)


def _way_out(name: str, schema: Mapping[str, Any], terms: Terms) -> str:
    """What the policy can say, where a pattern that only the tool can check is what is wrong with the schema."""
    try:
        odd = [
            place for place in opaque_patterns(read(schema)) if not terms.leaves_patterns_of(Param.parse(place).tokens)
        ]
    except (InvalidTool, InvalidPolicy, RecursionError):
        return ""
    if not odd:
        return ""
    listed = json.dumps(odd, ensure_ascii=False)
    return (
        f". Parameter {', '.join(odd)}: where the tool itself checks this pattern, say so in the policy, "
        f"[tools.{name}] opaque_patterns = {listed}"
    )


def _require_text(text: object, limit: int, what: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidTool(f"{what} must be text that is not blank")
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        raise InvalidTool(f"{what} is longer than {limit} bytes")
    return text

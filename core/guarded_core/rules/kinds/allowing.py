"""Rules that name all that is permitted: what is absent, or cannot be compared, is not."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.pointer import ABSENT
from guarded_core.rules.case import Case, Finding
from guarded_core.rules.kinds.base import (
    Absence,
    ParamRule,
    RuleKind,
    check_absence,
    check_number,
    check_text,
    check_tool,
    compiled,
    json_value,
    keep,
    number_of,
)
from guarded_core.rules.patterns import Pattern
from guarded_core.rules.values import Named, exact, text_of
from guarded_core.tools import schema as schemas
from guarded_core.tools.reading import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowToolParam(ParamRule):
    """Denies a call unless its parameter is present and equal to one of the listed values; a model is shown these.

    Attributes:
        allow: the exact JSON values, as the tool reads them; an empty list denies every call.
        absent: what becomes of a call that leaves it out: "deny" or "allow".
    """

    kind: ClassVar[str] = "allow_tool_param"

    allow: Sequence[Any] = ()
    absent: Absence = "deny"
    _allowed: frozenset[Hashable] = field(init=False, repr=False, compare=False)
    _named: Named = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        if not isinstance(self.allow, list | tuple):
            raise InvalidPolicy("must be a list of values", where="allow")
        keep(self, "allow", tuple(json_value(value, "allow") for value in self.allow))
        keep(self, "_allowed", frozenset(map(exact, self.allow)))
        keep(self, "_named", Named(self.allow))
        check_absence(self.absent)

    @property
    def requires_value(self) -> bool:
        """It does, unless it says otherwise: what is absent is not allowed."""
        return self.absent == "deny"

    @property
    def only(self) -> tuple[Any, ...]:
        """The listed values."""
        return tuple(self.allow)

    def check(self, case: Case) -> Finding | None:
        """An objection unless each of the parameter's values is listed."""
        if self.absent == "allow" and self.left_out(case):
            return None
        values, place = self.values(case), self.place(case)
        if values and all(value is not ABSENT and self._permits(value, place) for value in values):
            return None
        return Finding(f"parameter {self.param!r} is absent, or has a value that is not allowed")

    def _permits(self, value: Any, place: Place) -> bool:
        return exact(value) in self._allowed or self._named.has(value, place)

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema with the values as an enum."""
        # An empty enum is not a schema that a model's API takes.
        return schemas.narrow(schema, self._param.pointer, enum=list(self.allow)) if self.allow else schema


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowToolParamMatching(ParamRule):
    """Denies a call unless its parameter is present and the whole of its string form matches a regular expression.

    An object or array never matches: name its parts, such as ``/to/*``.

    Attributes:
        matches: the expression, without lookaround and backreferences; one that does not compile denies every call.
        absent: what becomes of a call that leaves it out: "deny" or "allow".
    """

    kind: ClassVar[str] = "allow_tool_param_matching"

    matches: str
    absent: Absence = "deny"
    _pattern: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        # Whole: to permit "api.example.com" must not permit "evil.example/?api.example.com".
        keep(self, "_pattern", compiled(self.matches, "matches", whole=True))
        check_absence(self.absent)

    @property
    def requires_value(self) -> bool:
        """It does, unless it says otherwise: what is absent is not allowed."""
        return self.absent == "deny"

    @property
    def error(self) -> str:
        """Why the pattern does not compile."""
        return self._pattern.error

    def check(self, case: Case) -> Finding | None:
        """An objection unless each of the parameter's values matches."""
        if self.error:
            return Finding(self.error)
        if self.absent == "allow" and self.left_out(case):
            return None
        values = self.values(case)
        if values and all(self._permits(value) for value in values):
            return None
        return Finding(f"parameter {self.param!r} is absent, or does not match the allowed pattern")

    def _permits(self, value: Any) -> bool:
        return value is not ABSENT and not isinstance(value, list | dict) and self._pattern.matches(text_of(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitToolParam(ParamRule):
    """Denies a call unless its parameter is a number within bounds; a model is shown these.

    Attributes:
        min: the least that is allowed.
        max: the most that is allowed.
        absent: what becomes of a call that leaves it out: "deny" or "allow".
    """

    kind: ClassVar[str] = "limit_tool_param"

    min: int | float | None = None
    max: int | float | None = None
    absent: Absence = "deny"
    _min: Decimal | None = field(init=False, repr=False, compare=False)
    _max: Decimal | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        if self.min is None and self.max is None:
            raise InvalidPolicy("needs min, max or both", where="max")
        if self.min is not None:
            check_number(self.min, "min")
        if self.max is not None:
            check_number(self.max, "max", at_least=self.min)
        keep(self, "_min", None if self.min is None else number_of(self.min))
        keep(self, "_max", None if self.max is None else number_of(self.max))
        check_absence(self.absent)

    @property
    def counts(self) -> bool:
        """It does."""
        return True

    @property
    def requires_value(self) -> bool:
        """It does, unless it says otherwise: what is absent is not allowed."""
        return self.absent == "deny"

    @property
    def bounds(self) -> tuple[int | float, ...]:
        """The least and the most, as far as they are given."""
        return tuple(bound for bound in (self.min, self.max) if bound is not None)

    def check(self, case: Case) -> Finding | None:
        """An objection unless each of the parameter's values is within the bounds."""
        if self.absent == "allow" and self.left_out(case):
            return None
        values, place = self.values(case), self.place(case)
        if values and all(self._permits(place.number(value)) for value in values):
            return None
        return Finding(f"parameter {self.param!r} is absent, not a number, or out of bounds")

    def _permits(self, value: Decimal | None) -> bool:
        if value is None or (self._min is not None and value < self._min):
            return False
        return self._max is None or value <= self._max

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema with the bounds."""
        return schemas.narrow(schema, self._param.pointer, minimum=self.min, maximum=self.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireState(RuleKind):
    """Denies a call unless one of the application's own facts has a value.

    Attributes:
        key: the fact's key in the StateStore.
        value: the exact JSON value that it must have.
        tool: exact name, or a glob; every tool by default.
    """

    kind: ClassVar[str] = "require_state"

    key: str
    value: Any
    tool: str = "*"
    _wanted: Hashable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_text(self.key, "key")
        check_tool(self.tool, "tool")
        keep(self, "_wanted", exact(json_value(self.value, "value")))

    @property
    def subject(self) -> str:
        """The key."""
        return self.key

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        """The tools it is asked of."""
        return self.tool

    def check(self, case: Case) -> Finding | None:
        """An objection where the fact is another one, or is not known."""
        # A copied Enum member is itself, so ABSENT can be told from every value.
        value = case.state.get_or(self.key, ABSENT)
        if value is ABSENT or exact(value) != self._wanted:
            return Finding(f"state {self.key!r} is not as required")
        return None

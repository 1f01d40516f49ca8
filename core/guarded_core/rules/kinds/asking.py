"""Rules that want a person to approve a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.pointer import ABSENT, Param
from guarded_core.rules.case import Asks, Case, Finding
from guarded_core.rules.kinds.base import ToolRule, either, joined_subject, keep
from guarded_core.rules.kinds.condition import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireApproval(ToolRule):
    """Wants a person's approval of every call of a tool, or of those whose parameter is as named.

    Attributes:
        param: name, or JSON Pointer such as ``/items/*/sku``, of the parameter; without it every call asks.
        equals: the exact JSON value.
        contains: a part of the value's string form, or of a string inside it.
        matches: a regular expression, found anywhere in it; one that does not compile denies every call.
        above: a number; a greater one asks, and so do what is not a number and an argument that is left out, unless the
            tool's default for it is known.
        absent: what becomes of a call that leaves such an argument out: "ask" or "allow".
    """

    kind: ClassVar[str] = "require_approval"

    param: str | None = None
    equals: Any = ABSENT
    contains: str | None = None
    matches: str | None = None
    above: int | float | None = None
    absent: Literal["ask", "allow"] = "ask"
    _param: Param | None = field(init=False, repr=False, compare=False)
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ToolRule.__post_init__(self)
        keep(self, "_param", None if self.param is None else Param.parse(self.param))
        condition = Condition.of(equals=self.equals, contains=self.contains, matches=self.matches, above=self.above)
        keep(self, "_condition", condition)
        if self.param is None and condition.tests:
            raise InvalidPolicy("a condition needs the parameter that it is about", where="param")
        if self.absent not in ("ask", "allow"):
            raise InvalidPolicy('must be "ask" or "allow"', where="absent")

    @property
    def subject(self) -> str:
        """Tool, and parameter if any."""
        return self.tool if self.param is None else joined_subject(self.tool, self.param)

    @property
    def parameter(self) -> Param | None:
        """The parameter, if any."""
        return self._param

    @property
    def counts(self) -> bool:
        """Where it has a bound."""
        return self.above is not None

    @property
    def refuses(self) -> bool:
        """It asks, and refuses nothing, but for the error of its pattern."""
        return False

    @property
    def asks(self) -> Asks:
        """Of every call, unless a parameter decides it."""
        return "always" if self._param is None else "some"

    @property
    def error(self) -> str:
        """Why the pattern does not compile."""
        return self._condition.error

    def check(self, case: Case) -> Finding | None:
        """The wish to be asked, where the condition holds."""
        if self.error:
            return Finding(self.error)
        if self._param is None:
            return Finding("the tool needs a person's approval", "ask")
        values = either(self._param, case)
        if self._condition.holds(values, case.reading.at(self._param)):
            return Finding(f"parameter {self.param!r} has a value that needs a person's approval", "ask")
        if self._condition.has_bound and self.absent == "ask" and ABSENT in values:
            return Finding(f"parameter {self.param!r} is left out, and what that stands for is not known", "ask")
        return None

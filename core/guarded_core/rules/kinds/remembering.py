"""Rules that depend on earlier calls: they reserve in the commit; a preview or a denied call spends nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Literal, get_args

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.rules.case import Case, Finding, Reservation, Scope, Slot, Window
from guarded_core.rules.kinds.base import ParamRule, RuleKind, ToolRule, check_number, check_tool, keep, number_of
from guarded_core.rules.patterns import names_tool

Per = Literal["principal", "session", "everyone"]

MAX_INTERVAL_SECS = 3_155_760_000  # a hundred years


@dataclass(frozen=True, slots=True)
class _Windows:
    """A rule's windows: one for each principal, for each session, or one for everyone."""

    prefix: str
    interval_ns: int
    per: Per

    @classmethod
    def made(cls, rule: RuleKind, interval_secs: int | float, per: Per) -> _Windows:
        check_number(interval_secs, "interval_secs", at_least=1e-9, at_most=MAX_INTERVAL_SECS)
        if per not in get_args(Per):
            raise InvalidPolicy(f"must be one of {', '.join(get_args(Per))}", where="per")
        interval_ns = round(interval_secs * 1_000_000_000)
        # The limit is not part of the key: to change it must not empty the window.
        return cls(f"{rule.name}:{interval_ns}:{per}:", interval_ns, per)

    def of(self, scope: Scope) -> Window:
        who = scope.principal if self.per == "principal" else scope.session_id if self.per == "session" else ""
        return Window(key=self.prefix + who, interval_ns=self.interval_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitTool(ToolRule):
    """Denies calls beyond a number in a sliding window; the tools of a glob share it.

    Attributes:
        max_calls: how many calls the window may hold; 0 denies all.
        interval_secs: length of the window in seconds.
        per: whose calls count together.
    """

    kind: ClassVar[str] = "rate_limit_tool"

    max_calls: int
    interval_secs: int | float
    per: Per = "principal"
    _windows: _Windows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ToolRule.__post_init__(self)
        if type(self.max_calls) is not int:
            raise InvalidPolicy("must be a whole number", where="max_calls")
        check_number(self.max_calls, "max_calls", at_least=0)
        keep(self, "_windows", _Windows.made(self, self.interval_secs, self.per))

    def check(self, case: Case) -> Finding | None:
        """An objection where the window is full."""
        if case.used.get(self._windows.of(case.scope).key, 0) + 1 > self.max_calls:
            return Finding(f"at most {self.max_calls} calls in {self.interval_secs} seconds")
        return None

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """Its one window."""
        return (self._windows.of(scope),)

    def reserve(self, case: Case) -> Reservation:
        """One call."""
        return _take(self, self._windows.of(case.scope), Decimal(1), Decimal(self.max_calls))


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetToolParam(ParamRule):
    """Denies calls that bring the sum of a parameter in a sliding window above a limit; the tools of a glob share it.

    A call without the parameter, or with one that is not a number or below 0, is denied too: it cannot be added up.

    Attributes:
        max: what the window may sum up to.
        interval_secs: length of the window in seconds.
        per: whose calls count together.
    """

    kind: ClassVar[str] = "budget_tool_param"

    max: int | float
    interval_secs: int | float
    per: Per = "principal"
    _windows: _Windows = field(init=False, repr=False, compare=False)
    _max: Decimal = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        check_number(self.max, "max", at_least=0)
        keep(self, "_windows", _Windows.made(self, self.interval_secs, self.per))
        keep(self, "_max", number_of(self.max))

    @property
    def counts(self) -> bool:
        """It does: it adds them up."""
        return True

    @property
    def requires_value(self) -> bool:
        """It does: what is absent cannot be added up."""
        return True

    def check(self, case: Case) -> Finding | None:
        """An objection where the amount is not one, or does not fit."""
        amount = self._amount(case)
        if amount is None:
            return Finding(f"parameter {self.param!r} is absent, not a number, or below 0")
        if case.used.get(self._windows.of(case.scope).key, 0) + amount > self._max:
            return Finding(f"parameter {self.param!r} sums up to at most {self.max} in {self.interval_secs} seconds")
        return None

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """Its one window."""
        return (self._windows.of(scope),)

    def reserve(self, case: Case) -> Reservation:
        """The amount of this call."""
        amount = self._amount(case)
        if amount is None:
            raise TypeError("no amount")
        return _take(self, self._windows.of(case.scope), amount, self._max)

    def _amount(self, case: Case) -> Decimal | None:
        place = self.place(case)
        amounts = [place.number(value) for value in self.values(case)]
        if not amounts:
            return None
        total = Decimal(0)
        for amount in amounts:
            if amount is None or amount < 0:
                return None
            total += amount
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyAfter(ToolRule):
    """Denies a tool in a session, once another one has run there.

    Attributes:
        after: exact name, or a glob, of the tool that comes before.
    """

    kind: ClassVar[str] = "deny_after"

    after: str

    def __post_init__(self) -> None:
        ToolRule.__post_init__(self)
        check_tool(self.after, "after")

    @property
    def subject(self) -> str:
        """Both tools."""
        return f"{self.tool}:{self.after}"

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        """Both tools: one leaves the flag behind, the other must not find it."""
        return (self.tool, self.after)

    def check(self, case: Case) -> Finding | None:
        """An objection to the later tool where the earlier one has run."""
        if self.name in case.flags and names_tool(self.tool, case.action.tool):
            return Finding(f"denied once {self.after!r} has run in the session")
        return None

    def reserve(self, case: Case) -> Reservation:
        """The flag, of the rule's own name: left behind, or not to be there."""
        flag, nothing = frozenset({self.name}), frozenset[str]()
        return Reservation(
            raises=flag if names_tool(self.after, case.action.tool) else nothing,
            forbids=flag if names_tool(self.tool, case.action.tool) else nothing,
        )


def _take(rule: RuleKind, window: Window, amount: Decimal, limit: Decimal) -> Reservation:
    return Reservation(slots=(Slot(window=window, amount=amount, limit=limit, rule=rule.name),))

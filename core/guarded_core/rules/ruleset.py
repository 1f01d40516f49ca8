"""The rules in force for a call: the session's, the policy's and the application's own, in one order, as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import is_not
from typing import Any, cast

from guarded_core.ground.errors import PolicyDenied
from guarded_core.ground.violation import PolicyViolation
from guarded_core.rules.case import NOTHING, AwaitedRule, Case, Finding, Reservation, Rule, Scope, Window
from guarded_core.rules.patterns import is_glob, names_tool
from guarded_core.tools.spec import is_identifier

_MAX_PLANS = 1024
_UNLIMITED = Decimal("Infinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What all rules say of one case, in the order they were registered.

    Attributes:
        violations: what refuses the call.
        asks: what wants a person to approve it.
        traced: names of those that ask because of where a value came from.
        would: names of rules with ``enforce = false`` that would have refused or asked.
        reservation: what the call takes and leaves behind in the commit.
        proven: whether rules about the origin of its values were asked, and all of them passed.
    """

    violations: tuple[PolicyViolation, ...] = ()
    asks: tuple[PolicyViolation, ...] = ()
    traced: frozenset[str] = frozenset()
    would: tuple[str, ...] = ()
    reservation: Reservation = NOTHING
    proven: bool = False


SILENT = Judgement()


class RuleSet:
    """The rules of one moment, in order; immutable. Its cost grows with the rules that name the tool, not with all.

    Whatever a rule raises while it is judged, also by its name or by saying whether it is enforced, is an objection.

    Args:
        rules: what it holds, in order.
    """

    __slots__ = ("_exact", "_globs", "_joined", "_own", "_parts", "_plans", "_tracing")

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self._tracing = frozenset([id(rule) for rule in rules if rule.traces])
        self._own = rules
        self._parts: tuple[RuleSet, ...] = ()
        self._exact: dict[str, list[int]] = {}
        self._globs: list[tuple[int, str]] = []
        self._plans: dict[str, _Plan] = {}
        self._joined: RuleSet | None = None
        for position, rule in enumerate(rules):
            tools = (rule.tools,) if isinstance(rule.tools, str) else ("*",) if rule.tools is None else rule.tools
            for tool in tools:
                if is_glob(tool):
                    self._globs.append((position, tool))
                else:
                    self._exact.setdefault(tool, []).append(position)

    @classmethod
    def in_force(cls, *, session: RuleSet | None = None, policy: RuleSet, code: RuleSet) -> RuleSet:
        """The rules of a call, in the one order that they have: the session's, the policy's, those added in code."""
        parts = [part for part in (session, policy, code) if part is not None and part._own]
        if len(parts) < 2:
            return parts[0] if parts else policy
        first = parts[0]
        joined = first._joined
        # Sets are immutable: of these very parts there is one, until another policy or rule comes.
        if joined is None or len(joined._parts) != len(parts) or any(map(is_not, joined._parts, parts)):
            joined = cls()
            joined._parts = tuple(parts)
            joined._tracing = frozenset().union(*[part._tracing for part in parts])
            first._joined = joined
        return joined

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in order."""
        return (*self._own, *[rule for part in self._parts for rule in part.rules])

    @property
    def traces(self) -> bool:
        """Whether a rule asks where values came from, so that a session has to remember."""
        return bool(self._tracing)

    def rules_for(self, tool: str) -> tuple[Rule, ...]:
        """The rules that are asked of calls of `tool`, in order."""
        return self._plan(tool).rules

    def _plan(self, tool: str) -> _Plan:
        found = self._plans.get(tool)
        if found is None:
            found = _Plan(self._find(tool), self._tracing)
            # A model may have made the name up: only what can be a tool's name is kept, and not without end.
            if is_identifier(tool):
                if len(self._plans) >= _MAX_PLANS:
                    self._plans.clear()
                self._plans[tool] = found
        return found

    def _find(self, tool: str) -> tuple[Rule, ...]:
        if self._parts:
            return tuple([rule for part in self._parts for rule in part.rules_for(tool)])
        positions = {position for position, glob in self._globs if names_tool(glob, tool)}
        return tuple([self._own[position] for position in sorted(positions.union(self._exact.get(tool, ())))])

    def awaited(self, tool: str) -> tuple[AwaitedRule, ...]:
        """Those of them whose answers have to be in `Case.answers` before they are judged."""
        return self._plan(tool).awaited

    def enforced(self, tool: str) -> tuple[Rule, ...]:
        """Those of them that do what they say."""
        return tuple([rule for rule in self.rules_for(tool) if _is_enforced(rule)])

    def judge(self, case: Case) -> Judgement:
        """What the rules say of `case`; pure."""
        violations, asks, traced, would = [], [], [], []
        reservations: list[Reservation] = []
        proofs: list[tuple[Rule, bool]] = []
        for rule, takes, traces in self._plan(case.action.tool).asked:
            try:
                enforced = bool(rule.enforce)
            except Exception:
                enforced = True  # doubt does not disarm it
            finding, reservation = None, None
            try:
                finding = rule.check(case)
                if takes and (finding is None or (enforced and finding.effect == "ask")):
                    reservation = _reserved(rule, case)
                is_ask = finding is not None and finding.effect == "ask"
            except Exception as error:
                finding, reservation, is_ask = failed(error), None, False
            if traces and enforced:
                proofs.append((rule, finding is None))
            if reservation is not None:
                reservations.append(reservation if enforced else _observing(reservation))
            if finding is None:
                continue
            if not enforced:
                would.append(_name(rule))
            elif is_ask:
                asks.append(_violation(rule, case, finding))
                if traces:
                    traced.append(asks[-1].policy_name)
            else:
                violations.append(_violation(rule, case, finding))
        if not (violations or asks or would or reservations or proofs):
            return SILENT
        return Judgement(
            violations=tuple(violations),
            asks=tuple(asks),
            traced=frozenset(traced),
            would=tuple(would),
            reservation=reduce(Reservation.joined, reservations, NOTHING),
            proven=all(passed for _, passed in proofs) and any(_speaks_of(rule, case) for rule, _ in proofs),
        )

    def objections(self, case: Case) -> list[PolicyViolation]:
        """Every objection to `case`, in order; nobody can be asked, so a wish to ask is an objection like any other."""
        answers = [(rule, _objection(rule, case)) for rule in self.enforced(case.action.tool)]
        return [_violation(rule, case, finding) for rule, finding in answers if finding is not None]

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """The windows that a judgement of `tool` reads.

        Raises PolicyDenied where a rule cannot name its own: unread, they would look empty.
        """
        rules = self._plan(tool).counting
        if not rules:
            return ()
        found: dict[Window, None] = {}
        for rule in rules:
            try:
                found.update(dict.fromkeys(rule.windows(tool, scope)))
            except Exception as error:
                if _is_enforced(rule):
                    raise PolicyDenied(tool, (PolicyViolation(_name(rule), "", failed(error).reason),)) from None
        return tuple(found)

    def narrow(self, tool: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema shown to a model: what rules can never allow is cut away. A courtesy; every call is judged."""
        for rule in self.enforced(tool):
            try:
                schema = rule.narrow(schema)
            except Exception:  # noqa: S112 - what is shown may say too much; the call is judged all the same
                continue
        return schema

    def hiding(self, tool: str) -> tuple[Rule, ...]:
        """The rules that refuse every call of `tool`, so that a model need not be shown it."""
        return tuple([rule for rule in self.enforced(tool) if _denies(rule, tool)])

    def hides(self, tool: str) -> bool:
        """Whether there is one."""
        return bool(self.hiding(tool))


class _Plan:
    """The rules that are asked of one tool's calls, with what is the same for each call.

    Attributes:
        rules: which, in order.
        asked: each with whether it may take something in the commit, and whether it asks where values came from.
        counting: those that read windows.
        awaited: those that have to wait for their answers.
    """

    __slots__ = ("asked", "awaited", "counting", "rules")

    def __init__(self, rules: tuple[Rule, ...], tracing: frozenset[int]) -> None:
        self.rules = rules
        self.asked = tuple([(rule, _has_own(rule, "reserve"), id(rule) in tracing) for rule in rules])
        self.counting = tuple([rule for rule in rules if _has_own(rule, "windows")])
        self.awaited = tuple([cast(AwaitedRule, rule) for rule in rules if AwaitedRule in type(rule).__mro__])


def _has_own(rule: Rule, method: str) -> bool:
    """Whether a rule has more than the default of a method, which does nothing; in doubt it has."""
    try:
        return getattr(getattr(rule, method), "__func__", None) is not getattr(Rule, method)
    except Exception:
        return True  # what it raises is told when it is asked


def _is_enforced(rule: Rule) -> bool:
    try:
        return bool(rule.enforce)
    except Exception:
        return True  # doubt does not disarm it


def _name(rule: Rule) -> str:
    try:
        return str(rule.name)
    except Exception:
        return type(rule).__name__


def _denies(rule: Rule, tool: str) -> bool:
    try:
        return rule.denies is not None and names_tool(rule.denies, tool)
    except Exception:
        return False  # then the tool is shown; each call is judged all the same


def _objection(rule: Rule, case: Case) -> Finding | None:
    """What `rule` objects; whatever it raises is an objection, also what it would take in the commit."""
    try:
        finding = rule.check(case)
        if finding is None or finding.effect == "ask":
            _reserved(rule, case)
        return finding
    except Exception as error:
        return failed(error)


def _reserved(rule: Rule, case: Case) -> Reservation | None:
    reservation = rule.reserve(case)
    if reservation is not None and not isinstance(reservation, Reservation):
        raise TypeError
    return reservation


def _speaks_of(rule: Rule, case: Case) -> bool:
    try:
        return bool(rule.speaks_of(case))
    except Exception:
        return False  # it proves nothing


def failed(error: Exception) -> Finding:
    """The objection that a rule makes by failing."""
    # The type only: an error's text may quote the arguments.
    return Finding(f"the rule failed: {type(error).__name__}")


def _violation(rule: Rule, case: Case, finding: Finding) -> PolicyViolation:
    return PolicyViolation(_name(rule), case.action.id, finding.reason)


def _observing(reservation: Reservation) -> Reservation:
    """A reservation that counts, so that a rule which is not enforced knows what it would do, and never refuses."""
    slots = tuple(replace(slot, limit=_UNLIMITED) for slot in reservation.slots)
    return Reservation(slots=slots, raises=reservation.raises)

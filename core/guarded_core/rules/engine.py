"""The rules of a policy, indexed by tool, and what they say of a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import Any, ClassVar

from guarded_core.ground.errors import PolicyDenied
from guarded_core.ground.violation import PolicyViolation
from guarded_core.rules.case import NOTHING, Action, Case, Finding, Reservation, Rule, Scope, Window
from guarded_core.rules.patterns import is_glob, names_tool
from guarded_core.rules.state import StateStore
from guarded_core.tools.spec import is_identifier

Check = Callable[[Action, StateStore], str | None]

_MAX_RESOLVED = 1024
_UNLIMITED = Decimal("Infinity")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What all rules say of one case, in the order they were registered.

    Attributes:
        violations: what refuses the call.
        asks: what wants a person to approve it.
        would: names of rules with ``enforce = false`` that would have refused or asked.
        reservation: what the call takes and leaves behind in the commit.
        proven: whether rules about the origin of its values were asked, and all of them passed.
    """

    violations: tuple[PolicyViolation, ...] = ()
    asks: tuple[PolicyViolation, ...] = ()
    would: tuple[str, ...] = ()
    reservation: Reservation = NOTHING
    proven: bool = False

    def joined(self, other: Judgement) -> Judgement:
        """Both together, this one first."""
        return Judgement(
            violations=self.violations + other.violations,
            asks=self.asks + other.asks,
            would=self.would + other.would,
            reservation=self.reservation.joined(other.reservation),
            proven=self.proven or other.proven,
        )


SILENT = Judgement()


class PolicyEngine:
    """Rules in the order they were registered; safe to change in one thread while others judge.

    A judgement sees the rules of one moment. Its cost grows with the rules that name the tool, not with all rules.

    Args:
        rules: what it starts with.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._lock = threading.Lock()
        self._rules = list(rules)
        self._built: _Index | None = None

    def add(self, rule: Rule) -> None:
        """Append a rule; one of the same name may be there already."""
        with self._lock:
            self._rules.append(rule)
            self._built = None

    def register(self, name: str, check: Check, description: str = "") -> None:
        """Append a check that is asked of every call: it returns why not, or None; raising is a violation too."""
        self.add(_HostRule(name=name, ask=check, description=description))

    def register_tool_deny(self, name: str, tool: str, check: Check, description: str = "") -> None:
        """`register`, plus the caller's word that the check refuses `tool` whatever the arguments: it can be hidden."""
        self.add(_HostRule(name=name, ask=check, description=description, denies=tool))

    def unregister(self, name: str) -> int:
        """Remove every rule of that name; how many there were."""
        return self._keep(lambda rule: rule.name != name)

    def clear(self) -> int:
        """Remove every rule; how many there were."""
        return self._keep(lambda rule: False)

    def check(self, action: Action, state: StateStore | None = None) -> list[PolicyViolation]:
        """Every objection to `action`, in order. Nothing is spent, so windows look empty.

        Nobody can be asked here, so a rule that wants approval is an objection like any other.
        """
        case = Case(action=action, state=StateStore() if state is None else state)
        answers = [(rule, _answer(rule, case)[0]) for rule in self.rules_for(action.tool) if rule.enforce]
        return [_violation(rule, case, finding) for rule, finding in answers if finding is not None]

    def judge(self, case: Case) -> Judgement:
        """What the rules say of `case`; pure."""
        index = self._index()
        rules = index.rules_for(case.action.tool)
        if not rules:
            return SILENT
        violations, asks, would = [], [], []
        reservations: list[Reservation] = []
        proofs: list[Rule | None] = []
        for rule in rules:
            finding, reservation = _answer(rule, case)
            if index.traces and rule.enforce and _traces(rule):
                proofs.append(rule if finding is None else None)
            if reservation is not None:
                reservations.append(reservation if rule.enforce else _observing(reservation))
            if finding is None:
                continue
            if not rule.enforce:
                would.append(rule.name)
            elif finding.effect == "ask":
                asks.append(_violation(rule, case, finding))
            else:
                violations.append(_violation(rule, case, finding))
        return Judgement(
            violations=tuple(violations),
            asks=tuple(asks),
            would=tuple(would),
            reservation=reduce(Reservation.joined, reservations, NOTHING),
            proven=None not in proofs and any(_speaks_of(rule, case) for rule in proofs),
        )

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """The windows that a judgement of `tool` reads.

        Raises PolicyDenied where a rule cannot name its own: unread, they would look empty.
        """
        rules = self.rules_for(tool)
        if not rules:
            return ()
        found: dict[Window, None] = {}
        for rule in rules:
            try:
                found.update(dict.fromkeys(rule.windows(tool, scope)))
            except Exception as error:
                if rule.enforce:
                    raise PolicyDenied(tool, (PolicyViolation(rule.name, "", _failed(error).reason),)) from None
        return tuple(found)

    def narrow(self, tool: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema shown to a model: what rules can never allow is cut away. A courtesy; every call is judged."""
        for rule in self.rules_for(tool):
            if rule.enforce:
                try:
                    schema = rule.narrow(schema)
                except Exception:  # noqa: S112 - what is shown may say too much; the call is judged all the same
                    continue
        return schema

    def rules_for(self, tool: str) -> tuple[Rule, ...]:
        """The rules that are asked of calls of `tool`, in order."""
        return self._index().rules_for(tool)

    def blanket_denied_tools(self, among: Iterable[str] | None = None) -> list[str]:
        """The tools that no call can be allowed of, sorted.

        Args:
            among: names to choose from, so that globs count; by default the names that rules spell out.
        """
        if among is None:
            return sorted({name for rule in self.rules if (name := _denied(rule)) is not None and not is_glob(name)})
        return sorted(
            tool
            for tool in set(among)
            if any((name := _denied(rule)) is not None and names_tool(name, tool) for rule in self.rules_for(tool))
        )

    def policy_names(self) -> list[str]:
        """All names in order of registration, duplicates included."""
        return [rule.name for rule in self.rules]

    def policy_details(self) -> list[tuple[str, str]]:
        """All names with their descriptions, in order of registration."""
        return [(rule.name, rule.description) for rule in self.rules]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in order of registration."""
        return self._index().rules

    @property
    def traces(self) -> bool:
        """Whether a rule asks where values came from, so that a session has to remember."""
        return self._index().traces

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self.rules

    def _keep(self, wanted: Callable[[Rule], bool]) -> int:
        with self._lock:
            before = len(self._rules)
            self._rules = [rule for rule in self._rules if wanted(rule)]
            self._built = None
            return before - len(self._rules)

    def _index(self) -> _Index:
        # Built once after a change: readers take the lock only then, and registering many rules stays linear.
        built = self._built
        if built is None:
            with self._lock:
                built = self._built
                if built is None:
                    built = self._built = _Index(tuple(self._rules))
        return built


class _Index:
    """An immutable moment of the engine: which rules there are, and which are asked of a tool."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        self.traces = any(map(_traces, rules))
        self._exact: dict[str, list[int]] = {}
        self._globs: list[tuple[int, str]] = []
        self._resolved: dict[str, tuple[Rule, ...]] = {}
        for position, rule in enumerate(rules):
            tools = (rule.tools,) if isinstance(rule.tools, str) else ("*",) if rule.tools is None else rule.tools
            for tool in tools:
                if is_glob(tool):
                    self._globs.append((position, tool))
                else:
                    self._exact.setdefault(tool, []).append(position)

    def rules_for(self, tool: str) -> tuple[Rule, ...]:
        found = self._resolved.get(tool)
        if found is None:
            positions = {position for position, glob in self._globs if names_tool(glob, tool)}
            found = tuple(self.rules[position] for position in sorted(positions.union(self._exact.get(tool, ()))))
            # A model may have made the name up: only what can be a tool's name is kept, and not without end.
            if is_identifier(tool):
                if len(self._resolved) >= _MAX_RESOLVED:
                    self._resolved.clear()
                self._resolved[tool] = found
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostRule:
    """A check registered in code: asked of every tool, known by its name."""

    name: str
    ask: Check
    description: str
    denies: str | None = None
    tools: ClassVar[None] = None
    enforce: ClassVar[bool] = True
    spec: ClassVar[None] = None

    def check(self, case: Case) -> Finding | None:
        reason = self.ask(case.action, case.state)
        if reason is None:
            return None
        return Finding(reason if isinstance(reason, str) else "the check returned neither a reason nor None")

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        return ()

    def reserve(self, case: Case) -> None:
        return None

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return schema


def _answer(rule: Rule, case: Case) -> tuple[Finding | None, Reservation | None]:
    """What `rule` objects, and what it reserves where the call can still pass; whatever it raises is an objection."""
    try:
        finding = rule.check(case)
        if finding is not None and (not rule.enforce or finding.effect != "ask"):
            return finding, None
        return finding, rule.reserve(case)
    except Exception as error:
        return _failed(error), None


def _traces(rule: Rule) -> bool:
    """Whether the rule asks where values came from."""
    return getattr(rule, "traces", False) is True


def _speaks_of(rule: Any, case: Case) -> bool:
    """Whether a rule about origins had a value to look at: of an absent one it proves nothing."""
    return bool(rule.speaks_of(case))


def _denied(rule: Rule) -> str | None:
    """The tool, or glob, that the rule says it refuses whatever the arguments."""
    denied: str | None = getattr(rule, "denies", None) if rule.enforce else None
    return denied


def _failed(error: Exception) -> Finding:
    # The type only: an error's text may quote the arguments.
    return Finding(f"the rule failed: {type(error).__name__}")


def _violation(rule: Rule, case: Case, finding: Finding) -> PolicyViolation:
    return PolicyViolation(rule.name, case.action.id, finding.reason)


def _observing(reservation: Reservation) -> Reservation:
    """A reservation that counts, so that a rule which is not enforced knows what it would do, and never refuses."""
    slots = tuple(replace(slot, limit=_UNLIMITED) for slot in reservation.slots)
    return Reservation(slots=slots, raises=reservation.raises)

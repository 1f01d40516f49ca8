"""Rules as they are registered and removed, while others judge by them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from guarded_core.ground.given import misplaced
from guarded_core.ground.violation import PolicyViolation
from guarded_core.rules.case import Action, AwaitedRule, Case, Finding, Rule, RuleLike, Scope, Window, completed
from guarded_core.rules.patterns import is_glob
from guarded_core.rules.ruleset import Judgement, RuleSet
from guarded_core.rules.state import StateStore

Check = Callable[[Action, StateStore], str | Awaitable[str | None] | None]
TIMEOUT = 5.0  # seconds


class PolicyEngine:
    """Rules in the order they were registered; safe to change in one thread while others judge.

    A judgement sees the rules of one moment. Its cost grows with the rules that name the tool, not with all rules.

    Args:
        rules: what it starts with.
    """

    def __init__(self, rules: Iterable[RuleLike] = ()) -> None:
        self._lock = threading.Lock()
        self._rules = [completed(rule) for rule in rules]
        self._built: RuleSet | None = RuleSet(tuple(self._rules))

    def add(self, rule: RuleLike) -> None:
        """Append a rule; one of the same name may be there already. Raises what the rule raises of what it says."""
        added = completed(rule)
        RuleSet((added,))  # a rule that cannot say what it is about is its author's mistake now, and no call's later
        with self._lock:
            self._rules.append(added)
            self._built = None

    def register(self, name: str, check: Check, description: str = "", *, timeout: float = TIMEOUT) -> None:
        """Append a check that is asked of every call: it returns why not, or None; raising is a violation too.

        Args:
            name: what violations are told by.
            check: takes the action and the application's facts. One that has to wait is ``async def``: all of those
                are awaited beside each other before the rules are judged, in a sync call in a thread of their own.
            description: one line for people.
            timeout: seconds that an async one may take; then the call is denied.
        """
        self.add(_host_rule(name, check, description, timeout))

    def register_tool_deny(
        self, name: str, tool: str, check: Check, description: str = "", *, timeout: float = TIMEOUT
    ) -> None:
        """`register`, plus the caller's word that the check refuses `tool` whatever the arguments: it can be hidden."""
        self.add(_host_rule(name, check, description, timeout, denies=tool))

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
        return self.rule_set.objections(Case(action=action, state=StateStore() if state is None else state))

    def judge(self, case: Case) -> Judgement:
        """What the rules say of `case`; pure."""
        return self.rule_set.judge(case)

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """The windows that a judgement of `tool` reads. Raises PolicyDenied where a rule cannot name its own."""
        return self.rule_set.windows(tool, scope)

    def narrow(self, tool: str, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema shown to a model: what rules can never allow is cut away. A courtesy; every call is judged."""
        return self.rule_set.narrow(tool, schema)

    def rules_for(self, tool: str) -> tuple[Rule, ...]:
        """The rules that are asked of calls of `tool`, in order."""
        return self.rule_set.rules_for(tool)

    def blanket_denied_tools(self, among: Iterable[str] | None = None) -> list[str]:
        """The tools that no call can be allowed of, sorted.

        Args:
            among: names to choose from, so that globs count; by default the names that rules spell out.
        """
        if among is None:
            spelled = {rule.denies for rule in self.rules if rule.enforce and rule.denies is not None}
            return sorted(name for name in spelled if not is_glob(name))
        rules = self.rule_set
        return sorted(tool for tool in set(among) if rules.hides(tool))

    def policy_names(self) -> list[str]:
        """All names in order of registration, duplicates included."""
        return [rule.name for rule in self.rules]

    def policy_details(self) -> list[tuple[str, str]]:
        """All names with their descriptions, in order of registration."""
        return [(rule.name, rule.description) for rule in self.rules]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, in order of registration."""
        return self.rule_set.rules

    @property
    def traces(self) -> bool:
        """Whether a rule asks where values came from, so that a session has to remember."""
        return self.rule_set.traces

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self.rules

    @property
    def rule_set(self) -> RuleSet:
        """The rules as they are now, which never change again."""
        # Built once after a change: readers take the lock only then, and registering many rules stays linear.
        built = self._built
        if built is None:
            with self._lock:
                built = self._built
                if built is None:
                    built = self._built = RuleSet(tuple(self._rules))
        return built

    def _keep(self, wanted: Callable[[Rule], bool]) -> int:
        with self._lock:
            before = len(self._rules)
            self._rules = [rule for rule in self._rules if wanted(rule)]
            self._built = None
            return before - len(self._rules)


def _host_rule(name: str, check: Check, description: str, timeout: float, denies: str | None = None) -> Rule:
    if isinstance(check, type) or not callable(check):
        raise misplaced("check", "a function of an Action and a StateStore", check)
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise misplaced("timeout", "a number of seconds", timeout)
    if inspect.iscoroutinefunction(check) or inspect.iscoroutinefunction(getattr(check, "__call__", None)):  # noqa: B004
        return _AwaitedHostRule(name=name, ask=check, description=description, denies=denies, timeout=timeout)
    return _HostRule(name=name, ask=check, description=description, denies=denies)


def _finding(reason: object) -> Finding | None:
    if reason is None:
        return None
    return Finding(reason if isinstance(reason, str) else "the check returned neither a reason nor None")


@dataclass(frozen=True, slots=True, kw_only=True)
class _HostRule(Rule):
    """A check registered in code: asked of every tool, known by its name."""

    name: str
    ask: Check
    description: str
    denies: str | None = None

    def check(self, case: Case) -> Finding | None:
        reason = self.ask(case.action, case.state)
        if inspect.iscoroutine(reason):
            reason.close()
            return Finding("the check returned what has to be awaited: register an async function")
        return _finding(reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _AwaitedHostRule(AwaitedRule):
    """One that has to wait."""

    name: str
    ask: Check
    description: str
    timeout: float
    denies: str | None = None

    async def answer(self, case: Case) -> Finding | None:
        reason: Any = self.ask(case.action, case.state)
        return _finding(await reason)

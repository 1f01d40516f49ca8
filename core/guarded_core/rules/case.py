"""What a rule is shown, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Literal, Protocol, cast

from guarded_core.ground.pointer import Param
from guarded_core.provenance.origin import NO_ORIGINS, Origins
from guarded_core.rules.state import StateStore
from guarded_core.rules.values import is_same
from guarded_core.tools.reading import UNKNOWN_TOOL, Reading

Effect = Literal["deny", "ask"]
Asks = Literal["never", "some", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something an agent wants to do; here always a tool call.

    Attributes:
        id: the guard's id of the call, empty outside the pipeline.
        type: kind of action, as the source system names them ("tool_call", "state_write", "state_read", "assertion").
        tool: the tool's name.
        parameters: the effective arguments; a rule reads them and changes nothing.
    """

    tool: str
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)
    id: str = ""
    type: str = "tool_call"

    @classmethod
    def tool_call(cls, tool: str, parameters: Mapping[str, Any] | None = None, *, id: str = "") -> Action:
        """The call of `tool` with these effective arguments."""
        return cls(tool=tool, parameters=parameters or {}, id=id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """For whom a window counts: the root of the delegation chain, so that a subagent shares its parent's sums.

    Attributes:
        principal: the root principal.
        session_id: the root session.
    """

    principal: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A sliding window that a store keeps a sum for.

    Attributes:
        key: its name in the store: rule, tool and scope.
        interval_ns: its length in nanoseconds.
    """

    key: str
    interval_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What a call takes from a window: the commit takes it only where the sum stays within the limit.

    Attributes:
        window: where it is taken from.
        amount: how much; 1 for a rate, the parameter's value for a sum.
        limit: what the window may hold at most.
        rule: name of the rule that asks for it, for the violation when it does not fit.
    """

    window: Window
    amount: Decimal
    limit: Decimal
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One judgement's facts: the action and one snapshot of what was.

    Attributes:
        action: the call, with effective arguments.
        written: the arguments as they were proposed, before defaults and the tool's own parser; None where they are
            the effective ones.
        reading: what the tool makes of values that stand in its arguments.
        scope: for whom windows count.
        used: sum of each window by its key; a window that is missing is empty.
        flags: what has happened in the session tree, as `raises` of earlier commits left it.
        state: the application's own facts.
        origins: where the session has seen values; outside one, nowhere.
        answers: what `AwaitedRule`s answered before the judgement, by the id of the rule.
        rewritten: what of `written` a rule might tell from the effective value.
    """

    action: Action
    written: Mapping[str, Any] | None = field(default=None, repr=False)
    reading: Reading = field(default=UNKNOWN_TOOL, repr=False)
    scope: Scope = field(default_factory=Scope)
    used: Mapping[str, Decimal] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    state: StateStore = field(default_factory=StateStore)
    origins: Origins = NO_ORIGINS
    answers: Mapping[int, Finding | None] = field(default_factory=dict, repr=False, compare=False)
    rewritten: Mapping[str, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        effective, rewritten = self.action.parameters, {}
        for name, value in (self.written or {}).items():
            if not (name in effective and is_same(value, effective[name])):
                rewritten[name] = value
        object.__setattr__(self, "rewritten", rewritten)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule's objection to a case.

    Attributes:
        reason: why, for the application and `explain`; never the offending value.
        effect: "deny" refuses the call, "ask" wants a person to approve it.
    """

    reason: str
    effect: Effect = "deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """What a call that passes must take or leave behind in the commit, re-checked there.

    Attributes:
        slots: amounts taken from windows.
        raises: flags that the call leaves on the session tree.
        forbids: flags whose presence refuses the call.
    """

    slots: tuple[Slot, ...] = ()
    raises: frozenset[str] = frozenset()
    forbids: frozenset[str] = frozenset()

    def joined(self, other: Reservation) -> Reservation:
        """Both together; rules that take the same amount from one window take it once, under the tighter limit."""
        if self is NOTHING or other is NOTHING:
            return other if self is NOTHING else self
        slots: dict[tuple[Window, Decimal], Slot] = {}
        for slot in (*self.slots, *other.slots):
            known = slots.setdefault((slot.window, slot.amount), slot)
            if slot.limit < known.limit:
                slots[slot.window, slot.amount] = slot
        return Reservation(
            slots=tuple(slots.values()),
            raises=self.raises | other.raises,
            forbids=self.forbids | other.forbids,
        )


NOTHING = Reservation()


class RuleLike(Protocol):
    """The least that a rule has; `Rule` has defaults for most of it, and for all that it may say of itself beside."""

    @property
    def name(self) -> str:
        """Such as ``deny_tool:deploy``; need not be unique."""

    @property
    def description(self) -> str:
        """One line for people."""

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        """An exact tool name, a glob such as ``mail_*``, several of them, or None for every tool."""

    @property
    def enforce(self) -> bool:
        """False records what it would have done, and does nothing."""

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """Its settings as JSON, for the policy's hash; None for a rule in code, which is hashed by its name."""

    def check(self, case: Case) -> Finding | None:
        """The objection to `case`, None where there is none."""

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """The windows whose sums `check` reads for calls of `tool`."""

    def reserve(self, case: Case) -> Reservation | None:
        """What a call that passes takes in the commit; None for a rule without memory."""

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema shown to a model, cut down to what this rule can allow; unchanged where it does not apply."""


class Rule(RuleLike, Protocol):
    """One rule. `check` is pure; whatever it raises counts as a violation.

    A rule of your own derives from this class, and needs no more than a `name` and a `check`. What it says of itself
    beside decides what coverage, the lint and a model are shown, and never whether a call may run.
    """

    __slots__ = ()

    @property
    def description(self) -> str:
        """One line for people."""
        return ""

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        """An exact tool name, a glob such as ``mail_*``, several of them, or None for every tool."""
        return None

    @property
    def enforce(self) -> bool:
        """False records what it would have done, and does nothing."""
        return True

    @property
    def spec(self) -> Mapping[str, Any] | None:
        """Its settings as JSON, for the policy's hash; None for a rule in code, which is hashed by its name."""
        return None

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        """The windows whose sums `check` reads for calls of `tool`."""
        return ()

    def reserve(self, case: Case) -> Reservation | None:
        """What a call that passes takes in the commit; None for a rule without memory."""
        return None

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema shown to a model, cut down to what this rule can allow; unchanged where it does not apply."""
        return schema

    @property
    def denies(self) -> str | None:
        """The tool, or glob, of which it refuses every call, so that a model need not be shown it."""
        return None

    @property
    def refuses(self) -> bool:
        """Whether there are calls that it refuses."""
        return True

    @property
    def asks(self) -> Asks:
        """Whether it wants a person to approve no call, some of them, or every one."""
        return "never"

    @property
    def error(self) -> str:
        """Why it refuses every call, where that is a mistake in it, such as a pattern that does not compile."""
        return ""

    @property
    def traces(self) -> bool:
        """Whether it asks where values came from, for which a session has to remember what it saw."""
        return False

    def speaks_of(self, case: Case) -> bool:
        """Whether a rule that traces had a value to look at; of an absent one it proves nothing."""
        return False

    @property
    def parameter(self) -> Param | None:
        """The one parameter that it is about."""
        return None

    @property
    def requires_value(self) -> bool:
        """Whether it refuses a call that leaves the parameter out."""
        return False

    @property
    def counts(self) -> bool:
        """Whether it compares the parameter as a number."""
        return False

    @property
    def only(self) -> tuple[Any, ...] | None:
        """The values besides which the parameter may have no other; None where they cannot be listed."""
        return None

    @property
    def bounds(self) -> tuple[int | float, ...]:
        """The ends, themselves allowed, of the one range of numbers that it allows; empty where it has none."""
        return ()


class AwaitedRule(Rule, Protocol):
    """A rule that has to wait for its answer: of a service, say. It is asked before the others, beside its like.

    Attributes:
        timeout: seconds that it may take; then the call is denied.
    """

    __slots__ = ()

    timeout: float

    async def answer(self, case: Case) -> Finding | None:
        """The objection to `case`; whatever it raises is one."""

    def check(self, case: Case) -> Finding | None:
        """What it answered. Raises LookupError where nobody asked it, as in `PolicyEngine.check`."""
        return case.answers[id(self)]


_SAYS = (
    "denies", "refuses", "asks", "error", "traces", "parameter", "requires_value", "counts", "only", "bounds",
    "speaks_of",
)  # fmt: skip


class _Completed(Rule):
    """A rule that does not derive from `Rule`: what it leaves unsaid has the default. It is asked once, when added."""

    __slots__ = ("_rule", *_SAYS)

    def __init__(self, rule: RuleLike) -> None:
        self._rule = rule
        for name in _SAYS:
            setattr(self, name, getattr(rule, name, getattr(_UNSAID, name)))

    @property
    def name(self) -> str:
        return self._rule.name

    @property
    def description(self) -> str:
        return self._rule.description

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        return self._rule.tools

    @property
    def enforce(self) -> bool:
        return self._rule.enforce

    @property
    def spec(self) -> Mapping[str, Any] | None:
        return self._rule.spec

    def check(self, case: Case) -> Finding | None:
        return self._rule.check(case)

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        return self._rule.windows(tool, scope)

    def reserve(self, case: Case) -> Reservation | None:
        return self._rule.reserve(case)

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._rule.narrow(schema)

    def __repr__(self) -> str:
        return repr(self._rule)


class _Unsaid(Rule):
    __slots__ = ()
    name: ClassVar[str] = ""

    def check(self, case: Case) -> None:
        return None


_UNSAID = _Unsaid()


def completed(rule: RuleLike) -> Rule:
    """The rule itself where it derives from `Rule`; otherwise one that stands for it and has the defaults."""
    return cast(Rule, rule) if Rule in type(rule).__mro__ else _Completed(rule)

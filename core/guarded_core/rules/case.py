"""What a rule is shown, and what it may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, Protocol

from guarded_core.provenance.origin import NO_ORIGINS, Origins
from guarded_core.rules.state import StateStore

Effect = Literal["deny", "ask"]


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
        scope: for whom windows count.
        used: sum of each window by its key; a window that is missing is empty.
        flags: what has happened in the session tree, as `raises` of earlier commits left it.
        state: the application's own facts.
        origins: where the session has seen values; outside one, nowhere.
    """

    action: Action
    scope: Scope = field(default_factory=Scope)
    used: Mapping[str, Decimal] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    state: StateStore = field(default_factory=StateStore)
    origins: Origins = NO_ORIGINS


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


class Rule(Protocol):
    """One rule. `check` is pure; whatever it raises counts as a violation."""

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

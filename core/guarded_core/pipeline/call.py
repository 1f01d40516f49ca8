"""One call: what an entry proposes, and what it is judged by."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from guarded_core.ground.errors import ToolExecutionError, Unauthorized
from guarded_core.ground.struct import struct
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.ruleset import RuleSet
from guarded_core.rules.state import StateStore
from guarded_core.session import Nobody, ToolExecutionContext
from guarded_core.store.ledger import CallKey
from guarded_core.tools.port import ToolPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """What every call of a guard is judged by.

    Attributes:
        policy: the policy in force now; read once a judgement.
        engine: rules that the application registered in code.
        state: the application's own facts.
        unknown: the error for a name without a tool; a guard uses Unauthorized, so that nothing is told apart.
        asks: whether somebody is there to be asked.
        digest_key: keys the payload digests in the trail; None leaves them out.
        max_denials: denials after which a session is over.
        max_pending: approval requests a session may have waiting.
        told: what the application was warned of, once.
        trace_id: the current trace, where there is telemetry.
    """

    policy: Callable[[], ToolExecutionPolicy]
    engine: PolicyEngine = field(default_factory=PolicyEngine)
    state: StateStore = field(default_factory=StateStore)
    unknown: type[ToolExecutionError] = Unauthorized
    asks: bool = False
    digest_key: bytes | None = None
    max_denials: int = 64
    max_pending: int = 16
    told: set[str] = field(default_factory=set)
    trace_id: Callable[[], str | None] | None = None

    def is_news(self, what: str) -> bool:
        """Whether the application was not warned of it before; from now on it was."""
        if what in self.told:
            return False
        self.told.add(what)
        return True

    def rules(self, policy: ToolExecutionPolicy, context: ToolExecutionContext | None) -> RuleSet:
        """The rules of this moment for a call in `context` under `policy`."""
        session = None if context is None else context.rules.rule_set
        return RuleSet.in_force(session=session, policy=policy.engine.rule_set, code=self.engine.rule_set)


_MAX_NOTE = 2_000


def edit_note(tool: str, ran: dict[str, Any]) -> str:
    """What a model is told where code, or a person, changed its call: what ran instead; the end of much is left out."""
    arguments = json.dumps(ran, ensure_ascii=False, separators=(",", ":"))
    if len(arguments) > _MAX_NOTE:
        arguments = arguments[:_MAX_NOTE] + "…"
    return (
        f"Note: your call was changed before it ran; do not repeat it. What ran is {tool} with these arguments: "
        f"{arguments}"
    )


@struct
class Call:
    """One proposed call, as an entry hands it in.

    Attributes:
        tool: the name, as frozen at registration or as the model gave it.
        port: the registered tool of exactly that name, which this entry can run; None where it has none.
        arguments: what the model sent: untrusted.
        context: who calls; None where nobody does.
        no_context: why nobody makes it, where that is known.
        bound: what the port keeps of this very call, such as a framework's runtime; only the port looks into it.
        injected: what code gives of the arguments that are not the model's, as far as it is known before the call.
        key: the call's durable key, where the framework gives one.
        keyless: why it has none, where a framework makes it that would run it again: what an application can do.
        is_lost: whether it is another entry of a call that had no key then, and may have run: only what does no harm
            twice may run.
        notes: what the trail says beside the call, as codes of Noted events: stripped arguments.
        asks: why the entry has a person approve it, beside what the policy says.
    """

    tool: str
    port: ToolPort | None
    arguments: object
    context: ToolExecutionContext | None
    no_context: Nobody | None = None
    bound: Any = None
    injected: Mapping[str, Any] | None = None
    key: CallKey | None = None
    keyless: str | None = None
    is_lost: bool = False
    notes: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()

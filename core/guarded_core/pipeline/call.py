"""One call: what an entry proposes, what it is judged by, and what is known of it so far."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.bounds import MAX_REASON
from guarded_core.ground.errors import ToolExecutionError, Unauthorized
from guarded_core.ground.ids import new_id
from guarded_core.ground.payload import Payload, keyed_digest
from guarded_core.ground.struct import struct
from guarded_core.ground.violation import PolicyViolation
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.ruleset import RuleSet
from guarded_core.rules.state import StateStore
from guarded_core.session import ToolExecutionContext
from guarded_core.store.ledger import CallKey
from guarded_core.tools.port import ToolPort
from guarded_core.tools.spec import ToolRisk, ToolSpec, recorded_name


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
    """

    policy: Callable[[], ToolExecutionPolicy]
    engine: PolicyEngine = field(default_factory=PolicyEngine)
    state: StateStore = field(default_factory=StateStore)
    unknown: type[ToolExecutionError] = Unauthorized
    asks: bool = False
    digest_key: bytes | None = None
    max_denials: int = 64
    max_pending: int = 16

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
        no_context: why there is no context, where more is to be said than that no session is open.
        bound: what the port keeps of this very call, such as a framework's runtime; only the port looks into it.
        injected: what code gives of the arguments that are not the model's, as far as it is known before the call.
        key: the call's durable key, where the framework gives one.
        notes: what the trail says beside the call, as codes of Noted events: stripped arguments.
    """

    tool: str
    port: ToolPort | None
    arguments: object
    context: ToolExecutionContext | None
    no_context: str | None = None
    bound: Any = None
    injected: Mapping[str, Any] | None = None
    key: CallKey | None = None
    notes: tuple[str, ...] = ()

    @property
    def spec(self) -> ToolSpec | None:
        """The tool, as it was registered."""
        return None if self.port is None else self.port.spec


@dataclass(slots=True, kw_only=True)
class Dossier:
    """What is known of a call so far; its events are written from it.

    Attributes:
        edit: the request with the arguments that a person put in the place of this call's.
        written: the arguments before defaults and the tool's own parser.
        edits: how often somebody did, while this entry waited.
        is_edited: whether `effective` is a person's.
    """

    call: Call
    authority: Authority
    call_id: str
    tool: str
    policy: ToolExecutionPolicy | None = None
    spec: ToolSpec | None = None
    risk: ToolRisk | None = None
    written: Payload | None = None
    effective: Payload | None = None
    raw_digest: str = ""
    edit: ApprovalRequest | None = None
    edits: int = 0
    is_edited: bool = False
    rules: tuple[str, ...] = ()
    would: tuple[str, ...] = ()
    asks: tuple[PolicyViolation, ...] = ()
    requests: tuple[ApprovalRequest, ...] = ()
    notes: list[str] = field(default_factory=list)
    holds_claim: bool = False

    def call_keys(self) -> tuple[str, str] | None:
        """The call's keys in the ledger; None where it has none."""
        key, context = self.call.key, self.call.context
        if key is None or context is None or not self.raw_digest:
            return None
        return (
            key.key(context.chain, self.tool, self.raw_digest),
            key.twin_key(context.chain, context.session_id, self.tool, self.raw_digest),
        )

    def event(self, outcome: Outcome, *, code: str | None = None, error_type: str | None = None) -> AuditEvent:
        """The event of what just happened."""
        context, key = self.call.context, self.authority.digest_key
        votes = [vote for request in self.requests for vote in request.votes if vote.approve] if self.requests else []
        return AuditEvent(
            outcome=outcome,
            time_ns=time.time_ns(),
            call_id=self.call_id,
            tool=self.tool,
            principal=context.principal if context else "",
            on_behalf_of=context.on_behalf_of if context else (),
            session_id=context.session_id if context else "",
            risk=self.risk,
            code=code,
            rules=self.rules,
            policy=self.policy.hash if self.policy else None,
            fingerprint=self.spec.fingerprint if self.spec else None,
            request_id=self.requests[-1].id if self.requests else None,
            approved_by=tuple([vote.by for vote in votes]),
            approval_reason=_joined(vote.reason for vote in votes) if votes else None,
            payload_digest=keyed_digest(key, self.effective.canonical) if key and self.effective else None,
            error_type=error_type,
        )


def open_dossier(call: Call, authority: Authority) -> Dossier:
    """A fresh dossier for `call`."""
    tool = recorded_name(call.tool) if call.port is None else call.port.spec.name
    return Dossier(call=call, authority=authority, call_id=new_id(), tool=tool, notes=list(call.notes))


def _joined(reasons: Iterable[str]) -> str | None:
    text = "\n".join(reason for reason in reasons if reason)
    return text.encode("utf-8", "replace")[:MAX_REASON].decode("utf-8", "ignore") or None

"""What goes on record of a call: who calls what, what judging it found, and the events that say so."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from guarded_core.approvals.grant import Grant
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.bounds import MAX_LIST, MAX_NAME, MAX_REASON
from guarded_core.ground.ids import new_id
from guarded_core.ground.payload import Payload, keyed_digest
from guarded_core.ground.struct import struct
from guarded_core.ground.violation import PolicyViolation
from guarded_core.pipeline.call import Authority, Call
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.tools.spec import ToolRisk, ToolSpec, recorded_name


@dataclass(slots=True, kw_only=True)
class Found:
    """What judging a call has found, as far as it came; where it is judged again, what it begins with.

    Attributes:
        call_id: the guard's id of the call; of one that is entered again, the id it had.
        raw_digest: of the arguments as the model sent them; empty where they could not be bounded.
        written: the arguments before defaults and the tool's own parser.
        effective: what rules, people and the tool see.
        edit: the request with the arguments that a person put in the place of this call's.
        edits: how often somebody did, while this entry waited.
        is_edited: whether `effective` is a person's.
        requests: the requests that the judgement turned on.
        refusing: names of the rules that refuse.
        would: names of rules that are not enforced and would have refused.
        asks: rules that want a person.
        traced: names of those that ask because of where a value came from.
    """

    call_id: str
    policy: ToolExecutionPolicy | None = None
    spec: ToolSpec | None = None
    risk: ToolRisk | None = None
    raw_digest: str = ""
    written: Payload | None = None
    effective: Payload | None = None
    edit: ApprovalRequest | None = None
    edits: int = 0
    is_edited: bool = False
    requests: tuple[ApprovalRequest, ...] = ()
    refusing: tuple[str, ...] = ()
    would: tuple[str, ...] = ()
    asks: tuple[PolicyViolation, ...] = ()
    traced: frozenset[str] = frozenset()


@struct
class CallRecord:
    """One call on its way; its events are written from it.

    Attributes:
        call: as it was proposed.
        authority: what it is judged by.
        call_id: the guard's id of this try.
        tool: the name as records and errors carry it.
    """

    call: Call
    authority: Authority
    call_id: str
    tool: str

    def ledger_key(self, found: Found) -> str | None:
        """The call's key in the ledger; None where it has none."""
        key, context = self.call.key, self.call.context
        if key is None or context is None or not found.raw_digest:
            return None
        return key.key(context.chain, self.tool, found.raw_digest)

    def event(
        self,
        outcome: Outcome,
        found: Found,
        *,
        code: str | None = None,
        error_type: str | None = None,
        rules: tuple[str, ...] = (),
        requests: tuple[ApprovalRequest, ...] = (),
        grant: Grant | None = None,
    ) -> AuditEvent:
        """The event of what just happened.

        Args:
            outcome: what happened.
            found: what is known of the call.
            code, error_type: see `AuditEvent`.
            rules: names of the rules that it is about.
            requests: the approval requests that it is about; the last one is named, the votes of all are.
            grant: the grant that it used.
        """
        context, key = self.call.context, self.authority.digest_key
        votes = [vote for request in requests for vote in request.votes if vote.approve] if requests else []
        votes += grant.votes if grant else ()
        return AuditEvent(
            outcome=outcome,
            time_ns=time.time_ns(),
            call_id=found.call_id,
            tool=self.tool,
            principal=context.principal if context else "",
            on_behalf_of=context.on_behalf_of if context else (),
            session_id=context.session_id if context else "",
            risk=found.risk,
            code=code,
            rules=_told(rules) if rules else (),
            policy=found.policy.hash if found.policy else None,
            fingerprint=found.spec.fingerprint if found.spec else None,
            request_id=requests[-1].id if requests else None,
            grant_id=grant.id if grant else None,
            approved_by=tuple([vote.by for vote in votes]),
            approval_reason=_joined(vote.reason for vote in votes) if votes else None,
            payload_digest=keyed_digest(key, found.effective.canonical) if key and found.effective else None,
            error_type=error_type,
            trace_id=self.authority.trace_id() if self.authority.trace_id else None,
        )


def open_record(call: Call, authority: Authority) -> CallRecord:
    """A fresh record of `call`."""
    tool = recorded_name(call.tool) if call.port is None else call.port.spec.name
    return CallRecord(call=call, authority=authority, call_id=new_id(), tool=tool)


_MAX_RULES = 4_096  # bytes of the names in an event: all of it has to fit into a line of a trail


def _told(rules: tuple[str, ...]) -> tuple[str, ...]:
    """The names as an event carries them: the first that fit, and how many more there are.

    However many rules object: a denial that could not be written would not be counted either.
    """
    names: list[str] = []
    left = _MAX_RULES
    for name in rules:
        cut = name.encode("utf-8", "replace")[:MAX_NAME].decode("utf-8", "ignore")
        left -= len(cut.encode("utf-8")) + 3
        if left < 0 or len(names) == MAX_LIST - 1:
            names.append(f"and {len(rules) - len(names)} more")
            break
        names.append(cut)
    return tuple(names)


def _joined(reasons: Iterable[str]) -> str | None:
    text = "\n".join(reason for reason in reasons if reason)
    return text.encode("utf-8", "replace")[:MAX_REASON].decode("utf-8", "ignore") or None

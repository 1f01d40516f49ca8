"""Step 8 of a call's way: the approval or the grant that covers it, or the question for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from guarded_core.approvals.completion import is_completed
from guarded_core.approvals.grantable import Offer
from guarded_core.approvals.request import (
    EDITED,
    OUTCOME_UNKNOWN,
    RAISED_BEFORE,
    SET_BY_APPLICATION,
    ApprovalRequest,
    RequestState,
)
from guarded_core.ground.errors import ApprovalPayloadMismatch
from guarded_core.ground.ids import new_id
from guarded_core.pipeline.record import CallRecord, Found
from guarded_core.pipeline.verdict import Facts, Verdict, refused
from guarded_core.policy.policy import ToolSettings
from guarded_core.rules.case import Reservation
from guarded_core.store.ledger import CallState
from guarded_core.tools.spec import ToolRisk


def approval(
    record: CallRecord, found: Found, facts: Facts, reservation: Reservation, reasons: tuple[str, ...]
) -> Verdict:
    """Step 8: where something asks for it, an approval of exactly this, or the request for one; a no is final."""
    if not reasons and not facts.snapshot.requests:
        return Verdict(found=found, facts=facts, reservation=reservation)
    wanted = _request(record, found, facts, reasons)
    live = [request for request in facts.snapshot.requests if request.is_live(facts.snapshot.now_ns)]
    covering = [request for request in live if request.covers(wanted)]
    granted = _granted(covering, facts.settings, facts.context.chain)
    if granted:
        used = granted if reasons else ()
        return Verdict(found=found, facts=facts, reservation=reservation, granted=used)
    for request in live:
        if request.state is RequestState.REJECTED and request.is_about(wanted):
            found.requests = (request,)
            raise refused(record.tool, request)
    if not reasons:
        return Verdict(found=found, facts=facts, reservation=reservation)
    # What a person was asked about and changed is not what they granted.
    grants = () if found.is_edited else facts.snapshot.grants
    uses = (granted.use(wanted, facts.reading, facts.snapshot.now_ns) for granted in grants)
    if (use := next(filter(None, uses), None)) is not None:
        return Verdict(found=found, facts=facts, reservation=reservation, grant=use)
    for request in covering:
        if request.state is RequestState.PENDING:
            return Verdict(found=found, facts=facts, reservation=reservation, ask=request)
    if not record.authority.asks and any(request.approves_another_payload(wanted) for request in live):
        raise ApprovalPayloadMismatch(record.tool)
    edit = found.edit
    if edit is not None and edit in live and is_completed(edit, wanted, facts.spec.schema):
        wanted = replace(wanted, votes=edit.votes, state=edit.state)
    return Verdict(found=found, facts=facts, reservation=reservation, ask=wanted, is_new=True)


def doubts(facts: Facts) -> tuple[str, ...]:
    """Why a person is asked about a call that is equal to one that may have had its effect."""
    state = facts.snapshot.doubtful.get(facts.effective.digest)
    if state is None or facts.may_run_again:
        return ()
    if state is CallState.UNKNOWN:
        return (OUTCOME_UNKNOWN,)
    return (RAISED_BEFORE,) if facts.risk.needs_approval else ()


def _written(found: Found, facts: Facts) -> Any:
    """What the model sent, where it is not what a person is shown."""
    if found.edit is not None:
        return found.edit.written
    return None if found.written is None or found.written.digest == facts.effective.digest else found.written.copy()


def _request(record: CallRecord, found: Found, facts: Facts, reasons: tuple[str, ...]) -> ApprovalRequest:
    context, settings, now_ns = facts.context, facts.settings, facts.snapshot.now_ns
    hidden = facts.port.set_by_application.difference(settings.binds)
    return ApprovalRequest(
        id=new_id(),
        tool=record.tool,
        digest=facts.effective.digest,
        fingerprint=facts.spec.fingerprint,
        policy=facts.policy.tool_hash(record.tool),
        principal=context.principal,
        on_behalf_of=context.on_behalf_of,
        session_id=context.session_id,
        call_key=record.ledger_key(found),
        tool_call_id=record.call.key.tool_call_id if record.call.key else None,
        risk=facts.risk,
        reasons=reasons,
        arguments=facts.effective.copy() | dict.fromkeys(hidden, SET_BY_APPLICATION),
        written=_written(found, facts),
        changed_from=found.edit.changed_from if found.edit else None,
        grantable=_grantable(found, facts, reasons),
        required=settings.approvals,
        self_approval=settings.self_approval,
        replaces=found.edit.id if found.edit else None,
        created_ns=now_ns,
        expires_ns=now_ns + settings.expires_seconds * 1_000_000_000,
    )


_EACH_TIME = frozenset({OUTCOME_UNKNOWN, RAISED_BEFORE, EDITED})


def _grantable(found: Found, facts: Facts, reasons: tuple[str, ...]) -> Offer | None:
    """What may be granted beside the call: not what is asked because of where a value came from, or out of doubt."""
    limits = facts.settings.grant
    answered = tuple([reason for reason in reasons if reason not in found.traced and reason not in _EACH_TIME])
    if limits is None or not answered:
        return None
    return Offer(limits.fixed() if facts.risk is ToolRisk.DESTRUCTIVE else limits, answered)


def _granted(
    covering: list[ApprovalRequest], settings: ToolSettings, chain: tuple[str, ...]
) -> tuple[ApprovalRequest, ...]:
    """The approved requests that together carry enough distinct people; empty where they do not."""
    people: set[str] = set()
    chosen = []
    for request in covering:
        if request.state is not RequestState.APPROVED:
            continue
        approvers = {by for by in request.approvers if settings.self_approval or by not in chain}
        if approvers - people:
            people |= approvers
            chosen.append(request)
        if len(people) >= settings.approvals:
            return tuple(chosen)
    return ()

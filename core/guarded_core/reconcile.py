"""A person's word on a call whose outcome is unknown."""

from __future__ import annotations

from typing import Literal

from guarded_core.approval import check_text
from guarded_core.audit.event import MAX_PRINCIPAL, MAX_REASON, AuditEvent, Outcome
from guarded_core.audit.sink import ToolAuditSink
from guarded_core.errors import GuardConfigurationError
from guarded_core.ledger import CallState
from guarded_core.store.base import Settlement, Store


def reconcile(
    store: Store,
    sink: ToolAuditSink | None,
    call_id: str,
    outcome: Literal["succeeded", "failed"],
    *,
    by: str,
    reason: str,
) -> None:
    """Put what became of the call into ledger and trail; see `Guard.reconcile`."""
    check_text(by, MAX_PRINCIPAL, "who says so")
    if reason:
        check_text(reason, MAX_REASON, "the reason")
    if outcome not in ("succeeded", "failed"):
        raise GuardConfigurationError('outcome is "succeeded" or "failed"')
    entry = store.entry(call_id)
    if entry is None or entry.state not in (CallState.CLAIMED, CallState.UNKNOWN):
        raise GuardConfigurationError("the ledger has no call of that id whose outcome is unknown")
    event = AuditEvent(
        # A call without any end gets its one terminal event; one that ended as unknown has had it.
        outcome=Outcome.NOTED if entry.state is CallState.UNKNOWN else Outcome(outcome),
        time_ns=store.now_ns(),
        call_id=call_id,
        tool=entry.tool,
        principal=entry.principal,
        session_id=entry.session_id,
        code=f"reconciled_{outcome}",
        approved_by=(by,),
        approval_reason=reason or None,
    )
    state = CallState.DONE if outcome == "succeeded" else CallState.FAILED
    store.settle(Settlement(event=event, claimed=True, state=state))
    if sink is not None:
        sink.append(event)

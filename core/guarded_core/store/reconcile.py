"""A person's word on a call of which nobody knows what it did, told to ledger and trail."""

from __future__ import annotations

from typing import Literal

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.reconcile import RECONCILING, reconciled
from guarded_core.audit.sink import ToolAuditSink
from guarded_core.audit.trail import Trail
from guarded_core.ground.bounds import MAX_REASON, check_text, identity
from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.store.base import Settlement, Store
from guarded_core.store.ledger import UNSETTLED, CallState

_STATES = {
    Outcome.SUCCEEDED: CallState.DONE,
    Outcome.FAILED: CallState.NOT_EXECUTED,  # whoever says so says that it had no effect: it may be tried again
    Outcome.UNKNOWN: CallState.UNKNOWN,
}


def reconcile(
    store: Store,
    sink: ToolAuditSink | None,
    call_id: str,
    outcome: Literal["succeeded", "failed"],
    *,
    by: str,
    reason: str,
) -> None:
    """Put what became of a call that the ledger has into ledger and trail; see `Guard.reconcile`."""
    identity(by, "who says so")
    if reason:
        check_text(reason, MAX_REASON, "the reason")
    if outcome not in ("succeeded", "failed"):
        raise GuardConfigurationError('outcome is "succeeded" or "failed"')
    with RECONCILING:
        entry = store.entry(call_id)
        if entry is None or entry.state not in UNSETTLED:
            raise GuardConfigurationError("the ledger has no call of that id whose outcome is unknown, or that raised")
        event = AuditEvent(
            # A call without any end gets its one terminal event; one that ended has had it.
            outcome=Outcome(outcome) if entry.state is CallState.CLAIMED else Outcome.NOTED,
            time_ns=store.now_ns(),
            call_id=call_id,
            tool=entry.tool,
            principal=entry.principal,
            on_behalf_of=entry.chain[:-1],
            session_id=entry.session_id,
            code=f"reconciled_{outcome}",
            approved_by=(by,),
            approval_reason=reason or None,
        )
        store.settle(Settlement(event=event, claimed=True, state=_STATES[Outcome(outcome)]))
        if sink is not None:
            sink.append(event)


def reconcile_kept(store: Store, trail: Trail, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
    """Put what became of a call into the trail that a store keeps, and into its ledger, which may not have the call.

    Args:
        store: whose transaction takes both.
        trail: its own.
        call_id, outcome, by, reason: as of `Trail.reconcile`.

    Raises:
        ToolAuditTrailError: "not_unsettled", "invalid_event"; "already_ended": it has just ended by itself.
    """
    with RECONCILING:
        entry = store.entry(call_id)
        waits = entry is not None and entry.state in UNSETTLED
        event = reconciled(
            trail.events(call_id=call_id),
            outcome,
            by=by,
            reason=reason,
            time_ns=store.now_ns(),
            is_doubtful=waits,
        )
        store.settle(Settlement(event=event, claimed=waits, state=_STATES[outcome]))
    return event

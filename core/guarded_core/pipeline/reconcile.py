"""A person's word on a call whose outcome is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.sink import ToolAuditSink
from guarded_core.audit.verify import settled
from guarded_core.ground.bounds import MAX_REASON, check_text, identity
from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.store.base import Settlement, Store
from guarded_core.store.ledger import UNSETTLED, CallState

if TYPE_CHECKING:
    from guarded_core.store.sql import SqlStore


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
    identity(by, "who says so")
    if reason:
        check_text(reason, MAX_REASON, "the reason")
    if outcome not in ("succeeded", "failed"):
        raise GuardConfigurationError('outcome is "succeeded" or "failed"')
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


def settle_abandoned(store: SqlStore, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
    """Record what somebody found out about a call that a crash left without an outcome.

    Args:
        store: whose trail has it.
        call_id: of an unsettled call, whose process is no longer running it.
        outcome: Succeeded, Failed, or Unknown where it cannot be found out.
        by: who says so.
        reason: how they know.

    Raises:
        ToolAuditTrailError: "not_unsettled", "already_ended", "invalid_event", as of a trail in a file.
    """
    event = settled(store.trail().unsettled, call_id, outcome, by=by, reason=reason, time_ns=store.now_ns())
    entry = store.entry(call_id)
    claimed = entry is not None and entry.state is CallState.CLAIMED
    store.settle(Settlement(event=event, claimed=claimed, state=_STATES[outcome]))
    return event


_STATES = {
    Outcome.SUCCEEDED: CallState.DONE,
    Outcome.FAILED: CallState.NOT_EXECUTED,  # whoever says so says that it had no effect: it may be tried again
    Outcome.UNKNOWN: CallState.UNKNOWN,
}

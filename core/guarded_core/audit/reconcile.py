"""A person's word on a call whose outcome is not known; how a call ends by itself, the pipeline settles."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace

from guarded_core.audit.event import TERMINAL, AuditEvent, Outcome
from guarded_core.ground.errors import ToolAuditTrailError

RECONCILED = "reconciled"

# Two people of one process do not both find a call without an outcome, and both give it one.
RECONCILING = threading.Lock()


def check_word(outcome: Outcome | str, by: str, reason: str) -> Outcome:
    """The outcome that is said. Raises ToolAuditTrailError: "invalid_event", for none, or blank texts."""
    if outcome not in TERMINAL or not by.strip() or not reason.strip():
        raise ToolAuditTrailError("invalid_event", "it takes a final outcome, who says so, and why")
    return Outcome(outcome)


def reconciled(
    of_call: Iterable[AuditEvent], outcome: Outcome, *, by: str, reason: str, time_ns: int, is_doubtful: bool = False
) -> AuditEvent:
    """The event that says what became of a call: its one terminal event, or a Noted one where that said Unknown.

    Args:
        of_call: all its events.
        outcome: what somebody found out.
        by: who.
        reason: how they know; may be empty.
        time_ns: now.
        is_doubtful: whether the ledger waits for this word, whatever the trail says.

    Raises:
        ToolAuditTrailError: "not_unsettled": its outcome is known; "invalid_event": a text is too long.
    """
    begun: AuditEvent | None = None
    ended: AuditEvent | None = None
    said = False
    for event in of_call:
        if event.outcome is Outcome.AUTHORIZED:
            begun = event
        elif event.outcome.is_terminal:
            ended = event
        said = said or (event.code or "").startswith(f"{RECONCILED}_")
    is_new = ended is None or (outcome is not Outcome.UNKNOWN and (is_doubtful or _is_open(ended, said)))
    if begun is None or not is_new:
        raise ToolAuditTrailError("not_unsettled", "no call of that id waits for an outcome")
    found = replace(
        begun,
        # Exactly one terminal event for each Authorized one.
        outcome=outcome if ended is None else Outcome.NOTED,
        time_ns=time_ns,
        code=RECONCILED if ended is None else f"{RECONCILED}_{outcome}",
        approved_by=(by,),
        approval_reason=reason or None,
    )
    try:
        found.check()
    except ValueError as error:
        raise ToolAuditTrailError("invalid_event", str(error)) from None
    return found


def _is_open(ended: AuditEvent, said: bool) -> bool:
    return ended.outcome is Outcome.UNKNOWN and not said

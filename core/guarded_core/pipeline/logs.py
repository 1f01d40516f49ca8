"""What the application's log says of calls, beside the trail: names, codes and ids; no payload, no person."""

from __future__ import annotations

import logging
from contextlib import suppress

from guarded_core.audit.event import AuditEvent, Outcome

_log = logging.getLogger(__name__)

_LEVELS = {
    Outcome.DENIED: logging.INFO,
    Outcome.ASKED: logging.INFO,
    Outcome.NOTED: logging.INFO,
    Outcome.AUTHORIZED: logging.DEBUG,
    Outcome.SUSPENDED: logging.DEBUG,
    Outcome.RESUMED: logging.DEBUG,
    Outcome.SUCCEEDED: logging.DEBUG,
    Outcome.FAILED: logging.ERROR,
    Outcome.UNKNOWN: logging.ERROR,
}


def log_event(event: AuditEvent) -> None:
    """Say it once more to ``guarded_core.pipeline.logs``, with its fields as ``guard_…`` of the log record.

    What a handler or a filter of the application raises is not the call's fault, and does not reach it.
    """
    level = logging.WARNING if event.code == "would_deny" else _LEVELS[event.outcome]
    if not _log.isEnabledFor(level):
        return
    about = ", ".join(part for part in (event.code, event.error_type, *event.rules) if part)
    fields = {
        "guard_outcome": event.outcome.value,
        "guard_tool": event.tool,
        "guard_call_id": event.call_id,
        "guard_code": event.code,
        "guard_rules": list(event.rules),
        "guard_policy": event.policy,
        "guard_request_id": event.request_id,
        "guard_error_type": event.error_type,
        "guard_count": event.count,
    }
    said = f"{event.outcome.value} ({about})" if about else event.outcome.value
    with suppress(Exception):
        _log.log(level, "%s: %s, call %s", event.tool, said, event.call_id, extra=fields)

"""How the events of a trail are shown, as tables and cards."""

from __future__ import annotations

from collections.abc import Iterable

from guarded_core.audit.event import AuditEvent
from guarded_core.display.card import Card, Cell, Grid, Tone, plain
from guarded_core.display.text import principal_text, time_text
from guarded_core.ground.wording import counted

OUTCOMES: dict[str, Tone] = {
    "denied": "bad",
    "asked": "wait",
    "authorized": "info",
    "suspended": "wait",
    "resumed": "info",
    "succeeded": "good",
    "failed": "bad",
    "unknown": "unsure",
    "noted": "quiet",
}
EVENT_COLUMNS = ("no.", "time", "outcome", "tool", "principal", "code", "call", "approved by", "reason")
SHORT_ID = 8


def events_grid(records: Iterable[tuple[int, AuditEvent]], *, ids: int | None = None) -> Grid:
    """Numbered events as a table; of call ids, the first `ids` digits."""
    return Grid(EVENT_COLUMNS, tuple(_event_row(number, event, ids) for number, event in records))


def _event_row(number: int, event: AuditEvent, ids: int | None) -> tuple[Cell, ...]:
    principal = principal_text(event.principal, event.on_behalf_of)
    texts = (event.tool, principal, event.code or "", event.call_id[:ids])
    return (
        Cell(str(number)),
        Cell(time_text(event.time_ns)),
        Cell(event.outcome.value, OUTCOMES[event.outcome]),
        *plain((*texts, ", ".join(event.approved_by), event.approval_reason or "")),
    )


def trail_card(records: Iterable[tuple[int, AuditEvent]], total: int) -> Card:
    """The newest events of a trail that has `total`."""
    grid = events_grid(records, ids=SHORT_ID)
    newest = f"the newest {len(grid.rows)} of " if len(grid.rows) < total else ""
    return Card(f"Audit trail, {newest}{counted(total, 'event')}", grids=(grid.compact(),))


def event_card(event: AuditEvent) -> Card:
    """One event, whole."""
    return Card(
        "Audit event",
        Cell(event.outcome.value, OUTCOMES[event.outcome]),
        facts=(
            ("tool", event.tool),
            ("risk", event.risk or ""),
            ("principal", principal_text(event.principal, event.on_behalf_of)),
            ("time", time_text(event.time_ns)),
            ("code", event.code or ""),
            ("rules", ", ".join(event.rules)),
            ("approved by", ", ".join(event.approved_by)),
            ("reason", event.approval_reason or ""),
            ("error", event.error_type or ""),
            ("counts for", f"{event.count} equal events" if event.count > 1 else ""),
            ("call", event.call_id),
            ("session", event.session_id),
            ("request", event.request_id or ""),
            ("policy", event.policy or ""),
            ("fingerprint", event.fingerprint or ""),
            ("payload digest", event.payload_digest or ""),
        ),
    )

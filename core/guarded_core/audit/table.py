"""Audit events as rows: for notebooks, terminals and spreadsheets."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from guarded_core.audit.event import AuditEvent

COLUMNS = ("no.", "time", "outcome", "tool", "principal", "code", "call", "approved by", "reason")


def row(number: int, event: AuditEvent) -> tuple[str, ...]:
    """The cells of one event, in which every character shows."""
    # Above this module: only who shows events needs it.
    from guarded_core.display import time_text, visible

    principal = " for ".join([event.principal, *reversed(event.on_behalf_of)])
    texts = (event.outcome.value, event.tool, principal, event.code, event.call_id, ", ".join(event.approved_by))
    return (str(number), time_text(event.time_ns), *(visible(text or "") for text in (*texts, event.approval_reason)))


def as_text(records: Iterable[tuple[int, AuditEvent]]) -> str:
    """A table in plain text."""
    rows = [COLUMNS, *(row(number, event) for number, event in records)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in rows)


def as_html(records: Iterable[tuple[int, AuditEvent]]) -> str:
    """A table in HTML, every text escaped."""
    rows = "".join(_html_row("td", row(number, event)) for number, event in records)
    return f"<table><thead>{_html_row('th', COLUMNS)}</thead><tbody>{rows}</tbody></table>"


def _html_row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

"""How a request is shown to the person who decides it: as text at a terminal, as a card elsewhere."""

from __future__ import annotations

from typing import Any

from guarded_core.approvals.request import ApprovalRequest
from guarded_core.display.card import Card, Cell, Grid, Tone
from guarded_core.display.text import (
    WIDTH,
    Medium,
    in_medium,
    is_folded,
    payload_text,
    principal_text,
    shown,
    time_text,
    wrapped,
)

__all__ = ["request_card", "request_text"]

_REQUESTS: dict[str, Tone] = {
    "pending": "wait",
    "approved": "good",
    "rejected": "bad",
    "edited": "quiet",
    "consumed": "quiet",
    "revoked": "quiet",
}


def request_text(
    request: ApprovalRequest,
    last: Any = None,
    *,
    medium: Medium = "terminal",
    whole: bool = False,
    width: int = WIDTH,
) -> str:
    """A request as a person reads it: who, what, why, and the payload, drawn so that nothing in it is markup or layout.

    Args:
        request: what is asked.
        last: the payload of this tool that was approved last: then it shows what differs.
        medium: where it is read; see `in_medium`.
        whole: fold no long text.
        width: columns of a line.
    """
    compared = [] if last is None else ["  compared with the last call of this tool that was approved here:"]
    chain = " on behalf of ".join(map(shown, [request.principal, *reversed(request.on_behalf_of)]))
    lines = (
        f"Approval wanted: {request.tool} ({request.risk.value if request.risk else 'no risk declared'})",
        f"  for      {chain}",
        f"  because  {', '.join(map(shown, request.reasons))}",
        *([] if request.replaces is None else ["  changed  by a person: these are not the model's arguments"]),
        f"  people   {len(request.approvers)} of {request.required}",
        f"  until    {time_text(request.expires_ns)}",
        f"  request  {request.id}",
        *compared,
    )
    rows = [row for line in lines for row in wrapped(line, width)]
    return in_medium("\n".join((*rows, payload_text(request.arguments, last, whole=whole, width=width))), medium)


def request_card(request: ApprovalRequest, last: Any = None) -> Card:
    """A request as the person who decides it needs to see it, with the whole payload; see `request_text` for `last`."""
    votes = tuple(
        (
            Cell(vote.by),
            Cell("yes", "good") if vote.approve else Cell("no", "bad"),
            Cell(vote.reason),
            Cell(time_text(vote.at_ns)),
        )
        for vote in request.votes
    )
    return Card(
        "Approval request",
        Cell(request.state.value, _REQUESTS[request.state]),
        facts=(
            ("tool", request.tool),
            ("risk", request.risk or "none declared"),
            ("for", principal_text(request.principal, request.on_behalf_of)),
            ("because", ", ".join(request.reasons)),
            ("people", f"{len(request.approvers)} of {request.required}"),
            ("until", time_text(request.expires_ns)),
            ("request", request.id),
            ("changed", "" if request.replaces is None else f"by a person, from request {request.replaces}"),
            ("now", "" if request.replaced_by is None else f"request {request.replaced_by}"),
            ("compared with", "" if last is None else "the last call of this tool that was approved here"),
        ),
        grids=(Grid(("by", "said", "reason", "time"), votes).compact(),),
        payload=None if request.arguments is None else payload_text(request.arguments, last),
        whole=payload_text(request.arguments, last, whole=True) if is_folded(request.arguments) else None,
    )

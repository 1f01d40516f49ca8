"""How a request is shown to the person who decides it: as text at a terminal, as a card elsewhere."""

from __future__ import annotations

from typing import Any

from guarded_core.approvals.grant import Grant
from guarded_core.approvals.grantable import Offer
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
from guarded_core.ground.wording import counted

__all__ = ["grant_card", "grant_text", "request_card", "request_text"]

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
        *([] if request.grantable is None else [f"  grant    {_offer_text(request.grantable)}"]),
        f"  until    {time_text(request.expires_ns)}",
        f"  request  {request.id}",
        *compared,
    )
    rows = [row for line in lines for row in wrapped(line, width)]
    return in_medium("\n".join((*rows, payload_text(request.arguments, last, whole=whole, width=width))), medium)


def _offer_text(offer: Offer) -> str:
    """How far calls like a request's may be granted, in words."""
    limits = offer.limits
    parts = [f"{counted(limits.calls, 'more call')} like this one, for {counted(limits.seconds, 'second')}"]
    if limits.free:
        parts.append(f"with any {', '.join(map(shown, limits.free))}")
    parts += [f"{shown(name)} up to {number}" for name, number in limits.up_to.items()]
    parts += [f"in total {number} of {shown(name)}" for name, number in limits.total.items()]
    return "at most " + "; ".join(parts)


def grant_text(grant: Grant, *, medium: Medium = "terminal", whole: bool = False, width: int = WIDTH) -> str:
    """A grant as a person reads it: for whom, what may differ, what is left; see `request_text`."""
    lines = [f"Grant: {grant.tool}", *(f"  {name:<8} {text}" for name, text in _grant_facts(grant))]
    rows = [row for line in lines for row in wrapped(line, width)]
    return in_medium("\n".join((*rows, payload_text(grant.arguments, whole=whole, width=width))), medium)


def grant_card(grant: Grant) -> Card:
    """A grant as the person who gave it, or may take it back, needs to see it."""
    tone: Tone = {"pending": "wait", "live": "good", "revoked": "quiet"}[grant.state]  # type: ignore[assignment]
    votes = tuple((Cell(vote.by), Cell(vote.reason), Cell(time_text(vote.at_ns))) for vote in grant.votes)
    return Card(
        "Grant",
        Cell(grant.state.value, tone),
        facts=(("tool", grant.tool), *_grant_facts(grant)),
        grids=(Grid(("agreed", "reason", "time"), votes).compact(),),
        payload=payload_text(grant.arguments),
        whole=payload_text(grant.arguments, whole=True) if is_folded(grant.arguments) else None,
    )


def _grant_facts(grant: Grant) -> tuple[tuple[str, str], ...]:
    varies = [f"any {shown(name)}" for name in grant.free]
    varies += [f"{shown(name)} up to {limit}" for name, limit in grant.up_to.items()]
    sums = [f"{grant.spent.get(name, 0)} of {limit} {shown(name)}" for name, limit in grant.total.items()]
    return (
        ("for", " on behalf of ".join(map(shown, reversed(grant.chain)))),
        ("in", "every session" if grant.session_id is None else "one session"),
        ("instead", ", ".join(map(shown, grant.reasons))),
        ("differs", "; ".join(varies) or "nothing: exactly these arguments"),
        ("used", "; ".join([f"{grant.used} of {counted(grant.calls, 'call')}", *sums])),
        ("people", f"{len(grant.votes)} of {grant.required}: {', '.join(map(shown, grant.approvers))}"),
        ("until", time_text(grant.expires_ns)),
        ("grant", grant.id),
    )


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
            ("may be granted", "" if request.grantable is None else _offer_text(request.grantable)),
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

"""The card of each thing that the core holds: the one place that says what people are shown of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from guarded_core.display.card import Card, Cell, Grid, Tone, plain
from guarded_core.display.text import payload_text, time_text
from guarded_core.spelling import counted

if TYPE_CHECKING:
    from guarded_core.approval import ApprovalRequest
    from guarded_core.audit.event import AuditEvent
    from guarded_core.coverage import Coverage
    from guarded_core.decision import Decision
    from guarded_core.guard import Guard
    from guarded_core.policy import ToolExecutionPolicy
    from guarded_core.rules.case import Rule

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
_DECISIONS: dict[str, Tone] = {"allow": "good", "ask": "wait", "deny": "bad"}
_REQUESTS: dict[str, Tone] = {
    "pending": "wait",
    "approved": "good",
    "rejected": "bad",
    "edited": "quiet",
    "consumed": "quiet",
    "revoked": "quiet",
}
_STANDINGS: dict[str, Tone] = {
    "hidden": "quiet",
    "denied": "bad",
    "narrowed": "info",
    "asks": "wait",
    "allowed": "good",
}
EVENT_COLUMNS = ("no.", "time", "outcome", "tool", "principal", "code", "call", "approved by", "reason")
SHORT_ID = 8
_IN_NAME = ("kind", "tool", "param", "enforce", "description")  # or in a column of its own


def principal_text(principal: str, on_behalf_of: Iterable[str]) -> str:
    """The chain of principals, the caller first."""
    return " for ".join([principal, *reversed(tuple(on_behalf_of))])


def events(records: Iterable[tuple[int, AuditEvent]], *, ids: int | None = None) -> Grid:
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


def trail(records: Iterable[tuple[int, AuditEvent]], total: int) -> Card:
    """The newest events of a trail that has `total`."""
    grid = events(records, ids=SHORT_ID)
    newest = f"the newest {len(grid.rows)} of " if len(grid.rows) < total else ""
    return Card(f"Audit trail, {newest}{counted(total, 'event')}", grids=(grid.compact(),))


def event(event: AuditEvent) -> Card:
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


def decision(decision: Decision) -> Card:
    """What would become of a call, and by which rules; never its payload."""
    request = decision.approval_request
    rows = [(found.policy_name, Cell("denies", "bad"), found.reason) for found in decision.violations]
    rows += [(found.policy_name, Cell("asks", "wait"), found.reason) for found in decision.asks]
    rows += [(name, Cell("would deny", "quiet"), "not enforced") for name in decision.would_deny]
    return Card(
        "Decision",
        Cell(decision.outcome, _DECISIONS[decision.outcome]),
        facts=(
            ("code", decision.code or ""),
            ("the model reads", decision.message or ""),
            ("a person is asked", ", ".join(request.reasons) if request else ""),
            ("people needed", str(request.required) if request else ""),
        ),
        grids=(Grid(("rule", "", "reason"), tuple((Cell(name), said, Cell(why)) for name, said, why in rows)),),
    )


def request(request: ApprovalRequest, last: Any = None) -> Card:
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
    )


def policy(policy: ToolExecutionPolicy) -> Card:
    """What is allowed, within what limits, under which rules."""
    roles = tuple(
        plain((name, str(role.max_calls), ", ".join(sorted(role.tools)))) for name, role in sorted(policy.roles.items())
    )
    return Card(
        "Policy",
        facts=(
            ("hash", policy.hash[:12]),
            ("arguments", f"at most {policy.limits.bytes:,} bytes"),
            ("output", f"at most {policy.output_bytes:,} bytes"),
        ),
        grids=(
            Grid(
                ("tool", "risk", "approval", "calls a session"),
                tuple(_tool_row(policy, name) for name in sorted(policy.tools)),
                "Tools",
            ).compact(),
            Grid(
                ("rule", "", "settings", "description"), tuple(map(_rule_row, policy.rules)), "Rules, in order"
            ).compact(),
            Grid(("role", "calls a session", "tools"), roles, "Roles"),
        ),
    )


def _tool_row(policy: ToolExecutionPolicy, name: str) -> tuple[Cell, ...]:
    settings = policy.settings(name)
    if settings is None or settings.risk is None:
        return plain((name, "as the tool's code declares", "", ""))
    asks = ""
    if settings.risk in ("destructive", "financial"):
        people = "a person" if settings.approvals == 1 else f"{settings.approvals} people"
        asks = people if settings.approval == "always" else f"{people}, for values that no rule vouches for"
    return plain((name, settings.risk, asks, "" if settings.max_calls is None else str(settings.max_calls)))


def _rule_row(rule: Rule) -> tuple[Cell, ...]:
    said = {name: value for name, value in (rule.spec or {}).items() if name not in _IN_NAME}
    settings = ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in said.items())
    enforced = Cell("" if rule.enforce else "not enforced", "quiet")
    return (Cell(rule.name), enforced, Cell(settings), Cell(rule.description))


def coverage(coverage: Coverage) -> Card:
    """The matrix of tools and what becomes of their calls."""
    return Card(f"What {coverage.subject} may do", grids=(coverage_grid(coverage),))


def coverage_grid(coverage: Coverage) -> Grid:
    """The matrix alone."""
    rows = (
        (
            *plain((tool.name, tool.risk or "")),
            *(Cell("✓" if standing in tool.standings else "", tone) for standing, tone in _STANDINGS.items()),
            Cell(", ".join(tool.why)),
        )
        for tool in coverage.tools
    )
    return Grid(("tool", "risk", *_STANDINGS, "why"), tuple(rows))


def guard(guard: Guard, coverage: Coverage) -> Card:
    """Its parts, and what it lets through."""
    grid = coverage_grid(coverage)
    return Card(
        "Guard",
        facts=(
            ("policy", guard.policy.hash[:12]),
            ("allows", counted(len(guard.policy.tools), "tool")),
            ("under", counted(len(guard.policy.rules), "rule")),
            ("store", type(guard.store).__name__),
            ("trail", "the store's" if guard.audit is None else type(guard.audit).__name__),
            ("somebody to ask", "yes" if guard.authority.asks else "no: decide with guard.approvals.decide"),
        ),
        grids=(Grid(grid.columns, grid.rows, f"What {coverage.subject} may do"),),
    )

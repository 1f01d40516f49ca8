"""The card of each thing that shows itself: the one place that says what people are shown of it.

It stands on top of all that it draws; `guarded_core.ground.shown` finds it when something is shown.
"""

from __future__ import annotations

import json
from functools import singledispatch
from typing import Any

from guarded_core.approvals.card import grant_card, request_card
from guarded_core.approvals.grant import Grant
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.card import event_card, trail_card
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.trail import Trail
from guarded_core.display.card import Card, Cell, Grid, Tone, plain
from guarded_core.display.html import card_html
from guarded_core.display.terminal import card_rich
from guarded_core.ground.wording import counted
from guarded_core.guard import Guard
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.preview.coverage import Coverage
from guarded_core.preview.decision import Decision
from guarded_core.rules.case import Rule

_DECISIONS: dict[str, Tone] = {"allow": "good", "ask": "wait", "deny": "bad"}
_STANDINGS: dict[str, Tone] = {
    "hidden": "quiet",
    "denied": "bad",
    "narrowed": "info",
    "asks": "wait",
    "allowed": "good",
}
__all__ = ["card", "card_html", "card_rich"]

_IN_NAME = ("kind", "tool", "param", "enforce", "description")  # or in a column of its own


@singledispatch
def card(thing: Any) -> Card:
    """The card of `thing`. Raises TypeError for a kind that none is registered for."""
    raise TypeError(f"{type(thing).__name__} has no card; register one: guarded_core.display.cards.card.register")


@card.register
def _(request: ApprovalRequest) -> Card:
    return request_card(request)


@card.register
def _(grant: Grant) -> Card:
    return grant_card(grant)


@card.register
def _(event: AuditEvent) -> Card:
    return event_card(event)


@card.register
def _(trail: Trail) -> Card:
    return trail_card(trail.recent, len(trail))


@card.register
def decision_card(decision: Decision) -> Card:
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


@card.register
def policy_card(policy: ToolExecutionPolicy) -> Card:
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


@card.register
def coverage_card(coverage: Coverage) -> Card:
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


@card.register
def guard_card(guard: Guard) -> Card:
    """Its parts, and what it lets through."""
    coverage = guard.coverage()
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

"""What the benchmarks call: one payment with five arguments, and ten rules that look at it and let it pass."""

from __future__ import annotations

from typing import Any

from benchmarks.rules import ARGUMENTS, own_rules
from guarded_core.rules.case import Rule
from guarded_core.rules.kinds import BudgetToolParam, DenyToolParam, RateLimitTool, RequireApproval

SIZES = {"200 B": 0, "4 KB": 12, "50 KB": 150}  # rows of a ledger beside the payment


def passing_rules(tool: str, count: int = 10) -> list[Rule]:
    """Rules that each look at a call of `tool`; nobody is asked, and no window grows with the calls made."""
    rules = [r for r in own_rules(tool) if not isinstance(r, RequireApproval | RateLimitTool | BudgetToolParam)]
    while len(rules) < count:
        rules.append(DenyToolParam(tool=tool, param=("to", "currency", "url")[len(rules) % 3], equals=f"x{len(rules)}"))
    return rules[:count]


def arguments(size: str) -> dict[str, Any]:
    """The payment's arguments, as JSON of about that size: nested rows of texts, numbers and lists."""
    rows = [
        {
            "sku": f"SKU-{n:05}",
            "name": "A thing with a name that says what it is, and where it comes from" * 3,
            "price": {"amount": n * 1.25 + 0.1, "currency": "EUR", "tax": [0.081, 0.026]},
            "tags": ["red", "large", "fragile"],
            "count": n,
        }
        for n in range(SIZES[size])
    ]
    return {**ARGUMENTS, "items": rows or [{"sku": "A", "name": "A thing", "count": 2}]}

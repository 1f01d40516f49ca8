"""What the benchmarks call: one payment with five arguments, and ten rules that look at it and let it pass.

Public names only, so that older code can be measured with it; each framework is loaded where its tool is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from guarded_core import Guard, InMemoryToolAuditTrail, Rule, ToolExecutionPolicy
from guarded_core.rules.kinds import (
    AllowToolParam,
    AllowToolParamMatching,
    BudgetToolParam,
    DenyKeyword,
    DenyToolParam,
    DenyToolParamMatching,
    LimitToolParam,
    RateLimitTool,
    RequireApproval,
)

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from llama_index.core.tools import FunctionTool

ARGUMENTS = {"to": "acct-17", "amount": 12.5, "currency": "EUR", "url": "https://api.test/pay", "items": [{"sku": "A"}]}
SIZES = {"200 B": 0, "4 KB": 12, "50 KB": 150}  # rows of a ledger beside the payment


def own_rules(tool: str) -> list[Rule]:
    """Ten rules of every cost that a call of `tool` passes."""
    return [
        DenyKeyword(keyword="rm -rf"),
        DenyToolParam(tool=tool, param="to", equals="acct-0"),
        DenyToolParam(tool=tool, param="/items/*/sku", contains="X"),
        DenyToolParamMatching(tool=tool, param="url", matches=r"//10\."),
        AllowToolParam(tool=tool, param="currency", allow=["EUR", "USD"]),
        AllowToolParamMatching(tool=tool, param="url", matches=r"https://[a-z.]+/\w+"),
        LimitToolParam(tool=tool, param="amount", min=0, max=100),
        RateLimitTool(tool=tool, max_calls=10**9, interval_secs=60),
        BudgetToolParam(tool=tool, param="amount", max=10**12, interval_secs=60),
        RequireApproval(tool=tool, param="amount", above=50),
    ]


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


class Price(BaseModel):
    amount: float
    currency: str
    tax: list[float]


class Item(BaseModel):
    sku: str
    name: str
    price: Price | None = None
    tags: list[str] = []
    count: int


class Payment(BaseModel):
    to: str
    amount: float
    currency: str
    url: str
    items: list[Item]


def pay(to: str, amount: float, currency: str, url: str, items: list[Item]) -> str:
    """Pays."""
    return "paid"


async def apay(to: str, amount: float, currency: str, url: str, items: list[Item]) -> str:
    """Pays."""
    return "paid"


def policy(rules: list[Rule] | None = None) -> ToolExecutionPolicy:
    """One allowed tool, by default with ten rules that each look at its calls."""
    return ToolExecutionPolicy({"pay": "mutating"}, rules=passing_rules("pay") if rules is None else rules)


def house(**settings: Any) -> Guard:
    """A guard with the plain function registered."""
    guard = Guard(**{"policy": policy(), "audit": InMemoryToolAuditTrail(1024)} | settings)
    guard.tool(pay)
    return guard


def langchain(schema: Any) -> BaseTool:
    """The payment as a LangChain tool."""
    from langchain_core.tools import StructuredTool

    return StructuredTool(name="pay", description="Pays.", args_schema=schema, func=pay, coroutine=apay)


def llamaindex() -> FunctionTool:
    """The payment as a LlamaIndex tool."""
    from llama_index.core.tools import FunctionTool

    return FunctionTool.from_defaults(pay, async_fn=apay, fn_schema=Payment)

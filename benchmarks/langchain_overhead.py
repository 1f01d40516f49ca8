"""What a guard costs a LangChain tool: guarded against bare, interleaved, with ten rules and an audit trail in memory.

Run from the repository's folder: ``python -m benchmarks.langchain_overhead``; ``--profile`` tells where it goes.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import sys
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel

from benchmarks.interleaved import Measurement, ameasure, measure, print_table
from benchmarks.rules import ARGUMENTS, own_rules
from guarded_core import Guard, InMemoryToolAuditTrail, ToolExecutionPolicy
from guarded_core.rules.kinds import BudgetToolParam, DenyToolParam, RateLimitTool, RequireApproval
from guarded_langchain import guard_tool

WANTED = 1.15  # × the bare tool, at most, with pydantic arguments


class Item(BaseModel):
    sku: str


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


def tools(schema: Any) -> tuple[BaseTool, BaseTool, Guard]:
    """A tool, bare and guarded by ten rules that each look at a call of it; five arguments, one of them nested."""
    bare = StructuredTool(name="pay", description="Pays.", args_schema=schema, func=pay, coroutine=apay)
    # Nobody is asked, and no window grows while the same call is made ten thousand times a minute.
    rules = [
        rule for rule in own_rules("pay") if not isinstance(rule, RequireApproval | RateLimitTool | BudgetToolParam)
    ]
    rules += [DenyToolParam(tool="pay", param=param, equals="x") for param in ("to", "currency", "url")]
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}, rules=rules), audit=InMemoryToolAuditTrail(128))
    return bare, guard_tool(bare, guard), guard


def run() -> list[Measurement]:
    """Measure `invoke` and `ainvoke`, with a pydantic model and with a JSON Schema."""
    measurements = []
    for kind, schema, wanted in (("pydantic", Payment, WANTED), ("dict schema", Payment.model_json_schema(), None)):
        bare, guarded, guard = tools(schema)
        with guard.session("ann", tools=["pay"], max_calls=10**9):
            if guarded.invoke(ARGUMENTS) != "paid":
                raise RuntimeError("the call is meant to pass")
            measurements.append(
                measure(
                    f"invoke, {kind}",
                    lambda bare=bare: bare.invoke(ARGUMENTS),  # type: ignore[misc]
                    lambda guarded=guarded: guarded.invoke(ARGUMENTS),  # type: ignore[misc]
                    wanted=wanted,
                )
            )
            measurements.append(
                asyncio.run(
                    ameasure(
                        f"ainvoke, {kind}",
                        lambda bare=bare: bare.ainvoke(ARGUMENTS),  # type: ignore[misc]
                        lambda guarded=guarded: guarded.ainvoke(ARGUMENTS),  # type: ignore[misc]
                    )
                )
            )
    return measurements


def profile() -> None:
    """Print where a guarded call spends its time."""
    _, guarded, guard = tools(Payment)
    profiler = cProfile.Profile()
    with guard.session("ann", tools=["pay"], max_calls=10**9):
        guarded.invoke(ARGUMENTS)
        profiler.enable()
        for _ in range(5_000):
            guarded.invoke(ARGUMENTS)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> int:
    """Print the table; 1 where a bound is not kept."""
    if "--profile" in sys.argv:
        profile()
        return 0
    return print_table(run())


if __name__ == "__main__":
    sys.exit(main())

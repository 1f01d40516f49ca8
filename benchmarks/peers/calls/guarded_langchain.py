"""A guarded LangChain tool's `invoke`, with ten rules on the tool, a budget of calls, and the trail in memory."""

from langchain_core.tools import StructuredTool
from pydantic import BaseModel

from guarded_core import Guard, InMemoryToolAuditTrail, ToolExecutionPolicy
from guarded_langchain import guard_tool


class Item(BaseModel):
    sku: str


def make(folder, arguments):
    from benchmarks.tools import passing_rules

    def pay(to: str, amount: float, currency: str, url: str, items: list[Item]) -> str:
        """Pays."""
        return "paid"

    policy = ToolExecutionPolicy({"pay": "mutating"}, rules=passing_rules("pay"))
    guard = Guard(policy, audit=InMemoryToolAuditTrail(1024))
    context = guard.session("ann", tools=["pay"], max_calls=10**9)
    tool = guard_tool(StructuredTool.from_function(pay), guard, context=context)
    return lambda: tool.invoke(arguments)

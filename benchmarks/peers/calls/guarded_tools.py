"""`guard.call` with ten rules on the tool, a budget of calls, and the trail in memory."""

from pydantic import BaseModel

from guarded_core import Guard, InMemoryToolAuditTrail, ToolExecutionPolicy


class Item(BaseModel):
    sku: str


def make(folder, arguments):
    return calling(InMemoryToolAuditTrail(1024), arguments)


def calling(audit, arguments):
    from benchmarks.tools import passing_rules

    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}, rules=passing_rules("pay")), audit=audit)

    @guard.tool
    def pay(to: str, amount: float, currency: str, url: str, items: list[Item]) -> str:
        """Pays."""
        return "paid"

    context = guard.session("ann", tools=["pay"], max_calls=10**9)
    return lambda: guard.call("pay", arguments, context=context)

"""An existing LlamaIndex agent with the guard dropped in: the five lines marked with ``# +`` are all that is new.

Run it: ``python examples/llamaindex_agent.py``. The model is a scripted one, so that nothing leaves this machine.
"""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent

from guarded_core import CallbackApprover, Guard, ToolExecutionPolicy  # +
from guarded_llamaindex import guard_tools  # +
from guarded_llamaindex.testing import ScriptedLLM, tool_call

ORDERS = {"1001": {"total": 90, "status": "delivered"}}


def find_order(order_id: str) -> str:
    """Looks up an order."""
    return str(ORDERS.get(order_id, "no such order"))


async def refund(order_id: str, amount: int) -> str:
    """Pays money back for an order."""
    ORDERS[order_id]["status"] = f"refunded {amount}"
    return f"refunded {amount} for order {order_id}"


policy = ToolExecutionPolicy({"find_order": "read_only", "refund": "financial"})
guard = Guard(policy, approver=CallbackApprover(lambda request: request.arguments["amount"] <= 90, by="lee"))  # +

llm = ScriptedLLM(
    [
        tool_call("find_order", {"order_id": "1001"}),
        tool_call("refund", {"order_id": "1001", "amount": 900}),  # too much: lee says no
        tool_call("refund", {"order_id": "1001", "amount": 90}),
        "I refunded 90 for order 1001.",
    ]
)
agent = FunctionAgent(tools=guard_tools([find_order, refund], guard), llm=llm)  # + guard_tools


async def main() -> None:
    with guard.session("customer-17", tools=["find_order", "refund"], max_calls=10):  # +
        print(await agent.run("My order 1001 is broken. I want my money back."))
    print(ORDERS)
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:10} {event.code or ''}")


if __name__ == "__main__":
    asyncio.run(main())

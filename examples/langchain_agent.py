"""An existing LangChain agent with the guard dropped in: the five lines marked with ``# +`` are all that is new.

Run it: ``python examples/langchain_agent.py``. The model is a scripted one, so that nothing leaves this machine.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool

from guarded_core import CallbackApprover, Guard, ToolExecutionPolicy  # +
from guarded_langchain import guard_tools  # +
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

ORDERS = {"1001": {"total": 90, "status": "delivered"}}


@tool
def find_order(order_id: str) -> str:
    """Look up an order."""
    return str(ORDERS.get(order_id, "no such order"))


@tool
def refund(order_id: str, amount: int) -> str:
    """Pay money back for an order."""
    ORDERS[order_id]["status"] = f"refunded {amount}"
    return f"refunded {amount} for order {order_id}"


policy = ToolExecutionPolicy({"find_order": "read_only", "refund": "financial"})
guard = Guard(policy, approver=CallbackApprover(lambda request: request.arguments["amount"] <= 90, by="lee"))  # +

model = ScriptedChatModel(
    [
        says(tool_call("find_order", {"order_id": "1001"})),
        says(tool_call("refund", {"order_id": "1001", "amount": 900})),  # too much: lee says no
        says(tool_call("refund", {"order_id": "1001", "amount": 90})),
        "I refunded 90 for order 1001.",
    ]
)
agent = create_agent(model, tools=guard_tools([find_order, refund], guard))  # + guard_tools

if __name__ == "__main__":
    question = {"messages": [("user", "My order 1001 is broken. I want my money back.")]}
    with guard.session("customer-17", tools=["find_order", "refund"], max_calls=10):  # +
        for message in agent.invoke(question)["messages"][2::2]:
            print(message.content)
    print(ORDERS)
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:10} {event.code or ''}")

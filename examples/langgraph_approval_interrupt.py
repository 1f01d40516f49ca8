"""A LangGraph agent that is paused until a person approves its refund, and goes on in another process.

    python examples/langgraph_approval_interrupt.py          # all three steps, one after another
    python examples/langgraph_approval_interrupt.py ask      # or each by itself, in a folder of yours
    guarded approvals approve 1a2b --store sqlite:///guard.db --by lee
    python examples/langgraph_approval_interrupt.py go_on

It runs offline: the model is a script. Put a real one in its place.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

from guarded_core import Approvals, Guard, ToolExecutionPolicy
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

STORE = "sqlite:///guard.db"  # budgets, approvals, the ledger and the audit trail
CHECKPOINTS = "checkpoints.db"  # where the graph waits
CONFIG: Any = {"configurable": {"thread_id": "ticket-42"}}


@tool
def issue_refund(order: str, amount: float) -> str:
    """Refund an order."""
    with open("refunds.log", "a") as log:
        print(order, amount, file=log)
    return f"refunded {amount} for {order}"


def run(entered: Any) -> dict[str, Any]:
    """Enter the agent; the same in every process."""
    guard = Guard(ToolExecutionPolicy({"issue_refund": "financial"}), store=STORE, approver=InterruptApprover())
    model = ScriptedChatModel([says(tool_call("issue_refund", {"order": "A-17", "amount": 20.0}, id="call-1"))])
    if entered is None:
        model = ScriptedChatModel([AIMessage("Your refund is on its way.")])
    session = guard.session("user-17", tools=["issue_refund"], session_id="ticket-42")
    with SqliteSaver.from_conn_string(CHECKPOINTS) as saver, session:
        agent = create_agent(model, guard_tools([issue_refund], guard), checkpointer=saver)
        result: dict[str, Any] = agent.invoke(entered, CONFIG)
        return result


def ask() -> None:
    """The agent wants to refund, and pauses."""
    (interrupt,) = run({"messages": [("user", "Please refund order A-17.")]})["__interrupt__"]
    print(interrupt.value["action_requests"][0]["description"])


def approve() -> None:
    """A person approves it: here in code, as `guarded approvals approve` does at a terminal."""
    from guarded_core.store.sql import SqlStore

    with SqlStore.open(STORE) as store:
        approvals = Approvals(store)
        (request,) = approvals.pending()
        approvals.decide(request.id, by="lee", approve=True, reason="ticket 42")
        print(f"lee approved {request.tool}")


def go_on() -> None:
    """The graph is woken, and finds the decision; woken once more it repeats nothing."""
    print(run(None)["messages"][-1].content)
    run(None)
    with open("refunds.log") as log:
        print("refunds made:", len(log.readlines()))


if __name__ == "__main__":
    steps = {"ask": ask, "approve": approve, "go_on": go_on}
    if len(sys.argv) > 1:
        steps[sys.argv[1]]()
    else:
        with tempfile.TemporaryDirectory() as folder:
            for step in steps:  # each in a process of its own
                subprocess.run([sys.executable, os.path.abspath(__file__), step], cwd=folder, check=True)

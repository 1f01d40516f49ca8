"""A LangGraph agent behind an interface that can only resume it: Agent Chat, Agent Inbox, Studio, or one of your own.

    python examples/langgraph_replies.py

The interface shows the interrupt and resumes the graph with what the person said. Who that is comes from your server,
never from the reply. It runs offline: the model is a script.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call


@tool
def issue_refund(order: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order}"


@dataclass
class Caller:
    """Who sent this request, as the server authenticated them."""

    user: str


# On LangGraph Server it is `runtime.server_info.user.identity`.
approver = InterruptApprover(identify=lambda runtime: runtime.context.user)
guard = Guard(ToolExecutionPolicy({"issue_refund": "financial"}), approver=approver)
model = ScriptedChatModel(
    [says(tool_call("issue_refund", {"order": "A-17", "amount": 200.0}, id="call-1")), "Your refund is on its way."]
)
agent = create_agent(model, guard_tools([issue_refund], guard), checkpointer=InMemorySaver(), context_schema=Caller)


def enter(entered: Any, user: str) -> dict[str, Any]:
    """What the server does with each request of its authenticated `user`."""
    with guard.session("user-17", tools=["issue_refund"], session_id="ticket-42"):
        config: Any = {"configurable": {"thread_id": "ticket-42"}}
        result: dict[str, Any] = agent.invoke(entered, config, context=Caller(user))
        return result


def shown(result: dict[str, Any]) -> str:
    """What the interface shows of the question."""
    (interrupt,) = result["__interrupt__"]
    return str(interrupt.value["action_requests"][0]["description"])


if __name__ == "__main__":
    print(shown(enter({"messages": [("user", "Please refund order A-17.")]}, "user-17")))

    print("\n-- the user approves their own refund:")
    print(shown(enter(Command(resume={"decisions": [{"type": "approve"}]}), "user-17")).partition("\n")[0])

    print("\n-- lee changes the amount:")
    edit = {"type": "edit", "edited_action": {"name": "issue_refund", "args": {"order": "A-17", "amount": 20.0}}}
    messages = enter(Command(resume={"decisions": [edit]}), "lee")["messages"]
    print(messages[-2].content)
    print(messages[-1].content)
    print("approved by:", ", ".join(guard.trail.recent[-1][1].approved_by))

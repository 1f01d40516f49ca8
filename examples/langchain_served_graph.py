"""A graph that a server runs, with no place for a ``with``: `Guard(identify=...)` finds the session of a run.

Run it: ``python examples/langchain_served_graph.py``. A server like LangGraph's loads `graph` from this file, and runs
it for whoever it has authenticated; here, the server is a line that passes a run's context. The model is scripted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool

from guarded_core import Guard, ToolExecutionContext, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

# Sessions by the server's own session ids: the server makes one where a user logs in.
SESSIONS: dict[str, ToolExecutionContext] = {}


@dataclass
class Run:
    """What the server gives each run beside its messages."""

    login: str


def identify(runtime: Any) -> ToolExecutionContext | None:
    """Whose run this is; None is nobody, who may use no tool.

    On LangGraph's server, ``runtime.server_info.user.identity`` is the authenticated user. A name that a client can
    write into a run's config must never be looked up like this: it would be whoever it says.
    """
    return SESSIONS.get(runtime.context.login) if runtime is not None and runtime.context is not None else None


@tool
def read_inbox(folder: str = "inbox") -> str:
    """Read mail."""
    return f"2 new messages in {folder}"


guard = Guard(ToolExecutionPolicy({"read_inbox": "read_only"}), identify=identify)
model = ScriptedChatModel([says(tool_call("read_inbox")), lambda messages: f"It says: {messages[-1].content}"] * 3)
graph = create_agent(model, tools=[read_inbox], middleware=[GuardMiddleware(guard)], context_schema=Run)

if __name__ == "__main__":
    SESSIONS["login-1"] = guard.session("ann", tools=["read_inbox"], max_calls=5)
    SESSIONS["login-2"] = guard.session("bob", tools=["read_inbox"], max_calls=5)
    SESSIONS["login-2"].close()  # bob has logged out
    for login in ("login-1", "login-2", "made-up"):
        answer = graph.invoke({"messages": [("user", "Any mail?")]}, context=Run(login))
        print(f"{login}: {answer['messages'][-1].text}")
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:10} {event.principal or 'nobody'}")

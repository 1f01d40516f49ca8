"""What users write with guarded_langchain has to type-check; nothing here runs."""

from __future__ import annotations

from typing import Any, assert_type

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime

from guarded_core import Guard, ToolExecutionContext, ToolExecutionError, ToolExecutionPolicy, ToolRisk
from guarded_langchain import (
    GuardMiddleware,
    InterruptApprover,
    ReachableTools,
    ToolCallDenied,
    guard_tool,
    guard_tools,
    injected,
    reachable_tools,
)
from guarded_langchain.testing import ScriptedChatModel, ScriptStep, says, tool_call


def identify(runtime: Any) -> ToolExecutionContext | None:
    """Nobody, here."""
    return None


guard = Guard(ToolExecutionPolicy({"search": "read_only"}), identify=identify)


@tool
def search(query: str) -> str:
    """Search."""
    return query


def plain(query: str) -> str:
    """Search."""
    return query


# A guarded tool fits wherever a LangChain tool does.
guarded = guard_tool(search, guard, risk=ToolRisk.READ_ONLY)
assert_type(guarded, BaseTool)
guard_tool(plain, guard, risk="read_only", context=guard.session("user-17", tools=["search"]))
guard_tool(StructuredTool.from_function(plain), guard)
guarded.invoke({"query": "x", "user": injected("user-17")})

# A list of them is taken by agents and nodes as it is.
tools = guard_tools([search, plain], guard)
assert_type(tools, list[BaseTool])
ToolNode(tools)
script: list[ScriptStep] = [says(tool_call("search", {"query": "x"})), AIMessage("x"), "done", lambda messages: "done"]
model = ScriptedChatModel(script)
agent = create_agent(model, tools=guard_tools([search], guard), middleware=[GuardMiddleware(guard)])
assert_type(model.seen[0].tool_names, list[str])

report = reachable_tools(agent)
assert_type(report, ReachableTools)
assert_type(report.unguarded, tuple[str, ...])
assert_type(report.is_complete, bool)


async def main() -> None:
    """The async side."""
    async with guard.session("user-17", tools=["search"]):
        try:
            await guarded.ainvoke({"query": "x"})
        except ToolCallDenied as denied:
            assert_type(denied.error, ToolExecutionError)


InterruptApprover()
InterruptApprover(format="agent_inbox", identify=lambda runtime: None, answers="by_id", decisions=["approve", "reject"])


def caller(runtime: Runtime[Any]) -> str:
    """Who sent the reply."""
    return str(runtime.context)


Guard(ToolExecutionPolicy({"search": "financial"}), approver=[InterruptApprover(identify=caller)])

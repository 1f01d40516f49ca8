"""What users write with guarded_llamaindex has to type-check; nothing here runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, assert_type

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.tools import BaseTool, FunctionTool, ToolOutput
from llama_index.core.tools.calling import call_tool
from workflows.events import Event

from guarded_core import Guard, ToolExecutionPolicy, ToolRisk
from guarded_llamaindex import (
    ApprovalRequested,
    GuardedTool,
    UnsafeCodeExecution,
    WorkflowApprover,
    assert_all_guarded,
    audited_events,
    guard_mcp_tools,
    guard_tool,
    guard_tools,
    guarded_retriever,
)
from guarded_llamaindex.mcp import McpTools
from guarded_llamaindex.testing import ScriptedLLM, ScriptStep, tool_call

guard = Guard(ToolExecutionPolicy({"search": "read_only"}))


def search(query: str) -> str:
    """Searches."""
    return query


bare = FunctionTool.from_defaults(search)

# A guarded tool fits wherever a FunctionTool does.
tool = guard_tool(search, guard, risk=ToolRisk.READ_ONLY)
assert_type(tool, GuardedTool)
assert_type(tool.call(query="x"), ToolOutput)
as_bare: FunctionTool = guard_tool(bare, guard, risk="read_only")
call_tool(tool, {"query": "x"})

# A list of them is taken by every agent as it is.
tools = guard_tools([search, bare], guard)
assert_type(tools, list[GuardedTool])
script: list[ScriptStep] = [tool_call("search", {"query": "x"}), [tool_call("search")], "done", lambda messages: "done"]
llm = ScriptedLLM(script)
agents = [
    FunctionAgent(tools=guard_tools([search], guard), llm=llm),
    ReActAgent(tools=[*tools], llm=llm),
    FunctionAgent(tool_retriever=guarded_retriever(tools, guard), llm=llm),
]
base_tools: list[BaseTool] = guard_tools([search], guard)
llm.predict_and_call(base_tools, user_msg="go")
workflow = AgentWorkflow([*agents])
assert_all_guarded(workflow)
assert_all_guarded(agents[0], code_execution=UnsafeCodeExecution("runs in a container"))


async def main(spec: McpTools) -> None:
    """The async side."""
    assert_type(await tool.acall(query="x"), ToolOutput)
    FunctionAgent(tools=await guard_mcp_tools(spec, guard), llm=llm)
    async with guard.session("user-17", tools=["search"]) as session:
        events: AsyncIterator[Event] = audited_events(workflow.run("go"), guard, context=session)
        kinds: list[Any] = [type(event) async for event in events]
    assert kinds


async def answered(approver: WorkflowApprover, event: ApprovalRequested) -> None:
    """A person answers what a workflow has asked."""
    handler = workflow.run("go")
    await approver.answer(handler, event, by="lee", approve=True, arguments={"query": "y"})
    await approver.answer(handler, event.request_id, by="lee", approve=False, response="There is nothing to find.")

"""OpenTelemetry around LlamaIndex's agents: calls, streamed runs, and a workflow that waits for a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guarded_core import Guard, OpenTelemetry, ToolExecutionPolicy
from guarded_llamaindex import ApprovalRequested, WorkflowApprover, guard_tools
from guarded_llamaindex.testing import ScriptedLLM, tool_call


def read(word: str) -> str:
    """Read."""
    return word


def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


class Told:
    """Guarded tools, and the spans that their calls export."""

    def __init__(self) -> None:
        self.exported = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self.tracer = provider.get_tracer("application")
        self.approver = WorkflowApprover()
        self.guard = Guard(
            ToolExecutionPolicy({"read": "read_only", "pay": "financial"}),
            approver=self.approver,
            telemetry=OpenTelemetry(tracer_provider=provider),
        )
        self.tools: list[Any] = guard_tools([FunctionTool.from_defaults(one) for one in (read, pay)], self.guard)

    async def run(self, name: str, arguments: dict[str, Any]) -> None:
        """An agent that makes one call, its events streamed, and every question answered with yes."""
        agent = FunctionAgent(tools=self.tools, llm=ScriptedLLM([[tool_call(name, arguments)], "done"]))
        async with self.guard.session("user-17", tools=["read", "pay"]):
            with self.tracer.start_as_current_span("agent"):
                handler = agent.run("go")
                async for event in handler.stream_events():
                    if isinstance(event, ApprovalRequested):
                        await self.approver.answer(handler, event, by="lee", approve=True)
                await handler

    @property
    def calls(self) -> list[Any]:
        """The spans of calls."""
        return [span for span in self.exported.get_finished_spans() if span.name.startswith("execute_tool")]


@pytest.mark.parametrize("entered", ["call", "acall", "agent"])
def test_a_call_is_a_child_of_the_applications_span(entered: str) -> None:
    """However the tool is called."""
    told = Told()
    if entered == "agent":
        asyncio.run(told.run("read", {"word": "tok-4711"}))
    else:
        with told.guard.session("user-17", tools=["read"]), told.tracer.start_as_current_span("agent"):
            tool = told.tools[0]
            output = tool.call(word="tok-4711") if entered == "call" else asyncio.run(tool.acall(word="tok-4711"))
            assert output.content == "tok-4711"
    (call,) = told.calls
    (agent,) = [span for span in told.exported.get_finished_spans() if span.name == "agent"]
    assert call.name == "execute_tool read"
    assert call.parent.span_id == agent.context.span_id
    assert call.attributes["guard.decision"] == "succeeded"
    assert "tok-4711" not in call.to_json()


def test_a_workflow_that_waited_is_linked_to_what_it_waited_in() -> None:
    """The workflow enters the call again when the answer is there: the span that pays links to the one that asked."""
    told = Told()
    asyncio.run(told.run("pay", {"cents": 5}))
    asked, paid = told.calls
    assert asked.attributes["guard.decision"] == "asked"
    assert paid.attributes["guard.decision"] == "succeeded"
    assert [link.context for link in paid.links] == [asked.context]

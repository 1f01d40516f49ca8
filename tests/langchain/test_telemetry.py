"""OpenTelemetry around LangChain's agents: sync, async, streaming, paused and resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guarded_core import Guard, OpenTelemetry, ToolExecutionPolicy
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

CONFIG: Any = {"configurable": {"thread_id": "thread-1"}}


def read(word: str) -> str:
    """Read."""
    return word


def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


class Told:
    """An agent that makes one call, then says "done", and the spans that it exports."""

    def __init__(self, name: str, arguments: dict[str, Any]) -> None:
        self.exported = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exported))
        self.tracer = provider.get_tracer("application")
        self.guard = Guard(
            ToolExecutionPolicy({"read": "read_only", "pay": "financial"}),
            approver=InterruptApprover(),
            telemetry=OpenTelemetry(tracer_provider=provider),
        )
        tools = guard_tools([StructuredTool.from_function(one) for one in (read, pay)], self.guard)
        model = ScriptedChatModel([says(tool_call(name, arguments)), "done"])
        self.agent = create_agent(model, tools, checkpointer=InMemorySaver())

    def run(self, entered: str, given: Any) -> None:
        """The agent in a session and below a span of the application's, to its end or its next pause."""

        async def arun() -> None:
            if entered == "ainvoke":
                await self.agent.ainvoke(given, CONFIG)
            else:
                async for _ in self.agent.astream(given, CONFIG):
                    pass

        session = self.guard.session("user-17", tools=["read", "pay"], session_id="thread-1")
        with session, self.tracer.start_as_current_span("agent"):
            if entered == "invoke":
                self.agent.invoke(given, CONFIG)
            elif entered == "stream":
                for _ in self.agent.stream(given, CONFIG):
                    pass
            else:
                asyncio.run(arun())

    @property
    def calls(self) -> list[Any]:
        """The spans of calls."""
        return [span for span in self.exported.get_finished_spans() if span.name.startswith("execute_tool")]


@pytest.mark.parametrize("entered", ["invoke", "ainvoke", "stream", "astream"])
def test_a_call_is_a_child_of_the_applications_span(entered: str) -> None:
    """However the agent is run."""
    told = Told("read", {"word": "tok-4711"})
    told.run(entered, {"messages": [("user", "go")]})
    (call,) = told.calls
    (agent,) = [span for span in told.exported.get_finished_spans() if span.name == "agent"]
    assert call.name == "execute_tool read"
    assert call.parent.span_id == agent.context.span_id
    assert call.attributes["guard.decision"] == "succeeded"
    assert "tok-4711" not in call.to_json()


@pytest.mark.parametrize("entered", ["invoke", "ainvoke", "stream", "astream"])
def test_a_run_that_was_paused_is_linked_to_what_it_paused_in(entered: str) -> None:
    """The span that asked has ended when the run is paused; the one that pays links to it."""
    told = Told("pay", {"cents": 5})
    told.run(entered, {"messages": [("user", "go")]})
    (asked,) = told.calls
    assert asked.attributes["guard.decision"] == "asked"
    assert asked.status.is_unset
    (request,) = told.guard.approvals.pending()
    told.guard.approvals.decide(request.id, by="lee", approve=True)
    told.run(entered, Command(resume={request.id: True}))
    paid = told.calls[-1]
    assert paid.attributes["guard.decision"] == "succeeded"
    assert [link.context for link in paid.links] == [asked.context]

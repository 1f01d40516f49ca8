"""What is private in LlamaIndex is what compat.py takes it for, in the installed version."""

import inspect
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.agent.workflow.base_agent import _get_waiting_for_event_exception
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.calling import call_tool
from llama_index.core.workflow import Context
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from pydantic import Field

from guarded_llamaindex import guard_tool
from guarded_llamaindex.compat import (
    CALL_TOOL_CALLS_TWICE,
    NOT_FOUND,
    SIGNALS,
    current_event,
    current_workflow_context,
    field_defaults,
    makes_its_outputs,
)
from guarded_llamaindex.testing import ScriptedLLM, tool_call


def test_signals_are_what_agents_let_through() -> None:
    """An agent turns every error of a tool into an output, but for this."""
    assert (_get_waiting_for_event_exception(),) == SIGNALS


def test_call_tool_calls_twice_where_it_says_so() -> None:
    """A failing tool with one parameter runs once or twice, by version."""
    calls = []

    def fail(x: int) -> int:
        calls.append(x)
        raise OSError

    call_tool(FunctionTool.from_defaults(fail), {"x": 1})
    assert len(calls) == (2 if CALL_TOOL_CALLS_TWICE else 1)


async def test_an_agent_says_not_found_in_these_words() -> None:
    """`audited_events` knows by them that no tool was reached."""
    agent = FunctionAgent(tools=[], llm=ScriptedLLM([tool_call("made up {x}", {}), "done"]))
    handler = agent.run("go")
    [event] = [event async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    await handler
    assert event.tool_output.content == NOT_FOUND.format(name="made up {x}")
    assert event.tool_output.raw_output is None
    assert event.tool_output.is_error


async def test_the_step_is_known_where_there_is_one() -> None:
    """Inside a tool, the event is the agent's ToolCall and the Context the workflow's; outside, there is neither."""
    seen: list[Any] = []

    async def look(ctx: Context) -> str:
        """Looks."""
        seen.extend((ctx, current_workflow_context(), current_event()))
        return ""

    await FunctionAgent(tools=[look], llm=ScriptedLLM([tool_call("look", {}, id="7"), "done"])).run("go")
    ctx, context, event = seen
    assert context is ctx
    assert isinstance(event, ToolCall)
    assert (event.tool_name, event.tool_id) == ("look", "7")
    assert (current_workflow_context(), current_event()) == (None, None)


def test_field_defaults_are_the_values_a_tool_fills_in() -> None:
    """A Field default in a signature, also one from a factory."""

    def f(a: int = Field(3), b: list[int] = Field(default_factory=list), c: int = 5) -> str:  # noqa: B008
        return repr((a, b, c))

    tool = FunctionTool.from_defaults(f)
    assert field_defaults(tool) == {"a": 3, "b": []}
    assert tool.call().content == "(3, [], 5)"


def test_outputs_are_the_tools_own_only_without_callbacks() -> None:
    """A callback may hand out an output that it keeps; a subclass may do anything."""
    assert makes_its_outputs(FunctionTool.from_defaults(lambda: 1, name="f", description="F."))
    assert not makes_its_outputs(FunctionTool.from_defaults(lambda: 1, name="f", description="F.", callback=str))

    class Own(FunctionTool):
        async def acall(self, *args: Any, **kwargs: Any) -> Any:
            return None

    assert not makes_its_outputs(Own.from_defaults(lambda: 1, name="f", description="F."))


def test_instrumentation_sees_one_span_a_call(guard_of: Any) -> None:
    """The guarded tool opens no span of its own: what is traced is the inner tool's call, once."""
    entered: list[str] = []

    class Handler(BaseSpanHandler[Any]):
        def new_span(self, id_: str, *args: Any, **kwargs: Any) -> None:
            entered.append(id_.partition("-")[0])

        def prepare_to_exit_span(self, *args: Any, **kwargs: Any) -> None:
            return None

        def prepare_to_drop_span(self, *args: Any, **kwargs: Any) -> None:
            return None

    guard = guard_of("f")
    tool = guard_tool(FunctionTool.from_defaults(lambda: 1, name="f", description="F."), guard)
    dispatcher = get_dispatcher()
    handlers = dispatcher.span_handlers
    dispatcher.span_handlers = [*handlers, Handler()]
    try:
        with guard.session("user-17", tools=["f"]):
            tool.call()
    finally:
        dispatcher.span_handlers = handlers
    assert entered == ["FunctionTool.call"]
    assert list(inspect.signature(type(tool).call).parameters) == ["self", "args", "kwargs"]

"""Bare and guarded side by side: the guarded tool is the same tool, to a model, a framework and its callbacks."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import (
    BaseTool,
    BaseToolkit,
    StructuredTool,
    ToolException,
    render_text_description_and_args,
    tool,
)
from langchain_core.utils.function_calling import convert_to_openai_tool

from guarded_core import Guard
from guarded_langchain import guard_tool, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

Same = Callable[[Callable[[], Any], Callable[[], Any]], None]
Pair = tuple[BaseTool, BaseTool]


def test_every_kind_gives_the_same_by_every_way(kind: Any, pair: Pair, way: Any, same: Same) -> None:
    """Through a ToolNode, with a ToolCall and with a dict, sync and async: one result, one run."""
    bare, guarded = pair
    same(lambda: way(guarded, kind.args), lambda: way(bare, kind.args))


@pytest.mark.parametrize("make", ["simple", "agent"])
def test_text_input_gives_the_same(make: str, kinds: Any, guard: Guard, same: Same) -> None:
    """A tool of one argument takes a bare text for it."""
    bare = kinds[make].make()
    guarded = guard_tool(bare, guard)
    same(lambda: guarded.invoke("hello"), lambda: bare.invoke("hello"))
    same(lambda: asyncio.run(guarded.ainvoke("hello")), lambda: asyncio.run(bare.ainvoke("hello")))
    same(lambda: guarded.run("hello"), lambda: bare.run("hello"))


def test_a_call_runs_once_and_is_on_record_once(kind: Any, pair: Pair, way: Any, guard: Guard, outcomes: Any) -> None:
    """Each way leaves one Authorized and one terminal event."""
    if kind.sync or way.is_async:
        way(pair[1], kind.args)
        assert outcomes(guard) == [("sample", "authorized", None), ("sample", "succeeded", None)]
    else:
        with pytest.raises(NotImplementedError):
            way(pair[1], kind.args)
        assert outcomes(guard) == [("sample", "denied", "cannot_run")]


# What a model is shown


def shown(tool: BaseTool) -> Any:
    """All that a framework asks of a tool before it is called."""
    schema = tool.tool_call_schema
    model = ScriptedChatModel(["nothing"])
    model.bind_tools([tool]).invoke("hi")
    return {
        "openai": convert_to_openai_tool(tool),
        "strict": convert_to_openai_tool(tool, strict=True),
        "bound": model.seen[0].tools,
        "args": tool.args,
        "schema": schema if isinstance(schema, dict) else repr(getattr(schema, "model_fields", schema)),
        "rendered": re.sub(r" at 0x\w+", "", render_text_description_and_args([tool])),
        "single": tool.is_single_input,
        **{name: getattr(tool, name) for name in BaseTool.model_fields if name != "args_schema"},
        "args_schema": getattr(tool.args_schema, "__name__", tool.args_schema),
        "own": repr(type(tool.get_input_schema())),
    }


def test_a_model_is_shown_the_same(kind: Any, pair: Pair) -> None:
    """Name, description, schemas, and every field of a BaseTool are the inner tool's."""
    bare, guarded = pair
    assert shown(guarded) == shown(bare)


# Callbacks, tags, events


class Recording(BaseCallbackHandler):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        kept = {key: kwargs.get(key) for key in ("tags", "inputs", "name", "tool_call_id")}
        kept["metadata"] = {key: kwargs["metadata"].get(key) for key in ("m", "team")}
        self.events.append(("start", serialized, input_str, kept))

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.events.append(("end", getattr(output, "content", output), kwargs["tags"], kwargs["name"]))

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(("error", type(error).__name__, str(error)))


class AsyncRecording(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.events: list[Any] = []

    async def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        self.events.append(("start", input_str, kwargs["inputs"]))

    async def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        self.events.append(("end", getattr(output, "content", output)))


def test_callbacks_see_the_same(kind: Any, pair: Pair, way: Any) -> None:
    """One start and one end, or one error, with the same inputs, names, tags and metadata."""
    handlers = []
    for either in pair:
        handler = Recording()
        handlers.append(handler)
        config: RunnableConfig = {
            "callbacks": [handler],
            "configurable": {"k": "v"},
            "tags": ["t"],
            "metadata": {"m": 1},
        }
        try:
            way(either, kind.args, config)
        except Exception:
            handler.events.append("raised")
    if kind.traces_itself:
        assert [event[0] for event in handlers[1].events] == ["start", "start", "end", "end"]
    else:
        assert handlers[1].events == handlers[0].events


def test_async_callbacks_see_the_same(pair: Pair, lone: Any) -> None:
    """Async handlers are awaited, once."""
    seen = []
    for either in pair:
        handler = AsyncRecording()
        call = {"name": "sample", "args": dict(lone.args), "id": "call-1", "type": "tool_call"}
        asyncio.run(either.ainvoke(call, {"callbacks": [handler], "configurable": {"k": "v"}}))
        seen.append(handler.events)
    assert len(seen[0]) == 2
    assert seen[1] == seen[0]


def test_events_of_a_stream_are_the_same(lone: Any, pair: Pair) -> None:
    """`astream_events` tells of one tool run, not two."""

    async def events(tool: BaseTool) -> list[Any]:
        call = {"name": "sample", "args": dict(lone.args), "id": "call-1", "type": "tool_call"}
        return [
            (event["event"], event["name"], event["tags"], str(event["data"]))
            async for event in tool.astream_events(call, {"configurable": {"k": "v"}}, version="v2")
        ]

    bare, guarded = pair
    told = asyncio.run(events(bare))
    assert [event for event, *_ in told if event.startswith("on_tool")] == ["on_tool_start", "on_tool_end"]
    assert asyncio.run(events(guarded)) == told


# As a Runnable


@pytest.fixture
def adders(guard: Guard) -> Pair:
    """A tool that adds one, bare and guarded."""

    @tool
    def sample(a: int) -> int:
        """Add one."""
        return a + 1

    return sample, guard_tool(sample, guard)


RUNNABLE: dict[str, Callable[[BaseTool], Any]] = {
    "batch": lambda t: t.batch([{"a": 1}, {"a": 2}]),
    "batch of ToolCalls": lambda t: [m.content for m in t.batch([{**call, "id": "x"} for call in CALLS])],
    "abatch": lambda t: asyncio.run(t.abatch([{"a": 1}, {"a": 2}])),
    "stream": lambda t: list(t.stream({"a": 1})),
    "with_retry": lambda t: t.with_retry(stop_after_attempt=2).invoke({"a": 1}),
    "with_config": lambda t: t.with_config(tags=["x"]).invoke({"a": 1}),
    "with_fallbacks": lambda t: t.with_fallbacks([RunnableLambda(lambda _: 0)]).invoke({"a": 1}),
    "bind": lambda t: t.bind().invoke({"a": 1}),
    "pipe": lambda t: (t | RunnableLambda(lambda n: n * 10)).invoke({"a": 1}),
    "map": lambda t: t.map().invoke([{"a": 1}, {"a": 2}]),
    "run": lambda t: t.run({"a": 1}),
    "arun": lambda t: asyncio.run(t.arun({"a": 1})),
    "a copy": lambda t: t.model_copy().invoke({"a": 1}),
    "a deep copy": lambda t: t.model_copy(deep=True).invoke({"a": 1}),
    "base run": lambda t: BaseTool.run(t, {"a": 1}),
}
CALLS = [{"name": "sample", "args": {"a": n}, "type": "tool_call"} for n in (1, 2)]


@pytest.mark.parametrize("use", RUNNABLE.values(), ids=RUNNABLE)
def test_as_a_runnable_it_is_the_same(
    use: Callable[[BaseTool], Any], adders: Pair, guard: Guard, outcomes: Any
) -> None:
    """Whatever a Runnable can do, a guarded tool does, through the guard."""
    bare, guarded = adders
    assert use(guarded) == use(bare)
    told = [outcome for _, outcome, _ in outcomes(guard)]
    assert told
    assert told.count("authorized") == told.count("succeeded") == len(told) // 2


async def test_astream_is_the_same(adders: Pair) -> None:
    """`astream` yields the result."""
    bare, guarded = adders
    assert [item async for item in guarded.astream({"a": 1})] == [item async for item in bare.astream({"a": 1})] == [2]


# What a tool raises


class Broken(Exception):
    pass


@pytest.mark.parametrize(
    "raised",
    [Broken("by the tool"), ToolException("by the tool"), ValueError("by the tool")],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.parametrize(
    "handler", [False, True, "sorry", lambda error: f"handled {error}"], ids=["no", "yes", "text", "call"]
)
def test_what_a_tool_raises_is_raised(
    raised: Exception, handler: Any, guard: Guard, way: Any, same: Same, outcomes: Any
) -> None:
    """Its own exception, and its own `handle_tool_error`, work as without the guard; the trail has its type only."""

    @tool
    def sample(a: int) -> int:
        """Fail."""
        raise raised

    sample.handle_tool_error = handler
    guarded = guard_tool(sample, guard)
    same(lambda: way(guarded, {"a": 1}), lambda: way(sample, {"a": 1}))
    assert outcomes(guard) == [("sample", "authorized", None), ("sample", "failed", "execution_failed")]
    assert guard.audit.events[-1].error_type == type(raised).__name__  # type: ignore[union-attr]


# Where it runs


async def test_sync_stays_sync_and_async_stays_async(guard: Guard) -> None:
    """A coroutine runs in the caller's loop, a function in the caller's thread, or under a loop in another one."""
    places: list[Any] = []

    def place(a: int) -> int:
        places.append(threading.get_ident())
        return a

    async def aplace(a: int) -> int:
        places.append((threading.get_ident(), asyncio.get_running_loop()))
        return a

    both = StructuredTool.from_function(func=place, coroutine=aplace, name="sample", description="d")
    guarded = guard_tool(both, guard)
    guarded.invoke({"a": 1})
    await guarded.ainvoke({"a": 1})
    here = threading.get_ident()
    assert places == [here, (here, asyncio.get_running_loop())]
    both.coroutine = None
    places.clear()
    await guard_tool(both, guard).ainvoke({"a": 1})
    assert places != [here]


def test_a_denial_of_a_return_direct_tool_is_the_answer(guard: Guard) -> None:
    """As every answer of such a tool is."""

    @tool(return_direct=True)
    def sample(a: int) -> int:
        """Answer."""
        return a

    model = ScriptedChatModel([says(tool_call("sample", {"a": "x"}))])
    said = create_agent(model, tools=[guard_tool(sample, guard)]).invoke({"messages": [("user", "go")]})["messages"]
    assert said[-1].artifact["code"] == "invalid_payload"


# What goes into a guard


def test_toolkits_functions_and_tools_are_taken(guard_of: Any) -> None:
    """A toolkit, a plain function and a tool all become guarded tools, in their order."""

    @tool
    def first(a: int) -> int:
        """First."""
        return a

    def second(a: int) -> int:
        """Second."""
        return a + 1

    class Kit(BaseToolkit):
        def get_tools(self) -> list[BaseTool]:
            return [first]

    guard = guard_of("first", "second")
    with guard.session("user-17", tools=["first", "second"]):
        assert [t.invoke({"a": 1}) for t in guard_tools([first, second], guard)] == [1, 2]
        assert [t.invoke({"a": 1}) for t in guard_tools(Kit(), guard)] == [1]

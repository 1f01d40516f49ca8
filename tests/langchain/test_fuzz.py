"""A random walk over everything public on guarded tools and agents: the tool never runs without an Authorized event."""

from __future__ import annotations

import asyncio
import inspect
import random
import warnings
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware, guard_tool
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

# What draws pictures asks a server to; the rest only describes.
LEFT_OUT = {"get_graph", "aget_graph", "get_prompts", "json", "copy_file", "lc_secrets"}
ARGS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    (("1",), {}),
    ((), {"a": 1}),
    (({"a": 1},), {}),
    (([{"a": 1}],), {}),
    (({"name": "sample", "args": {"a": 1}, "id": "call-1", "type": "tool_call"},), {}),
    (([AIMessage("", tool_calls=[tool_call("sample", {"a": 1})])],), {}),
    (({"messages": [AIMessage("", tool_calls=[tool_call("sample", {"a": 1})])]},), {}),
    (({"messages": [("user", "go")]},), {}),
    ((), {"input": {"a": 1}}),
    ((), {"a": 1, "config": {}}),
    ((), {"a": 1, "config": {"callbacks": []}, "run_manager": None}),
    (({"a": 1}, {}), {}),
    ((lambda *given, **named: given,), {}),
]


class Args(BaseModel):
    a: int


class Subclass(BaseTool):
    name: str = "sample"
    description: str = "d"
    args_schema: type[BaseModel] = Args
    runs: list[Any]

    def _run(self, a: int) -> str:
        self.runs.append(a)
        return "ran"


class Walk:
    """One random walk: it counts what runs, and compares it with what is on record after each step."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.runs: list[Any] = []
        self.guard = Guard(ToolExecutionPolicy({"sample": "mutating"}), max_denials=100_000)

    def inner(self, kind: str) -> BaseTool:
        def run(a: Any) -> str:
            self.runs.append(a)
            return "ran"

        async def arun(a: Any) -> str:
            return run(a)

        if kind == "structured":
            return StructuredTool(name="sample", description="d", args_schema=Args, func=run, coroutine=arun)
        if kind == "simple":
            return Tool(name="sample", description="d", func=run, coroutine=arun)
        tool = Subclass(runs=[])
        tool.runs = self.runs
        return tool

    def start(self, kind: str, place: str) -> Any:
        """Where the walk begins: the tool, or an agent or a graph with it."""
        inner = self.inner(kind)
        if place == "tool":
            return guard_tool(inner, self.guard)
        if place == "node":
            graph = StateGraph(MessagesState)
            graph.add_node("tools", ToolNode([guard_tool(inner, self.guard)]))
            graph.add_edge(START, "tools")
            return graph.compile()
        model = ScriptedChatModel([says(tool_call("sample", {"a": 1})), "done"] * 200)
        return create_agent(model, tools=[guard_tool(inner, self.guard)], middleware=[GuardMiddleware(self.guard)])

    async def step(self, here: Any) -> Any:
        """Somewhere public from here: an attribute, a member, or what a call returns."""
        if callable(here) and self.random.random() < 0.6:
            args, kwargs = self.random.choice(ARGS)
            there = here(*args, **kwargs)
            if inspect.isawaitable(there):
                there = await asyncio.wait_for(there, 5)
            if inspect.isgenerator(there):
                there = list(islice(there, 20))
            if inspect.isasyncgen(there):
                there = [item async for item in there]
            return there
        if isinstance(here, Mapping) and here:
            return self.random.choice(list(here.values()))
        if isinstance(here, list | tuple) and here:
            return self.random.choice(here)
        public = [name for name in dir(here) if not name.startswith("_") and name not in LEFT_OUT]
        return getattr(here, self.random.choice(public)) if public else None

    async def run(self, start: Any, steps: int) -> None:
        here = start
        for _ in range(steps):
            try:
                here = await self.step(here)
            except Exception:
                here = start
            if here is None or isinstance(here, str | int | float | type) or here is self.guard:
                here = start
            authorized = [event for event in self.guard.audit.events if event.outcome.value == "authorized"]  # type: ignore[union-attr]
            assert len(self.runs) <= len(authorized)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("made", ["structured", "simple", "subclass"])
@pytest.mark.parametrize("place", ["tool", "node", "agent"])
@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "denied"])
async def test_no_walk_reaches_the_tool_unrecorded(seed: int, made: str, place: str, allowed: bool) -> None:
    """After every step, the tool has run no more often than the trail has authorised; denied, it has not run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        walk = Walk(seed)
        start = walk.start(made, place)
        with walk.guard.session("user-17", tools=["sample"] if allowed else [], max_calls=100_000):
            await walk.run(start, 150)
    assert allowed or walk.runs == []


@pytest.mark.parametrize("place", ["tool", "node", "agent"])
async def test_the_walk_does_get_there(place: str) -> None:
    """Allowed, such walks do run the tool: otherwise they would prove nothing."""
    total = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(20):
            walk = Walk(seed)
            with walk.guard.session("user-17", tools=["sample"], max_calls=100_000):
                await walk.run(walk.start("structured", place), 150)
            total += len(walk.runs)
    assert total > 0


async def test_a_walk_over_an_unguarded_tool_is_caught() -> None:
    """The same walks over the bare tool fail: the comparison can tell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        caught = 0
        for seed in range(6):
            walk = Walk(seed)
            try:
                await walk.run(walk.inner("structured"), 150)
            except AssertionError:
                caught += 1
    assert caught > 0

"""Random routes, arguments, sessions and policies: nothing runs that the guard did not allow."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.agent.react import ReActChatFormatter, ReActOutputParser
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata, ToolOutput, adapt_to_async_tool
from llama_index.core.tools.calling import acall_tool, call_tool

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.testing import FailingSink
from guarded_llamaindex import GuardedTool, guard_tool, guarded_retriever
from guarded_llamaindex.testing import ScriptedLLM, ScriptStep, tool_call

Arguments = dict[str, Any]
RULES = [DenyToolParam(tool="*", param="path", equals="secret")]


class World:
    """Two tools, their guard, and an oracle that each execution asks whether it was allowed."""

    def __init__(self) -> None:
        self.sink = FailingSink()
        self.guard = Guard(ToolExecutionPolicy(), audit=self.sink)
        self.allowed: frozenset[str] = frozenset()
        self.runs = 0
        self.faults: list[str] = []
        self.set_policy("both")
        self.tools = [
            guard_tool(FunctionTool.from_defaults(self.read), self.guard, risk="read_only"),
            guard_tool(FunctionTool.from_defaults(async_fn=self.aread), self.guard, risk="read_only"),
            guard_tool(self._other_kind(), self.guard, risk="read_only"),
        ]

    def _ran(self, tool: str, path: Any, lines: Any) -> str:
        self.runs += 1
        authorized = sum(event.outcome.value == "authorized" for event in self.sink.events)
        if self.runs > authorized:
            self.faults.append(f"{tool} ran without an Authorized event")
        if tool not in self.allowed or path == "secret" or type(path) is not str or type(lines) is not int:
            self.faults.append(f"{tool} ran, and should not have: {path!r}, {lines!r}")
        return f"content of {path}"

    def read(self, path: str, lines: int = 1) -> str:
        """Reads."""
        return self._ran("read", path, lines)

    async def aread(self, path: str, lines: int = 1) -> str:
        """Reads."""
        return self._ran("aread", path, lines)

    def _other_kind(self) -> AsyncBaseTool:
        ran = self._ran

        class Other(AsyncBaseTool):
            metadata = ToolMetadata(  # type: ignore[assignment]
                name="other", description="Reads.", fn_schema=FunctionTool.from_defaults(self.read).metadata.fn_schema
            )

            def call(self, path: Any, lines: Any = 1) -> ToolOutput:  # type: ignore[override]
                return ToolOutput(tool_name="other", content=ran("other", path, lines), raw_input={})

            async def acall(self, path: Any, lines: Any = 1) -> ToolOutput:  # type: ignore[override]
                return self.call(path, lines)

        return Other()

    def set_policy(self, kind: str) -> None:
        """Reload the policy: both tools, one of them, or none."""
        names = {"both": ("read", "aread", "other"), "one": ("read",), "none": ()}[kind]
        self.guard.reload(ToolExecutionPolicy(dict.fromkeys(names, "read_only"), rules=RULES))
        self.policy = frozenset(names)


def agent_route(make: Callable[[GuardedTool, ScriptedLLM], Any], *, react: bool = False) -> Any:
    """A route through an agent whose model calls the tool with the arguments."""

    async def route(tool: GuardedTool, arguments: Arguments) -> Any:
        step: Any = tool_call(tool.spec_name, arguments)
        if react:
            step = f"Thought: x\nAction: {tool.spec_name}\nAction Input: {arguments}"
        script: list[ScriptStep] = [step, "Thought: x\nAnswer: done" if react else "done", "Thought: x\nAnswer: done"]
        return await make(tool, ScriptedLLM(script, function_calling=not react)).run("go", max_iterations=3)

    return route


def by_position(tool: GuardedTool, arguments: Arguments) -> Any:
    """Positional arguments."""
    return tool(*arguments.values())


def predicted(tool: GuardedTool, arguments: Arguments) -> Any:
    """Predict and call."""
    return ScriptedLLM([tool_call(tool.spec_name, arguments)]).predict_and_call([tool], user_msg="go")


def predicted_by_react(tool: GuardedTool, arguments: Arguments) -> Any:
    """Predict and call, of a model without function calling."""
    llm = ScriptedLLM([f"Thought: x\nAction: {tool.spec_name}\nAction Input: {arguments}"], function_calling=False)
    formatter, parser = ReActChatFormatter.from_defaults(), ReActOutputParser()
    return llm.predict_and_call([tool], user_msg="go", react_chat_formatter=formatter, output_parser=parser)


ROUTES: dict[str, Callable[[GuardedTool, Arguments], Any | Awaitable[Any]]] = {
    "call": lambda tool, a: tool.call(**a),
    "()": lambda tool, a: tool(**a),
    "by position": by_position,
    "acall": lambda tool, a: tool.acall(**a),
    "fn": lambda tool, a: tool.fn(**a),
    "_fn": lambda tool, a: tool._fn(*a.values()),
    "async_fn": lambda tool, a: tool.async_fn(**a),
    "_real_fn": lambda tool, a: tool._real_fn(**a),
    "base call": lambda tool, a: FunctionTool.call(tool, **a),
    "base acall": lambda tool, a: FunctionTool.acall(tool, **a),
    "call_tool": call_tool,
    "acall_tool": acall_tool,
    "adapted": lambda tool, a: adapt_to_async_tool(tool).acall(**a),
    "rewrapped": lambda tool, a: FunctionTool.from_defaults(tool.fn, async_fn=tool.async_fn, name="x").acall(**a),
    "predict": predicted,
    "predict by react": predicted_by_react,
    "function agent": agent_route(lambda tool, llm: FunctionAgent(tools=[tool], llm=llm)),
    "react agent": agent_route(lambda tool, llm: ReActAgent(tools=[tool], llm=llm), react=True),
    "workflow": agent_route(lambda tool, llm: AgentWorkflow([FunctionAgent(tools=[tool], llm=llm)])),
    "retriever": agent_route(
        lambda tool, llm: FunctionAgent(tool_retriever=guarded_retriever([tool], tool.guard), llm=llm)
    ),
}

arguments = st.one_of(
    st.just({"path": "a"}),
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.sampled_from(["a", "secret", "", 1, None, ["a"], {"path": "a"}]),
            "lines": st.sampled_from([1, "1", 2.5, None, True]),
            "extra": st.just("x"),
        },
    ),
)
actions = st.tuples(
    st.sampled_from(sorted(ROUTES)),
    st.integers(0, 2),
    arguments,
    st.sampled_from(["none", "open", "open", "open", "other tools", "closed", "used up"]),
    st.sampled_from(["both", "both", "one", "none"]),
    st.sampled_from([False, False, False, True]),
)


@settings(max_examples=30)
@given(st.lists(actions, min_size=1, max_size=6))
def test_nothing_runs_unguarded(steps: list[Any]) -> None:
    """By any route, each execution follows an Authorized event of its own, and is one that policy and session allow."""
    world = World()
    for route, place, given_arguments, session, policy, failing in steps:
        world.set_policy(policy)
        world.sink.failing = failing
        _take(world, route, world.tools[place], given_arguments, session)
    assert world.faults == []
    authorized = sum(event.outcome.value == "authorized" for event in world.sink.events)
    ended = sum(event.outcome.is_terminal for event in world.sink.events)
    assert world.runs <= authorized
    assert ended <= authorized


def _take(world: World, route: str, tool: GuardedTool, given_arguments: Arguments, session: str) -> None:
    context = world.guard.session(
        "user-17", tools=["nothing"] if session == "other tools" else ["read", "aread", "other"], max_calls=1
    )
    world.allowed = world.policy if session == "open" else frozenset()
    with contextlib.ExitStack() as stack:
        if session != "none":
            stack.enter_context(context)
        if session == "used up":
            world.allowed, failing = world.policy, world.sink.failing
            world.sink.failing = False
            tool.call(path="a")
            world.allowed, world.sink.failing = frozenset(), failing
        if session == "closed":
            context.close()
        # Whatever comes back, output or error: the oracle tells what ran.
        with contextlib.suppress(Exception):
            result = ROUTES[route](tool, given_arguments)
            if inspect.isawaitable(result):
                asyncio.run(_awaited(result))


async def _awaited(result: Any) -> Any:
    return await result


def test_the_routes_do_run_tools() -> None:
    """Each route reaches each tool when everything is allowed: routes that lead nowhere would find nothing."""
    for route in ROUTES:
        world = World()
        for place, tool in enumerate(world.tools):
            _take(world, route, tool, {"path": "a"}, "open")
            assert world.runs == place + 1, (route, tool.spec_name)
        assert world.faults == []

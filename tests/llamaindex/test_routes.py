"""Every route around the guard is closed: whoever takes one is judged, or refused loudly."""

import asyncio
import copy
import inspect
import logging
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent
from llama_index.core.objects import ObjectIndex
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    QueryEngineTool,
    adapt_to_async_tool,
)
from llama_index.core.tools.calling import acall_tool, acall_tool_with_selection, call_tool, call_tool_with_selection
from llama_index.core.tools.ondemand_loader_tool import OnDemandLoaderTool
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.tools.tool_spec.load_and_search import LoadAndSearchToolSpec
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

from guarded_core import (
    DuplicateTool,
    Guard,
    GuardConfigurationError,
    InvalidTool,
    PolicyDenied,
    ToolExecutionError,
    ToolExecutionPolicy,
)
from guarded_core.rules.kinds import DenyToolParam
from guarded_llamaindex import (
    GuardedAgentWorkflow,
    GuardedTool,
    UnguardedTools,
    UnsafeCodeExecution,
    assert_all_guarded,
    guard_tool,
    guard_tools,
    guarded_retriever,
)
from guarded_llamaindex.compat import CALL_TOOL_CALLS_TWICE
from guarded_llamaindex.testing import ScriptedLLM, tool_call

Ran = list[Any]


@pytest.fixture
def ran() -> Ran:
    """What was read."""
    return []


@pytest.fixture
def guard() -> Guard:
    """Allows to read anything but secrets, and to search."""
    rules = [DenyToolParam(tool="read", param="path", equals="secret")]
    return Guard(ToolExecutionPolicy({"read": "read_only", "docs": "read_only"}, rules=rules))


@pytest.fixture(params=["sync", "async", "both"])
def read(request: pytest.FixtureRequest, ran: Ran, guard: Guard) -> GuardedTool:
    """A guarded tool; only its guard keeps it from reading secrets."""

    def read(path: str) -> str:
        """Reads a file."""
        ran.append(path)
        return f"content of {path}"

    async def aread(path: str) -> str:
        """Reads a file."""
        return read(path)

    functions = {"sync": {"fn": read}, "async": {"async_fn": aread}, "both": {"fn": read, "async_fn": aread}}
    return guard_tool(FunctionTool.from_defaults(**functions[request.param], name="read"), guard)


def _langchain(tool: GuardedTool, path: str, *, structured: bool = False) -> Any:
    tools = pytest.importorskip("langchain_core.tools")
    # LlamaIndex's own bridge wants a LangChain of before 1.0; the classes it takes from there have not changed.
    bridge = types.ModuleType("llama_index.core.bridge.langchain")
    bridge.Tool, bridge.StructuredTool = tools.Tool, tools.StructuredTool  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, bridge.__name__, bridge)
        if structured:
            return tool.to_langchain_structured_tool().invoke({"path": path})
        return tool.to_langchain_tool().invoke(path)


ROUTES: dict[str, Callable[[GuardedTool, str], Any]] = {
    "fn": lambda tool, path: tool.fn(path=path),
    "fn, by position": lambda tool, path: tool.fn(path),
    "_fn": lambda tool, path: tool._fn(path=path),
    "async_fn": lambda tool, path: asyncio.run(tool.async_fn(path=path)),
    "_async_fn": lambda tool, path: asyncio.run(tool._async_fn(path)),
    "_real_fn": lambda tool, path: _finished(tool._real_fn(path)),
    "FunctionTool.call": lambda tool, path: FunctionTool.call(tool, path=path),
    "FunctionTool.acall": lambda tool, path: asyncio.run(FunctionTool.acall(tool, path=path)),
    "FunctionTool()": lambda tool, path: FunctionTool.__call__(tool, path=path),
    "AsyncBaseTool()": lambda tool, path: AsyncBaseTool.__call__(tool, path=path),
    "adapter": lambda tool, path: asyncio.run(adapt_to_async_tool(tool).acall(path=path)),
    "call_tool": lambda tool, path: call_tool(tool, {"path": path}),
    "acall_tool": lambda tool, path: asyncio.run(acall_tool(tool, {"path": path})),
    "selection": lambda tool, path: call_tool_with_selection(tool_call("read", {"path": path}), [tool]),
    "aselection": lambda tool, path: asyncio.run(acall_tool_with_selection(tool_call("read", {"path": path}), [tool])),
    "copy": lambda tool, path: copy.copy(tool).call(path=path),
    "deepcopy": lambda tool, path: copy.deepcopy(tool).call(path=path),
    "rewrapped": lambda tool, path: FunctionTool.from_defaults(tool.fn, async_fn=tool.async_fn, name="x")(path=path),
    "langchain": _langchain,
    "langchain, structured": lambda tool, path: _langchain(tool, path, structured=True),
}


def _finished(result: Any) -> Any:
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_route_is_judged(read: GuardedTool, guard: Guard, ran: Ran, route: Callable[[GuardedTool, str], Any]) -> None:
    """Whatever way the tool is run, the guard judges it: no session, no call; what a rule denies does not run."""
    assert "No session is open" in _taken(route, read, "a")
    with guard.session("user-17", tools=["read"]):
        assert "The policy does not allow this call" in _taken(route, read, "secret")
        assert ran == []
        assert "content of a" in _taken(route, read, "a")
    assert ran == ["a"]


def _taken(route: Callable[[GuardedTool, str], Any], tool: GuardedTool, path: str) -> str:
    """What came back, as text; of a refusal that is an exception, its text."""
    try:
        return str(route(tool, path))
    except ToolExecutionError as error:
        return str(error)


def test_functions_return_what_the_tool_returned_and_raise_refusals(read: GuardedTool, guard: Guard) -> None:
    """`fn` and `async_fn` are functions like the bare tool's own: no ToolOutput, and an exception for a refusal."""
    with guard.session("user-17", tools=["read"]):
        assert read.fn("a") == "content of a"
        assert asyncio.run(read.async_fn(path="a")) == "content of a"
        with pytest.raises(PolicyDenied):
            read.fn(path="secret")
        with pytest.raises(PolicyDenied):
            asyncio.run(read.async_fn("secret"))
    assert read.fn.__doc__ == "Reads a file."
    assert str(inspect.signature(read.fn)) == "(path: str) -> str"
    assert not hasattr(read.fn, "__wrapped__")


def test_no_attribute_leads_to_the_inner_tool(guard: Guard, ran: Ran) -> None:
    """Attributes lead neither to the inner tool nor to its function; what a function closes over is no attribute."""
    inner = FunctionTool.from_defaults(lambda path: ran.append(path), name="read", description="Reads.")
    tool = guard_tool(inner, guard)
    reached: list[Any] = []
    pending: list[Any] = [tool]
    while pending:
        one = pending.pop()
        if any(one is known for known in reached) or isinstance(one, type | Guard | str | int | None):
            continue
        reached.append(one)
        pending += list(getattr(one, "__dict__", {}).values())
        pending += [getattr(one, name) for name in getattr(type(one), "__slots__", ())]
        pending += list(one) if isinstance(one, list | tuple) else list(one.values()) if isinstance(one, dict) else []
        pending.append(getattr(one, "__self__", None))
    assert not any(one is inner or one is inner.fn for one in reached)
    assert any(one is tool.metadata for one in reached)


@pytest.mark.parametrize("attribute", ["query_engine", "retriever", "client", "_query_engine"])
def test_inner_parts_are_not_exposed(guard: Guard, attribute: str) -> None:
    """What a bare query engine tool exposes would be a way around; asking for it fails loudly."""

    class Echo(CustomQueryEngine):
        def custom_query(self, query_str: str) -> str:
            return query_str

    tool = guard_tool(QueryEngineTool.from_defaults(Echo(), name="docs"), guard)
    with pytest.raises(AttributeError, match=attribute):
        getattr(tool, attribute)


def test_guarded_tool_cannot_be_pickled(read: GuardedTool) -> None:
    """A copy in another process would have another guard, or none."""
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        pickle.dumps(read)


@pytest.mark.usefixtures("offline")
def test_loader_built_from_a_guarded_tool_is_judged(guard: Guard, ran: Ran) -> None:
    """OnDemandLoaderTool runs the tool's private function, LoadAndSearchToolSpec its output: both ask the guard."""

    def read(path: str) -> list[Document]:
        """Reads a file."""
        ran.append(path)
        return [Document(text=f"content of {path}")]

    tool = guard_tool(read, guard)
    on_demand = OnDemandLoaderTool.from_tool(tool, name="x", description="x")
    load, _ = LoadAndSearchToolSpec.from_defaults(tool, name="y").to_tool_list()
    with guard.session("user-17", tools=["read"]):
        with pytest.raises(PolicyDenied):
            on_demand.call(path="secret", query_str="?")
        load.call(path="secret")  # it takes the record of a refusal for a document
        assert ran == []
        on_demand.call(path="a", query_str="?")
        load.call(path="b")
    assert ran == ["a", "b"]


def test_failing_tool_runs_once_through_call_tool(guard: Guard, ran: Ran) -> None:
    """`call_tool` tries a one-argument tool twice in some versions; a guarded one that failed does not run again."""

    def read(path: str) -> str:
        ran.append(path)
        raise OSError("disk on fire")

    tool = guard_tool(read, guard)
    with guard.session("user-17", tools=["read"]):
        outputs = [call_tool(tool, {"path": "a"}), asyncio.run(acall_tool(tool, {"path": "a"}))]
    assert ran == ["a", "a"]
    assert [(output.is_error, output.content) for output in outputs] == [(True, "Encountered error: disk on fire")] * 2


@pytest.mark.skipif(CALL_TOOL_CALLS_TWICE, reason="this version loses the key before the tool is called")
def test_call_tool_does_not_lose_an_unknown_key(guard: Guard, ran: Ran) -> None:
    """A one-argument tool called by a wrong name is refused; `call_tool` would pass the value by position."""
    tool = guard_tool(FunctionTool.from_defaults(lambda path: ran.append(path), name="read", description="R."), guard)
    with guard.session("user-17", tools=["read"]):
        output = call_tool(tool, {"pfad": "a"})
    assert (ran, output.raw_output["code"]) == ([], "invalid_payload")


def test_wrapping_twice_is_wrapping_once(guard: Guard, read: GuardedTool) -> None:
    """A guarded tool is returned as it is, and refused where another guard or context is asked for."""
    assert guard_tool(read, guard) is read
    assert guard_tools([read], guard) == [read]
    with pytest.raises(InvalidTool, match="guarded already"):
        guard_tool(read, Guard(guard.policy))
    with guard.session("user-17", tools=["read"]) as session, pytest.raises(InvalidTool, match="guarded already"):
        guard_tool(read, guard, context=session)


def test_two_tools_of_one_name_are_refused(guard: Guard, read: GuardedTool) -> None:
    """An agent would call the last one, and never say so."""
    other = FunctionTool.from_defaults(lambda path: path, name="read", description="Reads.")
    with pytest.raises(DuplicateTool, match="'read'"):
        guard_tools([other, other], guard)
    with pytest.raises(DuplicateTool, match="'read'"):
        guard_tools([read, other], guard)


def test_one_guard_serves_two_agents_with_tools_of_one_name(guard: Guard, read: GuardedTool, ran: Ran) -> None:
    """Each guarded tool is judged and run as the tool it is, whatever else has its name."""
    other = guard_tool(FunctionTool.from_defaults(lambda page, path="": page, name="read", description="Reads."), guard)
    with guard.session("user-17", tools=["read"]):
        assert other.call(page=7).content == "7"
        assert read.call(path="a").content == "content of a"
        assert read.call(page=7).raw_output["code"] == "invalid_payload"
    assert ran == ["a"]


def test_all_tools_without_a_risk_are_named_at_once() -> None:
    """One error names each tool for which nobody said how dangerous it is; nothing is registered."""

    def one(x: int) -> int:
        return x

    def two(x: int) -> int:
        return x

    def three(x: int) -> int:
        return x

    guard = Guard(ToolExecutionPolicy({"two": "read_only"}))
    with pytest.raises(InvalidTool, match="no risk is declared for one, three"):
        guard_tools([one, two, three], guard)
    assert guard.spec("two") is None
    assert guard_tool(one, guard, risk="mutating").spec_name == "one"


class TestAssertAllGuarded:
    """`assert_all_guarded` names what an agent can reach unguarded."""

    def agent(self, **settings: Any) -> FunctionAgent:
        """A FunctionAgent named "a"."""
        return FunctionAgent(name="a", description="d", llm=ScriptedLLM(), **settings)

    def found(self, agent: Any, **settings: Any) -> list[str]:
        """What is not guarded."""
        with pytest.raises(UnguardedTools) as caught:
            assert_all_guarded(agent, **settings)
        assert all(line in str(caught.value) for line in caught.value.found)
        return list(caught.value.found)

    def test_guarded_agents_pass(self, read: GuardedTool, guard: Guard) -> None:
        """Guarded tools, a guarded retriever, and workflows of such agents are fine."""
        agent = self.agent(tools=[read])
        assert_all_guarded(agent)
        assert_all_guarded(self.agent(tool_retriever=guarded_retriever([read], guard)))
        assert_all_guarded(AgentWorkflow([agent]))

    def test_bare_tools_are_named(self, read: GuardedTool) -> None:
        """Bare tools, functions that the agent wraps itself, and what is appended later."""

        def delete(path: str) -> str:
            return path

        agent = self.agent(tools=[read, delete])
        agent.tools.append(lambda: 1)  # type: ignore[union-attr]
        assert self.found(agent) == [
            "agent 'a': tool 'delete' is not guarded",
            "agent 'a': tool '<lambda>' is not guarded",
        ]

    def test_subclass_of_a_guarded_tool_is_named(self, read: GuardedTool) -> None:
        """It may have a way of its own."""
        other = copy.copy(read)
        other.__class__ = type("Other", (GuardedTool,), {})
        assert self.found(self.agent(tools=[other])) == ["agent 'a': tool 'read' is not guarded"]

    def test_same_name_twice_is_named(self, read: GuardedTool) -> None:
        """Of two tools with one name only the last is called."""
        assert self.found(self.agent(tools=[read, read])) == [
            "agent 'a': 2 tools are named 'read', and the last one is called"
        ]

    @pytest.mark.usefixtures("offline")
    def test_bare_retriever_is_named(self, read: GuardedTool) -> None:
        """A tool retriever may come up with any tool."""
        retriever = ObjectIndex.from_objects([read]).as_retriever()
        assert self.found(self.agent(tool_retriever=retriever)) == [
            "agent 'a': its tool_retriever yields unguarded tools; use guarded_retriever"
        ]

    def test_agents_of_a_workflow_are_looked_at(self, read: GuardedTool) -> None:
        """Each of them, not the root only."""
        bare = FunctionAgent(name="b", description="d", llm=ScriptedLLM(), tools=[lambda: 1])
        workflow = AgentWorkflow([self.agent(tools=[read]), bare], root_agent="a")
        assert self.found(workflow, allow_handoff=True) == ["agent 'b': tool '<lambda>' is not guarded"]

    def test_handing_over_is_a_tool(self, read: GuardedTool, guard: Guard) -> None:
        """A workflow's own `handoff` is named, unless it is guarded, accepted, or there is nobody to hand over to."""
        unguarded = "the workflow: its own tool 'handoff' is not guarded; use GuardedAgentWorkflow"
        two = [self.agent(tools=[read]), FunctionAgent(name="b", description="d", llm=ScriptedLLM())]
        assert self.found(AgentWorkflow(two, root_agent="a")) == [unguarded]
        assert_all_guarded(AgentWorkflow(two, root_agent="a"), allow_handoff=True)
        with pytest.raises(InvalidTool, match="no risk is declared for handoff"):
            GuardedAgentWorkflow(two, root_agent="a", guard=guard)
        guard = Guard(ToolExecutionPolicy({"read": "read_only", "handoff": "read_only"}))
        assert_all_guarded(GuardedAgentWorkflow(two, root_agent="a", guard=guard))
        alone = [self.agent(can_handoff_to=[]), FunctionAgent(name="b", description="d", llm=ScriptedLLM())]
        alone[1].can_handoff_to = []
        assert_all_guarded(AgentWorkflow(alone, root_agent="a"))

        class Own(GuardedAgentWorkflow):
            def _get_handoff_tool(self, current_agent: Any) -> Any:
                return AgentWorkflow._get_handoff_tool(self, current_agent)

        assert self.found(Own(two, root_agent="a", guard=guard)) == [
            "the workflow: it has a _get_handoff_tool of its own",
            unguarded,
        ]

    def test_an_agent_inside_a_guarded_tool_is_looked_at(self, guard: Guard) -> None:
        """What a tool's code holds, names or imports: an agent, and a bare tool."""
        bare, inner = FunctionTool.from_defaults(lambda: 1, name="bare"), self.agent(tools=[lambda: 1])

        async def asks(question: str) -> str:
            return str(await inner.run(question))

        def calls(question: str) -> str:
            return str(bare.call())

        for function, expected in (
            (asks, "agent 'a': tool '<lambda>' is not guarded"),
            (calls, "inside a guarded tool: tool 'bare' is not guarded"),
        ):
            agent = FunctionAgent(name="b", llm=ScriptedLLM(), tools=[guard_tool(function, guard, risk="read_only")])
            assert self.found(agent) == [expected]
            retriever = guarded_retriever(agent.tools, guard)  # type: ignore[arg-type]
            assert self.found(FunctionAgent(name="b", llm=ScriptedLLM(), tool_retriever=retriever)) == [expected]

    def test_a_guarded_agent_inside_a_guarded_tool_is_fine(self, read: GuardedTool, guard: Guard) -> None:
        """The inner tool of a guarded one is no way around it."""
        inner = self.agent(tools=[read])

        async def asks(question: str) -> str:
            return str(await inner.run(question))

        assert_all_guarded(self.agent(tools=[guard_tool(asks, guard, risk="read_only"), read]))

    def test_what_cannot_be_looked_into_is_unknown(self, guard: Guard) -> None:
        """Code that makes an agent as it runs is never taken for guarded, and can be accepted."""

        async def makes(question: str) -> str:
            return str(await FunctionAgent(llm=ScriptedLLM(), tools=[]).run(question))

        agent = self.agent(tools=[guard_tool(makes, guard, risk="read_only")])
        (line,) = self.found(agent)
        assert line.startswith("it is not known what is behind ")
        assert line.endswith("makes: what FunctionAgent makes as it runs")
        assert_all_guarded(agent, allow_unknown=True)

    def test_a_source_of_tools_is_unknown(self, guard: Guard) -> None:
        """A tool spec or an MCP client that a guarded tool's own code holds; a guarded tool of one is no source."""

        class Orders(BaseToolSpec):
            spec_functions = ["refund"]  # noqa: RUF012

            def refund(self, order: str) -> str:
                """Refund."""
                return order

        def holding(source: Any) -> Any:
            def holds(question: str) -> str:
                return str(source)

            return holds

        client = BasicMCPClient("python")
        for source, named in (
            (Orders(), "the tool spec Orders"),
            (McpToolSpec(client), "the tool spec McpToolSpec"),
            (client, "the MCP client BasicMCPClient"),
        ):
            agent = self.agent(tools=[guard_tool(holding(source), guard, risk="read_only")])
            assert any(line.startswith(f"it is not known what is behind {named}") for line in self.found(agent))
            assert_all_guarded(agent, allow_unknown=True)
        (refund,) = Orders().to_tool_list()
        listed = McpToolSpec(client)._create_tool_fn("two")
        far = FunctionTool.from_defaults(async_fn=listed, name="two", description="d")
        schema = {"type": "object", "properties": {}}
        far_guarded = guard_tool(far, guard, risk="read_only", schema=schema)
        assert_all_guarded(self.agent(tools=[guard_tool(refund, guard, risk="read_only"), far_guarded]))

    def test_own_ways_of_calling_are_named(self, read: GuardedTool) -> None:
        """A subclass, or an object, that finds or calls tools its own way."""

        class Own(FunctionAgent):
            async def get_tools(self, input_str: str | None = None) -> Any:
                return []

        agent = Own(name="a", description="d", llm=ScriptedLLM(), tools=[read])
        assert self.found(agent) == ["agent 'a': it has a get_tools of its own"]

    def test_something_else_is_a_mistake(self) -> None:
        """Not an agent: nothing was checked, so nothing may look as if it had been."""
        with pytest.raises(GuardConfigurationError, match="not list"):
            assert_all_guarded([])  # type: ignore[arg-type]


class TestCodeExecution:
    """A CodeActAgent runs what the model writes in this very process, where no guard holds."""

    def agent(self, tool: GuardedTool) -> tuple[CodeActAgent, list[str]]:
        """A CodeActAgent whose model writes code, and the code that ran."""
        codes: list[str] = []

        async def run_code(code: str) -> str:
            codes.append(code)
            return "ran"

        llm = ScriptedLLM(["<execute>read('a')</execute>", "done"], function_calling=False)
        return CodeActAgent(code_execute_fn=run_code, tools=[tool], llm=llm), codes

    async def test_it_is_refused(self, read: GuardedTool) -> None:
        """The agent stops before the model is asked, and says how to accept it."""
        agent, codes = self.agent(read)
        with pytest.raises(Exception, match="UnsafeCodeExecution"):
            await agent.run("hi")
        with pytest.raises(UnguardedTools, match="it runs code that the model writes"):
            assert_all_guarded(agent)
        assert codes == []

    async def test_it_can_be_accepted_by_name(self, guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
        """With a reason, which each use logs; the tools are guarded all the same, and assert_all_guarded agrees."""

        def read(path: str) -> str:
            """Reads a file."""
            return f"content of {path}"

        accepted = UnsafeCodeExecution("runs in a container")
        tool = guard_tool(read, guard, code_execution=accepted)
        agent, codes = self.agent(tool)
        with caplog.at_level(logging.WARNING, "guarded_llamaindex"):
            assert str(await agent.run("hi")) == "done"
            assert_all_guarded(agent, code_execution=accepted)
        assert codes == ["read('a')"]
        assert {record.getMessage() for record in caplog.records} == {
            "unsafe code execution accepted for tool 'read': runs in a container",
            "unsafe code execution accepted for agent 'code_act_agent': runs in a container",
        }
        with pytest.raises(ToolExecutionError, match="No session"):
            tool.real_fn("a")

    def test_a_reason_is_needed(self) -> None:
        """An acceptance that says nothing is none."""
        with pytest.raises(GuardConfigurationError, match="reason"):
            UnsafeCodeExecution(" ")


def test_other_bases_cannot_be_skipped_to(read: GuardedTool) -> None:
    """There is no class between GuardedTool and its framework bases whose methods would run the inner tool."""
    assert GuardedTool.__mro__[1:4] == (FunctionTool, AsyncBaseTool, BaseTool)

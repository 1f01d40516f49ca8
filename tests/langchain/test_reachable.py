"""`reachable_tools`: every tool that an agent can get at without a guard is named."""

from __future__ import annotations

import functools
import importlib
import sys
import types
import warnings
from typing import Any

import mcp.types
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import convert_mcp_tool_to_langchain_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel.remote import RemoteGraph
from langgraph_supervisor import create_handoff_tool as supervisor_hand_over
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool as hand_over_to
from langgraph_swarm import create_swarm
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from mcp import ClientSession

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import (
    GuardMiddleware,
    UnguardedTools,
    assert_all_guarded,
    guard_tool,
    guard_tools,
    reachable_tools,
)
from guarded_langchain.reachable import ReachableTools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call


@pytest.fixture
def guard() -> Guard:
    """A guard that knows three tools."""
    return Guard(ToolExecutionPolicy(dict.fromkeys(("one", "two", "asking"), "read_only")))


def plain(name: str) -> BaseTool:
    """A tool without a guard."""
    return StructuredTool.from_function(func=lambda a: a, name=name, description="d", args_schema=SCHEMA)


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}


def agent_of(tools: list[Any], *middleware: Any) -> Any:
    """An agent over them."""
    return create_agent(ScriptedChatModel([]), tools=tools, middleware=middleware)


def told(held: Any) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """What the report says: unguarded, guarded, by middleware."""
    report = reachable_tools(held)
    return report.unguarded, report.guarded, report.by_middleware


def test_lists_of_tools(guard: Guard) -> None:
    """A list says which of its tools are wrapped; a provider's own tool never is."""
    mixed = [*guard_tools([plain("one")], guard), plain("two"), {"type": "web_search"}]
    assert told(mixed) == (("two", "web_search"), ("one",), ())
    assert not reachable_tools(mixed).is_complete
    assert reachable_tools(guard_tools([plain("one")], guard)).is_complete


def test_agents(guard: Guard) -> None:
    """Of a compiled agent, the tools of its ToolNode and of its middleware count."""

    class Bringing(AgentMiddleware[Any, Any, Any]):
        tools = [plain("brought")]  # noqa: RUF012 - as LangChain declares it

    assert told(agent_of(guard_tools([plain("one")], guard))) == ((), ("one",), ())
    assert told(agent_of([plain("one")], Bringing())) == (("brought", "one"), (), ())


def test_the_middleware_counts_as_a_guard(guard: Guard) -> None:
    """Tools that only run behind GuardMiddleware are covered, and told apart."""
    agent = agent_of([plain("one"), *guard_tools([plain("two")], guard)], GuardMiddleware(guard))
    assert told(agent) == ((), ("two",), ("one",))


class Desk:
    """An object whose methods are tools, and which holds all of an agent's."""

    def __init__(self, method: str) -> None:
        self.one = plain("one")
        self.asking = calling(getattr(self, method))
        self.tools = [self.one, self.asking]

    def calls_one(self, a: int) -> Any:
        return self.one.invoke({"a": a})

    def calls_by_a_helper(self, a: int) -> Any:
        return self.helper()

    def helper(self) -> Any:
        return [tool for tool in self.all_tools]

    @property
    def all_tools(self) -> list[BaseTool]:
        return self.tools

    def calls_nothing(self, a: int) -> Any:
        return a


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("name", ["closure", "calls_one", "calls_by_a_helper", "calls_nothing"])
def test_the_middleware_sees_no_call_that_a_tools_own_code_makes(guard: Guard, name: str, is_wrapped: bool) -> None:
    """A tool that another's code calls is unguarded, though the agent that has both has the middleware."""
    desk = Desk("calls_nothing" if name == "closure" else name)
    one = desk.one

    def closure(a: int) -> Any:
        return one.invoke({"a": a})

    outer = calling(closure) if name == "closure" else desk.asking
    agent = agent_of([one, *guard_tools([outer], guard)] if is_wrapped else [one, outer], GuardMiddleware(guard))
    report = reachable_tools(agent)
    assert ("one" in report.unguarded) is (name != "calls_nothing")
    assert ("one" in report.by_middleware) is (name == "calls_nothing")
    if name != "calls_nothing":
        with pytest.raises(UnguardedTools, match="tool 'one' is not guarded"):
            assert_all_guarded(agent)


def test_a_subagent_with_middleware_is_no_call_of_the_tools_own(guard: Guard) -> None:
    """A tool that asks an agent is no way to that agent's tools past its middleware."""
    one = plain("one")
    inner = agent_of([one], GuardMiddleware(guard))

    def asking(a: int) -> Any:
        return inner.invoke({"messages": []})

    agent = agent_of([one, calling(asking)], GuardMiddleware(guard))
    assert told(agent) == ((), (), ("asking", "one"))


def test_custom_graphs(guard: Guard) -> None:
    """Tools in a ToolNode, in a node's closure and in a global that a node names are found."""
    closed_over = plain("closed-over")

    def node(state: MessagesState) -> dict[str, Any]:
        closed_over.invoke({"a": 1})
        GLOBAL.invoke({"a": 1})
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([plain("one")]))
    graph.add_node("own", node)
    graph.add_edge(START, "own")
    graph.add_edge("own", "tools")
    assert told(graph.compile()) == (("closed-over", "global", "one"), (), ())


GLOBAL = plain("global")


def test_an_agent_inside_a_guarded_tool(guard: Guard) -> None:
    """Its tools are reached by whoever may ask it, so they count; the tool itself is guarded."""
    inner = agent_of([plain("one")])

    def ask(question: str) -> str:
        return str(inner.invoke({"messages": [("user", question)]}))

    asking = StructuredTool.from_function(func=ask, name="asking", description="Ask another agent.")
    assert told([guard_tool(asking, guard)]) == (("one",), ("asking",), ())


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_subagents_tools_are_not_covered_by_the_outer_middleware(guard: Guard, is_shared: bool) -> None:
    """An agent that a covered tool runs has calls of its own; so have two agents that share one bare tool."""
    inner_tool = plain("write_file")

    def inner(*middleware: Any) -> BaseTool:
        agent = agent_of([inner_tool], *middleware)

        def task(q: str) -> str:
            """Run a subagent."""
            return str(agent.invoke({"messages": [("user", q)]}))

        return StructuredTool.from_function(task)

    outer = [plain("a"), *([inner_tool] if is_shared else [])]
    exposed = told(agent_of([*outer, inner()], GuardMiddleware(guard)))
    assert exposed == (("write_file",), (), ("a", "task"))
    covered = told(agent_of([*outer, inner(GuardMiddleware(guard))], GuardMiddleware(guard)))
    assert covered == ((), (), ("a", "task", "write_file"))


def test_a_providers_own_tools_are_found_in_an_agent(guard: Guard) -> None:
    """They run at the provider, where nothing can guard them."""
    provided = [{"type": "web_search"}, {"type": "mcp", "name": "files"}]
    for middleware in ((), (GuardMiddleware(guard),)):
        assert told(agent_of([guard_tool(plain("one"), guard), *provided], *middleware))[0] == ("files", "web_search")


def calling(function: Any) -> BaseTool:
    """A tool of that function, with a name that the guard knows."""
    return StructuredTool.from_function(func=function, name="asking", description="d", args_schema=SCHEMA)


class Helper:
    """Holds nothing: what its methods name is found all the same."""

    def go(self, a: int) -> Any:
        return GLOBAL.invoke({"a": a})


class OfMethods(BaseTool):
    name: str = "asking"
    description: str = "d"

    def _run(self, a: int) -> Any:
        return GLOBAL.invoke({"a": a})


def in_a_comprehension(a: int) -> Any:
    """For each."""
    return [GLOBAL.invoke({"a": each}) for each in range(a)]


def through_a_module(a: int) -> Any:
    """By a module's attribute."""
    return HERE.GLOBAL.invoke({"a": a})


def importing(a: int) -> Any:
    """By a module that is imported as it runs."""
    from guarded_fixture_of_tools import imported  # type: ignore[import-not-found]

    return imported.invoke({"a": a})


HERE = types.ModuleType("here")
HERE.GLOBAL = GLOBAL  # type: ignore[attr-defined]
KEPT = {"global": GLOBAL}


@pytest.mark.parametrize(
    "held",
    [
        OfMethods(),
        calling(Helper().go),
        calling(in_a_comprehension),
        calling(through_a_module),
        calling(functools.lru_cache(through_a_module)),
        calling(functools.partial(through_a_module)),
        calling(lambda a: KEPT.get("global")),
    ],
    ids=["method", "class", "comprehension", "module", "cached", "partial", "dict"],
)
def test_code_that_names_a_tool_reaches_it(guard: Guard, held: BaseTool) -> None:
    """However a guarded tool's code comes to a bare one: a function's names, those inside it, and of its modules."""
    assert told(guard_tools([held], guard)) == (("global",), ("asking",), ())


def test_a_module_that_is_imported_late_is_followed(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is loaded, what the code takes from it is found; until then it is unknown what that is."""
    guarded = guard_tools([calling(importing)], guard)
    assert reachable_tools(guarded).unknown == ("importing: it imports guarded_fixture_of_tools as it runs",)
    loaded = types.ModuleType("guarded_fixture_of_tools")
    loaded.imported = plain("imported")  # type: ignore[attr-defined]
    loaded.other = plain("other")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, loaded.__name__, loaded)
    report = reachable_tools(guarded)
    assert (report.unguarded, report.unknown) == (("imported",), ())


def test_what_cannot_be_looked_into_is_unknown(guard: Guard) -> None:
    """Never guarded: a graph on a server, a toolkit, code that makes an agent as it runs, what cannot be read."""

    class Kit(BaseToolkit):
        def get_tools(self) -> list[BaseTool]:
            return []

    class Unreadable:
        __slots__ = ("other", "tools")

        def __getattribute__(self, name: str) -> Any:
            if name == "tools":
                raise RuntimeError
            return object.__getattribute__(self, name)

    kit, unreadable = Kit(), Unreadable()

    def making(a: int) -> Any:
        return create_agent(ScriptedChatModel([]), tools=[])

    def holding(a: int) -> Any:
        return kit, unreadable

    graph = StateGraph(MessagesState)
    graph.add_node("far", RemoteGraph("far", url="http://localhost"))
    graph.add_edge(START, "far")
    report = reachable_tools([*guard_tools([calling(making)], guard), holding, graph.compile()])
    assert (report.guarded, report.unguarded, report.is_complete) == (("asking",), (), False)
    place = "test_what_cannot_be_looked_into_is_unknown.<locals>"
    assert report.unknown == (
        f"{place}.Unreadable: its tools cannot be read",
        f"{place}.making: what create_agent makes as it runs",
        "the graph 'far', which runs on a server",
        "the toolkit Kit, which makes its tools when it is asked",
    )
    with pytest.raises(UnguardedTools, match="it is not known what is behind the graph 'far'"):
        assert_all_guarded(graph.compile())
    assert_all_guarded(graph.compile(), allow_unknown=True)
    assert str(report).startswith("unknown: test_what")


class Orders(BaseToolSpec):
    """A tool spec of LlamaIndex."""

    spec_functions = ["refund"]  # noqa: RUF012

    def refund(self, a: int) -> int:
        """Refund."""
        return a


SOURCES = [
    (Orders(), "the tool spec Orders, which makes its tools when it is asked"),
    (McpToolSpec(BasicMCPClient("python")), "the tool spec McpToolSpec, which makes its tools when it is asked"),
    (BasicMCPClient("python"), "the MCP client BasicMCPClient, which calls a server's tools"),
    (ClientSession.__new__(ClientSession), "the MCP client ClientSession, which calls a server's tools"),
    (MultiServerMCPClient({}), "the MCP client MultiServerMCPClient, which calls a server's tools"),
]


@pytest.mark.parametrize(("source", "line"), SOURCES)
def test_what_makes_tools_or_calls_a_servers_is_unknown(guard: Guard, source: Any, line: str) -> None:
    """Held by an application's own code, with a guard in front of that or none."""

    def asking(a: int) -> Any:
        return source

    for held in (source, [asking], {"asking": asking}, guard_tools([calling(asking)], guard)):
        assert line in reachable_tools(held).unknown
        with pytest.raises(UnguardedTools, match="it is not known what is behind"):
            assert_all_guarded(held)
        assert_all_guarded(held, allow_unknown=True)


def test_a_guarded_tool_of_a_source_calls_that_tool_alone(guard: Guard) -> None:
    """A tool that a framework made of a source, or that is a method of one, is no source itself."""
    assert_all_guarded(guard_tools([StructuredTool.from_function(Orders().refund, name="one")], guard))
    listed = mcp.types.Tool(name="two", inputSchema={"type": "object", "properties": {}})
    session = ClientSession.__new__(ClientSession)
    assert_all_guarded(guard_tools([convert_mcp_tool_to_langchain_tool(session, listed)], guard))


def test_more_than_can_be_looked_at_is_unknown(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends early says so."""
    monkeypatch.setattr("guarded_core.ground.held._MAX_VISITED", 100)
    many: list[Any] = [[number] for number in range(200)]
    assert reachable_tools([*many, *guard_tools([plain("one")], guard)]).unknown == ("what comes after 100 objects",)


def supervised(*tools: BaseTool, handing_over: list[BaseTool] | None = None) -> Any:
    """An agent under a supervisor."""
    worker = create_agent(ScriptedChatModel(["I did."]), tools=list(tools), name="worker")
    over = ScriptedChatModel([says(tool_call("transfer_to_worker", {})), "Done."])
    return create_supervisor([worker], model=over, tools=handing_over).compile()


def swarm(*handing_over: BaseTool) -> Any:
    """Two agents, the first of which hands over to the second."""
    first = create_agent(
        ScriptedChatModel([says(tool_call("transfer_to_second", {})), "I cannot."]),
        tools=list(handing_over),
        name="first",
    )
    second = create_agent(ScriptedChatModel(["I did."]), tools=[plain("one")], name="second")
    return create_swarm([first, second], default_active_agent="first").compile()


def test_handing_over_is_a_tool(guard: Guard) -> None:
    """Supervisors and swarms hand over by tools of their own, which count like all others."""
    assert told(supervised(plain("one"))) == (("one", "transfer_to_worker"), (), ())
    assert told(swarm(hand_over_to(agent_name="second"))) == (("one", "transfer_to_second"), (), ())


@pytest.mark.parametrize("allowed", [True, False])
def test_handing_over_can_be_guarded(allowed: bool, outcomes: Any) -> None:
    """Wrapped, the tools hand over as before, are judged and on record; nothing is handed over without."""
    names = ("one", "transfer_to_worker", "transfer_to_second")
    for make in (
        lambda guard: supervised(
            *guard_tools([plain("one")], guard),
            handing_over=guard_tools([supervisor_hand_over(agent_name="worker")], guard),
        ),
        lambda guard: swarm(*guard_tools([hand_over_to(agent_name="second")], guard)),
    ):
        guard = Guard(ToolExecutionPolicy(dict.fromkeys(names, "read_only")))
        agent = make(guard)
        assert "one" not in reachable_tools(agent).by_middleware
        assert not {"transfer_to_worker", "transfer_to_second"} & {*reachable_tools(agent).unguarded}
        with guard.session("user-17", tools=names if allowed else ["one"]):
            said = [message.text for message in agent.invoke({"messages": [("user", "go")]})["messages"]]
        assert ("I did." in said) is allowed
        assert [event[1:] for event in outcomes(guard)] == (
            [("authorized", None), ("succeeded", None)] if allowed else [("denied", "unauthorized")]
        )


def test_the_report_reads_well(guard: Guard) -> None:
    """As text it names the unguarded first."""
    report = reachable_tools([plain("two"), guard_tool(plain("one"), guard)])
    assert str(report) == "unguarded: two\nguarded: one\nguarded by middleware: none"


@pytest.mark.parametrize("place", ["guarded_langchain", "guarded_langchain.coverage"])
def test_the_old_names_say_what_they_are_now(place: str) -> None:
    """For one release, each works and warns."""
    sys.modules.pop("guarded_langchain.coverage", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module(place)
    with pytest.warns(DeprecationWarning, match="reachable.reachable_tools now"):
        assert old.coverage_report is reachable_tools
    with pytest.warns(DeprecationWarning, match="reachable.ReachableTools now"):
        assert old.CoverageReport is ReachableTools
    with pytest.raises(AttributeError):
        old.never_was  # noqa: B018

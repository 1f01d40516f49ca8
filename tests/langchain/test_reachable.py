"""`reachable_tools`: every tool that an agent can get at without a guard is named."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware, guard_tool, guard_tools, reachable_tools
from guarded_langchain.reachable import ReachableTools
from guarded_langchain.testing import ScriptedChatModel


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

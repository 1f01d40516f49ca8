"""`guarded_retriever` hides and narrows by session; what a model calls all the same is judged and recorded."""

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.objects import ObjectIndex
from llama_index.core.tools import FunctionTool

from guarded_core import AuditUnavailable, Guard, InvalidTool, ToolExecutionPolicy
from guarded_core.rules.kinds import AllowToolParam, DenyTool
from guarded_core.testing import FailingSink
from guarded_llamaindex import assert_all_guarded, audited_events, guard_tool, guard_tools, guarded_retriever
from guarded_llamaindex.testing import ScriptedLLM, ScriptStep, tool_call

NAMES = ("search", "refund", "deploy")
ABSENT = "This tool is not available. Use one of the tools you were given."


def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


def refund(order: str, currency: str) -> str:
    """Refunds an order."""
    return f"refunded {order}"


def deploy(target: str) -> str:
    """Deploys."""
    return "deployed"


@pytest.fixture
def guard() -> Guard:
    """Refunds in euros only, and no deployment at all."""
    rules = [AllowToolParam(tool="refund", param="currency", allow=["EUR"]), DenyTool(tool="deploy")]
    return Guard(ToolExecutionPolicy(dict.fromkeys(NAMES, "read_only"), rules=rules))


async def run(agent: Any) -> list[tuple[str, str]]:
    """The results of a run: name and content."""
    handler = agent.run("go")
    events = [event async for event in handler.stream_events()]
    await handler
    return [(e.tool_name, e.tool_output.content) for e in events if isinstance(e, ToolCallResult)]


def names(guard: Guard, retriever: Any) -> list[str]:
    """The tools that a model is shown now."""
    return [tool.metadata.name for tool in retriever.retrieve("a question")]


def test_it_shows_what_the_session_may_call(guard: Guard) -> None:
    """Allowlist and principal's set, without blanket denials; outside a session the policy's own view."""
    retriever = guarded_retriever([search, refund, deploy], guard)
    assert names(guard, retriever) == ["search", "refund"]
    with guard.session("user-17", tools=["search", "deploy"]):
        assert names(guard, retriever) == ["search"]
    with guard.session("user-18", tools=["refund"]):
        assert names(guard, retriever) == ["refund"]
    guard.reload(ToolExecutionPolicy({"deploy": "read_only"}))
    assert names(guard, retriever) == ["deploy"]


def test_it_shows_nothing_to_nobody(guard: Guard) -> None:
    """A session that has ended, or a context of another guard, is shown no tool."""
    other = Guard(guard.policy)
    assert names(guard, guarded_retriever([search], guard, context=other.session("root", tools=NAMES))) == []
    with guard.session("user-17", tools=NAMES) as session:
        pass
    assert names(guard, guarded_retriever([search], guard, context=session)) == []


def test_tools_are_narrowed_by_rules(guard: Guard) -> None:
    """What rules can never allow is cut from the schema, in a retriever and outside, as the policy in force says."""
    tool = guard_tool(refund, guard)
    shown = tool.metadata.to_openai_tool()["function"]["parameters"]
    assert shown["properties"]["currency"]["enum"] == ["EUR"]
    guard.reload(ToolExecutionPolicy({"refund": "read_only"}))
    assert tool.metadata.to_openai_tool() == FunctionTool.from_defaults(refund).metadata.to_openai_tool()


async def test_hidden_and_made_up_tools_are_refused_and_recorded(guard: Guard, outcomes: Any) -> None:
    """A hidden tool called by name and a name that does not exist look alike to the model; both are on record."""
    calls: list[ScriptStep] = [
        [
            tool_call("refund", {"order": "1", "currency": "EUR"}),
            tool_call("transfer_all", {"to": "me"}),
            tool_call("search", {"query": "x"}),
            tool_call("no good name", {}),
        ],
        "done",
    ]
    llm = ScriptedLLM(calls)
    agent = FunctionAgent(tool_retriever=guarded_retriever([search, refund, deploy], guard), llm=llm)
    assert_all_guarded(agent)
    with guard.session("user-17", tools=["search"]):
        results = await run(agent)
    assert llm.seen[0].tool_names == ["search"]
    assert sorted(results) == [
        ("no good name", ABSENT),
        ("refund", ABSENT),
        ("search", "found x"),
        ("transfer_all", ABSENT),
    ]
    stand_in = "invalid-tool-" + "no good name"
    recorded = sorted(outcomes(guard))
    assert recorded[1:] == [
        ("refund", "denied", "unauthorized"),
        ("search", "authorized", None),
        ("search", "succeeded", None),
        ("transfer_all", "denied", "unauthorized"),
    ]
    assert recorded[0][0].startswith("invalid-tool-")
    assert recorded[0][0] != stand_in


async def test_a_question_that_is_a_tools_name_shows_nothing_more(guard: Guard) -> None:
    """Only an agent that is about to call a tool gets a hidden one; a user who asks for it by name does not."""
    llm = ScriptedLLM(["done"])
    agent = FunctionAgent(tool_retriever=guarded_retriever([search, refund], guard), llm=llm)
    with guard.session("user-17", tools=["search"]):
        await agent.run("refund")
    assert llm.seen[0].tool_names == ["search"]


async def test_handoff_stays_the_workflows_own(guard: Guard) -> None:
    """A workflow's handoff is neither hidden nor shadowed by a stand-in."""
    llm = ScriptedLLM(
        [tool_call("handoff", {"to_agent": "two", "reason": "r"}), tool_call("search", {"query": "x"}), "done"]
    )
    agents = [
        FunctionAgent(name=name, description=name, tool_retriever=guarded_retriever([search], guard), llm=llm)
        for name in ("one", "two")
    ]
    with guard.session("user-17", tools=["search"]):
        results = await run(AgentWorkflow(agents, root_agent="one"))
    assert results[0][1].startswith("Agent two is now handling the request")
    assert results[1] == ("search", "found x")


async def test_tools_beside_the_retriever_stay_reachable(guard: Guard) -> None:
    """Guarded tools in the agent's own list are called as ever."""
    llm = ScriptedLLM([tool_call("refund", {"order": "1", "currency": "EUR"}), "done"])
    agent = FunctionAgent(
        tools=list(guard_tools([refund], guard)), tool_retriever=guarded_retriever([search], guard), llm=llm
    )
    with guard.session("user-17", tools=NAMES):
        assert await run(agent) == [("refund", "refunded 1")]
    assert llm.seen[0].tool_names == ["refund", "search"]


@pytest.mark.usefixtures("offline")
async def test_a_retriever_of_bare_tools_yields_guarded_ones(guard: Guard, outcomes: Any) -> None:
    """The tools that it finds are guarded as they come; one object stays one guarded tool."""
    index = ObjectIndex.from_objects([FunctionTool.from_defaults(f) for f in (search, refund)])
    retriever = guarded_retriever(index.as_retriever(similarity_top_k=5), guard)
    llm = ScriptedLLM(
        [[tool_call("search", {"query": "x"}), tool_call("refund", {}), tool_call("made_up", {})], "done"]
    )
    agent = FunctionAgent(tool_retriever=retriever, llm=llm)
    with guard.session("user-17", tools=["search"]):
        assert await retriever.aretrieve("a") == await retriever.aretrieve("b")
        results = await run(agent)
    assert llm.seen[0].tool_names == ["search"]
    assert sorted(results) == [("made_up", ABSENT), ("refund", ABSENT), ("search", "found x")]
    assert ("made_up", "denied", "unauthorized") in outcomes(guard)


@pytest.mark.usefixtures("offline")
def test_a_retrieved_tool_without_a_risk_is_the_developers_error() -> None:
    """A tool that turns up and was never declared is no tool to be called."""
    index = ObjectIndex.from_objects([FunctionTool.from_defaults(search)])
    retriever = guarded_retriever(index.as_retriever(), Guard(ToolExecutionPolicy()))
    with pytest.raises(InvalidTool, match="no risk is declared for search"):
        retriever.retrieve("x")


class TestAuditedEvents:
    """Without a retriever, a run's stream tells of calls that never reached a tool."""

    def agent(self, guard: Guard) -> FunctionAgent:
        """An agent whose model makes a name up."""
        llm = ScriptedLLM([[tool_call("made_up", {"a": "secret"}), tool_call("search", {"query": "x"})], "done"])
        return FunctionAgent(tools=list(guard_tools([search], guard)), llm=llm)

    async def test_made_up_names_are_recorded(self, guard: Guard, outcomes: Any) -> None:
        """All events come through; the call is a Denied event of the session's principal."""
        with guard.session("user-17", tools=["search"]):
            handler = self.agent(guard).run("go")
            kinds = [type(event).__name__ async for event in audited_events(handler, guard)]
        assert kinds.count("ToolCallResult") == 2
        assert kinds[-1] == "StopEvent"
        assert ("made_up", "denied", "unauthorized") in outcomes(guard)
        assert {event.principal for event in guard.audit.events} == {"user-17"}  # type: ignore[union-attr]
        assert "secret" not in repr(guard.audit.events)  # type: ignore[union-attr]

    async def test_a_refusal_is_recorded_once(self, guard: Guard, outcomes: Any) -> None:
        """What the guard has refused itself is not recorded again."""
        llm = ScriptedLLM([[tool_call("search", {"wrong": "x"})], "done"])
        agent = FunctionAgent(tools=list(guard_tools([search], guard)), llm=llm)
        with guard.session("user-17", tools=["search"]):
            async for _ in audited_events(agent.run("go"), guard):
                pass
        assert outcomes(guard) == [("search", "denied", "invalid_payload")]

    async def test_no_trail_no_silence(self, guard: Guard) -> None:
        """Where it cannot be recorded, the application hears of it."""
        guard = Guard(guard.policy, audit=FailingSink(True))
        with guard.session("user-17", tools=["search"]), pytest.raises(AuditUnavailable):
            async for _ in audited_events(self.agent(guard).run("go"), guard):
                pass

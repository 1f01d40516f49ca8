"""GuardMiddleware: what an agent's model is shown, and that every tool the agent can get at is guarded."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command

from guarded_core import Guard, GuardConfigurationError, ToolExecutionPolicy
from guarded_core.rules.kinds import AllowToolParam, DenyTool, LimitToolParam
from guarded_core.testing import ScriptedApprover
from guarded_langchain import GuardMiddleware, InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

POLICY = {
    "search": "read_only",
    "refund": "mutating",
    "drop": "destructive",
    "dynamic": "read_only",
    "web": "read_only",
}
UNAVAILABLE = "This tool is not available. Use one of the tools you were given."


@tool
def search(text: str) -> str:
    """Search the orders."""
    return f"found {text}"


@tool
def refund(order: int, amount: int = 1) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool
def drop(table: str) -> str:
    """Drop a table."""
    return "dropped"


@tool
def unlisted(text: str) -> str:
    """A tool that the policy does not know."""
    return "ran"


@tool
def dynamic(text: str) -> str:
    """A tool that comes while the agent runs."""
    return f"dynamic {text}"


Play = Callable[..., list[Any]]


def _sync(agent: Any, **state: Any) -> list[Any]:
    return list(agent.invoke({"messages": [("user", "go")], **state})["messages"])


def _async(agent: Any, **state: Any) -> list[Any]:
    return list(asyncio.run(agent.ainvoke({"messages": [("user", "go")], **state}))["messages"])


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def play(request: pytest.FixtureRequest) -> Any:
    """Runs an agent once, and returns its messages."""
    return request.param


@pytest.fixture(params=[False, True], ids=["middleware alone", "wrapped too"])
def tools_of(request: pytest.FixtureRequest) -> Callable[[Guard, list[BaseTool]], list[BaseTool]]:
    """The tools as they are, or guarded ones: with the middleware, both come to the same."""
    return lambda guard, tools: guard_tools(tools, guard) if request.param else tools


def answers(messages: list[Any]) -> list[tuple[str, Any]]:
    """What each tool message says, with its code."""
    return [(m.content, (m.artifact or {}).get("code")) for m in messages if isinstance(m, ToolMessage)]


def test_calls_are_judged_once(play: Play, tools_of: Any, outcomes: Any) -> None:
    """An agent with the middleware alone is as guarded as one with wrapped tools; with both, a call is judged once."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    model = ScriptedChatModel([says(tool_call("search", {"text": "x"}), tool_call("search", {"text": 1})), "done"])
    agent = create_agent(model, tools=tools_of(guard, [search, refund]), middleware=[GuardMiddleware(guard)])
    with guard.session("user-17", tools=["search"]):
        said = play(agent)
    assert answers(said) == [
        ("found x", None),
        (
            "The arguments do not fit the tool's schema: at /text: wrong type, expected string. "
            "Correct them and try again.",
            "invalid_payload",
        ),
    ]
    assert sorted(outcomes(guard), key=str) == [
        ("search", "authorized", None),
        ("search", "denied", "invalid_payload"),
        ("search", "succeeded", None),
    ]


def test_the_model_is_shown_what_it_may_use(play: Play, tools_of: Any) -> None:
    """Allowlist ∩ principal's tools − blanket denials; of a provider's own tools, what the policy lists."""
    guard = Guard(ToolExecutionPolicy(POLICY, rules=[DenyTool(tool="drop")]))
    provided = [
        {"type": "web"},
        {"type": "image"},
        {"type": "function", "function": {"name": "unlisted", "parameters": {}}},
    ]
    model = ScriptedChatModel(["done"])
    agent = create_agent(
        model, tools=[*tools_of(guard, [search, refund, drop]), *provided], middleware=[GuardMiddleware(guard)]
    )
    with guard.session("user-17", tools=["search", "drop", "web"]):
        play(agent)
    assert model.seen[0].tool_names == ["search", "web"]


def test_a_providers_tool_that_would_need_approval_is_hidden() -> None:
    """Nobody can be asked before the provider runs it."""
    guard = Guard(ToolExecutionPolicy({"web": "financial", "search": "read_only"}))
    model = ScriptedChatModel(["done"])
    agent = create_agent(model, tools=[search, {"type": "web"}], middleware=[GuardMiddleware(guard)])
    with guard.session("user-17", tools=["web", "search"]):
        _sync(agent)
    assert model.seen[0].tool_names == ["search"]


def test_schemas_are_narrowed(play: Play, tools_of: Any) -> None:
    """The model is shown what the rules can allow, and nothing else of the schema changes."""
    rules = [
        AllowToolParam(tool="refund", param="order", allow=[1, 2]),
        LimitToolParam(tool="refund", param="amount", max=50),
    ]
    guard = Guard(ToolExecutionPolicy(POLICY, rules=rules))
    model = ScriptedChatModel(["done"])
    agent = create_agent(model, tools=tools_of(guard, [refund]), middleware=[GuardMiddleware(guard)])
    with guard.session("user-17", tools=["refund"]):
        play(agent)
    assert model.seen[0].tools == (
        {
            "type": "function",
            "function": {
                "name": "refund",
                "description": "Refund an order.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "order": {"type": "integer", "enum": [1, 2]},
                        "amount": {"type": "integer", "default": 1, "maximum": 50},
                    },
                    "required": ["order"],
                },
            },
        },
    )


def test_unknown_hidden_and_unlisted_tools_look_alike(play: Play, tools_of: Any, outcomes: Any) -> None:
    """One answer for all of them, without a list of tools, and each on record."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    calls = [tool_call(name, {"text": "x"}) for name in ("nothing", "unlisted", "search", "no such/name")]
    model = ScriptedChatModel([says(*calls), "done"])
    tools = [*tools_of(guard, [search, refund]), unlisted]
    agent = create_agent(model, tools=tools, middleware=[GuardMiddleware(guard)])
    with guard.session("user-17", tools=["refund"]):
        said = play(agent)
    assert answers(said) == [(UNAVAILABLE, "unauthorized")] * 4
    names = {name for name, outcome, code in outcomes(guard)}
    assert len(names) == 4
    assert names > {"nothing", "unlisted", "search"}
    assert "no such/name" not in names  # only what can be a tool's name is repeated
    assert {(outcome, code) for _, outcome, code in outcomes(guard)} == {("denied", "unauthorized")}


def test_malformed_calls_are_on_record(play: Play, outcomes: Any) -> None:
    """What LangChain could not read as a call leaves an event, and nothing runs."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    broken = [
        {"name": "search", "args": '{"text": "x"', "id": "a", "error": None, "type": "invalid_tool_call"},
        {"name": "search", "args": '{"text": "x"}', "id": "b", "error": None, "type": "invalid_tool_call"},
        {"name": None, "args": None, "id": "c", "error": None, "type": "invalid_tool_call"},
    ]
    model = ScriptedChatModel([AIMessage("broken", invalid_tool_calls=broken)])
    agent = create_agent(model, tools=[search], middleware=[GuardMiddleware(guard)])
    with guard.session("user-17", tools=["search"]):
        play(agent)
    invalid = ("search", "denied", "invalid_payload")
    assert [event[1:] for event in outcomes(guard)] == [invalid[1:], invalid[1:], ("denied", "unauthorized")]
    assert [event[0] for event in outcomes(guard)][:2] == ["search", "search"]


class Dynamic(AgentMiddleware[Any, Any, Any]):
    """Shows the model a tool that the agent was not made with, and runs it."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, dynamic]))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(request.override(tools=[*request.tools, dynamic]))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        found = request.override(tool=dynamic) if request.tool_call["name"] == "dynamic" else request
        return handler(found)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        found = request.override(tool=dynamic) if request.tool_call["name"] == "dynamic" else request
        return await handler(found)


class Bringing(AgentMiddleware[Any, Any, Any]):
    """Brings a tool of its own along."""

    tools = [dynamic]  # noqa: RUF012 - as LangChain declares it


@pytest.mark.parametrize("bringing", [Dynamic, Bringing], ids=["dynamic", "of a middleware"])
@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "not allowed"])
def test_tools_that_middleware_brings_are_guarded(bringing: Any, allowed: bool, play: Play, outcomes: Any) -> None:
    """Tools that appear at run time are hidden, judged and recorded like all others."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    model = ScriptedChatModel([says(tool_call("dynamic", {"text": "x"})), "done"])
    agent = create_agent(model, tools=[search], middleware=[bringing(), GuardMiddleware(guard)])
    with guard.session("user-17", tools=["search", "dynamic"] if allowed else ["search"]):
        said = play(agent)
    assert sorted(model.seen[0].tool_names) == (["dynamic", "search"] if allowed else ["search"])
    assert answers(said) == [("dynamic x", None) if allowed else (UNAVAILABLE, "unauthorized")]
    ran = [("dynamic", "authorized", None), ("dynamic", "succeeded", None)]
    assert outcomes(guard) == (ran if allowed else [("dynamic", "denied", "unauthorized")])


def test_an_agent_without_tools_refuses_calls_on_record(play: Play, outcomes: Any) -> None:
    """The bare agent ends there, with a call that nobody answered; the guarded one's model reads why, and goes on."""
    guard = Guard(ToolExecutionPolicy(POLICY))

    def said(*middleware: Any) -> list[Any]:
        model = ScriptedChatModel([says(tool_call("refund", {"order": 1})), "done"])
        return play(create_agent(model, tools=[], middleware=middleware))

    assert [type(message).__name__ for message in said()] == ["HumanMessage", "AIMessage"]
    with guard.session("user-17", tools=["refund"]):
        assert answers(said(GuardMiddleware(guard))) == [(UNAVAILABLE, "unauthorized")]
    assert outcomes(guard) == [("refund", "denied", "unauthorized")]


def test_an_edit_to_another_tool_is_judged_by_that_tool(outcomes: Any) -> None:
    """A person may send the call elsewhere; the tool that runs is the one that is judged."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    review = HumanInTheLoopMiddleware({"search": {"allowed_decisions": ["approve", "edit", "reject"]}})
    model = ScriptedChatModel([says(tool_call("search", {"text": "x"})), "done"])
    agent = create_agent(
        model, tools=[search, refund, drop], middleware=[review, GuardMiddleware(guard)], checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    edit = {"type": "edit", "edited_action": {"name": "drop", "args": {"table": "orders"}}}
    with guard.session("user-17", tools=["search", "drop"]):
        agent.invoke({"messages": [("user", "go")]}, config)
        agent.invoke(Command(resume={"decisions": [edit]}), config)
    assert [event for event in outcomes(guard) if event[0] == "drop"] == [
        ("drop", "asked", None),
        ("drop", "denied", "human_approval_required"),
    ]
    assert ("search", "authorized", None) not in outcomes(guard)


class After(AgentMiddleware[Any, Any, Any]):
    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return await handler(request)


def test_it_warns_where_it_is_not_last(play: Play) -> None:
    """A middleware after it could put another tool in a guarded one's place."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    script = [says(tool_call("search", {"text": "x"})), "done"]
    agent = create_agent(ScriptedChatModel(script), tools=[search], middleware=[GuardMiddleware(guard), After()])
    with guard.session("user-17", tools=["search"]), pytest.warns(UserWarning, match="list it last"):
        play(agent)
    last = create_agent(ScriptedChatModel(script), tools=[search], middleware=[After(), GuardMiddleware(guard)])
    with guard.session("user-17", tools=["search"]), warnings.catch_warnings():
        warnings.simplefilter("error")
        play(last)


def test_the_graph_injects_into_tools_that_only_the_middleware_guards(play: Play) -> None:
    """State, its plain fields and the runtime reach a tool whose ToolNode does not know that it is guarded."""

    @tool
    def search(text: str, left: Annotated[int, InjectedState("left")], runtime: ToolRuntime) -> str:
        """Read the state."""
        return f"{text} {left} {runtime.tool_call_id}"

    from langchain.agents import AgentState

    class Left(AgentState[Any]):
        left: int

    guard = Guard(ToolExecutionPolicy(POLICY))
    model = ScriptedChatModel([says(tool_call("search", {"text": "x", "left": 99}, id="call-9")), "done"])
    agent = create_agent(model, tools=[search], middleware=[GuardMiddleware(guard)], state_schema=Left)
    with guard.session("user-17", tools=["search"]):
        said = play(agent, left=3)
    assert answers(said) == [("x 3 call-9", None)]
    assert guard.audit.events[0].code == "injected_arguments_stripped"  # type: ignore[union-attr]


def test_outside_a_session_nothing_runs(play: Play, outcomes: Any) -> None:
    """The model is shown the policy's own view, and each call is denied with how to open a session."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    model = ScriptedChatModel([says(tool_call("search", {"text": "x"})), "done"])
    said = play(create_agent(model, tools=[search], middleware=[GuardMiddleware(guard)]))
    assert model.seen[0].tool_names == ["search"]
    assert answers(said)[0][1] == "no_session"


def test_another_guards_tool_is_a_mistake() -> None:
    """Its calls would be judged by another policy than the middleware's."""
    guard, other = Guard(ToolExecutionPolicy(POLICY)), Guard(ToolExecutionPolicy(POLICY))
    agent = create_agent(
        ScriptedChatModel(["done"]), tools=guard_tools([search], other), middleware=[GuardMiddleware(guard)]
    )
    with pytest.raises(GuardConfigurationError, match="another guard"):
        _sync(agent)


def test_a_context_handed_over_in_code_is_used(play: Play) -> None:
    """`context=` serves both what is shown and what runs."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    context = guard.session("user-17", tools=["search"])
    model = ScriptedChatModel([says(tool_call("search", {"text": "x"}), tool_call("refund", {"order": 1})), "done"])
    agent = create_agent(model, tools=[search, refund], middleware=[GuardMiddleware(guard, context=context)])
    assert answers(play(agent)) == [("found x", None), (UNAVAILABLE, "unauthorized")]
    assert model.seen[0].tool_names == ["search"]


def test_identify_finds_the_session_of_a_run(play: Play) -> None:
    """A server without a `with` names the session by the run's own context; what is shown and what runs follow it."""
    sessions: dict[str, Any] = {}
    guard = Guard(ToolExecutionPolicy(POLICY), identify=lambda runtime: sessions.get(getattr(runtime, "context", None)))
    sessions["token-17"] = guard.session("user-17", tools=["search"])
    model = ScriptedChatModel([says(tool_call("search", {"text": "x"})), "done"] * 2)
    agent = create_agent(model, tools=[search, refund], middleware=[GuardMiddleware(guard)], context_schema=str)
    message = {"messages": [("user", "go")]}
    if play is _sync:
        known, unknown = (agent.invoke(message, context=token)["messages"] for token in ("token-17", "forged"))
    else:
        known, unknown = (
            asyncio.run(agent.ainvoke(message, context=token))["messages"] for token in ("token-17", "forged")
        )
    assert answers(known) == [("found x", None)]
    assert answers(unknown)[0][1] == "no_session"
    assert guard.audit.events[0].principal == "user-17"  # type: ignore[union-attr]
    assert model.seen[0].tool_names == ["search"]


def test_a_missing_checkpointer_is_told_at_the_first_turn(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Before anything is asked, and once; where a graph can pause, or another approver can ask, nothing is said."""
    for saver, others, said in ((None, [], 1), (InMemorySaver(), [], 0), (None, [ScriptedApprover([])], 0)):
        caplog.clear()
        guard = Guard(ToolExecutionPolicy({"search": "read_only"}), approver=[InterruptApprover(), *others])
        agent = create_agent(
            ScriptedChatModel([says(tool_call("search", {"text": "x"})), "Done."]),
            [search],
            middleware=[GuardMiddleware(guard)],
            checkpointer=saver,
        )
        entered: Any = {"messages": [("user", "go")]}
        config: Any = {"configurable": {"thread_id": "t"}}
        with guard.session("user-17", tools=["search"]):
            asyncio.run(agent.ainvoke(entered, config)) if is_async else agent.invoke(entered, config)
        told = [record for record in caplog.records if "checkpointer" in record.getMessage()]
        assert len(told) == said
        assert all(record.levelname == "ERROR" for record in told)

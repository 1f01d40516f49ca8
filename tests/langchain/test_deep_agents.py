"""Deep agents, by deepagents itself: its subagents and its own tools are behind the guard, or named."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import (
    GuardMiddleware,
    UnguardedTools,
    assert_all_guarded,
    guard_tools,
    guarded_deep_agent,
    reachable_tools,
)
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

OWN = {name: "mutating" for name in ("ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute", "task")}
SUB: dict[str, Any] = {"name": "sub", "description": "Does it.", "system_prompt": "Do it."}
AGENTS = ["general-purpose", "sub"]


@tool
def look(number: int) -> str:
    """Look at a row."""
    return f"row {number}"


@pytest.fixture
def guard() -> Guard:
    """A guard that knows deepagents' tools."""
    return Guard(ToolExecutionPolicy({"look": "read_only", **OWN}))


@pytest.fixture(autouse=True)
def _no_warning() -> Iterator[None]:
    """None of these warns of an order that it could not have."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def writing(agent: str) -> ScriptedChatModel:
    """The model of an agent that has a subagent write a file."""
    task = says(tool_call("task", {"description": "Do it.", "subagent_type": agent}))
    return ScriptedChatModel(
        [task, says(tool_call("write_file", {"file_path": "/b.txt", "content": "x"})), "I did.", "Done."]
    )


def play(agent: Any, *, is_async: bool) -> dict[str, Any]:
    """The state after one run."""
    asked = {"messages": [("user", "go")]}
    return dict(asyncio.run(agent.ainvoke(asked)) if is_async else agent.invoke(asked))


@pytest.mark.parametrize("subagent", AGENTS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_deep_agent_is_guarded_whole(guard: Guard, subagent: str, is_async: bool, outcomes: Any) -> None:
    """A subagent writes no file that the session may not write, and is not even shown how."""
    model = writing(subagent)
    agent = guarded_deep_agent(guard, model, [look], subagents=[SUB])
    with guard.session("user-17", tools=["look", "task"]):
        state = play(agent, is_async=is_async)
    assert not state.get("files")
    assert model.seen[1].tool_names == ["look"]
    assert ("write_file", "denied", "unauthorized") in outcomes(guard)


@pytest.mark.parametrize("subagent", AGENTS)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_allowed_runs_in_a_subagent(guard: Guard, subagent: str, is_async: bool, outcomes: Any) -> None:
    """With the tool in the session, the file is written, and the call is on record like any other."""
    agent = guarded_deep_agent(guard, writing(subagent), [look], subagents=[SUB])
    with guard.session("user-17", tools=["task", "write_file"]):
        assert list(play(agent, is_async=is_async)["files"]) == ["/b.txt"]
    assert [event[:2] for event in outcomes(guard)] == [
        ("task", "authorized"),
        ("write_file", "authorized"),
        ("write_file", "succeeded"),
        ("task", "succeeded"),
    ]


def test_nothing_of_it_is_unguarded(guard: Guard) -> None:
    """The report says so, whether tools are wrapped or not; a subagent that has the guard already gets no other."""
    own = {**SUB, "middleware": [GuardMiddleware(guard)]}
    for tools in ([look], guard_tools([look], guard)):
        agent = guarded_deep_agent(guard, ScriptedChatModel([]), tools, subagents=[own])
        report = reachable_tools(agent)
        assert (report.unguarded, report.unknown) == ((), ())
        assert {"look", "task", "write_file"} <= {*report.guarded, *report.by_middleware}


@pytest.mark.parametrize("subagents", [[], [SUB]], ids=["general-purpose", "and another"])
def test_subagents_without_the_guard_are_named(guard: Guard, subagents: list[Any]) -> None:
    """With the middleware in the main agent alone, what its subagents can do is unguarded."""
    agent: Any = create_deep_agent(ScriptedChatModel([]), middleware=[GuardMiddleware(guard)], subagents=subagents)
    report = reachable_tools(agent)
    assert {"ls", "read_file", "write_file", "edit_file"} <= {*report.unguarded}
    assert "task" in report.by_middleware
    with pytest.raises(UnguardedTools, match="tool 'write_file' is not guarded"):
        assert_all_guarded(agent)


def test_a_compiled_subagent_has_to_be_guarded_already(guard: Guard) -> None:
    """Nothing can be added to it."""
    compiled = {"name": "own", "description": "d", "runnable": create_agent(ScriptedChatModel([]), [look])}
    with pytest.raises(UnguardedTools, match="'look' is not guarded"):
        guarded_deep_agent(guard, ScriptedChatModel([]), subagents=[compiled])
    runnable = create_agent(ScriptedChatModel([]), guard_tools([look], guard))
    guarded_deep_agent(guard, ScriptedChatModel([]), subagents=[{**compiled, "runnable": runnable}])


def test_a_subagent_on_a_server_is_unknown(guard: Guard) -> None:
    """Its tools are not here to be looked at: it is refused unless it is accepted."""
    policy = {f"{verb}_async_task": "mutating" for verb in ("start", "check", "update", "cancel")}
    guard = Guard(ToolExecutionPolicy({**OWN, **policy, "list_async_tasks": "mutating"}))
    far = {"name": "far", "description": "d", "graph_id": "g", "url": "http://localhost"}
    with pytest.raises(UnguardedTools, match="the graph 'far', which runs on a server"):
        guarded_deep_agent(guard, ScriptedChatModel([]), subagents=[far])
    agent = guarded_deep_agent(guard, ScriptedChatModel([]), subagents=[far], allow_unknown=True)
    assert "start_async_task" in reachable_tools(agent).by_middleware


def test_a_middleware_of_ones_own_after_the_guard_is_still_warned_of(guard: Guard) -> None:
    """deepagents puts its own after all others, and no word is lost about those; an application's could come before."""

    class After(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

    agent: Any = create_deep_agent(ScriptedChatModel(["done"]), middleware=[GuardMiddleware(guard), After()])
    with guard.session("user-17", tools=["ls"]), pytest.warns(UserWarning, match="list it last"):
        play(agent, is_async=False)

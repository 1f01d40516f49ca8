"""The scripted chat model: it says what its script says, and remembers what it was given."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from guarded_langchain.testing import ScriptedChatModel, says, tool_call


@tool
def search(text: str) -> str:
    """Search."""
    return f"found {text}"


SCRIPT: list[Any] = [
    says(tool_call("search", {"text": "x"}, id="call-1"), text="let me look"),
    lambda messages: f"it said: {messages[-1].content}",
]


async def play(model: ScriptedChatModel, how: str) -> list[Any]:
    """One run of an agent, by one of the ways it can be run."""
    agent = create_agent(model, tools=[search])
    given: Any = {"messages": [("user", "go")]}
    if how == "invoke":
        return list(agent.invoke(given)["messages"])
    if how == "ainvoke":
        return list((await agent.ainvoke(given))["messages"])
    if how == "stream":
        return [message for part in agent.stream(given) for node in part.values() for message in node["messages"]]
    return [m async for part in agent.astream(given) for node in part.values() for m in node["messages"]]


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
async def test_it_plays_its_script(how: str) -> None:
    """Sync, async and streaming, an agent comes to the same messages."""
    model = ScriptedChatModel(SCRIPT)
    said = await play(model, how)
    assert [m.content for m in said if not isinstance(m, HumanMessage)] == [
        "let me look",
        "found x",
        "it said: found x",
    ]
    assert [turn.tool_names for turn in model.seen] == [["search"], ["search"]]
    assert [len(turn.messages) for turn in model.seen] == [1, 3]


def test_it_streams_words_and_calls() -> None:
    """A streamed message adds up to the one that was scripted, tool calls and malformed ones included."""
    broken = {"name": "search", "args": "[1]", "id": "call-2", "error": None, "type": "invalid_tool_call"}
    message = AIMessage(
        "two words", tool_calls=[tool_call("search", {"text": "x"}, id="call-1")], invalid_tool_calls=[broken]
    )
    chunks = list(ScriptedChatModel([message]).stream("hi"))
    whole: Any = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert len(chunks) > 3
    assert whole.content == "two words"
    assert whole.tool_calls == message.tool_calls
    assert [call["args"] for call in whole.invalid_tool_calls] == ["[1]"]


def test_a_script_that_runs_out_fails() -> None:
    """A model that is asked more often than expected is a failed test, not an endless one."""
    model = ScriptedChatModel(["once"])
    assert model.invoke("hi").content == "once"
    with pytest.raises(AssertionError, match="1 steps, and the model was asked once more"):
        model.invoke("hi")


def test_a_script_is_not_changed_by_playing_it() -> None:
    """Frameworks change messages in place; the script keeps its own."""
    message = says(tool_call("search", {"text": "x"}))
    ScriptedChatModel([message]).invoke("hi").tool_calls[0]["args"]["text"] = "changed"
    assert message.tool_calls[0]["args"] == {"text": "x"}


def test_ids_are_fresh() -> None:
    """Two calls never share an id by accident."""
    assert tool_call("search")["id"] != tool_call("search")["id"]

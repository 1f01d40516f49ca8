"""The scripted model: what applications test their agents with."""

import asyncio
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool

from guarded_llamaindex.testing import ScriptedLLM, tool_call

TOOL = FunctionTool.from_defaults(lambda x: x, name="f", description="F.")
USER = ChatMessage(role="user", content="hi")


def chat(llm: ScriptedLLM) -> Any:
    """The next message, sync."""
    return llm.chat_with_tools([TOOL], user_msg="hi").message


def achat(llm: ScriptedLLM) -> Any:
    """The next message, async."""
    return asyncio.run(llm.achat_with_tools([TOOL], chat_history=[USER])).message


def stream(llm: ScriptedLLM) -> Any:
    """The next message, streamed."""
    return list(llm.stream_chat_with_tools([TOOL], user_msg=USER))[-1].message


def astream(llm: ScriptedLLM) -> Any:
    """The next message, streamed async."""

    async def last() -> Any:
        return [part async for part in await llm.astream_chat_with_tools([TOOL], user_msg="hi")][-1].message

    return asyncio.run(last())


@pytest.mark.parametrize("ask", [chat, achat, stream, astream])
def test_it_says_its_script_and_records_what_it_saw(ask: Any) -> None:
    """Texts, one call, several calls, and functions of the messages; then it complains."""
    llm = ScriptedLLM(
        ["hello", tool_call("f", {"x": 1}, id="7"), [tool_call("f"), tool_call("f")], lambda m: m[-1].content]
    )
    assert ask(llm).content == "hello"
    [call] = llm.get_tool_calls_from_response(_response(ask(llm)))
    assert (call.tool_id, call.tool_name, call.tool_kwargs) == ("7", "f", {"x": 1})
    several = llm.get_tool_calls_from_response(_response(ask(llm)))
    assert len({call.tool_id for call in several}) == 2
    assert ask(llm).content == "hi"
    with pytest.raises(AssertionError, match="the script has 4 steps"):
        ask(llm)
    assert [turn.tool_names for turn in llm.seen] == [["f"]] * 5
    assert [message.content for message in llm.seen[0].messages] == ["hi"]


def _response(message: ChatMessage) -> Any:
    from llama_index.core.llms import ChatResponse

    return ChatResponse(message=message)


def test_a_text_is_no_tool_call() -> None:
    """Where one is required, that is an error; else there is none."""
    llm = ScriptedLLM(["hello"])
    response = _response(ChatMessage(role="assistant", content="hello"))
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    with pytest.raises(ValueError, match="no tool call"):
        llm.get_tool_calls_from_response(response)


def test_it_completes_prompts_too() -> None:
    """Query engines ask by prompt; each answer is a step of the same script."""
    llm = ScriptedLLM(["a", "b", "c", "d"])

    async def rest() -> list[Any]:
        streamed = [part async for part in await llm.astream_complete("q")]
        return [(await llm.acomplete("q")).text, streamed[-1].text]

    assert llm.complete("q").text == "a"
    assert list(llm.stream_complete("q"))[-1].delta == "b"
    assert asyncio.run(rest()) == ["d", "c"]
    assert [turn.messages[0].content for turn in llm.seen] == ["q"] * 4


def test_what_it_saw_does_not_change_later() -> None:
    """Messages are kept as they were when it was asked."""
    llm, message = ScriptedLLM(["a"]), ChatMessage(role="user", content="before")
    llm.chat([message])
    message.content = "after"
    assert llm.seen[0].messages[0].content == "before"

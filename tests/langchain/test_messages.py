"""Results as JSON for a replay: what a model saw the first time, it sees again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from langgraph.types import Command, Send

from guarded_core import OutcomeUnknown
from guarded_langchain import compat
from guarded_langchain.messages import decode, encode


@dataclass
class Row:
    n: int


@pytest.mark.parametrize(
    "result", ["text", 5, 1.5, None, True, ["a", {"b": 1}], {"a": [1]}, [{"type": "text", "text": "x"}]]
)
def test_json_comes_back_as_it_was(result: Any) -> None:
    """A result that is JSON is kept exactly."""
    assert decode("tool", orjson.loads(orjson.dumps(encode(result)))) == result


def test_any_other_result_comes_back_as_the_text_that_the_model_saw() -> None:
    """An object is kept as LangChain writes it into the message."""
    assert decode("tool", encode(Row(1))) == compat.stringified(Row(1))
    assert decode("tool", encode((1, "x"))) == (1, "x")


def test_content_and_artifact_come_back_as_a_pair() -> None:
    """The artifact is kept where it is JSON; otherwise only the content is."""
    assert decode("tool", orjson.loads(orjson.dumps(encode(("text", {"rows": [1]}))))) == ("text", {"rows": [1]})
    assert decode("tool", encode(("text", Row(1)))) == ("text", None)


def test_a_message_comes_back_as_a_message() -> None:
    """With its id, status and artifact."""
    message = ToolMessage("text", tool_call_id="call-1", artifact=[1], status="error", name="tool")
    again = decode("tool", orjson.loads(orjson.dumps(encode(message))))
    assert again == message


@pytest.mark.parametrize(
    "result",
    [
        Command(goto="x"),
        Command(update={"flag": 7, "pair": (1, [2.5, None]), "messages": [ToolMessage("a", tool_call_id="b", id="m")]}),
        Command(graph=Command.PARENT, goto=[Send("node", {"n": 2**60}), "x"], update=[("messages", [])]),
        [ToolMessage("a", tool_call_id="b"), Command(update={"messages": [RemoveMessage(id="m"), AIMessage("x")]})],
    ],
)
def test_what_steers_a_graph_comes_back_whole(result: Any) -> None:
    """A Command is kept with all of its update, messages and targets among it."""
    again = decode("tool", orjson.loads(orjson.dumps(encode(result))))
    assert again == result
    assert type(again) is type(result)


def test_an_update_that_is_no_json_is_kept_in_memory() -> None:
    """An object of the application's comes back in this process; another one knows that the call ran, no more."""
    result = Command(update={"row": Row(1)})
    stored = orjson.loads(orjson.dumps(encode(result)))
    assert decode("tool", stored) == result
    with pytest.raises(OutcomeUnknown, match="not run again"):
        decode("tool", stored | {"in_memory": "of another process"})

"""Results as JSON for a replay: what a model saw the first time, it sees again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from langchain_core.messages import ToolMessage
from langgraph.types import Command

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


@pytest.mark.parametrize("result", [Command(goto="x"), [ToolMessage("a", tool_call_id="b")]])
def test_what_steers_a_graph_is_not_kept(result: Any) -> None:
    """A Command cannot be replayed from JSON: the call is known to have run, and is not run again."""
    with pytest.raises(OutcomeUnknown, match="not run again"):
        decode("tool", encode(result))

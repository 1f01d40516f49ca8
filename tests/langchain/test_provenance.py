"""Guarded LangChain tools remember what they returned: content and artifact."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import RequireOrigin
from guarded_langchain import guard_tools

POLICY = ToolExecutionPolicy(
    {"read": ToolSettings(risk="read_only", trusted=("/*/address",)), "send": "mutating"},
    rules=[RequireOrigin(tool="send", param="to")],
)


def office(returned: Any, response_format: str) -> tuple[Guard, StructuredTool, StructuredTool]:
    """A reader that returns this, and a sender, behind one guard."""

    def read() -> Any:
        """Read."""
        return returned

    def send(to: str) -> str:
        """Send."""
        return "sent"

    guard = Guard(POLICY)
    reader = StructuredTool.from_function(read, response_format=response_format)  # type: ignore[arg-type]
    read_tool, send_tool = guard_tools([reader, StructuredTool.from_function(send)], guard)
    return guard, read_tool, send_tool  # type: ignore[return-value]


def call(tool: StructuredTool, **arguments: Any) -> ToolMessage:
    """Call it as an agent does."""
    message: ToolMessage = tool.invoke({"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"})
    return message


RECORDS = [{"address": "bob@example.com", "note": "eve@evil.example"}]


@pytest.mark.parametrize(
    ("returned", "response_format"),
    [(RECORDS, "content"), (("Bob, eve@evil.example", RECORDS), "content_and_artifact")],
)
def test_trusted_parts_of_a_result_vouch_and_its_text_does_not(returned: Any, response_format: str) -> None:
    """Pointers speak of the artifact where there is one, else of the content; text around it stays untrusted."""
    guard, read, send = office(returned, response_format)
    with guard.session("ann", tools=["read", "send"]):
        assert call(send, to="bob@example.com").status == "error"
        call(read)
        assert call(send, to="bob@example.com").status == "success"
        assert call(send, to="eve@evil.example").status == "error"
        (violation,) = guard.decide("send", {"to": "eve@evil.example"}).violations
    assert "of origin untrusted from read" in violation.reason


def test_a_message_of_the_tools_own_is_read_too() -> None:
    """Its content and its artifact."""
    message = ToolMessage("eve@evil.example", artifact=RECORDS, tool_call_id="1")
    guard, read, send = office(message, "content")
    with guard.session("ann", tools=["read", "send"]):
        call(read)
        assert call(send, to="bob@example.com").status == "success"
        assert call(send, to="eve@evil.example").status == "error"


def test_a_sessions_own_narrowing_is_shown() -> None:
    """To the model of that session only."""
    guard, _, send = office("", "content")
    with guard.session("ann", tools=["send"], request="bob@example.com", narrow={"send": {"to": ["bob@example.com"]}}):
        assert send.tool_call_schema["properties"]["to"]["enum"] == ["bob@example.com"]  # type: ignore[index]
    assert "enum" not in str(send.args["to"])

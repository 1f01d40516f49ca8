"""Guarded LlamaIndex tools remember what they returned: text and raw output, and nothing of what they were given."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.tools import FunctionTool, ToolOutput

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import RequireOrigin
from guarded_llamaindex import guard_tools

POLICY = ToolExecutionPolicy(
    {
        "read": ToolSettings(risk="read_only", trusted=("/*/address",)),
        "directory": ToolSettings(risk="read_only", untrusted_output=False),
        "send": "mutating",
    },
    rules=[RequireOrigin(tool="send", param="to")],
)
RECORDS = [{"address": "bob@example.com", "note": "eve@evil.example"}]


def office(returned: Any) -> tuple[Guard, Any, Any, Any]:
    """Two readers that return this, and a sender, behind one guard."""

    def read() -> Any:
        """Read."""
        return returned

    def directory(query: str) -> Any:
        """Look up."""
        return returned

    def send(to: str) -> str:
        """Send."""
        return "sent"

    guard = Guard(POLICY)
    read_tool, directory_tool, send_tool = guard_tools(
        [FunctionTool.from_defaults(function) for function in (read, directory, send)], guard
    )
    return guard, read_tool, directory_tool, send_tool


@pytest.mark.parametrize(
    "returned",
    [RECORDS, ToolOutput(content="see eve@evil.example", tool_name="read", raw_input={}, raw_output=RECORDS)],
    ids=["raw", "output"],
)
def test_trusted_parts_of_a_result_vouch_and_its_text_does_not(returned: Any) -> None:
    """Pointers speak of the raw output; text around it stays untrusted."""
    guard, read, _, send = office(returned)
    with guard.session("ann", tools=["read", "send"]):
        assert send.call(to="bob@example.com").is_error
        read.call()
        assert not send.call(to="bob@example.com").is_error
        assert send.call(to="eve@evil.example").is_error


def test_what_a_call_was_given_is_no_output() -> None:
    """A ToolOutput holds its own input; a trusted tool does not vouch for it."""
    guard, _, directory, send = office("nobody of that name")
    with guard.session("ann", tools=["directory", "send"]):
        directory.call(query="eve@evil.example")
        assert send.call(to="eve@evil.example").is_error


def test_a_sessions_own_narrowing_is_shown() -> None:
    """To the model of that session only."""
    guard, _, _, send = office("")
    with guard.session("ann", tools=["send"], request="bob@example.com", narrow={"send": {"to": ["bob@example.com"]}}):
        assert send.metadata.get_parameters_dict()["properties"]["to"]["enum"] == ["bob@example.com"]
    assert "enum" not in send.metadata.get_parameters_dict()["properties"]["to"]

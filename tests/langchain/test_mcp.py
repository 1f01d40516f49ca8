"""Tools of a real MCP server over stdio, through langchain-mcp-adapters: the same tools, with checked arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.testing import ScriptedApprover
from guarded_langchain import guard_tool, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

client_module = pytest.importorskip("langchain_mcp_adapters.client")
adapter = pytest.importorskip("langchain_mcp_adapters.tools")

POLICY = {"find_order": "read_only", "delete_order": "destructive", "fail": "mutating"}
ALL = list(POLICY)


class Shop:
    """The server, and what reached it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        server = Path(__file__).with_name("mcp_server.py")
        connection = {
            "command": sys.executable,
            "args": [str(server), str(log)],
            "transport": "stdio",
            "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
        }
        self._client: Any = client_module.MultiServerMCPClient({"shop": connection})

    @asynccontextmanager
    async def tools(self) -> AsyncIterator[dict[str, BaseTool]]:
        """Its tools by name, while it runs."""
        async with self._client.session("shop") as session:
            yield {tool.name: tool for tool in await adapter.load_mcp_tools(session)}

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A server of its own for each test."""
    return Shop(tmp_path / "calls.log")


def call(name: str, **args: Any) -> dict[str, Any]:
    """A ToolCall."""
    return {"name": name, "args": args, "id": "call-1", "type": "tool_call"}


def parts(answer: Any) -> Any:
    """A message's content and artifact, without the ids that the server gives each block."""
    blocks = [{k: v for k, v in block.items() if k != "id"} for block in answer.content]
    return blocks, answer.artifact, answer.status, answer.name


async def test_they_are_the_same_tools(shop: Shop) -> None:
    """Schemas, metadata, contents, artifacts and failures are those of the bare tools."""
    guard = Guard(ToolExecutionPolicy(dict.fromkeys(POLICY, "mutating")))
    async with shop.tools() as bare:
        guarded = dict(zip(bare, guard_tools(bare.values(), guard), strict=True))
        with guard.session("user-17", tools=ALL):
            for name, tool in bare.items():
                other = guarded[name]
                assert convert_to_openai_tool(other) == convert_to_openai_tool(tool)
                assert other.metadata == tool.metadata
                assert parts(await other.ainvoke(call(name, order=7))) == parts(await tool.ainvoke(call(name, order=7)))
    assert shop.calls == ["find_order 7 none"] * 2 + ["delete_order 7"] * 2 + ["fail 7"] * 2


async def test_what_does_not_fit_never_reaches_the_server(shop: Shop) -> None:
    """A bare MCP tool sends anything; behind a guard, its schema counts."""
    guard = Guard(ToolExecutionPolicy(POLICY))
    async with shop.tools() as bare:
        found = guard_tool(bare["find_order"], guard)
        with guard.session("user-17", tools=ALL):
            for args in ({"order": "7"}, {"order": 7, "extra": 1}, {}, {"order": 7.5}):
                answer = await found.ainvoke(call("find_order", **args))
                assert answer.artifact["code"] == "invalid_payload"
    assert shop.calls == []


async def test_a_servers_hints_never_lower_the_risk(shop: Shop) -> None:
    """It says that deleting is read-only; the policy says that a person is asked."""
    approver = ScriptedApprover([False])
    guard = Guard(ToolExecutionPolicy(POLICY), approver=approver)
    model = ScriptedChatModel([says(tool_call("delete_order", {"order": 7})), "done"])
    async with shop.tools() as bare:
        agent = create_agent(model, tools=guard_tools(bare.values(), guard))
        async with guard.session("user-17", tools=ALL):
            said = (await agent.ainvoke({"messages": [("user", "delete it")]}))["messages"]
    assert said[2].artifact["code"] == "approval_rejected"
    assert approver.asked[0].arguments == {"order": 7}
    assert shop.calls == []

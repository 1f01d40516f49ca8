"""`guard_mcp_tools`: an MCP server's tools, judged on the server's own schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from llama_index.core.tools import FunctionTool

from guarded_core.ground.given import misplaced
from guarded_core.guard import Guard, OnInvalid, check_handed_over
from guarded_core.session import ToolExecutionContext
from guarded_llamaindex.tool import Listed, guard_tools


class McpTools(Protocol):
    """What is needed of a ``llama_index.tools.mcp.McpToolSpec``."""

    async def fetch_tools(self) -> Sequence[Any]:
        """The server's tools as it lists them."""

    async def to_tool_list_async(self) -> Sequence[FunctionTool]:
        """The same as LlamaIndex tools."""


async def guard_mcp_tools(
    spec: McpTools, guard: Guard, *, context: ToolExecutionContext | None = None, on_invalid: OnInvalid = "refuse"
) -> list[Listed]:
    """All tools of an MCP server, behind `guard`.

    LlamaIndex converts a server's schema and drops most of its constraints on the way (ranges, patterns, lengths);
    these tools show the model the original, and are judged on it. A policy can pin a tool (``schema_sha256``), so that
    one which the server changes is refused until somebody has looked at it.

    Args:
        spec: a ``McpToolSpec``.
        guard: judges, records and runs their calls.
        context: whose calls these are; by default the current session's.
        on_invalid: as for `guard_tools`: "leave_out" goes on without the tools that cannot be guarded.

    Raises:
        GuardConfigurationError: `spec` is something else, such as a client.
        InvalidTool, DuplicateTool: as `guard_tools`.
    """
    check_handed_over(guard, spec, context)
    if isinstance(spec, type) or not all(hasattr(spec, way) for way in ("fetch_tools", "to_tool_list_async")):
        raise misplaced("spec", "a McpToolSpec", spec, "a client becomes one: McpToolSpec(client)")
    schemas = {tool.name: _input_schema(tool) for tool in await spec.fetch_tools()}
    return guard_tools(await spec.to_tool_list_async(), guard, context=context, schemas=schemas, on_invalid=on_invalid)


def _input_schema(tool: Any) -> dict[str, Any]:
    # mcp 2 spells its fields in snake case.
    schema = getattr(tool, "input_schema", None) or getattr(tool, "inputSchema", None)
    return dict(schema or {"type": "object", "properties": {}})

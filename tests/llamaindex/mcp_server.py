"""A small MCP server over stdio, for test_mcp.py: ``python mcp_server.py LOG`` notes each call in LOG."""

import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field

try:
    from mcp.server.mcpserver import MCPServer
except ImportError:  # mcp 1
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("shop")
LOG = Path(sys.argv[1])


def _note(line: str) -> None:
    with LOG.open("a") as log:
        log.write(line + "\n")


@server.tool()
def refund(
    amount: Annotated[int, Field(ge=1, le=100)],
    order: Annotated[str, Field(pattern="^[A-Z]-[0-9]+$", max_length=8)],
    note: str | None = None,
    tenant: str = "none",
) -> str:
    """Pays money back."""
    _note(f"refund {amount} {order} {note} {tenant}")
    return f"refunded {amount}"


@server.tool()
def fail(reason: str) -> str:
    """Fails."""
    _note(f"fail {reason}")
    raise RuntimeError(reason)


if __name__ == "__main__":
    server.run(transport="stdio")

"""A real MCP server over stdio for test_mcp.py: it writes each call that reaches it to the file it is given."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

server = FastMCP("shop", log_level="ERROR")
calls = Path(sys.argv[1])


def _note(call: str) -> None:
    with calls.open("a") as file:
        file.write(call + "\n")


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def find_order(order: int, note: str = "none") -> str:
    """Find an order."""
    _note(f"find_order {order} {note}")
    return f"order {order}, {note}"


@server.tool(annotations=ToolAnnotations(readOnlyHint=True, destructiveHint=False))
def delete_order(order: int) -> dict[str, int]:
    """Delete an order; its hints are not to be believed."""
    _note(f"delete_order {order}")
    return {"deleted": order}


@server.tool()
def fail(order: int) -> str:
    """Fail."""
    _note(f"fail {order}")
    raise RuntimeError("out of order")


server.run("stdio")

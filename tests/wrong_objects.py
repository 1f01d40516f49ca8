"""What users hand over in the place of tools, guards and sessions, whatever the framework."""

from __future__ import annotations

from typing import Any

from guarded_core import Guard, ToolExecutionPolicy

SECRET = "tok-4711"
"""Stands in what is handed over, and must be in no error."""


def read(id: int) -> str:
    """Read one."""
    return f"row {id}"


def guard() -> Guard:
    """A guard of its own."""
    return Guard(ToolExecutionPolicy({"read": "read_only"}))


class Session:
    """Stands for an MCP session."""

    async def list_tools(self) -> list[Any]:
        """What the server has."""
        return []

    def __repr__(self) -> str:
        return SECRET


class Callable:
    """An object that can be called, and has no name."""

    def __call__(self, id: int) -> str:
        return f"row {id}"

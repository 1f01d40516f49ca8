"""The ToolRuntime of the call that middleware is about to run, where ToolNode hands none to the tool itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_current: ContextVar[Any] = ContextVar("guarded_tool_runtime", default=None)
_asked: ContextVar[tuple[str | None, tuple[str, ...]]] = ContextVar("guarded_asked_for", default=(None, ()))


@contextmanager
def handing_over(runtime: Any, asks: tuple[str, ...] = ()) -> Iterator[None]:
    """Make `runtime` the one of the call that runs in this block, and `asks` why a person has to approve it."""
    token, asked = _current.set(runtime), _asked.set((getattr(runtime, "tool_call_id", None), asks))
    try:
        yield
    finally:
        _current.reset(token)
        _asked.reset(asked)


def asked_for(tool_call_id: str | None) -> tuple[str, ...]:
    """Why middleware has a person approve the call with that id."""
    whose, asks = _asked.get()
    return asks if tool_call_id is not None and whose == tool_call_id else ()


def handed_over(tool_call_id: str | None) -> Any:
    """The runtime of the call with that id; None for any other, such as one that a tool makes inside."""
    runtime = _current.get()
    return runtime if runtime is not None and runtime.tool_call_id == tool_call_id else None

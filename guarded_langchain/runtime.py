"""The ToolRuntime of the call that middleware is about to run, where ToolNode hands none to the tool itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_current: ContextVar[Any] = ContextVar("guarded_tool_runtime", default=None)


@contextmanager
def handing_over(runtime: Any) -> Iterator[None]:
    """Make `runtime` the one of the call that runs in this block."""
    token = _current.set(runtime)
    try:
        yield
    finally:
        _current.reset(token)


def handed_over(tool_call_id: str | None) -> Any:
    """The runtime of the call with that id; None for any other, such as one that a tool makes inside."""
    runtime = _current.get()
    return runtime if runtime is not None and runtime.tool_call_id == tool_call_id else None

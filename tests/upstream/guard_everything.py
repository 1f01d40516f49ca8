"""A pytest plugin for other packages' tests: every LangChain tool that they run or give to a node is guarded.

The policy allows all, the session may do all, and the limits are out of the way, so that each difference from the bare
run is one that a guard makes: ``pytest -p guard_everything``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_langchain import guard_tool
from guarded_langchain.tool import GuardedTool

try:
    from langgraph.prebuilt import ToolNode
except ImportError:
    ToolNode = None  # type: ignore[assignment,misc]

# Of a tool with a `run` of its own, whose guarded one comes back here.
_inside: ContextVar[tuple[int, ...]] = ContextVar("inside", default=())


def guarded(tool: BaseTool) -> BaseTool:
    """The tool behind a guard of its own that allows it."""
    settings = ToolSettings(risk="read_only")
    policy = ToolExecutionPolicy({tool.name: settings}).with_payload_limits(1 << 26, 1 << 26)
    guard = Guard(policy)
    return guard_tool(tool, guard, context=guard.session("user-17", tools=[tool.name], max_calls=1 << 40))


@pytest.fixture(autouse=True)
def _guard_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[int, tuple[BaseTool, BaseTool]] = {}

    def of(tool: BaseTool) -> BaseTool:
        if id(tool) not in known:
            known[id(tool)] = (tool, guarded(tool))
        return known[id(tool)][1]

    def instead(method: str) -> Callable[..., Any]:
        bare = getattr(BaseTool, method)

        @functools.wraps(bare)
        def entry(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            if isinstance(self, GuardedTool) or id(self) in _inside.get():
                return bare(self, *args, **kwargs)
            token = _inside.set((*_inside.get(), id(self)))
            try:
                return getattr(of(self), method)(*args, **kwargs)
            finally:
                _inside.reset(token)

        @functools.wraps(bare)
        async def aentry(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
            if isinstance(self, GuardedTool) or id(self) in _inside.get():
                return await bare(self, *args, **kwargs)
            token = _inside.set((*_inside.get(), id(self)))
            try:
                return await getattr(of(self), method)(*args, **kwargs)
            finally:
                _inside.reset(token)

        return aentry if method == "arun" else entry

    for method in ("run", "arun"):
        monkeypatch.setattr(BaseTool, method, instead(method))
    if ToolNode is not None:
        start = ToolNode.__init__

        @functools.wraps(start)
        def init(self: Any, tools: Any, *args: Any, **kwargs: Any) -> None:
            start(self, [of(tool) if isinstance(tool, BaseTool) else tool for tool in tools], *args, **kwargs)
            held = list(self.tools_by_name.values())
            if not all(isinstance(tool, GuardedTool) for tool in held):  # functions became tools in there
                start(self, [tool if isinstance(tool, GuardedTool) else of(tool) for tool in held], *args, **kwargs)

        monkeypatch.setattr(ToolNode, "__init__", init)

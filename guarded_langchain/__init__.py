"""LangChain and LangGraph tools behind a guard."""

from __future__ import annotations

try:
    import langchain_core as _langchain_core  # noqa: F401
except ImportError as error:
    raise ImportError('guarded_langchain needs LangChain: pip install "guarded-tools[langchain]"') from error

from typing import TYPE_CHECKING, Any

from guarded_core.ground.moved import Moved, moved_name
from guarded_core.ground.unguarded import UnguardedTools
from guarded_langchain.arguments import injected
from guarded_langchain.messages import ToolCallDenied
from guarded_langchain.reachable import RENAMED, ReachableTools, assert_all_guarded, reachable_tools
from guarded_langchain.tool import guard_tool, guard_tools

if TYPE_CHECKING:
    from guarded_langchain.deep import guarded_deep_agent
    from guarded_langchain.graph.interrupt import InterruptApprover
    from guarded_langchain.middleware import GuardMiddleware

__all__ = [
    "GuardMiddleware",
    "InterruptApprover",
    "ReachableTools",
    "ToolCallDenied",
    "UnguardedTools",
    "assert_all_guarded",
    "guard_tool",
    "guard_tools",
    "guarded_deep_agent",
    "injected",
    "reachable_tools",
]


# Before 0.2.0.
Moved(
    {
        f"guarded_langchain.{name}": (f"guarded_langchain.graph.{name}",)
        for name in ("interrupt", "replies", "resumes", "siblings")
    }
    | {"guarded_langchain.coverage": ("guarded_langchain.reachable",)}
).install()


def __getattr__(name: str) -> Any:
    # Late: these need LangChain's agents or LangGraph, which tools alone do not.
    if name == "GuardMiddleware":
        from guarded_langchain.middleware import GuardMiddleware

        return GuardMiddleware
    if name == "InterruptApprover":
        from guarded_langchain.graph.interrupt import InterruptApprover

        return InterruptApprover
    if name == "guarded_deep_agent":
        from guarded_langchain.deep import guarded_deep_agent

        return guarded_deep_agent
    return moved_name(__name__, name, RENAMED)

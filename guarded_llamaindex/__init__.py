"""Guarded tools for LlamaIndex: the guarded tool is the same tool, and there is no way around it.

================  =============================================================
`tool`            `guard_tool`, `guard_tools`: a FunctionTool that asks the guard
`arguments`       how a call's arguments reach the guard, and the inner tool
`metadata`        what models and agents see of a tool
`outputs`         what a call gives back: the tool's own output, or a denial
`mcp`             `guard_mcp_tools`: judged on the server's own schemas
`retriever`       `guarded_retriever`: hides and narrows per session
`handoff`         `GuardedAgentWorkflow`: agents hand over where the guard lets them
`audit`           `audited_events`: calls that never reached a tool
`workflow`        `WorkflowApprover`: a workflow waits for a person
`reentry`         which call of a workflow this is, also when it is run again
`reachable`       `assert_all_guarded`: what an agent could reach unguarded
`code_execution`  `UnsafeCodeExecution`: accepts code that a model writes
`testing`         `ScriptedLLM`
`compat`          what is private in LlamaIndex, in one place
================  =============================================================

What a guarded tool does otherwise than the bare one, and nothing else:

- Arguments are strict: unknown keys, wrong types, and what the tool's own model refuses never reach the function.
- What the application sets (partial parameters, the workflow's Context) is not the model's to give: it is not shown
  one, cannot override one, and reads none in ``raw_input``.
- A refusal, or an output over the limit, is a ``ToolOutput(is_error=True)``, and ends no turn by ``return_direct``.
- A ToolOutput that a function returns keeps ``is_error`` and ``blocks``; an MCP result that is an error is told as one.
- ``real_fn``, which only code execution uses, is refused; see `code_execution`.
- Where LlamaIndex's `call_tool` would run a failing tool twice, the failure of a call by position is an output.
- A refused call opens no span for tracing; one that runs opens those of the bare tool.

What a guard cannot hold against: code in the same process. No attribute leads to the inner tool, but closures and the
garbage collector do; hence the stand on code execution.

LlamaIndex loads when the first name is used, not before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from guarded_core.ground.unguarded import UnguardedTools
    from guarded_llamaindex.audit import audited_events
    from guarded_llamaindex.code_execution import UnsafeCodeExecution
    from guarded_llamaindex.handoff import GuardedAgentWorkflow
    from guarded_llamaindex.mcp import guard_mcp_tools
    from guarded_llamaindex.reachable import assert_all_guarded
    from guarded_llamaindex.retriever import guarded_retriever
    from guarded_llamaindex.tool import GuardedTool, guard_tool, guard_tools
    from guarded_llamaindex.workflow import ApprovalAnswered, ApprovalRequested, WorkflowApprover

__all__ = [
    "ApprovalAnswered",
    "ApprovalRequested",
    "GuardedAgentWorkflow",
    "GuardedTool",
    "UnguardedTools",
    "UnsafeCodeExecution",
    "WorkflowApprover",
    "assert_all_guarded",
    "audited_events",
    "guard_mcp_tools",
    "guard_tool",
    "guard_tools",
    "guarded_retriever",
]

_PLACES = {
    "ApprovalAnswered": "workflow",
    "ApprovalRequested": "workflow",
    "GuardedAgentWorkflow": "handoff",
    "GuardedTool": "tool",
    "UnguardedTools": "reachable",
    "UnsafeCodeExecution": "code_execution",
    "WorkflowApprover": "workflow",
    "assert_all_guarded": "reachable",
    "audited_events": "audit",
    "guard_mcp_tools": "mcp",
    "guard_tool": "tool",
    "guard_tools": "tool",
    "guarded_retriever": "retriever",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_PLACES[name]}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("llama_index", "llama_index_instrumentation", "workflows"):
            raise
        raise ImportError('guarded_llamaindex needs an extra: pip install "guarded-tools[llamaindex]"') from error
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__

"""Calls that never reach a tool: what a model makes up is on record too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from llama_index.core.agent.workflow import ToolCallResult
from workflows.events import Event
from workflows.handler import WorkflowHandler

from guarded_core.ground.errors import AuditUnavailable, ToolExecutionError
from guarded_core.guard import Guard
from guarded_core.pipeline.call import Call
from guarded_core.session import ToolExecutionContext
from guarded_llamaindex.compat import NOT_FOUND, current_workflow_context


async def audited_events(
    handler: WorkflowHandler, guard: Guard, *, context: ToolExecutionContext | None = None
) -> AsyncIterator[Event]:
    """The events of a run, as ``handler.stream_events()`` has them; calls of tools that do not exist are recorded.

    Args:
        handler: what ``agent.run`` returned.
        guard: whose trail records them.
        context: whose calls they are; by default the current session's.

    Raises:
        AuditUnavailable: one could not be recorded.
    """
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult) and _reached_no_tool(event):
            error = await refuse_unknown(guard, context, event.tool_name, event.tool_kwargs)
            if isinstance(error, AuditUnavailable):
                raise error
        yield event


async def refuse_unknown(
    guard: Guard, context: ToolExecutionContext | None, name: str, arguments: dict[str, Any]
) -> ToolExecutionError:
    """Take the call of a tool that does not exist through the pipeline, which refuses and records it."""
    found, no_context = guard.resolve(context, runtime=current_workflow_context())
    call = Call(tool=name, port=None, arguments=arguments, context=found, no_context=no_context)
    try:
        await guard.arun(call)
    except ToolExecutionError as error:
        return error
    raise AssertionError("a call without a tool was not refused")


def _reached_no_tool(event: ToolCallResult) -> bool:
    output = event.tool_output
    return output.is_error and output.raw_output is None and output.content == NOT_FOUND.format(name=event.tool_name)

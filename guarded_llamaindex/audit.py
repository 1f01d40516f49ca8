"""Calls that never reach a tool: what a model makes up is on record too."""

from __future__ import annotations

from collections.abc import AsyncIterator

from llama_index.core.agent.workflow import ToolCallResult
from workflows.events import Event
from workflows.handler import WorkflowHandler

from guarded_core.ground.errors import AuditUnavailable
from guarded_core.guard import Guard
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
            runtime = current_workflow_context()
            error = await guard.arefuse(event.tool_name, event.tool_kwargs, context=context, runtime=runtime)
            if isinstance(error, AuditUnavailable):
                raise error
        yield event


def _reached_no_tool(event: ToolCallResult) -> bool:
    output = event.tool_output
    return output.is_error and output.raw_output is None and output.content == NOT_FOUND.format(name=event.tool_name)

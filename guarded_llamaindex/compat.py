"""What is private in LlamaIndex and its workflows, in one place; a test compares each with the installed version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any, TypeVar

from llama_index.core.tools import FunctionTool, calling
from llama_index_instrumentation.dispatcher import DISPATCHER_SPAN_DECORATED_ATTR, active_instrument_tags
from workflows import Context
from workflows.errors import WorkflowRuntimeError
from workflows.events import Event
from workflows.runtime.types.results import (
    AddWaiter,
    DeleteWaiter,
    StepWorkerContext,
    StepWorkerStateContextVar,
    StepWorkerWaiter,
    WaitingForEvent,
)

F = TypeVar("F", bound=Callable[..., Any])

SIGNALS: tuple[type[BaseException], ...] = (WaitingForEvent,)
"""Control flow that a tool may raise; a workflow has to see it."""

CALL_TOOL_CALLS_TWICE = not hasattr(calling, "_function_tool_accepts_kwargs")
"""Whether `call_tool` gives a single argument by position, and calls again by keyword after any error."""

NOT_FOUND = "Tool {name} not found. Please select a tool that is available."
"""What an agent tells the model of a name that none of its tools has."""

OF_AN_AGENT, MEMORY = "num_iterations", "memory"
"""What an agent keeps in its context's store, and looks up there without asking whether it is there."""


def current_event() -> Event | None:
    """The event that the current workflow step handles; None outside any step."""
    step = StepWorkerStateContextVar.get(None)
    return None if step is None else step.event


def current_workflow_context() -> Context | None:
    """The Context of the current workflow step; None outside any step."""
    if StepWorkerStateContextVar.get(None) is None:
        return None
    try:
        return Context.get_step_context()
    except WorkflowRuntimeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The workflow step that is running.

    Attributes:
        context: its workflow's.
        run: the id of the run; another one after a restart.
        work_item: the id of what it handles, the same however often the step is run for it.
        tool_call_id: the id of the model's call that it handles; None where it handles something else.
        is_retried: whether it failed before, and is run again for that.
        is_resumed: whether its run goes on with what was under way when its context was saved.
    """

    context: Context
    run: str
    work_item: str
    tool_call_id: str | None
    is_retried: bool
    is_resumed: bool
    _worker: StepWorkerContext

    @property
    def invocation(self) -> object:
        """What is the same for all that one running of the step does, and another for the next."""
        return self._worker

    def _waiters(self) -> list[StepWorkerWaiter[Any]]:
        return [waiter for waiter in self._worker.state.collected_waiters if waiter.work_item_id == self.work_item]

    def waits_for_others(self, event: type[Event]) -> bool:
        """Whether it was paused to wait for something else than `event`."""
        return any(waiter.waiting_for_event is not event for waiter in self._waiters())

    def was_restored(self, waiter_id: str) -> bool:
        """Whether it waited in another process already: a restored waiter has lost what it requires."""
        return any(
            waiter.waiter_id == waiter_id and waiter.has_requirements and not waiter.requirements
            for waiter in self._waiters()
        )

    def forget_waiters(self, event: type[Event]) -> None:
        """Once it has ended, wait for no `event` any more."""
        for waiter in self._waiters():
            if waiter.waiting_for_event is event:
                self._worker.returns.return_values.append(DeleteWaiter(waiter_id=waiter.waiter_id))


def current_step() -> Step | None:
    """The workflow step that this code runs in; None outside any."""
    worker, context = StepWorkerStateContextVar.get(None), current_workflow_context()
    run = active_instrument_tags.get().get("llamaindex.run_id")
    if worker is None or context is None or not run or worker.state.work_item_id is None:
        return None
    tool_call_id = getattr(worker.event, "tool_id", None)
    return Step(
        context=context,
        run=str(run),
        work_item=worker.state.work_item_id,
        tool_call_id=tool_call_id if isinstance(tool_call_id, str) and tool_call_id else None,
        is_retried=worker.retry.retry_number > 0,
        is_resumed=_was_under_way(context),
        _worker=worker,
    )


def _was_under_way(context: Context) -> bool:
    """Whether the context's run began in the middle; False where another runtime than the built-in one does not say."""
    begun = getattr(getattr(context._face, "_internal_adapter", None), "init_state", None)
    return getattr(begun, "is_running", False) is True


def waiting_for(
    event: type[Event], *, waiter_id: str, requirements: dict[str, Any] | None = None, tells: Event | None = None
) -> WaitingForEvent[Any]:
    """The signal that pauses the current step until an `event` comes that has these fields.

    `tells` is emitted the first time. As `Context.wait_for_event`, but also where such an event has come already.
    """
    return WaitingForEvent(
        AddWaiter(
            waiter_id=waiter_id, requirements=requirements or {}, event_type=event, waiter_event=tells, timeout=None
        )
    )


def field_defaults(tool: FunctionTool) -> dict[str, Any]:
    """The values of ``pydantic.Field`` defaults in the function's signature, as the tool fills them in."""
    return dict(tool._field_defaults)


def makes_its_outputs(tool: object) -> bool:
    """Whether each output of the tool is one that LlamaIndex has just made, so that nobody else holds it."""
    return isinstance(tool, FunctionTool) and (
        not any(overrides(type(tool), FunctionTool, method) for method in ("call", "acall"))
        and tool._callback is tool._async_callback is None
    )


def overrides(kind: type, base: type, method: str) -> bool:
    """Whether `kind` has another method than `base`; looked up statically: instrumented ones are new at each look."""
    return getattr_static(kind, method) is not getattr_static(base, method)


def is_mcp_tool(tool: object) -> bool:
    """Whether llama-index-tools-mcp made it: from a conversion of the server's schema that drops most constraints."""
    return isinstance(tool, FunctionTool) and getattr(tool.real_fn, "__qualname__", "").startswith(
        "McpToolSpec._create_tool_fn."
    )


def unspanned(method: F) -> F:
    """Keep instrumentation from opening a span for `method`: the tool that it calls opens the one there should be."""
    setattr(method, DISPATCHER_SPAN_DECORATED_ATTR, True)
    return method

"""`WorkflowApprover`: a workflow waits where a person is needed, and finds the decision in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from workflows.events import InputRequiredEvent

from guarded_core.approvals.approver import Attached, CannotAsk
from guarded_core.approvals.card import request_text
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.ground.errors import InvalidApproval
from guarded_llamaindex import compat
from guarded_llamaindex.reentry import ApprovalAnswered, is_nested

__all__ = ["ApprovalAnswered", "ApprovalRequested", "WorkflowApprover"]


class ApprovalRequested(InputRequiredEvent):
    """A person is asked to approve one call. Plain JSON, on the workflow's stream.

    Attributes:
        request_id: what to decide.
        tool: name of the tool.
        arguments: the effective arguments, whole; of those that the application set, the name.
        tool_call_id: the id that the model's message gave the call.
        principal: for whom.
        reasons: why a person is asked.
        digest: of the arguments.
        text: all of it, as a person reads it.
    """

    request_id: str
    tool: str
    arguments: dict[str, Any]
    tool_call_id: str
    principal: str
    reasons: list[str]
    digest: str
    text: str


class WorkflowApprover(Attached):
    """Waits in the workflow, and emits an `ApprovalRequested` event, so that its context can be saved meanwhile.

    Answer with `answer`. An event has no authority by itself: each call finds its own decision in the store, so that
    one that is sent twice, or for another call, does nothing. A workflow whose context is restored emits its questions
    again.

    Where no workflow can wait (outside one, for a call without an id, in an agent that is another one's guarded tool)
    it has no one to ask, and the next approver is asked, if there is one; where none can ask, the log says why.
    """

    frameworks = frozenset({"llamaindex"})

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """Raises CannotAsk: a sync call cannot wait in a workflow."""
        raise CannotAsk("a sync call cannot wait in a workflow: await acall, or let an agent make it")

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """Have the workflow's step wait. Raises CannotAsk where there is none that can."""
        step = compat.current_step()
        if step is None or request.call_key is None or is_nested(step):
            raise CannotAsk(
                "no workflow can wait here: not outside one, for a call without an id, or inside another tool"
            )
        asked = _requested(request)
        if step.was_restored(request.id):
            step.context.write_event_to_stream(asked)
        raise compat.waiting_for(
            ApprovalAnswered, waiter_id=request.id, requirements={"request_id": request.id}, tells=asked
        )

    async def answer(
        self,
        handler: Any,
        event: ApprovalRequested | ApprovalRequest | str,
        *,
        by: str,
        approve: bool,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        response: str | None = None,
    ) -> ApprovalRequest:
        """Decide a request, and wake the workflow that waits for it; the first decision stands, and is returned.

        Args:
            handler: the handler of the workflow's run.
            event: what was emitted, or the request or its id, as ``guard.approvals.pending()`` has them.
            by: who decides, as the application authenticated them.
            approve: True for yes; anything but True is no.
            reason: why; a no's reason reaches the model.
            arguments: with a yes: what the tool is to run with, all of it.
            response: with a no: what the model gets in the place of the tool's result.

        Raises:
            InvalidApproval: this person cannot decide it, or it has expired; then the workflow asks again.
        """
        approvals, request_id = Approvals(self.store), _id(event)
        said = Answer(by=by, approve=approve, reason=reason, arguments=arguments, response=response)
        try:
            request = await asyncio.to_thread(approvals.answer, request_id, said)
        except InvalidApproval:
            if not await asyncio.to_thread(self.is_waiting, request_id):
                self.wake(handler, request_id)
            raise
        if request.id != request_id or request.state is not RequestState.PENDING:
            self.wake(handler, request_id)
        return request

    def wake(self, handler: Any, event: ApprovalRequested | ApprovalRequest | str) -> None:
        """Have the call look for its decision, made elsewhere with ``guard.approvals.decide``; harmless otherwise."""
        handler.ctx.send_event(ApprovalAnswered(request_id=_id(event)))


def _id(event: ApprovalRequested | ApprovalRequest | str) -> str:
    if isinstance(event, str):
        return event
    return event.id if isinstance(event, ApprovalRequest) else event.request_id


def _requested(request: ApprovalRequest) -> ApprovalRequested:
    return ApprovalRequested(
        request_id=request.id,
        tool=request.tool,
        arguments=deepcopy(request.arguments),
        tool_call_id=request.tool_call_id or "",
        principal=request.principal,
        reasons=list(request.reasons),
        digest=request.digest,
        text=request_text(request, medium="plain"),
    )

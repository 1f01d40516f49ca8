"""`InterruptApprover`: a graph pauses where a person is needed, and finds the decision in the store when it goes on."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from copy import deepcopy
from typing import Any, Literal, TypeAlias

from guarded_core.approval import Answer, ApprovalRequest
from guarded_core.approvers import Attached
from guarded_core.display import request_text
from guarded_core.errors import GuardConfigurationError
from guarded_langchain import compat

Format: TypeAlias = Literal["hitl", "agent_inbox"]

_MAX_KEPT = 512
# A graph that is entered again after a crash may have lost its checkpoints, once.
_MAX_PLACES = 2


class InterruptApprover(Attached):
    """Interrupts the graph with the question, so that it can be decided at any time, in any process.

    The interrupt's value is plain JSON in a shape that existing user interfaces show; its id is the request's. Decide
    with ``guard.approvals.decide(request_id, by=..., approve=...)``, then wake the graph with ``invoke(None, config)``.
    What a graph is resumed with has no authority: each call finds its own decision in the store, so that a value that
    is sent twice, or reaches another call, does nothing.

    Where no graph can be paused (outside one, without a checkpointer or thread_id, or for a call without an id) it has
    no answer, and the next approver is asked, if there is one.

    Args:
        format: "hitl", LangChain's human-in-the-loop shape, or "agent_inbox", Agent Inbox's older one.
        serial: show one question of a graph at a time; otherwise all of its parallel calls ask at once, and a graph
            with several is only woken with None or with a value for each interrupt's id.
    """

    def __init__(self, *, format: Format = "hitl", serial: bool = True) -> None:
        super().__init__()
        if not compat.HAS_LANGGRAPH:
            raise ImportError('InterruptApprover needs LangGraph: pip install "guarded-tools[langgraph]"')
        if format not in _SHAPES:
            raise GuardConfigurationError(f"format is one of {', '.join(_SHAPES)}")
        self._shape = _SHAPES[format]
        self._serial = serial
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], tuple[ApprovalRequest, compat.Place]] = OrderedDict()
        self._places: OrderedDict[tuple[Any, ...], set[str]] = OrderedDict()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """Interrupt the graph that this code runs in; None where there is none to interrupt."""
        place = compat.current_place()
        if place is None or request.tool_call_id is None or not self._is_known_again(place, request):
            return None
        while True:
            shown, where = self._show(place, request)
            if shown.id == request.id or self.is_waiting(shown.id):
                values = () if place.is_apart(where) else ((self._shape(shown), shown.id),)
                raise compat.graph_interrupt(*values)
            self._close(place, shown)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`; the store is read in a worker thread."""
        return await asyncio.to_thread(self.ask, request)

    def _show(self, place: compat.Place, request: ApprovalRequest) -> tuple[ApprovalRequest, compat.Place]:
        """The question that is open at this checkpoint of the graph, and where it was asked; `request` if none is."""
        if not self._serial:
            return request, place
        with self._lock:
            self._open.setdefault(place.checkpoint, (request, place))
            self._open.move_to_end(place.checkpoint)
            while len(self._open) > _MAX_KEPT:
                self._open.popitem(last=False)
            return self._open[place.checkpoint]

    def _is_known_again(self, place: compat.Place, request: ApprovalRequest) -> bool:
        """Whether the call keeps its place; in a graph that keeps no checkpoints it would be asked about for ever."""
        call = (place.checkpoint, place.path, request.tool, request.tool_call_id, request.digest)
        with self._lock:
            places = self._places.setdefault(call, set())
            self._places.move_to_end(call)
            while len(self._places) > _MAX_KEPT:
                self._places.popitem(last=False)
            places.add(place.namespace)
            if (shown := self._open.get(place.checkpoint)) and shown[0].id != request.id:
                same_call = (shown[0].tool, shown[0].tool_call_id) == (request.tool, request.tool_call_id)
                if same_call and shown[1].path == place.path:
                    del self._open[place.checkpoint]  # this question stands in for that one, of the same call
            return len(places) <= _MAX_PLACES

    def _close(self, place: compat.Place, decided: ApprovalRequest) -> None:
        with self._lock:
            if (shown := self._open.get(place.checkpoint)) and shown[0].id == decided.id:
                del self._open[place.checkpoint]


def _hitl(request: ApprovalRequest) -> dict[str, Any]:
    return {
        "action_requests": [
            {"name": request.tool, "args": deepcopy(request.arguments), "description": request_text(request)}
        ],
        "review_configs": [{"action_name": request.tool, "allowed_decisions": ["approve", "reject"]}],
        **_binding(request),
    }


def _agent_inbox(request: ApprovalRequest) -> list[dict[str, Any]]:
    return [
        {
            "action_request": {"action": request.tool, "args": deepcopy(request.arguments)},
            "config": {"allow_accept": True, "allow_ignore": True, "allow_edit": False, "allow_respond": False},
            "description": request_text(request),
            **_binding(request),
        }
    ]


def _binding(request: ApprovalRequest) -> dict[str, Any]:
    return {"request_id": request.id, "tool_call_id": request.tool_call_id, "digest": request.digest}


_SHAPES = {"hitl": _hitl, "agent_inbox": _agent_inbox}

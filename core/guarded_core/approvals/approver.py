"""Who is asked: the protocol of an approver, one that calls a function, one that asks at the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Protocol

from guarded_core.approvals.decisions import RequestStore
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.ground.errors import GuardConfigurationError


class Approver(Protocol):
    """Puts a request before a person and returns the answer, or None where the answer comes another way.

    An approver with ``async def aask(request)`` is awaited under asyncio; otherwise `ask` runs in a worker thread
    there. One with ``attach(store)`` is told, once, where the guard's requests are kept. What it raises refuses the
    call.
    """

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer to `request`, after as long as it takes."""


async def ask_async(approver: Approver, request: ApprovalRequest) -> Answer | None:
    """The approver's answer, awaited where it has an async way to ask, from a worker thread where it has none."""
    aask = getattr(approver, "aask", None)
    if aask is None:
        return await asyncio.to_thread(approver.ask, request)
    answer: Answer | None = await aask(request)
    return answer


def in_turn(approvers: Approver | Sequence[Approver] | None, store: RequestStore) -> Approver | None:
    """One approver of all these: each is asked until one answers; None where there is none.

    Where a call needs several people, those who have voted are not asked again: the next one is.

    Args:
        approvers: who is asked, in order.
        store: where their guard keeps the requests.
    """
    each = tuple(approvers) if isinstance(approvers, Sequence) else (approvers,) if approvers else ()
    for approver in each:
        if hasattr(approver, "attach"):
            approver.attach(store)
    return _InTurn(each) if each else None


class Attached:
    """An approver's knowledge of the store that its guard's requests are in."""

    def __init__(self, store: RequestStore | None = None) -> None:
        self._store = store

    def attach(self, store: RequestStore) -> None:
        """Take the guard's store. Raises GuardConfigurationError where this approver serves another store already."""
        if self._store not in (None, store):
            raise GuardConfigurationError("an approver serves one store; make another one for the other guard")
        self._store = store

    @property
    def store(self) -> RequestStore:
        """Where the requests are. Raises GuardConfigurationError before a guard has this approver."""
        if self._store is None:
            raise GuardConfigurationError("this approver belongs to no guard yet: Guard(..., approver=...)")
        return self._store

    def is_waiting(self, request_id: str) -> bool:
        """Whether that request still waits for people."""
        request = self.store.request(request_id)
        return request is not None and request.state is RequestState.PENDING and request.is_live(self.store.now_ns())


class _InTurn:
    def __init__(self, approvers: tuple[Approver, ...]) -> None:
        self._approvers = approvers

    def ask(self, request: ApprovalRequest) -> Answer | None:
        answers = (approver.ask(request) for approver in self._left(request))
        return next((answer for answer in answers if answer is not None), None)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        for approver in self._left(request):
            if (answer := await ask_async(approver, request)) is not None:
                return answer
        return None

    def _left(self, request: ApprovalRequest) -> Iterator[Approver]:
        voters = {vote.by for vote in request.votes}
        return (approver for approver in self._approvers if getattr(approver, "by", None) not in voters)

"""Who is asked: the protocol of an approver, one that calls a function, one that asks at the terminal."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, TextIO

from guarded_core.approval import Answer, ApprovalRequest, RequestState, RequestStore
from guarded_core.display import request_text
from guarded_core.errors import GuardConfigurationError


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


class CallbackApprover:
    """Asks by calling a function of the application.

    Args:
        callback: takes the request, returns True, False, an `Answer`, or None to leave it undecided; may be async.
        by: who answers; not needed where the callback returns an `Answer`.
    """

    def __init__(
        self,
        callback: Callable[[ApprovalRequest], Answer | bool | Awaitable[Answer | bool | None] | None],
        *,
        by: str | None = None,
    ) -> None:
        self._callback = callback
        self.by = by

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says. Raises TypeError for an async callback: only the async entry points can await it."""
        said = self._callback(request)
        if inspect.iscoroutine(said):
            said.close()
            raise TypeError("an async callback answers async calls only (acall, ainvoke, aexecute)")
        return self._answer(said)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says, awaited where it is async."""
        said = self._callback(request)
        return self._answer(await said if isinstance(said, Awaitable) else said)

    def _answer(self, said: object) -> Answer | None:
        if isinstance(said, Answer) or said is None:
            return said
        if self.by is None or not isinstance(said, bool):
            # Truthy is not yes: a mistaken return value must never approve.
            raise TypeError("the callback returns True or False (with by=...), an Answer, or None")
        return Answer(by=self.by, approve=said)


class QueueApprover(Attached):
    """Leaves the question in the store, and waits there until somebody decides it, from whatever process.

    Args:
        store: the guard's own by default; for another process to decide, a database.
        wait_seconds: how long to wait; then the call is refused, and the request stays until it expires.
        poll_seconds: how often to look.
    """

    def __init__(
        self, store: RequestStore | None = None, *, wait_seconds: float = 900, poll_seconds: float = 0.5
    ) -> None:
        super().__init__(store)
        self._waits = max(1, math.ceil(wait_seconds / poll_seconds))
        self._poll_seconds = poll_seconds

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """None, once it is decided or the wait is over: the decision is in the store already."""
        for _ in range(self._waits):
            if not self.is_waiting(request.id):
                break
            time.sleep(self._poll_seconds)
        return None

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, without blocking the event loop."""
        for _ in range(self._waits):
            if not await asyncio.to_thread(self.is_waiting, request.id):
                break
            await asyncio.sleep(self._poll_seconds)
        return None


class LastApproved:
    """The last payload of each tool that an approver approved in this process, to show what differs."""

    def __init__(self) -> None:
        self._arguments: dict[str, Any] = {}

    def of(self, request: ApprovalRequest) -> Any:
        """The payload of the same tool; None where there is none yet."""
        return self._arguments.get(request.tool)

    def kept(self, request: ApprovalRequest, answer: Answer | None) -> Answer | None:
        """`answer`, whose payload is remembered where it is a yes."""
        if answer is not None and answer.approve:
            self._arguments[request.tool] = request.arguments if answer.arguments is None else answer.arguments
        return answer


class ConsoleApprover:
    """Shows the whole payload at the terminal and reads yes or no; anything but yes is no.

    What differs from the last payload of the same tool that was approved here is marked.

    Args:
        by: who sits at the terminal.
        read, write: the streams, for tests; the terminal by default.
    """

    _terminal = threading.Lock()  # one question at a time, whatever runs in parallel

    def __init__(self, by: str, *, read: TextIO | None = None, write: TextIO | None = None) -> None:
        self.by = by
        self._read = read
        self._write = write
        self._last = LastApproved()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer typed; None where there is no one to type (end of input)."""
        read, write = self._read or sys.stdin, self._write or sys.stdout
        with self._terminal:
            print(request_text(request, self._last.of(request)), file=write)
            print(f"{self.by}, approve this call? [y/N] ", end="", file=write, flush=True)
            line = read.readline()
            if not line:
                return None
            approve = line.strip().lower() in ("y", "yes")
            print("Reason (optional): ", end="", file=write, flush=True)
            reason = read.readline().strip()
        return self._last.kept(request, Answer(by=self.by, approve=approve, reason=reason))

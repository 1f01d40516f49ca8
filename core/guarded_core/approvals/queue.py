"""`QueueApprover`: the question waits in the store, for whoever decides it there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from guarded_core.approvals.approver import Attached
from guarded_core.approvals.decisions import RequestStore
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.ground.errors import GuardConfigurationError


class QueueApprover(Attached):
    """Leaves the question in the store, and waits there until somebody decides it, from whatever process.

    However many wait, one thread looks, with one query each time.

    Args:
        store: the guard's own by default; for another process to decide, a database.
        wait_seconds: how long to wait; then the call is refused, and the request stays until it expires.
        poll_seconds: how often to look.

    Raises:
        GuardConfigurationError: a time that is not positive.
    """

    def __init__(
        self, store: RequestStore | None = None, *, wait_seconds: float = 900, poll_seconds: float = 0.5
    ) -> None:
        super().__init__(store)
        if not (wait_seconds > 0 and poll_seconds > 0):
            raise GuardConfigurationError("wait_seconds and poll_seconds are positive")
        self._wait_seconds = wait_seconds
        self._poll_seconds = poll_seconds
        self._lock = threading.Lock()
        self._waiting: dict[object, tuple[str, float, Callable[[Exception | None], None]]] = {}
        self._looks = False

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """None, once it is decided or the wait is over: the decision is in the store already."""
        done, failures = threading.Event(), []

        def tell(failure: Exception | None) -> None:
            failures.append(failure)
            done.set()

        mine = self._wait_for(request.id, tell)
        try:
            done.wait()
        finally:
            self._forget(mine)
        if failures[0] is not None:
            raise failures[0]
        return None

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, and no thread waits."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def tell(failure: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_end, done, failure)

        mine = self._wait_for(request.id, tell)
        try:
            await done
        finally:
            self._forget(mine)
        return None

    def _wait_for(self, request_id: str, tell: Callable[[Exception | None], None]) -> object:
        mine = object()
        with self._lock:
            self._waiting[mine] = (request_id, time.monotonic() + self._wait_seconds, tell)
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._look, name="guarded-queue", daemon=True).start()
        return mine

    def _forget(self, mine: object) -> None:
        with self._lock:
            self._waiting.pop(mine, None)

    def _look(self) -> None:
        """Look until nobody waits; a store that cannot be read ends all waits with what it raised."""
        while True:
            failure, pending = None, frozenset[str]()
            with self._lock:
                waiting = dict(self._waiting)  # whose requests were stored before this look
            try:
                pending = self._pending()
            except Exception as error:
                failure = error
            now = time.monotonic()
            with self._lock:
                over = [
                    (mine, tell)
                    for mine, (request_id, until, tell) in waiting.items()
                    if mine in self._waiting and (failure or request_id not in pending or now >= until)
                ]
                for mine, _ in over:
                    del self._waiting[mine]
                self._looks = bool(self._waiting)
                goes_on = self._looks
            for _, tell in over:
                tell(failure)
            if not goes_on:
                return
            time.sleep(self._poll_seconds)

    def _pending(self) -> frozenset[str]:
        now_ns = self.store.now_ns()
        found = self.store.requests(state=RequestState.PENDING)
        return frozenset(request.id for request in found if request.is_live(now_ns))


def _end(done: asyncio.Future[None], failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)

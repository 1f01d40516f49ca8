"""Calls of one model message that run together in one task of a graph: when one pauses, no other is left behind.

An async ToolNode gathers its calls, and the first that raises would leave the others running for nobody, to be
cancelled with the event loop: they would run, and their outcome would be unknown. So a call that pauses waits for those
that have begun, and one that begins after that does not begin: it comes again when the graph goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from threading import Lock

from guarded_langchain.graph import compat
from guarded_langchain.graph.attempt import Attempt, attempt_of

# How long a middleware may hold a call back, for it to be asked about in this turn already.
_START_SECONDS = 0.01
# A call in a worker thread may hold the very thread that another one needs: it does not wait for ever.
_PATIENCE_SECONDS = 60

_lock = Lock()


class _Sibling:
    """One call under way in an attempt.

    Attributes:
        attempt: the attempt; None outside of any.
        is_awaited: whether an event loop runs the attempt: a thread pool waits for all that it has begun.
        around: the calls that it was made in, outermost first.
        ended: done when it has ended or paused.
    """

    __slots__ = ("around", "attempt", "ended", "is_awaited")

    def __init__(self, attempt: Attempt | None, *, is_awaited: bool) -> None:
        self.attempt = attempt
        self.is_awaited = is_awaited
        self.around = _around.get()
        self.ended: Future[None] = Future()

    def still_under_way(self) -> list[Future[None]]:
        """The calls that this one, which pauses, has to wait for; when there are none, its attempt is over."""
        if self.attempt is None:
            return []
        with _lock:
            others = [call for call in self.attempt.under_way if not call.done() and call not in self.around]
            if not others and self.is_awaited and not self._is_inside:
                self.attempt.is_over = True
        return others

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Be under way in this block; raises the graph's own signal where nothing would wait for the call."""
        if self.attempt is not None:
            with _lock:
                if self.attempt.is_over and self.is_awaited and not self._is_inside:
                    raise compat.graph_interrupt()
                self.attempt.under_way.add(self.ended)
        token = _around.set((*self.around, self.ended))
        try:
            yield
        finally:
            _around.reset(token)
            if self.attempt is not None:
                with _lock:
                    self.attempt.under_way.discard(self.ended)
            self.end()

    def end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    @property
    def _is_inside(self) -> bool:
        """Whether a call of the same attempt made it: then that one ends the attempt."""
        return self.attempt is not None and not self.attempt.under_way.isdisjoint(self.around)


_around: ContextVar[tuple[Future[None], ...]] = ContextVar("guarded_calls_around", default=())
_announced: ContextVar[_Sibling | None] = ContextVar("guarded_call_announced", default=None)


@contextmanager
def announced() -> Iterator[None]:
    """Announce the awaited call that is made in this block, before its callbacks and threads take their time."""
    call = _Sibling(attempt_of(compat.current_runtime()), is_awaited=True)
    with call.under_way():
        token = _announced.set(call)
        try:
            yield
        finally:
            _announced.reset(token)


@contextmanager
def waiting_for_siblings(attempt: Attempt | None) -> Iterator[None]:
    """Run one call in this block; a graph's signal leaves it when the other calls of `attempt` have ended or paused."""
    with _one_of(attempt, is_awaited=False) as call:
        try:
            yield
        except compat.SIGNALS:
            call.end()
            time.sleep(_START_SECONDS)
            until = time.monotonic() + _PATIENCE_SECONDS
            while (others := call.still_under_way()) and (patience := until - time.monotonic()) > 0:
                wait(others, timeout=patience)
            raise


@asynccontextmanager
async def awaiting_siblings(attempt: Attempt | None) -> AsyncIterator[None]:
    """As `waiting_for_siblings`, without blocking the event loop."""
    with _one_of(attempt, is_awaited=True) as call:
        try:
            yield
        except compat.SIGNALS:
            call.end()
            await asyncio.sleep(_START_SECONDS)
            while others := call.still_under_way():
                await asyncio.wait([asyncio.wrap_future(other) for other in others])
            raise


@contextmanager
def _one_of(attempt: Attempt | None, *, is_awaited: bool) -> Iterator[_Sibling]:
    """The call in this block: the one that was announced, or one that nothing announced."""
    call = _announced.get()
    if call is None or call.attempt is not attempt:
        call = _Sibling(attempt, is_awaited=is_awaited)
        with call.under_way():
            yield call
        return
    token = _announced.set(None)  # what its tool calls is not announced by it
    try:
        yield call
    finally:
        _announced.reset(token)

"""Calls of one model message that run together in one task of a graph: when one pauses, no other is left behind.

An async ToolNode gathers its calls, and the first that raises would leave the others running for nobody, to be
cancelled with the event loop: they would run, and their outcome would be unknown.
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

_lock = Lock()
_under_way: dict[str | None, set[Future[None]]] = {}
_around: ContextVar[tuple[Future[None], ...]] = ContextVar("guarded_calls_around", default=())

# How long calls that were started together may take until they are under way: their callbacks come first.
_START_SECONDS = 0.01
# A call in a worker thread may hold the very thread that another one needs: it does not wait for ever.
_PATIENCE_SECONDS = 60


@contextmanager
def waiting_for_siblings(position: str | None) -> Iterator[None]:
    """Run one call in this block; a graph's signal leaves it when the other calls at `position` have ended or paused.

    Args:
        position: of the task that the call belongs to; None for a call outside of any.
    """
    with _one_of(position) as mine:
        try:
            yield
        except compat.SIGNALS:
            mine.set_result(None)
            time.sleep(_START_SECONDS)
            wait(_others(position), timeout=_PATIENCE_SECONDS)
            raise


@asynccontextmanager
async def awaiting_siblings(position: str | None) -> AsyncIterator[None]:
    """As `waiting_for_siblings`, without blocking the event loop."""
    with _one_of(position) as mine:
        try:
            yield
        except compat.SIGNALS:
            mine.set_result(None)
            await asyncio.sleep(_START_SECONDS)
            while others := _others(position):
                await asyncio.wait([asyncio.wrap_future(other) for other in others])
            raise


@contextmanager
def _one_of(position: str | None) -> Iterator[Future[None]]:
    mine: Future[None] = Future()
    with _lock:
        _under_way.setdefault(position, set()).add(mine)
    token = _around.set((*_around.get(), mine))
    try:
        yield mine
    finally:
        _around.reset(token)
        with _lock:
            _under_way[position].discard(mine)
            if not _under_way[position]:
                del _under_way[position]
        if not mine.done():
            mine.set_result(None)


def _others(position: str | None) -> list[Future[None]]:
    """The calls under way at `position`, but for this one and those that wait for it, since they made it."""
    with _lock:
        calls = tuple(_under_way.get(position, ())) if position is not None else ()
    return [call for call in calls if not call.done() and call not in _around.get()]

"""Waiting for people beside an event loop: never on it, and on no thread that a call could need."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def off_the_loop(function: Callable[..., T], *args: Any) -> T:
    """``function(*args)`` in a thread of its own, in the caller's context.

    A person may take hours, so that no pool would do: those who wait would hold its threads. A wait that is cancelled
    leaves its thread to end by itself; it keeps no process alive.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    outcome: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        said: Any = None
        failure: BaseException | None = None
        try:
            said = context.run(function, *args)
        except BaseException as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_tell, outcome, said, failure)

    threading.Thread(target=work, name="guarded-person", daemon=True).start()
    return await outcome


def _tell(outcome: asyncio.Future[Any], said: Any, failure: BaseException | None) -> None:
    if outcome.done():
        return
    if failure is None:
        outcome.set_result(said)
    elif isinstance(failure, StopIteration):  # which no future takes
        outcome.set_exception(RuntimeError("StopIteration"))
    else:
        outcome.set_exception(failure)


class Turns:
    """One question at a time, for callers with and without an event loop; who waits on a loop holds no thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def ask(self, function: Callable[..., T], *args: Any) -> T:
        """``function(*args)`` when it is its turn."""
        with self._lock:
            return function(*args)

    async def aask(self, function: Callable[..., T], *args: Any) -> T:
        """As `ask`, in a thread of its own once it is its turn on this loop."""
        loop = asyncio.get_running_loop()
        with self._lock_of_loops:
            turn = self._loops.setdefault(loop, asyncio.Lock())
        async with turn:
            return await off_the_loop(self.ask, function, *args)

    _lock_of_loops = threading.Lock()

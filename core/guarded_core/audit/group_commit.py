"""Group commit: threads and tasks hand in items one by one, and whoever comes first commits all that have gathered.

A thread that finds nobody committing leads: it commits what is queued, in its own thread, and hands the lead to the
first who queued meanwhile. Whoever waits on an event loop never leads; a writer thread does it for them. Nobody's call
returns before the commit that holds their item has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Commit: TypeAlias = "Callable[[list[Entry[T]]], None]"


class Entry(Generic[T]):
    """One item on its way, and what became of it.

    Attributes:
        item: what was handed in.
        result: what the commit gives back for it.
        error: set by the commit where this item failed; raised to whoever handed it in.
    """

    __slots__ = ("error", "future", "item", "leads", "parked", "result")

    def __init__(self, item: T) -> None:
        self.item = item
        self.result: Any = None
        self.error: Exception | None = None
        self.parked: threading.Lock | None = None  # held for as long as a thread waits on it
        self.future: asyncio.Future[None] | None = None
        self.leads = False  # the lead was handed to the thread that waits

    def outcome(self) -> Any:
        """The result. Raises the error."""
        error, self.error = self.error, None
        try:
            if error is not None:
                raise error
            return self.result
        finally:
            del error  # its traceback holds this frame: a circle would keep the item alive


class GroupCommit(Generic[T]):
    """Gathers items and commits them in order, one commit at a time.

    Args:
        commit: takes the entries of one commit, sets their results and errors, and raises nothing else.
    """

    def __init__(self, commit: Commit[T]) -> None:
        self._commit = commit
        self._lock = threading.Lock()
        self._queue: list[Entry[T]] = []
        self._led = False  # somebody leads, or is about to
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="guarded-audit")  # starts when needed

    def submit(self, item: T) -> Any:
        """Commit `item`, together with what others hand in, and return its result. Raises its error."""
        entry = Entry(item)
        try:
            parked = self._enqueue(entry)
            if parked is not None:
                parked.acquire()
            if entry.leads:
                self._lead(entry)
        except BaseException:
            # Interrupted (Ctrl-C): the lead must not stay, nor come, where nobody is any more.
            with self._lock:
                entry.parked = None
                stranded = entry.leads
            if stranded:
                self._lead_elsewhere()
            raise
        return entry.outcome()

    async def asubmit(self, item: T) -> Any:
        """As `submit`, without blocking the event loop. If cancelled, the item is committed all the same."""
        entry = Entry(item)
        entry.future = asyncio.get_running_loop().create_future()
        self._enqueue(entry)
        if entry.leads:
            self._lead_elsewhere()
        await entry.future
        return entry.outcome()

    def stop(self) -> None:
        """Let the writer thread end, once it has done what is queued."""
        self._writer.shutdown(wait=False)

    def _enqueue(self, entry: Entry[T]) -> threading.Lock | None:
        """Queue the entry; where it does not lead and a thread brings it, the lock to wait on."""
        with self._lock:
            entry.leads = not self._led
            self._led = True
            if not entry.leads and entry.future is None:
                entry.parked = threading.Lock()
                entry.parked.acquire()
            self._queue.append(entry)
            return entry.parked

    def _lead(self, leader: Entry[T] | None = None) -> None:
        """Commit what is queued, hand the lead on, and wake whose items these were."""
        batch: list[Entry[T]] = []
        try:
            with self._lock:
                batch, self._queue = self._queue, []
            self._commit(batch)
        except BaseException as error:
            for entry in batch:
                entry.error = entry.error or RuntimeError(f"the commit was interrupted by {type(error).__name__}")
            raise
        finally:
            self._hand_over(leader)
            _wake(batch)

    def _hand_over(self, leader: Entry[T] | None) -> None:
        with self._lock:
            if leader is not None:
                leader.leads = False
            self._led = bool(self._queue)
            if not self._led:
                return
            successor = self._queue[0]
            if successor.parked is not None:
                successor.leads = True
                successor.parked.release()
                successor.parked = None
                return
        self._lead_elsewhere()

    def _lead_elsewhere(self) -> None:
        try:
            self._writer.submit(self._lead)
        except RuntimeError:
            # The interpreter is shutting down and starts no thread: better to wait here than to lose records.
            self._lead()


def _wake(batch: list[Entry[Any]]) -> None:
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for entry in batch:
        parked = entry.parked
        if parked is not None:
            parked.release()
        elif entry.future is not None:
            loops.setdefault(entry.future.get_loop(), []).append(entry.future)
    for loop, futures in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            continue  # that loop is closed: nobody is left to tell


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():  # cancelled
            future.set_result(None)

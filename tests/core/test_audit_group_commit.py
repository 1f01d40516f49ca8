"""Group commit: who shares a commit, who waits for it, and what becomes of them when it fails."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.group_commit import Entry, GroupCommit
from guarded_core.audit.verify import read, verify
from guarded_core.ground.errors import ToolAuditTrailError


class Gate:
    """A commit that waits, the first time, until it is let through; it keeps what it committed, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.threads: list[str] = []
        self.failure: BaseException | None = None

    def commit(self, entries: list[Entry[int]]) -> None:
        first = not self.batches
        self.batches.append([entry.item for entry in entries])
        self.threads.append(threading.current_thread().name)
        if first:
            self.entered.set()
            assert self.opened.wait(10)
            if self.failure is not None:
                raise self.failure
        for entry in entries:
            entry.result = entry.item * 10
            if entry.item < 0:
                entry.error = OSError(f"item {entry.item}")


def queued(group: GroupCommit[int], count: int) -> None:
    """Wait until so many items stand in the queue."""
    while len(group._queue) < count:
        os.sched_yield()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads to wait in."""
    with ThreadPoolExecutor(32) as pool:
        yield pool


def held(pool: ThreadPoolExecutor, gate: Gate) -> tuple[GroupCommit[int], Future[Any]]:
    """A group whose first item, 0, is being committed by a thread, for as long as the gate is shut."""
    group = GroupCommit(gate.commit)
    first = pool.submit(group.submit, 0)
    assert gate.entered.wait(10)
    return group, first


def test_alone_commits_in_its_own_thread() -> None:
    """Who comes alone commits at once, without another thread."""
    gate = Gate()
    gate.opened.set()
    group = GroupCommit(gate.commit)
    assert [group.submit(1), group.submit(2)] == [10, 20]
    assert gate.batches == [[1], [2]]
    assert set(gate.threads) == {threading.current_thread().name}


def test_threads_that_come_meanwhile_share_the_next_commit(pool: ThreadPoolExecutor) -> None:
    """All that queue behind a commit are one commit, led by one of them; each gets its own result or error."""
    gate = Gate()
    group, first = held(pool, gate)
    others = []
    for number, item in enumerate((1, -2, 3), 1):
        others.append(pool.submit(group.submit, item))
        queued(group, number)
    assert not any(future.done() for future in (first, *others))
    gate.opened.set()
    assert [first.result(10), others[0].result(10), others[2].result(10)] == [0, 10, 30]
    with pytest.raises(OSError, match="item -2"):
        others[1].result(10)
    assert gate.batches == [[0], [1, -2, 3]]
    assert all(name.startswith("ThreadPoolExecutor") for name in gate.threads)


async def test_tasks_share_a_commit_and_never_block_the_loop() -> None:
    """While a commit waits for its disk the loop goes on, and what its tasks hand in meanwhile is one commit."""
    gate = Gate()
    group = GroupCommit(gate.commit)
    first = asyncio.create_task(group.asubmit(0))
    await asyncio.to_thread(gate.entered.wait, 10)
    others = [asyncio.create_task(group.asubmit(item)) for item in range(1, 6)]
    for _ in range(3):
        await asyncio.sleep(0)
    assert not first.done()
    gate.opened.set()
    assert await asyncio.gather(first, *others) == [0, 10, 20, 30, 40, 50]
    assert gate.batches == [[0], [1, 2, 3, 4, 5]]
    assert {name.rpartition("_")[0] for name in gate.threads} == {"guarded-audit"}
    group.stop()


@pytest.mark.parametrize(
    ("kinds", "leader"),
    [(("task", "thread", "loop"), "guarded-audit"), (("thread", "loop", "task"), "ThreadPoolExecutor")],
)
async def test_threads_and_tasks_share_a_commit(pool: ThreadPoolExecutor, kinds: tuple[str, ...], leader: str) -> None:
    """Threads and tasks, of several loops, stand in one queue; what stands first decides who leads."""
    gate = Gate()
    group, first = held(pool, gate)
    waiting: list[asyncio.Future[Any]] = [asyncio.wrap_future(first)]
    for number, kind in enumerate(kinds * 2, 1):
        if kind == "task":
            waiting.append(asyncio.create_task(group.asubmit(number)))
            await asyncio.sleep(0)
        elif kind == "thread":
            waiting.append(asyncio.wrap_future(pool.submit(group.submit, number)))
        else:
            waiting.append(asyncio.wrap_future(pool.submit(asyncio.run, group.asubmit(number))))
        queued(group, number)
    gate.opened.set()
    assert await asyncio.gather(*waiting) == [0, 10, 20, 30, 40, 50, 60]
    assert gate.batches == [[0], [1, 2, 3, 4, 5, 6]]
    assert gate.threads[1].startswith(leader)
    group.stop()


async def test_cancelled_item_is_committed_all_the_same(pool: ThreadPoolExecutor) -> None:
    """Cancelling the wait takes nothing out of the queue, and harms nobody else in it."""
    gate = Gate()
    group, _ = held(pool, gate)
    one, two = (asyncio.create_task(group.asubmit(item)) for item in (1, 2))
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    gate.opened.set()
    assert await two == 20
    assert gate.batches == [[0], [1, 2]]
    group.stop()


def test_loop_that_is_gone_harms_nobody(pool: ThreadPoolExecutor) -> None:
    """A loop that was closed while its item waited is not woken; the others are."""

    async def give_up() -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(group.asubmit(1), 0.01)

    gate = Gate()
    group, first = held(pool, gate)
    asyncio.run(give_up())
    other = pool.submit(group.submit, 2)
    queued(group, 2)
    gate.opened.set()
    assert [first.result(10), other.result(10)] == [0, 20]
    assert gate.batches == [[0], [1, 2]]


def test_interrupted_leader_hands_the_lead_on(pool: ThreadPoolExecutor) -> None:
    """Ctrl-C in the middle of a commit fails that commit's items, and the next one goes ahead."""
    gate = Gate()
    gate.failure = KeyboardInterrupt()
    group, first = held(pool, gate)
    other = pool.submit(group.submit, 1)
    queued(group, 1)
    gate.opened.set()
    with pytest.raises(KeyboardInterrupt):
        first.result(10)
    assert other.result(10) == 10
    assert group.submit(2) == 20


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, also where a shell started these tests in the background and had them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupted_waiter_is_not_made_the_leader(pool: ThreadPoolExecutor) -> None:
    """Ctrl-C ends a thread's wait, and takes nothing out of the queue: somebody else leads what stands there."""

    def interrupt() -> None:
        queued(group, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    gate = Gate()
    group, first = held(pool, gate)
    pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        group.submit(1)
    other = pool.submit(group.submit, 2)
    queued(group, 2)
    gate.opened.set()
    assert [first.result(10), other.result(10)] == [0, 20]
    assert gate.batches == [[0], [1, 2]]
    group.stop()


async def test_threads_that_fill_the_pool_do_not_stop_a_task(pool: ThreadPoolExecutor) -> None:
    """Though every thread of the loop's own pool waits for the trail, a task's item has a thread to commit it."""
    gate = Gate()
    group = GroupCommit(gate.commit)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
    first = asyncio.create_task(group.asubmit(0))
    await asyncio.sleep(0)
    threads = [asyncio.create_task(asyncio.to_thread(group.submit, item)) for item in (1, 2, 3, 4)]
    await asyncio.sleep(0)
    gate.opened.set()
    assert await asyncio.gather(first, *threads) == [0, 10, 20, 30, 40]
    group.stop()


def test_stopped_group_still_commits() -> None:
    """When no thread can be started any more, as at the end of the program, a task's item is committed in place."""
    gate = Gate()
    gate.opened.set()
    group = GroupCommit(gate.commit)
    group.stop()
    assert asyncio.run(group.asubmit(1)) == 10


# In the trail


def event(number: int) -> AuditEvent:
    """A small event."""
    return AuditEvent(outcome=Outcome.DENIED, time_ns=number, call_id=f"call-{number}", tool="search")


class Disk:
    """Stands in for fdatasync: counts, and can hold or fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.error: OSError | None = None
        self._sync = os.fdatasync

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        self.entered.set()
        assert self.opened.wait(10)
        if self.error is not None:
            raise self.error
        self._sync(fd)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that does not answer until it is opened."""
    disk = Disk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


def test_nobody_returns_before_the_sync(tmp_path: Path, disk: Disk, pool: ThreadPoolExecutor) -> None:
    """Threads and tasks wait for the sync of the batch that holds their record: two syncs for eleven records."""
    with DurableToolAuditTrail.open(tmp_path / "audit.log") as trail:
        first = pool.submit(trail.append, event(0))
        assert disk.entered.wait(10)
        waiting = [pool.submit(trail.append, event(number)) for number in range(1, 6)]
        waiting += [pool.submit(asyncio.run, trail.aappend(event(number))) for number in range(6, 11)]
        queued(trail._group, 10)  # type: ignore[arg-type]
        assert not any(future.done() for future in (first, *waiting))
        disk.opened.set()
        for future in (first, *waiting):
            future.result(10)
        assert disk.syncs == 2
    assert sorted(e.time_ns for _, e in read(tmp_path / "audit.log")) == list(range(11))


def test_failed_sync_fails_everybody_in_it(tmp_path: Path, disk: Disk, pool: ThreadPoolExecutor) -> None:
    """All whose records were in the failed sync hear of it, each with an error of its own, and those behind too."""
    disk.error = OSError(5, "Input/output error")
    trail = DurableToolAuditTrail.open(tmp_path / "audit.log")
    first = pool.submit(trail.append, event(0))
    assert disk.entered.wait(10)
    waiting = [pool.submit(trail.append, event(number)) for number in range(1, 4)]
    queued(trail._group, 3)  # type: ignore[arg-type]
    disk.opened.set()
    errors = [future.exception(10) for future in (first, *waiting)]
    assert [error.code for error in errors if isinstance(error, ToolAuditTrailError)] == [
        "sync_failed", "unhealthy", "unhealthy", "unhealthy",
    ]  # fmt: skip
    assert len(set(map(id, errors))) == 4
    trail.close()


def test_failed_write_fails_the_batch_and_no_other(
    tmp_path: Path, disk: Disk, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch whose write fails is gone as a whole; the chain goes on from the batch before."""

    def no_space(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    trail = DurableToolAuditTrail.open(tmp_path / "audit.log")
    first = pool.submit(trail.append, event(0))
    assert disk.entered.wait(10)
    waiting = [pool.submit(trail.append, event(number)) for number in range(1, 4)]
    queued(trail._group, 3)  # type: ignore[arg-type]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        disk.opened.set()
        errors = [future.exception(10) for future in waiting]
    assert first.result(10) is None
    assert {error.code for error in errors if isinstance(error, ToolAuditTrailError)} == {"write_failed"}
    trail.append(event(4))
    trail.close()
    assert [e.time_ns for _, e in read(tmp_path / "audit.log")] == [0, 4]


@pytest.mark.parametrize("rotating", [False, True])
def test_many_threads_and_tasks_make_one_chain(tmp_path: Path, rotating: bool) -> None:
    """Eight threads and two loops of tasks append at once: each record is there once, in each one's order."""
    ceilings: dict[str, Any] = {"max_records": 50, "auto_rotate": True} if rotating else {}

    def in_thread(trail: DurableToolAuditTrail, who: int) -> None:
        for number in range(40):
            trail.append(event(who * 1000 + number))

    async def in_tasks(trail: DurableToolAuditTrail, who: int) -> None:
        async def one(task: int) -> None:
            for number in range(10):
                await trail.aappend(event((who + task) * 1000 + number))

        await asyncio.gather(*(one(task) for task in range(16)))

    path = tmp_path / "audit.log"
    with DurableToolAuditTrail.open(path, **ceilings) as trail, ThreadPoolExecutor(10) as threads:
        futures = [threads.submit(in_thread, trail, who) for who in range(8)]
        futures += [threads.submit(asyncio.run, in_tasks(trail, who)) for who in (8, 24)]
        for future in futures:
            future.result()
    found = [e.time_ns for _, e in read(path)]
    assert sorted(found) == sorted(w * 1000 + n for w in range(40) for n in range(40 if w < 8 else 10))
    for _, own in itertools.groupby(sorted(found, key=lambda n: n // 1000), key=lambda n: n // 1000):
        numbers = list(own)
        assert numbers == sorted(numbers)
    assert verify(path).segments >= (12 if rotating else 1)


async def test_cancelled_append_is_on_record(tmp_path: Path, disk: Disk) -> None:
    """A task that is cancelled while its record waits for the disk leaves the record in the trail, whole."""
    trail = DurableToolAuditTrail.open(tmp_path / "audit.log")
    tasks = [asyncio.create_task(trail.aappend(event(number))) for number in range(3)]
    await asyncio.to_thread(disk.entered.wait, 10)
    tasks[1].cancel()
    await asyncio.sleep(0)
    disk.opened.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    await asyncio.to_thread(trail.close)
    assert [e.time_ns for _, e in read(tmp_path / "audit.log")] == [0, 1, 2]

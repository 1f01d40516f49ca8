"""Waiting for people: however many questions wait, no thread that a call needs is held, and no event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from guarded_core import Answer, CallbackApprover, Guard, QueueApprover, ToolExecutionPolicy
from guarded_core.approvals.turns import Turns, off_the_loop


def make_guard(approver: Any, store: Any = None) -> Guard:
    """A guard with `pay`, which asks, and `look`, which does not; both are sync."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial", "look": "read_only"}), approver=approver, store=store)

    @guard.tool
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    @guard.tool
    def look(order: int) -> str:
        """Look."""
        return "seen"

    return guard


async def many(guard: Guard, questions: int) -> list[asyncio.Task[Any]]:
    """So many calls of `pay` that wait for people, ten a session."""

    async def pay(principal: str, cents: int) -> Any:
        with guard.session(principal, tools=["pay"]):
            return await guard.acall("pay", {"cents": cents})

    tasks = [asyncio.ensure_future(pay(f"user-{number // 10}", number)) for number in range(questions)]
    while len(guard.approvals.pending()) < questions:
        await asyncio.sleep(0.05)
    return tasks


async def look_around(guard: Guard, times: int = 40) -> float:
    """How long it takes to look so often, in s."""
    began = time.perf_counter()
    with guard.session("reader", tools=["look"]):
        for number in range(times):
            assert await guard.acall("look", {"order": number}) == "seen"
    return time.perf_counter() - began


class Answers:
    """A person who answers nothing before `says` is set."""

    def __init__(self) -> None:
        self.says = threading.Event()

    def __call__(self, request: Any) -> Answer:
        assert self.says.wait(60)
        return Answer(by="kim", approve=True)

    def ask(self, request: Any) -> Answer:
        return self(request)


@pytest.mark.parametrize("kind", ["callback", "an approver of one's own", "queue"])
async def test_a_thousand_questions_and_reads_at_full_speed(kind: str) -> None:
    """While 1,000 questions wait, calls that need nobody are not slower, and each question is answered in the end."""
    person = Answers()
    approver = {"callback": CallbackApprover(person), "queue": QueueApprover(poll_seconds=0.1)}.get(kind, person)
    guard = make_guard(approver)
    alone = await look_around(guard)
    tasks = await many(guard, 1000)
    beside = await look_around(guard)
    assert beside < 10 * alone + 1
    if kind == "queue":
        for request in guard.approvals.pending():
            guard.approvals.decide(request.id, by="kim", approve=True)
    person.says.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == ["paid"] * 1000


async def test_a_sync_callback_never_stops_the_loop() -> None:
    """A function, a partial and an object are called off the loop, in the context of the call."""

    def think(request: Any) -> Answer:
        time.sleep(0.3)
        return Answer(by=threading.current_thread().name, approve=True)

    class Thinks:
        def __call__(self, request: Any) -> Answer:
            return think(request)

    for callback in (think, functools.partial(think), Thinks()):
        guard, beats = make_guard(CallbackApprover(callback)), 0
        with guard.session("user-17", tools=["pay"]):
            call = asyncio.ensure_future(guard.acall("pay", {"cents": 1}))
            while not call.done():
                await asyncio.sleep(0.01)
                beats += 1
        assert await call == "paid"
        assert beats > 10


async def test_an_async_object_is_awaited() -> None:
    """A callback may be an object with an async call, or a partial of an async function."""

    async def says(request: Any) -> Answer:
        assert threading.current_thread() is threading.main_thread()
        return Answer(by="kim", approve=True)

    class Says:
        async def __call__(self, request: Any) -> Answer:
            return await says(request)

    for callback in (says, functools.partial(says), Says()):
        guard = make_guard(CallbackApprover(callback))
        with guard.session("user-17", tools=["pay"]):
            assert await guard.acall("pay", {"cents": 1}) == "paid"


async def test_a_cancelled_wait_ends_at_once() -> None:
    """Who stops waiting for a person stops; what the person says then does nothing."""
    person = Answers()
    guard = make_guard(CallbackApprover(person))
    with guard.session("user-17", tools=["pay"]), pytest.raises(TimeoutError):
        await asyncio.wait_for(guard.acall("pay", {"cents": 1}), 0.1)
    person.says.set()
    await asyncio.sleep(0.05)
    assert [event.outcome.value for event in guard.audit.events] == ["asked"]


async def test_off_the_loop() -> None:
    """The result or the exception of a function, whatever it is."""

    def stops() -> None:
        raise StopIteration

    assert await off_the_loop(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await off_the_loop(divmod, 7, 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await off_the_loop(stops)


def test_turns_of_loops_and_threads() -> None:
    """One question at a time, from several loops and threads; who waits on a loop holds no thread."""
    turns, inside, most, threads = Turns(), 0, 0, 0

    def ask() -> None:
        nonlocal inside, most, threads
        inside += 1
        most, threads = max(most, inside), max(threads, threading.active_count())
        time.sleep(0.002)
        inside -= 1

    async def loop() -> None:
        await asyncio.gather(*(turns.aask(ask) for _ in range(50)))

    running = [threading.Thread(target=lambda: asyncio.run(loop())) for _ in range(2)]
    running += [threading.Thread(target=lambda: [turns.ask(ask) for _ in range(10)])]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(30)
    assert most == 1
    assert threads < 12


def test_one_thread_looks_for_all_that_wait(tmp_path: Path) -> None:
    """However many wait in a database's queue, sync and async, it is asked once each time."""
    looks = []

    class Counted(QueueApprover):
        def _pending(self) -> frozenset[str]:
            looks.append(threading.current_thread().name)
            return super()._pending()

    guard = make_guard(Counted(poll_seconds=0.1), store=f"sqlite:///{tmp_path / 'guard.db'}")

    def pay() -> None:
        with guard.session("sync", tools=["pay"]):
            assert guard.call("pay", {"cents": 1}) == "paid"

    async def main() -> list[Any]:
        waiting = threading.Thread(target=pay)
        waiting.start()
        tasks = await many(guard, 60)
        while len(guard.approvals.pending()) < 61:
            await asyncio.sleep(0.05)
        looks.clear()
        await asyncio.sleep(0.5)
        assert 1 <= len(looks) <= 6
        for request in guard.approvals.pending():
            guard.approvals.decide(request.id, by="kim", approve=True)
        said = await asyncio.gather(*tasks)
        await asyncio.to_thread(waiting.join, 30)
        return said

    assert asyncio.run(main()) == ["paid"] * 60
    guard.close()

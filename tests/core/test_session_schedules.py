"""Random schedules of generators, coroutines, tasks and threads: no call runs as another person, or after its block.

The oracle is lexical: each call carries the name of the block that it is written in. It may run as that person while
the block is open, or be denied; where the table of docs/sessions.md says that it runs, it has to.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import random
import threading
import types
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from guarded_core import (
    Guard,
    GuardConfigurationError,
    InMemoryToolAuditTrail,
    NoSession,
    ToolExecutionContext,
    ToolExecutionPolicy,
)
from guarded_core.audit.event import AuditEvent

SCHEDULES = 1_000 if os.environ.get("GUARDED_FULL") else 60
STEPS = 40


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


_seen: contextvars.ContextVar[list[str]] = contextvars.ContextVar("seen")


class Trail(InMemoryToolAuditTrail):
    """Says as whom the very call that is being made runs, however many are made at once."""

    def append(self, event: AuditEvent) -> None:
        super().append(event)
        if event.outcome == "authorized":
            _seen.get().append(event.principal)


@dataclass
class Actor:
    """Something that is stepped, and holds a block of its own meanwhile.

    Attributes:
        name: the principal.
        step: goes on to the next pause.
        close: ends it early.
        is_async: both are to be awaited.
        is_plain: stepped so far only by the scheduler's own task, and beside no other open block.
    """

    name: str
    step: Callable[[], Any]
    close: Callable[[], Any]
    is_async: bool = False
    is_plain: bool = True
    is_over: bool = False
    is_started: bool = False
    sessions: list[ToolExecutionContext] = field(default_factory=list)


class World:
    """A guard, the actors in front of it, and what every call came to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.guard = Guard(ToolExecutionPolicy({"look": "read_only"}), audit=Trail(64))
        self.guard.tool(self.look)
        self.actors: list[Actor] = []
        self.workers: list[asyncio.Task[None]] = []
        self.wrong: list[str] = []
        self.ran = self.denied = 0

    def look(self) -> str:
        """Look."""
        return ""

    def call(self, written_in: str | None, session: ToolExecutionContext | None = None, *, must: bool = False) -> bool:
        """Whether a call ran in the block of that person, whose session it is; None outside any."""
        token = _seen.set([])
        try:
            self.guard.call("look", {})
        except NoSession as error:
            self.denied += 1
            if must:
                self.wrong.append(f"denied in the block of {written_in}: {error.hint}")
            return False
        finally:
            seen = _seen.get()
            _seen.reset(token)
        self.ran += 1
        if seen != [written_in]:
            self.wrong.append(f"written in the block of {written_in}, ran as {seen}")
        elif session is not None and not session.is_open:
            self.wrong.append(f"ran after the block of {written_in}")
        return True

    def session(self, actor: Actor) -> ToolExecutionContext:
        """A session of the actor's own."""
        nested = self.random.random() < 0.4
        actor.sessions.append(self.guard.session(actor.name, tools=["look"], max_calls=10_000, nested=nested))
        return actor.sessions[-1]

    def calls(self, actor: Actor, name: str, session: ToolExecutionContext) -> bool:
        """Whether calls in a block ran, in this step; where they did, its children make some too.

        What a step starts that is denied itself, since it is made in somebody else's context, has that context too, and
        cannot be told from a child of that other block: SECURITY.md says so.
        """
        ran = all([self.call(name, session, must=actor.is_plain) for _ in range(self.random.randint(1, 2))])
        if ran and self.random.random() < 0.3:
            context = contextvars.copy_context()
            self._in_thread(lambda: context.run(self.call, name, session, must=actor.is_plain))
        if self.random.random() < 0.2:
            self._in_thread(lambda: self.call(None))
        return ran

    def _in_thread(self, function: Callable[[], object]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    # The kinds of actors. Each pauses inside and outside of its blocks.

    def sync_generator(self, actor: Actor) -> Iterator[None]:
        with self.session(actor) as session:
            for _ in range(3):
                self.calls(actor, actor.name, session)
                yield
                self.calls(actor, actor.name, session)
        yield

    def delegating(self, actor: Actor) -> Iterator[None]:
        with self.session(actor) as session:
            self.calls(actor, actor.name, session)
            yield
            with session.delegate(f"{actor.name}'s helper", tools=["look"], max_calls=100) as helper:
                self.calls(actor, helper.principal, helper)
                yield
                self.calls(actor, helper.principal, helper)
            self.calls(actor, actor.name, session)
            yield

    def from_generator(self, actor: Actor) -> Iterator[None]:
        yield
        yield from self.sync_generator(actor)

    def managed(self, actor: Actor) -> Iterator[None]:
        @contextlib.contextmanager
        def opened() -> Iterator[ToolExecutionContext]:
            with self.session(actor) as session:
                yield session

        with opened() as session:
            for _ in range(3):
                self.calls(actor, actor.name, session)
                yield
        yield

    def stacked(self, actor: Actor) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            session = self._pushed(stack, actor)
            for _ in range(3):
                self.calls(actor, actor.name, session)
                yield

    def _pushed(self, stack: contextlib.ExitStack, actor: Actor) -> ToolExecutionContext:
        return stack.enter_context(self.session(actor))

    async def by_hand(self, actor: Actor) -> None:
        async with self.session(actor) as session:
            for _ in range(3):
                self.calls(actor, actor.name, session)
                await _pause()
                self.calls(actor, actor.name, session)
        await _pause()

    async def async_generator(self, actor: Actor) -> AsyncIterator[None]:
        async with self.session(actor) as session:
            for _ in range(3):
                self.calls(actor, actor.name, session)
                await asyncio.sleep(0)
                self.calls(actor, actor.name, session)
                yield
                if self.calls(actor, actor.name, session):
                    child = asyncio.create_task(self._child(actor, session))
                    await asyncio.sleep(0)
                    if self.random.random() < 0.5:
                        await child
        yield

    async def _child(self, actor: Actor, session: ToolExecutionContext) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.call(actor.name, session, must=actor.is_plain and session.is_open)
            await asyncio.sleep(0)

    async def worker(self, name: str) -> None:
        """A task with a block of its own, and with children that outlive it."""
        actor = Actor(name, lambda: None, lambda: None)
        async with self.session(actor) as session:
            for _ in range(3):
                self.calls(actor, name, session)
                await asyncio.sleep(0)
                await asyncio.to_thread(self.call, name, session, must=True)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._child(actor, session))
            late = asyncio.create_task(self._child(actor, session))
        await late

    # The scheduler.

    def start(self) -> None:
        """One more actor."""
        kind = self.random.choice(
            [self.sync_generator, self.delegating, self.from_generator, self.managed, self.stacked, self.by_hand]
            + [self.async_generator] * 3
        )
        actor = Actor(f"{kind.__name__} {len(self.actors)}", lambda: None, lambda: None)
        made: Any = kind(actor)
        if kind == self.async_generator:
            actor.step, actor.close, actor.is_async = made.__anext__, made.aclose, True
        elif kind == self.by_hand:
            actor.step, actor.close = (lambda: made.send(None)), made.close
        else:
            actor.step, actor.close = (lambda: next(made)), made.close
        self.actors.append(actor)

    async def turn(self) -> None:
        """Step, close or start somebody, in some way; or call from the outside."""
        living = [actor for actor in self.actors if not actor.is_over]
        what = self.random.random()
        if what < 0.1 or not living:
            self.start()
        elif what < 0.2:
            self.call(None)
        elif what < 0.3:
            self.workers.append(asyncio.create_task(self.worker(f"worker {len(self.workers)}")))
        elif what < 0.4:
            await asyncio.sleep(0)
        else:
            actor = self.random.choice(living)
            await self.advance(actor, actor.close if what < 0.5 else actor.step)

    async def advance(self, actor: Actor, what: Callable[[], Any]) -> None:
        """Step or close the actor in one of the ways there are."""
        others = any(session._blocks for other in self.actors if other is not actor for session in other.sessions)
        way = self.random.choice(["here", "here", "task", "wait_for", "copied", "thread", "thread with context"])
        actor.is_plain = actor.is_plain and way == "here" and not others
        if not actor.is_plain:
            for other in self.actors:
                other.is_plain = other.is_plain and not any(session._blocks for session in other.sessions)
        if what == actor.close:
            actor.is_over = True
        try:
            await self._go(actor, what, way)
        except (StopIteration, StopAsyncIteration, GuardConfigurationError):
            actor.is_over = True
        except RuntimeError as error:
            # `with` turns a StopIteration of a coroutine or executor into this one.
            if "StopIteration" not in str(error) and "StopAsyncIteration" not in str(error):
                raise
            actor.is_over = True

    async def _go(self, actor: Actor, what: Callable[[], Any], way: str) -> None:
        if actor.is_async:
            if way == "here":
                await what()
            elif way == "wait_for":
                await asyncio.wait_for(what(), 5)
            else:

                async def stepped() -> None:
                    await what()

                await asyncio.create_task(stepped())
            return
        if way in ("here", "wait_for"):
            what()
        elif way == "copied":
            contextvars.copy_context().run(what)
        elif way == "task":

            async def step() -> None:
                what()

            await asyncio.create_task(step())
        else:
            caught: list[BaseException] = []

            def run() -> None:
                try:
                    what()
                except BaseException as error:
                    caught.append(error)

            context = contextvars.copy_context() if way == "thread with context" else contextvars.Context()
            self._in_thread(lambda: context.run(run))
            if caught:
                raise caught[0]

    async def main(self) -> None:
        """A whole schedule; and at the end nothing is open."""
        for _ in range(STEPS):
            await self.turn()
        for actor in self.actors:
            if not actor.is_over:
                await self.advance(actor, actor.close)
        await asyncio.gather(*self.workers)
        self.call(None)
        still = [actor.name for actor in self.actors for session in actor.sessions if session._blocks]
        self.wrong += [f"the session of {name} is open after its block" for name in still]


@pytest.mark.parametrize("chunk", range(10))
def test_no_call_runs_as_another_person_or_after_its_block(chunk: int) -> None:
    """Whoever steps whom, from any task or thread: a call runs as the person whose block it is in, or not at all."""
    ran = denied = 0
    for seed in range(chunk, SCHEDULES, 10):
        world = World(seed)
        asyncio.run(world.main())
        assert world.wrong == [], f"seed {seed}"
        ran, denied = ran + world.ran, denied + world.denied
    assert ran > SCHEDULES  # the schedules make calls that run
    assert denied > SCHEDULES // 10  # and calls that do not

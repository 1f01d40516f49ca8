"""Where a session counts: the table of docs/sessions.md, row by row."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from guarded_core import Guard, GuardConfigurationError, NoSession, ToolExecutionContext, ToolExecutionPolicy
from guarded_core.ground import blocks


@pytest.fixture
def guard() -> Guard:
    """A guard with one tool that anybody may be given."""
    guard = Guard(ToolExecutionPolicy({"look": "read_only"}))

    @guard.tool
    def look() -> str:
        """Look."""
        return "seen"

    return guard


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """After each test no block of a generator is open, so that no call has a stack to walk."""
    yield
    gc.collect()
    assert blocks._generators == {}


def who(guard: Guard, context: ToolExecutionContext | None = None) -> str:
    """As whom a call runs, or the code it is denied with."""
    try:
        guard.call("look", {}, context=context)
    except NoSession as error:
        return error.code
    return str(guard.audit.events[-1].principal)  # type: ignore[union-attr]


async def awho(guard: Guard) -> str:
    """As `who`, awaiting."""
    try:
        await guard.acall("look", {})
    except NoSession as error:
        return error.code
    return str(guard.audit.events[-1].principal)  # type: ignore[union-attr]


def user(guard: Guard, name: str, **settings: Any) -> ToolExecutionContext:
    """A session of that user."""
    return guard.session(name, tools=["look"], **settings)


def steps(guard: Guard, name: str, **settings: Any) -> Iterator[str]:
    """A generator that calls in its own block between its yields."""
    with user(guard, name, **settings):
        while True:
            yield who(guard)


async def asteps(guard: Guard, name: str) -> AsyncIterator[str]:
    """An async generator that does so."""
    async with user(guard, name):
        while True:
            yield await awho(guard)


def opener(guard: Guard, name: str) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """A contextmanager around a session."""

    @contextlib.contextmanager
    def opened() -> Iterator[None]:
        with user(guard, name):
            yield

    return opened


class TestGenerators:
    """A session that a generator entered belongs to the generator's frame."""

    def test_a_generator_alone_runs(self, guard: Guard) -> None:
        """Each of its steps runs as its own user."""
        stepped = steps(guard, "clerk")
        assert [next(stepped) for _ in range(3)] == ["clerk"] * 3
        stepped.close()  # type: ignore[attr-defined]

    def test_a_second_user_cannot_open_beside_it(self, guard: Guard) -> None:
        """While one user's generator waits, the same thread opens no session for another; what to do is said."""
        clerk, admin = steps(guard, "clerk"), steps(guard, "admin")
        assert next(clerk) == "clerk"
        with pytest.raises(GuardConfigurationError, match=r"waits at a yield.*context="):
            next(admin)
        assert next(clerk) == "clerk"
        clerk.close()  # type: ignore[attr-defined]
        assert next(steps(guard, "admin")) == "admin"

    def test_interleaved_generators_of_nested_sessions(self, guard: Guard) -> None:
        """Where two are opened all the same, each is denied while the other's session is current."""
        clerk, admin = steps(guard, "clerk"), steps(guard, "admin", nested=True)
        assert (next(clerk), next(admin)) == ("clerk", "admin")
        assert (next(clerk), next(admin), who(guard)) == ("no_session", "admin", "no_session")
        admin.close()  # type: ignore[attr-defined]
        assert next(clerk) == "clerk"
        clerk.close()  # type: ignore[attr-defined]

    def test_interleaved_generators_of_one_user(self, guard: Guard) -> None:
        """Two sessions of one person are two: neither generator's calls are made in the other's."""
        first, second = user(guard, "ann"), user(guard, "ann")

        def stepped(session: ToolExecutionContext) -> Iterator[str]:
            with session:
                while True:
                    yield who(guard) if session.remaining_calls else ""

        one, two = stepped(first), stepped(second)
        assert [next(one), next(two), next(one), next(two)] == ["ann", "ann", "no_session", "ann"]
        assert (first.remaining_calls, second.remaining_calls) == (99, 98)
        one.close()  # type: ignore[attr-defined]
        assert next(two) == "ann"
        two.close()  # type: ignore[attr-defined]

    def test_between_two_yields_nobody_calls(self, guard: Guard) -> None:
        """Code outside the generator is not in its block, also where it is in another one around it."""
        stepped = steps(guard, "clerk")
        next(stepped)
        assert who(guard) == "no_session"
        stepped.close()  # type: ignore[attr-defined]
        with user(guard, "clerk"):
            inner = steps(guard, "clerk")
            next(inner)
            assert who(guard) == "no_session"
            inner.close()  # type: ignore[attr-defined]
            assert who(guard) == "clerk"

    def test_a_block_inside_a_step(self, guard: Guard) -> None:
        """Inside one step a delegated session's block runs as the subagent, and behind it the user again."""

        def stepped() -> Iterator[str]:
            with user(guard, "ann") as session:
                with session.delegate("helper", tools=["look"], max_calls=2):
                    inside = who(guard)
                yield f"{inside}, {who(guard)}"

        assert list(stepped()) == ["helper, ann"]

    def test_a_generator_in_a_generator(self, guard: Guard) -> None:
        """An inner generator's block counts while both run; an outer step beside it is denied."""
        parents = [user(guard, "ann")]

        def inner() -> Iterator[str]:
            with parents[0].delegate("helper", tools=["look"], max_calls=9):
                yield who(guard)
                yield who(guard)

        def outer() -> Iterator[str]:
            with parents[0]:
                for said in inner():
                    yield said
                    yield who(guard)
                yield who(guard)

        assert list(outer()) == ["helper", "no_session", "helper", "no_session", "ann"]

    def test_yield_from(self, guard: Guard) -> None:
        """A generator that is delegated to with `yield from` is on the stack when it runs."""

        def outer() -> Iterator[str]:
            yield from steps(guard, "ann")

        stepped = outer()
        assert [next(stepped), next(stepped)] == ["ann", "ann"]
        stepped.close()  # type: ignore[attr-defined]

    @pytest.mark.parametrize("how", ["with", "stack", "decorated"])
    def test_a_contextmanager_stands_for_its_with(self, guard: Guard, how: str) -> None:
        """A session opened in a contextmanager counts in the block; in a generator, it is that generator's."""
        opened = opener(guard, "ann")

        def stepped() -> Iterator[str]:
            if how == "with":
                with opened():
                    while True:
                        yield who(guard)
            with contextlib.ExitStack() as stack:
                stack.enter_context(opened())
                while True:
                    yield who(guard)

        if how == "decorated":
            call: Callable[[], str] = opened()(lambda: who(guard))  # type: ignore[operator]
            assert (call(), who(guard)) == ("ann", "no_session")
            return
        with opened():
            assert who(guard) == "ann"
        made = stepped()
        assert (next(made), who(guard), next(made)) == ("ann", "no_session", "ann")
        made.close()  # type: ignore[attr-defined]

    def test_a_generator_is_no_contextmanager_for_being_in_contextlib(self, guard: Guard) -> None:
        """Only what contextlib drives up to a `with` block is one: not what its other parts happen to step."""
        stepped = steps(guard, "ann")
        with contextlib.ExitStack() as stack:
            stack.callback(next, stepped)
        assert who(guard) == "no_session"
        stepped.close()  # type: ignore[attr-defined]

    def test_ambient_is_for_other_containers(self, guard: Guard) -> None:
        """A generator that some container steps like a `with` block says so when it opens the session."""
        provided = steps(guard, "ann", ambient=True)
        next(provided)
        assert who(guard) == "ann"
        provided.close()  # type: ignore[attr-defined]
        assert who(guard) == "no_session"

    def test_a_coroutine_that_is_driven_by_hand(self, guard: Guard) -> None:
        """A coroutine that no task runs is suspended like a generator, and its block with it."""

        class Pause:
            def __await__(self) -> Generator[None, None, None]:
                yield

        async def work() -> None:
            async with user(guard, "ann"):
                assert who(guard) == "ann"
                await Pause()
                assert who(guard) == "ann"

        coroutine = work()
        coroutine.send(None)
        assert who(guard) == "no_session"
        with pytest.raises(StopIteration):
            coroutine.send(None)

    def test_handed_over_it_needs_no_block(self, guard: Guard) -> None:
        """Generators that hand their sessions over are stepped in any order: the way for servers."""

        def stepped(name: str) -> Iterator[str]:
            session = user(guard, name)
            while True:
                yield who(guard, session)

        clerk, admin = stepped("clerk"), stepped("admin")
        assert [next(clerk), next(admin), next(clerk)] == ["clerk", "admin", "clerk"]


class TestOpening:
    """One task or thread is in one principal's block at a time."""

    def test_another_principal_is_refused(self, guard: Guard) -> None:
        """A block of another principal inside one says nested=True, or is refused; nothing is left open by that."""
        inner = user(guard, "bob")
        with user(guard, "ann"):
            with pytest.raises(GuardConfigurationError, match="nested=True"), inner:
                pass
            assert who(guard) == "ann"
            with user(guard, "bob", nested=True):
                assert who(guard) == "bob"
            assert who(guard) == "ann"

    def test_async_with_is_refused_too(self, guard: Guard) -> None:
        """So it is with `async with`."""

        async def main() -> str:
            async with user(guard, "ann"):
                with pytest.raises(GuardConfigurationError):
                    async with user(guard, "bob"):
                        pass
                return await awho(guard)

        assert asyncio.run(main()) == "ann"

    def test_the_same_principal_and_delegations_may(self, guard: Guard) -> None:
        """A second session of the same person, or what was delegated from the open one, is no other person."""
        with user(guard, "ann") as outer, user(guard, "ann"):
            assert who(guard) == "ann"
            helper = outer.delegate("helper", tools=["look"], max_calls=3)
        with user(guard, "ann") as outer, outer.delegate("helper", tools=["look"], max_calls=3) as helper:
            with helper.delegate("its helper", tools=["look"], max_calls=1):
                assert who(guard) == "its helper"
            assert who(guard) == "helper"
            with pytest.raises(GuardConfigurationError):  # a sister of the one that is open
                outer.delegate("sister", tools=["look"], max_calls=1).__enter__()

    def test_who_only_inherited_a_session_may_open_another(self, guard: Guard) -> None:
        """A task or a thread started inside a block opens its own user's session."""

        async def serve(name: str) -> str:
            async with user(guard, name):
                await asyncio.sleep(0)
                return await awho(guard)

        async def main() -> list[str]:
            async with user(guard, "ann"):
                return await asyncio.gather(*(serve(name) for name in "bcd"))

        assert asyncio.run(main()) == ["b", "c", "d"]

        def thread() -> None:
            with user(guard, "bob"):
                seen.append(who(guard))

        seen: list[str] = []
        with user(guard, "ann"), ThreadPoolExecutor(1) as pool:
            pool.submit(contextvars.copy_context().run, thread).result()
            seen.append(who(guard))
        assert seen == ["bob", "ann"]

    def test_an_abandoned_generator_gives_way(self, guard: Guard) -> None:
        """A generator that nobody holds any more has left its block."""
        next(steps(guard, "clerk"))
        with user(guard, "admin"):
            assert who(guard) == "admin"


class TestLeaving:
    """Leaving revokes first, never raises, and leaves nothing open anywhere."""

    def test_from_another_context(self, guard: Guard) -> None:
        """A generator that is ended in another context, thread or task ends its session."""
        for end in ("copied", "thread", "task"):
            session = user(guard, "ann")

            def stepped(session: ToolExecutionContext = session) -> Iterator[None]:
                with session:
                    yield

            generator = stepped()
            next(generator)
            if end == "copied":
                contextvars.copy_context().run(generator.close)  # type: ignore[attr-defined]
            elif end == "thread":
                thread = threading.Thread(target=generator.close)  # type: ignore[attr-defined]
                thread.start()
                thread.join()
            else:

                async def close(generator: Any = generator) -> None:
                    await asyncio.create_task(_run(generator.close))

                asyncio.run(close())
            assert not session.is_open
            assert who(guard) == "no_session"
            with user(guard, "bob"):
                assert who(guard) == "bob"

    def test_in_any_order(self, guard: Guard) -> None:
        """Blocks that are left out of order count until each is left, and then no more."""
        outer = user(guard, "ann")
        inner = outer.delegate("helper", tools=["look"], max_calls=5)
        outer.__enter__()
        inner.__enter__()
        outer.__exit__(None, None, None)
        assert who(guard) == "no_session"  # what was delegated from a closed session is closed
        inner.__exit__(None, None, None)
        assert who(guard) == "no_session"
        assert not outer._blocks
        assert not inner._blocks

    def test_more_often_than_it_was_entered(self, guard: Guard) -> None:
        """Leaving what was never entered, or left already, does nothing but close."""
        session = user(guard, "ann")
        for _ in range(2):
            session.__exit__(None, None, None)
        assert not session.is_open

    def test_a_delegated_block_left_elsewhere_widens_nobody(self, guard: Guard) -> None:
        """A child task of a subagent's block does not become the user when that block is left by another."""

        async def child(go: asyncio.Event) -> str:
            await go.wait()
            return await awho(guard)

        async def main() -> tuple[str, str]:
            async with user(guard, "ann") as session:
                stack, go = contextlib.AsyncExitStack(), asyncio.Event()
                await stack.enter_async_context(session.delegate("helper", tools=["look"], max_calls=5))
                late = asyncio.create_task(child(go))
                await asyncio.create_task(stack.aclose())
                go.set()
                return await late, await awho(guard)

        assert asyncio.run(main()) == ("no_session", "ann")

    @pytest.mark.parametrize("turns", [(0.01, 0.01), (0.01, 0.03), (0.03, 0.01)])
    def test_entered_by_two_tasks(self, guard: Guard, turns: tuple[float, float]) -> None:
        """One session entered by two tasks counts in each one's block, and is closed with the last."""
        session = user(guard, "ann")

        async def request(wait: float) -> tuple[str, str]:
            async with session:
                await asyncio.sleep(wait)
                inside = await awho(guard)
            return inside, await awho(guard)

        async def main() -> list[tuple[str, str]]:
            return await asyncio.gather(*map(request, turns))

        assert asyncio.run(main()) == [("ann", "no_session")] * 2
        assert not session.is_open

    def test_entered_twice_by_one(self, guard: Guard) -> None:
        """The inner of two blocks of one session does not end the outer one."""
        with user(guard, "ann") as session:
            with session:
                assert who(guard) == "ann"
            assert who(guard) == "ann"
        assert (who(guard), session.is_open) == ("no_session", False)

    def test_a_child_of_one_block_is_not_in_the_other(self, guard: Guard) -> None:
        """What was started in the first block of a session ends with it, though the session is open elsewhere."""
        session, go, seen = user(guard, "ann"), threading.Event(), []

        def late() -> None:
            go.wait(5)
            seen.append(who(guard))

        with session:
            with session:
                thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))
                thread.start()
            go.set()
            thread.join()
            assert who(guard) == "ann"
        assert seen == ["no_session"]

    def test_an_abandoned_async_for(self, guard: Guard) -> None:
        """A client that hangs up: the finaliser leaves the block in its own task, and what it started is denied."""
        late: list[str] = []

        async def agent() -> None:
            await asyncio.sleep(0.05)
            late.append(await awho(guard))

        async def stream(session: ToolExecutionContext) -> AsyncIterator[int]:
            async with session:
                tasks.append(asyncio.create_task(agent()))
                for number in range(10):
                    yield number

        async def main() -> tuple[bool, str]:
            session = user(guard, "ann")
            async for number in stream(session):
                if number == 1:
                    break
            gc.collect()
            await asyncio.sleep(0.01)
            await tasks[0]
            return session.is_open, await awho(guard)

        tasks: list[asyncio.Task[None]] = []
        assert asyncio.run(main()) == (False, "no_session")
        assert late == ["no_session"]

    def test_kept_open(self, guard: Guard) -> None:
        """A session kept open goes on for what was started inside, not for the code after its block."""
        go, seen = threading.Event(), []

        def handler() -> None:
            go.wait(5)
            seen.append(who(guard))

        with user(guard, "ann") as session:
            session.keep_open()
            threads = [threading.Thread(target=contextvars.copy_context().run, args=(handler,)) for _ in range(2)]
            threads[0].start()
        assert who(guard) == "no_session"
        with user(guard, "bob"):
            assert who(guard) == "bob"
        go.set()
        threads[0].join()
        session.close()
        threads[1].start()
        threads[1].join()
        assert seen == ["ann", "no_session"]


async def _run(function: Callable[[], object]) -> None:
    function()


class TestTasksAndThreads:
    """What is started inside a block goes on in it, with a copied context; what is not, is nobody."""

    def test_tasks_started_inside(self, guard: Guard) -> None:
        """gather, TaskGroup, to_thread and executors with a copied context run as the user."""

        async def main() -> list[str]:
            loop = asyncio.get_running_loop()
            async with user(guard, "ann"):
                seen = list(await asyncio.gather(awho(guard), awho(guard)))
                async with asyncio.TaskGroup() as group:
                    task = group.create_task(awho(guard))
                seen += [task.result(), await asyncio.to_thread(who, guard)]
                copied = contextvars.copy_context()
                return [*seen, await loop.run_in_executor(None, copied.run, who, guard)]

        assert asyncio.run(main()) == ["ann"] * 5

    def test_threads_without_a_context(self, guard: Guard) -> None:
        """A plain thread, pool or executor has no session."""

        async def main() -> str:
            async with user(guard, "ann"):
                return await asyncio.get_running_loop().run_in_executor(None, who, guard)

        assert asyncio.run(main()) == "no_session"
        with user(guard, "ann"), ThreadPoolExecutor(1) as pool:
            assert pool.submit(who, guard).result() == "no_session"
            assert pool.submit(contextvars.copy_context().run, who, guard).result() == "ann"

    def test_callbacks_of_the_loop(self, guard: Guard) -> None:
        """A callback scheduled inside a block runs as the user, and is denied after it."""

        async def main() -> list[str]:
            loop, seen = asyncio.get_running_loop(), []
            async with user(guard, "ann"):
                loop.call_soon(lambda: seen.append(who(guard)))
                loop.call_later(0.02, lambda: seen.append(who(guard)))
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            return seen

        assert asyncio.run(main()) == ["ann", "no_session"]

    def test_tasks_inside_a_generators_step(self, guard: Guard) -> None:
        """Tasks and threads started by an async generator go on while it waits at a yield, and end with its block."""

        async def child(go: asyncio.Event) -> list[str]:
            first = await awho(guard)
            await go.wait()
            return [first, await awho(guard)]

        async def stream(go: asyncio.Event) -> AsyncIterator[asyncio.Task[list[str]]]:
            async with user(guard, "ann"):
                yield asyncio.create_task(child(go))
                yield asyncio.create_task(child(go))

        async def main() -> tuple[list[str], list[str]]:
            go = asyncio.Event()
            streamed = stream(go)
            first = await anext(streamed)
            go.set()
            seen = await first
            go.clear()
            second = await anext(streamed)
            await asyncio.sleep(0.01)
            await streamed.aclose()  # type: ignore[attr-defined]
            go.set()
            return seen, await second

        assert asyncio.run(main()) == (["ann", "ann"], ["ann", "no_session"])

    def test_a_loop_inside_a_generators_step(self, guard: Guard) -> None:
        """A sync generator that runs an event loop in its step: the loop's tasks are its children."""

        def stepped() -> Iterator[str]:
            with user(guard, "ann"):
                yield asyncio.run(awho(guard))
                yield asyncio.run(awho(guard))

        assert list(stepped()) == ["ann", "ann"]

    def test_wait_for_steps_in_tasks_of_their_own(self, guard: Guard) -> None:
        """Steps in other tasks than the first have no session, or the consumer's: they are denied, and say why."""

        async def step(stream: AsyncIterator[str]) -> str:
            return await anext(stream)

        async def main(consumer: contextlib.AbstractAsyncContextManager[Any]) -> tuple[list[str], str]:
            async with consumer:
                stream = asteps(guard, "ann")
                seen = [await asyncio.create_task(step(stream)) for _ in range(3)]
                await stream.aclose()  # type: ignore[attr-defined]
                return seen, await awho(guard)

        assert asyncio.run(main(contextlib.nullcontext())) == (["ann", "no_session", "no_session"], "no_session")
        assert asyncio.run(main(user(guard, "bob"))) == (["ann", "no_session", "no_session"], "bob")

    def test_interleaved_async_generators_of_one_task(self, guard: Guard) -> None:
        """As with generators: one task opens one principal's at a time."""

        async def main() -> list[str]:
            clerk, admin = asteps(guard, "clerk"), asteps(guard, "admin")
            seen = [await anext(clerk)]
            with pytest.raises(GuardConfigurationError):
                await anext(admin)
            seen += [await anext(clerk), await awho(guard)]
            await clerk.aclose()  # type: ignore[attr-defined]
            return seen

        assert asyncio.run(main()) == ["clerk", "clerk", "no_session"]

    def test_async_generators_of_two_tasks(self, guard: Guard) -> None:
        """Each request's task consumes its own stream: they do not meet."""

        async def consume(name: str) -> set[str]:
            seen = set()
            async with contextlib.aclosing(asteps(guard, name)) as stream:  # type: ignore[type-var]
                for _ in range(5):
                    seen.add(await anext(stream))
                    await asyncio.sleep(0)
            return seen

        async def main() -> list[set[str]]:
            return await asyncio.gather(*map(consume, ["ann", "bob", "eve"]))

        assert asyncio.run(main()) == [{"ann"}, {"bob"}, {"eve"}]

    def test_a_session_handed_to_a_task_in_another_context(self, guard: Guard) -> None:
        """`context=` is the application's word, wherever the session was entered."""
        session, seen = user(guard, "ann"), []

        def enter_elsewhere() -> None:
            stack.enter_context(session)

        with contextlib.ExitStack() as stack:
            contextvars.copy_context().run(enter_elsewhere)
            seen += [who(guard), who(guard, session)]
        assert [*seen, who(guard, session)] == ["no_session", "ann", "no_session"]

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    def test_a_forked_child(self, guard: Guard) -> None:
        """A child forked inside a block is in it; generators of the parent's other threads stay with the parent."""
        ready, done = threading.Event(), threading.Event()

        def other() -> None:
            stepped = steps(guard, "bob")
            next(stepped)
            ready.set()
            done.wait(5)
            stepped.close()  # type: ignore[attr-defined]

        thread = threading.Thread(target=other)
        thread.start()
        ready.wait(5)
        try:
            with user(guard, "ann"):
                reading, writing = os.pipe()
                child = os.fork()
                if child == 0:  # pragma: no cover
                    os.write(writing, f"{who(guard)} {len(blocks._generators)}".encode())
                    os._exit(0)
                os.waitpid(child, 0)
                assert os.read(reading, 100) == b"ann 0"
                os.close(reading)
                os.close(writing)
        finally:
            done.set()
            thread.join()


class TestHandedOver:
    """A session that is handed over in code counts wherever no other block is around the call."""

    def test_beside_a_suspended_generator(self, guard: Guard) -> None:
        """Between two yields of somebody's generator, a session that is handed over is the only one."""
        handed = user(guard, "bob")
        stepped = steps(guard, "ann")
        next(stepped)
        assert (who(guard), who(guard, handed)) == ("no_session", "bob")
        stepped.close()  # type: ignore[attr-defined]

    def test_a_block_around_the_loop_still_counts(self, guard: Guard) -> None:
        """Where the loop over a generator is in a block itself, that block's session is the only one to hand over."""
        other = user(guard, "bob")
        with user(guard, "ann") as around:
            stepped = steps(guard, "eve", nested=True)
            next(stepped)
            assert (who(guard), who(guard, around), who(guard, other)) == ("no_session", "ann", "no_session")
            stepped.close()  # type: ignore[attr-defined]

    def test_in_a_generator_that_others_step(self, guard: Guard) -> None:
        """A generator's own session may be handed over in every one of its steps, and nobody else's."""
        mine, other = user(guard, "ann"), user(guard, "bob")

        def stepped() -> Iterator[tuple[str, str, str]]:
            with mine:
                while True:
                    yield who(guard), who(guard, mine), who(guard, other)

        generator = stepped()
        assert contextvars.copy_context().run(next, generator) == ("ann", "ann", "no_session")
        for _ in range(2):
            assert contextvars.copy_context().run(next, generator) == ("no_session", "ann", "no_session")
        generator.close()  # type: ignore[attr-defined]

    def test_identify_is_asked_where_no_block_is(self, guard: Guard) -> None:
        """A guard that identifies callers does so between two yields, and in steps from elsewhere; not in a block."""
        asked: list[object] = []

        def identify(runtime: object) -> ToolExecutionContext:
            asked.append(runtime)
            return handed

        knows = Guard(ToolExecutionPolicy({"look": "read_only"}), identify=identify)
        knows.tool(name="look")(lambda: "seen")
        handed = user(knows, "bob")
        stepped = steps(knows, "ann")
        assert contextvars.copy_context().run(next, stepped) == "ann"
        assert not asked
        assert contextvars.copy_context().run(next, stepped) == "no_session"  # another than the generator's own
        assert len(asked) == 1
        stepped.close()  # type: ignore[attr-defined]
        inner = steps(knows, "ann")
        next(inner)
        assert who(knows) == "bob"
        inner.close()  # type: ignore[attr-defined]

    def test_nothing_is_shown_outside_the_block(self, guard: Guard) -> None:
        """Between two yields a model is shown no tool, since no call could pass; outside any session, the policy's."""
        assert [view.name for view in guard.visible_tools()] == ["look"]
        stepped = steps(guard, "ann")
        next(stepped)
        assert guard.visible_tools() == []
        stepped.close()  # type: ignore[attr-defined]
        assert [view.name for view in guard.visible_tools()] == ["look"]


class TestSideBySide:
    """What two open generators of one thread start in turns is not told apart, and so the later one's is denied."""

    def test_a_thread_started_in_the_others_step(self, guard: Guard) -> None:
        """A thread that the first generator starts while the second's session is current runs as neither."""

        def stepped(name: str) -> Iterator[str]:
            with user(guard, name, nested=True), ThreadPoolExecutor(1) as pool:
                while True:
                    yield pool.submit(contextvars.copy_context().run, who, guard).result()

        first, second = stepped("ann"), stepped("bob")
        assert next(first) == "ann"
        assert [next(second), next(first), next(second)] == ["no_session"] * 3
        first.close()  # type: ignore[attr-defined]
        assert next(second) == "bob"
        second.close()  # type: ignore[attr-defined]

    def test_also_in_a_block_inside_the_second(self, guard: Guard) -> None:
        """So it is where the second one's step is in a subagent's block."""

        def first() -> Iterator[str]:
            with user(guard, "ann"), ThreadPoolExecutor(1) as pool:
                while True:
                    yield pool.submit(contextvars.copy_context().run, who, guard).result()

        def second() -> Iterator[None]:
            with user(guard, "bob", nested=True) as bob, bob.delegate("helper", tools=["look"], max_calls=3):
                yield

        one, two = first(), second()
        assert next(one) == "ann"
        next(two)
        assert next(one) == "no_session"
        two.close()  # type: ignore[attr-defined]
        assert next(one) == "ann"
        one.close()  # type: ignore[attr-defined]

    def test_what_the_first_started_before_goes_on(self, guard: Guard) -> None:
        """A task that was started inside the first one's block, before the second was opened, is the first one's."""

        async def child(go: asyncio.Event) -> str:
            await go.wait()
            return await awho(guard)

        async def first(go: asyncio.Event) -> AsyncIterator[asyncio.Task[str]]:
            async with user(guard, "ann"):
                yield asyncio.create_task(child(go))

        async def main() -> str:
            go = asyncio.Event()
            async with contextlib.aclosing(first(go)) as stream:  # type: ignore[type-var]
                started = await anext(stream)
                async with user(guard, "bob", nested=True):
                    go.set()
                    return await started

        assert asyncio.run(main()) == "ann"


class TestDrivers:
    """Who stands for a `with` block is known by the driver's own code."""

    def test_a_modules_name_is_no_ticket(self, guard: Guard) -> None:
        """A driver whose module and function are called as pytest's are is not pytest."""
        forged: dict[str, Any] = {"__name__": "_pytest.fixtures"}
        exec("def call_fixture_func(generator):\n    return next(generator)", forged)
        stepped = steps(guard, "ann")
        assert forged["call_fixture_func"](stepped) == "ann"
        assert who(guard) == "no_session"
        stepped.close()  # type: ignore[attr-defined]

    def test_frames_that_are_gone_are_not_taken_for_others(self, guard: Guard) -> None:
        """Of two blocks of one session, a `with` leaves its own, whatever frames entered the others before."""
        session = user(guard, "ann")

        def enter_somehow() -> None:
            session.__enter__()

        enter_somehow()
        for _ in range(50):  # each call's frame is made where the last one was

            def once() -> None:
                with session:
                    assert who(guard) == "ann"

            once()
        assert (who(guard), len(session._blocks)) == ("ann", 1)
        session.__exit__(None, None, None)
        assert (who(guard), session.is_open) == ("no_session", False)


@pytest.fixture
async def aopened(guard: Guard) -> AsyncIterator[Guard]:
    """The same in an async fixture."""
    async with user(guard, "ann"):
        yield guard


async def test_an_async_fixture_stands_for_a_block(aopened: Guard) -> None:
    """An async test runs in the session of its async fixture."""
    assert await awho(aopened) == "ann"


async def test_a_fixture_stands_for_a_block_of_an_async_test(opened: Guard) -> None:
    """And of a plain one."""
    assert await awho(opened) == "ann"


@pytest.fixture
def opened(guard: Guard) -> Iterator[Guard]:
    """A guard whose user's session a fixture opened: pytest steps it like a `with` block."""
    with user(guard, "ann"):
        yield guard


def test_a_fixture_stands_for_a_block(opened: Guard) -> None:
    """A test runs in the session of its fixture."""
    assert who(opened) == "ann"

"""Streams of agents: each user's calls run in the user's own session, however the streams are stepped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from guarded_core import Guard, GuardConfigurationError, ToolExecutionContext, ToolExecutionPolicy
from guarded_core.ground import blocks
from guarded_langchain import GuardMiddleware, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

CALLS = 4


@tool
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool
async def alook(n: int) -> str:
    """Look."""
    return f"seen {n}"


class Desk:
    """One guard, and an agent for each user, which calls both tools in each of its turns."""

    def __init__(self) -> None:
        self.guard = Guard(ToolExecutionPolicy({"look": "read_only", "alook": "read_only"}))

    def agent(self, context: ToolExecutionContext | None = None, *, is_async: bool = True) -> Any:
        tools = guard_tools([look, alook] if is_async else [look], self.guard, context=context)
        names = [each.name for each in tools]
        turns: list[Any] = [says(*(tool_call(name, {"n": n}) for name in names)) for n in range(CALLS)]
        model = ScriptedChatModel([*turns, "done"])
        return create_agent(model, tools=tools, middleware=[GuardMiddleware(self.guard, context=context)])

    def session(self, user: str, **settings: Any) -> ToolExecutionContext:
        return self.guard.session(user, tools=["look", "alook"], **settings)

    def stream(self, user: str, **settings: Any) -> Generator[Any]:
        """The agent's steps, in a session around the loop over them."""
        with self.session(user, **settings):
            yield from self.agent(is_async=False).stream({"messages": [("user", user)]})

    async def astream(self, user: str, **settings: Any) -> AsyncGenerator[Any]:
        async with self.session(user, **settings):
            async for step in self.agent().astream({"messages": [("user", user)]}):
                yield step

    @property
    def ran(self) -> list[str]:
        """As whom calls ran."""
        return [e.principal for e in self.guard.audit.events if e.outcome == "succeeded"]  # type: ignore[union-attr]


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A desk, and at the end no block that was left behind."""
    yield Desk()
    gc.collect()
    assert blocks._generators == {}


def results(steps: list[Any]) -> list[str]:
    """The status of each tool's message."""
    messages = [message for step in steps for part in step.values() for message in part.get("messages", ())]
    return [message.status for message in messages if isinstance(message, ToolMessage)]


def test_a_stream_in_a_generator(desk: Desk) -> None:
    """Every tool of every step runs as the user, in whatever threads the graph runs them."""
    assert results(list(desk.stream("ann"))) == ["success"] * CALLS
    assert desk.ran == ["ann"] * CALLS


def test_an_astream_in_an_async_generator(desk: Desk) -> None:
    """So it is with asyncio: sync and async tools, in tasks and threads of their own."""

    async def main() -> list[Any]:
        return [step async for step in desk.astream("ann")]

    assert results(asyncio.run(main())) == ["success"] * 2 * CALLS
    assert desk.ran == ["ann"] * 2 * CALLS


def test_two_users_streams_in_turns_by_one_thread(desk: Desk) -> None:
    """The second user's session is refused while the first one's stream waits; the first goes on as it was."""
    ann, bob = desk.stream("ann"), desk.stream("bob")
    steps = [next(ann)]
    with pytest.raises(GuardConfigurationError, match="in turns"):
        next(bob)
    steps += list(ann)
    assert results(steps) == ["success"] * CALLS
    assert set(desk.ran) == {"ann"}


@pytest.mark.parametrize("turns", ["ann, bob", "ann only", "bob only"])
def test_nested_streams_in_turns_by_one_thread(desk: Desk, turns: str) -> None:
    """Where the second is opened all the same, no call of the one runs as the other, in whatever thread it is made."""
    with contextlib.closing(desk.stream("ann")) as ann, contextlib.closing(desk.stream("bob", nested=True)) as bob:
        steps: dict[str, list[Any]] = {"ann": [next(ann)], "bob": [next(bob)]}
        for _ in range(2 * CALLS):
            for name, stream in (("ann", ann), ("bob", bob)):
                if name not in turns:
                    continue
                before = len(desk.ran)
                with contextlib.suppress(StopIteration):
                    steps[name].append(next(stream))
                assert set(desk.ran[before:]) <= {name}
    assert "error" in results(steps["ann"]) + results(steps["bob"])


def test_nested_astreams_in_turns_by_one_task(desk: Desk) -> None:
    """So it is in a task; when the one is closed, the other runs."""

    async def main() -> list[str]:
        async with contextlib.aclosing(desk.astream("ann")) as ann:
            await anext(ann)
            async with contextlib.aclosing(desk.astream("bob", nested=True)) as bob:
                for _ in range(CALLS):
                    for name, stream in (("ann", ann), ("bob", bob)):
                        before = len(desk.ran)
                        await anext(stream)
                        assert set(desk.ran[before:]) <= {name}
            before = len(desk.ran)
            rest = [step async for step in ann]
            assert set(desk.ran[before:]) == {"ann"}
            return results(rest)

    assert set(asyncio.run(main())[1:]) == {"success"}  # the first may be of the step before


def test_two_users_astreams_in_turns_by_one_task(desk: Desk) -> None:
    """So it is in a task."""

    async def main() -> list[Any]:
        ann, bob = desk.astream("ann"), desk.astream("bob")
        steps = [await anext(ann)]
        with pytest.raises(GuardConfigurationError):
            await anext(bob)
        return steps + [step async for step in ann]

    assert results(asyncio.run(main())) == ["success"] * 2 * CALLS
    assert set(desk.ran) == {"ann"}


def test_astreams_of_several_tasks(desk: Desk) -> None:
    """Each request's task runs its own user's stream, all at once."""

    async def request(user: str) -> list[str]:
        return results([step async for step in desk.astream(user)])

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(request(user) for user in ("ann", "bob", "eve")))

    assert asyncio.run(main()) == [["success"] * 2 * CALLS] * 3
    assert sorted(desk.ran) == sorted(["ann", "bob", "eve"] * 2 * CALLS)


def test_steps_in_tasks_of_their_own(desk: Desk) -> None:
    """Stepped in tasks of their own, as `asyncio.wait_for` does on Python 3.11, tools run in the first step only."""

    async def step(stream: AsyncIterator[Any]) -> Any:
        return await anext(stream)

    async def main() -> list[Any]:
        stream, steps = desk.astream("ann"), []
        with contextlib.suppress(StopAsyncIteration):
            while True:
                steps.append(await asyncio.create_task(step(stream)))
        return steps

    assert set(results(asyncio.run(main()))) == {"error"}
    assert desk.ran == []


def test_handed_over_streams_in_any_order(desk: Desk) -> None:
    """With `context=`, one task steps as many users' streams in turns as it likes, and each call is its user's."""
    users = ("ann", "bob")
    agents = {user: desk.agent(desk.session(user), is_async=False) for user in users}
    streams = {user: agents[user].stream({"messages": [("user", user)]}) for user in users}
    steps: dict[str, list[Any]] = {user: [] for user in users}
    for _ in range(2 * CALLS + 1):
        for user, stream in streams.items():
            before = len(desk.ran)
            steps[user].append(next(stream))
            assert set(desk.ran[before:]) <= {user}
    assert [results(steps[user]) for user in users] == [["success"] * CALLS] * 2

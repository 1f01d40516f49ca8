"""Results that are still to come are taken out while the call is under way: bounded, and before it is settled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from guarded_core import ExecutionFailed, Guard, OutputTooLarge, ToolExecutionPolicy
from guarded_core.audit.event import Outcome


@pytest.fixture
def guard() -> Guard:
    """A guard of one tool, with a small limit for results."""
    return Guard(ToolExecutionPolicy({"f": "mutating"}, output_bytes=100))


def outcomes(guard: Guard) -> list[Outcome]:
    """What is on record."""
    return [event.outcome for event in guard.audit.events]  # type: ignore[attr-defined]


def test_a_generator_runs_inside_the_call(guard: Guard) -> None:
    """All of it, before the call is settled and while the session is open; the caller gets a list."""
    ran: list[Any] = []

    @guard.tool()
    def f(n: int) -> Iterator[int]:
        """Count."""
        for i in range(n):
            ran.append((i, len(outcomes(guard))))
            yield i

    with guard.session("u", tools=["f"]):
        assert guard.call("f", {"n": 3}) == [0, 1, 2]
        assert f(2) == [0, 1]
        assert asyncio.run(guard.acall("f", {"n": 1})) == [0]
    assert ran[:3] == [(0, 1), (1, 1), (2, 1)]
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.SUCCEEDED] * 3


def test_a_generator_ends_at_the_limit(guard: Guard) -> None:
    """It is closed there: what it would give out further never runs."""
    ran: list[str] = []

    @guard.tool()
    def f() -> Iterator[str]:
        """Go on for ever."""
        try:
            while True:
                ran.append("x")
                yield "x" * 60
        finally:
            ran.append("closed")

    with guard.session("u", tools=["f"]), pytest.raises(OutputTooLarge):
        guard.call("f", {})
    assert ran == ["x", "x", "closed"]
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.FAILED]


def test_what_fails_half_way_is_a_failure(guard: Guard) -> None:
    """Not a success with an error for whoever reads it."""

    @guard.tool()
    def f() -> Iterator[int]:
        """Fail."""
        yield 1
        raise ValueError

    with guard.session("u", tools=["f"]), pytest.raises(ExecutionFailed):
        guard.call("f", {})
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.FAILED]


def test_a_coroutine_that_a_sync_function_returns_is_awaited_or_closed(guard: Guard) -> None:
    """Awaited where that can be done; elsewhere it never runs, and the call fails."""
    ran: list[int] = []

    async def real(n: int) -> int:
        ran.append(n)
        return n

    @guard.tool()
    def f(n: int) -> Any:
        """As a decorated async function does."""
        return real(n)

    with guard.session("u", tools=["f"]):
        assert asyncio.run(guard.acall("f", {"n": 1})) == 1
        with pytest.raises(ExecutionFailed):
            guard.call("f", {"n": 2})
    assert ran == [1]
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.SUCCEEDED, Outcome.AUTHORIZED, Outcome.FAILED]


def test_an_async_generator_is_an_async_function(guard: Guard) -> None:
    """It is taken out in the loop, and ends at the limit."""
    ran: list[int] = []

    @guard.tool()
    async def f(n: int) -> AsyncIterator[int]:
        """Count."""
        for i in range(n):
            ran.append(i)
            yield i

    async def main() -> Any:
        with guard.session("u", tools=["f"]):
            assert await f(2) == [0, 1]  # type: ignore[misc]
            with pytest.raises(OutputTooLarge):
                await guard.acall("f", {"n": 1000})

    asyncio.run(main())
    assert len(ran) < 80
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.SUCCEEDED, Outcome.AUTHORIZED, Outcome.FAILED]


def test_other_results_are_left_alone(guard: Guard) -> None:
    """A range, a tuple and a list are there already."""

    @guard.tool()
    def f() -> Any:
        """Return."""
        return (range(3), [iter([1])], zip([1], [2], strict=True))

    with guard.session("u", tools=["f"]):
        first, second, third = guard.call("f", {})
    assert (first, third) == (range(3), [(1, 2)])
    assert list(second[0]) == [1]


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("holder", [lambda lazy: {"rows": lazy}, lambda lazy: [[lazy]], lambda lazy: {"a": (lazy,)}])
def test_code_that_would_run_after_the_call_is_not_handed_out(guard: Guard, way: str, holder: Any) -> None:
    """A generator, a map or a coroutine deep inside a result: the call has failed, and none of it runs."""
    ran: list[int] = []

    async def later() -> None:
        ran.append(1)

    waiting = later()

    @guard.tool()
    def f(kind: str) -> Any:
        """Return."""
        lazy = {"generator": (ran.append(n) for n in range(3)), "map": map(ran.append, [1]), "coroutine": waiting}
        return holder(lazy[kind])

    def call(kind: str) -> Any:
        return asyncio.run(guard.acall("f", {"kind": kind})) if way == "async" else guard.call("f", {"kind": kind})

    with guard.session("u", tools=["f"]):
        for kind in ("generator", "map", "coroutine"):
            with pytest.raises(ExecutionFailed):
                call(kind)
    waiting.close()
    assert ran == []
    assert outcomes(guard) == [Outcome.AUTHORIZED, Outcome.FAILED] * 3

"""Checks that wait: asked beside each other before the rules are judged; whatever goes wrong with one denies."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from guarded_core import (
    Action,
    CallbackApprover,
    Guard,
    GuardConfigurationError,
    PolicyDenied,
    StateStore,
    ToolExecutionPolicy,
    ToolSettings,
)
from guarded_core.rules.case import AwaitedRule, Case, Finding

Way = Callable[[Guard, dict[str, Any]], Any]


def _sync(guard: Guard, arguments: dict[str, Any]) -> Any:
    return guard.call("pay", arguments)


def _sync_in_a_loop(guard: Guard, arguments: dict[str, Any]) -> Any:
    async def main() -> Any:
        return guard.call("pay", arguments)

    return asyncio.run(main())


def _async(guard: Guard, arguments: dict[str, Any]) -> Any:
    return asyncio.run(guard.acall("pay", arguments))


@pytest.fixture(params=[_sync, _sync_in_a_loop, _async])
def way(request: pytest.FixtureRequest) -> Way:
    """A way to call: sync, sync where an event loop runs, async."""
    found: Way = request.param
    return found


def guarding(**settings: Any) -> Guard:
    """A guard with one tool."""
    guard = Guard(ToolExecutionPolicy({"pay": ToolSettings(risk="mutating")}), **settings)

    @guard.tool
    def pay(amount: int) -> str:
        return f"paid {amount}"

    return guard


def called(guard: Guard, way: Way, amount: int = 5) -> Any:
    """Call it as ann; the reasons where it is denied."""
    with guard.session("ann", tools=["pay"]):
        try:
            return way(guard, {"amount": amount})
        except PolicyDenied as error:
            return [violation.reason for violation in error.violations]


async def small(action: Action, state: StateStore) -> str | None:
    """Objects to large amounts."""
    await asyncio.sleep(0)
    return "too much" if action.parameters["amount"] > 10 else None


class Small:
    """The same, as an object."""

    async def __call__(self, action: Action, state: StateStore) -> str | None:
        return await small(action, state)


@pytest.mark.parametrize("check", [small, Small(), functools.partial(small)], ids=["function", "object", "partial"])
def test_its_word_counts(way: Way, check: Any) -> None:
    """None lets the call pass, a reason denies it."""
    guard = guarding()
    guard.rules.register("small", check)
    assert called(guard, way) == "paid 5"
    assert called(guard, way, 11) == ["too much"]


def test_they_wait_beside_each_other(way: Way) -> None:
    """Five that wait for all five: one after the other they would never end."""
    guard, barrier = guarding(), [0]

    async def waits(action: Action, state: StateStore) -> str | None:
        barrier[0] += 1
        while barrier[0] < 5:
            await asyncio.sleep(0.001)
        return None

    for number in range(5):
        guard.rules.register(str(number), waits)
    assert called(guard, way) == "paid 5"


def test_the_loop_goes_on_meanwhile() -> None:
    """An async call leaves the event loop to others while a check waits."""
    guard, ticks = guarding(), 0

    async def slow(action: Action, state: StateStore) -> str | None:
        await asyncio.sleep(0.2)
        return None

    guard.rules.register("slow", slow)

    async def main() -> None:
        nonlocal ticks
        with guard.session("ann", tools=["pay"]):
            call = asyncio.create_task(guard.acall("pay", {"amount": 1}))
            while not call.done():
                await asyncio.sleep(0.005)
                ticks += 1
            assert await call == "paid 1"

    asyncio.run(main())
    assert ticks > 5


async def _raises(action: Action, state: StateStore) -> str | None:
    raise ValueError(f"secret {action.parameters}")


async def _never(action: Action, state: StateStore) -> str | None:
    await asyncio.sleep(60)
    return None


async def _odd(action: Action, state: StateStore) -> Any:
    return True


def _forgot(action: Action, state: StateStore) -> Any:
    return small(action, state)


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        (_raises, "the rule failed: ValueError"),
        (_never, "the check did not answer in time"),
        (_odd, "the check returned neither a reason nor None"),
        (_forgot, "the check returned what has to be awaited: register an async function"),
    ],
)
def test_what_goes_wrong_denies(way: Way, check: Any, reason: str) -> None:
    """By its kind; what it raised may quote the arguments, and is not told."""
    guard = guarding()
    guard.rules.register("it", check, timeout=0.05)
    began = time.monotonic()
    assert called(guard, way) == [reason]
    assert time.monotonic() - began < 10


def test_all_objections_are_told_in_order(way: Way) -> None:
    """Those of checks that wait stand where they were registered, among the others."""
    guard = guarding()
    guard.rules.register("first", lambda action, state: "one")
    guard.rules.register("second", small)
    guard.rules.register("third", lambda action, state: "three")
    assert called(guard, way, 11) == ["one", "too much", "three"]


def test_it_is_asked_again_after_a_person(way: Way) -> None:
    """What it said before a person answered may be over by then."""
    said: list[str | None] = [None, "frozen meanwhile"]

    async def frozen(action: Action, state: StateStore) -> str | None:
        return said.pop(0)

    approver = CallbackApprover(lambda request: True, by="kim")
    guard = Guard(ToolExecutionPolicy({"pay": ToolSettings(risk="financial")}), approver=approver)

    @guard.tool
    def pay(amount: int) -> str:
        return f"paid {amount}"

    guard.rules.register("frozen", frozen)
    assert called(guard, way) == ["frozen meanwhile"]
    assert said == []


def test_it_sees_the_callers_context(way: Way) -> None:
    """Context variables are those of the caller, in whatever thread it runs."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")

    async def of_tenant(action: Action, state: StateStore) -> str | None:
        return None if tenant.get() == "acme" else f"tenant {tenant.get()}"

    guard = guarding()
    guard.rules.register("tenant", of_tenant)
    assert called(guard, way) == ["tenant none"]
    token = tenant.set("acme")
    try:
        assert called(guard, way) == "paid 5"
    finally:
        tenant.reset(token)


def test_sync_calls_run_it_in_a_thread_of_their_own() -> None:
    """Never in the caller's."""
    threads: list[str] = []

    async def where(action: Action, state: StateStore) -> str | None:
        threads.append(threading.current_thread().name)
        return None

    guard = guarding()
    guard.rules.register("where", where)
    assert called(guard, _sync) == "paid 5"
    assert called(guard, _async) == "paid 5"
    assert threads[0].startswith("guarded-checks")
    assert threads[1] == threading.current_thread().name


async def test_a_cancelled_call_spends_nothing() -> None:
    """Cancelled while a check waits: it did not run, and its budget is as before."""
    guard = guarding()
    guard.rules.register("never", _never)
    with guard.session("ann", tools=["pay"], max_calls=1) as session:
        call = asyncio.create_task(guard.acall("pay", {"amount": 1}))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        guard.rules.unregister("never")
        assert await guard.acall("pay", {"amount": 1}, context=session) == "paid 1"


def test_a_preview_asks_it(way: Way) -> None:
    """`decide` says what the call would meet."""
    guard = guarding()
    guard.rules.register("small", small)
    with guard.session("ann", tools=["pay"]) as session:
        assert guard.decide("pay", {"amount": 5}, context=session).outcome == "allow"
        assert guard.decide("pay", {"amount": 11}, context=session).outcome == "deny"


def test_where_nobody_awaits_it_is_an_objection() -> None:
    """`PolicyEngine.check` has no loop to ask it in."""
    guard = guarding()
    guard.rules.register("small", small)
    (violation,) = guard.rules.check(Action.tool_call("pay", {"amount": 5}))
    assert violation.reason == "the rule failed: KeyError"


class Own(AwaitedRule):
    """A rule of one's own that waits."""

    name, timeout, tools = "own", 1.0, "pay"

    async def answer(self, case: Case) -> Finding | None:
        await asyncio.sleep(0)
        return Finding("odd", "ask") if case.action.parameters["amount"] % 2 else None


def test_a_rule_of_ones_own(way: Way) -> None:
    """It can ask for a person, like any other."""
    asked: list[Any] = []
    guard = guarding(approver=CallbackApprover(lambda request: asked.append(request.reasons) or True, by="kim"))
    guard.rules.add(Own())
    assert called(guard, way, 4) == "paid 4"
    assert called(guard, way, 5) == "paid 5"
    assert asked == [("own",)]


@pytest.mark.parametrize("timeout", [0, -1, "5", None])
def test_a_timeout_is_a_number_of_seconds(timeout: Any) -> None:
    """One that could not end is a mistake now, and no call's later."""
    with pytest.raises(GuardConfigurationError, match="a number of seconds"):
        guarding().rules.register("it", small, timeout=timeout)

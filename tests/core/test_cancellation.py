"""Cancellation at every step: whatever was committed is settled, whatever was not has spent nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from guarded_core import CallbackApprover, Guard, InMemoryToolAuditTrail, MemoryStore, ToolExecutionPolicy


class Gate:
    """Makes one named operation wait in its thread until it is let through."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.entered = False

    def __call__(self, name: str) -> None:
        if name == self.name:
            self.entered = True
            time.sleep(0.05)


class SlowStore(MemoryStore):
    blocking = True  # type: ignore[misc]
    gate: Gate

    def load(self, query: Any) -> Any:
        self.gate("load")
        return super().load(query)

    def commit(self, change: Any) -> None:
        self.gate("commit")
        super().commit(change)

    def settle(self, settlement: Any) -> None:
        self.gate("settle")
        super().settle(settlement)


class SlowTrail(InMemoryToolAuditTrail):
    blocking = True  # type: ignore[misc]
    gate: Gate

    def append(self, event: Any) -> None:
        self.gate(event.outcome.value)
        super().append(event)


@pytest.mark.parametrize(
    ("where", "ran", "outcomes"),
    [
        ("load", 0, ["asked"]),
        ("asked", 0, ["asked"]),
        ("approver", 0, ["asked"]),
        ("commit", 0, ["asked", "authorized", "failed"]),
        ("authorized", 0, ["asked", "authorized", "failed"]),
        ("tool", 1, ["asked", "authorized", "unknown"]),
        ("settle", 1, ["asked", "authorized", "succeeded"]),
        ("succeeded", 1, ["asked", "authorized", "succeeded"]),
    ],
)
def test_cancelled_at(where: str, ran: int, outcomes: list[str]) -> None:
    """A cancellation reaches the caller, after the step it fell into ran to its end; each Authorized has one end."""
    gate, calls = Gate(where), []
    store, trail = SlowStore(), SlowTrail(32)
    store.gate = trail.gate = gate

    async def approve(request: Any) -> bool:
        if where == "approver":
            gate.entered = True
            await asyncio.sleep(10)
        return True

    guard = Guard(
        ToolExecutionPolicy({"pay": "financial"}),
        store=store,
        audit=trail,
        approver=CallbackApprover(approve, by="reviewer-9"),
    )

    @guard.tool
    async def pay(amount: int) -> str:
        calls.append(amount)
        if where == "tool":
            gate.entered = True
            await asyncio.sleep(10)
        return "paid"

    async def main() -> int:
        async with guard.session("user-17", tools=["pay"], max_calls=5) as session:
            task = asyncio.ensure_future(pay(5))
            while not gate.entered:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.name = ""
            return session.remaining_calls

    left = asyncio.run(main())
    assert len(calls) == ran
    written = [event.outcome.value for event in trail.events]
    assert written == outcomes
    assert left == (4 if "authorized" in written else 5)


def test_an_interrupt_in_the_tool_is_unknown() -> None:
    """A KeyboardInterrupt in the middle of a tool passes through, and its outcome is unknown."""
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}))

    @guard.tool
    def pay(amount: int) -> str:
        raise KeyboardInterrupt

    with guard.session("user-17", tools=["pay"]), pytest.raises(KeyboardInterrupt):
        pay(5)
    assert [(e.outcome.value, e.code) for e in guard.audit.events] == [("authorized", None), ("unknown", "cancelled")]


def test_the_loop_is_never_blocked() -> None:
    """While a store waits for its disk, other tasks of the loop go on."""
    store, trail = SlowStore(), SlowTrail(32)
    store.gate = trail.gate = Gate("commit")
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}), store=store, audit=trail)
    ticks: list[bool] = []

    @guard.tool
    def pay(amount: int) -> str:
        return "paid"

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.002)
            ticks.append(store.gate.entered)

    async def main() -> None:
        ticking = asyncio.ensure_future(tick())
        async with guard.session("user-17", tools=["pay"]):
            await guard.acall("pay", {"amount": 1})
        ticking.cancel()

    asyncio.run(main())
    assert sum(ticks) >= 3

"""What the store in memory lets go of, so that a process that runs for months keeps its size."""

from __future__ import annotations

import gc
from collections.abc import Sized
from typing import Any

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.ground.errors import HumanApprovalRequired, Unauthorized
from guarded_core.rules.kinds import DenyAfter
from guarded_core.session import ToolExecutionContext
from guarded_core.store.base import Settlement
from guarded_core.store.ledger import CallState
from guarded_core.store.memory import MemoryStore

HOUR = 3600 * 1_000_000_000


def kept(store: MemoryStore) -> dict[str, int]:
    """How much is in each of the store's collections, but for the empty ones."""
    sizes = {name.lstrip("_"): len(value) for name, value in vars(store).items() if isinstance(value, Sized)}
    return {name: size for name, size in sizes.items() if size}


class Clock:
    def __init__(self) -> None:
        self.now_ns = 24 * HOUR

    def __call__(self) -> int:
        return self.now_ns


def house(store: MemoryStore) -> Guard:
    """A guard in front of a tool that leaves a trace of every kind in its session."""
    settings = {"look": ToolSettings(risk="read_only", max_calls=5), "pay": "financial", "hidden": "read_only"}
    guard = Guard(ToolExecutionPolicy(settings, rules=[DenyAfter(tool="hidden", after="look")]), store=store)

    @guard.tool
    def look() -> str:
        """Looks."""
        return "seen"

    @guard.tool
    def pay(amount: int) -> str:
        """Pays."""
        return "paid"

    @guard.tool
    def hidden() -> None:
        """Not for this session."""

    return guard


def use(guard: Guard, context: ToolExecutionContext) -> None:
    """One allowed call, one after an approval, one refused."""
    guard.call("look", {}, context=context)
    try:
        guard.call("pay", {"amount": 1}, context=context)
    except HumanApprovalRequired as asked:
        guard.approvals.decide(str(asked.request_id), by="lee", approve=True)
    guard.call("pay", {"amount": 1}, context=context)
    try:
        guard.call("hidden", {}, context=context)
    except Unauthorized:
        return


def test_session_without_a_name_is_forgotten_with_its_context() -> None:
    """Budgets, flags, used approvals and denials of a session that nobody holds any more go with the next step."""
    store = MemoryStore()
    guard = house(store)
    for _ in range(5):
        parent = guard.session("ann", tools=["look", "pay"])
        use(guard, parent)
        use(guard, parent.delegate("helper", tools=["look", "pay"], max_calls=5))
    del parent
    gc.collect()
    context = guard.session("bob", tools=["look"])
    assert context.remaining_calls == 100
    assert kept(store) == {}


def test_session_with_a_name_stays() -> None:
    """What a named session has spent is spent when it is picked up again."""
    store = MemoryStore()
    guard = house(store)
    guard.call("look", {}, context=guard.session("ann", tools=["look"], session_id="s", max_calls=3))
    gc.collect()
    guard.session("bob", tools=["look"])
    assert guard.session("ann", tools=["look"], session_id="s", max_calls=3).remaining_calls == 2


def test_session_in_use_is_not_forgotten() -> None:
    """A context that is held keeps its budget, whatever else is forgotten meanwhile, closed or not."""
    store = MemoryStore()
    guard = house(store)
    with guard.session("ann", tools=["look"], max_calls=3) as context:
        guard.call("look", {})
    guard.session("bob", tools=["look"])
    gc.collect()
    guard.session("bob", tools=["look"])
    assert context.remaining_calls == 2


def test_pending_request_outlives_its_session() -> None:
    """A person can still see what they were asked, until it expires."""
    store = MemoryStore()
    guard = house(store)
    try:
        guard.call("pay", {"amount": 1}, context=guard.session("ann", tools=["pay"]))
    except HumanApprovalRequired:
        gc.collect()
    guard.session("bob", tools=["look"])
    assert [request.principal for request in guard.approvals.pending()] == ["ann"]


def test_forgetting_takes_no_lock() -> None:
    """The garbage collector may run while this very thread holds the store's lock."""
    store = MemoryStore()
    with store._lock:
        store.forget("ann#1", ["calls:ann#1"])
    assert kept(store) == {"gone": 1}


def test_windows_that_are_over_are_swept(sample: Any) -> None:
    """Windows nobody takes from any more do not pile up, and those that still count stay."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    for number in range(1023):
        store.commit(sample.change(slots=(sample.slot(f"old{number}", "1", "1"),)))
    clock.now_ns += HOUR
    store.commit(sample.change(slots=(sample.slot("new", "1", "1"),)))
    assert kept(store) == {"windows": 1}


def test_requests_that_expired_are_swept(sample: Any) -> None:
    """Requests that nobody can decide any more do not pile up."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    requests: list[ApprovalRequest] = [sample.request(store, session_id=f"s{number}") for number in range(1024)]
    for request in requests[:-1]:
        store.add_request(request, max_pending=1)
    clock.now_ns += HOUR
    store.add_request(sample.request(store, session_id="live"), max_pending=1)
    assert [request.session_id for request in store.requests(state=RequestState.PENDING)] == ["live"]
    assert kept(store) == {"requests": 1, "by_session": 1}


def test_outputs_that_expired_are_dropped(sample: Any) -> None:
    """The ledger remembers for ever that a call ran, and what it returned only as long as it said."""
    clock = Clock()
    store = MemoryStore(clock=clock)
    first, second = (sample.claiming(f"key{n}") for n in range(2))
    for change in (first, second):
        store.commit(change)
        store.settle(
            Settlement(event=sample.end(change), claimed=True, state=CallState.DONE, output={"n": 1}, keep_ns=HOUR)
        )
        clock.now_ns += HOUR
    entries = [store.entry(change.event.call_id) for change in (first, second)]
    assert [entry and (entry.state, entry.output) for entry in entries] == [
        (CallState.DONE, None),
        (CallState.DONE, {"n": 1}),
    ]
    assert kept(store) == {"ledger": 2, "claims": 2, "outputs": 1}

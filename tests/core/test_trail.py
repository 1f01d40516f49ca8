"""One face for every trail: in memory, in a file, in a database; `guard.trail` is always there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    AuditEvent,
    DurableToolAuditTrail,
    Guard,
    InMemoryToolAuditTrail,
    MemoryStore,
    Outcome,
    TeeSink,
    ToolAuditTrailError,
    ToolExecutionError,
    ToolExecutionPolicy,
    Trail,
)
from guarded_core.audit.durable import FileTrail
from guarded_core.audit.trail import Filter

POLICY = ToolExecutionPolicy({"look": "read_only", "charge": "mutating"})


class Kept:
    """A trail of one kind, and how an event comes into it."""

    def __init__(self, trail: Trail, append: Callable[[AuditEvent], None]) -> None:
        self.trail = trail
        self.append = append


@pytest.fixture(params=["memory", "file", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Each kind of trail."""
    if request.param == "memory":
        memory = InMemoryToolAuditTrail(64)
        yield Kept(memory, memory.append)
    elif request.param == "file":
        with DurableToolAuditTrail.open(tmp_path / "audit.log") as durable:
            yield Kept(durable, durable.append)
    else:
        sql = pytest.importorskip("guarded_core.store.sql")
        with sql.SqlStore.open(f"sqlite:///{tmp_path}/guard.db") as store:
            yield Kept(store.trail(), store.record)


def event(n: int, outcome: Outcome, *, call: str = "", tool: str = "look", principal: str = "ann") -> AuditEvent:
    """The `n`-th event, `n` seconds after the epoch."""
    return AuditEvent(
        outcome=outcome, time_ns=n * 10**9, call_id=call or f"call-{n}", tool=tool, principal=principal, session_id="s"
    )


def code_of(action: Callable[[], Any]) -> str:
    """The code of the ToolAuditTrailError that `action` raises."""
    with pytest.raises(ToolAuditTrailError) as raised:
        action()
    return raised.value.code


@pytest.fixture
def five(kept: Kept) -> list[AuditEvent]:
    """Three calls: one ended, one denied, one without an end."""
    given = [
        event(1, Outcome.AUTHORIZED, call="a"),
        event(2, Outcome.SUCCEEDED, call="a"),
        event(3, Outcome.DENIED, tool="charge", principal="bob"),
        event(4, Outcome.AUTHORIZED, call="b", tool="charge"),
        event(5, Outcome.NOTED, call="b", tool="charge"),
    ]
    for one in given:
        kept.append(one)
    return given


# One face


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"principal": "bob"}, [3]),
        ({"tool": "charge"}, [3, 4, 5]),
        ({"outcome": Outcome.AUTHORIZED}, [1, 4]),
        ({"outcome": "authorized"}, [1, 4]),
        ({"outcome": [Outcome.SUCCEEDED, Outcome.DENIED]}, [2, 3]),
        ({"call_id": "b"}, [4, 5]),
        ({"since_ns": 3 * 10**9}, [3, 4, 5]),
        ({"last": 2}, [4, 5]),
        ({"last": 0}, []),
        ({"tool": "charge", "last": 1, "outcome": Outcome.AUTHORIZED}, [4]),
        ({"tool": "nothing"}, []),
    ],
)
def test_events_are_found_by_the_same_filters(
    kept: Kept, five: list[AuditEvent], wanted: dict[str, Any], numbers: list[int]
) -> None:
    """Every trail gives the same events for the same filter, oldest first."""
    assert list(kept.trail.events(**wanted)) == [five[number - 1] for number in numbers]


def test_what_every_trail_says_of_itself(kept: Kept, five: list[AuditEvent]) -> None:
    """How many, the newest with their numbers, all in order, those without an end, and that nothing was changed."""
    trail = kept.trail
    assert len(trail) == 5
    assert list(trail) == five
    assert trail.recent == tuple(enumerate(five, 1))
    assert trail.unsettled() == (five[3],)
    assert trail.verify().records == 5
    assert all(isinstance(line, str) for line in trail.verify().lines)
    assert code_of(lambda: trail.events(outcome="gone")) == "invalid_filter"  # type: ignore[arg-type]
    assert code_of(lambda: trail.events(last=-1)) == "invalid_filter"


def test_recent_numbers_are_places_in_the_whole_trail(kept: Kept) -> None:
    """Of 30 events the newest twenty are shown, as 11 to 30."""
    for n in range(1, 31):
        kept.append(event(n, Outcome.NOTED))
    assert [number for number, _ in kept.trail.recent] == list(range(11, 31))
    assert [number for number, _ in kept.trail.numbered(Filter(last=3))] == [28, 29, 30]


def test_heads_are_anchors(kept: Kept, five: list[AuditEvent]) -> None:
    """What a trail's heads pin, it verifies against; a head of another trail is not taken."""
    heads = kept.trail.heads()
    kept.append(event(6, Outcome.NOTED))
    assert kept.trail.verify(heads).records == 6
    assert bool(heads) is not isinstance(kept.trail, InMemoryToolAuditTrail)


def test_an_anchor_of_another_trail_is_refused(kept: Kept, five: list[AuditEvent], tmp_path: Path) -> None:
    """No trail verifies against a head that is not its own."""
    with DurableToolAuditTrail.open(tmp_path / "other.log") as other:
        other.append(event(1, Outcome.NOTED))
        (head,) = other.heads()
    assert code_of(lambda: kept.trail.verify([head])) in ("head_mismatch", "truncated")


# A person's word


def test_a_call_without_an_end_gets_its_one(kept: Kept, five: list[AuditEvent]) -> None:
    """What somebody found out is the terminal event, with who and why, and is said once."""
    said = kept.trail.reconcile("b", Outcome.FAILED, by="lee", reason="asked the bank")
    assert (said.outcome, said.code, said.tool, said.principal) == (Outcome.FAILED, "reconciled", "charge", "ann")
    assert (said.approved_by, said.approval_reason) == (("lee",), "asked the bank")
    assert list(kept.trail.events(call_id="b"))[-1] == said
    assert kept.trail.unsettled() == ()
    for outcome in Outcome.FAILED, Outcome.SUCCEEDED, Outcome.UNKNOWN:
        again = code_of(lambda outcome=outcome: kept.trail.reconcile("b", outcome, by="lee", reason="again"))  # type: ignore[misc]
        assert again == "not_unsettled"


@pytest.mark.parametrize("by_whom", ["the call itself", "a person"])
def test_an_unknown_outcome_can_be_found_out_once(kept: Kept, five: list[AuditEvent], by_whom: str) -> None:
    """An Authorized event has exactly one terminal event: what is found out after an Unknown one is noted."""
    if by_whom == "a person":
        kept.trail.reconcile("b", Outcome.UNKNOWN, by="lee", reason="the bank is closed")
    else:
        kept.append(event(6, Outcome.UNKNOWN, call="b", tool="charge"))
    assert code_of(lambda: kept.trail.reconcile("b", Outcome.UNKNOWN, by="lee", reason="x")) == "not_unsettled"
    said = kept.trail.reconcile("b", Outcome.SUCCEEDED, by="lee", reason="asked the bank")
    assert (said.outcome, said.code) == (Outcome.NOTED, "reconciled_succeeded")
    again = code_of(lambda: kept.trail.reconcile("b", Outcome.FAILED, by="ann", reason="no"))
    assert again == "not_unsettled"
    ends = [one for one in kept.trail.events(call_id="b") if one.outcome.is_terminal]
    assert len(ends) == 1


@pytest.mark.parametrize("call_id", ["a", "call-3", "nothing"])
def test_only_a_call_in_doubt_is_reconciled(kept: Kept, five: list[AuditEvent], call_id: str) -> None:
    """Not one that ended, not one that was denied, not one that nobody made."""
    code = code_of(lambda: kept.trail.reconcile(call_id, Outcome.FAILED, by="lee", reason="x"))
    assert code == "not_unsettled"
    assert len(kept.trail) == 5


@pytest.mark.parametrize(
    ("outcome", "by", "reason"),
    [
        (Outcome.DENIED, "lee", "x"),
        (Outcome.NOTED, "lee", "x"),
        (Outcome.FAILED, " ", "x"),
        (Outcome.FAILED, "lee", " "),
        (Outcome.FAILED, "l" * 300, "x"),
    ],
)
def test_a_word_has_an_outcome_a_person_and_a_reason(
    kept: Kept, five: list[AuditEvent], outcome: Outcome, by: str, reason: str
) -> None:
    """Anything else is refused, and the call stays without an end."""
    assert code_of(lambda: kept.trail.reconcile("b", outcome, by=by, reason=reason)) == "invalid_event"
    assert kept.trail.unsettled() == (five[3],)


def test_two_people_at_once_leave_one_end(kept: Kept, five: list[AuditEvent]) -> None:
    """Of eight that reconcile a call at the same time, one is heard."""
    start, told, refused = threading.Barrier(8), [], []

    def say(n: int) -> None:
        start.wait()
        try:
            told.append(kept.trail.reconcile("b", Outcome.FAILED, by=f"person-{n}", reason="x"))
        except ToolAuditTrailError as error:
            refused.append(error.code)

    people = [threading.Thread(target=say, args=(n,)) for n in range(8)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert (len(told), refused) == (1, ["not_unsettled"] * 7)
    assert [one for one in kept.trail.events(call_id="b") if one.outcome.is_terminal] == told


def test_a_word_is_the_delegated_callers_too(kept: Kept) -> None:
    """In whose name a subagent called is in the event that ends its call."""
    begun = AuditEvent(
        outcome=Outcome.AUTHORIZED,
        time_ns=1,
        call_id="sub",
        tool="charge",
        principal="subagent",
        on_behalf_of=("ann",),
        session_id="s",
    )
    kept.append(begun)
    assert kept.trail.reconcile("sub", Outcome.FAILED, by="lee", reason="x").on_behalf_of == ("ann",)


def test_a_file_is_read_and_reconciled_by_path(tmp_path: Path) -> None:
    """A trail that nobody writes is read without a lock, and opened only for somebody's word; none is begun."""
    path = tmp_path / "audit.log"
    assert code_of(lambda: FileTrail(path).reconcile("b", Outcome.FAILED, by="lee", reason="x")) == "no_trail"
    assert not path.exists()
    with DurableToolAuditTrail.open(path) as trail:
        trail.append(event(1, Outcome.AUTHORIZED, call="b"))
        found = FileTrail(path)
        assert [one.call_id for one in found.unsettled()] == ["b"]
        assert code_of(lambda: found.reconcile("b", Outcome.FAILED, by="lee", reason="x")) == "locked"
        assert code_of(lambda: found.append(event(2, Outcome.NOTED))) == "read_only"
    found.reconcile("b", Outcome.FAILED, by="lee", reason="x")
    assert [one.outcome for one in found] == [Outcome.AUTHORIZED, Outcome.FAILED]
    assert len(found) == 2


# guard.trail


def denied(guard: Guard) -> None:
    """One event: a call that is refused."""
    with guard.session("ann", tools=["look"]), pytest.raises(ToolExecutionError):
        guard.call("charge", {})


def test_a_guard_has_a_trail_wherever_it_is(tmp_path: Path) -> None:
    """In memory by default, in a file, in the store, behind a tee: the same face, with the same event."""
    pytest.importorskip("sqlalchemy")
    beside = InMemoryToolAuditTrail()
    settings: list[dict[str, Any]] = [
        {},
        {"audit": tmp_path / "audit.log"},
        {"store": f"sqlite:///{tmp_path}/a.db"},
        {"store": f"sqlite:///{tmp_path}/b.db", "audit": beside},
        {"audit": TeeSink(Elsewhere(), InMemoryToolAuditTrail())},
    ]
    for given in settings:
        with Guard(POLICY, **given) as guard:
            denied(guard)
            (only,) = guard.trail.events(outcome=Outcome.DENIED)
            assert (only.principal, only.code) == ("ann", "unauthorized")
            assert guard.trail.recent == ((1, only),)
            assert isinstance(guard.trail, Trail)
    assert [one.code for one in beside.events()] == ["unauthorized"]


class Elsewhere:
    """A sink that only takes."""

    def __init__(self) -> None:
        self.taken: list[AuditEvent] = []

    def append(self, event: AuditEvent) -> None:
        """Keep it where nobody looks."""
        self.taken.append(event)


def test_a_sink_that_shows_nothing_says_so() -> None:
    """Its guard has a trail, which says where the events are instead of seeming empty."""
    sink = Elsewhere()
    guard = Guard(POLICY, audit=sink)
    denied(guard)
    assert len(sink.taken) == 1
    asked: list[Callable[[], Any]] = [
        lambda: list(guard.trail.events()),
        lambda: len(guard.trail),
        lambda: guard.trail.recent,
        guard.trail.unsettled,
        guard.trail.verify,
        guard.trail.heads,
        lambda: guard.trail.reconcile("b", Outcome.FAILED, by="lee", reason="x"),
    ]
    assert {code_of(one) for one in asked} == {"write_only"}
    assert "Elsewhere" in repr(guard.trail)


def test_events_of_a_trail_in_memory_are_a_tuple_for_one_more_release() -> None:
    """What was written for the property goes on working, beside the call."""
    guard = Guard(POLICY, store=MemoryStore())
    denied(guard)
    trail = guard.trail
    assert isinstance(trail, InMemoryToolAuditTrail)
    assert trail.events == tuple(trail.events())
    assert len(trail.events) == 1


def test_what_is_not_closed_is_counted_as_people_say_it(tmp_path: Path) -> None:
    """One writer is at work, two are; a store that all have closed says nothing of it."""
    sql = pytest.importorskip("guarded_core.store.sql")
    url = f"sqlite:///{tmp_path}/guard.db"
    with sql.SqlStore.open(url) as store:
        store.record(event(1, Outcome.NOTED))
        (_, line) = store.trail().verify().lines
        assert line.startswith("not closed: 1 of the writers is at work, or died")
        with sql.SqlStore.open(url) as other:
            other.record(event(2, Outcome.NOTED))
            assert "2 of the writers are at work" in other.trail().verify().lines[1]
    with sql.SqlStore.open(url) as store:
        assert len(store.trail().verify().lines) == 1

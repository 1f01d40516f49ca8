"""The audit trail of a SQL store: what is written, found and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import sqlalchemy as sa

from guarded_core.audit.chain import Head, plain_seal
from guarded_core.audit.event import Outcome
from guarded_core.audit.frames import parse_header
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.store.base import Conflict, Settlement
from guarded_core.store.ledger import CallState
from guarded_core.store.sql import SqlStore, tables, trail

KEY, OLD_KEY = b"k" * 32, b"o" * 32
OpenStore = Callable[..., SqlStore]


def test_events_are_written_with_what_they_say(sql_store: SqlStore, sample: Any) -> None:
    """Each method that changes something writes its event, whole; a conflict writes none."""
    store = sql_store
    change = sample.change(
        counters={"c": 1}, event=sample.event(rules=("a", "b"), on_behalf_of=("root",), payload_digest="d")
    )
    store.commit(change)
    with pytest.raises(Conflict):
        store.commit(sample.change(counters={"c": 1}))
    store.record(sample.event(Outcome.NOTED, time_ns=2))
    end = sample.end(change, time_ns=3, error_type="ValueError")
    store.settle(Settlement(event=end, claimed=False, state=CallState.DONE))
    denied = sample.event(Outcome.DENIED, time_ns=4, code="policy_denied")
    for _ in range(10):
        store.deny(denied, sample.root_id)
    events = list(store.trail())
    assert events[0] == change.event
    assert events[2] == end
    assert [event.count for event in events[3:]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(store.trail()) == len(events)


def test_released_call_ends_on_record(sql_store: SqlStore, sample: Any) -> None:
    """A call that was given back has its Failed event, with the code, and is not unsettled."""
    change = sample.change(counters={"c": 1})
    sql_store.commit(change)
    sql_store.release(change)
    events = [(event.call_id, event.outcome, event.code) for event in sql_store.trail()]
    call_id = change.event.call_id
    assert events == [(call_id, Outcome.AUTHORIZED, None), (call_id, Outcome.FAILED, "audit_unavailable")]
    assert sql_store.trail().unsettled() == ()


@pytest.mark.parametrize("ends", [["succeeded", "failed"], ["failed", "failed"], ["unknown", "failed", "succeeded"]])
def test_known_outcome_stays(sql_store: SqlStore, sample: Any, ends: list[str]) -> None:
    """An unknown outcome may become known once; a known one is never contradicted, nor told twice."""
    change = sample.claiming("a")
    sql_store.commit(change)
    states = {"succeeded": CallState.DONE, "failed": CallState.NOT_EXECUTED, "unknown": CallState.UNKNOWN}
    for end in ends[:-1]:
        sql_store.settle(Settlement(event=sample.end(change, Outcome(end)), claimed=True, state=states[end]))
    with pytest.raises(ToolAuditTrailError) as caught:
        sql_store.settle(Settlement(event=sample.end(change, Outcome(ends[-1])), claimed=True, state=states[ends[-1]]))
    assert caught.value.code == "already_ended"
    entry = sql_store.load(sample.query(call_key="a")).entry
    assert entry is not None
    assert entry.state is states[ends[-2]]
    assert [event.outcome.value for event in sql_store.trail()] == ["authorized", *ends[:-1]]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
@pytest.mark.parametrize(
    ("end", "state"), [(Outcome.FAILED, CallState.RAISED), (Outcome.SUCCEEDED, CallState.UNUSABLE)], ids=str
)
def test_a_call_that_only_the_ledger_doubts_is_reconciled(
    sql_store: SqlStore, sample: Any, end: Outcome, state: CallState, outcome: str
) -> None:
    """It ended on record, and nobody knows what it did: a person's word is noted, once, and moves the ledger."""
    change = sample.claiming("a")
    sql_store.commit(change)
    sql_store.settle(Settlement(event=sample.end(change, end), claimed=True, state=state))
    trail, call_id = sql_store.trail(), change.event.call_id
    said = trail.reconcile(call_id, Outcome(outcome), by="lee", reason="asked the bank")
    assert (said.outcome, said.code, said.approved_by) == (Outcome.NOTED, f"reconciled_{outcome}", ("lee",))
    assert list(trail)[-1] == said
    entry = sql_store.entry(call_id)
    assert entry is not None
    assert entry.state is {"succeeded": CallState.DONE, "failed": CallState.NOT_EXECUTED}[outcome]
    with pytest.raises(ToolAuditTrailError) as caught:
        trail.reconcile(call_id, Outcome.FAILED, by="ann", reason="no")
    assert caught.value.code == "not_unsettled"


def test_unsettled_calls_are_named(sql_store: SqlStore, sample: Any) -> None:
    """Authorized calls without an end are reported, oldest first; suspended ones among them, denied ones not."""
    changes = [sample.change(event=sample.event(time_ns=n)) for n in (3, 1, 2, 4)]
    for change in changes:
        sql_store.commit(change)
    sql_store.settle(Settlement(event=sample.end(changes[2], Outcome.UNKNOWN), claimed=False, state=CallState.UNKNOWN))
    sql_store.record(sample.end(changes[3], Outcome.SUSPENDED))
    sql_store.deny(sample.event(Outcome.DENIED), sample.root_id)
    assert sql_store.trail().unsettled() == (changes[1].event, changes[0].event, changes[3].event)


def test_trail_is_filtered_and_paged(sql_store: SqlStore, sample: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of all writers come oldest first, however they are paged, and only those that were asked for."""
    monkeypatch.setattr(trail, "PAGE", 3)
    outcomes = [Outcome.NOTED, Outcome.AUTHORIZED]
    written = [
        sample.event(outcomes[n % 2], time_ns=n // 3, tool=f"t{n % 4}", principal=f"p{n % 3}") for n in range(20)
    ]
    for event in written:
        sql_store.record(event)

    def found(**wanted: Any) -> list[str]:
        return [event.call_id for event in sql_store.trail().events(**wanted)]

    def expected(fits: Callable[[Any], bool]) -> list[str]:
        return [event.call_id for event in written if fits(event)]

    assert found() == expected(lambda event: True)
    assert found(principal="p1") == expected(lambda event: event.principal == "p1")
    assert found(tool="t3", outcome=Outcome.AUTHORIZED) == expected(lambda event: event.tool == "t3")
    assert found(tool="t2", outcome=Outcome.AUTHORIZED) == []
    assert found(since_ns=3) == expected(lambda event: event.time_ns >= 3)
    assert found(call_id=written[7].call_id) == [written[7].call_id]
    assert found(outcome=[]) == found(outcome=outcomes) == found()
    assert found(outcome=[Outcome.NOTED, Outcome.DENIED], tool="t2") == expected(lambda event: event.tool == "t2")
    assert found(last=4) == found()[-4:]
    assert found(last=5, principal="p1", since_ns=3) == found(principal="p1", since_ns=3)[-5:]
    assert found(last=99) == found()
    assert sql_store.trail().verify().records == 20


def test_a_trail_shows_its_newest_events(sql_store: SqlStore, sample: Any) -> None:
    """As a table, numbered by their place in the whole."""
    for n in range(23):
        sql_store.record(sample.event(Outcome.NOTED, time_ns=n, tool=f"tool-{n}"))
    html = sql_store.trail()._repr_html_()
    assert "the newest 20 of 23 events" in html
    assert [f"tool-{n}<" in html for n in range(23)] == [False] * 3 + [True] * 20
    assert repr(sql_store.trail()) == repr(sql_store).replace("SqlStore", "SqlTrail")


def written_trail(url: str, sample: Any, **options: Any) -> list[Head]:
    """The heads of a trail of two writers with three events each, in a closed store."""
    for _ in range(2):
        with SqlStore.open(url, **options) as store:
            for n in range(3):
                store.record(sample.event(time_ns=n, principal=f"p{n}"))
    with SqlStore.open(url, **options) as store:
        return list(store.trail().verify().heads)


EVENTS, WRITERS = "UPDATE guarded_events SET", "UPDATE guarded_writers SET"
TAMPERING = {
    "nothing": ([], None),
    "edited": ([f"{EVENTS} line = replace(line, 'p1', 'p9'), principal = replace(principal, 'p1', 'p9')"], "corrupt"),
    "hidden from filters": ([f"{EVENTS} principal = 'p9' WHERE writer = 2 AND seq = 3"], "corrupt"),
    "made unsettled": ([f"{EVENTS} call_id = 'x' WHERE writer = 1 AND seq = 1"], "corrupt"),
    "removed": (["DELETE FROM guarded_events WHERE writer = 1 AND seq = 2"], "corrupt"),
    "cut": (["DELETE FROM guarded_events WHERE writer = 1 AND seq = 3"], "truncated"),
    "swapped": ([f"{EVENTS} seq = seq + 10 WHERE writer = 1 AND seq = 1"], "corrupt"),
    "chains swapped": (
        [f"{EVENTS} writer = {to} WHERE writer = {of}" for of, to in ((1, 9), (2, 1), (9, 2))],
        "corrupt",
    ),
    "writer removed": (
        [f"DELETE FROM guarded_{of} = 1" for of in ("events WHERE writer", "writers WHERE n")],
        "corrupt",
    ),
    "last writer forgotten": (["DELETE FROM guarded_writers WHERE n = 2"], "unknown_writer"),
    "writer renamed": ([f"{WRITERS} id = 'x' WHERE n = 1"], "corrupt"),
    "chain replaced": ([f"{WRITERS} header = (SELECT header FROM guarded_writers WHERE n = 0) WHERE n = 1"], "corrupt"),
    "head changed": ([f"""{WRITERS} head = replace(head, '"count":3', '"count":2')"""], "head_invalid"),
}


@pytest.mark.parametrize("keys", [None, KEY], ids=["plain", "keyed"])
@pytest.mark.parametrize(("statements", "code"), TAMPERING.values(), ids=TAMPERING)
def test_changes_of_the_trail_are_found(
    url: str,
    open_store: OpenStore,
    sample: Any,
    statements: list[str],
    code: str | None,
    keys: bytes | None,
    run: Any,
    fault: Any,
) -> None:
    """Events that were edited, removed, moved or cut from a closed chain, and writers that were, are found."""
    written_trail(url, sample, keys=keys)
    run(url, *statements)
    assert fault(open_store(url, keys=keys)) == code


CUTS = {
    "open chain cut": [f"{WRITERS} head = NULL", "DELETE FROM guarded_events WHERE writer = 1 AND seq = 3"],
    "last writer removed": ["DELETE FROM guarded_events WHERE writer = 2", "DELETE FROM guarded_writers WHERE n = 2"],
    "all removed": ["DELETE FROM guarded_events", "DELETE FROM guarded_writers"],
}


@pytest.mark.parametrize("statements", CUTS.values(), ids=CUTS)
def test_cuts_are_found_by_heads_kept_elsewhere(
    url: str, open_store: OpenStore, sample: Any, statements: list[str], run: Any, fault: Any
) -> None:
    """What the database alone cannot show, because its last records are gone, a head kept elsewhere shows."""
    heads = written_trail(url, sample, keys=KEY)
    store = open_store(url, keys=KEY)
    assert fault(store, *heads) is None
    run(url, *statements)
    assert fault(store) is None
    assert fault(store, *heads) == "truncated"


def test_a_chain_is_not_replaced_by_one_of_its_name(url: str, open_store: OpenStore, sample: Any, fault: Any) -> None:
    """Without keys anybody can seal a new chain; that it is not the one that was registered shows all the same."""
    written_trail(url, sample)
    store = open_store(url)
    row = store._database.read(sa.select(tables.writers).where(tables.writers.c.n == 1))[0]
    begun, _ = parse_header(row.header.encode())
    line, _ = replace(begun, created_ns=0).encode(b"-", plain_seal)
    with store._database.engine.begin() as connection:
        connection.execute(sa.delete(tables.events).where(tables.events.c.writer == 1))
        connection.execute(
            sa.update(tables.writers).where(tables.writers.c.n == 1).values(header=line[:-1].decode(), head=None)
        )
    assert fault(store) == "corrupt"


def test_chains_go_on_past_a_head(url: str, open_store: OpenStore, sample: Any, fault: Any) -> None:
    """A head of an open chain stays true while events and writers are added; another store's head does not fit."""
    store = open_store(url, keys=KEY)
    store.record(sample.event())
    heads = store.trail().verify().heads
    assert [json.loads(str(head))["closed"] for head in heads] == [False, False]
    store.record(sample.event())
    open_store(url, keys=KEY).record(sample.event())
    assert fault(store, *heads) is None
    assert fault(store, replace(heads[1], trail="another").sealed(store._keys, **position(heads[1]))) == "truncated"


def position(head: Head) -> dict[str, Any]:
    """Where a head is, as `Head.sealed` takes it, in a trail of another name."""
    return {"trail": "another", "segment": 1, "count": head.count, "digest": head.digest}


def test_archived_chains_are_passed_over(url: str, open_store: OpenStore, sample: Any, run: Any, fault: Any) -> None:
    """Where the records of old writers were archived, verification begins after them; their registration stays."""
    heads = written_trail(url, sample)
    store = open_store(url)
    run(url, "DELETE FROM guarded_events WHERE writer = 1")
    assert fault(store, *heads) == "truncated"
    found = store.trail().verify(heads, first_writer=2)
    assert (found.records, found.writers, found.heads) == (3, 1, (heads[0], heads[2]))
    run(url, "DELETE FROM guarded_writers WHERE n = 1")
    with pytest.raises(ToolAuditTrailError, match="record 1 is damaged or missing"):
        store.trail().verify(first_writer=2)


def test_verification_names_open_chains(url: str, open_store: OpenStore, sample: Any) -> None:
    """The chains of writers that are at work, or died, are counted; progress is told."""
    written_trail(url, sample)
    store = open_store(url)
    store.record(sample.event())
    told: list[tuple[int, int]] = []
    found = store.trail().verify(progress=lambda done, total: told.append((done, total)))
    assert (found.records, found.writers, found.open) == (7, 3, 1)
    assert told == [(3, 7), (6, 7), (7, 7)]


def test_keys_are_rotated(url: str, open_store: OpenStore, sample: Any, fault: Any) -> None:
    """New writers seal with the first key; all keys together verify, and a missing or needless one is told."""
    for keys in ([OLD_KEY], [KEY, OLD_KEY]):
        with SqlStore.open(url, keys=keys) as store:
            store.record(sample.event())
    assert fault(open_store(url, keys=[KEY, OLD_KEY])) is None
    assert fault(open_store(url, keys=KEY)) == "unknown_key"
    assert fault(open_store(url, keys=OLD_KEY)) == "unknown_key"
    assert fault(open_store(url)) == "unknown_key"


def test_trail_without_keys_proves_nothing_to_who_has_them(
    url: str, open_store: OpenStore, sample: Any, fault: Any
) -> None:
    """Records that anybody could have written are refused where keys are given."""
    written_trail(url, sample)
    assert fault(open_store(url, keys=KEY)) == "unkeyed"


def test_empty_trail_is_whole(sql_store: SqlStore) -> None:
    """A store that nobody wrote to has no events, no writers and no faults."""
    found = sql_store.trail().verify()
    assert (found.records, found.writers, found.open, found.heads) == (0, 0, 0, ())
    assert list(sql_store.trail()) == []
    assert sql_store.trail().unsettled() == ()

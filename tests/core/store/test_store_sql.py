"""What only a SQL store does: schema versions, other processes, retries, connections that break."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

import sqlalchemy as sa

from guarded_core.audit.event import Outcome
from guarded_core.ground.errors import GuardConfigurationError, StoreUnavailable, ToolAuditTrailError
from guarded_core.store.base import Conflict, SessionRecord, Settlement
from guarded_core.store.ledger import CallState
from guarded_core.store.sql import SqlStore, database, statements, tables
from guarded_core.store.sql import store as store_module

OpenStore = Callable[..., SqlStore]


def unpooled(url: str | sa.URL) -> sa.Engine:
    """The database without the store, and without connections that stay open."""
    return sa.create_engine(url, poolclass=sa.NullPool)


# Opening


def test_another_store_sees_everything(url: str, open_store: OpenStore, sample: Any) -> None:
    """What one store commits, requests and opens is there for another, and after all are closed."""
    record = SessionRecord(id=sample.session_id, principal="user-17", tools=frozenset({"refund"}), max_calls=5)
    with SqlStore.open(url) as first:
        first.open_session(record)
        request = sample.approved(first)
        slots = (sample.slot("w", "1", "2"),)
        change = sample.claiming("a", counters={"c": 2}, slots=slots, raises=frozenset({"f"}))
        first.commit(change)
    second = open_store(url)
    snapshot = second.load(sample.query(counters=("c",), windows=sample.windows(change), call_key="a"))
    assert (snapshot.spent, snapshot.used, snapshot.flags) == ({"c": 1}, {"w": 1}, {"f"})
    assert (snapshot.requests, snapshot.entry) == ((request,), change.claim)
    assert second.open_session(replace(record, max_calls=9)) == record


def test_newer_schema_is_refused(url: str, open_store: OpenStore, run: Any) -> None:
    """Tables that a newer release has written are not touched."""
    open_store(url)
    known = 1 + len(tables.MIGRATIONS)
    run(url, f"UPDATE guarded_schema SET version = {known + 1}")
    with pytest.raises(GuardConfigurationError, match=rf"schema version {known + 1}, and this release knows {known}"):
        SqlStore.open(url)


def test_older_schema_is_upgraded(
    url: str, open_store: OpenStore, sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older tables are brought up to date step by step, once, with what they hold; a failing step undoes them all."""
    open_store(url).commit(sample.change(counters={"c": 9}))

    def add_column(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE guarded_counters ADD COLUMN extra INTEGER")

    def rename(connection: sa.Connection) -> None:
        connection.exec_driver_sql("UPDATE guarded_counters SET extra = 7")
        if broken:
            connection.exec_driver_sql("SELECT nothing FROM nowhere")

    before = tables.MIGRATIONS
    monkeypatch.setattr(tables, "MIGRATIONS", [*before, add_column, rename])
    broken = True
    with pytest.raises(GuardConfigurationError, match="cannot be used"):
        SqlStore.open(url)
    with unpooled(url).connect() as connection:
        assert sa.inspect(connection).get_columns("guarded_counters")[-1]["name"] == "spent"
    broken = False
    for _ in range(2):
        store = open_store(url)
        assert store.load(sample.query(counters=("c",))).spent == {"c": 1}
    with unpooled(url).connect() as connection:
        assert connection.exec_driver_sql("SELECT version FROM guarded_schema").all() == [(len(before) + 3,)]
        assert connection.exec_driver_sql("SELECT extra FROM guarded_counters").all() == [(7,)]


def test_a_ledger_of_the_first_release_is_read(url: str, open_store: OpenStore, sample: Any, run: Any) -> None:
    """A call that an older release recorded as failed may have had its effect: it is not run again by itself."""
    store = open_store(url)
    change = sample.claiming("key", digest="whole")
    store.commit(change)
    body = 'REPLACE(body, \'"key":\', \'"twin_key":"t","key":\')'
    run(
        url,
        f"UPDATE guarded_ledger SET state = 'failed', body = {body}",
        "DROP INDEX guarded_ledger_unsettled",
        "CREATE INDEX guarded_ledger_open ON guarded_ledger (principal, tool) WHERE state IN ('unknown', 'claimed')",
        "ALTER TABLE guarded_sessions DROP COLUMN bounds",
        "DROP TABLE guarded_ended",
        "UPDATE guarded_schema SET version = 1",
    )
    snapshot = open_store(url).load(sample.query(call_key="key"))
    assert snapshot.entry == replace(change.claim, state=CallState.RAISED)
    assert snapshot.doubtful == {"whole": CallState.RAISED}
    with unpooled(url).connect() as connection:
        indexes = {index["name"] for index in sa.inspect(connection).get_indexes("guarded_ledger")}
    assert "guarded_ledger_unsettled" in indexes
    assert "guarded_ledger_open" not in indexes


def test_opening_at_once_is_safe(url: str) -> None:
    """Several that open an empty database at the same time all get a store, and the tables are made once."""
    barrier = threading.Barrier(4)

    def open_one(_: int) -> int:
        barrier.wait()
        with SqlStore.open(url) as store:
            return len(store.trail())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(open_one, range(4))) == [0] * 4


@pytest.mark.parametrize(
    "url",
    [
        "",
        "guard.db",
        "mysql://u:secret@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "redis://secret",
        "postgres:secret",
        "://",
    ],
)
def test_url_must_name_a_store(url: str) -> None:
    """Another database, none, or one in memory, of which every connection has its own, is the developer's mistake."""
    with pytest.raises(GuardConfigurationError) as caught:
        SqlStore.open(url)
    assert "secret" not in str(caught.value)


def test_file_that_cannot_be_opened(tmp_path: Path) -> None:
    """A path that is no file of this user's is the developer's mistake, told with the store's URL."""
    with pytest.raises(GuardConfigurationError) as caught:
        SqlStore.open(f"sqlite:///{tmp_path}/missing/guard.db")
    url = f"sqlite:///{tmp_path}/missing/guard.db"
    assert str(caught.value) == f"the store {url} cannot be opened to write (ENOENT)"


def test_store_needs_a_connection(sqlite_url: str) -> None:
    """A store that could never reach its database is not opened."""
    with pytest.raises(GuardConfigurationError):
        SqlStore.open(sqlite_url, connections=0)


def test_server_s_default_isolation_does_not_matter(postgres_url: str, open_store: OpenStore, sample: Any) -> None:
    """Where the server reads old snapshots by default, what a lock protects is read anew all the same."""
    serializable = postgres_url + "%20-cdefault_transaction_isolation%3Dserializable"
    store = open_store(serializable)
    with store._database.engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "read committed"
        assert connection.exec_driver_sql("SHOW default_transaction_isolation").scalar() == "serializable"


def test_password_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server that is not there is reported without the URL's password."""
    pytest.importorskip("psycopg")
    monkeypatch.setattr(database, "_PAUSES", ())
    with pytest.raises(GuardConfigurationError, match="postgresql://user@/db cannot be used") as caught:
        SqlStore.open(f"postgresql://user:secret@/db?host={tmp_path}&sslpassword=secret")
    assert "secret" not in str(caught.value)


def test_sqlite_file_is_private(sqlite_url: str, tmp_path: Path, open_store: OpenStore, sample: Any) -> None:
    """The database and the files beside it can be read by their owner only."""
    store = open_store(sqlite_url)
    store.commit(sample.change())
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_system_without_posix_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store opens where `os` lacks what only POSIX has; what it opens is not inherited by other programs anyway."""
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
        monkeypatch.delattr(os, name, raising=False)
    with SqlStore.open(f"sqlite:///{tmp_path}/guard.db") as store:
        assert store.now_ns() > 0
    assert repr(store) == "<SqlStore on SQLite>"


def test_clock_is_the_database_s(sqlite_url: str, open_store: OpenStore) -> None:
    """The clock counts ns since the epoch, to the millisecond on SQLite."""
    store = open_store(sqlite_url)
    before = time.time_ns()
    assert before - 1_000_000 <= store.now_ns() <= time.time_ns() + 1_000_000


def test_clock_never_stands_still(sql_store: SqlStore) -> None:
    """A later reading is later, inside a transaction too, since waiting for a lock takes time."""

    def twice(connection: sa.Connection) -> list[int]:
        readings = []
        for _ in range(2):
            readings.append(connection.execute(statements.clock).scalar_one())
            time.sleep(0.002)
        return readings

    first, second = sql_store._database.transact(twice)
    assert first < second


# Trying again


def test_deadlocks_are_tried_again(postgres_url: str, open_store: OpenStore, sample: Any) -> None:
    """Two transactions that wait for each other both get through: the one that the server ends is run again."""
    store, barrier, tries = open_store(postgres_url), threading.Barrier(2), []
    store.commit(sample.change(counters={"a": 9, "b": 9}))

    def cross(order: str) -> None:
        def work(connection: sa.Connection) -> None:
            tries.append(order)
            for n, key in enumerate(order):
                connection.exec_driver_sql(f"UPDATE guarded_counters SET spent = spent + 1 WHERE key = '{key}'")
                if n == 0 and len(tries) <= 2:
                    barrier.wait()

        store._database.transact(work)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(cross, ["ab", "ba"]))
    assert len(tries) == 3
    assert store.load(sample.query(counters=("a", "b"))).spent == {"a": 3, "b": 3}


def test_locked_file_is_tried_again(sqlite_url: str, tmp_path: Path, open_store: OpenStore, sample: Any) -> None:
    """A commit that finds the file locked for longer than SQLite waits is tried again."""
    store, failures = open_store(sqlite_url, timeout=0.5), []
    store.record(sample.event())
    blocker = sqlite3.connect(tmp_path / "guard.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    @sa.event.listens_for(store._database.engine, "handle_error")
    def note(context: sa.ExceptionContext) -> None:
        failures.append(str(context.original_exception))
        blocker.rollback()

    store.commit(sample.change(counters={"c": 1}))
    blocker.close()
    assert failures == ["database is locked"]
    assert store.load(sample.query(counters=("c",))).spent == {"c": 1}


def test_trying_again_ends(sqlite_url: str, tmp_path: Path, open_store: OpenStore, sample: Any, fault: Any) -> None:
    """A lock that does not go away is an error after the store's timeout, and nothing was taken."""
    store = open_store(sqlite_url, timeout=0.2)
    blocker = sqlite3.connect(tmp_path / "guard.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="somebody else keeps it locked"):
        store.commit(sample.change(counters={"c": 1}))
    blocker.close()
    assert store.load(sample.query(counters=("c",))).spent == {"c": 0}
    store.commit(sample.change(counters={"c": 1}))
    assert fault(store) is None


def lose_connection(store: SqlStore, *, before_commit: bool) -> list[str]:
    """Let the next COMMIT's connection break, right before the server hears of it or right after it obeyed."""
    lost: list[str] = []

    @sa.event.listens_for(store._database.engine, "commit")
    def commit(connection: sa.Connection) -> None:
        if lost:
            return
        raw: Any = connection.connection.driver_connection
        lost.append("lost")
        if not before_commit:
            raw.commit()
        with unpooled(store._database.engine.url).begin() as other:
            other.exec_driver_sql(f"SELECT pg_terminate_backend({raw.info.backend_pid}, 5000)")
        if not before_commit:
            connection.exec_driver_sql("SELECT 'the answer'")  # raises what a COMMIT without an answer would

    return lost


@pytest.mark.parametrize("before_commit", [True, False], ids=["not committed", "committed"])
def test_commit_whose_answer_is_lost(
    postgres_url: str, open_store: OpenStore, sample: Any, before_commit: bool
) -> None:
    """Where the connection breaks during COMMIT the call is taken once, whether the server had heard of it or not."""
    store = open_store(postgres_url)
    change = sample.claiming("key", counters={"c": 1}, slots=(sample.slot("w", "1", "1"),))
    store.record(sample.event(Outcome.NOTED))
    lost = lose_connection(store, before_commit=before_commit)
    store.commit(change)
    assert lost == ["lost"]
    store.settle(Settlement(event=sample.end(change), claimed=True, state=CallState.DONE))
    assert store.load(sample.query(counters=("c",), windows=sample.windows(change))).spent == {"c": 1}
    assert [event.outcome.value for event in store.trail()] == ["noted", "authorized", "succeeded"]
    assert store.trail().verify().writers == 1


@pytest.mark.parametrize("before_commit", [True, False], ids=["not committed", "committed"])
@pytest.mark.parametrize("method", ["settle", "deny", "record", "release"])
def test_other_events_whose_answer_is_lost(
    postgres_url: str, open_store: OpenStore, sample: Any, method: str, before_commit: bool, fault: Any
) -> None:
    """Every other event is written once too, and counted once."""
    store = open_store(postgres_url)
    change = sample.change(counters={"c": 1})
    store.commit(change)
    lost = lose_connection(store, before_commit=before_commit)
    if method == "settle":
        store.settle(Settlement(event=sample.end(change), claimed=False, state=CallState.DONE))
    elif method == "deny":
        assert store.deny(sample.event(Outcome.DENIED), sample.root_id) == 1
        assert store.load(sample.query()).denials == 1
    elif method == "record":
        store.record(sample.event(Outcome.NOTED))
    else:
        store.release(change)
        assert store.load(sample.query(counters=("c",))).spent == {"c": 0}
    assert lost == ["lost"]
    assert len(store.trail()) == 2
    assert fault(store) is None


def test_commit_that_stays_in_doubt(
    postgres_url: str, open_store: OpenStore, sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer never comes raises, is reported as unsettled, and leaves a store that goes on."""
    monkeypatch.setattr(database, "_PAUSES", ())
    store = open_store(postgres_url)
    store.record(sample.event(Outcome.NOTED))
    lose_connection(store, before_commit=False)
    lost, next_one = sample.change(counters={"c": 9}), sample.change(counters={"c": 9})
    with pytest.raises(StoreUnavailable):
        store.commit(lost)
    store.commit(next_one)
    assert store.load(sample.query(counters=("c",))).spent == {"c": 2}
    assert set(store.trail().unsettled()) == {lost.event, next_one.event}
    assert store.trail().verify().writers == 2


def test_lost_server_is_an_error(
    postgres_url: str, open_store: OpenStore, sample: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no connection can be made every method raises; afterwards the store goes on, with a chain of its own."""
    monkeypatch.setattr(database, "_PAUSES", (0.001,))
    store = open_store(postgres_url)
    store.commit(sample.change(counters={"c": 9}))

    def refuse(*_: Any) -> None:
        raise sa.exc.OperationalError("connect", None, Exception("refused"))

    store._database.engine.dispose()
    sa.event.listen(store._database.engine, "do_connect", refuse)
    for call in (
        lambda: store.commit(sample.change(counters={"c": 9})),
        lambda: store.load(sample.query()),
        lambda: store.record(sample.event()),
        store.now_ns,
    ):
        with pytest.raises(StoreUnavailable, match="no connection to its server can be made"):
            call()
    sa.event.remove(store._database.engine, "do_connect", refuse)
    store.commit(sample.change(counters={"c": 9}))
    assert store.load(sample.query(counters=("c",))).spent == {"c": 2}
    assert store.trail().verify().records == 2


def test_text_that_no_database_can_hold(postgres_url: str, open_store: OpenStore, sample: Any) -> None:
    """A name that PostgreSQL cannot keep (a NUL) is an error, so a denial, and takes nothing."""
    store = open_store(postgres_url)
    with pytest.raises(StoreUnavailable, match="DataError"):
        store.commit(sample.change(counters={"a": 9, "\0": 9}))
    assert store.load(sample.query(counters=("a",))).spent == {"a": 0}
    assert len(store.trail()) == 0


def test_one_bad_commit_leaves_the_others_alone(
    sqlite_url: str, open_store: OpenStore, sample: Any, fault: Any
) -> None:
    """Commits that SQLite takes together fail alone: a conflict or an error of one undoes nothing of another."""
    store, ready = open_store(sqlite_url), threading.Barrier(2)
    good = [sample.change(counters={"good": 9}) for _ in range(3)]
    bad = [sample.change(counters={"good": 9, "none": 0}), sample.change(event=sample.event(tool="x" * 1000))]

    def hold(connection: sa.Connection, writer: object) -> None:
        ready.wait()  # the file is locked
        while len(store._lanes._group._queue) < len(good) + len(bad):  # type: ignore[attr-defined]
            time.sleep(0.001)

    def commit(change: Any) -> str:
        try:
            store.commit(change)
        except (Conflict, ToolAuditTrailError) as error:
            return type(error).__name__
        return "taken"

    with ThreadPoolExecutor(6) as threads:
        holding = threads.submit(store._lanes.run, hold)
        ready.wait()
        answers = list(threads.map(commit, [good[0], bad[0], good[1], bad[1], good[2]]))
        holding.result()
    assert answers == ["taken", "Conflict", "taken", "ToolAuditTrailError", "taken"]
    assert store.load(sample.query(counters=("good", "none"))).spent == {"good": 3, "none": 0}
    assert [event.call_id for event in store.trail()] == [change.event.call_id for change in good]
    assert fault(store) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forked_child_writes_a_chain_of_its_own(sql_store: SqlStore, sample: Any) -> None:
    """After a fork, parent and child go on side by side, and neither's chain is broken."""
    sql_store.commit(sample.change(counters={"c": 9}))
    child = multiprocessing.get_context("fork").Process(
        target=sql_store.commit, args=(sample.change(counters={"c": 9}),)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    sql_store.commit(sample.change(counters={"c": 9}))
    assert sql_store.load(sample.query(counters=("c",))).spent == {"c": 3}
    found = sql_store.trail().verify()
    assert (found.records, found.writers) == (3, 2)


# Keeping house


def test_prune_deletes_what_has_expired(sql_store: SqlStore, sample: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired requests, windows and outputs go; budgets, claims and everything that is still live stay."""
    store = sql_store
    old, live = sample.request(store, expires_ns=1), sample.request(store)
    for request in (old, live):
        store.add_request(request, max_pending=9)
    changes = [sample.claiming(f"k{n}", counters={"c": 9}) for n in range(2)]
    for change, keep_ns in zip(changes, (1, 10**15), strict=True):
        store.commit(change)
        store.settle(
            Settlement(event=sample.end(change), claimed=True, state=CallState.DONE, output="paid", keep_ns=keep_ns)
        )
    windows = sample.change(
        slots=(
            *(sample.slot(key, "1", "9", interval_ns=1) for key in ("short", "brief")),
            sample.slot("long", "1", "9"),
        )
    )
    store.commit(windows)
    committed = store.now_ns()
    while store.now_ns() == committed:  # SQLite's clock has milliseconds: until it ticks, nothing has expired
        time.sleep(0.0005)
    monkeypatch.setattr(store_module, "_BATCH", 1)
    store.prune()
    assert store.requests() == [live]
    with store._database.engine.connect() as connection:
        assert connection.execute(sa.select(tables.slots.c.window)).scalars().all() == ["long"]
        assert connection.execute(sa.select(tables.windows.c.key)).scalars().all() == ["long"]
        outputs = connection.execute(sa.select(tables.ledger.c.output).order_by(tables.ledger.c.body)).scalars()
        assert sorted(map(str, outputs)) == ['"paid"', "None"]
    snapshot = store.load(sample.query(counters=("c",), windows=sample.windows(windows), call_key="k0"))
    assert (snapshot.spent, snapshot.used) == ({"c": 2}, {"short": 0, "brief": 0, "long": 1})
    assert snapshot.entry is not None
    assert snapshot.entry.state is CallState.DONE


def test_abandoned_claim_becomes_doubtful(sql_store: SqlStore, sample: Any, url: str, run: Any) -> None:
    """A claim without an outcome is a call in flight at first, and of unknown outcome after a quarter of an hour."""
    sql_store.commit(sample.claiming("a", digest="left"))
    assert sql_store.load(sample.query()).doubtful == {}
    run(url, f"UPDATE guarded_ledger SET claimed_ns = claimed_ns - {15 * 60 * 10**9}")
    assert sql_store.load(sample.query()).doubtful == {"left": CallState.UNKNOWN}


def test_result_that_is_no_json_is_not_kept(sql_store: SqlStore, sample: Any) -> None:
    """The call is settled all the same, with its terminal event; a replay finds that nothing is kept."""
    change = sample.claiming("a")
    sql_store.commit(change)
    sql_store.settle(
        Settlement(event=sample.end(change), claimed=True, state=CallState.DONE, output=object(), keep_ns=10**15)
    )
    entry = sql_store.load(sample.query(call_key="a")).entry
    assert entry is not None
    assert (entry.state, entry.output, entry.expires_ns) == (CallState.DONE, None, 0)
    assert [event.outcome for event in sql_store.trail()] == [Outcome.AUTHORIZED, Outcome.SUCCEEDED]

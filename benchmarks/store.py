"""What the SQL store costs: a guarded call as the trail grows, and how many calls a second go through.

Run from the repository's folder: ``python -m benchmarks.store``. PostgreSQL is measured where GUARDED_TEST_POSTGRES
names a server, in schemas of their own. It writes about 3 GB, and removes them.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import sqlalchemy

from benchmarks.report import Measurement
from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.ids import new_id
from guarded_core.rules.case import Reservation, Slot, Window
from guarded_core.store.base import Change, Counter, Query, Settlement
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.store.sql import SqlStore, tables
from guarded_core.tools.spec import ToolRisk

SMALL, LARGE = (10_000, 1_000), (1_000_000, 100_000)  # audit rows, sessions
ROUNDS, CALLS, SECONDS = 20, 25, 5.0
CHUNK = 10_000
DAY = 24 * 3600 * 10**9
KEYS = AuditKeys({"bench": b"benchmark-secret-of-32-bytes-long"})
SERVER = os.environ.get("GUARDED_TEST_POSTGRES") or None


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """A store with so many numbered sessions in it."""

    store: SqlStore
    sessions: int

    def call(self, session: int) -> None:
        """One guarded call of that session: what is read, taken and written for it, without the tool."""
        call_id, name, counters = new_id(), f"user-{session % 5000}#{session}", counters_of(session)
        window = Window(key=f"rate:refund:{session % 5000}", interval_ns=DAY)
        query = Query(
            principal=name, session_id=name, root_id=name, tool="refund", counters=counters, windows=(window,)
        )
        self.store.load(query)
        event = event_of(call_id, name)
        slot = Slot(window=window, amount=Decimal(1), limit=Decimal(10**9), rule="rate")
        change = Change(
            event=event,
            root_id=name,
            counters=tuple(Counter(key=key, limit=10**9) for key in counters),
            reservation=Reservation(slots=(slot,)),
            claim=claim_of(event),
        )
        self.store.commit(change)
        end = event_of(call_id, name, Outcome.SUCCEEDED)
        self.store.settle(
            Settlement(event=end, claimed=True, state=CallState.DONE, output={"content": "paid"}, keep_ns=DAY)
        )


def counters_of(session: int) -> tuple[str, str]:
    """The session's budget, and the tool's in it."""
    return (f"calls:user-{session % 5000}#{session}", f"calls:user-{session % 5000}#{session}:refund")


def event_of(call_id: str, session_id: str, outcome: Outcome = Outcome.AUTHORIZED) -> AuditEvent:
    """An event with the fields of an ordinary call."""
    return AuditEvent(
        outcome=outcome,
        time_ns=time.time_ns(),
        call_id=call_id,
        tool="refund",
        principal=session_id.partition("#")[0],
        session_id=session_id,
        risk=ToolRisk.FINANCIAL,
        policy="p" * 64,
        fingerprint="f" * 64,
        payload_digest="d" * 64,
    )


def claim_of(event: AuditEvent) -> LedgerEntry:
    """The ledger entry of that call, as of one that has a framework's key."""
    return LedgerEntry(
        call_id=event.call_id,
        key=f"{event.call_id}-key",
        tool=event.tool,
        principal=event.principal,
        session_id=event.session_id,
        digest="d" * 64,
    )


def fill(url: str, events: int, sessions: int) -> None:
    """Put so many finished calls and sessions into an empty store; its lines are only as long as real ones."""
    engine = sqlalchemy.create_engine(url)
    line = str(event_of("c" * 32, "user-17#17").to_json()) + "0" * 90

    def event_row(n: int) -> dict[str, object]:
        call_id = random.Random(n // 2).randbytes(16).hex()  # noqa: S311
        outcome = (Outcome.AUTHORIZED, Outcome.SUCCEEDED)[n % 2].value
        names = {"call_id": call_id, "outcome": outcome, "tool": "refund", "principal": f"user-{n % 5000}"}
        return {"writer": 10**9, "seq": n, "time_ns": n, "line": line, **names}

    def ledger_row(n: int) -> dict[str, object]:
        call_id = random.Random(n).randbytes(16).hex()  # noqa: S311
        names = {"call_id": call_id, "principal": f"user-{n % 5000}", "tool": "refund", "digest": "d" * 64}
        return {**names, "state": "done", "body": "b" * 300, "claimed_ns": n, "output": None, "expires_ns": 0}

    def session_row(n: int) -> dict[str, object]:
        name = f"user-{n % 5000}"
        return {"id": f"{name}#{n}", "principal": name, "tools": '["refund"]', "max_calls": 100}

    def counter_rows(n: int) -> dict[str, object]:
        return {"key": counters_of(n // 2)[n % 2], "spent": 7}

    rows: list[tuple[sqlalchemy.Table, Callable[[int], dict[str, object]], int]] = [
        (tables.events, event_row, events),
        (tables.ledger, ledger_row, events // 2),
        (tables.sessions, session_row, sessions),
        (tables.counters, counter_rows, 2 * sessions),
    ]
    for table, row, count in rows:
        for start in range(0, count, CHUNK):
            with engine.begin() as connection:
                connection.execute(table.insert(), [row(n) for n in range(start, min(count, start + CHUNK))])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    engine.dispose()


@contextmanager
def sqlite_url(folder: Path, name: str) -> Iterator[str]:
    """A SQLite database in the folder."""
    yield f"sqlite:///{folder}/{name}.db"


@contextmanager
def postgres_url(folder: Path, name: str) -> Iterator[str]:
    """A schema of its own in the server."""
    assert SERVER is not None
    schema = f"bench_{name}_{new_id()}"
    engine = sqlalchemy.create_engine(SERVER, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {schema}")
    url = sqlalchemy.make_url(SERVER).update_query_dict({"options": f"-csearch_path={schema}"})
    try:
        yield url.render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP SCHEMA {schema} CASCADE")
        engine.dispose()


Backend = Callable[[Path, str], AbstractContextManager[str]]


def measure_growth(
    name: str, database: Backend, folder: Path, small: Sequence[int], large: Sequence[int]
) -> list[Measurement]:
    """The same calls in a small and in a large store, in turns, so that a change of the machine's mood meets both."""
    with database(folder, "small") as small_url, database(folder, "large") as large_url:
        houses = []
        for url, (events, sessions) in ((small_url, small), (large_url, large)):
            SqlStore.open(url).close()
            fill(url, events, sessions)
            houses.append(House(store=SqlStore.open(url, keys=KEYS), sessions=sessions))
        times: tuple[list[float], list[float]] = ([], [])
        for round in range(ROUNDS + 1):
            for house, seconds in zip(houses, times, strict=True):
                for _ in range(CALLS):
                    start = time.perf_counter()
                    house.call(random.randrange(house.sessions))  # noqa: S311
                    if round:  # the first one warms up
                        seconds.append(time.perf_counter() - start)
        for house in houses:
            house.store.close()
    before, after = map(statistics.median, times)
    grown = after / before
    return [
        Measurement(
            name=f"{name}, a call at {small[0]:,} audit rows and {small[1]:,} sessions", value=before * 1e6, unit="µs"
        ),
        Measurement(
            name=f"{name}, a call at {large[0]:,} audit rows and {large[1]:,} sessions", value=after * 1e6, unit="µs"
        ),
        Measurement(name=f"{name}, growth", value=grown, unit="×", wanted="≤ 1.3", met=grown <= 1.3),
    ]


def measure_throughput(name: str, database: Backend, folder: Path) -> list[Measurement]:
    """Calls a second and their latency, from one thread and from sixteen, each with a session of its own."""
    found = []
    for threads in (1, 16):
        with database(folder, f"threads{threads}") as url, SqlStore.open(url, keys=KEYS, connections=16) as store:
            times = time_calls(House(store=store, sessions=threads))
        cuts = statistics.quantiles(times, n=100)
        label = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
        found += [
            Measurement(name=label, value=len(times) / SECONDS, unit="calls/s"),
            Measurement(name=f"{label}, median", value=cuts[49] * 1e3, unit="ms"),
            Measurement(name=f"{label}, 99th percentile", value=cuts[98] * 1e3, unit="ms"),
        ]
    return found


def time_calls(house: House) -> list[float]:
    """The seconds that calls take while every session makes them from a thread of its own."""
    times: list[float] = []
    begin = threading.Barrier(house.sessions)

    def work(session: int) -> None:
        for _ in range(3):  # warm up
            house.call(session)
        begin.wait()
        until = time.perf_counter() + SECONDS
        while (start := time.perf_counter()) < until:
            house.call(session)
            times.append(time.perf_counter() - start)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(house.sessions)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return times


def measure_sync(folder: Path) -> list[Measurement]:
    """What this disk takes to make one record durable: a call is two such."""
    fd = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    times = []
    for _ in range(500):
        start = time.perf_counter()
        os.write(fd, b"x" * 4096)
        os.fdatasync(fd)
        times.append(time.perf_counter() - start)
    os.close(fd)
    return [Measurement(name="raw append + fdatasync, median", value=statistics.median(times) * 1e6, unit="µs")]


def run(small: Sequence[int] = SMALL, large: Sequence[int] = LARGE) -> list[Measurement]:
    """Measure everything; the sizes are audit rows and sessions."""
    backends: dict[str, Backend] = {"SQLite": sqlite_url}
    if SERVER is not None:
        backends["PostgreSQL"] = postgres_url
    with tempfile.TemporaryDirectory(dir=".", prefix=".store-") as name:
        folder = Path(name)
        found = measure_sync(folder)
        for backend, database in backends.items():
            found += measure_growth(backend, database, folder, small, large)
            found += measure_throughput(backend, database, folder)
    return found


def main() -> int:
    """Print the table; 1 where a bound is not kept."""
    measurements = run()
    print("| What | Measured | Wanted | |\n|---|---|---|---|")
    for m in measurements:
        figure = f"{m.value:,.2f}" if m.value < 100 else f"{m.value:,.0f}"
        print(f"| {m.name} | {figure} {m.unit} | {m.wanted} | {'' if not m.wanted else 'yes' if m.met else '**no**'} |")
    return 0 if all(m.met for m in measurements) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Stores of every kind, and the things that are put into them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest

from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.audit.chain import Head
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.ids import new_id
from guarded_core.rules.case import Reservation, Slot, Window
from guarded_core.store.base import Change, Counter, Query, Store
from guarded_core.store.ledger import LedgerEntry
from guarded_core.store.memory import MemoryStore

HOUR = 3600 * 1_000_000_000
SERVER = os.environ.get("GUARDED_TEST_POSTGRES") or None


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """A SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path}/guard.db"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """An empty schema of its own in the PostgreSQL server that GUARDED_TEST_POSTGRES names."""
    if SERVER is None:
        pytest.skip("no PostgreSQL: GUARDED_TEST_POSTGRES=postgresql+psycopg://... names no server")
    sqlalchemy = pytest.importorskip("sqlalchemy")
    schema = f"guarded_{new_id()}"
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


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def open_store() -> Iterator[Callable[..., Any]]:
    """Opens SQL stores, and closes them all in the end."""
    sql = pytest.importorskip("guarded_core.store.sql")
    opened: list[Any] = []

    def open_store(url: str, **options: Any) -> Any:
        opened.append(sql.SqlStore.open(url, **options))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture
def sql_store(url: str, open_store: Callable[..., Any]) -> Any:
    """An empty store in each kind of database."""
    return open_store(url)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    url = request.getfixturevalue(f"{request.param}_url")
    opened: Store = request.getfixturevalue("open_store")(url)
    return opened


@pytest.fixture
def run() -> Callable[..., None]:
    """Changes a database behind its store's back: `run(url, *statements)`."""
    sqlalchemy = pytest.importorskip("sqlalchemy")

    def run(url: str, *statements: str) -> None:
        with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    return run


@pytest.fixture
def fault() -> Callable[..., str | None]:
    """What the verification of a store's trail finds, None for nothing: `fault(store, *anchors)`."""

    def fault(store: Any, *anchors: Head) -> str | None:
        try:
            store.trail().verify(anchors)
        except ToolAuditTrailError as error:
            return error.code
        return None

    return fault


class Sample:
    """Makes events, changes and requests of one principal and session, with what a test does not care for filled in."""

    root_id = session_id = "user-17#s"
    names: ClassVar[dict[str, str]] = {"tool": "refund", "principal": "user-17", "session_id": session_id}

    def event(self, outcome: Outcome = Outcome.AUTHORIZED, **fields: Any) -> AuditEvent:
        """An event of a call of its own."""
        filled = {"time_ns": 1, "call_id": new_id(), **self.names}
        return AuditEvent(outcome=outcome, **filled | fields)

    def end(self, change: Change, outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> AuditEvent:
        """The terminal event of that call."""
        return replace(change.event, outcome=outcome, **fields)

    def change(self, **parts: Any) -> Change:
        """A commit: ``counters`` by key and limit, slots from `slot`, ``raises`` and ``forbids`` as sets of flags."""
        counters = tuple(Counter(key=key, limit=limit) for key, limit in parts.pop("counters", {}).items())
        names = ("slots", "raises", "forbids")
        reservation = Reservation(**{name: parts.pop(name) for name in names if name in parts})
        filled = {"event": self.event(), "root_id": self.root_id, "counters": counters, "reservation": reservation}
        return Change(**filled | parts)

    def slot(self, key: str, amount: str, limit: str, *, interval_ns: int = HOUR) -> Slot:
        """A slot of a rule that is named like its window."""
        window = Window(key=key, interval_ns=interval_ns)
        return Slot(window=window, amount=Decimal(amount), limit=Decimal(limit), rule=f"rule of {key}")

    def request(self, store: Store, **fields: Any) -> ApprovalRequest:
        """A pending request that expires in an hour."""
        now_ns = store.now_ns()
        filled = {
            "id": new_id(),
            "digest": "d",
            "created_ns": now_ns,
            "expires_ns": now_ns + HOUR,
            **self.names,
        }
        return ApprovalRequest(**filled | fields)

    def approved(self, store: Store, **fields: Any) -> ApprovalRequest:
        """A request that is in the store, and that one call may use."""
        request = self.request(store, state=RequestState.APPROVED, **fields)
        store.add_request(request, max_pending=1)
        return request

    def claiming(self, key: str, *, digest: str = "d", **parts: Any) -> Change:
        """A commit that claims the key."""
        change = self.change(**parts)
        call_id = change.event.call_id
        claim = LedgerEntry(call_id=call_id, key=key, digest=digest, **self.names)
        return replace(change, claim=claim)

    def query(self, **fields: Any) -> Query:
        """A query for the same principal, session and tool."""
        return Query(**{"root_id": self.root_id, **self.names} | fields)

    def windows(self, change: Change) -> tuple[Window, ...]:
        """The windows that a change takes slots from."""
        return tuple({slot.window: None for slot in change.reservation.slots})


@pytest.fixture
def sample() -> Sample:
    """Makes what is put into stores."""
    return Sample()

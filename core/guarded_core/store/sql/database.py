"""Which database a store is in: how it is opened, what differs between SQLite and PostgreSQL, and when to try again."""

from __future__ import annotations

import errno
import math
import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import sqlalchemy
from sqlalchemy import URL, Connection, Engine, Executable, Row, bindparam, event, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoneIsFree

from guarded_core.ground.errors import GuardConfigurationError, StoreUnavailable
from guarded_core.store.sql.statements import Statements

T = TypeVar("T")

DEFAULT_TIMEOUT = 5.0  # long enough for a lock or a failover to pass, short enough for a call to be denied by
_PAUSES = (0.01, 0.04, 0.15, 0.5, 1.1)
_IDLE_SECONDS = 10

_ADVISORY_LOCK = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("name"), 0)))
_INSERTS: Final[Mapping[str, Callable[..., Any]]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_DRIVERS: Final[Mapping[str, str]] = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg"}


class Database:
    """One database, and its connections.

    Args:
        url: ``sqlite:///guard.db`` or ``postgresql://…``.
        connections: how many are kept open at most.
        timeout: seconds after which what could not be done is given up; the last try may take half as long again.

    Attributes:
        place: the URL as it may be shown: without password and options.
        is_sqlite: whether it is; otherwise it is PostgreSQL.
        statements: in its dialect.

    Raises:
        GuardConfigurationError: the URL is not one, its file cannot be opened, or there are to be no connections.
        ImportError: the driver is not installed.
    """

    def __init__(self, url: str, connections: int, timeout: float = DEFAULT_TIMEOUT) -> None:
        parsed = _parse(url)
        if connections < 1:
            raise GuardConfigurationError("a store needs at least one connection")
        if not 0 < timeout < math.inf:
            raise GuardConfigurationError("a store's timeout is a number of seconds above 0")
        self.place = _shown(parsed)
        self._timeout = timeout
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.statements = Statements(_INSERTS[parsed.get_backend_name()], locks=not self.is_sqlite)
        try:
            opener = _open_sqlite if self.is_sqlite else _open_postgresql
            self.engine = opener(parsed, connections, timeout / 2)
        except ImportError as error:
            raise ImportError('this store needs psycopg: pip install "guarded-tools[postgres]"') from error
        options = {"guarded_begin": False} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._reading = self.engine.execution_options(**options)

    def read(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        """The rows of one statement, all read at one moment."""

        def once() -> Sequence[Row[Any]]:
            with self._reading.connect() as connection:
                return connection.execute(statement, values).all()

        return self._persist(once)

    def transact(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, in one transaction: all of it, or nothing where it raises.

        A transaction that failed for a passing reason is tried again from the start, a few times. Where a connection
        broke while it committed, the first try may have got through: `work` has to notice.
        """

        def once() -> T:
            with self.engine.begin() as connection:
                return work(connection)

        return self._persist(once)

    def _persist(self, once: Callable[[], T]) -> T:
        """What `once` returns, in the first try that no passing fault is in the way of. Raises StoreUnavailable."""
        until = time.monotonic() + self._timeout
        for pause in (*_PAUSES, None):
            try:
                return once()
            except SQLAlchemyError as error:
                if pause is None or time.monotonic() + pause >= until or not _may_pass(error):
                    # The database's own text may quote what was to be kept, and a driver's the URL.
                    text = f"the store {self.place} cannot be used: {_reason(error)}"
                    raise StoreUnavailable(message=text) from None
            # No secret: it only parts those who collided.
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        raise AssertionError("the last try returns or raises")

    def lock(self, connection: Connection, name: str) -> None:
        """Keep others from passing here with the same name until the transaction ends."""
        if not self.is_sqlite:  # there, every transaction excludes all others
            connection.execute(_ADVISORY_LOCK, {"name": name})

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def forget(self) -> None:
        """In a forked child: open connections anew; the parent's stay open, since they are its own."""
        self.engine.dispose(close=False)


def _parse(url: str) -> URL:
    # Never quote the URL: it may hold a password.
    try:
        parsed = sqlalchemy.make_url(url)
        driver = _DRIVERS[parsed.get_backend_name()]
    except (ArgumentError, KeyError):
        raise GuardConfigurationError("a store's URL is sqlite:///path or postgresql://…") from None
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise GuardConfigurationError("a SQLite store is a file, sqlite:///guard.db; in memory, use MemoryStore()")
    return parsed.set(drivername=driver)


def _shown(url: URL) -> str:
    """The URL without password and options, which may hold a password, too."""
    return URL.create(url.get_backend_name(), url.username, None, url.host, url.port, url.database).render_as_string()


def _open_sqlite(url: URL, connections: int, wait: float) -> Engine:
    path = str(url.database)
    if not path.startswith("file:"):
        try:
            # SQLite would make it readable for everybody; its other files take the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            name = errno.errorcode.get(error.errno or 0, type(error).__name__)
            raise GuardConfigurationError(f"the store {_shown(url)} cannot be opened to write ({name})") from None
    engine = sqlalchemy.create_engine(
        url, pool_size=connections, pool_timeout=wait, hide_parameters=True, connect_args={"timeout": wait}
    )

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, record: object) -> None:
        connection.isolation_level = None  # no BEGIN but ours
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that writes says so at once: one that only finds out later could not be given the lock safely.
        if connection.get_execution_options().get("guarded_begin", True):
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _open_postgresql(url: URL, connections: int, wait: float) -> Engine:
    # A server that has gone silent is noticed in seconds, not in TCP's quarter of an hour.
    defaults = {
        "connect_timeout": str(max(2, math.ceil(wait))),  # libpq knows whole seconds, two or more
        "tcp_user_timeout": str(math.ceil(2000 * wait)),
        "application_name": "guarded-tools",
    }
    url = url.set(query={**defaults, **url.query})
    # Whatever the server's default: what is read after a lock was taken must be what the lock's last holder left.
    isolation = "READ COMMITTED"
    engine = sqlalchemy.create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=wait,
        hide_parameters=True,
        isolation_level=isolation,
    )

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: object) -> None:
        # A client that stalls in the middle of a transaction must not keep everybody else waiting.
        connection.execute(f"SET lock_timeout = '{math.ceil(1000 * wait)}ms'")
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")
        connection.commit()

    return engine


def _may_pass(error: SQLAlchemyError) -> bool:
    """Whether the same transaction may succeed a moment later."""
    if not isinstance(error, DBAPIError):
        return isinstance(error, NoneIsFree)
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, OperationalError)  # no server was reached to give a state
    # Connection, rollback (serialization, deadlock), resources, operator intervention; lock not available.
    return state[:2] in ("08", "40", "53", "57") or state == "55P03"


_SQLITE = {
    sqlite3.SQLITE_BUSY: "somebody else keeps it locked",
    sqlite3.SQLITE_LOCKED: "somebody else keeps it locked",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database",
    sqlite3.SQLITE_CORRUPT: "the database is damaged",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it cannot be written",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
}
_POSTGRESQL = {
    "28": "the server refuses this user",
    "3D": "the server has no such database",
    "55": "somebody else keeps it locked",
    "57": "the server is going down, or takes no calls now",
}


def _reason(error: SQLAlchemyError) -> str:
    """Why, in words of our own, for a person who can mend it."""
    if isinstance(error, NoneIsFree):
        return "all of its connections are in use"
    cause = getattr(error, "orig", None)
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    known = _POSTGRESQL.get(state[:2]) if state else _SQLITE.get(code & 0xFF) if code is not None else None
    if known is None and code is None and state is None and isinstance(error, OperationalError):
        known = "no connection to its server can be made"
    name = getattr(cause, "sqlite_errorname", None) or state or type(cause or error).__name__
    return f"{known} ({name})" if known else str(name)

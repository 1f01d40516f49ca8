"""The tables of a SQL store, and the version of their schema.

Texts are exact: sums are decimals as text, since a float would round money. Times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    literal_column,
    select,
    update,
)

from guarded_core.audit.event import Outcome
from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.store.ledger import CallState

metadata = MetaData()


def _text(name: str, *, key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=key, nullable=False)


def _number(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _counted(name: str) -> Column[int]:
    """A key that the database counts up."""
    return Column(name, BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def is_one_of(column: Column[str], *values: StrEnum) -> ColumnElement[bool]:
    """The column is one of these, written out rather than bound.

    A partial index only serves the very condition it was made with; and no list has to be filled in each time.
    """
    return column.in_([literal_column(f"'{value.value}'") for value in values])


def _partial(name: str, *columns: Column[Any], where: ColumnElement[bool], unique: bool = False) -> None:
    Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


schema = Table("guarded_schema", metadata, _number("version", key=True))

# `bounds` is JSON of all else that bounds the session.
sessions = Table(
    "guarded_sessions",
    metadata,
    _text("id", key=True),
    _text("principal"),
    _text("tools"),
    _number("max_calls"),
    Column("bounds", Text, nullable=False, server_default="{}"),
)

# When all sessions of a person were ended last.
ended = Table("guarded_ended", metadata, _text("principal", key=True), _number("at_ns"))

counters = Table("guarded_counters", metadata, _text("key", key=True), _number("spent"))

# What is in a window: `total` is the sum of its slots, so that a call reads the slots that expired, not all.
windows = Table("guarded_windows", metadata, _text("key", key=True), _text("total"), _number("until_ns"))
slots = Table(
    "guarded_slots",
    metadata,
    _counted("n"),
    _text("window"),
    _number("at_ns"),
    _text("amount"),
    _text("call_id"),
    Index("guarded_slots_window", "window", "at_ns"),
)
Index("guarded_windows_until", windows.c.until_ns)

flags = Table("guarded_flags", metadata, _text("root_id", key=True), _text("flag", key=True), _text("call_id"))

denials = Table(
    "guarded_denials",
    metadata,
    _text("root_id", key=True),
    _text("tool", key=True),
    _text("code", key=True),
    _number("count"),
)

# Which keyed calls were denied, and by which call first: a framework that enters one again repeats no denial.
denied_calls = Table(
    "guarded_denied_calls", metadata, _text("call_key", key=True), _text("code", key=True), _text("call_id")
)

# `body` is the whole request as JSON, but for `state` and `version`, which change; the other columns find it.
requests = Table(
    "guarded_requests",
    metadata,
    _counted("n"),
    _text("id"),
    _text("session_id"),
    _text("tool"),
    _text("state"),
    _number("version"),
    _number("expires_ns"),
    _text("body"),
    Index("guarded_requests_id", "id", unique=True),
    Index("guarded_requests_session", "session_id", "state"),
    Index("guarded_requests_state", "state"),
    Index("guarded_requests_expiry", "expires_ns"),
)

# `body` is the whole grant as JSON, but for what changes; `spent` is its sums as JSON.
grants = Table(
    "guarded_grants",
    metadata,
    _counted("n"),
    _text("id"),
    _text("principal"),
    _text("tool"),
    _text("state"),
    _number("version"),
    _number("used"),
    _text("spent"),
    _number("expires_ns"),
    _text("body"),
    Index("guarded_grants_id", "id", unique=True),
    Index("guarded_grants_principal", "principal", "tool"),
    Index("guarded_grants_expiry", "expires_ns"),
)

# `body` is the whole entry as JSON, but for what a settlement changes.
ledger = Table(
    "guarded_ledger",
    metadata,
    _text("call_id", key=True),
    _text("principal"),
    _text("tool"),
    _text("digest"),
    _text("state"),
    _text("body"),
    _number("claimed_ns"),
    Column("output", Text),
    _number("expires_ns"),
)
OPEN_ENTRY = is_one_of(ledger.c.state, CallState.UNKNOWN, CallState.CLAIMED, CallState.RAISED)
_partial("guarded_ledger_unsettled", ledger.c.principal, ledger.c.tool, where=OPEN_ENTRY)
_partial("guarded_ledger_outputs", ledger.c.expires_ns, where=ledger.c.output.is_not(None))
claims = Table("guarded_claims", metadata, _text("key", key=True), _text("call_id"))

# Where the values of sessions came from: rows in the order in which each session's were committed. `writer` is a
# process that had the session, `number` counts its rows there, `sealed` is base64.
memories = Table(
    "guarded_memories",
    metadata,
    _counted("n"),
    _text("session_id"),
    _text("principal"),
    _text("writer"),
    _number("number"),
    _number("at_ns"),
    _text("sealed"),
    Index("guarded_memories_row", "session_id", "writer", "number", unique=True),
    Index("guarded_memories_session", "session_id", "n"),
    Index("guarded_memories_time", "at_ns"),
)

# The trail: one chain a writer, in the lines of the trail's file format (audit/frames.py). `header` begins the writer's
# chain, `line` is its record in the chain of writers, which writer 0 begins; `head` is where a closed chain ends.
writers = Table(
    "guarded_writers",
    metadata,
    _number("n", key=True),
    _text("id"),
    _text("header"),
    _text("line"),
    Column("head", Text),
    Index("guarded_writers_id", "id", unique=True),
)
# `line` is the event; `time_ns` to `principal` repeat some of it, to find it by.
events = Table(
    "guarded_events",
    metadata,
    _number("writer", key=True),
    _number("seq", key=True),
    _number("time_ns"),
    _text("call_id"),
    _text("outcome"),
    _text("tool"),
    _text("principal"),
    _text("line"),
    Index("guarded_events_time", "time_ns"),
    Index("guarded_events_call", "call_id", "outcome"),
)
# A call that succeeded has not failed, whoever says so; only what is unknown may become known.
_partial(
    "guarded_events_end",
    events.c.call_id,
    where=is_one_of(events.c.outcome, Outcome.SUCCEEDED, Outcome.FAILED),
    unique=True,
)


def _to_version_2(connection: Connection) -> None:
    """Sessions keep all their bounds, and end at once; grants; one index for RAISED and unknown outcomes."""
    connection.exec_driver_sql("ALTER TABLE guarded_sessions ADD COLUMN bounds TEXT NOT NULL DEFAULT '{}'")
    ended.create(connection, checkfirst=True)
    grants.create(connection, checkfirst=True)
    connection.exec_driver_sql("DROP INDEX IF EXISTS guarded_ledger_open")
    unsettled = next(index for index in ledger.indexes if index.name == "guarded_ledger_unsettled")
    unsettled.create(connection, checkfirst=True)


def _to_version_3(connection: Connection) -> None:
    """Where values came from is kept for other processes."""
    memories.create(connection, checkfirst=True)


# What brings a schema of version 1 to 2, of version 2 to 3 and so on. Never change one that was released.
MIGRATIONS: list[Callable[[Connection], None]] = [_to_version_2, _to_version_3]


def prepare(connection: Connection) -> None:
    """Create the tables, or bring older ones up to date; runs in one transaction that excludes others like it.

    Raises:
        GuardConfigurationError: a newer release has written them.
    """
    current = 1 + len(MIGRATIONS)
    if not inspect(connection).has_table(schema.name):
        metadata.create_all(connection)
        connection.execute(insert(schema).values(version=current))
        return
    version = connection.execute(select(schema.c.version)).scalar_one()
    if version > current:
        # What a newer release keeps, this one would not check.
        raise GuardConfigurationError(
            f"the store has schema version {version}, and this release knows {current}: update guarded-tools"
        )
    for migrate in MIGRATIONS[version - 1 :]:
        migrate(connection)
    if version < current:
        connection.execute(update(schema).values(version=current))

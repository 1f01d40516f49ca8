"""How transactions that write to the trail are run: side by side where the database can, gathered where it cannot."""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from sqlalchemy import Connection

from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.group_commit import Entry, GroupCommit
from guarded_core.store.sql.database import Database
from guarded_core.store.sql.writer import Writer, register

T = TypeVar("T")

Work: TypeAlias = Callable[[Connection, Writer], T]

_WAIT_SECONDS = 30


class Lanes(Protocol):
    """Runs work in transactions that append to the trail."""

    def run(self, work: Work[T]) -> T:
        """What `work` returns, in one transaction: all of it or nothing. It may be called again, for a second try."""

    def close(self) -> None:
        """Seal the chains. Nothing may be run afterwards."""


class PooledLanes:
    """Several transactions at a time, each with a writer of its own; for PostgreSQL.

    Args:
        database: where.
        keys: seal what is written.
        count: how many at a time.
    """

    def __init__(self, database: Database, keys: AuditKeys | None, count: int) -> None:
        self._database = database
        self._keys = keys
        # The last one back goes first, so that as many writers come to be as are needed at once.
        self._idle: queue.LifoQueue[Writer | None] = queue.LifoQueue()
        self._count = count
        for _ in range(count):
            self._idle.put(None)

    def run(self, work: Work[T]) -> T:
        """What `work` returns, in one transaction."""
        writer = self._idle.get(timeout=_WAIT_SECONDS)
        try:
            writer = writer or register(self._database, self._keys)
            return _transact(self._database, writer, work)
        finally:
            self._idle.put(None if writer is None or writer.is_in_doubt else writer)

    def close(self) -> None:
        """Seal the chains."""
        for _ in range(self._count):
            writer = self._idle.get(timeout=_WAIT_SECONDS)
            if writer is not None:
                self._database.transact(writer.close)


class GroupedLane:
    """One transaction at a time, with all the work that has gathered; for SQLite, where a transaction locks the file.

    Args:
        database: where.
        keys: seal what is written.
    """

    def __init__(self, database: Database, keys: AuditKeys | None) -> None:
        self._database = database
        self._keys = keys
        self._writer: Writer | None = None
        self._group: GroupCommit[Work[object]] = GroupCommit(self._commit)

    def run(self, work: Work[T]) -> T:
        """What `work` returns, in one transaction with what others do."""
        answer: T = self._group.submit(work)
        return answer

    def _commit(self, entries: list[Entry[Work[object]]]) -> None:
        try:
            if self._writer is None or self._writer.is_in_doubt:
                self._writer = register(self._database, self._keys)
            _transact(self._database, self._writer, partial(_run_all, entries))
        except Exception as error:
            for entry in entries:
                entry.error = error

    def close(self) -> None:
        """Seal the chain."""
        if self._writer is not None and not self._writer.is_in_doubt:
            self._database.transact(self._writer.close)
        self._group.stop()


def _transact(database: Database, writer: Writer, work: Work[T]) -> T:
    def attempt(connection: Connection) -> T:
        writer.begin()
        answer = work(connection, writer)
        writer.is_in_doubt = True  # until the COMMIT that comes now is answered
        return answer

    answer = database.transact(attempt)
    writer.keep()
    return answer


def _run_all(entries: list[Entry[Work[object]]], connection: Connection, writer: Writer) -> None:
    if len(entries) == 1:  # what it raises undoes the transaction, and is its error
        entries[0].result = entries[0].item(connection, writer)
        return
    for entry in entries:
        entry.error = None
        position = writer.position
        try:
            with connection.begin_nested():
                entry.result = entry.item(connection, writer)
        except Exception as error:
            if not cast("Any", connection.connection).in_transaction:
                raise  # a disk error: SQLite has undone all of it
            # Its own savepoint is undone; the others' work stands.
            writer.position = position
            entry.error = error

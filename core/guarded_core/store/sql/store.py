"""The store's face: each method one transaction, or one statement."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, ClassVar, Self

from sqlalchemy import Connection, Executable, Row, delete, select, update

from guarded_core.approvals.grant import Grant
from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.audit.chain import AuditKeys, KeysLike
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import GuardConfigurationError, StoreUnavailable
from guarded_core.provenance.journal import Recalled
from guarded_core.provenance.journal import Row as MemoryRow
from guarded_core.store.base import (
    Change,
    Query,
    SessionRecord,
    Settlement,
    Snapshot,
    TooManyRequests,
    denial_key,
    is_recorded,
)
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.store.sql import statements as sql
from guarded_core.store.sql.changes import claim, give_back, take, total_less
from guarded_core.store.sql.database import DEFAULT_TIMEOUT, Database
from guarded_core.store.sql.lanes import GroupedLane, Lanes, PooledLanes
from guarded_core.store.sql.records import (
    entry_of,
    grant_from,
    grant_of,
    grant_row,
    kept_of,
    memory_row,
    output_text,
    request_of,
    request_row,
    session_of,
    session_row,
    spent_text,
)
from guarded_core.store.sql.tables import grants, ledger, memories, prepare, requests, slots, windows
from guarded_core.store.sql.trail import SqlTrail
from guarded_core.store.sql.writer import Writer

_log = logging.getLogger(__name__)

_BATCH = 1000
_MEMORY_NS = 30 * 24 * 3600 * 1_000_000_000


class SqlStore:
    """Budgets, windows, approvals, the ledger and the audit trail in one SQL database.

    A commit is one transaction, and a settlement another: a call's events are written with what it takes. Any number of
    processes may share the database; open one store in each. After a fork, the child's store begins chains of its own.

    Use `open`.
    """

    blocking: ClassVar[bool] = True
    keeps_trail: ClassVar[bool] = True

    def __init__(self, database: Database, keys: AuditKeys | None, connections: int) -> None:
        self._database = database
        self._keys = keys
        self._connections = connections
        self._lanes = self._new_lanes()

    @classmethod
    def open(cls, url: str, *, keys: KeysLike = None, connections: int = 8, timeout: float = DEFAULT_TIMEOUT) -> Self:
        """Open a store, and create or upgrade its tables.

        Args:
            url: ``sqlite:///guard.db`` (readable by this user only), or ``postgresql://user@host/database``.
            keys: seal the audit trail, the first of them what is written; see AuditKeys.
            connections: how many are kept open at most, and so how many calls commit at the same time on PostgreSQL.
            timeout: seconds to try for, here and in each method, while the database is locked or cannot be reached;
                then the method raises StoreUnavailable. The last try may take half as long again.

        Raises:
            GuardConfigurationError: the URL is of no such store, the database cannot be reached, read or written, or a
                newer release has written it. The text names the store, without its password.
            ImportError: the driver is not installed.
            ToolAuditTrailError: "invalid_keys".
        """
        sealing = AuditKeys.of(keys)
        database = Database(url, connections, timeout)

        def create(connection: Connection) -> None:
            database.lock(connection, "guarded schema")
            prepare(connection)

        try:
            database.transact(create)
        except BaseException as error:
            database.close()
            if isinstance(error, StoreUnavailable):
                raise GuardConfigurationError(str(error)) from None
            raise
        store = cls(database, sealing, connections)
        _reopen_after_fork(store)
        return store

    def close(self) -> None:
        """Seal this store's chains, and close its connections. No call may be under way, and none may follow."""
        try:
            self._lanes.close()
        except StoreUnavailable:
            # As if the process had died: the trail says that these chains were not closed.
            _log.warning("the chains of the store %s could not be sealed", self._database.place)
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SqlStore on {'SQLite' if self._database.is_sqlite else 'PostgreSQL'}>"

    def trail(self, *, first_writer: int = 1) -> SqlTrail:
        """The audit trail, to read, verify and complete; verified from `first_writer` on."""
        return SqlTrail(self, self._database, self._keys, first_writer=first_writer)

    def forget(self, session_id: str, counters: Iterable[str]) -> None:
        """Nothing: what is in a database may be picked up by another process, until `prune`."""

    def now_ns(self) -> int:
        """The database's clock, ns since the epoch."""
        now: int = self._database.read(sql.clock)[0][0]
        return now

    def open_session(self, session: SessionRecord) -> SessionRecord:
        """Keep a new session, or return the stored one of that id."""

        return self._database.transact(lambda connection: self._opened(connection, session))

    def _opened(self, connection: Connection, session: SessionRecord) -> SessionRecord:
        if connection.execute(self._database.statements.open_session, session_row(session)).first() is not None:
            return session
        return session_of(connection.execute(sql.session_by_id, {"id": session.id}).one())

    def end_sessions(self, principal: str) -> int:
        """Keep that all sessions of that person end now, by the database's clock: the time, in ns since the epoch."""

        def work(connection: Connection) -> int:
            ending = connection.execute(self._database.statements.end_sessions, {"principal": principal})
            at_ns: int = ending.scalar_one()
            return at_ns

        return self._database.transact(work)

    def load(self, query: Query) -> Snapshot:
        """Read what `query` asks for, all at one moment."""
        values: dict[str, Any] = {
            "principal": query.principal,
            "session_id": query.session_id,
            "root_id": query.root_id,
            "tool": query.tool,
        }
        values |= {f"counter_{n}": key for n, key in enumerate(query.counters)}
        if query.call_key is not None:
            values |= {"call": query.call_key, "refused": sql.refused_key(query.call_key)}
        for n, window in enumerate(query.windows):
            values |= {f"window_{n}": window.key, f"interval_{n}": window.interval_ns}
        values |= {f"person_{n}": name for n, name in enumerate(query.people)}
        counts = len(query.counters), len(query.windows), len(query.people)
        memory = query.memory
        if memory is not None:
            values |= {"after": memory.after, "writer": memory.writer}
        statement = sql.snapshot(
            *counts, has_key=query.call_key is not None, has_grants=query.grants, has_memory=memory is not None
        )
        parts: defaultdict[str, list[Row[Any]]] = defaultdict(list)
        sessions, rows = self._read(query.opens, () if memory is None else memory.adds, statement, values)
        for row in rows:
            parts[row.part].append(row)
        now_ns: int = parts["now"][0].number
        spent = {row.name: row.number for row in parts["counter"]}
        found = sorted(parts["request"], key=lambda row: row.number)
        return Snapshot(
            now_ns=now_ns,
            spent={key: spent.get(key, 0) for key in query.counters},
            used={window.key: _used(window.key, parts) for window in query.windows},
            flags=frozenset(row.name for row in parts["flag"]),
            requests=tuple(map(_request, found)),
            entry=_entry(parts["entry"], now_ns),
            refused=_request(parts["refused"][0]) if parts["refused"] else None,
            doubtful=_doubts(parts["doubtful"]),
            denials=sum(row.number for row in parts["denials"]),
            grants=tuple([_grant(row) for row in sorted(parts["grant"], key=lambda row: int(row.output))]),
            ended_ns=max([row.number for row in parts["ended"]], default=0),
            sessions=sessions,
            memory=None if memory is None else Recalled(lookup=memory, rows=kept_of(parts["memory"])),
        )

    def _read(
        self,
        opens: tuple[SessionRecord, ...],
        adds: tuple[MemoryRow, ...],
        statement: Executable,
        values: dict[str, Any],
    ) -> tuple[dict[str, SessionRecord], Sequence[Row[Any]]]:
        """The sessions that were to be opened, and the rows of the statement, in one transaction with what is added."""
        if not opens and not adds:
            return {}, self._database.read(statement, values)

        def work(connection: Connection) -> tuple[dict[str, SessionRecord], Sequence[Row[Any]]]:
            opened = {session.id: self._opened(connection, session) for session in opens}
            self._remember(connection, adds)
            return opened, connection.execute(statement, values).all()

        return self._database.transact(work)

    def _remember(self, connection: Connection, rows: tuple[MemoryRow, ...]) -> None:
        for row in rows:
            connection.execute(self._database.statements.remember, memory_row(row))

    def forget_memory(self, principal: str) -> None:
        """Delete what is kept of where the values of that person's sessions came from."""
        rows = delete(memories).where(memories.c.principal == principal)
        self._database.transact(lambda connection: connection.execute(rows))

    def commit(self, change: Change) -> None:
        """Take everything in `change`, and write its event. Raises Conflict, and has then taken nothing."""

        def work(connection: Connection, writer: Writer) -> None:
            # The event first: where it is on record, an earlier try of this commit got through whole.
            if writer.append(connection, change.event):
                take(self._database, connection, change)

        self._lanes.run(work)

    def release(self, change: Change) -> None:
        """Give back what `commit` took, for a call that never started, and write that it failed."""
        event = replace(change.event, outcome=Outcome.FAILED, code="audit_unavailable", time_ns=time.time_ns())

        def work(connection: Connection, writer: Writer) -> None:
            if writer.append(connection, event):
                give_back(self._database, connection, change)

        self._lanes.run(work)

    def settle(self, settlement: Settlement) -> None:
        """Record how a committed call ended.

        Raises:
            Conflict: another call has the claim; nothing is recorded then.
            ToolAuditTrailError: "already_ended": the trail says that it succeeded or failed already.
        """
        event, output = settlement.event, None
        if settlement.claimed and (settlement.output is not None or settlement.state is CallState.DONE):
            output = output_text(event.call_id, settlement.output)
        is_kept = output is not None or settlement.state is not CallState.DONE
        values = {
            "of": event.call_id,
            "state": settlement.state.value,
            "output": output,
            "keep_ns": settlement.keep_ns if is_kept else 0,
        }

        def work(connection: Connection, writer: Writer) -> None:
            if not writer.append(connection, event):
                return
            if settlement.claim is not None:
                claim(self._database, connection, replace(settlement.claim, state=settlement.state), None)
            if settlement.claimed:
                connection.execute(sql.settle_entry, values)
            self._remember(connection, settlement.memory)

        self._lanes.run(work)

    def deny(self, event: AuditEvent, root_id: str, call_key: str | None = None) -> int:
        """Count a denial for the session tree, and return how many equal ones there are now; 0 for a repetition."""
        tool, code = denial_key(event)
        key = {"root_id": root_id, "tool": tool, "code": code}

        def work(connection: Connection, writer: Writer) -> int:
            self._database.lock(connection, f"guarded denials {root_id}")
            denied = {"call_key": call_key, "code": code, "call_id": event.call_id}
            if call_key is not None and connection.execute(self._database.statements.deny_call, denied).first() is None:
                return 0
            before: int = connection.execute(sql.denial_count, key).scalar() or 0
            if is_recorded(before + 1) and not writer.append(connection, event.repeated(before + 1)):
                return before
            connection.execute(self._database.statements.count_denial, key)
            return before + 1

        return self._lanes.run(work)

    def record(self, event: AuditEvent) -> None:
        """Write an event to the trail."""

        def work(connection: Connection, writer: Writer) -> None:
            writer.append(connection, event)

        self._lanes.run(work)

    def entry(self, call_id: str) -> LedgerEntry | None:
        """The ledger's entry of that call."""
        rows = self._database.read(sql.entry_by_id, {"of": call_id})
        return entry_of(rows[0].state, rows[0].body, rows[0].output, rows[0].expires_ns) if rows else None

    def add_request(self, request: ApprovalRequest, *, max_pending: int) -> None:
        """Keep a new request. Raises TooManyRequests where the session has `max_pending` live pending ones."""

        def work(connection: Connection) -> None:
            if request.state is RequestState.PENDING:
                self._database.lock(connection, f"guarded requests {request.session_id}")
                session = {"session_id": request.session_id}
                if connection.execute(sql.pending_requests, session).scalar_one() >= max_pending:
                    raise TooManyRequests
            connection.execute(sql.add_request, request_row(request))

        self._database.transact(work)

    def request(self, request_id: str) -> ApprovalRequest | None:
        """The request of that id."""
        rows = self._database.read(sql.request_by_id, {"id": request_id})
        return _request(rows[0]) if rows else None

    def requests(self, *, session_id: str | None = None, state: RequestState | None = None) -> list[ApprovalRequest]:
        """All requests of a session, or of all, oldest first."""
        query = select(requests.c.state, requests.c.version, requests.c.body).order_by(requests.c.n)
        if session_id is not None:
            query = query.where(requests.c.session_id == session_id)
        if state is not None:
            query = query.where(requests.c.state == state.value)
        return [_request(row) for row in self._database.read(query)]

    def replace_request(self, old: ApprovalRequest, new: ApprovalRequest, added: ApprovalRequest | None = None) -> bool:
        """Put `new` where `old` is, if it still is, and keep `added` too; compare by id and version."""
        values = {"of": old.id, "was": old.version, **request_row(new)}

        def work(connection: Connection) -> bool:
            replaced = connection.execute(sql.replace_request, values).rowcount > 0
            if replaced and new.is_refused and new.call_key is not None:
                held = {"key": sql.refused_key(new.call_key), "call_id": new.id, "supersedes": None}
                connection.execute(self._database.statements.claim, held)
            if replaced and added is not None:
                connection.execute(sql.add_request, request_row(added))
            return replaced

        return self._database.transact(work)

    def grant(self, grant_id: str) -> Grant | None:
        """The grant of that id, with what calls have used of it."""
        rows = self._database.read(sql.grant_by_id, {"id": grant_id})
        return grant_of(rows[0]) if rows else None

    def grants(self) -> list[Grant]:
        """All grants that have not expired, oldest first."""
        return [grant_of(row) for row in self._database.read(sql.grants_in_order)]

    def add_grant(self, grant: Grant) -> None:
        """Keep a new grant."""
        row = {**grant_row(grant), "used": grant.used, "spent": spent_text(grant.spent)}
        self._database.transact(lambda connection: connection.execute(sql.add_grant, row))

    def replace_grant(self, old: Grant, new: Grant) -> bool:
        """Put `new` where `old` is, if it still is, but for what calls have used; compare by id and version."""
        values = {"of": old.id, "was": old.version, **grant_row(new)}
        return self._database.transact(lambda connection: connection.execute(sql.replace_grant, values).rowcount > 0)

    def prune(self, now_ns: int | None = None) -> None:
        """Delete what has expired and nothing reads any more: requests, grants, windows, and results kept for replays.

        And what is older than 30 days of where values came from: where a session goes on after that, it is unknown.

        Budgets, claims, denials, events and what people refused stay. Run it now and then; it may run beside calls.

        Args:
            now_ns: everything that expired until then, ns since the epoch; the database's clock by default.
        """
        until = self.now_ns() if now_ns is None else now_ns

        expired_windows = select(windows.c.key).where(windows.c.until_ns <= until).order_by(windows.c.key).limit(_BATCH)

        def drop_windows(connection: Connection) -> int:
            keys = connection.execute(expired_windows.with_for_update()).scalars().all()
            for table, key in ((slots, slots.c.window), (windows, windows.c.key)):
                connection.execute(delete(table).where(key.in_(keys)))
            return len(keys)

        while self._database.transact(drop_windows) == _BATCH:
            pass
        outputs = update(ledger).where(ledger.c.output.is_not(None), ledger.c.expires_ns <= until).values(output=None)
        self._database.transact(lambda connection: connection.execute(outputs))
        expired = delete(requests).where(requests.c.expires_ns <= until, requests.c.id.not_in(sql.refused_requests))
        self._database.transact(lambda connection: connection.execute(expired))
        ended = delete(grants).where(grants.c.expires_ns <= until)
        self._database.transact(lambda connection: connection.execute(ended))
        forgotten = delete(memories).where(memories.c.at_ns <= until - _MEMORY_NS)
        self._database.transact(lambda connection: connection.execute(forgotten))

    def _new_lanes(self) -> Lanes:
        if self._database.is_sqlite:
            return GroupedLane(self._database, self._keys)
        return PooledLanes(self._database, self._keys, self._connections)

    def _begin_anew(self) -> None:
        """In a forked child: leave the parent's connections and chains to the parent."""
        self._database.forget()
        self._lanes = self._new_lanes()


def _reopen_after_fork(store: SqlStore) -> None:
    if hasattr(os, "register_at_fork"):
        reference = weakref.WeakMethod(store._begin_anew)
        os.register_at_fork(after_in_child=lambda: (begin_anew := reference()) and begin_anew())


def _request(row: Row[Any]) -> ApprovalRequest:
    return request_of(row.state, row.version, row.body)


def _grant(row: Row[Any]) -> Grant:
    return grant_from(row.body, state=row.state, version=row.version, used=row.number, spent=row.name)


def _doubts(rows: list[Row[Any]]) -> dict[str, CallState]:
    # A claim that a process left behind is as unknown as one that was settled so. Of two equal calls, that one counts
    # of which less is known.
    worst_last = sorted(rows, key=lambda row: row.state != CallState.RAISED)
    return {row.name: CallState.RAISED if row.state == CallState.RAISED else CallState.UNKNOWN for row in worst_last}


def _used(key: str, parts: defaultdict[str, list[Row[Any]]]) -> Decimal:
    total = next((row.body for row in parts["total"] if row.name == key), "0")
    return total_less(total, (row.body for row in parts["expired"] if row.name == key))


def _entry(rows: list[Row[Any]], now_ns: int) -> LedgerEntry | None:
    if not rows:
        return None
    (row,) = rows
    entry = entry_of(row.state, row.body, row.output, row.number)
    return entry if entry.output is None or entry.expires_ns > now_ns else replace(entry, output=None)

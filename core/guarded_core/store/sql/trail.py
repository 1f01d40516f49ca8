"""Reading the audit trail of a SQL store: the events of all its writers, and whether anything was changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, case, func, or_, select, tuple_

from guarded_core.audit.chain import AuditKeys, Head
from guarded_core.audit.event import TERMINAL, AuditEvent, Outcome
from guarded_core.audit.frames import DIGEST, frame_event, parse_header
from guarded_core.audit.reconcile import check_word
from guarded_core.audit.scan import Chain, Progress
from guarded_core.audit.trail import Filter, Trail
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.wording import counted
from guarded_core.store.base import Store
from guarded_core.store.reconcile import reconcile_kept
from guarded_core.store.sql.database import Database
from guarded_core.store.sql.tables import events, writers
from guarded_core.store.sql.writer import entry

PAGE = 1000
_COPIED = ("time_ns", "call_id", "outcome", "tool", "principal")


# Reads one index from end to end, and then the few events it comes to.
_unsettled_calls = (
    select(events.c.call_id)
    .group_by(events.c.call_id)
    .having(
        func.max(case((events.c.outcome == Outcome.AUTHORIZED.value, 1), else_=0)) == 1,
        func.max(case((events.c.outcome.in_([outcome.value for outcome in TERMINAL]), 1), else_=0)) == 0,
    )
)
_unsettled = (
    select(events.c.line)
    .where(events.c.call_id.in_(_unsettled_calls), events.c.outcome == Outcome.AUTHORIZED.value)
    .order_by(events.c.time_ns, events.c.writer, events.c.seq)
)
_last_writer = select(func.coalesce(func.max(writers.c.n), 0)).scalar_subquery()
_stray_events = select(events.c.seq).where(or_(events.c.writer < 1, events.c.writer > _last_writer)).limit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerification:
    """What was verified.

    Attributes:
        records: how many events.
        writers: in how many chains.
        open: how many of them nobody closed: those writers are at work, or died; a cut of their last records shows only
            in a head kept elsewhere, or in a call without an end.
        heads: where the chain of writers and each writer's chain end, sealed where keys are given: keep them
            elsewhere, as anchors for the next time.
    """

    records: int
    writers: int
    open: int
    heads: tuple[Head, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found, for people."""
        intact = f"intact: {self.records:,} records of {counted(self.writers, 'writer')}"
        if not self.open:
            return (intact,)
        who = "1 of the writers is" if self.open == 1 else f"{self.open:,} of the writers are"
        return (intact, f"not closed: {who} at work, or died; a cut of the last records would not show")


class SqlTrail(Trail):
    """The events of a SQL store, of all its writers; made by `SqlStore.trail`.

    Args:
        store: whose they are.
        database: where they are.
        keys: as the store was opened, those of older records included.
        first_writer: verify from this one's records on, where those of the writers before it were archived.
    """

    def __init__(self, store: Store, database: Database, keys: AuditKeys | None, *, first_writer: int = 1) -> None:
        self._store = store
        self._database = database
        self._keys = keys
        self._first_writer = first_writer

    def __len__(self) -> int:
        count: int = self._database.read(select(func.count()).select_from(events))[0][0]
        return count

    def __repr__(self) -> str:
        return f"<SqlTrail on {'SQLite' if self._database.is_sqlite else 'PostgreSQL'}>"

    def numbered(self, wanted: Filter, *, progress: Progress | None = None) -> Iterator[tuple[int, AuditEvent]]:
        """The events that match, oldest first, read in pages; not verified.

        The numbers are places in the whole trail, in the order of time; where only some events are wanted, among those.
        """
        total = len(self) if progress or wanted.last else 0
        first = max(1, total - (wanted.last or total) + 1) if wanted.is_open else 1
        for done, event in enumerate(self._found(wanted), 1):
            if progress:
                progress(done, max(done, total))
            yield first + done - 1, event

    def _found(self, wanted: Filter) -> Iterator[AuditEvent]:
        texts = {"principal": wanted.principal, "tool": wanted.tool, "call_id": wanted.call_id}
        order = (events.c.time_ns, events.c.writer, events.c.seq)
        query = select(*order, events.c.line).where(
            *(events.c[name] == value for name, value in texts.items() if value is not None),
            *([events.c.outcome.in_([one.value for one in wanted.outcomes])] if wanted.outcomes else []),
        )
        if wanted.last is not None:
            backwards = query.where(events.c.time_ns >= wanted.since_ns).order_by(*(column.desc() for column in order))
            newest = self._database.read(backwards.limit(wanted.last))
            yield from (frame_event(row.line.encode()) for row in reversed(newest))
            return
        query = query.order_by(*order).limit(PAGE)
        after: tuple[int, int, int] = (wanted.since_ns, -1, -1)
        while rows := self._database.read(query.where(tuple_(*order) > after)):
            yield from (frame_event(row.line.encode()) for row in rows)
            after = (rows[-1].time_ns, rows[-1].writer, rows[-1].seq)

    def unsettled(self, *, progress: Progress | None = None) -> tuple[AuditEvent, ...]:
        """The Authorized events of calls without a Succeeded, Failed or Unknown one, oldest first; one query."""
        return tuple(frame_event(row.line.encode()) for row in self._database.read(_unsettled))

    def reconcile(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        """As `Trail.reconcile`, and the store's ledger with it: both, or neither.

        Raises:
            ToolAuditTrailError: "not_unsettled", "invalid_event"; "already_ended": it has just ended by itself.
        """
        outcome = check_word(outcome, by, reason)
        return reconcile_kept(self._store, self, call_id, outcome, by=by, reason=reason)

    def verify(
        self, anchors: Iterable[Head] = (), *, first_writer: int | None = None, progress: Progress | None = None
    ) -> StoreVerification:
        """Check every record of every writer: its place, content and key, and the chain of writers.

        Args:
            anchors: heads kept elsewhere; the trail must contain their positions.
            first_writer: by default, as the trail was opened.
            progress: called with records done and records in all.

        Raises:
            ToolAuditTrailError: with the code of what is wrong, as for a file trail; "unknown_writer": there are
                records of a writer that is not in the chain of writers.
        """
        expected = {anchor.trail: anchor for anchor in anchors}
        found = self._database.read(select(writers).order_by(writers.c.n))
        done, total = 0, len(self) if progress else 0

        def advance(records: int) -> None:
            nonlocal done
            done += records
            if progress:
                progress(done, max(done, total))

        heads = [self._verify_registry(found, expected)] if found else []
        first = self._first_writer if first_writer is None else first_writer
        for row in found[1:first]:
            expected.pop(row.id, None)
        kept = found[max(1, first) :]
        heads += [self._verify_writer(row, expected, advance) for row in kept]
        if self._database.read(_stray_events):
            raise ToolAuditTrailError("unknown_writer", "there are records of a writer that is not registered")
        if expected:
            raise ToolAuditTrailError("truncated", "a head was taken of a writer that is gone")
        return StoreVerification(
            records=done,
            writers=len(kept),
            open=sum(not head.closed for head in heads[1:]),
            heads=tuple(heads),
        )

    def _verify_registry(self, rows: Sequence[Row[Any]], expected: dict[str, Head]) -> Head:
        """Follow the chain of writers, each of whom must have the chain that it says."""
        chain = Chain(self._keys)
        _expect(chain, expected.pop(rows[0].id, None))
        chain.begin(rows[0].header.encode(), 1)
        chain.follow([row.line.encode() for row in rows[1:]])
        chain.finish()
        for count, row in enumerate(rows):
            header = row.header.encode()
            said = b":%s:" % entry(row.id, header[-DIGEST:])
            is_listed = count == 0 or row.line.encode()[:-DIGEST].endswith(said)
            if row.n != count or parse_header(header)[0].trail != row.id or not is_listed:
                raise ToolAuditTrailError("corrupt", f"writer {count} is not the one that was registered")
        return chain.head()

    def _verify_writer(self, row: Row[Any], expected: dict[str, Head], advance: Callable[[int], None]) -> Head:
        chain = Chain(self._keys)
        closed = None if row.head is None else Head.parse(row.head)
        _expect(chain, closed, expected.pop(row.id, None))
        chain.begin(row.header.encode(), 1)
        for page in self._pages(row.n):
            chain.follow([event.line.encode() for event in page])
            for event in page:
                record = frame_event(event.line.encode())
                if any(getattr(record, name) != getattr(event, name) for name in _COPIED):
                    raise ToolAuditTrailError("corrupt", f"a column of writer {row.n}'s record {event.seq} was changed")
            advance(len(page))
        chain.finish()
        if closed is not None and (not closed.closed or closed.count != chain.count):
            text = f"writer {row.n} was closed at {closed.count} records, and goes on"
            raise ToolAuditTrailError("beyond_head", text)
        return chain.head(closed=closed is not None)

    def _pages(self, writer: int) -> Iterator[Sequence[Row[Any]]]:
        query = select(events).where(events.c.writer == writer).order_by(events.c.seq).limit(PAGE)
        page = self._database.read(query)
        while page:
            yield page
            page = self._database.read(query.where(events.c.seq > page[-1].seq))


def _expect(chain: Chain, *heads: Head | None) -> None:
    for head in heads:
        if head is not None:
            chain.expect(head)

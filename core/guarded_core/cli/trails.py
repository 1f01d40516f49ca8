"""Where a trail is, for ``guarded audit``: in a file, or in a store's database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer

from guarded_core.audit import verify as reading
from guarded_core.audit.chain import AuditKeys, Head
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.files import trail_path
from guarded_core.audit.repair import Repair
from guarded_core.audit.repair import repair as mend
from guarded_core.audit.walk import Progress, load_head
from guarded_core.cli import stores
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.wording import counted
from guarded_core.pipeline.reconcile import settle_abandoned

if TYPE_CHECKING:
    from guarded_core.store.sql import SqlStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events are wanted, and how many, the newest; None wants all."""

    principal: str | None = None
    tool: str | None = None
    outcomes: list[Outcome] | None = None
    since: int | None = None
    last: int | None = None

    def wants(self, event: AuditEvent) -> bool:
        """Whether the event passes."""
        return (
            self.principal in (None, event.principal)
            and self.tool in (None, event.tool)
            and (not self.outcomes or event.outcome in self.outcomes)
            and (self.since is None or event.time_ns >= self.since)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was found intact: said in lines, and the heads where it ends."""

    lines: tuple[str, ...]
    heads: tuple[Head, ...]


class Trail(Protocol):
    """A trail that commands read and mend. Everything raises ToolAuditTrailError for what is wrong with it."""

    def verify(self, anchors: Iterable[Head], report: Progress | None) -> Verified:
        """Check every record, and that these heads are of it."""

    def events(self, wanted: Filter, report: Progress | None) -> Iterator[tuple[int, AuditEvent]]:
        """Numbered events, oldest first."""

    def unsettled(self, report: Progress | None) -> Iterable[AuditEvent]:
        """Authorized events without an end."""

    def settle(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        """Record the end of one of them."""

    def repair(self, *, by: str) -> Repair | None:
        """Mend a torn end; None where there is none."""


@contextmanager
def opened(place: str, keys: Path | None, first: int = 1) -> Iterator[Trail]:
    """The trail at that path or store URL; what goes wrong there ends the command with one line.

    Args:
        place: of the trail.
        keys: file of its keys.
        first: segment of a file, or writer of a store, to begin with.
    """
    try:
        found = AuditKeys.from_file(keys) if keys else None
        if "://" in place:
            with stores.opened(place, found) as store:
                yield _StoreTrail(store, first)
        else:
            yield _FileTrail(Path(place), found, first)
    except ToolAuditTrailError as error:
        # A URL may hold a password.
        named = error.path or ("the store" if "://" in place else place)
        stores.fail(f"{named}: {error.code}: {str(error).removeprefix(f'{error.path}: ')}")


@dataclass(frozen=True, slots=True)
class _FileTrail:
    path: Path
    keys: AuditKeys | None
    first: int

    def verify(self, anchors: Iterable[Head], report: Progress | None) -> Verified:
        anchor = next(iter(anchors), None)
        found = reading.verify(self.path, self.keys, anchor=anchor, first_segment=self.first, progress=report)
        lines = [f"intact: {found.records:,} records in {counted(found.segments, 'segment')}"]
        if not found.closed:
            died = "not closed: it is being written, or its writer died; "
            lines.append(f"{died}a cut behind record {found.seen:,} would not show")
        return Verified(lines=tuple(lines), heads=(found.head,))

    def events(self, wanted: Filter, report: Progress | None) -> Iterator[tuple[int, AuditEvent]]:
        records = reading.read(self.path, self.keys, first_segment=self.first, progress=report)
        return ((number, event) for number, event in records if wanted.wants(event))  # all are read: it verifies

    def unsettled(self, report: Progress | None) -> Iterable[AuditEvent]:
        return reading.unsettled(self.path, self.keys, first_segment=self.first, progress=report)

    def settle(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        if load_head(trail_path(self.path)) is None:
            raise ToolAuditTrailError("no_trail", "there is no trail")  # opening would begin one
        with DurableToolAuditTrail.open(self.path, keys=self.keys, auto_rotate=True) as trail:
            return trail.settle(call_id, outcome, by=by, reason=reason, first_segment=self.first)

    def repair(self, *, by: str) -> Repair | None:
        return mend(self.path, self.keys, by=by)


@dataclass(frozen=True, slots=True)
class _StoreTrail:
    store: SqlStore
    first: int

    def verify(self, anchors: Iterable[Head], report: Progress | None) -> Verified:
        found = self.store.trail().verify(anchors, first_writer=self.first, progress=report)
        lines = [f"intact: {found.records:,} records of {counted(found.writers, 'writer')}"]
        if found.open:
            died = "are at work, or died; a cut of their last records would not show"
            lines.append(f"not closed: {found.open:,} of the writers {died}")
        return Verified(lines=tuple(lines), heads=found.heads)

    def events(self, wanted: Filter, report: Progress | None) -> Iterator[tuple[int, AuditEvent]]:
        trail = self.store.trail()
        total = len(trail) if report or wanted.last else 0
        found = trail.events(
            principal=wanted.principal,
            tool=wanted.tool,
            outcome=wanted.outcomes,
            since_ns=wanted.since or 0,
            last=wanted.last,
        )
        is_whole = wanted == Filter(last=wanted.last)  # of some events, a number is none in the trail
        first = max(1, total - (wanted.last or total) + 1) if is_whole else 1
        for done, event in enumerate(found, 1):
            if report:
                report(done, max(done, total))
            yield first + done - 1, event

    def unsettled(self, report: Progress | None) -> Iterable[AuditEvent]:
        return self.store.trail().unsettled()

    def settle(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        return settle_abandoned(self.store, call_id, outcome, by=by, reason=reason)

    def repair(self, *, by: str) -> Repair | None:
        raise typer.BadParameter("a database mends itself: only a file can be torn")

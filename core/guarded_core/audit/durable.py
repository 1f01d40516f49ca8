"""The durable audit trail: a file that one process writes, each record sealed and on the disk before it counts.

`DurableToolAuditTrail` writes it, `FileTrail` only reads: nothing is locked for that, and nothing is written.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from os import PathLike
from typing import Any, Self

from guarded_core.audit.card import events_grid
from guarded_core.audit.chain import AuditKeys, Head, KeysLike
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.files import trail_path
from guarded_core.audit.frames import encode_event
from guarded_core.audit.group_commit import GroupCommit
from guarded_core.audit.room import Room
from guarded_core.audit.scan import Progress, load_head
from guarded_core.audit.trail import Filter, Trail, append_word
from guarded_core.audit.verify import Verification, read, verify
from guarded_core.audit.writer import Item, Pending, TrailWriter
from guarded_core.ground.errors import ToolAuditTrailError

DEFAULT_BYTES = 16 * 1024 * 1024
DEFAULT_RECORDS = 4096


class FileTrail(Trail):
    """The events of the trail at a path, whoever writes it; each is verified on its way.

    A fault raises when the reading comes to it: what was yielded before is verified, what was cut from the end shows at
    the end. `guarded_core.audit.scan.scan` names the faults.

    Args:
        path: the trail's, as it was opened.
        keys: as it was opened, those of older records included.
        first_segment: begin with this one, where the segments before it were archived.
    """

    def __init__(self, path: str | PathLike[str], keys: KeysLike = None, *, first_segment: int = 1) -> None:
        self._path = trail_path(path)
        self._keys = AuditKeys.of(keys)
        self._first_segment = first_segment

    def numbered(self, wanted: Filter, *, progress: Progress | None = None) -> Iterator[tuple[int, AuditEvent]]:
        """The events that match, with their numbers; the whole trail is read and verified for them."""
        return wanted.of(read(self._path, self._keys, first_segment=self._first_segment, progress=progress))

    def verify(self, anchors: Iterable[Head] = (), *, progress: Progress | None = None) -> Verification:
        """Check every byte, as `guarded_core.audit.verify.verify`."""
        return verify(self._path, self._keys, anchor=anchors, first_segment=self._first_segment, progress=progress)

    def __len__(self) -> int:
        return self.verify().records

    def reconcile(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        """As `Trail.reconcile`; the trail is opened for it, so nobody else may be writing it."""
        if load_head(self._path) is None:
            raise ToolAuditTrailError("no_trail", "there is no trail")  # opening would begin one
        with DurableToolAuditTrail.open(self._path, keys=self._keys, auto_rotate=True) as trail:
            return trail.reconcile(call_id, outcome, by=by, reason=reason, first_segment=self._first_segment)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class DurableToolAuditTrail(FileTrail):
    """Appends events to a file, each chained to the one before and synced to the disk before `append` returns.

    Made by `open`. One process writes it, with as many threads and tasks as it likes: those that append at the same
    time share one sync. Close it, or use it as a context manager (the end of the program closes it too): a closed trail
    shows if its end is cut. One whose writer died cannot tell a cut from a crash, back to its last head: see `head`.
    """

    blocking = True

    def __init__(self, writer: TrailWriter, path: str, keys: AuditKeys | None) -> None:
        super().__init__(path, keys)
        self._writer = writer
        self._group: GroupCommit[Item] = GroupCommit(writer.commit)
        self._close = weakref.finalize(self, _close, writer, self._group)

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_records: int = DEFAULT_RECORDS,
        keys: KeysLike = None,
        auto_rotate: bool = False,
    ) -> Self:
        """Open a trail, or begin one; its folder must exist.

        Every record of the segment in `path` is verified, and that the trail contains the position its head was at.

        Args:
            path: a regular file of this user's that no other user may read or write.
            max_bytes: ceiling of a segment, 512 B to 1 TiB.
            max_records: ceiling of a segment, 1 to 2³².
            keys: what seals the records; without, the chain shows accidents, but whoever can write the files can
                rewrite it. See `AuditKeys`.
            auto_rotate: whether a full segment gives way to a new one, instead of refusing events.

        Raises:
            ToolAuditTrailError: "invalid_capacity", "invalid_path", "invalid_keys"; "unsafe_file_type", "unsafe_owner",
                "unsafe_mode"; "locked"; "too_large"; "unavailable", "write_failed"; or what verifying finds, see
                `guarded_core.audit.scan.scan`: after a crash "torn_tail", which ``guarded audit repair`` mends.
        """
        room = Room(max_bytes, max_records, rotates=auto_rotate)
        key_ring, absolute = AuditKeys.of(keys), trail_path(path)
        try:
            return cls(TrailWriter(absolute, key_ring, room), absolute, key_ring)
        except ToolAuditTrailError as error:
            raise error.at(absolute) from None

    def append(self, event: AuditEvent) -> None:
        """Keep `event`; it is on the disk when this returns.

        Raises:
            ToolAuditTrailError: "invalid_event", "event_too_large", "closed", "forked", "unhealthy",
                "external_modification", "quota_exceeded", "write_failed" (the file is as before), "sync_failed" (the
                record may be there; nothing more is taken until the trail is opened again).
        """
        try:
            self._group.submit(self._pending(event))
        except ToolAuditTrailError as error:
            raise error.at(self._path) from None

    async def aappend(self, event: AuditEvent) -> None:
        """As `append`, without blocking the event loop. Cancelled, the event is kept all the same."""
        try:
            await self._group.asubmit(self._pending(event))
        except ToolAuditTrailError as error:
            raise error.at(self._path) from None

    def _pending(self, event: AuditEvent) -> Pending:
        self._check_process()
        return Pending(event, encode_event(event), self)

    def _check_process(self) -> None:
        if self._writer.is_forked:
            raise ToolAuditTrailError("forked", "the trail was opened before a fork: each process opens one of its own")

    def _control(self, action: Callable[[], Any]) -> Any:
        """Let the writer do something between two batches."""
        self._check_process()
        return self._group.submit(action)

    def rotate(self) -> Head:
        """Close the segment and go on in a new one, linked to it; an empty segment stays.

        Returns:
            The head of the new segment.

        Raises:
            ToolAuditTrailError: "closed", "forked", "unhealthy", "external_modification", "write_failed".
        """
        head: Head = self._control(self._writer.rotate)
        return head

    def head(self) -> Head:
        """Where the chain on disk stands, sealed: kept somewhere else, it pins everything up to here.

        Raises:
            ToolAuditTrailError: "forked".
        """
        head: Head = self._control(self._writer.head)
        return head

    def check(self) -> None:
        """Raise ToolAuditTrailError where it takes no event: "closed", "forked", "unhealthy" or moved away."""
        self._control(self._writer.check)

    def heads(self) -> tuple[Head, ...]:
        """Its one `head`."""
        return (self.head(),)

    def events(
        self,
        *,
        principal: str | None = None,
        tool: str | None = None,
        outcome: Outcome | Collection[Outcome] | None = None,
        call_id: str | None = None,
        since_ns: int = 0,
        last: int | None = None,
        first_segment: int = 1,
    ) -> Iterator[AuditEvent]:
        """The events that match, read from `first_segment` on, each verified on its way. Args: as of `Filter`."""
        return self._from(first_segment).events(
            principal=principal, tool=tool, outcome=outcome, call_id=call_id, since_ns=since_ns, last=last
        )

    def unsettled(self, *, first_segment: int = 1, progress: Progress | None = None) -> tuple[AuditEvent, ...]:
        """The Authorized events without an outcome, calls in flight among them. Raises as `events`."""
        return self._from(first_segment).unsettled(progress=progress)

    def reconcile(self, call_id: str, outcome: Outcome, *, by: str, reason: str, first_segment: int = 1) -> AuditEvent:
        """As `Trail.reconcile`; looks from `first_segment` on, where earlier ones were archived."""
        of_call = self.events(call_id=call_id, first_segment=first_segment)
        return append_word(self, of_call, outcome, by=by, reason=reason)

    def settle(self, call_id: str, outcome: Outcome, *, by: str, reason: str, first_segment: int = 1) -> AuditEvent:
        """Deprecated: `reconcile`."""
        warnings.warn("DurableToolAuditTrail.settle is reconcile now", DeprecationWarning, stacklevel=2)
        return self.reconcile(call_id, outcome, by=by, reason=reason, first_segment=first_segment)

    def _from(self, first_segment: int) -> FileTrail:
        return FileTrail(self._path, self._keys, first_segment=first_segment)

    @property
    def recent(self) -> tuple[tuple[int, AuditEvent], ...]:
        """The segment's last twenty events with their numbers. Raises ToolAuditTrailError: "forked"."""
        records: tuple[tuple[int, AuditEvent], ...] = self._control(lambda: tuple(self._writer.recent))
        return records

    def close(self) -> None:
        """Write the closing head, let the file go; again does nothing. Raises ToolAuditTrailError: "write_failed"."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._writer.count

    def __repr__(self) -> str:
        return f"<DurableToolAuditTrail of {self._writer.count} records>"

    def __str__(self) -> str:
        return events_grid(self.recent).text()


def _close(writer: TrailWriter, group: GroupCommit[Item]) -> None:
    if not writer.is_forked:
        try:
            group.submit(writer.close)
        finally:
            group.stop()

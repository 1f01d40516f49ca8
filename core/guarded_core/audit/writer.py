"""The one writer of a trail: it seals, appends, rotates and closes, one batch at a time."""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from guarded_core.audit import files
from guarded_core.audit.chain import AuditKeys, Head, seal_for, signing_id
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.frames import Header, encode_frame, frame_event
from guarded_core.audit.group_commit import Entry
from guarded_core.audit.room import Room
from guarded_core.audit.scan import Chain, load_head, scan
from guarded_core.ground.errors import ToolAuditTrailError

RECENT = 20


class Pending(NamedTuple):
    """An event to append.

    Attributes:
        event: itself.
        body: as it is sealed.
        keep: the trail, so that it is not collected, and closed, before the event is written.
    """

    event: AuditEvent
    body: bytes
    keep: object


Item: TypeAlias = "Pending | Callable[[], Any]"


class TrailWriter:
    """Owns the file, the chain's position and the room left. Whoever leads the group commit calls it, nobody else.

    Raises:
        ToolAuditTrailError: as `DurableToolAuditTrail.open`.

    Attributes:
        recent: the last events on disk, with their numbers.
    """

    def __init__(self, path: str, keys: AuditKeys | None, room: Room) -> None:
        self.recent: deque[tuple[int, AuditEvent]] = deque(maxlen=RECENT)
        self._path = path
        self._room = room
        self._key = signing_id(keys).encode()
        self._seal = seal_for(keys, signing_id(keys))
        self._chain = Chain(keys)  # what is on disk
        self._staged: list[tuple[Entry[Item], bytes]] = []
        self._half_written = False
        self._pid = os.getpid()
        self._fd: int | None = None
        self._hold(self._open())
        self._staged_count, self._digest = self._chain.count, self._chain.digest  # with what is staged
        _WRITERS.add(self)

    # Opening

    def _hold(self, fd: int) -> None:
        info = os.fstat(fd)
        self._fd, self._identity = fd, (info.st_dev, info.st_ino)

    def _open(self) -> int:
        head = load_head(self._path)
        fd = files.open_active(self._path, head.segment if head else None)
        with files.closed_on_error(fd), files.os_errors():
            if head is None and os.fstat(fd).st_size == 0 and not files.closed_segments(self._path):
                new = self._start_segment(self._next_header(trail=secrets.token_hex(16)))
                os.close(fd)
                return new
            self._scan(fd, head)
            files.replace_head(self._path, str(self._chain.head()))
        return fd

    def _scan(self, fd: int, head: Head | None) -> None:
        """Verify from the segment that the head names, which but after a crash is the one that is written."""
        self._room.begin(os.fstat(fd).st_size)
        self._check_ceilings()
        for lines in scan(self._path, self._chain, first=head.segment if head else 1, writing=True):
            for number, line in enumerate(lines, self._chain.count - len(lines) + 1):
                event = frame_event(line)
                self._room.take(event, len(line) + 1)
                self.recent.append((number, event))
        self._room.begin(self._chain.end, self._chain.records)
        self._check_ceilings()

    def _check_ceilings(self) -> None:
        if self._room.is_exceeded and not self._room.rotates:
            raise ToolAuditTrailError("too_large", "the trail is over its ceilings: raise them, and rotate")

    # Committing

    def commit(self, entries: list[Entry[Item]]) -> None:
        """Append the events of `entries`, in order, and call what is not an event; errors go to the entries."""
        replaced = self._is_replaced()
        try:
            for entry in entries:
                self._take(entry, replaced)
            self._flush()
        except BaseException:
            # Ctrl-C, anywhere: how far the file and the chain have come is not known any more.
            self._half_written = True
            raise

    def _take(self, entry: Entry[Item], replaced: bool) -> None:
        try:
            if isinstance(entry.item, Pending):
                self._stage(entry, entry.item, replaced)
            else:
                self._flush()
                entry.result = entry.item()
        except ToolAuditTrailError as error:
            entry.error = error

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process: its copy must touch neither the file nor a lock."""
        return os.getpid() != self._pid

    def _check_usable(self) -> int:
        if self._fd is None:
            raise ToolAuditTrailError("closed", "the trail is closed")
        if self._half_written:
            raise ToolAuditTrailError("unhealthy", "an earlier write failed half-way: open the trail again")
        return self._fd

    def check(self) -> int:
        """The open file. Raises ToolAuditTrailError where the next record could not be written, as far as it shows."""
        fd = self._check_usable()
        if self._is_replaced():
            raise _modified()
        return fd

    def _is_replaced(self) -> bool:
        """Whether the path names another file than ours, or ours has another length than we gave it."""
        if self._fd is None:
            return False
        try:
            info = os.lstat(self._path)
        except OSError:
            return True
        return (info.st_dev, info.st_ino, info.st_size) != (*self._identity, self._room.length)

    def _stage(self, entry: Entry[Item], item: Pending, replaced: bool) -> None:
        self._check_usable()
        if replaced:
            raise _modified()
        line, digest = self._frame(item.body)
        if not self._room.fits(item.event, len(line)):
            self._make_room(item.event, len(line))
            line, digest = self._frame(item.body)
        self._room.take(item.event, len(line))
        self._staged_count, self._digest = self._staged_count + 1, digest
        self._staged.append((entry, line))

    def _frame(self, body: bytes) -> tuple[bytes, bytes]:
        return encode_frame(self._staged_count + 1, self._key, body, self._digest, self._seal)

    def _make_room(self, event: AuditEvent, size: int) -> None:
        self._flush()
        header, _ = self._next_header().encode(self._key, self._seal)
        if not self._room.rotates or not self._room.fits(event, size, header=len(header)):
            raise ToolAuditTrailError("quota_exceeded", "the trail is full: rotate it, or raise its ceilings")
        self.rotate()

    def _flush(self) -> None:
        """Write what is staged, and sync: all of it, or none."""
        staged, self._staged = self._staged, []
        if not staged:
            return
        try:
            self._write(b"".join(line for _, line in staged))
        except ToolAuditTrailError as error:
            self._room.roll_back()
            self._staged_count, self._digest = self._chain.count, self._chain.digest
            for entry, _ in staged:
                entry.error = ToolAuditTrailError(error.code, str(error))
            return
        for number, (entry, _) in enumerate(staged, self._chain.count + 1):
            if isinstance(entry.item, Pending):
                self.recent.append((number, entry.item.event))
        self._room.confirm()
        self._chain.count, self._chain.digest = self._staged_count, self._digest

    def _write(self, data: bytes) -> None:
        fd = self._check_usable()
        self._half_written = True  # and stays so where the disk leaves it in doubt
        try:
            files.write_all(fd, data)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(fd, self._room.length - len(data))
                self._half_written = False
            raise files.failure(error, "write_failed", "the trail cannot be written") from None
        try:
            files.sync(fd)
        except OSError as error:
            raise files.failure(error, "sync_failed", "the disk did not confirm the write") from None
        self._half_written = False

    # Segments

    @property
    def count(self) -> int:
        """Records on disk, in all segments."""
        return self._chain.count

    def head(self) -> Head:
        """Where the chain on disk stands."""
        return self._chain.head()

    def rotate(self) -> Head:
        """Close the segment and go on in a new one, where there is a record in it.

        Returns:
            The new segment's head.

        Raises:
            ToolAuditTrailError: "closed", "unhealthy", "external_modification", "write_failed".
        """
        old = self.check()
        if self._chain.records:
            with files.os_errors("write_failed", "the next segment cannot be made"):
                self._hold(self._start_segment(self._next_header()))
                os.close(old)
        return self.head()

    def _next_header(self, trail: str = "") -> Header:
        return Header(
            trail=trail or self._chain.trail,
            segment=self._chain.segment + 1,
            count=self._chain.count,
            previous=self._chain.digest.decode(),
            created_ns=time.time_ns(),
        )

    def _start_segment(self, header: Header) -> int:
        """Put a new segment in the place of the present one, with its head."""
        line, digest = header.encode(self._key, self._seal)
        head = Head.sealed(
            self._chain.keys,
            trail=header.trail,
            segment=header.segment,
            count=header.count,
            digest=digest.decode(),
        )
        fd = files.prepare_segment(self._path, line, str(head))
        with files.closed_on_error(fd):
            self._half_written = True  # until all names are in place
            files.install(self._path, close_as=self._chain.segment)
            self._half_written = False
        self._chain.begin(line[:-1], header.segment)
        self._digest = digest
        self._room.begin(len(line))
        return fd

    # Closing

    def close(self) -> None:
        """Write the head that says so, and let the file go. Raises ToolAuditTrailError ("write_failed")."""
        if self._fd is None:
            return
        whole = not self._half_written and not self._is_replaced()
        fd, self._fd = self._fd, None
        try:
            if whole:
                with files.os_errors("write_failed", "the closing head cannot be written"):
                    files.replace_head(self._path, str(self._chain.head(closed=True)))
        finally:
            os.close(fd)

    def forget(self) -> None:
        """Let the file go without a word: in a child process, whose copy would hold the parent's lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


_WRITERS: weakref.WeakSet[TrailWriter] = weakref.WeakSet()


def _modified() -> ToolAuditTrailError:
    return ToolAuditTrailError("external_modification", "somebody else changed, moved or removed the trail")


def _forget_in_child() -> None:
    for writer in _WRITERS:
        writer.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)

"""Following a trail from line to line and from segment to segment: what has been passed is verified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeAlias

from guarded_core.audit.chain import ORIGIN, AuditKeys, Head, Seal, plain_seal, seal_for
from guarded_core.audit.files import closed_path, closed_segments, has_writer, open_to_read, os_errors, read_head_file
from guarded_core.audit.frames import DIGEST, MAX_LINE, Header, is_frame, parse_header
from guarded_core.ground.errors import ToolAuditTrailError

Progress: TypeAlias = Callable[[int, int], None]

CHUNK = 1 << 20


class Chain:
    """How far a trail has been verified.

    Attributes:
        header: of the segment being followed; None before the first.
        count: records passed, those of earlier segments included.
        digest: of the last line passed.
        end: bytes of this segment passed.
        beside: the head beside the trail, once `scan` has read it; None where there is none.
    """

    def __init__(self, keys: AuditKeys | None) -> None:
        self.keys = keys
        self.beside: Head | None = None
        self.header: Header | None = None
        self.count = 0
        self.digest = ORIGIN
        self.end = 0
        self._key = b""
        self._seal: Seal = plain_seal
        self._heads: list[Head] = []

    @property
    def segment(self) -> int:
        """Number of the segment being followed, 0 before the first."""
        return self.header.segment if self.header else 0

    @property
    def trail(self) -> str:
        """The trail's random id, empty before the first segment."""
        return self.header.trail if self.header else ""

    @property
    def records(self) -> int:
        """Records of this segment passed."""
        return self.count - (self.header.count if self.header else 0)

    def head(self, *, closed: bool = False) -> Head:
        """A sealed head of where the chain stands."""
        return Head.sealed(
            self.keys,
            trail=self.trail,
            segment=self.segment,
            count=self.count,
            digest=self.digest.decode(),
            closed=closed,
        )

    def expect(self, head: Head) -> None:
        """Demand that the chain contains the position of `head`. Raises what ``head.check`` raises."""
        head.check(self.keys)
        self._heads.append(head)

    def begin(self, line: bytes, segment: int) -> None:
        """Pass the header line of segment number `segment`, without its newline.

        Raises:
            ToolAuditTrailError: also where it does not follow the segment passed before.
        """
        header, key = parse_header(line)
        if header.segment != segment:
            raise ToolAuditTrailError("segment_missing", f"segment {segment} is not there")
        if self.header is not None or segment == 1:
            before = (self.trail or header.trail, self.count, self.digest.decode())
            if (header.trail, header.count, header.previous) != before:
                raise ToolAuditTrailError("corrupt", f"segment {segment} does not follow the one before it")
        self._key, self._seal = key.encode(), seal_for(self.keys, key)
        if self._seal(header.previous.encode() + line[:-DIGEST]) != line[-DIGEST:]:
            raise ToolAuditTrailError("corrupt", f"the header of segment {segment} was changed")
        self.header, self.count, self.digest, self.end = header, header.count, line[-DIGEST:], len(line) + 1
        self._meet(header.count, [line])

    def follow(self, lines: list[bytes]) -> None:
        """Pass record lines, without their newlines. Raises ToolAuditTrailError at the first that does not follow."""
        first, end = self.count + 1, self.end
        count, digest, key, seal = self.count, self.digest, self._key, self._seal
        try:
            for count, line in enumerate(lines, first):
                if not line.startswith(b"%d:%05x:%s:" % (count, len(line) + 1, key)):
                    key, seal = self._turn(count, line)
                if seal(digest + line[:-DIGEST]) != line[-DIGEST:]:
                    text = f"record {count} was changed, or does not follow record {count - 1}"
                    raise ToolAuditTrailError("corrupt", text)
                digest = line[-DIGEST:]
                end += len(line) + 1
                self.count = count
        finally:
            self.digest, self.end, self._key, self._seal = digest, end, key, seal
        self._meet(first, lines)

    def _turn(self, count: int, line: bytes) -> tuple[bytes, Seal]:
        """The key that this line turns to, and its seal."""
        if not is_frame(line) or not line.startswith(b"%d:" % count):
            raise ToolAuditTrailError("corrupt", f"record {count} is damaged or missing")
        key = line.split(b":", 3)[2]
        return key, seal_for(self.keys, key.decode())

    def _meet(self, first: int, lines: list[bytes]) -> None:
        """Compare the heads whose position is in `lines`, the first of which has the number `first`."""
        for head in [h for h in self._heads if h.segment == self.segment and 0 <= h.count - first < len(lines)]:
            if head.trail != self.trail or head.digest.encode() != lines[head.count - first][-DIGEST:]:
                text = f"the trail is not the one whose head was taken at {head.count} records"
                raise ToolAuditTrailError("head_mismatch", text)
            self._heads.remove(head)

    def finish(self) -> None:
        """Raise ToolAuditTrailError ("truncated") where an expected head was not met."""
        for head in self._heads:
            text = f"the trail ends after {self.count} records, and a head says that there were {head.count}"
            raise ToolAuditTrailError("truncated", text)


def load_head(path: str) -> Head | None:
    """The head beside the trail, not checked yet; None where there is none."""
    text = read_head_file(path)
    return None if text is None else Head.parse(text)


def scan(
    path: str, chain: Chain, *, first: int = 1, progress: Progress | None = None, writing: bool = False
) -> Iterator[list[bytes]]:
    """Yield a trail's record lines, verified, in lists of about a megabyte; then compare the end with the head.

    Args:
        path: from `trail_path`.
        chain: a new one; it holds where the scan stands.
        first: the segment to begin with; what it says of the one before is taken on trust.
        progress: called with bytes done and bytes in all.
        writing: whether the caller holds the writer's lock. Otherwise an unfinished last line of a trail that has a
            writer is just being written, and ends the scan.

    Raises:
        ToolAuditTrailError: "no_trail", "segment_missing", "not_a_trail", "unsupported_version", "corrupt",
            "torn_tail", "truncated", "beyond_head", "head_missing", "head_invalid", "head_mismatch", "unkeyed",
            "unknown_key", "unsafe_file_type", "unavailable".
    """
    chain.beside = load_head(path)
    if chain.beside is not None:
        chain.expect(chain.beside)
    total = _size(path, first) if progress else 0
    done, segment, last = 0, first, False
    while not last:
        fd, last = _open_segment(path, segment)
        try:
            for lines in _follow_file(fd, chain, segment):
                yield lines
                if progress:
                    progress(min(done + chain.end, total), total)
        except ToolAuditTrailError as error:
            if not last or error.code != "corrupt" or chain.segment != segment or not _is_torn(fd, chain.end):
                raise
            if writing or not has_writer(path):
                raise torn_tail(chain) from None
        finally:
            os.close(fd)
        done += chain.end
        segment += 1
    chain.finish()
    _check_end(path, chain)
    if progress:
        progress(total, total)


def torn_tail(chain: Chain) -> ToolAuditTrailError:
    """The error that names the repair."""
    text = f"the last line, after record {chain.count}, is not whole: a writer died there; see `guarded audit repair`"
    return ToolAuditTrailError("torn_tail", text)


def _check_end(path: str, chain: Chain) -> None:
    head = chain.beside
    if head is None and (chain.segment, chain.count) != (1, 0):
        # Only a trail without records may lack one: its writer died while it made the trail.
        raise ToolAuditTrailError("head_missing", "the head beside the trail is gone: a cut could not be seen")
    goes_on = head is not None and head.closed and (head.segment, head.count) != (chain.segment, chain.count)
    # Unless a writer has opened the trail since we read the head.
    if goes_on and load_head(path) == head:
        raise ToolAuditTrailError("beyond_head", "the trail goes on behind where its writer closed it")


def _open_segment(path: str, segment: int) -> tuple[int, bool]:
    """A descriptor of that segment, and whether it is the last."""
    closed = closed_path(path, segment)
    while True:
        fd, active = open_to_read(closed), False
        if fd is None:
            fd, active = open_to_read(path), True
        if fd is None and not os.path.lexists(closed):
            code, text = ("segment_missing", f"segment {segment} is not there")
            if not closed_segments(path):
                code, text = ("no_trail", "there is no trail")
            raise ToolAuditTrailError(code, text)
        if fd is not None and not (active and os.path.lexists(closed)):
            # With nothing behind it, a closed segment is the last: a writer is, or died, in the middle of a rotation.
            last = not os.path.lexists(path) and not os.path.lexists(closed_path(path, segment + 1))
            return fd, active or last
        # The writer closed this segment between our two looks.
        if fd is not None:
            os.close(fd)


def _follow_file(fd: int, chain: Chain, segment: int) -> Iterator[list[bytes]]:
    carry, begun = b"", False
    while chunk := _read(fd):
        lines = (carry + chunk).split(b"\n")
        carry = lines.pop()
        if lines and not begun:
            chain.begin(lines.pop(0), segment)
            begun = True
        chain.follow(lines)
        if lines:
            yield lines
        if len(carry) > MAX_LINE:
            break
    if not begun:
        raise ToolAuditTrailError("not_a_trail", "the file does not begin like an audit trail")
    if carry:
        raise ToolAuditTrailError("corrupt", f"the line after record {chain.count} is not whole")


def _read(fd: int) -> bytes:
    with os_errors(what="the trail cannot be read"):
        return os.read(fd, CHUNK)


def _is_torn(fd: int, offset: int) -> bool:
    """Whether no whole record follows `offset`: what is there can only be the rest of a last, unfinished write."""
    os.lseek(fd, offset, os.SEEK_SET)
    carry = b""
    while chunk := _read(fd):
        lines = (carry[-MAX_LINE:] + chunk).split(b"\n")
        carry = lines.pop()
        if any(is_frame(line) for line in lines):
            return False
    return True


def _size(path: str, first: int) -> int:
    names = [closed_path(path, segment) for segment in closed_segments(path) if segment >= first]
    with os_errors():
        return sum(os.lstat(name).st_size for name in [*names, path] if os.path.lexists(name))

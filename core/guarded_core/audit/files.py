"""A trail's files: their names, opening them safely, the lock, and replacing them without a gap.

Beside ``audit.log``, the segment that is written: ``audit.log.000001`` and on, the closed segments;
``audit.log.head``, the head; ``audit.log.torn-1`` and on, what repairs kept aside.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike

from guarded_core.ground.errors import ToolAuditTrailError

try:
    import fcntl
except ImportError:  # not a POSIX system: reading works, writing is refused
    fcntl = None  # type: ignore[assignment]

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_MAX_HEAD = 4096


def trail_path(path: str | PathLike[str]) -> str:
    """`path` as an absolute one, so that a later chdir moves nothing. Raises ToolAuditTrailError: "invalid_path"."""
    text = os.fspath(path) if isinstance(path, str | PathLike) else ""
    if not isinstance(text, str) or not text or "\0" in text:
        raise ToolAuditTrailError("invalid_path", "a trail's path is a non-empty text")
    return os.path.abspath(text)


def closed_path(path: str, segment: int) -> str:
    """Where a closed segment is."""
    return f"{path}.{segment:06d}"


def head_path(path: str) -> str:
    """Where the head is."""
    return f"{path}.head"


def closed_segments(path: str) -> list[int]:
    """Numbers of the closed segments that are there, in order."""
    name = re.compile(re.escape(os.path.basename(path)) + r"\.(\d{6,})")
    with os_errors():
        found = [name.fullmatch(entry) for entry in os.listdir(os.path.dirname(path))]
    return sorted(int(match[1]) for match in found if match)


@contextmanager
def os_errors(code: str = "unavailable", what: str = "the trail cannot be opened") -> Iterator[None]:
    """Raise `failure` for an OSError."""
    try:
        yield
    except OSError as error:
        raise failure(error, code, what) from None


def failure(error: OSError, code: str, what: str) -> ToolAuditTrailError:
    """The error with the system's name for it, and without the path that its text holds."""
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return ToolAuditTrailError("unsafe_file_type", "the trail is not a regular file")
    return ToolAuditTrailError(code, f"{what} ({errno.errorcode.get(error.errno or 0, type(error).__name__)})")


def _check_regular(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise ToolAuditTrailError("unsafe_file_type", "the trail is not a regular file")


def open_to_read(path: str) -> int | None:
    """A descriptor of the regular file at `path`, no symlink followed; None where there is none."""
    with os_errors():
        try:
            _check_regular(os.lstat(path))
            fd = os.open(path, _READ)
        except FileNotFoundError:
            return None
    with closed_on_error(fd):
        _check_regular(os.fstat(fd))
    return fd


@contextmanager
def closed_on_error(fd: int) -> Iterator[None]:
    """Close `fd` where the block raises."""
    try:
        yield
    except BaseException:
        os.close(fd)
        raise


def read_head_file(path: str) -> bytes | None:
    """The head file's content, None where there is none."""
    fd = open_to_read(head_path(path))
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_HEAD)


def open_locked(path: str, *, create: bool) -> int:
    """A descriptor to append to `path`, locked for as long as it is open, and checked to be this user's own.

    Raises:
        ToolAuditTrailError: "locked", "unsafe_file_type", "unsafe_owner", "unsafe_mode", "unavailable".
    """
    if fcntl is None:  # before anything is made
        text = f"a trail in a file needs a POSIX system, and this is {sys.platform}; a SQL store keeps a trail anywhere"
        raise ToolAuditTrailError("unavailable", text)
    flags = _WRITE | os.O_APPEND | (os.O_CREAT if create else 0)
    while True:
        with os_errors():
            if os.path.lexists(path):
                _check_regular(os.lstat(path))
            fd = os.open(path, flags, 0o600)
        with closed_on_error(fd):
            _check_own(os.fstat(fd))
            lock(fd)
            if is_at(fd, path):
                return fd
        # Its writer replaced it (a rotation) between our open and our lock.
        os.close(fd)


def _check_own(info: os.stat_result) -> None:
    _check_regular(info)
    if info.st_uid != os.geteuid():
        raise ToolAuditTrailError("unsafe_owner", "the trail belongs to another user")
    if stat.S_IMODE(info.st_mode) & 0o077:
        raise ToolAuditTrailError("unsafe_mode", "other users may read or write the trail; chmod 600 it")


def lock(fd: int) -> None:
    """Take the writer's lock. Raises ToolAuditTrailError: "locked"."""
    with os_errors():
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = (
                "the trail has a writer already, here or in another process, and it can have one: "
                "close that first, as with guard.close()"
            )
            raise ToolAuditTrailError("locked", text) from None


def has_writer(path: str) -> bool:
    """Whether some process has the trail open to write."""
    fd = open_to_read(path)
    if fd is None or fcntl is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def is_at(fd: int, path: str) -> bool:
    """Whether the open file is the one that `path` names."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


def sync(fd: int) -> None:
    """Wait until the file's content and length are on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # there, fsync stops at the drive's cache
    else:
        os.fdatasync(fd)


def sync_directory(path: str) -> None:
    """Wait until the names beside `path` are on the disk."""
    fd = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; a short write is not a success."""
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[written:]


def read_from(fd: int, offset: int) -> bytes:
    """Everything from `offset` on."""
    with os.fdopen(fd, "rb", closefd=False) as file:
        file.seek(offset)
        return file.read()


def write_at(fd: int, offset: int, data: bytes) -> None:
    """Write `data` at `offset`, in a file that was opened to append."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_APPEND)
    os.lseek(fd, offset, os.SEEK_SET)
    write_all(fd, data)


def write_new(path: str, data: bytes) -> int:
    """Make a new file with that content, synced: a descriptor to append to it.

    What stands at `path` goes: only the holder of the trail's lock calls this, and only a crash leaves something there.
    """
    if os.path.lexists(path):
        os.unlink(path)
    fd = os.open(path, _WRITE | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(fd, data)
        os.fsync(fd)
    except BaseException:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def prepare_segment(path: str, header: bytes, head: str) -> int:
    """Write the next segment and its head under names of their own, which takes all the room that `install` needs.

    Returns:
        A locked descriptor of the segment.
    """
    os.close(write_new(head_path(path) + ".new", head.encode() + b"\n"))
    fd = write_new(path + ".new", header)
    with closed_on_error(fd):
        lock(fd)
    return fd


def install(path: str, *, close_as: int) -> None:
    """Put the prepared segment and head into place; what was there becomes closed segment `close_as`, or goes (0)."""
    if close_as:
        if os.path.lexists(closed_path(path, close_as)):
            raise FileExistsError(errno.EEXIST, "a closed segment of that number is there already")
        os.rename(path, closed_path(path, close_as))
    os.rename(path + ".new", path)
    os.rename(head_path(path) + ".new", head_path(path))
    sync_directory(path)


def replace_head(path: str, text: str) -> None:
    """Put a new head in the place of the old one, in one step that a crash cannot tear."""
    os.close(write_new(head_path(path) + ".new", text.encode() + b"\n"))
    os.rename(head_path(path) + ".new", head_path(path))
    sync_directory(path)


def open_active(path: str, head_segment: int | None) -> int:
    """The locked descriptor of the segment to write, an empty file for a new trail.

    Args:
        path: the trail's.
        head_segment: number of the segment that the head names; None where there is no head.

    Raises:
        ToolAuditTrailError: as `open_locked`; "segment_missing" where the segment is gone.
    """
    closed = closed_segments(path)
    if os.path.lexists(path) or (head_segment is None and not closed):
        return open_locked(path, create=head_segment is None and not closed)
    if head_segment is None or not closed or head_segment > closed[-1]:
        raise ToolAuditTrailError("segment_missing", "the segment that was written last is gone")
    # A writer died between the two renames of a rotation: take back the first.
    fd = open_locked(closed_path(path, closed[-1]), create=False)
    with closed_on_error(fd), os_errors():
        os.rename(closed_path(path, closed[-1]), path)
    return fd

"""The durable trail: each row of what it promises about its file, its ceilings and its failures."""

from __future__ import annotations

import errno
import gc
import itertools
import multiprocessing
import os
import re
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from guarded_core.audit import files
from guarded_core.audit.chain import Head
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.repair import repair
from guarded_core.audit.sink import ToolAuditSink
from guarded_core.audit.verify import read, verify
from guarded_core.ground.errors import ToolAuditTrailError

LONG = "x" * 2000  # a reason that makes an event large


def event(number: int, outcome: Outcome = Outcome.DENIED, **fields: Any) -> AuditEvent:
    """A small event."""
    return AuditEvent(outcome=outcome, time_ns=number, call_id=f"call-{number}", tool="search", **fields)


def code_of(action: Callable[[], object]) -> str:
    """The code that the action fails with; "done" where it does not fail. No error's text has a path."""
    try:
        action()
    except ToolAuditTrailError as error:
        return checked(error)
    return "done"


def checked(error: ToolAuditTrailError) -> str:
    """The code of an error whose text has no path but the trail's own, and that chains to none that has one."""
    assert re.search("/|audit.log", str(error).removeprefix(f"{error.path}: ")) is None
    assert error.__cause__ is None
    return error.code


def fill(trail: DurableToolAuditTrail, make: Callable[[int], AuditEvent]) -> int:
    """Append events until one is refused; how many were not."""
    events = map(make, itertools.count())
    return next(number for number, e in enumerate(events) if code_of(partial(trail.append, e)) != "done")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a trail is to be."""
    return tmp_path / "audit.log"


@pytest.fixture
def trail(path: Path) -> Iterator[DurableToolAuditTrail]:
    """An open trail with one record."""
    with DurableToolAuditTrail.open(path) as trail:
        trail.append(event(1))
        yield trail


def numbers(path: Path) -> list[int]:
    """The events on disk, by what they were made from."""
    return [event.time_ns for _, event in read(path)]


def watch(monkeypatch: pytest.MonkeyPatch, call: str) -> list[os.stat_result]:
    """What each file that is synced from now on looked like then."""
    seen: list[os.stat_result] = []
    real = getattr(os, call)

    def synced(fd: int) -> None:
        seen.append(os.fstat(fd))
        real(fd)

    monkeypatch.setattr(os, call, synced)
    return seen


# Opening


def test_new_trail_is_private_and_begins_with_a_header(path: Path) -> None:
    """A new trail is a file of mode 0600 with a header line, and a head of mode 0600 beside it."""
    assert isinstance(DurableToolAuditTrail.open(path), ToolAuditSink)
    for file in (path, path.with_name("audit.log.head")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert path.read_bytes().startswith(b'guarded-audit:1:-:{"trail":"')
    assert path.read_bytes().count(b"\n") == 1
    assert verify(path).records == 0


def test_creation_is_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating a trail syncs the segment, the head, and then the folder that holds their names."""
    synced = watch(monkeypatch, "fsync")
    trail = DurableToolAuditTrail.open(path)
    assert [stat.S_ISDIR(info.st_mode) for info in synced] == [False, False, True]
    trail.close()


@pytest.mark.parametrize(
    "ceilings",
    [
        {"max_bytes": 511},
        {"max_bytes": (1 << 40) + 1},
        {"max_bytes": 600.0},
        {"max_bytes": True},
        {"max_records": 0},
        {"max_records": (1 << 32) + 1},
    ],
)
def test_ceilings_have_bounds(path: Path, ceilings: dict[str, Any]) -> None:
    """512 B to 1 TiB, 1 to 2³² records; anything else is refused before the file is touched."""
    assert code_of(lambda: DurableToolAuditTrail.open(path, **ceilings)) == "invalid_capacity"
    assert not path.exists()


@pytest.mark.parametrize("wrong", ["", "a\0b", b"bytes", None, 3])
def test_paths_are_texts(wrong: Any) -> None:
    """What is no path is refused."""
    assert code_of(lambda: DurableToolAuditTrail.open(wrong)) == "invalid_path"


def test_folder_must_exist(path: Path) -> None:
    """No folder is made; the error has the system's reason."""
    assert code_of(lambda: DurableToolAuditTrail.open(path / "deeper" / "audit.log")) == "unavailable"


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/dev/null"), os.mkfifo])
def test_only_a_regular_file_is_opened(path: Path, make: Callable[[Path], None]) -> None:
    """A folder, a symlink (dangling or not) or a fifo is no trail, and is not followed or waited for."""
    make(path)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "unsafe_file_type"


def test_symlink_put_there_after_the_look_is_not_followed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open itself refuses symlinks, should the one before have seen a regular file."""
    target = path.with_name("target")
    target.touch(0o600)
    path.symlink_to(target)
    monkeypatch.setattr(os, "lstat", os.stat)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "unsafe_file_type"


@pytest.mark.parametrize("mode", [0o640, 0o602, 0o644])
def test_file_open_to_others_is_refused(path: Path, mode: int) -> None:
    """A trail that other users may read or write is refused."""
    DurableToolAuditTrail.open(path).close()
    path.chmod(mode)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "unsafe_mode"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused(path: Path) -> None:
    """A trail that belongs to somebody else is refused, even by root."""
    DurableToolAuditTrail.open(path).close()
    os.chown(path, 12345, -1)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "unsafe_owner"


@pytest.mark.parametrize("content", [b"{}\n", b"x", b"\n"])
def test_another_file_is_left_alone(path: Path, content: bytes) -> None:
    """A file that is no trail is refused, and stays as it was."""
    path.write_bytes(content)
    path.chmod(0o600)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "not_a_trail"
    assert path.read_bytes() == content


def test_empty_file_becomes_a_trail(path: Path) -> None:
    """A crash while a trail is made can leave an empty file: it begins there."""
    path.touch(0o600)
    with DurableToolAuditTrail.open(path) as trail:
        trail.append(event(1))
    assert numbers(path) == [1]


def test_trail_goes_on_where_it_ended(path: Path) -> None:
    """Opened again, a trail keeps its id, its records and its count."""
    heads = []
    for number in range(1, 4):
        with DurableToolAuditTrail.open(path) as trail:
            trail.append(event(number))
            heads.append(trail.head())
    assert [head.count for head in heads] == [1, 2, 3]
    assert len({head.trail for head in heads}) == 1
    assert numbers(path) == [1, 2, 3]


def test_second_writer_is_refused(path: Path, trail: DurableToolAuditTrail) -> None:
    """A trail has one writer, in this process and elsewhere; once closed, the next may have it."""
    code = "from guarded_core.audit.durable import *; import sys; DurableToolAuditTrail.open(sys.argv[1])"
    other = [sys.executable, "-c", code, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "locked"
    assert "has a writer already" in subprocess.run(other, capture_output=True, text=True, env=environment).stderr
    trail.close()
    assert subprocess.run(other, capture_output=True, env=environment).returncode == 0
    DurableToolAuditTrail.open(path).close()


def test_later_chdir_moves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path means where it was opened."""
    monkeypatch.chdir(path.parent)
    with DurableToolAuditTrail.open("audit.log") as trail:
        monkeypatch.chdir("/")
        trail.append(event(1))
        trail.rotate()
        assert [e.time_ns for e in trail.events()] == [1]
    assert sorted(file.name for file in path.parent.iterdir()) == ["audit.log", "audit.log.000001", "audit.log.head"]


# Appending


def test_append_returns_after_the_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each append writes its line and syncs it before it returns."""
    trail = DurableToolAuditTrail.open(path)
    synced = watch(monkeypatch, "fdatasync")
    sizes = []
    for number in range(3):
        trail.append(event(number))
        sizes.append(path.stat().st_size)
    assert [info.st_size for info in synced] == sizes
    assert len(set(sizes)) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {"outcome": "denied"},
        replace(event(1), call_id="c" * 129),
        replace(event(1), outcome="denied"),  # type: ignore[arg-type]
        replace(event(1), risk="mutating"),  # type: ignore[arg-type]
        replace(event(1), time_ns=-1),
        replace(event(1), principal="\ud800"),
    ],
)
def test_invalid_event_is_refused(path: Path, trail: DurableToolAuditTrail, wrong: Any) -> None:
    """What could not be read back is not written."""
    before = path.read_bytes()
    assert code_of(lambda: trail.append(wrong)) == "invalid_event"
    assert path.read_bytes() == before


def test_event_has_a_largest_size(trail: DurableToolAuditTrail) -> None:
    """An event of more than 16 KiB as JSON is refused."""
    assert code_of(lambda: trail.append(replace(event(2), rules=("r" * 255,) * 62))) == "done"
    assert code_of(lambda: trail.append(replace(event(2), rules=("r" * 256,) * 64))) == "event_too_large"


def test_bytes_have_a_ceiling(path: Path) -> None:
    """A full trail refuses the next event and leaves the file as it is; a smaller one still fits."""
    with DurableToolAuditTrail.open(path, max_bytes=512) as trail:
        trail.append(event(1))
        before = path.read_bytes()
        assert code_of(lambda: trail.append(event(2, approval_reason=LONG))) == "quota_exceeded"
        assert path.read_bytes() == before
        assert len(before) <= 512
    assert numbers(path) == [1]


def test_records_have_a_ceiling(path: Path) -> None:
    """As many records as allowed, and no more, counted on when it is opened again."""
    with DurableToolAuditTrail.open(path, max_records=3) as trail:
        trail.append(event(1))
        trail.append(event(2))
    with DurableToolAuditTrail.open(path, max_records=3) as trail:
        trail.append(event(3))
        assert code_of(lambda: trail.append(event(4))) == "quota_exceeded"
    assert numbers(path) == [1, 2, 3]


def test_ceilings_can_be_raised_and_lowered(path: Path) -> None:
    """A raised ceiling takes more; a file over a lowered one is refused, unless it may rotate."""
    with DurableToolAuditTrail.open(path, max_records=1) as trail:
        trail.append(event(1))
    with DurableToolAuditTrail.open(path, max_records=5, max_bytes=32 << 20) as trail:
        trail.append(event(2, approval_reason=LONG))
    assert code_of(lambda: DurableToolAuditTrail.open(path, max_records=1)) == "too_large"
    assert code_of(lambda: DurableToolAuditTrail.open(path, max_bytes=512)) == "too_large"
    with DurableToolAuditTrail.open(path, max_records=1, auto_rotate=True) as trail:
        trail.append(event(3))
    assert numbers(path) == [1, 2, 3]


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: os.truncate(path, path.stat().st_size - 1),
        Path.unlink,
        lambda path: path.rename(path.with_name("elsewhere")),
        lambda path: path.with_name("copy").write_bytes(path.read_bytes()) and path.with_name("copy").rename(path),
    ],
    ids=["grown", "cut", "removed", "moved", "replaced"],
)
def test_change_from_outside_is_noticed(
    path: Path, trail: DurableToolAuditTrail, change: Callable[[Path], object]
) -> None:
    """Another length, or another file under the name: nothing is appended or rotated any more."""
    change(path)
    before = path.read_bytes() if path.exists() else None
    assert code_of(lambda: trail.append(event(2))) == "external_modification"
    assert code_of(trail.rotate) == "external_modification"
    assert (path.read_bytes() if path.exists() else None) == before


# Failing disks


def failing(code: int, *, after: int = 0) -> Callable[..., Any]:
    """A system call that fails, from the call after `after` good ones on."""
    calls = iter(range(after))

    def fail(*args: Any) -> Any:
        raise OSError(code, os.strerror(code))

    real = os.write
    return lambda *args: real(args[0], args[1][:9]) if next(calls, None) is not None else fail(*args)


def test_write_error_is_rolled_back(path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way leaves the file as before, and the trail goes on."""
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.EIO, after=1))
        assert code_of(lambda: trail.append(event(2))) == "write_failed"
    assert path.read_bytes() == before
    trail.append(event(3))
    assert numbers(path) == [1, 3]


def test_write_that_cannot_be_rolled_back_ends_the_writer(
    path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the truncate fails too, nothing is appended until the trail is opened again, which names the repair."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.EIO, after=1))
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        assert code_of(lambda: trail.append(event(2))) == "write_failed"
    assert code_of(lambda: trail.append(event(3))) == "unhealthy"
    assert code_of(trail.rotate) == "unhealthy"
    trail.close()
    with pytest.raises(ToolAuditTrailError, match="guarded audit repair"):
        DurableToolAuditTrail.open(path)


def test_failed_sync_ends_the_writer(path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed sync nobody knows what is on the disk: nothing is appended until the trail is opened again."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(errno.EIO))
        assert code_of(lambda: trail.append(event(2))) == "sync_failed"
    assert code_of(lambda: trail.append(event(3))) == "unhealthy"
    trail.close()
    with DurableToolAuditTrail.open(path) as again:
        again.append(event(4))
    assert numbers(path) == [1, 2, 4]


def test_interrupt_in_the_middle_ends_the_writer(
    path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C during the sync: as after a failed one."""

    def interrupted(fd: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trail.append(event(2))
    assert code_of(lambda: trail.append(event(3))) == "unhealthy"


def test_file_size_limit_is_a_write_error(path: Path) -> None:
    """A real write that stops half-way (a file size limit) is rolled back; what fits is still taken."""
    trail = DurableToolAuditTrail.open(path)
    trail.append(event(1))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 1000, hard))
    try:
        assert code_of(lambda: trail.append(event(2, approval_reason=LONG))) == "write_failed"
        assert path.read_bytes() == before
        trail.append(event(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert numbers(path) == [1, 3]


def test_full_disk_loses_nothing(tmp_path: Path) -> None:
    """On a full disk, appends and rotations fail, what was acknowledged stays, and with room again it goes on."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk takes root and the right to mount")
    try:
        path = disk / "audit.log"
        with DurableToolAuditTrail.open(path) as trail:
            (disk / "ballast").write_bytes(b"x" * 20_000)
            kept = fill(trail, lambda number: event(number, approval_reason=LONG))
            assert 5 < kept < 40
            before = path.read_bytes()
            assert code_of(trail.rotate) == "write_failed"
            assert path.read_bytes() == before
            (disk / "ballast").unlink()
            trail.append(event(kept))
            trail.rotate()
            trail.append(event(kept + 1))
        assert numbers(path) == list(range(kept + 2))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Segments


def test_rotation_links_the_next_segment(path: Path, trail: DurableToolAuditTrail) -> None:
    """A closed segment gets the next number, the new one goes on with count and chain; an empty one does not rotate."""
    for number in (2, 3):
        head = trail.rotate()
        assert (head.segment, head.count) == (number, number - 1)
        assert trail.rotate() == head
        trail.append(event(number))
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "audit.log", "audit.log.000001", "audit.log.000002", "audit.log.head",
    ]  # fmt: skip
    assert Head.parse(path.with_name("audit.log.head").read_bytes()).segment == 3
    assert numbers(path) == [1, 2, 3]
    assert verify(path).segments == 3


def test_rotation_overwrites_nothing(path: Path, trail: DurableToolAuditTrail) -> None:
    """A file that has the next closed segment's name already is left alone, and the writer stops."""
    path.with_name("audit.log.000001").write_text("precious")
    assert code_of(trail.rotate) == "write_failed"
    assert path.with_name("audit.log.000001").read_text() == "precious"
    assert code_of(lambda: trail.append(event(2))) == "unhealthy"


def test_rotation_that_finds_no_room_changes_nothing(
    path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that takes room is written before the first rename: if it fails, the old segment goes on."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.ENOSPC))
        assert code_of(trail.rotate) == "write_failed"
    trail.append(event(2))
    assert sorted(file.name for file in path.parent.iterdir()) == ["audit.log", "audit.log.head"]
    assert numbers(path) == [1, 2]


def test_full_trail_denies_and_keeps_room_for_outcomes(path: Path) -> None:
    """Each Authorized event keeps room for its outcome, however large: the trail refuses the next call instead."""
    authorized = event(0, Outcome.AUTHORIZED, approval_reason=LONG)
    with DurableToolAuditTrail.open(path, max_bytes=32_768) as trail:
        running = fill(trail, lambda number: replace(authorized, call_id=f"call-{number}"))
        fill(trail, event)  # denials take what is left, and leave what is kept
        before = path.read_bytes()
        assert code_of(lambda: trail.append(event(1))) == "quota_exceeded"
        assert path.read_bytes() == before
        worst = replace(authorized, outcome=Outcome.FAILED, code="\x01" * 128, error_type="\x01" * 128, time_ns=1 << 62)
        for number in range(running):
            trail.append(replace(worst, call_id=f"call-{number}"))
        assert trail.unsettled() == ()
    assert running >= 4
    assert path.stat().st_size <= 32_768


def test_records_are_kept_for_outcomes_too(path: Path) -> None:
    """With room for four records, two calls run at a time, and a reopened trail still keeps room for their outcomes."""
    with DurableToolAuditTrail.open(path, max_records=4) as trail:
        trail.append(event(1, Outcome.AUTHORIZED))
        trail.append(event(2, Outcome.AUTHORIZED))
        assert code_of(lambda: trail.append(event(3, Outcome.AUTHORIZED))) == "quota_exceeded"
    with DurableToolAuditTrail.open(path, max_records=4) as trail:
        assert code_of(lambda: trail.append(event(3))) == "quota_exceeded"
        trail.append(event(1, Outcome.SUCCEEDED))
        trail.append(event(2, Outcome.UNKNOWN))
        assert code_of(lambda: trail.append(event(3))) == "quota_exceeded"


def test_room_is_given_back_when_the_write_fails(
    path: Path, trail: DurableToolAuditTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Authorized event that could not be written keeps no room."""
    trail.close()
    with DurableToolAuditTrail.open(path, max_records=3) as trail:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", failing(errno.EIO))
            assert code_of(lambda: trail.append(event(2, Outcome.AUTHORIZED))) == "write_failed"
        trail.append(event(3))
        trail.append(event(4))
    assert numbers(path) == [1, 3, 4]


def test_full_segment_rotates_by_itself(path: Path) -> None:
    """With `auto_rotate`, a full segment gives way to the next; outcomes find room there."""
    with DurableToolAuditTrail.open(path, max_records=4, max_bytes=4096, auto_rotate=True) as trail:
        for number in range(20):
            trail.append(event(number, Outcome.AUTHORIZED))
        for number in range(20):
            trail.append(event(number, Outcome.SUCCEEDED))
        assert trail.unsettled() == ()
    found = verify(path)
    assert found.records == 40
    assert found.segments >= 10
    assert all(file.stat().st_size <= 4096 for file in path.parent.iterdir())


def test_what_fits_no_segment_rotates_none(path: Path) -> None:
    """An event too large for an empty segment is refused, and makes no new one."""
    with DurableToolAuditTrail.open(path, max_bytes=1024, auto_rotate=True) as trail:
        trail.append(event(1))
        for outcome in (Outcome.DENIED, Outcome.AUTHORIZED):
            assert code_of(partial(trail.append, event(2, outcome, approval_reason=LONG))) == "quota_exceeded"
    assert verify(path).segments == 1


# Repairing


def torn(path: Path, garbage: bytes = b'2:00097:-:{"call') -> bytes:
    """Leave a trail as a writer does that died in the middle of its second record."""
    trail = DurableToolAuditTrail.open(path)
    trail.append(event(1))
    head = path.with_name("audit.log.head").read_bytes()
    trail.close()
    path.with_name("audit.log.head").write_bytes(head)
    with path.open("ab") as file:
        file.write(garbage)
    return garbage


@pytest.mark.parametrize("garbage", [b'2:00097:-:{"call', b"2", b"\0" * 40_000, b"\n\n" + b"x" * 2_000_000])
def test_repair_keeps_the_torn_bytes_and_says_so(path: Path, garbage: bytes) -> None:
    """A torn tail refuses to open; the repair keeps it in a file beside, records itself, and the trail goes on."""
    torn(path, garbage)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "torn_tail"
    done = repair(path, by="lee")
    assert done is not None
    assert (done.kept, done.size) == ("audit.log.torn-1", len(garbage))
    assert path.with_name(done.kept).read_bytes() == garbage
    assert (done.event.outcome, done.event.code, done.event.approved_by) == (Outcome.NOTED, "trail_repaired", ("lee",))
    with DurableToolAuditTrail.open(path) as trail:
        trail.append(event(3))
    assert [e for _, e in read(path)] == [event(1), done.event, event(3)]
    assert repair(path) is None


def test_second_repair_keeps_the_first_aside(path: Path) -> None:
    """Each repair has a file of its own."""
    torn(path)
    repair(path)
    path.write_bytes(path.read_bytes() + b"y")
    assert (done := repair(path)) is not None
    assert done.kept == "audit.log.torn-2"
    assert path.with_name("audit.log.torn-1").read_bytes() == b'2:00097:-:{"call'


def test_repair_that_dies_can_be_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its write and its cut, the line is torn again; never is there a trail that was mended without a word."""
    garbage = torn(path, b"x" * 5000)
    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        assert code_of(lambda: repair(path)) == "write_failed"
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "torn_tail"
    repair(path)
    assert path.with_name("audit.log.torn-1").read_bytes() == garbage
    assert [e.code for _, e in read(path)] == [None, "trail_repaired", "trail_repaired"]


def test_repair_refuses_evidence(path: Path) -> None:
    """A trail that was changed, cut, or is being written is not repaired, and stays as it is."""
    torn(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"call-1", b"call-9"))
    assert code_of(lambda: repair(path)) == "corrupt"
    path.write_bytes(whole)
    head = path.with_name("audit.log.head")
    aside = head.rename(head.with_name("aside"))
    assert code_of(lambda: repair(path)) == "head_missing"
    aside.rename(head)
    repair(path)
    with DurableToolAuditTrail.open(path):
        assert code_of(lambda: repair(path)) == "locked"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + b"torn")
    assert code_of(lambda: repair(path)) == "truncated"
    assert path.read_bytes() == lines[0] + lines[1] + b"torn"


# Closing


def test_closed_trail_takes_nothing(path: Path, trail: DurableToolAuditTrail) -> None:
    """After `close` nothing is appended or rotated; closing again does nothing, and the head says closed."""
    trail.close()
    trail.close()
    assert code_of(lambda: trail.append(event(2))) == "closed"
    assert code_of(trail.rotate) == "closed"
    assert trail.head().count == 1
    assert Head.parse(path.with_name("audit.log.head").read_bytes()).closed


def test_forgotten_trail_closes(path: Path) -> None:
    """A trail that nobody holds any more is closed, also after an error, and the next writer may have it."""
    gc.disable()
    try:
        for number in range(3):
            trail = DurableToolAuditTrail.open(path)
            trail.append(event(number))
            assert code_of(partial(trail.append, replace(event(1), time_ns=-1))) == "invalid_event"
            del trail
    finally:
        gc.enable()
    assert verify(path).closed
    assert numbers(path) == [0, 1, 2]


def test_end_of_the_program_closes(path: Path) -> None:
    """A program that ends without a word has closed its trail."""
    code = """
import sys
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
trail = DurableToolAuditTrail.open(sys.argv[1])
trail.append(AuditEvent(outcome=Outcome.DENIED, time_ns=1, call_id="c", tool="t"))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
    found = verify(path)
    assert (found.records, found.closed) == (1, True)


def in_child(trail: DurableToolAuditTrail, pipe: Any) -> None:
    """What a forked worker finds, and then waits to be told to end."""
    pipe.send([code_of(lambda: trail.append(event(2))), code_of(trail.rotate), code_of(trail.close)])
    pipe.recv()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the threads that forking warns of do not matter
def test_forked_child_does_not_write(path: Path, trail: DurableToolAuditTrail) -> None:
    """A child process may not append, its end closes nothing, and it holds no lock once the parent closes."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=in_child, args=(trail, there))
    child.start()
    assert here.recv() == ["forked", "forked", "done"]
    trail.append(event(3))
    trail.close()
    DurableToolAuditTrail.open(path).close()
    here.send(None)
    child.join()
    assert child.exitcode == 0
    assert numbers(path) == [1, 3]


# Reconciling and showing


def test_reconciling_records_who_and_why(path: Path, trail: DurableToolAuditTrail) -> None:
    """A call without an outcome gets one: the Authorized event's fields, the code "reconciled", who and why."""
    lost = event(2, Outcome.AUTHORIZED, principal="user-17", approved_by=("ann",))
    trail.append(lost)
    settled = trail.reconcile("call-2", Outcome.FAILED, by="lee", reason="the bank has no such transfer")
    assert settled == replace(
        lost,
        outcome=Outcome.FAILED,
        time_ns=settled.time_ns,
        code="reconciled",
        approved_by=("lee",),
        approval_reason="the bank has no such transfer",
    )
    assert list(trail.events())[-1] == settled
    assert trail.unsettled() == ()
    again = code_of(lambda: trail.reconcile("call-2", Outcome.FAILED, by="lee", reason="again"))
    assert (
        again
        == code_of(lambda: trail.reconcile("call-1", Outcome.FAILED, by="lee", reason="denied"))
        == "not_unsettled"
    )


def test_settle_is_the_old_name_of_reconcile(trail: DurableToolAuditTrail) -> None:
    """It still works, and warns."""
    trail.append(event(2, Outcome.AUTHORIZED))
    with pytest.warns(DeprecationWarning, match="reconcile"):
        settled = trail.settle("call-2", Outcome.FAILED, by="lee", reason="asked")
    assert list(trail.events())[-1] == settled


@pytest.mark.parametrize(
    ("outcome", "by", "reason"),
    [
        (Outcome.DENIED, "lee", "x"),
        (Outcome.FAILED, " ", "x"),
        (Outcome.FAILED, "lee", ""),
        (Outcome.FAILED, "l" * 300, "x"),
    ],
)
def test_reconciling_takes_an_outcome_a_person_and_a_reason(
    trail: DurableToolAuditTrail, outcome: Outcome, by: str, reason: str
) -> None:
    """No final outcome, nobody, no reason: refused, and the call stays unsettled."""
    trail.append(event(2, Outcome.AUTHORIZED))
    assert code_of(lambda: trail.reconcile("call-2", outcome, by=by, reason=reason)) == "invalid_event"
    assert [e.call_id for e in trail.unsettled()] == ["call-2"]


def test_trail_shows_its_last_events(path: Path, trail: DurableToolAuditTrail) -> None:
    """A trail prints as a table of its last twenty events, in HTML escaped, with invisible characters spelled out."""
    for number in range(2, 31):
        trail.append(event(number, principal="<b>\u202euser</b>"))
    assert repr(trail) == "<DurableToolAuditTrail of 30 records>"
    lines = str(trail).splitlines()
    assert len(lines) == 21
    assert lines[0].split() == [
        "no.",
        "time",
        "outcome",
        "tool",
        "principal",
        "code",
        "call",
        "approved",
        "by",
        "reason",
    ]
    assert lines[-1].split() == [
        "30", "1970-01-01", "00:00:00", "UTC", "denied", "search", "<b>\\u202euser</b>", "call-30",
    ]  # fmt: skip
    page = trail._repr_html_()
    assert page.count("<tr>") == 21
    assert "<td>&lt;b&gt;\\u202euser&lt;/b&gt;</td>" in page
    trail.close()
    with DurableToolAuditTrail.open(path) as again:
        assert str(again).splitlines() == lines


def test_platform_without_file_locks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files cannot be locked, no trail is written."""
    monkeypatch.setattr(files, "fcntl", None)
    assert code_of(lambda: DurableToolAuditTrail.open(path)) == "unavailable"

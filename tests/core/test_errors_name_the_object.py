"""What goes wrong while setting up says what it is about, and what to do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded_core import (
    AuditEvent,
    AuditKeys,
    DuplicateTool,
    DurableToolAuditTrail,
    Guard,
    Outcome,
    ToolAuditTrailError,
    ToolExecutionPolicy,
)
from guarded_core.audit import files

EVENT = AuditEvent(outcome=Outcome.DENIED, time_ns=1, call_id="1", tool="read", principal="ann")
POLICY = ToolExecutionPolicy({"read": "read_only"})


def _junk(path: Path) -> None:
    path.write_text("hello\n")
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("spoil", "code", "told"),
    [
        (lambda path: path.parent.rmdir(), "unavailable", "ENOENT"),
        (lambda path: path.mkdir(), "unsafe_file_type", "not a regular file"),
        (lambda path: path.symlink_to("elsewhere"), "unsafe_file_type", "not a regular file"),
        (lambda path: (_junk(path), path.chmod(0o644)), "unsafe_mode", "chmod 600"),
        (_junk, "not_a_trail", "does not begin like"),
    ],
)
def test_a_trail_that_cannot_be_opened_is_named(
    tmp_path: Path, spoil: Callable[[Path], object], code: str, told: str
) -> None:
    """Its absolute path, in the text and as an attribute; it is the application's own word."""
    path = tmp_path / "trails" / "audit.log"
    path.parent.mkdir()
    spoil(path)
    with pytest.raises(ToolAuditTrailError, match=told) as caught:
        Guard(POLICY, audit=path)
    assert caught.value.code == code
    assert caught.value.path == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).count(str(path)) == 1


def test_a_trail_that_is_open_already_says_how_to_close_it(tmp_path: Path) -> None:
    """As when a notebook's cell is run again; a closed one opens."""
    path = tmp_path / "audit.log"
    with Guard(POLICY, audit=path):
        with pytest.raises(ToolAuditTrailError, match=r"guard\.close\(\)") as caught:
            Guard(POLICY, audit=path)
        assert (caught.value.code, caught.value.path) == ("locked", str(path))
    Guard(POLICY, audit=path).close()


async def test_a_trail_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each append, sync and async."""
    path = tmp_path / "audit.log"
    trail = DurableToolAuditTrail.open(path)
    monkeypatch.setattr(files, "write_all", _disk_is_full)
    with pytest.raises(ToolAuditTrailError, match="ENOSPC") as caught:
        trail.append(EVENT)
    with pytest.raises(ToolAuditTrailError, match="ENOSPC") as awaited:
        await trail.aappend(EVENT)
    assert caught.value.path == awaited.value.path == str(path)


def _disk_is_full(fd: int, data: bytes) -> None:
    raise OSError(28, os.strerror(28), "/another/path")


def test_a_key_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """And its content is not quoted."""
    path = tmp_path / "keys"
    path.write_text("main = secret\n")
    with pytest.raises(ToolAuditTrailError, match="line 1") as caught:
        AuditKeys.from_file(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "secret" not in str(caught.value)


def test_nothing_is_made_where_a_file_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that is not POSIX is refused before there is an empty file."""
    monkeypatch.setattr(files, "fcntl", None)
    with pytest.raises(ToolAuditTrailError, match="a SQL store keeps a trail anywhere"):
        Guard(POLICY, audit=tmp_path / "audit.log")
    assert list(tmp_path.iterdir()) == []


def test_a_function_registered_twice_says_how_to_begin_anew() -> None:
    """As when a notebook's cell is run again."""
    guard = Guard(POLICY)

    def read(id: int) -> str:
        """Read."""
        return "row"

    guard.tool(read)
    with pytest.raises(DuplicateTool, match=r"'read' is registered already.*guard\.close\(\)"):
        guard.tool(read)


def test_a_guard_closes_what_it_opened(tmp_path: Path) -> None:
    """At the end of a ``with``, also one that raises, and the store although the trail does not close."""
    pytest.importorskip("sqlalchemy")
    with contextlib.suppress(KeyError), Guard(POLICY, audit=tmp_path / "audit.log", store=f"sqlite:///{tmp_path}/g.db"):
        raise KeyError
    Guard(POLICY, audit=tmp_path / "audit.log").close()

    closed = []

    class Broken:
        def close(self) -> None:
            raise ToolAuditTrailError("write_failed", "the closing head cannot be written")

    class Sound:
        def close(self) -> None:
            closed.append(self)

    guard = Guard(POLICY)
    guard._opened = [Sound(), Broken(), Sound()]  # type: ignore[list-item]
    with pytest.raises(ToolAuditTrailError, match="closing head"):
        guard.close()
    assert len(closed) == 2

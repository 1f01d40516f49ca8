"""A database that cannot be used: said soon, by its name, without a password or anything that was to be kept."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from guarded_core import (
    Guard,
    GuardConfigurationError,
    GuardedToolsError,
    HumanApprovalRequired,
    StoreUnavailable,
    ToolExecutionPolicy,
)
from guarded_core.store.sql import SqlStore

POLICY = ToolExecutionPolicy({"read": "read_only", "pay": "financial"})


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process, in the middle of a transaction that does not end."""
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        blocker.close()


def house(store: Any) -> Guard:
    """A guard with a read and a payment."""
    guard = Guard(POLICY, store=store)

    @guard.tool
    def read(id: int) -> str:
        """Read."""
        return "row"

    @guard.tool
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    return guard


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """At once, as the developer's mistake, by the store's URL; the file stays as it is."""
    path = tmp_path / "junk.db"
    path.write_text("junk" * 400)
    start = time.monotonic()
    with pytest.raises(GuardConfigurationError, match="the file is not a SQLite database") as caught:
        Guard(POLICY, store=f"sqlite:///{path}")
    assert f"sqlite:///{path}" in str(caught.value)
    assert time.monotonic() - start < 2
    assert path.read_text() == "junk" * 400


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the system's name for what is wrong."""
    with pytest.raises(GuardConfigurationError, match=r"nowhere/guard.db cannot be opened to write \(ENOENT\)"):
        Guard(POLICY, store=f"sqlite:///{tmp_path}/nowhere/guard.db")


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_a_server_that_is_not_there_is_refused(driver: str) -> None:
    """Within seconds; password and options are not quoted, by this error or one behind it."""
    pytest.importorskip("psycopg")
    start = time.monotonic()
    with pytest.raises(GuardConfigurationError, match="no connection to its server can be made") as caught:
        Guard(POLICY, store=f"{driver}://ann:hunter2@localhost:1/x?sslpassword=hunter3")
    assert time.monotonic() - start < 7.5
    assert "postgresql://ann@localhost:1/x" in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_locked_database_is_refused_when_a_guard_is_made(tmp_path: Path) -> None:
    """Within the timeout that was set, and half of it again at most."""
    SqlStore.open(f"sqlite:///{tmp_path}/guard.db").close()
    start = time.monotonic()
    with locked(tmp_path / "guard.db"), pytest.raises(GuardConfigurationError, match="somebody else keeps it locked"):
        SqlStore.open(f"sqlite:///{tmp_path}/guard.db", timeout=0.4)
    assert 0.2 <= time.monotonic() - start < 2


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_is_a_time(tmp_path: Path, timeout: float) -> None:
    """Nothing waits forever."""
    with pytest.raises(GuardConfigurationError, match="timeout"):
        SqlStore.open(f"sqlite:///{tmp_path}/guard.db", timeout=timeout)


def test_a_database_that_gets_locked_is_unavailable(tmp_path: Path) -> None:
    """For sessions, calls and decisions alike; afterwards it goes on. The model is told no URL."""
    guard = house(SqlStore.open(f"sqlite:///{tmp_path}/guard.db", timeout=0.2))
    with guard.session("ann", tools=["read", "pay"]):
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call("pay", {"cents": 1})
        request = asked.value.request_id
        assert request

        def deciding() -> object:
            return guard.approvals.decide(request, by="lee", approve=True)

        def opening() -> object:
            return guard.session("bob", tools=["read"], session_id="s").open()

        with locked(tmp_path / "guard.db"):
            for use in (deciding, opening):
                with pytest.raises(StoreUnavailable, match=r"the store sqlite:///.*guard.db cannot be used") as caught:
                    use()
                assert (caught.value.code, caught.value.tool) == ("store_unavailable", "")
                assert caught.value.__cause__ is None
            for told in (_refusal(lambda: guard.call("read", {"id": 1})), _refusal(lambda: _awaited(guard))):
                assert isinstance(told, StoreUnavailable)
                assert (told.tool, str(told)) == ("read", StoreUnavailable.text)
                assert "guard.db" in str(told.__cause__)
        deciding()
        assert guard.call("pay", {"cents": 1}) == "paid"
    guard.store.close()  # type: ignore[attr-defined]


def _awaited(guard: Guard) -> Any:
    return asyncio.run(guard.acall("read", {"id": 1}))


def _refusal(call: Callable[[], object]) -> GuardedToolsError:
    with pytest.raises(GuardedToolsError) as caught:
        call()
    return caught.value


def test_what_was_to_be_kept_is_not_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A statement that fails holds arguments; the error and the log have the store's name and the kind of fault."""
    store = SqlStore.open(f"sqlite:///{tmp_path}/guard.db", timeout=0.2)
    guard = house(store)
    with sqlite3.connect(tmp_path / "guard.db") as spoiler:
        spoiler.execute("DROP TABLE guarded_requests")
    with caplog.at_level(logging.DEBUG), guard.session("zoe", tools=["pay"]):
        error = _refusal(lambda: guard.call("pay", {"cents": 4711}))
    seen: BaseException | None = error
    texts = [caplog.text]
    while seen is not None:
        texts.append(str(seen))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    assert not any("4711" in text or "zoe" in text for text in texts)
    assert any("guard.db cannot be used" in text for text in texts)
    store.close()


def test_a_pool_without_a_free_connection_is_unavailable(tmp_path: Path) -> None:
    """Within the timeout, not SQLAlchemy's thirty seconds."""
    store = SqlStore.open(f"sqlite:///{tmp_path}/guard.db", connections=1, timeout=0.4)
    engine = store._database.engine
    held = [engine.connect() for _ in range(11)]  # its one, and ten over it
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match="all of its connections are in use"):
        store.now_ns()
    assert time.monotonic() - start < 2
    release = threading.Timer(0.05, held[0].close)
    release.start()
    assert store.now_ns() > 0
    release.join()
    for connection in held:
        connection.close()
    store.close()

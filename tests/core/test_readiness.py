"""`guard.check()`, and the warning at the first call: a guard that is not what its policy speaks of says so early."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from guarded_core import Guard, GuardConfigurationError, StoreUnavailable, ToolExecutionPolicy
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.sink import TeeSink
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.store.base import Query, Snapshot
from guarded_core.store.memory import MemoryStore


def guarding(*tools: str, **settings: Any) -> Guard:
    """A guard over a policy of these tools, with one of them registered: `search`."""
    guard = Guard(ToolExecutionPolicy(dict.fromkeys(tools, "read_only")), **settings)

    @guard.tool(risk="read_only")
    def search(text: str) -> str:
        return text

    return guard


def check(guard: Guard, is_async: bool) -> None:
    """Both ways."""
    if is_async:
        asyncio.run(guard.acheck())
    else:
        guard.check()


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    """Which way."""
    return bool(request.param)


def test_all_is_well(is_async: bool, tmp_path: Path) -> None:
    """Nothing is raised, and nothing written."""
    trail = DurableToolAuditTrail.open(tmp_path / "audit.log")
    with guarding("search", audit=trail) as guard:
        check(guard, is_async)
        assert len(trail) == 0


def test_a_tool_that_nothing_registers(is_async: bool) -> None:
    """Named, with what may have been meant; all of them."""
    with pytest.raises(GuardConfigurationError) as caught:
        check(guarding("serch", "delete_all"), is_async)
    assert str(caught.value) == (
        "the policy has a tool 'delete_all' that nothing registers; there is search; "
        "the policy has a tool 'serch' that nothing registers; did you mean 'search'?"
    )


def test_the_first_call_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """A log line for each such tool, whatever becomes of the call; later calls say nothing."""
    guard = guarding("search", "serch")
    with guard.session("ann", tools=["search"]):
        for _ in range(3):
            guard.call("search", {"text": "a"})
    told = [record for record in caplog.records if "nothing registers" in record.getMessage()]
    assert [(record.levelno, record.name) for record in told] == [(logging.WARNING, "guarded_core.guard")]


class Gone(MemoryStore):
    """A store that does not answer."""

    def load(self, query: Query) -> Snapshot:
        raise OSError("secret")


def test_a_store_that_does_not_answer(is_async: bool) -> None:
    """What is wrong there is the cause, without its text in ours."""
    with pytest.raises(StoreUnavailable, match=r"^The store does not answer\.$"):
        check(guarding("search", store=Gone()), is_async)


def test_a_database_that_is_gone(is_async: bool, tmp_path: Path) -> None:
    """By its name."""
    sql = pytest.importorskip("guarded_core.store.sql")
    path = tmp_path / "guard.db"
    guard = guarding("search", store=sql.SqlStore.open(f"sqlite:///{path}", timeout=1))
    check(guard, is_async)
    with sqlite3.connect(path) as other:
        tables = other.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'guarded%'"
        ).fetchall()
        for (table,) in tables:
            other.execute(f"DROP TABLE {table}")
    with pytest.raises(StoreUnavailable, match=r"guard\.db"):
        check(guard, is_async)


def test_a_trail_that_takes_no_events(is_async: bool, tmp_path: Path) -> None:
    """Closed, or its file was moved away; also behind a tee, and in a sink that derives from nothing."""
    path = tmp_path / "audit.log"
    trail = DurableToolAuditTrail.open(path)
    guard, teed = guarding("search", audit=trail), guarding("search", audit=TeeSink(Plain(), trail))
    check(guard, is_async)
    path.rename(tmp_path / "moved.log")
    for each in (guard, teed):
        with pytest.raises(ToolAuditTrailError, match="changed, moved or removed"):
            check(each, is_async)
    os.rename(tmp_path / "moved.log", path)
    trail.close()
    with pytest.raises(ToolAuditTrailError, match="closed"):
        check(guard, is_async)


class Plain:
    """A sink of the least form."""

    def append(self, event: AuditEvent) -> None:
        """Nowhere."""


class Checked(Plain):
    """One that knows how it is."""

    def check(self) -> None:
        """Not well."""
        raise RuntimeError("the queue is full")


def test_a_sink_of_ones_own(is_async: bool) -> None:
    """With a `check` it is asked; without, it is taken to be well."""
    check(guarding("search", audit=Plain()), is_async)
    with pytest.raises(RuntimeError, match="the queue is full"):
        check(guarding("search", audit=Checked()), is_async)

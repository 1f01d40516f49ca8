"""No payload and no result in a traceback, a cause, a log, an event or a repr, wherever a call fails."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    Answer,
    CallbackApprover,
    Guard,
    GuardedToolsError,
    InMemoryToolAuditTrail,
    MemoryStore,
    ToolExecutionPolicy,
)
from tests.quoting import PAYLOAD, RESULT, printed, quotes, quoting

STORE = ("load", "add_request", "replace_request", "request", "commit", "settle", "deny", "release")
TABLES = [("guarded_requests", "insert"), ("guarded_requests", "update"), ("guarded_sessions", "update")]
TABLES += [("guarded_events", "insert"), ("guarded_writers", "update"), ("guarded_counters", "insert")]
FOUND: set[str] = set()  # while calls were under way, where an assertion would be one more failure
RISKS = {"look": "read_only", "make": "mutating", "pay": "financial", "fail": "mutating", "huge": "mutating"}


def quoting_fault(*args: Any, **kwargs: Any) -> Any:
    """A component that quotes all that it was handed in what it raises."""
    raise RuntimeError(f"{args!r} {kwargs!r} {PAYLOAD} {RESULT}") from ValueError(PAYLOAD)


class Trail(InMemoryToolAuditTrail):
    """A trail that fails at one outcome, with what it was handed."""

    def __init__(self, fails_at: str = "") -> None:
        super().__init__(64)
        self._fails_at = fails_at

    def append(self, event: Any) -> None:
        if event.outcome.value == self._fails_at:
            quoting_fault(event)
        super().append(event)


def make_guard(approver: Any = None, **settings: Any) -> Guard:
    """A guard with tools that look, make, pay, fail and say too much; each checks the reprs while it runs."""
    guard = Guard(ToolExecutionPolicy(RISKS), approver=approver, keys=b"k" * 32, **settings)

    def result(tool: str) -> str:
        FOUND.update(quoting())
        if tool == "fail":
            raise ValueError(PAYLOAD)
        return RESULT * (100_000 if tool == "huge" else 1)

    for tool in RISKS:
        guard.tool(name=tool, description=tool)(_named(result, tool))
    return guard


def _named(result: Callable[[str], str], tool: str) -> Callable[[str], str]:
    def run(note: str) -> str:
        return result(tool)

    return run


def check(guard: Guard, way: Any, caplog: pytest.LogCaptureFixture) -> int:
    """Call every tool, and look at all that is left; how many calls failed."""
    failed, texts = 0, []
    FOUND.clear()
    caplog.set_level(logging.DEBUG)
    with guard.session("user-17", tools=[*RISKS]) as session:
        for tool in RISKS:
            try:
                way(guard.call, guard.acall, tool, {"note": PAYLOAD})
            except GuardedToolsError as error:
                failed += 1
                texts.append(printed(error))
        assert not quotes(repr(session))
    assert not any(map(quotes, texts)), texts
    assert not quotes(caplog.text)
    assert not quotes(repr(guard.audit.events if guard.audit else guard.store))
    FOUND.update(quoting())
    assert set() == FOUND
    return failed


def yes(request: Any) -> Answer:
    """Somebody who approves, and looks at what is alive."""
    FOUND.update(quoting())
    return Answer(by="lee", approve=True, reason="ticket 7")


@pytest.mark.parametrize("method", STORE)
def test_a_store_that_fails(
    method: str, way: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever method of a store raises what it was handed, nobody sees that."""
    store = MemoryStore()
    guard = make_guard(CallbackApprover(yes), store=store)
    monkeypatch.setattr(store, method, quoting_fault)
    assert check(guard, way, caplog) >= 2  # those whose tools fail, at least


@pytest.mark.parametrize("outcome", ["asked", "authorized", "denied", "succeeded", "failed", "noted"])
def test_a_trail_that_fails(outcome: str, way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """At whichever event a trail raises what it was handed, nobody sees that."""
    answers: Any = quoting_fault if outcome in ("noted", "denied") else yes
    assert check(make_guard(CallbackApprover(answers), audit=Trail(outcome)), way, caplog) >= 2


@pytest.mark.parametrize(("table", "change"), TABLES)
def test_a_database_that_fails(
    table: str, change: str, tmp_path: Path, way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A statement that a database refuses is quoted by nobody, and neither are its parameters."""
    guard = make_guard(CallbackApprover(yes), store=f"sqlite:///{tmp_path}/guard.db")
    with sqlite3.connect(tmp_path / "guard.db") as raw:
        raw.execute(f"create trigger t before {change} on {table} begin select raise(fail, 'no: {PAYLOAD}'); end")
    assert check(guard, way, caplog) >= 2
    guard.close()


@pytest.mark.parametrize("said", [None, False, "raise", Answer(by="user-17", approve=True)])
def test_an_approver_that_fails(said: Any, way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """What an approver raises, and what becomes of an answer that is none, quotes nothing."""
    approver = CallbackApprover(quoting_fault if said == "raise" else lambda request: said, by="lee")
    assert check(make_guard(approver), way, caplog) == 3


def test_rules_that_fail(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A rule that raises what it was handed denies, and says nothing of it."""
    guard = make_guard(CallbackApprover(yes))
    guard.rules.register("broken", quoting_fault, "")
    assert check(guard, way, caplog) == len(RISKS)


def test_arguments_that_do_not_fit(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Unknown names, wrong types and what is no JSON are refused without a word of theirs."""
    guard = make_guard()
    bad: list[Any] = [{PAYLOAD: 1}, {"note": [PAYLOAD]}]
    bad += [{"note": {PAYLOAD: PAYLOAD}}, [PAYLOAD], PAYLOAD, {"note": object}]
    with guard.session("user-17", tools=[*RISKS]):
        for arguments in bad:
            with pytest.raises(GuardedToolsError) as caught:
                way(guard.call, guard.acall, "make", arguments)
            assert not quotes(printed(caught.value))
    assert not quotes(caplog.text)

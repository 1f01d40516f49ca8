"""No payload and no result in what LlamaIndex hands on, prints or logs where a guard's parts fail."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.tools import BaseTool, FunctionTool

from guarded_core import CallbackApprover, Guard, MemoryStore, ToolExecutionPolicy
from guarded_llamaindex import guard_tools
from tests.core.test_no_payload_shown import STORE, TABLES, Trail, quoting_fault, yes
from tests.quoting import PAYLOAD, RESULT, printed, quotes, quoting

RISKS = {"look": "read_only", "make": "mutating", "pay": "financial", "huge": "mutating"}


def make_tools(guard: Guard, found: set[str]) -> list[BaseTool]:
    """Tools of each risk; while they run, the reprs of all that is alive are looked at."""

    def named(name: str) -> FunctionTool:
        def body(note: str) -> str:
            found.update(quoting())
            return RESULT * (100_000 if name == "huge" else 1)

        return FunctionTool.from_defaults(body, name=name, description=name)

    return guard_tools([named(name) for name in RISKS], guard)


def make_guard(**settings: Any) -> Guard:
    """A guard where somebody approves, and looks at what is alive."""
    return Guard(ToolExecutionPolicy(RISKS), approver=CallbackApprover(yes), keys=b"k" * 32, **settings)


def check(guard: Guard, way: Any, caplog: pytest.LogCaptureFixture, **arguments: Any) -> int:
    """Call every tool; how many calls failed."""
    caplog.set_level(logging.DEBUG)
    found: set[str] = set()
    failed, shown = 0, []
    tools = make_tools(guard, found)
    with guard.session("user-17", tools=[*RISKS]):
        for tool in tools:
            output = way(tool, **(arguments or {"note": PAYLOAD}))
            if output.is_error:
                failed += 1
                shown += [repr(output), str(output.raw_input), str(output.raw_output), printed(output.exception)]
    found.update(quoting())
    assert not [text for text in shown if quotes(text)]
    assert not quotes(caplog.text)
    assert not quotes(repr(guard.audit.events if guard.audit else guard.store))
    assert set() == found
    return failed


@pytest.mark.parametrize("method", STORE)
def test_a_store_that_fails(
    method: str, way: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever method of a store raises what it was handed, neither the model nor the application sees that."""
    store = MemoryStore()
    guard = make_guard(store=store)
    monkeypatch.setattr(store, method, quoting_fault)
    assert check(guard, way, caplog) >= 1  # the tool that says too much, at least


@pytest.mark.parametrize("outcome", ["asked", "authorized", "denied", "succeeded", "failed"])
def test_a_trail_that_fails(outcome: str, way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """At whichever event a trail raises what it was handed, nobody sees that."""
    assert check(make_guard(audit=Trail(outcome)), way, caplog) >= 1


@pytest.mark.parametrize(("table", "change"), TABLES)
def test_a_database_that_fails(
    table: str, change: str, tmp_path: Path, way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A statement that a database refuses is quoted by nobody."""
    with make_guard(store=f"sqlite:///{tmp_path}/guard.db") as guard:
        with sqlite3.connect(tmp_path / "guard.db") as raw:
            raw.execute(f"create trigger t before {change} on {table} begin select raise(fail, 'no: {PAYLOAD}'); end")
        assert check(guard, way, caplog) >= 1


@pytest.mark.parametrize("arguments", [{PAYLOAD: 1}, {"note": [PAYLOAD]}, {"note": {PAYLOAD: PAYLOAD}}])
def test_arguments_that_do_not_fit(arguments: dict[str, Any], way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Unknown names and wrong types are refused without a word of theirs."""
    assert check(make_guard(), way, caplog, **arguments) == len(RISKS)

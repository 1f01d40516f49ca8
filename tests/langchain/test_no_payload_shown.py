"""No payload and no result in what LangChain hands on, prints or logs where a guard's parts fail."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from guarded_core import CallbackApprover, Guard, MemoryStore, ToolExecutionPolicy
from guarded_langchain import ToolCallDenied, guard_tools
from tests.core.test_no_payload_shown import STORE, TABLES, Trail, quoting_fault, yes
from tests.langchain.graphs import CONFIG, graph, plan
from tests.quoting import PAYLOAD, RESULT, printed, quotes, quoting

RISKS = {"look": "read_only", "make": "mutating", "pay": "financial", "huge": "mutating"}


def make_tools(guard: Guard, found: set[str]) -> list[BaseTool]:
    """Tools of each risk; while they run, the reprs of all that is alive are looked at."""

    def body(note: str) -> str:
        found.update(quoting())
        return RESULT * (100_000 if note.startswith("huge") else 1)

    return guard_tools([tool(name, description=name)(body) for name in RISKS], guard)


def make_guard(**settings: Any) -> Guard:
    """A guard where somebody approves, and looks at what is alive."""
    return Guard(ToolExecutionPolicy(RISKS), approver=CallbackApprover(yes), keys=b"k" * 32, **settings)


def check(guard: Guard, caplog: pytest.LogCaptureFixture, *, is_async: bool) -> int:
    """Call every tool directly and in an agent; how many calls failed.

    What the model itself said stays in its messages; what a tool returned, in the messages of calls that succeeded.
    """
    caplog.set_level(logging.DEBUG, logger="guarded_core")
    found: set[str] = set()
    tools, failed, shown = make_tools(guard, found), 0, []
    with guard.session("user-17", tools=[*RISKS]):
        for each in tools:
            note = ("huge " if each.name == "huge" else "") + PAYLOAD
            try:
                asyncio.run(each.ainvoke({"note": note})) if is_async else each.invoke({"note": note})
            except Exception as error:
                failed += 1
                shown.append(printed(error))
        # One tool a turn: what the step and its tasks say of themselves is upstream's.
        turns = [[(name, {"note": f"{name} {PAYLOAD}"}, name)] for name in RISKS]
        agent = graph("agent", tools, InMemorySaver())
        result = asyncio.run(agent.ainvoke(plan(*turns), CONFIG)) if is_async else agent.invoke(plan(*turns), CONFIG)
    for message in result["messages"]:
        if isinstance(message, ToolMessage) and message.status == "error":
            failed += 1
            shown += [repr(message), str(message.artifact)]
    found.update(quoting())
    assert not [text for text in shown if quotes(text)]
    assert not quotes(caplog.text)
    assert not quotes(repr(guard.audit.events if guard.audit else guard.store))
    assert set() == found
    return failed


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("method", STORE)
def test_a_store_that_fails(
    method: str, is_async: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever method of a store raises what it was handed, neither the model nor the application sees that."""
    store = MemoryStore()
    guard = make_guard(store=store)
    monkeypatch.setattr(store, method, quoting_fault)
    assert check(guard, caplog, is_async=is_async) >= 2  # those that say too much, at least


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("outcome", ["asked", "authorized", "denied", "succeeded", "failed"])
def test_a_trail_that_fails(outcome: str, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    """At whichever event a trail raises what it was handed, nobody sees that."""
    assert check(make_guard(audit=Trail(outcome)), caplog, is_async=is_async) >= 2


@pytest.mark.parametrize(("table", "change"), [*TABLES, ("guarded_ledger", "insert"), ("guarded_ledger", "update")])
def test_a_database_that_fails(table: str, change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A statement that a database refuses is quoted by nobody, with the ledger of a graph's calls too."""
    with make_guard(store=f"sqlite:///{tmp_path}/guard.db") as guard:
        with sqlite3.connect(tmp_path / "guard.db") as raw:
            raw.execute(f"create trigger t before {change} on {table} begin select raise(fail, 'no: {PAYLOAD}'); end")
        assert check(guard, caplog, is_async=False) >= 2


def test_arguments_that_do_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    """Unknown names and wrong types, in a whole ToolCall too, are refused without a word of theirs."""
    guard, found = make_guard(), set[str]()
    [make] = [each for each in make_tools(guard, found) if each.name == "make"]
    bad: list[Any] = [{PAYLOAD: 1}, {"note": [PAYLOAD]}, {"note": {PAYLOAD: PAYLOAD}}, {"note": PAYLOAD, PAYLOAD: 1}]
    with guard.session("user-17", tools=[*RISKS]):
        for args in bad:
            with pytest.raises(ToolCallDenied) as caught:
                make.invoke(args)
            assert not quotes(printed(caught.value))
            message = make.invoke({"name": "make", "args": args, "id": "1", "type": "tool_call"})
            assert message.status == "error"
            assert not quotes(repr(message))
    assert not quotes(caplog.text)

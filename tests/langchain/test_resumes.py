"""What is remembered of runs and questions: as long as they last, and never more than so many."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any
from uuid import uuid4

import pytest
from langgraph.types import Command

from guarded_langchain import InterruptApprover
from guarded_langchain.graph import resumes
from tests.langchain.graphs import KINDS, PAY, THREE, Desk, Runs


def on(thread: str) -> dict[str, Any]:
    """The config of that thread."""
    return {"configurable": {"thread_id": thread}}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The runs that are under way: none."""
    resumes.watch()
    monkeypatch.setattr(resumes._runs, "_runs", {})
    return resumes._runs


@pytest.mark.parametrize("agent", KINDS)
def test_nothing_stays_of_a_run_that_is_over(agent: str, runs: Any, is_async: bool) -> None:
    """Ended, paused, failed, cancelled or abandoned: then it is forgotten."""
    desk = Desk(InterruptApprover())
    graph = Runs(agent, desk.tools, is_async=is_async)

    async def abandoned(built: Any) -> None:
        stream = built.astream(THREE, on("abandoned"))
        await anext(stream)
        await stream.aclose()

    async def cancelled(built: Any) -> None:
        task = asyncio.create_task(built.ainvoke(THREE, on("cancelled")))
        await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def closed(built: Any) -> None:
        stream = built.stream(THREE, on("closed"))
        next(stream)
        stream.close()

    with desk.session():
        graph(PAY)
        graph(Command(resume=True))
        with pytest.raises(Exception, match=r".*"):
            graph({"messages": [("user", "no plan")]}, on("failed"))
        graph.enter(closed, abandoned)
        graph.enter(lambda built: None, cancelled)
    for _ in range(500):  # what runs in a thread ends in its own time
        if not runs._runs:
            break
        time.sleep(0.01)
    assert runs._runs == {}


def test_runs_that_never_end_are_forgotten_in_the_end(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first; what one of them was resumed with is then unknown."""
    monkeypatch.setattr(resumes, "_MAX_RUNS", 4)
    ids = [uuid4() for _ in range(9)]
    for run_id in ids:
        runs.on_chain_start({}, Command(resume="yes"), run_id=run_id)
    assert list(runs._runs) == ids[-4:]


def test_questions_are_remembered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run knows which of them came before it; of those that were forgotten it knows nothing."""
    monkeypatch.setattr(resumes, "_shown", OrderedDict())
    monkeypatch.setattr(resumes, "_MAX_QUESTIONS", 2)
    resumes.show("a")
    resumes.show("b")
    run = resumes.Resume("yes", next(resumes._numbers), 0)
    resumes.show("b")  # shown again: it was there before
    resumes.show("c")
    assert [run.is_later_than(question) for question in "abc"] == [None, True, False]


@pytest.mark.parametrize(
    ("value", "is_by_id"),
    [
        ({"a" * 32: 1}, True),
        ({}, True),
        ({"a" * 32: 1, "decisions": []}, False),
        ({"A" * 32: 1}, False),
        ({"a" * 31: 1}, False),
        ({1: 1}, False),
        (["a" * 32], False),
        ("a" * 32, False),
    ],
)
def test_values_by_id(value: Any, is_by_id: bool) -> None:
    """As LangGraph tells them: a dict of nothing but ids."""
    assert resumes.Resume(value, 0, 0).is_by_id is is_by_id

"""Never twice, and never without an approval of exactly that call: a matrix of cases, and random schedules.

GUARDED_SCHEDULES says how many random schedules are played; 500 is what a release was tried with.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.end_to_end.never_twice import POINTS, LangGraphWorld, LlamaIndexWorld, World, decide, play

pytest.importorskip("langgraph.checkpoint.sqlite")
pytest.importorskip("llama_index.core")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Skipping serialization"),  # a restored workflow gets its memory anew
    # A process that dies leaves coroutines and threads behind; here it dies in the middle of this one.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]

SCHEDULES = int(os.environ.get("GUARDED_SCHEDULES", "24"))

Make = Callable[[], Any]

AGENTS: dict[str, Make] = {
    f"langgraph-{kind}-{way}": lambda kind=kind, way=way: LangGraphWorld(kind, is_async=way == "async")
    for kind in ("agent", "react_v1", "react_v2", "tool_node", "subgraph")
    for way in ("sync", "async")
} | {f"llamaindex-{kind}": lambda kind=kind: LlamaIndexWorld(kind) for kind in ("function", "react", "handoff")}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Crashes are logged, as they should be; here they are wanted."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(params=AGENTS)
def world(request: pytest.FixtureRequest) -> Any:
    """An agent of each kind."""
    return AGENTS[request.param]()


def go_on(world: World, approve: bool = True) -> None:
    """Decide and wake until the agent has finished."""
    for seed in range(40):
        if world.is_finished():
            return
        decide(world, approve)
        world.wake(random.Random(seed))
    raise AssertionError("it never ends")


@pytest.fixture
def calls(world: Any) -> list[tuple[int, int, str]]:
    """Three calls at once; a ReAct agent of LlamaIndex makes one at a time."""
    return [(1, 5, "a")] if getattr(world, "kind", "") == "react" else [(1, 5, "a"), (2, 6, "b"), (3, 7, "c")]


@pytest.mark.parametrize("point", ["none", *(point for point in POINTS if "deny" not in point)])
def test_approved_with_the_power_cut_anywhere(world: Any, calls: list[tuple[int, int, str]], point: str) -> None:
    """Wherever the process dies, each call ran once and gave its result, or the model is told that this is unknown."""
    world.power.cut_at = point if "add_request" in point else None
    world.start(calls)
    if world.power.is_off:
        world.power.back()
        world.restart()
        world.start_again(calls)
    decide(world, True)
    world.power.cut_at = point
    world.wake(random.Random(3))
    world.power.back()
    world.restart()
    go_on(world)
    told = list(world.results().values())
    paid = [f"paid {amount} for {number}" for number, amount, _ in calls]
    assert len(told) == len(calls)
    assert [text for text in told if text not in paid and "outcome is unknown" not in text] == []
    assert all(world.book.paid[number, amount] == 1 for number, amount, _ in calls if paid[number - 1] in told)
    assert world.book.faults() == []
    if point in ("none", "add_request", "after add_request", "commit", "after settle"):
        assert sum(world.book.paid.values()) >= 1
    if point in ("none", "add_request", "after add_request"):
        assert sorted(told) == sorted(paid)


@pytest.mark.parametrize("point", ["none", "deny", "after deny"])
def test_rejected_with_the_power_cut_anywhere(world: Any, calls: list[tuple[int, int, str]], point: str) -> None:
    """A rejected call never runs, however often it is entered, and its denial is on record once."""
    world.start(calls)
    decide(world, False)
    world.power.cut_at = point
    world.wake(random.Random(3))
    world.power.back()
    world.restart()
    go_on(world, approve=False)
    assert world.book.paid == {}
    assert len(world.results()) == len(calls)
    assert all("rejected" in text for text in world.results().values())
    assert world.store.denials() == len(calls)


def test_expired(world: Any, calls: list[tuple[int, int, str]]) -> None:
    """What was approved too long ago is asked again, and then runs once."""
    world.start(calls)
    first = {request.id for request in world.guard.approvals.pending()}
    decide(world, True)
    world.store.skipped_ns += 61_000_000_000
    world.wake(random.Random(3))
    assert world.book.paid == {}
    assert first.isdisjoint(request.id for request in world.guard.approvals.pending())
    go_on(world)
    assert sorted(world.book.paid.values()) == [1] * len(calls)


def test_answers_and_resumes_that_come_again(world: Any, calls: list[tuple[int, int, str]]) -> None:
    """After the end nothing that is sent again, from any snapshot, runs anything or changes what the model was told."""
    world.start(calls)
    go_on(world)
    told = world.results().copy()
    for seed in range(12):
        world.wake(random.Random(seed))
        decide(world, True)
    go_on(world)
    assert sorted(world.results().values()) == sorted(told.values())
    assert sorted(world.book.paid.values()) == [1] * len(calls)
    assert world.book.faults() == []


@pytest.mark.parametrize("framework", ["langgraph", "llamaindex"])
def test_random_schedules(framework: str) -> None:
    """Messages, decisions, resumes of any kind, forks, crashes, clock jumps in random order: nothing runs twice."""
    names = [name for name in AGENTS if name.startswith(framework)]
    seeds = range(SCHEDULES // 2)
    wrong = [play(AGENTS[random.Random(seed).choice(names)](), seed) for seed in seeds]
    assert [fault for fault in wrong if fault] == []

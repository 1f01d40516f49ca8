"""Never twice, and never without an approval of exactly that call: a matrix of cases, and random schedules.

GUARDED_SCHEDULES says how many random schedules are played with each framework; with GUARDED_FULL it is 1,000.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.end_to_end.never_twice import (
    POINTS,
    LangGraphWorld,
    LlamaIndexWorld,
    ReplyingWorld,
    Said,
    World,
    decide,
    play,
)

pytest.importorskip("langgraph.checkpoint.sqlite")
pytest.importorskip("llama_index.core")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Skipping serialization"),  # a restored workflow gets its memory anew
    # A process that dies leaves coroutines and threads behind; here it dies in the middle of this one.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited"),
]

SCHEDULES = int(os.environ.get("GUARDED_SCHEDULES") or (1_000 if os.environ.get("GUARDED_FULL") else 12))

Make = Callable[[], Any]

LANGGRAPH_KINDS = ("agent", "react_v1", "react_v2", "tool_node", "subgraph", "subagents_agent", "subagents_tool_node")

AGENTS: dict[str, Make] = {
    f"langgraph-{kind}-{way}-{name}": lambda kind=kind, way=way, made=made: made(kind, is_async=way == "async")
    for kind in LANGGRAPH_KINDS
    for way in ("sync", "async")
    for name, made in {"wake": LangGraphWorld, "reply": ReplyingWorld}.items()
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


def go_on(world: World, said: Said = "approve") -> None:
    """Decide and wake until the agent has finished."""
    for seed in range(40):
        if world.is_finished():
            return
        decide(world, said)
        world.wake(random.Random(seed), anew=False)
    raise AssertionError("it never ends")


@pytest.fixture
def calls(world: Any) -> list[tuple[int, int, str]]:
    """Three calls at once; a ReAct agent of LlamaIndex makes one at a time."""
    return [(1, 5, "a")] if getattr(world, "kind", "") == "react" else [(1, 5, "a"), (2, 6, "b"), (3, 7, "c")]


@pytest.mark.parametrize("said", ["approve", "edit"])
@pytest.mark.parametrize("point", ["none", *(point for point in POINTS if "deny" not in point)])
def test_approved_with_the_power_cut_anywhere(
    world: Any, calls: list[tuple[int, int, str]], point: str, said: Said
) -> None:
    """Wherever the process dies, each call ran once, as a person saw or changed it, or the model is told: unknown."""
    world.power.cut_at = point if "add_request" in point else None
    world.start(calls)
    if world.power.is_off:
        world.power.back()
        world.restart()
        world.start_again(calls)
    decide(world, said)
    world.power.cut_at = point
    world.wake(random.Random(3))
    world.power.back()
    world.restart()
    go_on(world, said)
    told = list(world.results().values())
    amounts = {number: amount + 1000 * (said == "edit") for number, amount, _ in calls}
    ran = [number for number, amount in amounts.items() if any(text.endswith(_paid(number, amount)) for text in told)]
    assert len(told) == len(calls)
    assert sum("outcome is unknown" in text for text in told) == len(calls) - len(ran)
    assert all(("do not repeat it. What ran is pay" in text) is (said == "edit") for text in told if "paid" in text)
    assert all(world.book.paid[number, amounts[number]] == 1 for number in ran)
    assert world.book.faults() == []
    if point == "none":
        assert len(ran) == len(calls)
    elif point in ("commit", "after settle") or "request" in point:  # subagents may all be cut in the middle
        assert ran or world.kind.startswith("subagents")


def _paid(number: int, amount: int) -> str:
    return f"paid {amount} for {number}"


@pytest.mark.parametrize("point", ["none", "deny", "after deny"])
def test_rejected_with_the_power_cut_anywhere(world: Any, calls: list[tuple[int, int, str]], point: str) -> None:
    """A rejected call never runs, however often it is entered, and its denial is on record once."""
    world.start(calls)
    decide(world, "reject")
    world.power.cut_at = point
    world.wake(random.Random(3))
    world.power.back()
    world.restart()
    go_on(world, "reject")
    assert world.book.paid == {}
    assert len(world.results()) == len(calls)
    # A subagent that was cut in the middle may have had any effect, as far as anybody can tell: that is a denial too.
    unknown = [text for text in world.results().values() if "outcome is unknown" in text]
    assert not unknown or world.kind.startswith("subagents")
    assert sum("rejected" in text for text in world.results().values()) == len(calls) - len(unknown)
    assert abs(world.store.denials() - len(calls)) <= len(unknown)


def test_expired(world: Any, calls: list[tuple[int, int, str]]) -> None:
    """What was approved too long ago is asked again, and then runs once."""
    world.start(calls)
    first = {request.id for request in world.guard.approvals.pending()}
    decide(world, "approve")
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
        decide(world, "approve")
    go_on(world)
    assert sorted(world.results().values()) == sorted(told.values())
    assert len(world.book.paid) == len(calls)
    assert world.book.faults() == []  # a fork from before the model's turn asks, and pays, anew


@pytest.mark.parametrize("framework", ["langgraph", "llamaindex"])
def test_random_schedules(framework: str) -> None:
    """Messages, decisions, resumes of any kind, forks, crashes, clock jumps in random order: nothing runs twice."""
    names = [name for name in AGENTS if name.startswith(framework)]
    wrong = [play(AGENTS[random.Random(seed).choice(names)](), seed) for seed in range(SCHEDULES)]
    assert [fault for fault in wrong if fault] == []

"""Times calls in random order in one process, and compares their medians."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_WARM_UP = 30
_RESAMPLES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as long one call takes as another, by their medians; `low` to `high` is the 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f}–{self.high:.2f})"


def sample(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Microseconds of each call, `rounds` times each.

    Every round shuffles them, so that a slow moment of the machine meets all alike, and none has a neighbour that warms
    its caches: in an agent, too, something else ran before each call.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, counts in _turns(calls, rounds):
        call = calls[name]
        start = time.perf_counter_ns()
        call()
        end = time.perf_counter_ns()
        if counts:
            times[name].append((end - start) / 1000)
    return times


async def asample(calls: Mapping[str, Callable[[], Awaitable[Any]]], rounds: int) -> dict[str, list[float]]:
    """As `sample`, awaiting."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name, counts in _turns(calls, rounds):
        call = calls[name]
        start = time.perf_counter_ns()
        await call()
        end = time.perf_counter_ns()
        if counts:
            times[name].append((end - start) / 1000)
    return times


def ratio(times: list[float], of: list[float]) -> Ratio:
    """The ratio of the medians, with its bootstrap interval."""
    found = sorted(
        statistics.median(random.choices(times, k=len(times))) / statistics.median(random.choices(of, k=len(of)))  # noqa: S311
        for _ in range(_RESAMPLES)
    )
    cut = _RESAMPLES // 40
    return Ratio(value=statistics.median(times) / statistics.median(of), low=found[cut], high=found[-cut - 1])


def _turns(names: Iterable[str], rounds: int) -> Iterator[tuple[str, bool]]:
    """Every name once a round, in a new order each; and whether it counts, or only warms up."""
    order = list(names)
    for round in range(rounds + _WARM_UP):
        random.shuffle(order)
        yield from ((name, round >= _WARM_UP) for name in order)

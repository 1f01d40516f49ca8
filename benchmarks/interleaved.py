"""Bare and guarded calls timed in turns: a slow moment of the machine hits both alike, so that their ratio counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

ROUNDS = 200
CALLS = 20  # a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One line of a table, in microseconds a call: the medians over rounds.

    Attributes:
        entry: how the tool is called.
        bare_us, guarded_us: without and with the guard.
        wanted: the ratio that it should keep, at most; None where there is no bound.
    """

    entry: str
    bare_us: float
    guarded_us: float
    wanted: float | None = None

    @property
    def ratio(self) -> float:
        """Guarded over bare."""
        return self.guarded_us / self.bare_us

    @property
    def met(self) -> bool:
        """Whether it keeps the bound, where there is one."""
        return self.wanted is None or self.ratio <= self.wanted


def measure(
    entry: str, bare: Callable[[], Any], guarded: Callable[[], Any], *, wanted: float | None = None
) -> Measurement:
    """The two calls, in turns."""
    rounds: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for times, call in zip(rounds, (bare, guarded), strict=True):
            start = time.process_time()
            for _ in range(CALLS):
                call()
            times.append(time.process_time() - start)
    return _measurement(entry, rounds, wanted)


async def ameasure(
    entry: str,
    bare: Callable[[], Awaitable[Any]],
    guarded: Callable[[], Awaitable[Any]],
    *,
    wanted: float | None = None,
) -> Measurement:
    """The two calls, awaited in turns."""
    rounds: tuple[list[float], list[float]] = [], []
    for _ in range(ROUNDS):
        for times, call in zip(rounds, (bare, guarded), strict=True):
            start = time.process_time()
            for _ in range(CALLS):
                await call()
            times.append(time.process_time() - start)
    return _measurement(entry, rounds, wanted)


def _measurement(entry: str, rounds: tuple[list[float], list[float]], wanted: float | None) -> Measurement:
    bare, guarded = (statistics.median(times) / CALLS * 1e6 for times in rounds)
    return Measurement(entry=entry, bare_us=bare, guarded_us=guarded, wanted=wanted)


def print_table(measurements: list[Measurement]) -> int:
    """Print them as a table; 1 where a bound is not kept."""
    print("| Entry | bare, µs | guarded, µs | × | wanted |\n|---|---:|---:|---:|---|")
    for m in measurements:
        bound = "" if m.wanted is None else f"≤ {m.wanted}: {'yes' if m.met else '**no**'}"
        print(f"| {m.entry} | {m.bare_us:.1f} | {m.guarded_us:.1f} | {m.ratio:.2f} | {bound} |")
    return 0 if all(m.met for m in measurements) else 1

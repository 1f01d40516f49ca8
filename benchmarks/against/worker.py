"""Times the entries of the checkout that PYTHONPATH names, one round at a time.

``python -P worker.py <folder to write in>`` first answers where its code comes from. Then it reads a line of JSON for
each round, ``{"entry": ..., "calls": ...}``, and answers with one: the median microseconds of a call.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[], Any]
BENCHMARKS = Path(__file__).parents[1]


def main() -> None:
    """Answer until there is no more to read."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    warnings.simplefilter("ignore")
    package = types.ModuleType("benchmarks")  # these ones, whatever checkout they are to measure
    package.__path__ = [str(BENCHMARKS)]
    sys.modules["benchmarks"] = package
    import guarded_core
    from benchmarks.against.entries import AWAITED, ENTRIES

    folder = Path(sys.argv[1])
    calls: dict[str, Call] = {}

    def answer(given: Any) -> None:
        print(json.dumps(given), file=answers, flush=True)

    answer(guarded_core.__file__)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            asked = json.loads(line)
            entry = asked["entry"]
            if entry not in calls:
                calls[entry] = ENTRIES[entry](folder)
            call, count = calls[entry], asked["calls"]
            times = runner.run(_atime(call, count)) if entry in AWAITED else _time(call, count)
            answer(statistics.median(times) / 1000)


def _time(call: Call, calls: int) -> list[int]:
    """Nanoseconds of so many calls; each has to pass."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        output = call()
        times.append(time.perf_counter_ns() - start)
        _passes(output)
    return times


async def _atime(call: Call, calls: int) -> list[int]:
    """As `_time`, awaiting."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        output = await call()
        times.append(time.perf_counter_ns() - start)
        _passes(output)
    return times


def _passes(output: Any) -> None:
    if getattr(output, "is_error", False) or "paid" not in str(output):
        raise RuntimeError("the call is meant to pass")


if __name__ == "__main__":
    main()

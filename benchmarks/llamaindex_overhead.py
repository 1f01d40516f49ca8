"""What a guard costs a LlamaIndex tool: guarded against bare, interleaved, with ten rules and an audit trail in memory.

Run from the repository's folder: ``python -m benchmarks.llamaindex_overhead``; ``--profile`` tells where it goes.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llama_index.core.tools import FunctionTool

from benchmarks.rules import ARGUMENTS, own_rules
from guarded_core import Guard, InMemoryToolAuditTrail, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import BudgetToolParam, DenyToolParam, RateLimitTool, RequireApproval
from guarded_llamaindex import GuardedTool, guard_tool

ROUNDS = 200
CALLS = 20  # a round
WANTED = {"call": 1.5}  # × the bare tool, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One line of the table, in microseconds a call: the medians over rounds.

    Attributes:
        entry: how the tool is called.
        bare_us, guarded_us: without and with the guard.
    """

    entry: str
    bare_us: float
    guarded_us: float

    @property
    def ratio(self) -> float:
        """Guarded over bare."""
        return self.guarded_us / self.bare_us

    @property
    def met(self) -> bool:
        """Whether it keeps the bound, where there is one."""
        return self.ratio <= WANTED.get(self.entry, self.ratio)


def pay(to: str, amount: float, currency: str, url: str, items: list[dict[str, str]]) -> str:
    """Pays."""
    return "paid"


async def apay(to: str, amount: float, currency: str, url: str, items: list[dict[str, str]]) -> str:
    """Pays."""
    return "paid"


def tools() -> tuple[FunctionTool, GuardedTool, Guard]:
    """A tool, bare and guarded by ten rules that each look at a call of it; five arguments, one of them nested."""
    bare = FunctionTool.from_defaults(pay, async_fn=apay)
    # Nobody is asked, and no window grows while the same call is made ten thousand times a minute.
    rules = [
        rule for rule in own_rules("pay") if not isinstance(rule, RequireApproval | RateLimitTool | BudgetToolParam)
    ]
    rules += [DenyToolParam(tool="pay", param=param, equals="x") for param in ("to", "currency", "url")]
    settings = ToolSettings(risk="mutating", open_arguments=True)  # its items are free-form objects
    guard = Guard(ToolExecutionPolicy({"pay": settings}, rules=rules), audit=InMemoryToolAuditTrail(128))
    return bare, guard_tool(bare, guard), guard


def _times(*calls: Callable[[], Any]) -> list[float]:
    """The median time of one call of each, in µs, taken in turns."""
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for times, call in zip(rounds, calls, strict=True):
            start = time.process_time()
            for _ in range(CALLS):
                call()
            times.append((time.process_time() - start) / CALLS)
    return [statistics.median(times) * 1e6 for times in rounds]


async def _atimes(*calls: Callable[[], Any]) -> list[float]:
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for times, call in zip(rounds, calls, strict=True):
            start = time.process_time()
            for _ in range(CALLS):
                await call()
            times.append((time.process_time() - start) / CALLS)
    return [statistics.median(times) * 1e6 for times in rounds]


def run() -> list[Measurement]:
    """Measure `call` and `acall`."""
    bare, guarded, guard = tools()
    with guard.session("ann", tools=["pay"], max_calls=10**9):
        if guarded.call(**ARGUMENTS).is_error:
            raise RuntimeError("the call is meant to pass")
        sync = _times(lambda: bare.call(**ARGUMENTS), lambda: guarded.call(**ARGUMENTS))
        awaited = asyncio.run(_atimes(lambda: bare.acall(**ARGUMENTS), lambda: guarded.acall(**ARGUMENTS)))
    return [
        Measurement(entry="call", bare_us=sync[0], guarded_us=sync[1]),
        Measurement(entry="acall", bare_us=awaited[0], guarded_us=awaited[1]),
    ]


def profile() -> None:
    """Print where a guarded call spends its time."""
    _, guarded, guard = tools()
    profiler = cProfile.Profile()
    with guard.session("ann", tools=["pay"], max_calls=10**9):
        guarded.call(**ARGUMENTS)
        profiler.enable()
        for _ in range(5_000):
            guarded.call(**ARGUMENTS)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(30)


def main() -> int:
    """Print the table; 1 where a bound is not kept."""
    if "--profile" in sys.argv:
        profile()
        return 0
    measurements = run()
    print("| Entry | bare, µs | guarded, µs | × | wanted |\n|---|---:|---:|---:|---|")
    for m in measurements:
        bound = f"≤ {WANTED[m.entry]}: {'yes' if m.met else '**no**'}" if m.entry in WANTED else ""
        print(f"| {m.entry} | {m.bare_us:.1f} | {m.guarded_us:.1f} | {m.ratio:.2f} | {bound} |")
    return 0 if all(m.met for m in measurements) else 1


if __name__ == "__main__":
    sys.exit(main())

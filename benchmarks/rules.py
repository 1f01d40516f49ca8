"""What a decision costs when a policy grows: the tool's own rules stay ten, all others are about other tools.

Run from the repository's folder: ``python -m benchmarks.rules``.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.tools import ARGUMENTS, own_rules
from guarded_core import Guard
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.rules.case import Action, Case, Rule, Scope
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.rules.state import StateStore

SIZES = (10, 100, 1_000, 10_000)
WANTED = 2.0  # from the smallest to the largest, at most
ROUNDS = 30
CALLS = 200  # a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One line of the table, in microseconds: the median over rounds.

    Attributes:
        rules: how many there are, ten of them the tool's own.
        judge_us: judging one case.
        decide_us: `guard.decide` of the same call, the whole pipeline without its consequences.
    """

    rules: int
    judge_us: float
    decide_us: float


def other_rules(count: int) -> Iterator[Rule]:
    """Rules of other tools, a hundred a tool."""
    for number in range(count):
        yield DenyToolParam(tool=f"other_{number // 100}", param="to", equals=f"acct-{number}")


def _median_us(rounds: list[float]) -> float:
    return statistics.median(rounds) / CALLS * 1e6


def _round(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - start


def run() -> list[Measurement]:
    """Measure all sizes in turn, round by round, so that a slow moment of the machine hits them alike."""
    case = Case(
        action=Action.tool_call("pay", ARGUMENTS), scope=Scope(principal="ann", session_id="s"), state=StateStore()
    )
    judges: dict[int, Callable[[], object]] = {}
    decides: dict[int, Callable[[], object]] = {}
    for size in SIZES:
        rules = [*own_rules("pay"), *other_rules(size - 10)]
        engine = PolicyEngine(rules)
        if engine.judge(case).violations or engine.judge(case).asks:
            raise RuntimeError("the call is meant to pass")
        guard = Guard(ToolExecutionPolicy({"pay": "mutating"}, rules=rules))

        @guard.tool
        def pay(to: str, amount: float, currency: str, url: str, items: list[dict[str, str]]) -> None:
            """Pays."""

        context = guard.session("ann", tools=["pay"])
        judges[size] = lambda engine=engine: engine.judge(case)  # type: ignore[misc]
        decides[size] = lambda guard=guard, context=context: guard.decide("pay", ARGUMENTS, context=context)  # type: ignore[misc]
    judged: dict[int, list[float]] = {size: [] for size in SIZES}
    decided: dict[int, list[float]] = {size: [] for size in SIZES}
    for _ in range(ROUNDS):
        for size in SIZES:
            judged[size].append(_round(judges[size]))
            decided[size].append(_round(decides[size]))
    return [
        Measurement(rules=size, judge_us=_median_us(judged[size]), decide_us=_median_us(decided[size]))
        for size in SIZES
    ]


def main() -> int:
    """Print the table; 1 where the growth is not within its bound."""
    measurements = run()
    print("| Rules | of the tool | judge, µs | × | decide, µs | × |\n|---:|---:|---:|---:|---:|---:|")
    first, last = measurements[0], measurements[-1]
    for m in measurements:
        growth = f"{m.judge_us / first.judge_us:.2f}", f"{m.decide_us / first.decide_us:.2f}"
        print(f"| {m.rules:,} | 10 | {m.judge_us:.1f} | {growth[0]} | {m.decide_us:.1f} | {growth[1]} |")
    met = last.judge_us <= WANTED * first.judge_us and last.decide_us <= WANTED * first.decide_us
    print(f"\nWanted: at most {WANTED:g} × from {first.rules} to {last.rules:,} rules: {'yes' if met else '**no**'}.")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

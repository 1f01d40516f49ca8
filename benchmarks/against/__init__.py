"""Compares this checkout with another: is any way into a guarded call slower than it was?

Old and new code each run in an interpreter of their own, and take turns: every round, in a new order, times each entry
in both, one right after the other, so that a slow moment of the machine meets both. What counts is the ratio within a
round; its median is told with the 95 % interval that a bootstrap over rounds gives.

Run from the repository's folder: ``python -m benchmarks --against <other checkout>``.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.against.entries import ENTRIES
from benchmarks.report import Section, machine
from benchmarks.sampling import Ratio

HERE = Path(__file__).parents[2]
ROUNDS, BOUND = 30, 1.05
ROUND_US = 30_000  # what the calls of one entry take in a round, in about
RESAMPLES = 2_000
FRESH = 10  # rounds after which both interpreters are started anew: where code lies in memory is luck, too

Ask: TypeAlias = Callable[[str, int], float]  # an entry and how many calls; the median microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One entry in both checkouts: the microseconds of each round's median call, old and new in pairs."""

    entry: str
    old: Sequence[float]
    new: Sequence[float]

    @property
    def ratio(self) -> Ratio:
        """The median of the rounds' ratios, new to old."""
        return paired([new / old for old, new in zip(self.old, self.new, strict=True)])

    def is_slower(self, bound: float) -> bool:
        """Whether the ratio is above `bound`, and the interval does not hold 1."""
        found = self.ratio
        return found.value > bound and found.low > 1

    def verdict(self, bound: float) -> str:
        """That, and its contrary, in a word."""
        found = self.ratio
        if self.is_slower(bound):
            return "**slower**"
        return "faster" if found.value < 1 / bound and found.high < 1 else "alike"


def paired(ratios: Sequence[float]) -> Ratio:
    """The median of `ratios` and its 95 % interval, by a bootstrap that gives the same answer each time."""
    chance = random.Random(len(ratios))  # noqa: S311
    found = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    cut = RESAMPLES // 40
    return Ratio(value=statistics.median(ratios), low=found[cut], high=found[-cut - 1])


@contextmanager
def worker(checkout: Path) -> Iterator[Ask]:
    """An interpreter that answers with the code of `checkout`.

    Raises:
        RuntimeError: it found other code, or ended.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(checkout / "core"), str(checkout)]),
        "PYTHONHASHSEED": "0",
    }
    script = str(Path(__file__).with_name("worker.py"))
    with tempfile.TemporaryDirectory(dir=".", prefix=".against-") as folder:
        command = [sys.executable, "-P", script, folder]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            asks, answers = process.stdin, process.stdout

            def read() -> object:
                line = answers.readline()
                if not line:
                    raise RuntimeError(f"the interpreter with the code of {checkout} has ended; what it said is above")
                return json.loads(line)

            def ask(entry: str, calls: int) -> float:
                asks.write(json.dumps({"entry": entry, "calls": calls}) + "\n")
                asks.flush()
                return float(str(read()))

            try:
                found = Path(str(read()))
                if not found.is_relative_to(checkout):
                    raise RuntimeError(f"{checkout} has no core/guarded_core; {found} was found instead")
                yield ask
            finally:
                asks.close()


def compare(other: Path, names: Sequence[str], rounds: int = ROUNDS) -> list[Compared]:
    """Time the entries in both checkouts, in turns."""
    old: dict[str, list[float]] = {name: [] for name in names}
    new: dict[str, list[float]] = {name: [] for name in names}
    for first in range(0, rounds, FRESH):
        with ExitStack() as open_workers:
            sides = [
                (open_workers.enter_context(worker(checkout)), times)
                for checkout, times in ((other.resolve(), old), (HERE, new))
            ]
            counts = {name: _calls(max(ask(name, 5) for ask, _ in sides)) for name in names}
            for round in range(first, min(first + FRESH, rounds)):
                print(f"\rround {round + 1} of {rounds} …", end="", file=sys.stderr, flush=True)
                for name in random.sample(names, len(names)):
                    for ask, times in random.sample(sides, 2):
                        times[name].append(ask(name, counts[name]))
    print(file=sys.stderr)
    return [Compared(entry=name, old=old[name], new=new[name]) for name in names]


def _calls(microseconds: float) -> int:
    return max(5, min(200, round(ROUND_US / microseconds)))


def section(found: Sequence[Compared], other: Path, bound: float) -> Section:
    """The comparison as a table."""
    rows = [
        [
            one.entry,
            f"{statistics.median(one.old):,.1f}",
            f"{statistics.median(one.new):,.1f}",
            f"{one.ratio.value:.3f}",
            f"{one.ratio.low:.3f}–{one.ratio.high:.3f}",
            one.verdict(bound),
        ]
        for one in found
    ]
    rounds = max((len(one.old) for one in found), default=0)
    return Section(
        title=f"Against {other}",
        text=f"{rounds} rounds on {machine()}. Slower is a median ratio above {bound:g} whose interval excludes 1.",
        columns=("Entry", "old, µs", "new, µs", "ratio", "95 %", ""),
        rows=rows,
    )


def run(other: Path, wanted: Sequence[str] = (), rounds: int = ROUNDS, bound: float = BOUND) -> int:
    """Compare, and print the table; 1 where an entry is slower.

    Args:
        other: the folder of the other checkout.
        wanted: parts of the entries' names; all entries by default.
        rounds: how often each is timed.
        bound: the median ratio that is still fine.
    """
    names = [name for name in ENTRIES if not wanted or any(part in name for part in wanted)]
    if not names:
        raise SystemExit(f"no entry is named so; there are: {'; '.join(ENTRIES)}")
    found = compare(other, names, rounds)
    print(section(found, other, bound).markdown())
    return 1 if any(one.is_slower(bound) for one in found) else 0

"""Runs the benchmarks, prints their tables, and writes RESULTS.md and the plots.

``python -m benchmarks [name ...] [--quick]``, from the repository's folder. With names or ``--quick`` it only prints:
RESULTS.md is always of one whole run.

``python -m benchmarks --against <other checkout> [part of an entry's name ...]`` asks instead whether this code is
slower than that one, and ends with 1 where it is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import against, durability, memory, overhead, peers, rules, store
from benchmarks.report import FOLDER, Goal, Measurement, Section, draw, results


def _of_rules(quick: bool) -> list[Section]:
    if quick:
        rules.ROUNDS = 5
    found = rules.run()
    rows = [[f"{m.rules:,}", f"{m.judge_us:.1f} µs", f"{m.decide_us:.1f} µs"] for m in found]
    grown = max(found[-1].judge_us / found[0].judge_us, found[-1].decide_us / found[0].decide_us)
    goal = Goal(
        what="a decision, from 10 to 10,000 rules",
        wanted=f"≤ {rules.WANTED:g} ×",
        found=f"{grown:.2f} ×",
        met=grown <= rules.WANTED,
    )
    text = "Ten rules are the tool's own, all others are other tools'."
    return [Section(title="Growing policies", text=text, columns=("Rules", "judge", "decide"), rows=rows, goals=[goal])]


def _listed(title: str, text: str, found: list[Measurement]) -> list[Section]:
    rows, goals = [], []
    for m in found:
        figure = f"{f'{m.value:,.2f}' if m.value < 100 else f'{m.value:,.0f}'} {m.unit}"
        rows.append([m.name, figure])
        if m.wanted:
            goals.append(Goal(what=m.name, wanted=f"{m.wanted} {m.unit}", found=figure, met=m.met))
    return [Section(title=title, text=text, columns=("What", "measured"), rows=rows, goals=goals)]


def _of_durability(quick: bool) -> list[Section]:
    return _listed("The durable trail", "Against a raw append + fdatasync on the same disk.", durability.run())


def _of_store(quick: bool) -> list[Section]:
    return _listed("The SQL store", "A call's reads and writes, without the tool.", store.run())


BENCHMARKS: dict[str, Callable[[bool], list[Section]]] = {
    "overhead": overhead.run,
    "peers": peers.run,
    "memory": memory.run,
    "rules": _of_rules,
    "durability": _of_durability,
    "store": _of_store,
}
QUICK = ("overhead", "peers", "memory", "rules")


def main() -> int:
    """Run what is asked for; 1 where a goal is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="less than a minute, for a first look")
    parser.add_argument("--against", type=Path, metavar="checkout", help="compare with it; names are parts of entries'")
    parser.add_argument("--rounds", type=int, default=against.ROUNDS, help="of --against, %(default)s by default")
    parser.add_argument("--bound", type=float, default=against.BOUND, help="of --against: the ratio that is still fine")
    given = parser.parse_args()
    if given.against is not None:
        return against.run(given.against, given.names, given.rounds, given.bound)
    if unknown := set(given.names) - BENCHMARKS.keys():
        parser.error(f"there is no {sorted(unknown)[0]}; there are: {', '.join(BENCHMARKS)}")
    sections: list[Section] = []
    for name in given.names or (QUICK if given.quick else BENCHMARKS):
        start = time.perf_counter()
        print(f"{name} …", end=" ", flush=True, file=sys.stderr)
        sections += BENCHMARKS[name](given.quick)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    report = results(sections, quick=given.quick)
    print(report)
    if not (given.names or given.quick):
        (FOLDER / "RESULTS.md").write_text(report)
        for section in sections:
            if section.plot is not None:
                draw(section.plot)
    return 0 if all(goal.met for section in sections for goal in section.goals) else 1


if __name__ == "__main__":
    sys.exit(main())

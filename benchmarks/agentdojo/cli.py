"""The command line: replay, check what keeps it honest, write table and plot."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from benchmarks.agentdojo import honesty, report, timing
from benchmarks.agentdojo.adapters import ADAPTERS
from benchmarks.agentdojo.levels import LEVELS, Level
from benchmarks.agentdojo.replay import Deployment, Order, Outcome, replay
from benchmarks.agentdojo.results import keep, load, summed_up
from benchmarks.agentdojo.world import attacked, benign, suites

_PROVEN = ("provenance, nobody asked", "provenance, exact", "all: provenance + plan, exact")
# Adapter, order, and which levels: every row once; orders and adapters where they could make a difference.
_EVERYTHING: tuple[tuple[str, Order, tuple[str, ...]], ...] = (
    ("core", "hijack", ()),
    ("core", "append", _PROVEN),
    ("core", "prefix", _PROVEN),
    ("core", "insider", ("no guard", "static rules", "approvals, exact", *_PROVEN)),
    ("langchain", "hijack", _PROVEN[:2]),
    ("llamaindex", "hijack", _PROVEN[:2]),
)


def run(level: Level, found: dict[str, Any], adapter: str, order: Order) -> tuple[list[Outcome], list[Outcome]]:
    """Every task by itself, and every pair."""
    alone: list[Outcome] = []
    hit: list[Outcome] = []
    for suite in found.values():
        deployment = Deployment(suite, level, adapter)
        alone += [replay(deployment, pair, order) for pair in benign(suite)]
        hit += [replay(deployment, pair, order) for pair in attacked(suite)]
    return alone, hit


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agentdojo", description=__doc__)
    parser.add_argument("--adapter", default="core", choices=list(ADAPTERS))
    parser.add_argument("--order", default="hijack", choices=["hijack", "append", "prefix", "insider"])
    parser.add_argument("--suites", nargs="*", help="some suites only; nothing is kept then")
    parser.add_argument("--only", nargs="*", help="levels whose names begin with one of these")
    parser.add_argument(
        "--show", action="store_true", help="each task that is refused or asks, and each attack through"
    )
    parser.add_argument("--report", action="store_true", help="write table and plot of what was kept, and check it")
    parser.add_argument("--everything", action="store_true", help="all levels, orders and adapters, then the report")
    options = parser.parse_args()
    found = suites(options.suites)
    if options.everything:
        for adapter, order, only in _EVERYTHING:
            _replay_levels(found, adapter, order, only, show=False, kept=True)
        timing.keep(timing.measure(found))
    elif not options.report:
        only = tuple(options.only or ())
        _replay_levels(found, options.adapter, options.order, only, show=options.show, kept=not options.suites)
    if options.everything or options.report:
        report.write()
        sys.exit(_judged(found))


def _replay_levels(
    found: dict[str, Any], adapter: str, order: Order, only: tuple[str, ...], *, show: bool, kept: bool
) -> None:
    for level in LEVELS:
        if only and not any(level.name.startswith(part) for part in only):
            continue
        started = time.perf_counter()
        alone, hit = run(level, found, adapter, order)
        row = summed_up(level.name, adapter, order, alone, hit)
        print(
            f"{row.level:45} {adapter} {order}  strict {row.strict}/{row.tasks}"
            f"  attacked {row.attacked_strict}/{row.pairs}  through {row.through}  asks {row.asked}"
            f"  ({time.perf_counter() - started:.0f} s)",
            flush=True,
        )
        if show:
            _show(alone, hit)
        if kept:
            keep([row])


def _show(alone: list[Outcome], hit: list[Outcome]) -> None:
    for row in alone:
        if row.refused or row.asked or not row.utility:
            print(f"    {row.suite} {row.user}: refused {row.refused}, asked {row.asked}, {row.errors}")
    for row in hit:
        if row.through:
            print(f"    through: {row.suite} {row.user} {row.injection}, refused {row.attack_refused}")


def _judged(found: dict[str, Any]) -> int:
    rows = load()
    wrong = honesty.sanity(
        {level: row for (level, adapter, order), row in rows.items() if (adapter, order) == ("core", "hijack")}
    )
    wrong += [f"a policy holds an attacker's literal: {literal}" for literal in honesty.attackers_literals(found)]
    for (level, adapter, order), row in rows.items():
        core = rows.get((level, "core", order))
        if core and core.verdicts != row.verdicts:
            wrong.append(f"{adapter} and core differ: {level}, {order}")
    for name, digest in honesty.policy_hashes().items():
        print(f"{digest}  {name}.toml")
    print("\n".join(wrong) or "sane")
    return bool(wrong)

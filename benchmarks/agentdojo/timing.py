"""What the guard costs a call: CPU time beyond the tool's own; levels take turns, since other work slows them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.agentdojo.levels import LEVELS
from benchmarks.agentdojo.replay import Deployment, replay
from benchmarks.agentdojo.world import benign

TIMING = Path(__file__).parent / "timing.json"
COMPARED = ("no guard", "approvals, exact", "provenance, exact", "all: provenance + plan, exact")


def measure(suites: dict[str, Any], *, rounds: int = 3) -> dict[str, list[float]]:
    """By level, the median and the 90th percentile over all calls of all user tasks, in µs."""
    levels = [level for level in LEVELS if level.name in COMPARED]
    seconds: dict[str, list[float]] = {level.name: [] for level in levels}
    for suite in suites.values():
        deployments = {level.name: Deployment(suite, level, "core") for level in levels}
        for pair in benign(suite):
            for _ in range(rounds):
                for name, deployment in deployments.items():
                    seconds[name] += replay(deployment, pair, "hijack").overheads
    return {name: _percentiles(found) for name, found in seconds.items()}


def keep(timing: dict[str, list[float]]) -> None:
    """Put it where the report finds it."""
    TIMING.write_text(json.dumps(timing, indent=1) + "\n")


def table() -> str:
    """It as Markdown."""
    timing: dict[str, list[float]] = json.loads(TIMING.read_text())
    base = timing["no guard"][0]
    lines = [
        "| CPU time of the guard, µs a call | median | added at the median | 90th percentile |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {median:.0f} | {median - base:.0f} | {ninetieth:.0f} |"
        for name, (median, ninetieth) in timing.items()
    ]
    return "\n".join(lines)


def _percentiles(seconds: list[float]) -> list[float]:
    found = sorted(1e6 * second for second in seconds)
    return [round(found[len(found) // 2], 1), round(found[len(found) * 9 // 10], 1)]

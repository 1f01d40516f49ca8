"""What a guard holds on to: a waiting approval, a session, its modules; and whether a million calls leave anything.

Run from the repository's folder: ``python -m benchmarks memory``.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from benchmarks.report import Goal, Section
from benchmarks.tools import ARGUMENTS
from guarded_core import Guard, InMemoryToolAuditTrail, ToolExecutionPolicy
from guarded_core.ground.errors import HumanApprovalRequired, ToolExecutionError

SOAK, A_SESSION = 1_000_000, 100
MAX_GROWTH = 2.0  # MiB in the soak's second half
IMPORTS = ("guarded_core", "guarded_langchain", "guarded_llamaindex")
BENEATH = {
    "guarded_core": "pydantic, orjson, jsonschema_rs",
    "guarded_langchain": "langchain_core.tools",
    "guarded_llamaindex": "llama_index.core.tools",
}


def house(risk: str) -> Guard:
    """A guard in front of one payment."""
    policy = ToolExecutionPolicy({"pay": risk, "hidden": "read_only"})
    guard = Guard(policy, audit=InMemoryToolAuditTrail(16), max_denials=10**6, max_pending=10**6)

    @guard.tool
    def pay(to: str, amount: float, currency: str, url: str) -> str:
        """Pays."""
        return "paid"

    return guard


PAYMENT = {name: value for name, value in ARGUMENTS.items() if name != "items"}


def of_pending(count: int) -> float:
    """Bytes a waiting approval."""
    guard = house("financial")
    context = guard.session("ann", tools=["pay"])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        try:
            guard.call("pay", {**PAYMENT, "amount": number}, context=context)
        except HumanApprovalRequired:
            continue
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / count


def of_session(count: int) -> float:
    """Bytes an open session that has made a call."""
    guard = house("mutating")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    sessions = []
    for number in range(count):
        sessions.append(guard.session(f"user-{number}", tools=["pay"]))
        guard.call("pay", PAYMENT, context=sessions[-1])
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return grown / count


def of_import(modules: str, rounds: int) -> float:
    """Milliseconds to import them in a fresh interpreter, beyond starting it."""
    code = f"import time; start = time.perf_counter(); import {modules}; print(time.perf_counter() - start)"
    found = [float(_fresh("-c", code)) for _ in range(rounds + 1)]
    return statistics.median(found[1:]) * 1e3  # the first one reads the files from the disk


def _fresh(*arguments: str) -> str:
    """What a new interpreter prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment
    ).stdout


def resident() -> float:
    """What this process holds in memory, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def soak(calls: int) -> tuple[list[float], float]:
    """The process's memory at each twentieth of the calls, and seconds; a hundred calls a session, one more refused."""
    guard = house("mutating")
    held, start = [], time.perf_counter()
    for session in range(calls // A_SESSION):
        with guard.session(f"user-{session}", tools=["pay"], max_calls=A_SESSION):
            for _ in range(A_SESSION):
                guard.call("pay", PAYMENT)
            with contextlib.suppress(ToolExecutionError):
                guard.call("hidden", PAYMENT)
        if session % max(1, calls // A_SESSION // 20) == 0:
            held.append(resident())
    return held, time.perf_counter() - start


def run(quick: bool = False) -> list[Section]:
    """Measure everything."""
    rows = [
        ["a waiting approval", f"{of_pending(100 if quick else 500) / 1024:.1f} KiB"],
        ["an open session", f"{of_session(200 if quick else 2_000) / 1024:.1f} KiB"],
    ]
    for module in IMPORTS:
        rounds = 1 if quick else 5
        beneath, whole = of_import(BENEATH[module], rounds), of_import(module, rounds)
        rows.append([f"importing {module}", f"{whole:.0f} ms, {beneath:.0f} of them {BENEATH[module]}"])
    calls = 20_000 if quick else SOAK
    held, seconds = json.loads(_fresh("-m", "benchmarks.memory", str(calls)))
    second_half = max(held) - held[len(held) // 2]
    rows += [
        [
            f"{calls:,} calls in {calls // A_SESSION:,} sessions",
            f"{held[0]:.1f} → {held[-1]:.1f} MiB in {seconds:.0f} s",
        ],
        ["growth in the second half of them", f"{second_half:.2f} MiB"],
    ]
    goal = Goal(
        what=f"memory in the second half of {calls:,} calls",
        wanted=f"+ ≤ {MAX_GROWTH:g} MiB",
        found=f"+ {second_half:.2f} MiB",
        met=second_half <= MAX_GROWTH,
    )
    return [
        Section(
            title="Memory",
            text="With the store and the trail in memory; a session without a name is forgotten with its context. "
            "Named sessions and ledger entries stay, as they must.",
            columns=("What", "measured"),
            rows=rows,
            goals=[goal],
        )
    ]


if __name__ == "__main__":
    print(json.dumps(soak(int(sys.argv[1]))))

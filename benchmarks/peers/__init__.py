"""What an allowed call costs with others that guard tools, each from PyPI in an environment of its own.

Each is set up as strictly as it comparably can be (see the files in ``calls``): the same payment, allowed. The table
says which controls each then applied, so that like is compared with like.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Goal, Plot, Section

ENVIRONMENTS = Path(".venv-peers")
CALLS = Path(__file__).parent / "calls"
ROUNDS, SECONDS = 3, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to guard a call.

    Attributes:
        name: as it is known.
        file: the one in ``calls``.
        controls: what it did on that call.
        count: how many of the controls in `CONTROLS` these are.
        requirement: what pip installs; None for what is installed here.
        through: what the call goes through, when it is no plain function.
    """

    name: str
    file: str
    controls: str
    count: int
    requirement: str | None = None
    through: str = ""


CONTROLS = (
    "allowlist, principal, bounded payload, closed schema, rules over arguments, call budget, approval bound to the "
    "payload where asked, output bound, chained or complete audit of intent and outcome, the same on disk"
)
PEERS = (
    Peer(
        name="guarded-tools, trail in memory",
        file="guarded_tools",
        controls="allowlist, principal, bounds, closed schema, 10 rules, budget, approval, output bound, two events",
        count=9,
    ),
    Peer(
        name="guarded-tools, durable trail",
        file="guarded_tools_durable",
        controls="the same, both events chained and synced to the disk",
        count=10,
    ),
    Peer(
        name="agent-governance-toolkit (govern)",
        file="agent_governance_toolkit",
        controls="1 rule over keyword arguments, one chained event in memory",
        count=3,
        requirement="agent-governance-toolkit-core==5.0.0",
    ),
    Peer(
        name="agentguard-oss",
        file="agentguard_oss",
        controls="policy of capabilities, risk score, output check, five chained events synced to the disk",
        count=5,
        requirement="agentguard-oss==0.5.0",
    ),
    Peer(
        name="attenu-guard",
        file="attenu_guard",
        controls="scope, agent, ceiling over one value, budget, one chained event in a file, not synced",
        count=5,
        requirement="attenu-guard==0.21.0",
    ),
    Peer(
        name="airlock-sdk",
        file="airlock_sdk",
        controls="1 rule, commit ledger and chained events in SQLite",
        count=4,
        requirement="airlock-sdk==0.3.0",
    ),
    Peer(
        name="tool-call-guard",
        file="tool_call_guard",
        controls="allowlist, 1 predicate over arguments, budget, one event in memory",
        count=4,
        requirement="tool-call-guard==0.2.0",
    ),
    Peer(
        name="guarded-tools on LangChain",
        file="guarded_langchain",
        controls="as guarded-tools, trail in memory",
        count=9,
        through="LangChain invoke",
    ),
    Peer(
        name="LangChain's human-in-the-loop middleware",
        file="langchain_hitl",
        controls="1 predicate over arguments",
        count=1,
        through="LangChain invoke",
    ),
)


def interpreter(peer: Peer, *, make: bool) -> str | None:
    """The Python that has the peer; None where it cannot be installed, or must not be `make`d now."""
    if peer.requirement is None:
        return sys.executable
    home = ENVIRONMENTS / peer.file
    python, done = home / "bin" / "python", home / peer.requirement
    if done.exists():
        return str(python)
    if not make:
        return None
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True, capture_output=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", peer.requirement]
        subprocess.run(install, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    done.touch()
    return str(python)


def times(peer: Peer, python: str, seconds: float) -> list[float] | None:
    """Microseconds of each call in a fresh process; None where the peer fails."""
    ours = os.pathsep.join(sys.path) if peer.requirement is None else ""
    with tempfile.TemporaryDirectory(dir=".", prefix=".peers-") as folder:
        command = [python, Path(__file__).parent / "worker.py", CALLS / f"{peer.file}.py", folder, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ours})
    if done.returncode:
        return None
    found: list[float] = json.loads(done.stdout)
    return found


def run(quick: bool = False) -> list[Section]:
    """Measure all in turns; with `quick`, only peers whose environment is there."""
    pythons = {peer.file: interpreter(peer, make=not quick) for peer in PEERS}
    medians: dict[str, list[float]] = {peer.file: [] for peer in PEERS}
    for _ in range(1 if quick else ROUNDS):
        for peer in PEERS:
            python = pythons[peer.file]
            found = times(peer, python, 0.3 if quick else SECONDS) if python else None
            if found:
                medians[peer.file].append(statistics.median(found))
    measured = {peer.file: statistics.median(medians[peer.file]) for peer in PEERS if medians[peer.file]}
    missing = "not installed" if quick else "could not be installed or run"
    rows = [
        [
            peer.name,
            f"{measured[peer.file]:,.1f} µs" if peer.file in measured else missing,
            f"{peer.count} of 10",
            peer.controls,
        ]
        for peer in PEERS
    ]
    return [
        Section(
            title="Peers",
            text="One allowed call, median, in a loop of its own process, all in turns. Those below the line of "
            f"LangChain go through its invoke as well. The ten controls counted: {CONTROLS}.",
            columns=("Guard", "a call", "controls", "which"),
            rows=rows,
            goals=_goals(measured),
            plot=Plot(
                name="peers",
                title="An allowed call, by guard",
                unit="µs, median",
                bars={"": {peer.name: measured[peer.file] for peer in PEERS if peer.file in measured}},
                logarithmic=True,
            ),
        )
    ]


def _goals(measured: dict[str, float]) -> list[Goal]:
    ours = {peer.file: peer for peer in PEERS if peer.file.startswith("guarded_")}
    others = [peer for peer in PEERS if peer.file in measured and peer.file not in ours]
    if not others:
        return []
    plain = measured["guarded_tools"]
    as_many = [peer for peer in others if peer.count >= ours["guarded_tools"].count]
    thinnest = min((measured[peer.file] for peer in others), default=plain)
    fastest = min((measured[peer.file] for peer in as_many), default=float("inf"))
    return [
        Goal(
            what="a call, against every peer that applies as many controls",
            wanted="faster",
            found=f"{plain:.0f} µs; {f'{fastest:.0f} µs' if as_many else 'no peer does'}",
            met=plain < fastest,
        ),
        Goal(
            what="a call, against the thinnest peer",
            wanted="≤ 3 ×",
            found=f"{plain / thinnest:.1f} ×",
            met=plain <= 3 * thinnest,
        ),
    ]

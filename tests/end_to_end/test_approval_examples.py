"""The examples of approvals: three processes each, and one refund."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("example", "framework"),
    [
        ("langgraph_approval_interrupt", "langgraph.checkpoint.sqlite"),
        ("llamaindex_approval_survives_restart", "llama_index.core"),
    ],
)
def test_example(example: str, framework: str) -> None:
    """One process asks, another approves, a third goes on twice: it is asked once, and the refund is made once."""
    pytest.importorskip(framework)
    pytest.importorskip("sqlalchemy")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{example}.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("Approval wanted: issue_refund") == 1
    assert "lee approved issue_refund" in done.stdout
    assert done.stdout.endswith("Your refund is on its way.\nrefunds made: 1\n")


@pytest.mark.parametrize(
    ("decision", "said"),
    [(["approve", "--yes"], "refunded 20.0 for A-17\n"), (["deny", "--reason", "ticket closed"], "ticket closed\n")],
)
def test_two_terminals(tmp_path: Path, decision: list[str], said: str) -> None:
    """One terminal waits; another one lists the request and decides it; the first goes on, or is told why not."""
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("typer")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "core"), str(ROOT)]),
        "GUARDED_STORE": "sqlite:///guard.db",
        "GUARDED_APPROVER": "lee",
    }

    def guarded(*arguments: str) -> str:
        command = [sys.executable, "-c", "from guarded_core.cli import main; main()", "approvals", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout

    waiting = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "approve_from_another_terminal.py")],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        while "issue_refund" not in (listed := guarded("list")):
            assert waiting.poll() is None
        request_id = next(line for line in listed.splitlines() if "issue_refund" in line).split()[0]
        guarded(decision[0], request_id, *decision[1:])
        output, _ = waiting.communicate(timeout=60)
    finally:
        waiting.kill()
    assert output.startswith("issue_refund waits for a person\n")
    assert output.endswith(said)

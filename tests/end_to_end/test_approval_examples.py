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

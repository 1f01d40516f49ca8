"""The examples, run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples"


def output(name: str) -> str:
    """What the example of that name prints, in a process of its own that has to end without an error."""
    path = os.pathsep.join(place for place in sys.path if place)
    run = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout

"""The README's examples run as they are written.

``<!-- test: name -->`` before a ``python`` block makes it a test; ``<!-- file: name -->`` before any block makes it a
file that lies in the folder where each of them runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^<!-- (?P<kind>test|file): (?P<name>[\w.-]+) -->\n+```\w+\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(kind: str) -> dict[str, str]:
    """The README's marked blocks of one kind, by name."""
    return {found["name"]: found["text"] for found in BLOCK.finditer(README.read_text()) if found["kind"] == kind}


def test_every_marker_of_the_readme_is_a_block_of_its_own() -> None:
    """There is at least one example, none shares its name with another, and no marker stands before something else."""
    markers = re.findall(r"<!-- (?:test|file):", README.read_text())
    assert blocks("test")
    assert len(markers) == len(blocks("test")) + len(blocks("file"))


@pytest.mark.parametrize("name", blocks("test"))
def test_example_runs(name: str, tmp_path: Path) -> None:
    """The example, in a new folder with the README's files, in a process of its own, ends without an error."""
    for file, text in blocks("file").items():
        (tmp_path / file).write_text(text)
    script = tmp_path / name
    script.write_text(blocks("test")[name])
    run = subprocess.run(
        [sys.executable, script], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr

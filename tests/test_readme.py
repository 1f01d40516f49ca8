"""The examples of the README and the guides run as they are written.

``<!-- test: name -->`` before a ``python`` block makes it a test; ``<!-- file: name -->`` before any block makes it a
file that lies in the folder where each of its page's tests runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/approvals.md", "docs/extending.md", "docs/provenance.md", "docs/sessions.md")
BLOCK = re.compile(r"^<!-- (?P<kind>test|file): (?P<name>[\w.-]+) -->\n+```\w+\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(page: str, kind: str) -> dict[str, str]:
    """A page's marked blocks of one kind, by name."""
    return {
        found["name"]: found["text"] for found in BLOCK.finditer((ROOT / page).read_text()) if found["kind"] == kind
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_marker_is_a_block_of_its_own(page: str) -> None:
    """There is at least one example, none shares its name with another, and no marker stands before something else."""
    markers = re.findall(r"<!-- (?:test|file):", (ROOT / page).read_text())
    assert blocks(page, "test")
    assert len(markers) == len(blocks(page, "test")) + len(blocks(page, "file"))


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in PAGES for name in blocks(page, "test")])
def test_example_runs(page: str, name: str, tmp_path: Path) -> None:
    """The example, in a new folder with its page's files, in a process of its own, ends without an error."""
    for file, text in blocks(page, "file").items():
        (tmp_path / file).write_text(text)
    script = tmp_path / name
    script.write_text(blocks(page, "test")[name])
    run = subprocess.run(
        [sys.executable, script], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("page", [*PAGES, "SECURITY.md", "CHANGELOG.md", "docs/scaling.md", "docs/architecture.md"])
def test_links_lead_somewhere(page: str) -> None:
    """Every link to a file of the project is to one that is there."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page).parent.joinpath(link).exists()] == []

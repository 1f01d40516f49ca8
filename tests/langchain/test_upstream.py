"""The list of other packages' tests that fail guarded, which `make test-upstream` holds against their runs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_difference_has_its_reason_on_the_page() -> None:
    """The page explains the reasons of the list, all of them and no others, with how many tests each has."""
    lines = (ROOT / "tests" / "upstream" / "differences.txt").read_text().splitlines()
    listed = [line.split(maxsplit=2) for line in lines if not line.startswith("#")]
    assert {package for package, _, _ in listed} == {"langchain-core", "langgraph-prebuilt", "langchain"}
    assert len({(package, test) for package, _, test in listed}) == len(listed)
    page = (ROOT / "docs" / "differences.md").read_text()
    table = page[page.index("<!-- upstream -->") : page.index("<!-- end of upstream -->")]
    explained = {
        reason: int(count) for reason, count in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", table, re.MULTILINE)
    }
    assert explained == dict(Counter(reason for _, reason, _ in listed))
    counts = re.findall(
        r"^\| (langchain-core|langgraph-prebuilt|langchain) .* \| (\d+) \| (\d+) \|$", page, re.MULTILINE
    )
    missing = Counter(package for package, _, _ in listed)
    assert {package: int(bare) - int(guarded) for package, bare, guarded in counts} == missing

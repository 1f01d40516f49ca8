"""The examples run as they are, and do what they say."""

from pathlib import Path

import pytest

from tests.examples import output

ROOT = Path(__file__).parents[2]

SAID = {
    "llamaindex_agent": [
        "I refunded 90 for order 1001.",
        "{'1001': {'total': 90, 'status': 'refunded 90'}}",
        "denied     refund     approval_rejected",
    ],
    "llamaindex_query_engine": [
        "shown to the model: ['ask_handbook', 'find_pages']",
        "- Returns are free for 30 days.",
        "- This tool is not available. Use one of the tools you were given.",
        "- The policy does not allow this call. Do not repeat it unchanged.",
    ],
    "llamaindex_workflow": [
        "calls left: 0",
        "notes: ['otter note 1', 'otter note 2']",
        "denied     write_note call_budget_exhausted",
        "denied     publish    unauthorized",
    ],
}


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name: str) -> None:
    """In a process of its own, without an error, printing what it is about."""
    stdout = output(name)
    assert [line for line in SAID[name] if line not in stdout.splitlines()] == []


def test_dropping_the_guard_in_takes_five_lines() -> None:
    """The lines marked in the example are those that a user adds or changes."""
    text = (ROOT / "examples" / "llamaindex_agent.py").read_text()
    assert sum("# +" in line and "``# +``" not in line for line in text.splitlines()) == 5


def test_every_example_is_run() -> None:
    """Each example of LlamaIndex is named in a test."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = [path.stem for path in (ROOT / "examples").glob("llamaindex_*.py")]
    assert [name for name in there if name not in tests] == []

"""The examples run as they are, offline, and do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples import output

ROOT = Path(__file__).parents[2]

SAID = {
    "langchain_agent": [
        "A person rejected this call. It did not run; do not repeat it.",
        "refunded 90 for order 1001",
        "{'1001': {'total': 90, 'status': 'refunded 90'}}",
        "denied     refund     approval_rejected",
    ],
    "langchain_mcp": [
        "The arguments do not fit the tool's schema: at /lines: wrong type, expected integer. "
        "Correct them and try again.",
        "buy milk",
        "A person rejected this call. It did not run; do not repeat it.",
    ],
    "langchain_multi_agent": [
        "unguarded: none",
        "researcher: This tool is not available. Use one of the tools you were given.",
        "supervisor: No calls are left in this session for this tool. Answer with what you have.",
        "['Otters hold hands while they sleep.']",
        "succeeded  search_web     researcher editor-3",
    ],
    "langchain_fastapi": [
        "200 It says: order 7: cancelled",
        "200 It says: This tool is not available. Use one of the tools you were given.",
        "401",
        "shown: [['find_order', 'cancel_order'], ['find_order']]",
    ],
    "langchain_served_graph": [
        "login-1: It says: 2 new messages in inbox",
        "authorized read_inbox ann",
        "denied     read_inbox bob",
        "denied     read_inbox nobody",
    ],
    "langgraph_replies": [
        "The last reply was not taken: nobody approves their own call; another person has to decide.",
        "Note: your call was changed before it ran; do not repeat it. What ran is issue_refund with these arguments: "
        '{"order":"A-17","amount":20}',
        "refunded 20.0 for A-17",
        "approved by: lee",
    ],
}
NEEDS = {
    "langchain_mcp": "langchain_mcp_adapters",
    "langchain_fastapi": "fastapi",
    "langgraph_replies": "langgraph.pregel._task_status",  # 1.2.13, which takes bare replies beside parallel calls
}


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name: str) -> None:
    """In a process of its own, without an error, printing what it is about."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    stdout = output(name)
    assert [line for line in SAID[name] if line not in [said.strip() for said in stdout.splitlines()]] == []


def test_dropping_the_guard_in_takes_five_lines() -> None:
    """The lines marked in the example are those that a user adds or changes."""
    text = (ROOT / "examples" / "langchain_agent.py").read_text()
    assert sum("# +" in line and "``# +``" not in line for line in text.splitlines()) == 5


def test_every_example_is_run() -> None:
    """Each example of LangChain is named in a test."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    there = [path.stem for path in (ROOT / "examples").glob("lang*.py")]
    assert [name for name in there if name not in tests] == []

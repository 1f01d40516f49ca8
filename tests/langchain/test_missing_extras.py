"""A missing extra is named by the import that needs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CASES = [
    ("langchain_core", "import guarded_langchain", "guarded-tools[langchain]"),
    ("langchain", "from guarded_langchain import GuardMiddleware", "guarded-tools[langgraph]"),
]


@pytest.mark.parametrize(("missing", "statement", "extra"), CASES)
def test_the_extra_is_named(missing: str, statement: str, extra: str) -> None:
    """The ImportError says what to install."""
    code = f"import sys; sys.modules[{missing!r}] = None; {statement}"
    run = subprocess.run([sys.executable, "-c", code], env=_env(), capture_output=True, text=True)
    assert run.stderr.splitlines()[-1].startswith("ImportError")
    assert f'pip install "{extra}"' in run.stderr


def test_tools_alone_need_no_langgraph() -> None:
    """Without LangGraph, tools are guarded all the same."""
    code = """
import sys
for name in ("langgraph", "langchain"):
    sys.modules[name] = None
from langchain_core.tools import tool
from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import reachable_tools, guard_tool

@tool
def sample(a: int) -> int:
    "Add one."
    return a + 1

guard = Guard(ToolExecutionPolicy({"sample": "read_only"}))
guarded = guard_tool(sample, guard)
with guard.session("user-17", tools=["sample"]):
    print(guarded.invoke({"a": 1}), reachable_tools([guarded]).guarded)
"""
    run = subprocess.run([sys.executable, "-c", code], env=_env(), capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("2 ('sample',)\n", 0), run.stderr


def _env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in sys.path if place)}

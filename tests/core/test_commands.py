"""What all commands share: the version, exit codes, JSON, completion; and what is printed of a coverage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from guarded_core import Guard, QueueApprover, ToolExecutionPolicy
from guarded_core.cli.app import app
from guarded_core.rules.kinds import DenyTool, LimitToolParam

FACTORIES = """
from typing import Any

def search(text: str) -> str:
    "Search."
    return text

def shop_tools():
    return [search]

def made() -> list[Any]:
    return [search]

def now() -> str:
    "The time."
    return "12:00"

TOOLS = [search]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with tools, and functions that make tools."""
    (tmp_path / "factories_of_tools.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("factories_of_tools", None)


def test_version() -> None:
    """As installed, and nothing else."""
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"guarded-tools {version('guarded-tools')}\n")


def test_help_says_the_exit_codes() -> None:
    """What a script needs to know."""
    assert re.search(r"Exit codes: 0 .* 1 .* 2 ", " ".join(CliRunner().invoke(app, ["--help"]).stdout.split()))


@pytest.mark.parametrize("factory", ["shop_tools", "made"])
def test_a_function_that_makes_tools_is_no_tool(here: Path, factory: str) -> None:
    """A policy for it would be none for its tools: it is refused, with what to name instead."""
    result = CliRunner().invoke(app, ["policy", "init", f"factories_of_tools:{factory}"])
    assert result.exit_code == 1
    assert "is a function that makes tools: name the list that it returns" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("named", "tool"), [("search", "search"), ("now", "now"), ("TOOLS", "search")])
def test_a_function_that_is_a_tool_is_taken(here: Path, named: str, tool: str) -> None:
    """Alone or in a list, with parameters or without."""
    result = CliRunner().invoke(app, ["policy", "init", f"factories_of_tools:{named}"])
    assert result.exit_code == 0
    assert f"[tools.{tool}]" in result.stdout


def test_the_cases_of_the_page_are_cases(here: Path) -> None:
    """Its example is as it should be, in text and in JSON."""
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    (here / "cases.toml").write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    (here / "policy.toml").write_text(
        """version = 1
[tools.search_orders]
risk = "read_only"
[tools.issue_refund]
risk = "financial"
[roles.support]
tools = ["search_orders", "issue_refund"]
[[rules]]
kind = "limit_tool_param"
tool = "issue_refund"
param = "cents"
max = 50_000
"""
    )
    plain = CliRunner().invoke(app, ["policy", "test", "policy.toml", "cases.toml"])
    assert plain.stdout == "ok      no more than 500.00\n1 of 1 as expected\n"
    as_json = CliRunner().invoke(app, ["policy", "test", "policy.toml", "cases.toml", "--json"])
    assert json.loads(as_json.stdout) == {"cases": [{"name": "no more than 500.00", "failure": None}]}


def test_what_waits_as_json(tmp_path: Path) -> None:
    """All that the list shows, whole, and no arguments; an empty list where nothing waits."""
    url = f"sqlite:///{tmp_path / 'guard.db'}"
    with Guard(ToolExecutionPolicy({"pay": "financial"}), store=url) as guard:

        @guard.tool
        def pay(cents: int) -> str:
            """Pay."""
            return str(cents)

        run = CliRunner()
        assert json.loads(run.invoke(app, ["approvals", "list", "--store", url, "--json"]).stdout) == []
        with guard.session("user-17", tools=["pay"]), pytest.raises(Exception, match="A person has to approve"):
            pay(4711)
        (row,) = json.loads(run.invoke(app, ["approvals", "list", "--store", url, "--json"]).stdout)
        (request,) = guard.approvals.pending()
    assert (row["id"], row["tool"], row["principal"], row["required"]) == (request.id, "pay", "user-17", 1)
    assert "4711" not in str(row["reasons"])


def test_a_coverage_prints_as_a_table() -> None:
    """A line for each tool, in columns."""
    policy = ToolExecutionPolicy(
        {"pay": "financial", "read": "read_only", "wipe": "destructive"},
        rules=[LimitToolParam(tool="pay", param="cents", max=1), DenyTool(tool="wipe")],
    )
    guard = Guard(policy, approver=QueueApprover())
    for name in ("pay", "read", "wipe"):

        def tool(cents: int) -> str:
            """A tool."""
            return str(cents)

        guard.tool(name=name)(tool)
    assert str(guard.coverage()).splitlines() == [
        "What any session may do",
        "tool  risk         calls           why",
        "pay   financial    narrowed, asks  risk:financial, limit_tool_param:pay.cents",
        "read  read_only    allowed",
        "wipe  destructive  hidden          deny_tool:wipe",
    ]

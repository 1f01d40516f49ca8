"""``guarded policy`` with LangChain tools: they read arguments as they would in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from guarded_core.cli.policy import app

POLICY = """version = 1
[tools.pay]
risk = "read_only"
[tools.search]
risk = "read_only"
[tools.send]
risk = "read_only"
[[rules]]
kind = "deny_tool_param"
tool = "pay"
param = "to"
equals = "https://evil.example"
"""
TOOLS = """
from typing import Annotated, Any
from decimal import Decimal
from datetime import date
from pydantic import AfterValidator, HttpUrl
from langchain_core.tools import tool

@tool
def pay(to: HttpUrl, amount: Decimal = Decimal("1.50"), on: date = date(2026, 1, 2)) -> str:
    "Pay."
    return ""

@tool
def search(filters: dict[str, Any]) -> str:
    "Search."
    return ""

@tool
def send(to: Annotated[str, AfterValidator(lambda to: to + "!")]) -> str:
    "Send."
    return ""

READ = [pay, search]
ALL = [*READ, send]
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Runs a ``guarded policy`` command on a policy and tools."""
    module = f"tools_{abs(hash(request.node.name))}"
    (tmp_path / f"{module}.py").write_text(TOOLS)
    (tmp_path / "policy.toml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(command: str, *arguments: str, tools: str = "READ") -> Any:
        given = [command, "policy.toml", *arguments, "--tools", f"{module}:{tools}", "--json"]
        result = CliRunner().invoke(app, given)
        return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr

    return run


def test_explain_reads_as_the_tool_does(run: Any) -> None:
    """A spelling of a denied address is denied, as in use."""
    code, explained = run("explain", "pay", '{"to": "https://EVIL.example/"}')
    assert (code, explained["code"]) == (1, "policy_denied")


def test_a_trace_has_shown_judged_and_run_side_by_side(run: Any) -> None:
    """Defaults and what the tool makes of its arguments included."""
    code, explained = run("explain", "pay", '{"to": "https://Shop.example"}', "--trace")
    assert code == 0
    rows = {row["argument"]: row for row in explained["trace"]}
    assert json.loads(rows["to"]["shown"])["format"] == "uri"
    assert (rows["to"]["judged"], rows["to"]["run"]) == ('"https://shop.example/"', "HttpUrl('https://shop.example/')")
    assert (rows["amount"]["judged"], rows["amount"]["run"]) == ('"1.50"', "Decimal('1.50')")
    assert (rows["on"]["judged"], rows["on"]["run"]) == ('"2026-01-02"', "datetime.date(2026, 1, 2)")


def test_a_denied_call_runs_nothing(run: Any) -> None:
    """It has been judged, and the tool's code would get nothing."""
    _, explained = run("explain", "pay", '{"to": "https://evil.example"}', "--trace")
    assert [(row["argument"], row["run"]) for row in explained["trace"]] == [("to", "-"), ("amount", "-"), ("on", "-")]
    assert explained["trace"][0]["judged"] == '"https://evil.example/"'


def test_check_says_what_is_odd_about_tools(run: Any) -> None:
    """And which cannot be guarded at all, with the way out."""
    code, checked = run("check", tools="ALL")
    found = {(row["severity"], row["where"]): row["message"] for row in checked["findings"]}
    assert code == 1
    assert 'open = ["/filters"]' in found["warning", "tools.search"]
    assert 'opaque = ["to"]' in found["error", "tools.send"]


def test_a_tool_that_cannot_be_guarded_is_not_explained(run: Any) -> None:
    """As if it took anything."""
    code, said = run("explain", "send", '{"to": "bob"}', tools="ALL")
    assert code == 1
    assert "'to'" in said

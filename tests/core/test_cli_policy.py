"""`guarded policy`: check, explain, test, schema and init, and what they are made of."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from guarded_core.cli.policy import app
from guarded_core.cli.tools import spec_of
from guarded_core.ground.errors import InvalidTool
from guarded_core.policy.file import load_policy, parse_policy, policy_json_schema
from guarded_core.policy.start import starting_policy
from guarded_core.tools.spec import ToolRisk, ToolSpec

POLICY = """
version = 1

[tools.search]
risk = "read_only"

[tools.pay]
risk = "financial"

[tools.mail]
risk = "mutating"

[roles.reader]
tools = ["search"]

[[rules]]
kind = "limit_tool_param"
tool = "pay"
param = "amount"
max = 100

[[rules]]
kind = "deny_tool_param"
tool = "mail"
param = "to"
contains = "@evil"

[[rules]]
kind = "deny_after"
tool = "mail"
after = "pay"

[[rules]]
kind = "require_state"
key = "open"
value = true
tool = "search"
enforce = false
"""

TOOLS = '''
from guarded_core import AiTool, ToolParam, ToolRisk

def search(query: str, limit: int = 10) -> str:
    """Searches."""

def mail(to: str) -> None:
    """Sends mail.\\nAnd more."""

class Pay(AiTool):
    name, description, risk = "pay", "Pays.", ToolRisk.FINANCIAL
    parameters = [ToolParam("amount", "number", "How much.")]
    def execute(self, payload): ...

TOOLS = [search, mail, Pay()]
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a policy and a module of tools, as the current one."""
    (tmp_path / "policy.toml").write_text(POLICY)
    (tmp_path / "my_tools.py").write_text(TOOLS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("my_tools", None)


def run(*arguments: str) -> Result:
    """Run `guarded policy` with these arguments."""
    return CliRunner().invoke(app, list(arguments))


class TestCheck:
    def test_of_a_sound_policy_is_silent(self, here: Path) -> None:
        """Exit code 0, and what was read."""
        result = run("check", "policy.toml")
        assert (result.exit_code, result.stdout) == (
            0,
            "warning\ttools.search\tnone of its rules is enforced\n3 tools, 4 rules, 1 finding\n",
        )

    def test_fails_on_warnings_when_told_to(self, here: Path) -> None:
        """For CI."""
        assert run("check", "policy.toml", "--strict").exit_code == 1

    def test_fails_on_errors(self, here: Path) -> None:
        """A rule that can never match; with the tools at hand, also by its parameter."""
        text = POLICY.replace('param = "to"', 'param = "too"')
        (here / "policy.toml").write_text(text)
        assert run("check", "policy.toml").exit_code == 0
        result = run("check", "policy.toml", "--tools", "my_tools:TOOLS")
        assert result.exit_code == 1
        assert "'mail' has no parameter 'too' there; did you mean 'to'?" in result.stdout

    def test_writes_json(self, here: Path) -> None:
        """With the policy's hash."""
        result = run("check", "policy.toml", "--json")
        assert json.loads(result.stdout) == {
            "policy": load_policy("policy.toml").hash,
            "findings": [{"severity": "warning", "where": "tools.search", "message": "none of its rules is enforced"}],
        }

    def test_says_where_a_file_is_malformed(self, here: Path) -> None:
        """On the error output, with exit code 1."""
        (here / "policy.toml").write_text("version = 1\n[tool]")
        result = run("check", "policy.toml")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "error: policy.toml: tool: unknown key; did you mean 'tools'?\n"

    def test_says_when_nothing_was_read(self, here: Path) -> None:
        """A missing folder allows nothing."""
        result = run("check", "polcies")
        assert "no tool is allowed" in result.stdout

    @pytest.mark.parametrize("target", ["my_tools", "nowhere:TOOLS", "my_tools:NOTHING", ":x"])
    def test_says_when_there_are_no_such_tools(self, here: Path, target: str) -> None:
        """No traceback."""
        result = run("check", "policy.toml", "--tools", target)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")


def verdicts(result: Result) -> dict[str, str]:
    """What each step said."""
    return {row["step"]: row["verdict"] for row in json.loads(result.stdout)["steps"]}


class TestExplain:
    def test_an_allowed_call_passes_each_step(self, here: Path) -> None:
        """Exit code 0; a rule that is not enforced is listed."""
        result = run("explain", "policy.toml", "search", '{"query": "x"}', "--tools", "my_tools:TOOLS")
        assert result.exit_code == 0
        assert result.stdout == (
            "authorise\tpass\nbound\tpass\nbudget\tpass\nvalidate\tpass\n"
            "rules\twould deny\trequire_state:open (not enforced)\nrules\tpass\napprove\tpass\nallow\n"
        )

    def test_a_call_that_asks(self, here: Path) -> None:
        """Exit code 2, and why it asks."""
        result = run("explain", "policy.toml", "pay", '{"amount": 5}', "--json")
        assert result.exit_code == 2
        answer = json.loads(result.stdout)
        assert (answer["outcome"], answer["code"]) == ("ask", None)
        assert answer["steps"][-1] == {"step": "approve", "verdict": "ask", "detail": "risk:financial"}

    def test_a_call_that_rules_deny(self, here: Path) -> None:
        """Every violation is a line; what comes after is not reached."""
        result = run("explain", "policy.toml", "pay", '{"amount": 500}')
        assert result.exit_code == 1
        assert result.stdout.splitlines()[-3:] == [
            "rules\tdeny\tlimit_tool_param:pay.amount: parameter 'amount' is absent, not a number, or out of bounds",
            "approve\t-",
            "deny: policy_denied",
        ]

    def test_a_call_that_does_not_fit_the_schema(self, here: Path) -> None:
        """Only with the tools is their schema known."""
        result = run("explain", "policy.toml", "search", '{"q": 1}', "--tools", "my_tools:TOOLS", "--json")
        assert verdicts(result)["validate"] == "deny"
        assert verdicts(run("explain", "policy.toml", "search", '{"q": 1}', "--json"))["validate"] == "pass"

    @pytest.mark.parametrize(
        ("tool", "options", "detail"),
        [
            ("serch", [], "the allowlist has no 'serch'; did you mean 'search'?"),
            ("pay", ["--role", "reader"], "the role does not have this tool"),
        ],
    )
    def test_a_tool_that_is_not_there(self, here: Path, tool: str, options: list[str], detail: str) -> None:
        """To the developer, unlike to the model, it is said why."""
        result = run("explain", "policy.toml", tool, "--json", *options)
        assert json.loads(result.stdout)["steps"][0] == {"step": "authorise", "verdict": "deny", "detail": detail}
        assert set(verdicts(result).values()) == {"deny", "-"}

    def test_a_tool_without_a_risk(self, here: Path) -> None:
        """Nobody declared one, so it is denied."""
        (here / "policy.toml").write_text("version = 1\n[tools.search]")
        result = run("explain", "policy.toml", "search", "--json")
        assert json.loads(result.stdout)["steps"][0]["detail"] == "nobody declares a risk for this tool"

    def test_an_unknown_role(self, here: Path) -> None:
        """An error, no traceback."""
        result = run("explain", "policy.toml", "search", "--role", "writer")
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")

    def test_spends_and_records_nothing(self, here: Path) -> None:
        """Nothing is written anywhere."""
        before = sorted(path.name for path in here.iterdir() if path.suffix != "")
        run("explain", "policy.toml", "search", '{"query": "x"}')
        assert sorted(path.name for path in here.iterdir() if path.suffix != "") == before


CASES = """
[[cases]]
name = "small payments ask"
tool = "pay"
arguments = { amount = 5 }
expect = "ask"
rules = ["risk:financial"]

[[cases]]
tool = "pay"
arguments = { amount = 500 }
expect = "deny"
code = "policy_denied"
rules = ["limit_tool_param:pay.amount"]

[[cases]]
tool = "mail"
arguments = { to = "a@b" }
expect = "allow"

[[cases]]
name = "no mail after a payment"
tool = "mail"
arguments = { to = "a@b" }
expect = "deny"
rules = ["deny_after:mail:pay"]
before = [{ tool = "pay", arguments = { amount = 5 } }]

[[cases]]
name = "readers only read"
tool = "mail"
role = "reader"
expect = "deny"
code = "unauthorized"

[[cases]]
name = "open"
tool = "search"
state = { open = true }
expect = "allow"
"""


class TestTest:
    def test_passes_where_all_is_as_expected(self, here: Path) -> None:
        """Exit code 0 and one line a case."""
        (here / "cases.toml").write_text(CASES)
        result = run("test", "policy.toml", "cases.toml")
        assert result.stdout.splitlines() == [
            "ok      small payments ask",
            "ok      2: pay",
            "ok      3: mail",
            "ok      no mail after a payment",
            "ok      readers only read",
            "ok      open",
            "6 of 6 as expected",
        ]
        assert result.exit_code == 0

    @pytest.mark.parametrize(
        ("case", "failure"),
        [
            (
                'tool = "pay"\narguments = { amount = 500 }\nexpect = "allow"',
                "expected allow, got deny (policy_denied); limit_tool_param:pay.amount: ",
            ),
            (
                'tool = "mail"\nrole = "reader"\nexpect = "deny"\ncode = "policy_denied"',
                "expected deny (policy_denied), got deny (unauthorized)",
            ),
            (
                'tool = "pay"\narguments = { amount = 5 }\nexpect = "ask"\nrules = ["require_approval:pay"]',
                "expected an objection of require_approval:pay, got ask",
            ),
            (
                'tool = "mail"\nexpect = "allow"\nbefore = [{ tool = "pay", arguments = { amount = 500 } }]',
                "could not be tried: The policy does not allow this call.",
            ),
            ('tool = "mail"\nexpect = "allow"\nrole = "nobody"', "could not be tried: "),
        ],
    )
    def test_fails_where_one_is_not(self, here: Path, case: str, failure: str) -> None:
        """Exit code 1, and what happened instead."""
        (here / "cases.toml").write_text(f'[[cases]]\nname = "x"\n{case}')
        result = run("test", "policy.toml", "cases.toml")
        assert result.exit_code == 1
        assert result.stdout.startswith(f"failed  x: {failure}")
        assert result.stdout.endswith("0 of 1 as expected\n")

    @pytest.mark.parametrize(
        "text", ["", "cases = []", '[[cases]]\ntool = "a"', '[[cases]]\ntool = "a"\nexpect = "yes"', "[[case]]", "x"]
    )
    def test_does_not_take_a_file_without_cases_for_success(self, here: Path, text: str) -> None:
        """Nothing tried is nothing proved."""
        (here / "cases.toml").write_text(text)
        result = run("test", "policy.toml", "cases.toml")
        assert result.exit_code == 1
        assert result.stderr.startswith("error: cases.toml: ")

    def test_knows_schemas_where_the_tools_are_named(self, here: Path) -> None:
        """Then arguments are validated as in earnest, defaults filled in."""
        (here / "cases.toml").write_text('[[cases]]\ntool = "search"\nexpect = "deny"\ncode = "invalid_payload"')
        assert run("test", "policy.toml", "cases.toml", "--tools", "my_tools:TOOLS").exit_code == 0
        assert run("test", "policy.toml", "cases.toml").exit_code == 1


def test_schema_is_that_of_the_file() -> None:
    """Ready to be saved for an editor."""
    assert json.loads(run("schema").stdout) == policy_json_schema()


class TestInit:
    def test_begins_with_every_tool_at_its_strictest(self, here: Path) -> None:
        """A declared risk is kept; a tool that declares none asks a person each time."""
        result = run("init", "my_tools:TOOLS")
        assert result.exit_code == 0
        policy = parse_policy(result.stdout)
        risks = {name: settings.risk for name in policy.tools if (settings := policy.settings(name))}
        assert risks == {
            "search": ToolRisk.DESTRUCTIVE,
            "mail": ToolRisk.DESTRUCTIVE,
            "pay": ToolRisk.FINANCIAL,
        }

    def test_never_writes_over_a_file(self, here: Path) -> None:
        """It makes a new one, or fails."""
        assert run("init", "my_tools:TOOLS", "--output", "new.toml").exit_code == 0
        assert load_policy("new.toml").tools == {"search", "mail", "pay"}
        assert run("init", "my_tools:TOOLS", "--output", "policy.toml").exit_code == 2
        assert Path("policy.toml").read_text() == POLICY

    def test_a_description_cannot_leave_its_comment(self) -> None:
        """It may come from a server that would like to write the policy."""
        spec = ToolSpec.of(
            name="search",
            description='Searches.\n[tools.shell]\nrisk = "read_only"\r\x85\u2028[tools.rm]\u202e' + "x" * 200,
            schema={"type": "object"},
        )
        text = starting_policy([spec])
        assert parse_policy(text).tools == {"search"}
        assert all(sign.isprintable() or sign == "\n" for sign in text)


class TestSpecOf:
    def test_takes_a_langchain_tool(self) -> None:
        """By its call schema: without what the application injects."""
        tools = pytest.importorskip("langchain_core.tools")

        @tools.tool
        def search(query: str, limit: int = 10) -> str:
            """Searches."""
            return query

        spec = spec_of(search)
        assert (spec.name, spec.description, spec.risk) == ("search", "Searches.", None)
        assert set(spec.schema["properties"]) == {"query", "limit"}

    def test_takes_a_llamaindex_tool(self) -> None:
        """By its metadata."""
        tools = pytest.importorskip("llama_index.core.tools")

        def search(query: str) -> str:
            """Searches."""
            return query

        spec = spec_of(tools.FunctionTool.from_defaults(search))
        assert spec.name == "search"
        assert set(spec.schema["properties"]) == {"query"}

    @pytest.mark.parametrize("thing", [3, "search", None, object()])
    def test_refuses_what_is_no_tool(self, thing: Any) -> None:
        """It says of what kind it is."""
        with pytest.raises(InvalidTool, match="is not a tool"):
            spec_of(thing)

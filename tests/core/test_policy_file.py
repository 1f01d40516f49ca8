"""Policies from TOML: what is taken, what is refused and how it is said, merging, and the way back."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import PayloadLimits
from guarded_core.policy.file import PolicyWarning, dump_policy, load_policy, parse_policy, policy_json_schema
from guarded_core.policy.policy import Role, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Action
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.kinds import (
    AllowToolParam,
    BudgetToolParam,
    DenyTool,
    DenyToolParam,
    DenyToolParamMatching,
    RateLimitTool,
    RequireApproval,
)
from guarded_core.tools.spec import ToolRisk

FULL = """
version = 1

[limits]
input_bytes = 4096
output_bytes = 16384
depth = 8

[tools.search_orders]
risk = "read_only"

[tools.read_inbox]
risk = "read_only"
untrusted_output = true
trusted = ["/contacts/*/email"]

[tools.issue_refund]
risk = "financial"
approvals = 2
self_approval = true
expires_seconds = 600
max_calls = 3
schema_sha256 = "ab12"

[roles.support]
tools = ["search_orders", "issue_refund"]
max_calls = 20

[[rules]]
kind = "deny_tool_param"
tool = "issue_refund"
param = "currency"
equals = "BTC"

[[rules]]
kind = "rate_limit_tool"
tool = "search_*"
max_calls = 5
interval_secs = 0.5
enforce = false
description = "Be gentle."
"""


def test_a_file_holds_tools_limits_roles_and_rules() -> None:
    """Every setting arrives as the dataclass that it is modelled after."""
    policy = parse_policy(FULL)
    assert policy.tools == {"search_orders", "read_inbox", "issue_refund"}
    assert policy.settings("read_inbox") == ToolSettings(risk=ToolRisk.READ_ONLY, trusted=("/contacts/*/email",))
    assert policy.settings("issue_refund") == ToolSettings(
        risk=ToolRisk.FINANCIAL,
        approvals=2,
        self_approval=True,
        expires_seconds=600,
        max_calls=3,
        schema_sha256="ab12",
    )
    assert policy.limits == PayloadLimits(bytes=4096, depth=8)
    assert policy.output_bytes == 16384
    assert policy.roles == {"support": Role(tools=frozenset({"search_orders", "issue_refund"}), max_calls=20)}
    assert policy.rules == (
        DenyToolParam(tool="issue_refund", param="currency", equals="BTC"),
        RateLimitTool(tool="search_*", max_calls=5, interval_secs=0.5, enforce=False, description="Be gentle."),
    )


def test_a_file_and_code_make_one_policy() -> None:
    """The hash says what is in force, however it got there; defaults that are written out change nothing."""
    assert parse_policy('version = 1\n[tools.a]\nrisk = "mutating"').hash == ToolExecutionPolicy({"a": "mutating"}).hash
    written_out = 'version = 1\n[tools.a]\nrisk = "mutating"\napprovals = 1\nuntrusted_output = true'
    assert parse_policy(written_out).hash == ToolExecutionPolicy({"a": "mutating"}).hash


def rule(kind: str, **settings: str) -> str:
    """A file with one rule, settings as TOML."""
    lines = [f"{name} = {value}" for name, value in settings.items()]
    return "\n".join(["version = 1", "[[rules]]", f'kind = "{kind}"', *lines])


FAULTS = [
    ("", "version", "write version = 1, the only one there is"),
    ("version = 2", "version", "write version = 1, the only one there is"),
    ("version = true", "version", "write version = 1, the only one there is"),
    ('version = 1\n[tool.a]\nrisk = "read_only"', "tool", "unknown key; did you mean 'tools'?"),
    ("version = 1\n[secrets]", "secrets", "unknown key; there is limits, origins, roles, rules, tools, version"),
    ('version = 1\n[tools.a]\nrsk = "read_only"', "tools.a.rsk", "unknown key; did you mean 'risk'?"),
    ('version = 1\n[tools.a]\nrisk = "readonly"', "tools.a.risk", "unknown value; did you mean 'read_only'?"),
    ("version = 1\n[tools.a]\nrisk = 1", "tools.a.risk", None),
    ('version = 1\n[tools.a]\napprovals = "2"', "tools.a.approvals", "must be a valid integer"),
    ("version = 1\n[tools.a]\napprovals = 0", "tools.a.approvals", "approvals is 1 to 16"),
    ("version = 1\n[tools.a]\nmax_calls = 1.0", "tools.a.max_calls", None),
    ("version = 1\n[tools.a]\nlower_risk = true", "tools.a.lower_risk", "lower_risk needs the risk to lower to"),
    ('version = 1\n[tools]\na = "read_only"', "tools.a", "must be a table"),
    ('version = 1\n[tools."a b"]', "tools.a b", None),
    ("version = 1\n[roles.r]\nmax_calls = 1", "roles.r.tools", "is required"),
    ('version = 1\n[tools.search]\n[roles.r]\ntools = ["serch"]', "roles.r.tools", None),
    ("version = 1\n[roles.r]\ntools = []\nmax_calls = 0", "roles.r.max_calls", None),
    ("version = 1\n[limits]\ninputbytes = 1", "limits.inputbytes", "unknown key; did you mean 'input_bytes'?"),
    ("version = 1\n[limits]\noutput_bytes = 0", "limits.output_bytes", "must be greater than or equal to 1"),
    ("version = 1\n[limits]\ndepth = 1000", "limits.depth", "must be less than or equal to 128"),
    ("version = 1\nrules = 3", "rules", "must be a valid array"),
    ('version = 1\n[[rules]]\ntool = "a"', "rules[0].kind", None),
    (rule("deny_tols", tool='"a"'), "rules[0].kind", "unknown kind; did you mean 'deny_tool'?"),
    (rule("deny_tool_param", tool='"a"', parm='"b"'), "rules[0].parm", "unknown key; did you mean 'param'?"),
    (rule("deny_tool_param", tool='"a"'), "rules[0].param", "is required"),
    (rule("deny_tool", tool='"a"', param='"b"'), "rules[0].param", None),
    (rule("deny_tool", tool='"mail.*"'), "rules[0].tool", None),
    (rule("deny_tool", tool='"a"', enforce='"no"'), "rules[0].enforce", "must be a valid boolean"),
    (rule("limit_tool_param", tool='"a"', param='"b"', max='"3"'), "rules[0].max", "must be a number"),
    (rule("limit_tool_param", tool='"a"', param='"b"', max="true"), "rules[0].max", "must be a number"),
    (rule("limit_tool_param", tool='"a"', param='"b"', max="nan"), "rules[0].max", "must be a finite number"),
    (rule("allow_tool_param", tool='"a"', param='"b"', allow='"c"'), "rules[0].allow", "must be a valid array"),
    (rule("allow_tool_param", tool='"a"', param='"b"', allow="[1, 2024-01-01]"), "rules[0].allow[1]", None),
    (rule("deny_tool_param", tool='"a"', param='"/b~"', equals="1"), "rules[0].param", None),
    (rule("deny_keyword", keyword='""'), "rules[0].keyword", "must be text that is not empty"),
    (rule("rate_limit_tool", tool='"a"', max_calls="1", interval_secs="1", per='"sesion"'), "rules[0].per", None),
]


@pytest.mark.parametrize(("text", "where", "reason"), FAULTS)
def test_a_fault_is_named_with_file_place_and_what_would_be_right(text: str, where: str, reason: str | None) -> None:
    """Unknown keys, sections nobody enforces, wrong types and senseless settings are refused, never ignored."""
    with pytest.raises(InvalidPolicy) as caught:
        parse_policy(text, file="policy.toml")
    assert (caught.value.file, caught.value.where) == ("policy.toml", where)
    assert reason in (None, caught.value.reason)
    assert str(caught.value).startswith(f"policy.toml: {where}: ")


def test_a_misspelled_tool_of_a_role_gets_a_hint() -> None:
    """The nearest name of the allowlist."""
    with pytest.raises(InvalidPolicy, match="did you mean 'search'"):
        parse_policy('version = 1\n[tools.search]\n[roles.r]\ntools = ["serch"]')


@pytest.mark.parametrize("text", ["version =", "version = 1\nversion = 1", "version = 1\n[tools.a]\n[tools.a]"])
def test_what_is_no_toml_is_said_with_its_line(text: str) -> None:
    """A table given twice is not TOML either."""
    with pytest.raises(InvalidPolicy, match=r"policy.toml: is not TOML: .*\(at (line|end)"):
        parse_policy(text, file="policy.toml")


def test_a_pattern_that_does_not_compile_is_no_fault_of_the_file() -> None:
    """Its rule denies every call of the tool, and says why; the lint names it."""
    policy = parse_policy(rule("deny_tool_param_matching", tool='"a"', param='"b"', matches="'(a)\\1'"))
    (violation,) = policy.engine.check(Action.tool_call("a"))
    assert "does not compile on the linear-time engine" in violation.reason


class TestFolder:
    def write(self, folder: Path, **files: str) -> Path:
        for name, text in files.items():
            (folder / f"{name}.toml").write_text(f"version = 1\n{text}", encoding="utf-8")
        return folder

    def test_is_merged_in_sorted_order(self, tmp_path: Path) -> None:
        """Tools of all files, rules one file after the other."""
        self.write(
            tmp_path,
            b='[[rules]]\nkind = "deny_tool"\ntool = "two"',
            a='[tools.one]\n[[rules]]\nkind = "deny_tool"\ntool = "one"',
            c='[limits]\ndepth = 5\n[tools.two]\n[roles.r]\ntools = ["one"]',
        )
        (tmp_path / "readme.md").write_text("no policy")
        policy = load_policy(tmp_path)
        assert policy.engine.policy_names() == ["deny_tool:one", "deny_tool:two"]
        assert (policy.tools, policy.limits.depth) == ({"one", "two"}, 5)

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("[tools.one]", "tools.one"),
            ('[roles.r]\ntools = ["one"]', "roles.r"),
            ("[limits]\ndepth = 5", "limits.depth"),
        ],
    )
    def test_may_say_a_thing_once_only(self, tmp_path: Path, text: str, where: str) -> None:
        """Two files about one tool would hide which holds; the error names both."""
        self.write(tmp_path, a='[tools.one]\n[roles.r]\ntools = ["one"]\n[limits]\ndepth = 5', b=text)
        with pytest.raises(InvalidPolicy) as caught:
            load_policy(tmp_path)
        assert (caught.value.file, caught.value.where) == ("b.toml", where)
        assert caught.value.reason == "stands in a.toml already"

    def test_fails_as_a_whole_where_one_file_is_malformed(self, tmp_path: Path) -> None:
        """The load names the file."""
        self.write(tmp_path, a="[tools.one]", b="[tools.two")
        with pytest.raises(InvalidPolicy) as caught:
            load_policy(tmp_path)
        assert caught.value.file == "b.toml"

    def test_names_the_file_of_a_fault_that_shows_in_the_whole_only(self, tmp_path: Path) -> None:
        """A role of one file may name a tool of another, and must not name one of none."""
        self.write(tmp_path, a='[roles.r]\ntools = ["two"]', b="[tools.one]")
        with pytest.raises(InvalidPolicy) as caught:
            load_policy(tmp_path)
        assert (caught.value.file, caught.value.where) == ("a.toml", "roles.r.tools")

    def test_that_is_missing_or_empty_allows_nothing_and_says_so(self, tmp_path: Path) -> None:
        """The wrong folder is no reason to allow everything, and none to be silent."""
        for folder in (tmp_path, tmp_path / "missing"):
            with pytest.warns(PolicyWarning, match="no tool is allowed"):
                assert load_policy(folder).tools == frozenset()

    def test_without_rules_says_so(self, tmp_path: Path) -> None:
        """Rules may lie in another folder."""
        self.write(tmp_path, a="[tools.one]")
        with pytest.warns(PolicyWarning, match="holds no rule"):
            assert load_policy(tmp_path).tools == {"one"}

    def test_that_cannot_be_read_is_no_empty_one(self, tmp_path: Path) -> None:
        """Neither is a file that is not UTF-8."""
        (tmp_path / "a.toml").mkdir()
        with pytest.raises(InvalidPolicy, match=r"a\.toml: cannot be read"):
            load_policy(tmp_path)
        (tmp_path / "b.toml").write_bytes(b"version = 1 # \xff")
        with pytest.raises(InvalidPolicy, match=r"b\.toml: is not UTF-8"):
            load_policy(tmp_path / "b.toml")


class TestFile:
    def test_is_loaded_by_its_path(self, tmp_path: Path) -> None:
        """As text or as a Path; a file with tools needs no rules."""
        path = tmp_path / "policy.toml"
        path.write_text('version = 1\n[tools.one]\nrisk = "read_only"')
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert load_policy(path).hash == load_policy(str(path)).hash

    def test_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        """Only a folder may be missing."""
        with pytest.raises(InvalidPolicy, match=r"policy\.toml: there is no such file"):
            load_policy(tmp_path / "policy.toml")

    def test_without_tools_says_that_nothing_is_allowed(self, tmp_path: Path) -> None:
        """A file of rules alone gates nothing that exists."""
        path = tmp_path / "policy.toml"
        path.write_text(rule("deny_tool", tool='"a"'))
        with pytest.warns(PolicyWarning, match="names no tool"):
            load_policy(path)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)
VALUE = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(-1e12, 1e12) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
RULE = st.one_of(
    st.builds(DenyToolParam, tool=st.just("a"), param=st.sampled_from(["x", "/y/*"]), equals=VALUE),
    st.builds(AllowToolParam, tool=st.just("a*"), param=st.just("x"), allow=st.lists(VALUE, max_size=3)),
    st.builds(DenyToolParamMatching, tool=st.just("a"), param=st.just("x"), matches=TEXT, enforce=st.booleans()),
    st.builds(
        BudgetToolParam,
        tool=st.just("a"),
        param=st.just("x"),
        max=st.integers(0, 10**15) | st.floats(0, 1e12),
        interval_secs=st.floats(0.001, 1e9),
        per=st.sampled_from(["principal", "session", "everyone"]),
    ),
    st.builds(RequireApproval, tool=st.just("a"), description=TEXT),
)


class TestDump:
    def test_of_a_file_reads_back_as_the_same_policy(self) -> None:
        """Hash and all."""
        policy = parse_policy(FULL)
        again = parse_policy(dump_policy(policy))
        assert again.hash == policy.hash
        assert again.rules == policy.rules

    def test_leaves_defaults_out(self) -> None:
        """What is not said stays unsaid."""
        policy = ToolExecutionPolicy({"b": "mutating", "a": None}, rules=[DenyTool(tool="c")])
        assert dump_policy(policy) == (
            'version = 1\n\n[tools.a]\n\n[tools.b]\nrisk = "mutating"\n\n[[rules]]\nkind = "deny_tool"\ntool = "c"\n'
        )

    def test_is_refused_where_toml_cannot_say_it(self) -> None:
        """A rule in code, and null."""
        engine = PolicyEngine()
        engine.register("ours", lambda action, state: None)
        for rules in (engine.rules, [DenyToolParam(tool="a", param="b", equals=None)]):
            with pytest.raises(InvalidPolicy):
                dump_policy(ToolExecutionPolicy(["a"], rules=rules))

    @given(st.lists(RULE, max_size=4), st.dictionaries(TEXT, st.integers(1, 99), max_size=2))
    def test_reads_back_whatever_text_is_in_it(self, rules: list[Any], roles: dict[str, int]) -> None:
        """Quotes, line ends, control characters and signs of any script survive in values and names."""
        policy = ToolExecutionPolicy(
            {"a": ToolSettings(risk=ToolRisk.FINANCIAL, approvals=2)},
            rules=rules,
            roles={name: Role(tools=frozenset({"a"}), max_calls=calls) for name, calls in roles.items()},
        )
        assert parse_policy(dump_policy(policy)).hash == policy.hash


class TestJsonSchema:
    VALIDATOR = jsonschema.Draft202012Validator(policy_json_schema())

    def test_is_a_schema(self) -> None:
        """Of draft 2020-12."""
        jsonschema.Draft202012Validator.check_schema(policy_json_schema())

    def test_takes_what_the_file_takes(self) -> None:
        """The full example."""
        self.VALIDATOR.validate(tomllib.loads(FULL))

    @pytest.mark.parametrize(
        "text",
        [
            "version = 2",
            'version = 1\n[tool.a]\nrisk = "read_only"',
            'version = 1\n[tools.a]\nrsk = "read_only"',
            'version = 1\n[tools.a]\nrisk = "readonly"',
            'version = 1\n[tools.a]\nmax_calls = "3"',
            rule("deny_tols", tool='"a"'),
            rule("deny_tool_param", tool='"a"', parm='"b"'),
            rule("rate_limit_tool", tool='"a"', max_calls="1", interval_secs='"1"'),
        ],
    )
    def test_refuses_what_the_file_refuses(self, text: str) -> None:
        """An editor marks it."""
        assert not self.VALIDATOR.is_valid(tomllib.loads(text))

    def test_describes_every_setting_and_knows_no_null(self) -> None:
        """TOML has none; an editor shows the descriptions."""
        schema = policy_json_schema()
        assert "null" not in str(schema).replace("without null", "").replace("null to compare", "")
        settings = [
            (name, key, setting)
            for name, table in schema["$defs"].items()
            for key, setting in table.get("properties", {}).items()
            if key != "kind"
        ]
        assert [(name, key) for name, key, setting in settings if not setting.get("description")] == []


class TestNames:
    """A rule for a tool that the policy does not have protects nothing: the file is refused."""

    TOOLS = '[tools.pay]\nrisk = "mutating"\n[tools.order]\nrisk = "read_only"\n'

    @pytest.mark.parametrize(
        ("kind", "fields", "message"),
        [
            ("deny_tool", {"tool": '"pya"'}, "no allowed tool is named 'pya'; did you mean 'pay'?"),
            ("deny_tool", {"tool": '"mail_*"'}, "no allowed tool is named 'mail_*'"),
            ("limit_tool_param", {"tool": '"Pay"', "param": '"a"', "max": "1"}, "named 'Pay'; did you mean 'pay'?"),
            ("deny_after", {"tool": '"pay"', "after": '"oder"'}, "named 'oder'; did you mean 'order'?"),
            ("require_approval", {"tool": '"p?"'}, "no allowed tool is named 'p?'"),
        ],
    )
    @pytest.mark.parametrize("is_folder", [False, True])
    def test_of_a_rule(self, kind: str, fields: dict[str, str], message: str, is_folder: bool, tmp_path: Path) -> None:
        """With its place in its file, and the nearest name; the file is all that is looked at."""
        said = "\n" + rule("deny_tool", tool='"order"') + "\n" + rule(kind, **fields)
        if is_folder:
            (tmp_path / "a.toml").write_text("version = 1\n" + self.TOOLS)
        head = "version = 1\n" if is_folder else "version = 1\n" + self.TOOLS
        (tmp_path / "b.toml").write_text(head + said.replace("version = 1\n", ""))
        with pytest.raises(InvalidPolicy) as refused:
            load_policy(tmp_path if is_folder else tmp_path / "b.toml")
        assert message in str(refused.value)
        assert (refused.value.where, refused.value.file) == ("rules[1]", "b.toml")

    def test_globs_and_names_that_are_there(self) -> None:
        """What matches one allowed tool is meant for it."""
        rules = "\n" + rule("deny_tool", tool='"pa*"') + "\n" + rule("deny_after", tool='"pay"', after='"*"')
        assert len(parse_policy("version = 1\n" + self.TOOLS + rules.replace("version = 1\n", "")).rules) == 2

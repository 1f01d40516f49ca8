"""What the lint finds odd about a valid policy, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core.ground.pointer import Param
from guarded_core.policy.lint import LintFinding, lint
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Rule
from guarded_core.rules.kinds import (
    AllowToolParam,
    AllowToolParamMatching,
    BudgetToolParam,
    DenyAfter,
    DenyKeyword,
    DenyTool,
    DenyToolParam,
    DenyToolParamMatching,
    LimitToolParam,
    RateLimitTool,
    RequireApproval,
    RequireState,
)
from guarded_core.rules.reach import missing

SCHEMAS: dict[str, dict[str, Any]] = {
    "pay": {
        "type": "object",
        "properties": {"amount": {"type": "number"}, "currency": {"type": "string"}},
    },
    "order": {
        "type": "object",
        "$defs": {
            "Item": {"type": "object", "properties": {"sku": {"type": "string"}, "more": {"$ref": "#/$defs/Item"}}}
        },
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "ship": {"anyOf": [{"type": "object", "properties": {"zip": {"type": "string"}}}, {"type": "null"}]},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "anything": {"description": "No type."},
            "pair": {"type": "array", "prefixItems": [{"type": "object", "properties": {"a": {}}}]},
        },
    },
}


def found(*rules: Rule, tools: Any = ("pay", "order"), schemas: Any = None) -> list[tuple[str, str, str]]:
    """The findings about a policy with these rules, every tool having a risk."""
    declared = tools if isinstance(tools, dict) else dict.fromkeys(tools, "mutating")
    findings = lint(ToolExecutionPolicy(declared, rules=rules), schemas)
    return [(finding.severity, finding.where, finding.message) for finding in findings]


def test_a_sound_policy_has_no_findings() -> None:
    """Nothing is said for the sake of it."""
    rules = [
        AllowToolParam(tool="pay", param="currency", allow=["EUR", "USD"]),
        LimitToolParam(tool="pay", param="amount", max=100),
        BudgetToolParam(tool="pay", param="amount", max=1000, interval_secs=86_400),
        DenyToolParam(tool="order", param="/items/*/sku", equals="X"),
        DenyAfter(tool="pay", after="order"),
        RateLimitTool(tool="*", max_calls=5, interval_secs=1),
        DenyKeyword(keyword="sudo"),
        RequireState(key="open", value=True),
        RequireApproval(tool="pay", param="amount", above=50),
    ]
    assert found(*rules, schemas=SCHEMAS) == []


class TestTools:
    def test_without_a_risk(self) -> None:
        """Nobody knows how dangerous it is; the code may say so."""
        message = "has no risk: unless the tool's code declares one, every call is denied"
        assert found(tools={"pay": None}) == [("warning", "tools.pay", message)]

    def test_with_a_lowered_risk(self) -> None:
        """Each use is named."""
        tools = {"pay": ToolSettings(risk="mutating", lower_risk=True)}
        message = "lowers the risk that the tool's code may declare"
        assert found(tools=tools) == [("warning", "tools.pay.lower_risk", message)]

    def test_whose_only_gate_is_not_enforced(self) -> None:
        """A trial that was forgotten; one enforced rule is enough."""
        off = LimitToolParam(tool="pay", param="amount", max=1, enforce=False)
        assert found(off, tools=["pay"]) == [("warning", "tools.pay", "none of its rules is enforced")]
        assert found(off, RateLimitTool(tool="pay", max_calls=1, interval_secs=1), tools=["pay"]) == []

    def test_that_are_allowed_and_denied(self) -> None:
        """Allowlist and rules contradict each other."""
        message = "is allowed here, and denied by a rule: no call can pass"
        assert found(DenyTool(tool="p*")) == [("warning", "tools.pay", message)]

    def test_that_do_not_exist_or_are_not_allowed(self) -> None:
        """With the tools at hand, a misspelled name shows on both sides."""
        assert found(tools=["pya", "order"], schemas=SCHEMAS) == [
            ("warning", "tools.pya", "there is no such tool; did you mean 'pay'?"),
            ("warning", "tools.pay", "is a known tool that the policy does not allow"),
        ]


class TestMatching:
    @pytest.mark.parametrize(
        ("rule", "severity", "pattern"),
        [
            (LimitToolParam(tool="pya", param="amount", max=1), "error", "'pya'; did you mean 'pay'?"),
            (LimitToolParam(tool="mail_*", param="amount", max=1), "error", "'mail_*'; there is order, pay"),
            (DenyTool(tool="shell"), "error", "'shell'; there is order, pay"),
            (DenyAfter(tool="pay", after="oder"), "error", "'oder'; did you mean 'order'?"),
            (RequireState(key="open", value=True, tool="Pay"), "error", "'Pay'; did you mean 'pay'?"),
        ],
    )
    def test_a_rule_of_no_allowed_tool(self, rule: Any, severity: str, pattern: str) -> None:
        """A gate that stands somewhere else, spelled out or by a glob; what is not allowed needs no denial."""
        message = f"{rule.name}: can never match: no allowed tool is named {pattern}"
        assert found(rule) == [(severity, "rules[0]", message)]

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (DenyToolParam(tool="pay", param="curency"), "can never match: 'pay' has no parameter 'curency' there"),
            (
                RequireApproval(tool="pay", param="amont", above=1),
                "can never match: 'pay' has no parameter 'amont' there",
            ),
            (
                LimitToolParam(tool="pay", param="amont", max=1),
                "denies every call: 'pay' has no parameter 'amont' there",
            ),
            (
                AllowToolParam(tool="o*", param="/items/*/skus", allow=[1]),
                "denies every call: 'order' has no parameter",
            ),
        ],
    )
    def test_a_parameter_that_the_tool_does_not_have(self, rule: Any, message: str) -> None:
        """A denial of it never strikes, a permission for it always; the nearest name helps."""
        ((severity, where, said),) = found(rule, schemas=SCHEMAS)
        assert (severity, where) == ("error", "rules[0]")
        assert said.startswith(f"{rule.name}: {message}")
        assert "did you mean" in said
        assert found(rule) == []

    @pytest.mark.parametrize(
        ("param", "gap"),
        [
            ("note", None),
            ("items", None),
            ("/items/*/sku", None),
            ("/items/0/more/more/sku", None),
            ("/items/*/skus", "skus"),
            ("/items/sku", "sku"),
            ("/ship/zip", None),
            ("/ship/city", "city"),
            ("/note/deep", "deep"),
            ("/headers/Authorization", None),
            ("/headers/Authorization/x", "x"),
            ("/anything/at/all", None),
            ("/pair/0/a", None),
            ("/pair/*/b", "b"),
            ("/*/zip", None),
            ("/note/*", "*"),
        ],
    )
    def test_a_place_is_looked_up_through_the_schema(self, param: str, gap: str | None) -> None:
        """References, alternatives, lists, maps and what says nothing of itself included."""
        reached = missing(SCHEMAS["order"], Param.parse(param))
        assert (reached and reached[0]) == gap


class TestShadowed:
    def test_a_rule_said_twice(self) -> None:
        """The second one adds nothing; equal as JSON, so true is not 1."""
        rules = [DenyToolParam(tool="pay", param="amount", equals=value) for value in (1, True, 1.0)]
        assert found(*rules) == [("warning", "rules[2]", "deny_tool_param:pay.amount: says the same as rules[0]")]

    def test_a_rule_of_a_tool_that_is_denied_anyway(self) -> None:
        """Before it or after it."""
        findings = found(RateLimitTool(tool="mail", max_calls=1, interval_secs=1), DenyTool(tool="ma*"), tools=["mail"])
        assert ("warning", "rules[0]", "rate_limit_tool:mail: has no effect: rules[1] denies every call") in findings

    def test_a_denial_that_is_not_enforced_shadows_nothing(self) -> None:
        """It denies nothing."""
        findings = found(RateLimitTool(tool="pay", max_calls=1, interval_secs=1), DenyTool(tool="pay", enforce=False))
        assert findings == []


class TestContradictions:
    @pytest.mark.parametrize(
        "rules",
        [
            [
                AllowToolParam(tool="pay", param="currency", allow=["EUR"]),
                AllowToolParam(tool="pay", param="currency", allow=["USD"]),
            ],
            [
                AllowToolParam(tool="pay", param="currency", allow=["EUR"]),
                DenyToolParam(tool="p*", param="currency", contains="E"),
            ],
            [
                AllowToolParamMatching(tool="pay", param="currency", matches="[A-Z]+"),
                DenyToolParam(tool="pay", param="currency"),
            ],
            [
                LimitToolParam(tool="pay", param="amount", max=5),
                LimitToolParam(tool="pay", param="amount", min=6),
            ],
            [
                AllowToolParam(tool="pay", param="/to/*/iban", allow=["X"]),
                DenyToolParamMatching(tool="pay", param="/to/*/iban", matches="^X"),
            ],
        ],
    )
    def test_no_value_can_pass(self, rules: list[Rule]) -> None:
        """Each rule is sound, both together deny every call."""
        ((severity, where, message),) = found(*rules)
        assert (severity, where) == ("error", "rules[0]")
        assert "can pass rules[0], rules[1] together, so no call of 'pay' can" in message

    @pytest.mark.parametrize(
        "rules",
        [
            [
                AllowToolParam(tool="pay", param="currency", allow=["EUR", "USD"]),
                AllowToolParam(tool="pay", param="currency", allow=["USD", "GBP"]),
            ],
            [
                LimitToolParam(tool="pay", param="amount", max=5),
                LimitToolParam(tool="pay", param="amount", min=5),
            ],
            [
                LimitToolParam(tool="pay", param="amount", max=5),
                DenyToolParam(tool="pay", param="amount", equals=5),
            ],
            [
                AllowToolParam(tool="pay", param="amount", allow=[1], enforce=False),
                DenyToolParam(tool="pay", param="amount"),
            ],
            [
                DenyToolParam(tool="pay", param="amount"),
                DenyToolParam(tool="pay", param="amount", equals=5),
            ],
        ],
    )
    def test_some_value_can_pass(self, rules: list[Rule]) -> None:
        """Only what is certain is said."""
        assert found(*rules) == []

    def test_an_empty_list_of_values(self) -> None:
        """It denies the tool in a roundabout way."""
        rule = AllowToolParam(tool="pay", param="currency")
        message = "allows no value, so no call can pass; deny_tool would hide the tool too"
        assert found(rule) == [("warning", "rules[0]", f"{rule.name}: {message}")]


@pytest.mark.parametrize("kind", [DenyToolParamMatching, AllowToolParamMatching, RequireApproval])
def test_a_pattern_that_does_not_compile(kind: Any) -> None:
    """The rule denies every call, which is not what was meant."""
    rule = kind(tool="pay", param="currency", matches="(")
    ((severity, where, message),) = found(rule)
    assert (severity, where) == ("error", "rules[0]")
    assert message.startswith(f"{rule.name}: denies every call: the pattern does not compile")


def test_findings_are_plain_data() -> None:
    """Frozen, and equal by content."""
    (finding,) = lint(ToolExecutionPolicy(["pay"]))
    assert finding == LintFinding(severity="warning", where="tools.pay", message=finding.message)


@pytest.mark.parametrize(
    ("settings", "where", "message"),
    [
        ({"open": ("/filters",)}, None, ""),
        ({"open": ("/filter",)}, "tools.t.open", "there is no parameter 'filter' there; did you mean 'filters'?"),
        ({"open": ("to",)}, "tools.t.open", "nothing is free-form there"),
        ({"open": ("filters",), "open_arguments": True}, "tools.t.open", "open_arguments opens everything"),
        ({"opaque_patterns": ("/to",)}, None, ""),
        ({"opaque_patterns": ("/filters",)}, "tools.t.opaque_patterns", "no pattern that cannot be checked"),
        ({"opaque": ("to",)}, None, ""),
        ({"opaque": ("too",)}, "tools.t.opaque", "there is no parameter 'too' there; did you mean 'to'?"),
    ],
)
def test_settings_name_places_that_the_tool_has(settings: Any, where: str | None, message: str) -> None:
    """And that mean something there."""
    properties = {"filters": {"type": "object"}, "to": {"type": "string", "pattern": "(?=a)."}}
    policy = ToolExecutionPolicy({"t": ToolSettings(risk="read_only", **settings)})
    found = lint(policy, {"t": {"type": "object", "properties": properties}})
    assert [finding.where for finding in found] == ([] if where is None else [where])
    assert all(message in finding.message for finding in found)

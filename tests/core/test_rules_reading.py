"""Rules see the effective value and the one written: decimals, spellings of one value, what is left out, sets."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, HttpUrl, field_validator

from guarded_core import Guard, InvalidPolicy, ToolExecutionPolicy
from guarded_core.policy.lint import lint
from guarded_core.rules.case import Action, Case, Finding
from guarded_core.rules.kinds import (
    AllowToolParam,
    AllowToolParamMatching,
    BudgetToolParam,
    DenyKeyword,
    DenyToolParam,
    DenyToolParamMatching,
    LimitToolParam,
    RequireApproval,
    RequireOrigin,
)
from guarded_core.tools.reading import Reading


def outcome(kind: Any, rule: Any, value: Any, param: str = "x") -> str:
    """What becomes of a call of a plain function with one parameter of that type."""
    guard = Guard(ToolExecutionPolicy({"f": "read_only"}, rules=[rule]))

    def f(x: Any) -> str:
        """F."""
        return "ran"

    f.__annotations__["x"] = kind
    guard.tool()(f)
    with guard.session("u", tools=["f"]):
        return guard.decide("f", {"x": value}).outcome


class Colour(enum.Enum):
    RED = "red"


class Link(BaseModel):
    """A nested model whose own validator changes what it is given."""

    url: str
    name: str

    @field_validator("url")
    @classmethod
    def lower(cls, url: str) -> str:
        """Upper case says nothing."""
        return url.lower()


LIMIT = LimitToolParam(tool="f", param="x", min=1, max=100)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Decimal, 5, "allow"),
        (Decimal, "5.00", "allow"),
        (Decimal, "100.000000000000000000000000000001", "deny"),
        (Decimal, "1e5", "deny"),
        (Decimal, 99.5, "allow"),
        (Decimal | None, "5", "allow"),
        (Decimal | None, None, "deny"),
        (Annotated[Decimal, AfterValidator(abs)], "-7", "allow"),
        (int | str, 5, "allow"),
        (int | str, "5", "deny"),
        (float, 100, "allow"),
    ],
)
def test_numbers_are_compared_as_decimals(kind: Any, value: Any, said: str) -> None:
    """JSON numbers, and the strings of a Decimal parameter; any other string is no number."""
    assert outcome(kind, LIMIT, value) == said


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        (BudgetToolParam(tool="f", param="x", max=100, interval_secs=60), "100.0", "allow"),
        (BudgetToolParam(tool="f", param="x", max=100, interval_secs=60), "100.01", "deny"),
        (RequireApproval(tool="f", param="x", above=100), "100", "allow"),
        (RequireApproval(tool="f", param="x", above=100), "100.01", "ask"),
        (DenyToolParam(tool="f", param="x", equals=10.5), "10.500", "deny"),
        (DenyToolParam(tool="f", param="x", equals="10.5"), 10.5, "deny"),
        (AllowToolParam(tool="f", param="x", allow=[10]), "10.0", "allow"),
        (AllowToolParam(tool="f", param="x", allow=[10]), "10.01", "deny"),
        (RequireOrigin(tool="f", param="x", up_to=5), "5.0", "allow"),
    ],
)
def test_every_rule_about_numbers_reads_decimals(rule: Any, value: Any, said: str) -> None:
    """Sums, amounts that ask, lists of values and harmless amounts alike."""
    assert outcome(Decimal, rule, value) == said


def test_a_schema_says_that_its_strings_are_decimals() -> None:
    """``format: decimal``, also below a reference and in a list; without it a string is no number."""
    amount = {"type": "string", "format": "decimal"}
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/m"}}}}
    rule = LimitToolParam(tool="f", param="/a/*", max=10)
    case = Case(
        action=Action.tool_call("f", {"a": ["9.99", "10"]}), reading=Reading({**schema, "$defs": {"m": amount}})
    )
    assert rule.check(case) is None
    plain = Reading({**schema, "$defs": {"m": {"type": "string"}}})
    assert isinstance(rule.check(Case(action=case.action, reading=plain)), Finding)


@pytest.mark.parametrize(
    "rule",
    [
        LIMIT,
        BudgetToolParam(tool="f", param="x", max=100, interval_secs=60),
        RequireApproval(tool="f", param="x", above=100),
    ],
)
def test_a_rule_about_numbers_on_text_is_linted(rule: Any) -> None:
    """It denies, or asks about, every call."""
    policy = ToolExecutionPolicy({"f": "read_only"}, rules=[rule])

    def found(sub: dict[str, Any]) -> list[str]:
        return [f.message for f in lint(policy, {"f": {"type": "object", "properties": {"x": sub}}})]

    assert "takes no number there" in found({"type": "string"})[0]
    assert "takes no number there" in found({"anyOf": [{"type": "string"}, {"type": "null"}]})[0]
    for right in ({"type": "number"}, {"type": "string", "format": "decimal"}, {}, {"type": ["string", "integer"]}):
        assert found(right) == []


SPELT: list[tuple[Any, str, str]] = [
    (HttpUrl, "https://evil.example", "https://evil.example"),
    (HttpUrl, "https://evil.example", "https://evil.example/"),
    (HttpUrl, "https://evil.example/", "https://EVIL.example"),
    (datetime, "2026-01-02T00:00:00+00:00", "2026-01-02T00:00:00Z"),
    (datetime, "2026-01-02T00:00:00Z", "2026-01-02T02:00:00+02:00"),
    (Annotated[str, AfterValidator(str.lower)], "EVIL", "Evil"),
    (Decimal, "10.50", "10.5"),
    (Colour, "red", "red"),
]


@pytest.mark.parametrize(("kind", "named", "sent"), SPELT)
def test_one_value_has_many_spellings(kind: Any, named: str, sent: str) -> None:
    """A rule's own values are read as the tool reads them: a list denies or allows them however they are spelt."""
    assert outcome(kind, DenyToolParam(tool="f", param="x", equals=named), sent) == "deny"
    assert outcome(kind, AllowToolParam(tool="f", param="x", allow=[named]), sent) == "allow"


def test_values_inside_models_are_read_by_the_models_validators() -> None:
    """Below lists and models with required neighbours too."""
    rule = DenyToolParam(tool="f", param="/x/*/url", equals="EVIL")
    assert outcome(list[Link], rule, [{"url": "ok", "name": "a"}, {"url": "Evil", "name": "b"}]) == "deny"
    assert outcome(list[Link], rule, [{"url": "ok", "name": "a"}]) == "allow"


def swapped(value: str) -> str:
    """Makes another value of "a"."""
    return "b" if value == "a" else value


@pytest.mark.parametrize("named", ["a", "b"])
@pytest.mark.parametrize(
    "rule",
    [
        lambda named: DenyToolParam(tool="f", param="x", contains=named),
        lambda named: DenyToolParamMatching(tool="f", param="x", matches=named),
        lambda named: DenyKeyword(keyword=named),
    ],
)
def test_deny_matches_what_was_written_and_what_runs(rule: Callable[[str], Any], named: str) -> None:
    """Either is enough."""
    assert outcome(Annotated[str, AfterValidator(swapped)], rule(named), "a") == "deny"


def test_asking_matches_either_and_allowing_wants_what_runs() -> None:
    """Allow-lists and patterns hold for the effective value; what was written does not count for them."""
    kind = Annotated[str, AfterValidator(swapped)]
    for named in ("a", "b"):
        assert outcome(kind, RequireApproval(tool="f", param="x", contains=named), "a") == "ask"
    assert outcome(kind, AllowToolParamMatching(tool="f", param="x", matches="a"), "a") == "deny"
    assert outcome(kind, AllowToolParamMatching(tool="f", param="x", matches="b"), "a") == "allow"


def test_origin_is_asked_of_what_was_written() -> None:
    """The user's own link is the user's, though the tool writes it another way."""
    rule = RequireOrigin(tool="f", param="x")
    guard = Guard(ToolExecutionPolicy({"f": "read_only"}, rules=[rule]))

    @guard.tool()
    def f(x: HttpUrl) -> str:
        """F."""
        return str(x)

    with guard.session("u", tools=["f"], request="open https://Shop.example please"):
        assert guard.decide("f", {"x": "https://Shop.example"}).outcome == "allow"
        assert guard.decide("f", {"x": "https://evil.example"}).outcome == "deny"


def said(rule: Any, **parameters: Any) -> str:
    """What a rule says of effective arguments."""
    finding = rule.check(Case(action=Action.tool_call("f", parameters)))
    return "pass" if finding is None else str(finding.effect)


class TestLeftOut:
    """What becomes of an argument that nobody gives."""

    def test_an_amount_that_may_be_anything_asks(self) -> None:
        """None of the tool's own may mean all of it; a rule can say that it does not."""
        assert said(RequireApproval(tool="f", param="x", above=100)) == "ask"
        assert said(RequireApproval(tool="f", param="x", above=100, absent="allow")) == "pass"
        assert said(RequireApproval(tool="f", param="/x/*/qty", above=1), x=[{"qty": 1}, {}]) == "ask"
        assert said(RequireApproval(tool="f", param="x", contains="a")) == "pass"

    @pytest.mark.parametrize(
        "rule",
        [
            lambda **absent: AllowToolParam(tool="f", param="x", allow=[1], **absent),
            lambda **absent: AllowToolParamMatching(tool="f", param="x", matches="1", **absent),
            lambda **absent: LimitToolParam(tool="f", param="x", max=1, **absent),
        ],
    )
    def test_what_has_to_be_right_cannot_be_left_out_unless_the_rule_says_so(self, rule: Callable[..., Any]) -> None:
        """``absent = "allow"`` covers a default of null, and nothing that is given."""
        assert said(rule()) == "deny"
        lenient = rule(absent="allow")
        assert said(lenient) == "pass"
        by_default = Case(action=Action.tool_call("f", {"x": None}), written={})
        assert lenient.check(by_default) is None
        assert said(lenient, x=None) == "deny"
        assert said(lenient, x=2) == "deny"
        assert lenient.check(Case(action=Action.tool_call("f", {"x": 2}), written={})) is not None

    def test_a_sum_counts_a_default_of_zero_and_nothing_else(self) -> None:
        """Otherwise what is left out cannot be added up."""
        rule = BudgetToolParam(tool="f", param="x", max=1, interval_secs=1)
        assert said(rule) == "deny"
        assert said(rule, x=0) == "pass"

    @pytest.mark.parametrize("rule", [AllowToolParam, LimitToolParam, RequireApproval])
    def test_another_word_is_refused(self, rule: Any) -> None:
        """At the time the rule is made."""
        settings = {AllowToolParam: {"allow": [1]}, LimitToolParam: {"max": 1}, RequireApproval: {"above": 1}}[rule]
        with pytest.raises(InvalidPolicy, match="absent"):
            rule(tool="f", param="x", absent="maybe", **settings)


def test_a_denied_word_in_an_open_name_is_found() -> None:
    """The names that a tool declares are its own; any other is the model's text."""
    rule, reading = DenyKeyword(keyword="DROP"), Reading({"properties": {"DROP_AT": {}}})
    assert rule.check(Case(action=Action.tool_call("f", {"DROP t": 1}), reading=reading)) is not None
    assert rule.check(Case(action=Action.tool_call("f", {"DROP_AT": 1}), reading=reading)) is None
    assert rule.check(Case(action=Action.tool_call("f", {}), written={"DROP t": 1}, reading=reading)) is not None


SETS = """
from guarded_core import Guard, ToolExecutionPolicy
guard = Guard(ToolExecutionPolicy({"grant": "destructive"}))
@guard.tool()
def grant(roles: set[str], nested: list[frozenset[int | str]]) -> str:
    "Grant."
    return ""
with guard.session("u", tools=["grant"]):
    roles = ["delta", "alpha", "echo", "bravo"]
    request = guard.decide("grant", {"roles": roles, "nested": [roles, [3, "x"]]}).approval_request
    print(request.digest, request.arguments)
"""


def test_a_set_has_one_order_in_every_process() -> None:
    """However strings hash there: an approval outlives a restart."""
    found = {
        subprocess.run(
            [sys.executable, "-c", SETS], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    (printed,) = found
    assert "{'roles': ['alpha', 'bravo', 'delta', 'echo']" in printed

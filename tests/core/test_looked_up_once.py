"""What is looked up once gives what looking it up each time would."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from guarded_core import Guard, PolicyDenied, ToolExecutionPolicy
from guarded_core.rules.case import Action, Case
from guarded_core.rules.kinds import AllowToolParam, DenyKeyword, DenyToolParam
from guarded_core.rules.ruleset import RuleSet
from guarded_core.rules.values import Named, is_same
from guarded_core.tools.parsing import same
from guarded_core.tools.reading import AS_WRITTEN, Place


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ("a", "b"), ("1", 1), (None, False), ([1], [1]), ({}, {})]
)
def test_what_might_be_told_apart_is_not_the_same(one: Any, other: Any) -> None:
    """Another type, another sign, and whatever holds something: a rule is asked about both."""
    assert not is_same(one, other)
    case = Case(action=Action.tool_call("pay", {"x": one, "y": "k"}), written={"x": other, "y": "k"})
    assert case.rewritten == {"x": other}


@pytest.mark.parametrize("value", ["a", "", 7, True, None, 1.5])
def test_the_same_scalar_is_looked_at_once(value: Any) -> None:
    """Where the tool changed nothing, there is nothing more to judge."""
    case = Case(action=Action.tool_call("pay", {"x": value, "filled": 1}), written={"x": value})
    assert case.rewritten == {}


@pytest.mark.parametrize("written", [{"x": "bad"}, {"x": ["bad"]}, {"x": "good", "extra": "bad"}])
def test_what_was_written_is_denied_though_the_tool_makes_something_else_of_it(written: dict[str, Any]) -> None:
    """A keyword, and a value, that only the written arguments have."""
    case = Case(action=Action.tool_call("pay", {"x": "good"}), written=written)
    assert DenyKeyword(keyword="bad").check(case) is not None
    (name,) = [name for name, value in written.items() if "bad" in value]
    assert DenyToolParam(tool="pay", param=name, contains="bad").check(case) is not None
    assert DenyToolParam(tool="pay", param="/*", contains="bad").check(case) is not None


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        (1, True, False),
        (1, 1.0, False),
        (math.nan, math.nan, True),
        ([1, "a", None], [1, "a", None], True),
        ([1, 2], [1, True], False),
        ({"a": [1.5]}, {"a": [1.5]}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ((1,), [1], False),
        ([b"x"], [b"y"], False),
    ],
)
def test_parsed_values_are_the_same_to_the_type(one: Any, other: Any, are_same: bool) -> None:
    """At every depth, in either order of asking."""
    assert same(one, other) is same(other, one) is are_same


def test_named_values_are_those_of_the_place_asked_about() -> None:
    """One rule serves tools that read a value differently, also from several threads at once."""
    decimal, named = Place(is_decimal=True), Named(["1.0"])
    wrong: list[str] = []

    def ask(place: Place, value: str, expected: bool) -> None:
        wrong.extend(value for _ in range(2_000) if named.has(value, place) is not expected)

    threads = [
        threading.Thread(target=ask, args=asked)
        for asked in [(decimal, "1.00", True), (AS_WRITTEN, "1.00", False), (AS_WRITTEN, "1.0", True)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_rules_are_joined_once_for_as_long_as_they_stand() -> None:
    """The same parts are one set; another policy, rule or session makes another one, which is in force at once."""
    session, policy, code = (RuleSet((DenyKeyword(keyword=word),)) for word in ("a", "b", "c"))  # type: ignore[arg-type]
    joined = RuleSet.in_force(session=session, policy=policy, code=code)
    assert RuleSet.in_force(session=session, policy=policy, code=code) is joined
    assert [rule.name for rule in joined.rules] == [part.rules[0].name for part in (session, policy, code)]
    assert [rule.name for rule in RuleSet.in_force(session=session, policy=policy, code=RuleSet()).rules] == [
        part.rules[0].name for part in (session, policy)
    ]
    assert RuleSet.in_force(policy=policy, code=code).rules == (*policy.rules, *code.rules)


def test_a_rule_that_comes_or_goes_is_in_force_at_the_next_call() -> None:
    """Joined sets do not outlive what they were joined of: in code, in the policy, in the session."""
    guard = Guard(ToolExecutionPolicy({"pay": "read_only"}, rules=[DenyToolParam(tool="pay", param="to", equals="x")]))

    @guard.tool
    def pay(to: str) -> str:
        """Pays."""
        return "paid"

    def is_paid(to: str) -> bool:
        try:
            return bool(pay(to) == "paid")
        except PolicyDenied:
            return False

    with guard.session("ann", tools=["pay"], narrow={"pay": {"to": ["x", "y", "z"]}}):
        assert [is_paid(to) for to in "xyz"] == [False, True, True]
        guard.rules.add(DenyToolParam(tool="pay", param="to", equals="y"))
        assert [is_paid(to) for to in "xyz"] == [False, False, True]
        guard.reload(
            ToolExecutionPolicy({"pay": "read_only"}, rules=[AllowToolParam(tool="pay", param="to", allow=["x"])])
        )
        assert [is_paid(to) for to in "xyz"] == [True, False, False]
        guard.rules.clear()
        guard.reload(ToolExecutionPolicy({"pay": "read_only"}))
        assert [is_paid(to) for to in "xyz"] == [True, True, True]
    with guard.session("ann", tools=["pay"]):
        assert is_paid("w")

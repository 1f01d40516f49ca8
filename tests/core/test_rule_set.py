"""The rules in force for a call, joined from session, policy and code; and what a rule says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.ground.errors import PolicyDenied
from guarded_core.ground.pointer import Param
from guarded_core.policy.lint import lint
from guarded_core.preview.coverage import Standing
from guarded_core.rules.case import Action, Asks, Case, Finding, Reservation, Rule, Scope, Window, completed
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.kinds import (
    AllowToolParam,
    DenyTool,
    LimitToolParam,
    RateLimitTool,
    RequireApproval,
    RequireOrigin,
)
from guarded_core.rules.ruleset import RuleSet

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}, "cents": {"type": "integer"}}}


class Objecting(Rule):
    """A rule in code that objects to every call, or asks about it."""

    def __init__(self, name: str, *, asks: bool = False) -> None:
        self._name = name
        self._effect: Any = "ask" if asks else "deny"

    @property
    def name(self) -> str:
        return self._name

    def check(self, case: Case) -> Finding | None:
        return Finding("no", self._effect)


class Bare:
    """A rule that has the nine members that a rule once had, and derives from nothing."""

    name, description, tools, spec = "bare", "", None, None
    enforce = True

    def check(self, case: Case) -> Finding | None:
        return Finding("the bare rule objects") if case.action.parameters.get("to") == "me" else None

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        return ()

    def reserve(self, case: Case) -> Reservation | None:
        return None

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return schema


def shop(*rules: Rule, risk: str = "mutating") -> tuple[Guard, list[tuple[str, int]]]:
    """A guard of one tool under `rules`, and the calls of it that ran."""
    guard, ran = Guard(ToolExecutionPolicy({"pay": risk}, rules=rules)), []

    @guard.tool
    def pay(to: str, cents: int = 0) -> None:
        """Pay."""
        ran.append((to, cents))

    return guard, ran


def test_rules_are_asked_in_one_order() -> None:
    """The session's, then the policy's, then those in code: in verdicts, previews, windows and what is shown."""
    guard, _ = shop(Objecting("policy"), RateLimitTool(tool="pay", max_calls=9, interval_secs=1))
    guard.rules.add(Objecting("code"))
    with guard.session("u", tools=["pay"], narrow={"pay": {"to": ["you"]}}) as session:
        with pytest.raises(PolicyDenied) as caught:
            guard.call("pay", {"to": "me"})
        order = [violation.policy_name for violation in caught.value.violations]
        assert order == ["allow_tool_param:pay.to", "policy", "code"]
        assert [violation.policy_name for violation in guard.decide("pay", {"to": "me"}).violations] == order
        in_force = guard.rules_in_force(session)
        assert [rule.name for rule in in_force.rules_for("pay")] == [
            "allow_tool_param:pay.to", "policy", "rate_limit_tool:pay", "code"
        ]  # fmt: skip
        assert in_force.rules == in_force.rules_for("pay")
        assert guard.coverage().tools[0].why == tuple(rule.name for rule in in_force.rules)


def test_a_moment_of_the_rules_does_not_change() -> None:
    """What is judged is what its windows were read for, whatever is registered in between."""
    engine, policy = PolicyEngine(), PolicyEngine([DenyTool(tool="pay")])
    before = RuleSet.in_force(policy=policy.rule_set, code=engine.rule_set)
    engine.register("late", lambda action, state: "no")
    case = Case(action=Action.tool_call("pay"))
    assert [violation.policy_name for violation in before.judge(case).violations] == ["deny_tool:pay"]
    after = RuleSet.in_force(policy=policy.rule_set, code=engine.rule_set)
    assert [violation.policy_name for violation in after.judge(case).violations] == ["deny_tool:pay", "late"]


def test_rules_of_one_source_are_taken_as_they_are() -> None:
    """Most calls have the policy's alone: nothing is built for them, and what was found out about a tool is kept."""
    policy = PolicyEngine([DenyTool(tool="pay")]).rule_set
    assert RuleSet.in_force(session=RuleSet(), policy=policy, code=RuleSet()) is policy
    empty = RuleSet()
    assert RuleSet.in_force(policy=empty, code=RuleSet()) is empty


def test_hides_and_narrows_by_all_of_them() -> None:
    """A model is shown what no rule of the three refuses."""
    session = PolicyEngine([AllowToolParam(tool="pay", param="to", allow=["a", "b"])])
    policy = PolicyEngine([LimitToolParam(tool="pay", param="cents", max=5), DenyTool(tool="drop")])
    code = PolicyEngine()
    code.register_tool_deny("no mail", "mail_*", lambda action, state: "no")
    rules = RuleSet.in_force(session=session.rule_set, policy=policy.rule_set, code=code.rule_set)
    assert [tool for tool in ("pay", "drop", "mail_send", "other") if rules.hides(tool)] == ["drop", "mail_send"]
    properties = rules.narrow("pay", SCHEMA)["properties"]
    assert (properties["to"]["enum"], properties["cents"]["maximum"]) == (["a", "b"], 5)


def test_a_proof_holds_only_where_every_rule_about_origins_passes() -> None:
    """One in code that objects is no less than one of the policy: then a person is asked for the risk too."""
    proving = RequireOrigin(tool="pay", param="to", accept=("unknown",))
    doubting = RequireOrigin(tool="pay", param="cents", accept=("user",), otherwise="ask")
    rules = RuleSet.in_force(policy=PolicyEngine([proving]).rule_set, code=PolicyEngine([doubting]).rule_set)
    assert rules.judge(Case(action=Action.tool_call("pay", {"to": "me"}))).proven
    assert not rules.judge(Case(action=Action.tool_call("pay", {"to": "me", "cents": 77}))).proven


def test_a_rule_about_origins_that_cannot_say_what_it_saw_proves_nothing() -> None:
    """Whatever it raises, a person is asked, and nothing escapes."""

    class Tracing(Objecting):
        traces: ClassVar[bool] = True

        def check(self, case: Case) -> Finding | None:
            return None

        def speaks_of(self, case: Case) -> bool:
            raise ZeroDivisionError

    judged = PolicyEngine([Tracing("t")]).judge(Case(action=Action.tool_call("pay")))
    assert (judged.violations, judged.proven) == ((), False)


def failing(*members: str) -> Any:
    """A rule that lets every call pass, and raises in these members, quoting what it must not."""

    def fail(self: Any, *args: Any) -> Any:
        raise ValueError("s3cret")

    methods = {"check", "reserve", "windows", "narrow", "speaks_of"}
    says: dict[str, Any] = {member: fail if member in methods else property(fail) for member in members}
    passing = {"name": "failing", "check": lambda self, case: None}
    return type("Failing", (Rule,), {**passing, **says})()


@pytest.mark.parametrize(
    ("members", "objects"),
    [
        (["check"], True),
        (["reserve"], True),
        (["windows"], True),
        (["check", "name"], True),
        (["check", "enforce"], True),
        (["windows", "enforce", "name"], True),
        (["enforce"], False),
        (["name", "narrow", "denies", "speaks_of"], False),
    ],
)
def test_whatever_a_rule_raises_stays_inside(members: list[str], objects: bool, way: Any) -> None:
    """It is an objection, on record, or says nothing of the call; its text is nowhere, and the tool is shown."""
    guard, ran = shop()
    guard.rules.add(failing(*members))
    with guard.session("u", tools=["pay"]):
        assert [view.name for view in guard.visible_tools()] == ["pay"]
        if objects:
            with pytest.raises(PolicyDenied) as caught:
                way(guard.call, guard.acall, "pay", {"to": "me"})
            (violation,) = caught.value.violations
            assert violation.reason == "the rule failed: ValueError"
            assert violation.policy_name == ("Failing" if "name" in members else "failing")
        else:
            way(guard.call, guard.acall, "pay", {"to": "me"})
    assert ran == ([] if objects else [("me", 0)])
    assert [event.outcome.value for event in guard.audit.events] == (
        ["denied"] if objects else ["authorized", "succeeded"]
    )


@pytest.mark.parametrize("answers", [{"check": lambda self, case: "a text"}, {"reserve": lambda self, case: "one"}])
def test_what_is_no_answer_is_an_objection(answers: dict[str, Any]) -> None:
    """A finding is a Finding, a reservation a Reservation; anything else passes nothing."""
    passing = {"name": "odd", "check": lambda self, case: None}
    guard, ran = shop(type("Odd", (Rule,), {**passing, **answers})())
    with guard.session("u", tools=["pay"]), pytest.raises(PolicyDenied):
        guard.call("pay", {"to": "me"})
    assert ran == []


@pytest.mark.parametrize("member", ["tools", "traces"])
def test_a_rule_that_cannot_say_what_it_is_about_is_not_taken(member: str) -> None:
    """Its author hears of it, not the first call; the rules are what they were."""
    guard, _ = shop()
    with pytest.raises(ValueError, match="s3cret"):
        guard.rules.add(failing(member))
    with pytest.raises(ValueError, match="s3cret"):
        ToolExecutionPolicy({"pay": "mutating"}, rules=[failing(member)])
    assert guard.rules.is_empty


def test_the_engines_of_a_guard_are_joined_now() -> None:
    """The old way to them says where the new one is."""
    guard, _ = shop(DenyTool(tool="pay"))
    with pytest.warns(DeprecationWarning, match="rules_in_force"):
        engines = guard.engines()
    assert [engine.policy_names() for engine in engines] == [["deny_tool:pay"], []]


class TestARuleOfOnesOwn:
    """What it says of itself is what coverage, the lint and the model see; what it leaves unsaid has a default."""

    def test_needs_a_name_and_a_check(self) -> None:
        """The base class has the rest: asked of every tool, enforced, refusing some calls, without memory."""
        rule = Objecting("mine")
        assert (rule.tools, rule.enforce, rule.spec, rule.description) == (None, True, None, "")
        assert (rule.denies, rule.refuses, rule.asks, rule.error, rule.traces) == (None, True, "never", "", False)
        assert (rule.parameter, rule.requires_value, rule.only, rule.bounds) == (None, False, None, ())
        assert (rule.windows("pay", Scope()), rule.reserve(Case(action=Action.tool_call("pay")))) == ((), None)
        assert rule.narrow(SCHEMA) == SCHEMA
        assert completed(rule) is rule

    def test_without_the_base_class_works_all_the_same(self) -> None:
        """In code, in a policy, in coverage and in the lint."""
        guard, ran = shop(completed(Bare()))
        guard.rules.add(Bare())
        with guard.session("u", tools=["pay"]):
            guard.call("pay", {"to": "you"})
            with pytest.raises(PolicyDenied) as caught:
                guard.call("pay", {"to": "me"})
            assert [violation.reason for violation in caught.value.violations] == ["the bare rule objects"] * 2
            assert guard.coverage().tools[0].standings == {Standing.ALLOWED, Standing.NARROWED}
        assert ran == [("you", 0)]
        assert lint(ToolExecutionPolicy({"pay": "mutating"}, rules=[Bare()])) == []

    def test_without_the_base_class_may_say_more(self) -> None:
        """It is asked once, when it is added: what it says later changes nothing."""

        class Saying(Bare):
            denies: str | None = "pay"

            def check(self, case: Case) -> Finding | None:
                return Finding("no")

        rule = Saying()
        guard, _ = shop()
        guard.rules.add(rule)
        rule.denies = None
        assert guard.visible_tools() == []
        assert guard.coverage().tools[0].why == ("bare",)

    @pytest.mark.parametrize(
        ("asks", "refuses", "expected"),
        [
            ("never", True, {"narrowed", "allowed"}),
            ("some", True, {"narrowed", "asks", "allowed"}),
            ("some", False, {"asks", "allowed"}),
            ("always", False, {"asks"}),
        ],
    )
    def test_says_what_becomes_of_calls(self, asks: Asks, refuses: bool, expected: set[str]) -> None:
        """Coverage takes its word."""
        rule: Any = type("Saying", (Objecting,), {"asks": asks, "refuses": refuses})("mine")
        assert shop(rule)[0].coverage().standings == {"pay": expected}

    def test_says_why_it_cannot_judge(self) -> None:
        """Then no call can pass, and coverage and lint name it."""
        rule: Any = type("Saying", (Objecting,), {"error": "no pattern"})("mine")
        guard, _ = shop(rule)
        assert guard.coverage().tools[0].why == ("mine cannot be judged",)
        assert [finding.message for finding in lint(guard.policy)] == ["mine: denies every call: no pattern"]

    @pytest.mark.parametrize(
        ("says", "found"),
        [
            ({"parameter": Param.parse("amount")}, "can never match"),
            ({"parameter": Param.parse("amount"), "requires_value": True}, "denies every call"),
        ],
    )
    def test_says_which_parameter_it_is_about(self, says: dict[str, Any], found: str) -> None:
        """The lint looks it up in the tools' schemas."""
        rule: Any = type("Saying", (Objecting,), says)("mine")
        policy = ToolExecutionPolicy({"pay": "mutating"}, rules=[rule])
        (finding,) = lint(policy, {"pay": SCHEMA})
        assert finding.message.startswith(f"mine: {found}: 'pay' has no parameter 'amount' there")

    def test_says_which_values_it_leaves(self) -> None:
        """The lint tells where no value is left beside the other rules."""

        class OnlyMe(Rule):
            name: ClassVar[str] = "only me"
            requires_value: ClassVar[bool] = True
            only: ClassVar[tuple[Any, ...]] = ("me",)
            parameter: ClassVar[Param] = Param.parse("to")

            def check(self, case: Case) -> Finding | None:
                return None if case.action.parameters.get("to") == "me" else Finding("not me")

        def contradictions(value: str) -> list[str]:
            rules = [OnlyMe(), AllowToolParam(tool="pay", param="to", allow=[value])]
            return [finding.where for finding in lint(ToolExecutionPolicy({"pay": "mutating"}, rules=rules))]

        assert (contradictions("me"), contradictions("you")) == ([], ["rules[0]"])

    def test_that_fails_on_a_made_up_call_is_no_contradiction(self) -> None:
        """The lint is certain only where a rule says no."""

        class Needy(Rule):
            name: ClassVar[str] = "needy"
            parameter: ClassVar[Param] = Param.parse("to")

            def check(self, case: Case) -> Finding | None:
                raise ZeroDivisionError

        rules = [Needy(), AllowToolParam(tool="pay", param="to", allow=["me"])]
        assert lint(ToolExecutionPolicy({"pay": "mutating"}, rules=rules)) == []


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: RequireApproval(tool="pay"), ("always", False)),
        (lambda: RequireApproval(tool="pay", param="to", equals="me"), ("some", False)),
        (lambda: RequireOrigin(tool="pay", param="to"), ("never", True)),
        (lambda: RequireOrigin(tool="pay", param="to", ask=("named",)), ("some", True)),
        (lambda: RequireOrigin(tool="pay", param="to", otherwise="ask"), ("some", False)),
        (lambda: LimitToolParam(tool="pay", param="cents", max=1), ("never", True)),
    ],
)
def test_kinds_say_what_they_may_do(make: Callable[[], Rule], expected: tuple[str, bool]) -> None:
    """Whether they ask, and whether they refuse."""
    assert (make().asks, make().refuses) == expected

"""Each kind of rule: what it denies, what it lets pass, what it takes, and what it refuses to be made of."""

from __future__ import annotations

import itertools
import threading
from decimal import Decimal
from typing import Any, ClassVar

import pytest

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import InvalidPolicy
from guarded_core.rules.case import Action, Case, Finding, Rule, Scope
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.kinds import (
    KINDS,
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
    RequireOrigin,
    RequireState,
)
from guarded_core.rules.state import StateStore
from guarded_core.store.base import Change, Conflict, Query
from guarded_core.store.memory import MemoryStore

BACKREFERENCE = r"(a)\1"


def effect(rule: Rule, **parameters: Any) -> str:
    """What `rule` says of a call of the tool ``http_request``: "deny", "ask" or "pass"."""
    finding = rule.check(Case(action=Action.tool_call("http_request", parameters)))
    return "pass" if finding is None else finding.effect


def on_url(kind: Any, **settings: Any) -> Any:
    """A rule of that kind on the parameter ``url`` of ``http_request``."""
    return kind(tool="http_request", param="url", **settings)


class TestDenyTool:
    def test_denies_whatever_the_arguments(self) -> None:
        """A total denial, by exact name, which can be hidden."""
        rule = DenyTool(tool="http_request")
        assert effect(rule) == effect(rule, url="x") == "deny"
        assert (rule.name, rule.tools, rule.denies) == ("deny_tool:http_request", "http_request", "http_request")


class TestDenyKeyword:
    @pytest.mark.parametrize(
        ("parameters", "said"),
        [
            ({"a": "please rm -rf it"}, "deny"),
            ({"a": "please RM -RF it"}, "pass"),
            ({"rm -rf": "a"}, "pass"),
            ({"a": ["x", {"b": "rm -rf"}]}, "deny"),
            ({"a": {"rm -rf": 1}}, "deny"),
            ({}, "pass"),
            ({"a": 1, "b": None}, "pass"),
        ],
    )
    def test_is_a_case_sensitive_substring_of_any_value_however_deep(
        self, parameters: dict[str, Any], said: str
    ) -> None:
        """Strings inside objects and arrays are seen too, and so are the keys there."""
        assert effect(DenyKeyword(keyword="rm -rf"), **parameters) == said

    @pytest.mark.parametrize(
        ("keyword", "value"), [("10", 3.10e2), ("true", True), ("null", None), ('"', ['"']), ("\n", ["\n"])]
    )
    def test_other_values_are_searched_in_their_string_form(self, keyword: str, value: Any) -> None:
        """Numbers, true, false and null have a text; an escape hides nothing."""
        assert effect(DenyKeyword(keyword=keyword), a=value) == "deny"

    def test_is_asked_of_every_tool(self) -> None:
        """It names none."""
        rule = DenyKeyword(keyword="x")
        assert (rule.name, rule.tools) == ("deny_keyword:x", None)


class TestDenyToolParam:
    @pytest.mark.parametrize(
        ("settings", "value", "said"),
        [
            ({"equals": 10}, 10, "deny"),
            ({"equals": 10}, 10.0, "deny"),
            ({"equals": 10}, "10", "pass"),
            ({"equals": 1}, True, "pass"),
            ({"equals": None}, None, "deny"),
            ({"equals": "a"}, "A", "pass"),
            ({"equals": {"a": [1]}}, {"a": [1.0]}, "deny"),
            ({"contains": "evil"}, "https://evil.test", "deny"),
            ({"contains": "evil"}, "https://EVIL.test", "pass"),
            ({"contains": "evil"}, {"to": ["evil"]}, "deny"),
            ({"contains": "0"}, 10, "deny"),
            ({"equals": "evil", "contains": "evil"}, "evil", "deny"),
            ({"equals": "evil", "contains": "evil"}, "evil!", "pass"),
            ({}, "anything", "deny"),
            ({}, None, "deny"),
        ],
    )
    def test_equals_and_contains_have_both_to_hold(self, settings: dict[str, Any], value: Any, said: str) -> None:
        """Exact JSON value; case-sensitive part of the string form; neither: mere presence is denied."""
        assert effect(on_url(DenyToolParam, **settings), url=value) == said

    @pytest.mark.parametrize("settings", [{"equals": None}, {"contains": "n"}, {}])
    def test_an_absent_param_never_violates(self, settings: dict[str, Any]) -> None:
        """Neither null nor anything else is denied where nothing is."""
        assert effect(on_url(DenyToolParam, **settings), other=1) == "pass"

    def test_one_of_the_values_is_enough(self) -> None:
        """With a wildcard, any violates."""
        rule = DenyToolParam(tool="http_request", param="/items/*/sku", equals="B")
        assert effect(rule, items=[{"sku": "A"}, {}, {"sku": "B"}]) == "deny"
        assert effect(rule, items=[{"sku": "A"}, {}]) == "pass"
        assert effect(rule, items=[]) == "pass"

    def test_what_cannot_be_looked_at_fails(self) -> None:
        """The engine makes a violation of it."""
        (violation,) = PolicyEngine([on_url(DenyToolParam, equals=1)]).check(
            Action.tool_call("http_request", {"url": (1, 2)})
        )
        assert violation.reason == "the rule failed: TypeError"


class TestDenyToolParamMatching:
    @pytest.mark.parametrize(
        ("value", "said"),
        [("https://10.0.0.1/", "deny"), ("x10.", "deny"), ("https://a.test", "pass"), (["10.x"], "deny")],
    )
    def test_is_searched_for_anywhere_in_the_string_form(self, value: Any, said: str) -> None:
        """Unanchored, nested strings included."""
        assert effect(on_url(DenyToolParamMatching, matches=r"10\."), url=value) == said

    def test_an_anchor_holds_for_nested_strings_too(self) -> None:
        """A list around a value does not hide it."""
        assert effect(on_url(DenyToolParamMatching, matches="^rm$"), url=["rm"]) == "deny"

    def test_an_absent_param_never_violates(self) -> None:
        """Even one that everything matches."""
        assert effect(on_url(DenyToolParamMatching, matches=".*")) == "pass"

    def test_a_pattern_that_does_not_compile_denies_every_call(self) -> None:
        """Also one without the parameter; the compile error is in the reason."""
        rule = on_url(DenyToolParamMatching, matches="(")
        finding = rule.check(Case(action=Action.tool_call("http_request")))
        assert finding == Finding("the pattern does not compile: missing ), unterminated subpattern at position 0")


class TestAllowToolParam:
    @pytest.mark.parametrize(
        ("allow", "value", "said"),
        [
            (["A", "B"], "B", "pass"),
            (["A", "B"], "C", "deny"),
            (["A", "B"], "a", "deny"),
            ([10], 10.0, "pass"),
            ([10], "10", "deny"),
            ([1], True, "deny"),
            ([None], None, "pass"),
            ([["A"]], ["A"], "pass"),
            (["A"], ["A"], "deny"),
            ([], "A", "deny"),
        ],
    )
    def test_denies_unless_equal_to_an_entry(self, allow: list[Any], value: Any, said: str) -> None:
        """By exact JSON value; an empty list and an unlisted value deny."""
        assert effect(on_url(AllowToolParam, allow=allow), url=value) == said

    def test_absent_denies(self) -> None:
        """Leaving the parameter out is no way around."""
        assert effect(on_url(AllowToolParam, allow=["A"])) == "deny"

    @pytest.mark.parametrize(
        ("items", "said"),
        [
            ([{"sku": "A"}, {"sku": "B"}], "pass"),
            ([{"sku": "A"}, {"sku": "C"}], "deny"),
            ([{"sku": "A"}, {}], "deny"),
            ([], "deny"),
            ("A", "deny"),
        ],
    )
    def test_every_value_has_to_be_listed(self, items: Any, said: str) -> None:
        """One item without it denies, and so does none at all."""
        rule = AllowToolParam(tool="http_request", param="/items/*/sku", allow=["A", "B"])
        assert effect(rule, items=items) == said

    def test_its_values_cannot_be_changed_afterwards(self) -> None:
        """The rule keeps a copy."""
        allow: list[Any] = [["A"]]
        rule = on_url(AllowToolParam, allow=allow)
        allow[0].append("B")
        allow.append("C")
        assert (effect(rule, url=["A"]), effect(rule, url="C")) == ("pass", "deny")


class TestAllowToolParamMatching:
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            ("https://api.test/x", "pass"),
            ("https://evil.test/?https://api.test/x", "deny"),
            ("https://api.test/x\n", "deny"),
            (["https://api.test/x"], "deny"),
            ({"a": "https://api.test/x"}, "deny"),
            (None, "deny"),
            (7, "deny"),
        ],
    )
    def test_the_whole_string_form_has_to_match(self, value: Any, said: str) -> None:
        """A part is not enough; an object or array never matches."""
        assert effect(on_url(AllowToolParamMatching, matches=r"https://api\.test/\w*"), url=value) == said

    def test_absent_denies_and_so_does_one_absent_item(self) -> None:
        """As for the list of values."""
        assert effect(on_url(AllowToolParamMatching, matches=".*")) == "deny"
        rule = AllowToolParamMatching(tool="http_request", param="/items/*/sku", matches="[A-Z]")
        assert effect(rule, items=[{"sku": "A"}, {"sku": "B"}]) == "pass"
        assert effect(rule, items=[{"sku": "A"}, {}]) == effect(rule, items=[]) == "deny"

    def test_a_pattern_that_does_not_compile_denies_every_call(self) -> None:
        """And says why."""
        finding = on_url(AllowToolParamMatching, matches=BACKREFERENCE).check(
            Case(action=Action.tool_call("http_request", {"url": "aa"}))
        )
        assert finding is not None
        assert finding.reason.startswith("the pattern does not compile on the linear-time engine")


class TestLimitToolParam:
    @pytest.mark.parametrize(
        ("value", "said"),
        [
            (1, "pass"),
            (100, "pass"),
            (99.5, "pass"),
            (0.999, "deny"),
            (100.5, "deny"),
            (2**63, "deny"),
            ("50", "deny"),
            (True, "deny"),
            (None, "deny"),
            ([50], "deny"),
        ],
    )
    def test_denies_what_is_no_number_within_the_bounds(self, value: Any, said: str) -> None:
        """Both ends are allowed."""
        assert effect(on_url(LimitToolParam, min=1, max=100), url=value) == said

    def test_one_bound_is_enough(self) -> None:
        """The other side is open."""
        assert effect(on_url(LimitToolParam, max=5), url=-1000) == "pass"
        assert effect(on_url(LimitToolParam, min=5), url=1000) == "pass"

    def test_absent_denies(self) -> None:
        """A ceiling is no ceiling where leaving the field out passes."""
        assert effect(on_url(LimitToolParam, max=5)) == "deny"
        rule = LimitToolParam(tool="http_request", param="/items/*/qty", max=5)
        assert effect(rule, items=[{"qty": 5}]) == "pass"
        assert effect(rule, items=[{"qty": 5}, {}]) == effect(rule, items=[]) == "deny"


class TestRequireState:
    def test_denies_unless_the_fact_has_the_value(self) -> None:
        """Exact JSON; a fact that is not known is not as required, not even null."""
        rule = RequireState(key="open", value=True)
        facts: list[Any] = [{"open": True}, {"open": 1}, {"open": None}, {}]
        cases = [Case(action=Action.tool_call("pay"), state=StateStore(fact)) for fact in facts]
        assert [rule.check(case) is None for case in cases] == [True, False, False, False]
        assert RequireState(key="open", value=None).check(cases[3]) == Finding("state 'open' is not as required")
        assert (rule.name, rule.tools) == ("require_state:open", "*")


class TestRequireApproval:
    def test_asks_for_every_call_without_a_param(self) -> None:
        """Whatever the arguments."""
        rule = RequireApproval(tool="http_request")
        assert effect(rule) == effect(rule, url=1) == "ask"
        assert rule.name == "require_approval:http_request"

    @pytest.mark.parametrize(
        ("settings", "value", "said"),
        [
            ({"equals": "a"}, "a", "ask"),
            ({"equals": "a"}, "b", "pass"),
            ({"contains": "a"}, "cat", "ask"),
            ({"matches": "^a"}, "cat", "pass"),
            ({"above": 100}, 100, "pass"),
            ({"above": 100}, 100.01, "ask"),
            ({"above": 100}, "5", "ask"),
            ({"above": 100}, True, "ask"),
            ({"above": 100, "contains": "1"}, 200, "pass"),
            ({}, None, "ask"),
        ],
    )
    def test_asks_where_the_condition_holds(self, settings: dict[str, Any], value: Any, said: str) -> None:
        """All that is given has to hold; what is no number, or left out, is not known to be small."""
        assert effect(on_url(RequireApproval, **settings), url=value) == said
        assert effect(on_url(RequireApproval, **settings)) == ("ask" if "above" in settings else "pass")

    def test_one_of_the_values_is_enough(self) -> None:
        """With a wildcard, any asks."""
        rule = RequireApproval(tool="http_request", param="/items/*/qty", above=5)
        assert effect(rule, items=[{"qty": 1}, {"qty": 6}]) == "ask"
        assert rule.name == "require_approval:http_request/items/*/qty"

    def test_a_pattern_that_does_not_compile_denies(self) -> None:
        """To ask for everything would hide the mistake."""
        assert effect(on_url(RequireApproval, matches=BACKREFERENCE), url="x") == "deny"

    def test_a_condition_needs_its_param(self) -> None:
        """Or it would be about nothing."""
        with pytest.raises(InvalidPolicy) as caught:
            RequireApproval(tool="pay", above=3)
        assert caught.value.where == "param"


class Till:
    """An engine and a store, and calls that are judged and committed as the pipeline does it."""

    def __init__(self, *rules: Rule) -> None:
        self.engine = PolicyEngine(rules)
        self.now_ns = 0
        self.store = MemoryStore(clock=lambda: self.now_ns)
        self.call_ids = itertools.count()

    def case(self, tool: str, who: str = "ann", session: str = "s1", **parameters: Any) -> Case:
        scope = Scope(principal=who, session_id=session)
        windows = self.engine.windows(tool, scope)
        snapshot = self.store.load(
            Query(principal=who, session_id=session, root_id=session, tool=tool, windows=windows)
        )
        return Case(action=Action.tool_call(tool, parameters), scope=scope, used=snapshot.used, flags=snapshot.flags)

    def commit(self, case: Case) -> None:
        event = AuditEvent(
            outcome=Outcome.AUTHORIZED, time_ns=0, call_id=f"call-{next(self.call_ids)}", tool=case.action.tool
        )
        self.store.commit(
            Change(event=event, root_id=case.scope.session_id, reservation=self.engine.judge(case).reservation)
        )

    def call(self, tool: str, **who_and_parameters: Any) -> str:
        case = self.case(tool, **who_and_parameters)
        violations = self.engine.judge(case).violations
        if violations:
            return violations[0].policy_name
        self.commit(case)
        return "ran"


class TestRateLimitTool:
    def test_is_a_sliding_window(self) -> None:
        """Each call leaves the window when its own time is over."""
        till = Till(RateLimitTool(tool="pay", max_calls=2, interval_secs=10.5))
        said = []
        for second in (0, 4, 5, 10, 10.5, 14, 14.5):
            till.now_ns = int(second * 1e9)
            said.append(till.call("pay"))
        denied = "rate_limit_tool:pay"
        assert said == ["ran", "ran", denied, denied, "ran", denied, "ran"]

    def test_zero_denies_all(self) -> None:
        """Without a call made."""
        assert Till(RateLimitTool(tool="pay", max_calls=0, interval_secs=1)).call("pay") == "rate_limit_tool:pay"
        assert effect(RateLimitTool(tool="*", max_calls=0, interval_secs=1)) == "deny"

    def test_a_preview_and_a_denied_call_spend_nothing(self) -> None:
        """Only the commit takes a slot."""
        till = Till(RateLimitTool(tool="pay", max_calls=1, interval_secs=10), DenyToolParam(tool="pay", param="to"))
        for _ in range(5):
            till.engine.judge(till.case("pay"))
            till.engine.check(Action.tool_call("pay"))
            assert till.call("pay", to="me") == "deny_tool_param:pay.to"
        assert [till.call("pay"), till.call("pay")] == ["ran", "rate_limit_tool:pay"]

    @pytest.mark.parametrize(
        ("per", "said"),
        [
            ("principal", ["ran", "deny", "deny", "ran"]),
            ("session", ["ran", "deny", "ran", "ran"]),
            ("everyone", ["ran", "deny", "deny", "deny"]),
        ],
    )
    def test_counts_per_principal_session_or_all(self, per: Any, said: list[str]) -> None:
        """By default, a principal cannot open a second session to start anew."""
        till = Till(RateLimitTool(tool="pay", max_calls=1, interval_secs=10, per=per))
        people = [("ann", "s1"), ("ann", "s1"), ("ann", "s2"), ("bob", "s3")]
        outcomes = [till.call("pay", who=who, session=session) for who, session in people]
        assert ["ran" if outcome == "ran" else "deny" for outcome in outcomes] == said

    def test_the_tools_of_a_glob_share_it(self) -> None:
        """Or each tool would bring its own window."""
        till = Till(RateLimitTool(tool="pay_*", max_calls=1, interval_secs=10))
        assert [till.call("pay_card"), till.call("pay_cash")] == ["ran", "rate_limit_tool:pay_*"]

    def test_another_limit_keeps_what_was_counted(self) -> None:
        """An edit of `max_calls` does not empty the window."""
        keys = {
            RateLimitTool(tool="pay", max_calls=limit, interval_secs=10).windows("pay", Scope(principal="ann"))
            for limit in (1, 2)
        }
        assert len(keys) == 1

    def test_twenty_threads_on_a_limit_of_one_run_one(self) -> None:
        """All are judged before any commits; the commit decides."""
        till = Till(RateLimitTool(tool="pay", max_calls=1, interval_secs=10))
        judged, results = threading.Barrier(20), []

        def call() -> None:
            case = till.case("pay")
            assert till.engine.judge(case).violations == ()
            judged.wait()
            try:
                till.commit(case)
                results.append("ran")
            except Conflict as conflict:
                results.append(conflict.name)

        threads = [threading.Thread(target=call) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == ["ran"] + ["rate_limit_tool:pay"] * 19


class TestBudgetToolParam:
    def test_sums_up_over_a_window(self) -> None:
        """At most 1,000 a day, in whatever pieces; what left the window is free again."""
        till = Till(BudgetToolParam(tool="pay", param="amount", max=1000, interval_secs=86_400))
        denied = "budget_tool_param:pay.amount"
        assert [till.call("pay", amount=amount) for amount in (600, 400.5, 400, 0.01, 0)] == [
            "ran",
            denied,
            "ran",
            denied,
            "ran",
        ]
        till.now_ns = 86_400 * 10**9
        assert till.call("pay", amount=1000) == "ran"

    def test_adds_decimals_exactly(self) -> None:
        """Ten tenths are one, and not a hair more."""
        till = Till(BudgetToolParam(tool="pay", param="amount", max=1, interval_secs=10))
        assert [till.call("pay", amount=0.1) for _ in range(10)] == ["ran"] * 10
        assert till.call("pay", amount=0.1) == "budget_tool_param:pay.amount"

    @pytest.mark.parametrize("amount", [-1, -0.01, "5", True, None, [1]])
    def test_what_cannot_be_added_up_is_denied(self, amount: Any) -> None:
        """A negative amount would give budget back."""
        rule = BudgetToolParam(tool="http_request", param="amount", max=1000, interval_secs=10)
        assert effect(rule, amount=amount) == "deny"
        assert effect(rule) == "deny"

    def test_adds_up_all_items_of_a_call(self) -> None:
        """With a wildcard, their sum counts, and none may be missing."""
        till = Till(BudgetToolParam(tool="pay", param="/items/*/price", max=10, interval_secs=10))
        denied = "budget_tool_param:pay/items/*/price"
        assert till.call("pay", items=[{"price": 4}, {"price": 7}]) == denied
        assert till.call("pay", items=[{"price": 4}, {}]) == denied
        assert till.call("pay", items=[]) == denied
        assert till.call("pay", items=[{"price": 4}, {"price": 6}]) == "ran"

    def test_reserves_the_exact_amount(self) -> None:
        """As a decimal, as it was written."""
        (slot,) = (
            PolicyEngine([BudgetToolParam(tool="pay", param="amount", max=2.5, interval_secs=1)])
            .judge(Case(action=Action.tool_call("pay", {"amount": 0.1}), scope=Scope(principal="ann")))
            .reservation.slots
        )
        assert (slot.amount, slot.limit, slot.rule) == (Decimal("0.1"), Decimal("2.5"), "budget_tool_param:pay.amount")
        assert slot.window.key == "budget_tool_param:pay.amount:1000000000:principal:ann"


class TestDenyAfter:
    def test_denies_the_later_tool_once_the_earlier_one_has_run(self) -> None:
        """In that session; before it, and elsewhere, both run."""
        till = Till(DenyAfter(tool="send_mail", after="read_inbox"))
        denied = "deny_after:send_mail:read_inbox"
        assert [till.call(tool) for tool in ("send_mail", "read_inbox", "send_mail", "read_inbox", "other")] == [
            "ran",
            "ran",
            denied,
            "ran",
            "ran",
        ]
        assert till.call("send_mail", session="s2") == "ran"

    def test_the_flag_is_set_in_the_commit_only(self) -> None:
        """A preview of the earlier tool forbids nothing."""
        till = Till(DenyAfter(tool="send_mail", after="read_*"))
        till.engine.judge(till.case("read_inbox"))
        assert till.call("send_mail") == "ran"
        assert till.call("read_inbox") == "ran"
        assert till.call("send_mail") == "deny_after:send_mail:read_*"

    def test_the_commit_looks_again(self) -> None:
        """A call that was judged before the earlier tool ran does not slip through after it."""
        till = Till(DenyAfter(tool="send_mail", after="read_inbox"))
        judged = till.case("send_mail")
        assert till.engine.judge(judged).violations == ()
        assert till.call("read_inbox") == "ran"
        with pytest.raises(Conflict) as caught:
            till.commit(judged)
        assert (caught.value.what, caught.value.name) == ("flag", "deny_after:send_mail:read_inbox")

    def test_a_tool_after_itself_runs_once(self) -> None:
        """Once a session."""
        till = Till(DenyAfter(tool="pay", after="pay"))
        assert [till.call("pay"), till.call("pay")] == ["ran", "deny_after:pay:pay"]

    def test_is_a_rule_of_both_its_tools_and_of_no_other(self) -> None:
        """So that the calls of other tools do not pay for it."""
        engine = PolicyEngine([DenyAfter(tool="send_*", after="read_inbox")])
        assert [len(engine.rules_for(tool)) for tool in ("send_mail", "read_inbox", "other")] == [1, 1, 0]


class TestNarrow:
    SCHEMA: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"url": {"type": "string"}, "n": {"type": "integer"}},
    }

    def test_the_values_of_an_allow_rule_become_an_enum(self) -> None:
        """The model is shown what is permitted."""
        narrowed = on_url(AllowToolParam, allow=["a", "b"]).narrow(self.SCHEMA)
        assert narrowed["properties"]["url"]["enum"] == ["a", "b"]
        assert "enum" not in self.SCHEMA["properties"]["url"]

    def test_nested_values_are_narrowed_too(self) -> None:
        """By the same pointer that the rule looks under."""
        item = {"type": "object", "properties": {"sku": {"type": "string"}}}
        schema = {"type": "object", "properties": {"items": {"type": "array", "items": item}}}
        rule = AllowToolParam(tool="http_request", param="/items/*/sku", allow=["A"])
        assert rule.narrow(schema)["properties"]["items"]["items"]["properties"]["sku"]["enum"] == ["A"]

    def test_limits_become_minimum_and_maximum(self) -> None:
        """Those that are given."""
        rule = LimitToolParam(tool="http_request", param="n", min=1, max=5)
        narrowed = rule.narrow(self.SCHEMA)["properties"]["n"]
        assert (narrowed["minimum"], narrowed["maximum"]) == (1, 5)

    @pytest.mark.parametrize(
        "rule", [on_url(AllowToolParam), on_url(DenyToolParam), DenyTool(tool="x"), RequireApproval(tool="x")]
    )
    def test_other_rules_change_nothing(self, rule: Rule) -> None:
        """Nor does an empty list of values, which no model's API would take for an enum."""
        assert rule.narrow(self.SCHEMA) == self.SCHEMA


@pytest.mark.parametrize(
    ("kind", "settings", "where"),
    [
        (DenyTool, {"tool": ""}, "tool"),
        (DenyTool, {"tool": "mail.*"}, "tool"),
        (DenyTool, {"tool": None}, "tool"),
        (DenyAfter, {"tool": "a", "after": "b c"}, "after"),
        (DenyKeyword, {"keyword": ""}, "keyword"),
        (DenyKeyword, {"keyword": 3}, "keyword"),
        (DenyToolParam, {"tool": "a", "param": ""}, "param"),
        (DenyToolParam, {"tool": "a", "param": "b", "equals": float("nan")}, "equals"),
        (DenyToolParam, {"tool": "a", "param": "b", "equals": (1,)}, "equals"),
        (DenyToolParam, {"tool": "a", "param": "b", "contains": ""}, "contains"),
        (DenyToolParamMatching, {"tool": "a", "param": "b", "matches": ""}, "matches"),
        (DenyToolParamMatching, {"tool": "a", "param": "b", "matches": "a" * 5000}, "matches"),
        (AllowToolParam, {"tool": "a", "param": "b", "allow": "abc"}, "allow"),
        (AllowToolParam, {"tool": "a", "param": "b", "allow": [object()]}, "allow"),
        (LimitToolParam, {"tool": "a", "param": "b"}, "max"),
        (LimitToolParam, {"tool": "a", "param": "b", "min": 2, "max": 1}, "max"),
        (LimitToolParam, {"tool": "a", "param": "b", "max": True}, "max"),
        (LimitToolParam, {"tool": "a", "param": "b", "min": "1"}, "min"),
        (RateLimitTool, {"tool": "a", "max_calls": -1, "interval_secs": 1}, "max_calls"),
        (RateLimitTool, {"tool": "a", "max_calls": 1.5, "interval_secs": 1}, "max_calls"),
        (RateLimitTool, {"tool": "a", "max_calls": 1, "interval_secs": 0}, "interval_secs"),
        (RateLimitTool, {"tool": "a", "max_calls": 1, "interval_secs": float("inf")}, "interval_secs"),
        (RateLimitTool, {"tool": "a", "max_calls": 1, "interval_secs": 1e12}, "interval_secs"),
        (RateLimitTool, {"tool": "a", "max_calls": 1, "interval_secs": 1, "per": "me"}, "per"),
        (BudgetToolParam, {"tool": "a", "param": "b", "max": -1, "interval_secs": 1}, "max"),
        (RequireState, {"key": "", "value": 1}, "key"),
        (RequireState, {"key": "a", "value": {1}}, "value"),
        (RequireApproval, {"tool": "a", "param": "b", "above": "3"}, "above"),
    ],
)
def test_settings_that_make_no_sense_are_refused(kind: Any, settings: dict[str, Any], where: str) -> None:
    """The error says which setting it is."""
    with pytest.raises(InvalidPolicy) as caught:
        kind(**settings)
    assert caught.value.where == where


EXAMPLES: list[Any] = [
    DenyTool(tool="a"),
    DenyKeyword(keyword="k"),
    DenyToolParam(tool="a", param="b", equals=None),
    DenyToolParamMatching(tool="a", param="b", matches="c"),
    AllowToolParam(tool="a", param="b", allow=("c",)),
    AllowToolParamMatching(tool="a", param="b", matches="c"),
    LimitToolParam(tool="a", param="b", max=3),
    RateLimitTool(tool="a", max_calls=1, interval_secs=1.5),
    BudgetToolParam(tool="a", param="b", max=3, interval_secs=1, per="session"),
    DenyAfter(tool="a", after="b"),
    RequireState(key="a", value=[1], tool="b"),
    RequireApproval(tool="a", param="b", above=3, enforce=False),
    RequireOrigin(tool="a", param="b", accept=("user",), ask=("named",), returned_by=("c*",)),
]


def test_there_is_an_example_of_every_kind() -> None:
    """The tests below leave none out."""
    assert [type(rule) for rule in EXAMPLES] == list(KINDS.values())
    assert all(name == kind.kind for name, kind in KINDS.items())


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.kind)
def test_a_spec_makes_the_same_rule_again(rule: Any) -> None:
    """It holds the settings, those with a default left out, and names the kind."""
    spec = dict(rule.spec)
    made = KINDS[spec.pop("kind")](**spec)
    assert made == rule
    assert made.spec == rule.spec
    assert "description" not in spec


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.kind)
def test_a_reason_never_quotes_the_arguments(rule: Any) -> None:
    """Reasons end up in logs; what a model sent does not."""
    secret = "sk-12345"
    parameters = {"b": [secret, {secret: secret}], secret: f"k {secret}"}
    case = Case(action=Action.tool_call("a", parameters), flags=frozenset({"deny_after:a:b"}))
    finding = rule.check(case)
    assert secret not in repr(finding)
    assert secret not in repr(rule)


def test_several_rules_on_one_tool_are_conjunctive() -> None:
    """A call has to pass all of them."""
    engine = PolicyEngine(
        [
            on_url(AllowToolParam, allow=["a", "b"]),
            on_url(DenyToolParam, equals="b"),
            RateLimitTool(tool="http_request", max_calls=5, interval_secs=1),
        ]
    )
    verdicts = {
        url: [violation.policy_name for violation in engine.check(Action.tool_call("http_request", {"url": url}))]
        for url in ("a", "b", "c")
    }
    assert verdicts == {
        "a": [],
        "b": ["deny_tool_param:http_request.url"],
        "c": ["allow_tool_param:http_request.url"],
    }
    assert engine.policy_names()[-1] == "rate_limit_tool:http_request"

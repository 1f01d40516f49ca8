"""The engine of the second source system: every sentence of its page, and what is added here."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.ground.errors import PolicyDenied
from guarded_core.rules.case import Action, Case, Finding, Reservation, Rule, Scope, Window
from guarded_core.rules.engine import Judgement, PolicyEngine, PolicyViolation
from guarded_core.rules.kinds import (
    AllowToolParam,
    BudgetToolParam,
    DenyAfter,
    DenyKeyword,
    DenyTool,
    DenyToolParam,
    LimitToolParam,
    RateLimitTool,
    RequireApproval,
)
from guarded_core.rules.state import StateStore

DEPLOY = Action.tool_call("deploy", {"env": "prod"}, id="call-1")


def no(action: Action, state: StateStore) -> str | None:
    """Refuses everything."""
    return "no"


def judge(engine: PolicyEngine, tool: str, **parameters: Any) -> Judgement:
    """What the engine says of a call outside any session."""
    return engine.judge(Case(action=Action.tool_call(tool, parameters)))


class TestRegister:
    def test_an_empty_engine_says_nothing(self) -> None:
        """`PolicyEngine()` is empty, objects to nothing, and names nothing."""
        engine = PolicyEngine()
        assert engine.is_empty
        assert engine.check(DEPLOY, StateStore()) == []
        assert engine.policy_names() == engine.policy_details() == engine.blanket_denied_tools() == []

    def test_a_check_sees_action_and_state_and_gives_the_reason(self) -> None:
        """`check(action, state)` returns why not, or None; the violation carries name, action id and reason."""
        engine = PolicyEngine()
        engine.register(
            "freeze",
            lambda action, state: "frozen" if action.tool == "deploy" and state.get("frozen") else None,
            "No deploys in a freeze.",
        )
        assert engine.check(DEPLOY, StateStore()) == []
        assert engine.check(DEPLOY, StateStore({"frozen": True})) == [PolicyViolation("freeze", "call-1", "frozen")]
        assert not engine.is_empty

    def test_appends_and_never_removes_duplicates(self) -> None:
        """Registering a name twice leaves both, in order of registration."""
        engine = PolicyEngine()
        for name, description in [("b", "1"), ("a", "2"), ("b", "3")]:
            engine.register(name, no, description)
        assert engine.policy_names() == ["b", "a", "b"]
        assert engine.policy_details() == [("b", "1"), ("a", "2"), ("b", "3")]
        assert [violation.policy_name for violation in engine.check(DEPLOY)] == ["b", "a", "b"]

    def test_all_policies_run_and_all_violations_are_collected(self) -> None:
        """No violation stops the others from being found."""
        engine = PolicyEngine([DenyTool(tool="deploy"), DenyKeyword(keyword="prod")])
        engine.register("never", no)
        assert [violation.policy_name for violation in engine.check(DEPLOY)] == [
            "deny_tool:deploy",
            "deny_keyword:prod",
            "never",
        ]

    @pytest.mark.parametrize("error", [ValueError("sk-secret"), RecursionError(), KeyError("sk-secret")])
    def test_a_check_that_raises_is_a_violation(self, error: Exception) -> None:
        """The error's type is the reason, never its text; the other checks still run."""

        def broken(action: Action, state: StateStore) -> str | None:
            raise error

        engine = PolicyEngine()
        engine.register("broken", broken)
        engine.register("never", no)
        assert engine.check(DEPLOY) == [
            PolicyViolation("broken", "call-1", f"the rule failed: {type(error).__name__}"),
            PolicyViolation("never", "call-1", "no"),
        ]

    @pytest.mark.parametrize("answer", ["", False, True, 0, object()])
    def test_anything_but_none_is_a_violation(self, answer: Any) -> None:
        """A check that answers nonsense has not said yes."""
        engine = PolicyEngine()
        engine.register("odd", lambda action, state: answer)
        assert [violation.policy_name for violation in engine.check(DEPLOY)] == ["odd"]

    def test_an_interrupt_is_no_violation(self) -> None:
        """KeyboardInterrupt is the user's, and passes through."""

        def interrupted(action: Action, state: StateStore) -> str | None:
            raise KeyboardInterrupt

        engine = PolicyEngine()
        engine.register("interrupted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.check(DEPLOY)

    def test_check_takes_a_wish_for_approval_as_an_objection(self) -> None:
        """Nobody can be asked in `check`, so a rule that asks refuses there."""
        engine = PolicyEngine([RequireApproval(tool="deploy")])
        assert [violation.policy_name for violation in engine.check(DEPLOY)] == ["require_approval:deploy"]


class TestUnregister:
    def test_removes_every_policy_of_the_name(self) -> None:
        """The count is how many there were, 0 when nothing matched."""
        engine = PolicyEngine()
        for name in ("a", "b", "a"):
            engine.register(name, no)
        assert engine.unregister("a") == 2
        assert engine.unregister("a") == 0
        assert engine.policy_names() == ["b"]

    def test_clear_removes_all(self) -> None:
        """The count is how many there were."""
        engine = PolicyEngine([DenyTool(tool="deploy")])
        engine.register("a", no)
        assert engine.clear() == 2
        assert engine.clear() == 0
        assert engine.is_empty
        assert engine.check(DEPLOY) == []


class TestBlanketDenials:
    def test_are_the_deny_tool_kind_and_only_that(self) -> None:
        """Other rules can be total too, but it cannot be told from their kind: the tool is shown, and then refused."""
        engine = PolicyEngine(
            [
                DenyTool(tool="deploy"),
                AllowToolParam(tool="allow", param="p"),
                RateLimitTool(tool="rate", max_calls=0, interval_secs=1),
                DenyToolParam(tool="param", param="p"),
            ]
        )
        engine.register("everything", no)
        assert engine.blanket_denied_tools() == ["deploy"]

    def test_a_check_in_code_can_declare_one(self) -> None:
        """`register_tool_deny` registers the check with its own wording, and the fact that it forbids the tool."""
        engine = PolicyEngine()
        engine.register_tool_deny(
            "ours", "deploy", lambda action, state: "ask Lee" if action.tool == "deploy" else None
        )
        assert engine.blanket_denied_tools() == ["deploy"]
        assert engine.check(DEPLOY) == [PolicyViolation("ours", "call-1", "ask Lee")]
        assert engine.check(Action.tool_call("other")) == []

    def test_are_sorted_and_go_with_their_entries(self) -> None:
        """Of two entries for one tool, one can go; with the last one, the tool is shown again."""
        engine = PolicyEngine([DenyTool(tool="b"), DenyTool(tool="a")])
        engine.register_tool_deny("ours", "a", no)
        assert engine.blanket_denied_tools() == ["a", "b"]
        engine.unregister("deny_tool:a")
        assert engine.blanket_denied_tools() == ["a", "b"]
        engine.unregister("ours")
        assert engine.blanket_denied_tools() == ["b"]
        engine.clear()
        assert engine.blanket_denied_tools() == []

    def test_a_glob_counts_for_the_names_that_are_asked_about(self) -> None:
        """A glob cannot be listed; given the names there are, it is."""
        engine = PolicyEngine([DenyTool(tool="mail_*"), DenyTool(tool="deploy")])
        assert engine.blanket_denied_tools() == ["deploy"]
        assert engine.blanket_denied_tools(["mail_send", "search", "deploy", "mail_read"]) == [
            "deploy",
            "mail_read",
            "mail_send",
        ]

    def test_an_unenforced_rule_hides_nothing(self) -> None:
        """With `enforce = false` the tool stays on show."""
        assert PolicyEngine([DenyTool(tool="deploy", enforce=False)]).blanket_denied_tools(["deploy"]) == []


class TestJudge:
    def test_denials_and_wishes_for_approval_are_told_apart(self) -> None:
        """Which of the two prevails is the flow's to say; both come in order."""
        engine = PolicyEngine([RequireApproval(tool="pay"), DenyToolParam(tool="pay", param="to", equals="me")])
        judgement = judge(engine, "pay", to="me")
        assert [ask.policy_name for ask in judgement.asks] == ["require_approval:pay"]
        assert [violation.policy_name for violation in judgement.violations] == ["deny_tool_param:pay.to"]

    def test_order_of_registration_holds_across_exact_names_globs_and_every_tool(self) -> None:
        """However a rule names its tools, its place is its own."""
        engine = PolicyEngine(
            [DenyKeyword(keyword="x"), DenyTool(tool="pay"), DenyTool(tool="p*"), DenyKeyword(keyword="y")]
        )
        engine.register("code", no)
        engine.add(DenyToolParam(tool="pay", param="a"))
        assert [violation.policy_name for violation in judge(engine, "pay", a="xy").violations] == [
            "deny_keyword:x",
            "deny_tool:pay",
            "deny_tool:p*",
            "deny_keyword:y",
            "code",
            "deny_tool_param:pay.a",
        ]

    @pytest.mark.parametrize(
        ("pattern", "named"),
        [
            ("mail_*", {"mail_send", "mail_"}),
            ("mail_?", {"mail_1"}),
            ("*", {"mail_send", "mail_", "mail_1", "Mail_1", "x"}),
        ],
    )
    def test_a_glob_covers_tools_that_come_later(self, pattern: str, named: set[str]) -> None:
        """Upper and lower case differ."""
        engine = PolicyEngine([DenyTool(tool=pattern)])
        if pattern == "mail_*":
            named = named | {"mail_1"}
        tools = ["mail_send", "mail_", "mail_1", "Mail_1", "x"]
        assert {tool for tool in tools if judge(engine, tool).violations} == named

    def test_an_unenforced_rule_is_recorded_and_does_nothing(self) -> None:
        """Its name is in `would`; it refuses, asks and narrows nothing."""
        engine = PolicyEngine(
            [
                DenyTool(tool="pay", enforce=False),
                RequireApproval(tool="pay", enforce=False),
                AllowToolParam(tool="pay", param="to", allow=["you"], enforce=False),
            ]
        )
        assert judge(engine, "pay", to="me") == Judgement(
            would=("deny_tool:pay", "require_approval:pay", "allow_tool_param:pay.to")
        )
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        assert engine.narrow("pay", schema) == schema
        assert engine.check(Action.tool_call("pay", {"to": "me"})) == []

    def test_an_unenforced_rate_counts_without_limiting(self) -> None:
        """It must count, or it could never say that it would have denied; and what it counts never refuses a commit."""
        engine = PolicyEngine([RateLimitTool(tool="pay", max_calls=1, interval_secs=60, enforce=False)])
        (slot,) = judge(engine, "pay").reservation.slots
        assert (slot.amount, slot.limit.is_infinite()) == (1, True)
        full = Case(action=Action.tool_call("pay"), used={slot.window.key: slot.amount})
        assert engine.judge(full) == Judgement(would=("rate_limit_tool:pay",))

    def test_reservations_are_joined(self) -> None:
        """The commit takes what all rules need, at once."""
        engine = PolicyEngine(
            [
                RateLimitTool(tool="pay", max_calls=3, interval_secs=60),
                BudgetToolParam(tool="pay", param="amount", max=100, interval_secs=60),
                DenyAfter(tool="mail", after="pay"),
            ]
        )
        reservation = judge(engine, "pay", amount=7).reservation
        assert [(slot.rule, slot.amount, slot.limit) for slot in reservation.slots] == [
            ("rate_limit_tool:pay", 1, 3),
            ("budget_tool_param:pay.amount", 7, 100),
        ]
        assert (reservation.raises, reservation.forbids) == ({"deny_after:mail:pay"}, frozenset())

    def test_rules_that_count_the_same_count_it_once(self) -> None:
        """Rules are conjunctive: of two limits in one window the tighter one holds, and a call is one call."""
        limits = [RateLimitTool(tool="pay", max_calls=limit, interval_secs=60) for limit in (5, 2, 5)]
        (slot,) = judge(PolicyEngine(limits), "pay").reservation.slots
        assert (slot.amount, slot.limit) == (1, 2)

    def test_a_rule_that_cannot_reserve_refuses(self) -> None:
        """What cannot be counted is not allowed."""
        assert judge(PolicyEngine([Broken(at="reserve")]), "pay").violations == (
            PolicyViolation("broken", "", "the rule failed: ZeroDivisionError"),
        )

    def test_a_rule_that_cannot_name_its_windows_refuses(self) -> None:
        """Its windows would look empty otherwise; an unenforced one is passed over."""
        with pytest.raises(PolicyDenied) as caught:
            PolicyEngine([Broken(at="windows")]).windows("pay", Scope())
        assert caught.value.violations == (PolicyViolation("broken", "", "the rule failed: ZeroDivisionError"),)
        assert PolicyEngine([Broken(at="windows", enforce=False)]).windows("pay", Scope()) == ()

    def test_a_rule_that_cannot_narrow_is_passed_over(self) -> None:
        """What a model is shown is a courtesy; the call is judged all the same."""
        engine = PolicyEngine([Broken(at="narrow"), LimitToolParam(tool="pay", param="amount", max=5)])
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}
        assert engine.narrow("pay", schema)["properties"]["amount"]["maximum"] == 5

    def test_windows_are_those_of_the_tool_each_once(self) -> None:
        """A judgement reads what its rules read."""
        engine = PolicyEngine(
            [RateLimitTool(tool=tool, max_calls=1, interval_secs=2) for tool in ("pay", "pay", "mail")]
        )
        assert engine.windows("pay", Scope(principal="ann")) == (
            Window(key="rate_limit_tool:pay:2000000000:principal:ann", interval_ns=2_000_000_000),
        )

    def test_a_judgement_asks_only_the_rules_of_its_tool(self) -> None:
        """Ten thousand rules of other tools are not looked at."""
        asked: list[str] = []

        class Asked(Broken):
            def check(self, case: Case) -> Finding | None:
                asked.append(str(self.tools))
                return None

        engine = PolicyEngine(Asked(at="", tools=f"tool_{number}") for number in range(10_000))
        judge(engine, "tool_77")
        assert asked == ["tool_77"]
        assert [rule.tools for rule in engine.rules_for("tool_78")] == ["tool_78"]

    def test_made_up_names_are_not_kept(self) -> None:
        """A model can invent names without end; what is remembered of them is bounded."""
        engine = PolicyEngine([DenyTool(tool="*")])
        for number in range(5_000):
            assert len(engine.rules_for(f"made_up_{number}")) == 1
            assert len(engine.rules_for(f"not a name {number}")) == 1
        remembered = engine.rule_set._plans
        assert 0 < len(remembered) <= 1024
        assert not any(" " in name for name in remembered)


class Broken:
    """A rule in code that fails in one of its methods."""

    name, description, spec = "broken", "", None

    def __init__(self, *, at: str, enforce: bool = True, tools: str | None = None) -> None:
        self.at, self.enforce, self.tools = at, enforce, tools

    def _fail(self, method: str) -> None:
        if self.at == method:
            raise ZeroDivisionError

    def check(self, case: Case) -> Finding | None:
        self._fail("check")
        return None

    def windows(self, tool: str, scope: Scope) -> tuple[Window, ...]:
        self._fail("windows")
        return ()

    def reserve(self, case: Case) -> Reservation | None:
        self._fail("reserve")
        return None

    def narrow(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        self._fail("narrow")
        return schema


def test_rules_can_change_while_others_judge() -> None:
    """Every judgement sees the rules of one moment: a pair that is added and removed together is never seen halved."""
    engine = PolicyEngine([DenyTool(tool="pay")])
    seen: set[tuple[str, ...]] = set()
    stop = threading.Event()
    errors: list[BaseException] = []

    def reader() -> None:
        try:
            while not stop.is_set():
                names = [violation.policy_name for violation in judge(engine, "pay").violations]
                seen.add((names[0], *sorted(set(names[1:]))))
                engine.blanket_denied_tools(["pay"])
        except BaseException as error:
            errors.append(error)

    def writer(number: int) -> None:
        for _ in range(50):
            engine.register(f"writer-{number}", no)
            engine.register(f"writer-{number}", no)
            if engine.unregister(f"writer-{number}") != 2:
                errors.append(AssertionError("another thread's registration was lost or taken"))

    readers = [threading.Thread(target=reader) for _ in range(2)]
    writers = [threading.Thread(target=writer, args=(number,)) for number in range(4)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert errors == []
    assert {names[0] for names in seen} == {"deny_tool:pay"}
    assert engine.policy_names() == ["deny_tool:pay"]


PARAMS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from([0, 1, 5, "x", "xy", True, None, [1, "x"], {"a": 1}])
TOOLS = st.sampled_from(["pay", "mail", "p*", "*"])
RULES: st.SearchStrategy[Rule] = st.one_of(
    st.builds(DenyTool, tool=TOOLS),
    st.builds(DenyKeyword, keyword=st.sampled_from(["x", "y", "1"])),
    st.builds(DenyToolParam, tool=TOOLS, param=PARAMS),
    st.builds(DenyToolParam, tool=TOOLS, param=PARAMS, equals=VALUES),
    st.builds(AllowToolParam, tool=TOOLS, param=PARAMS, allow=st.lists(VALUES, max_size=4)),
    st.builds(LimitToolParam, tool=TOOLS, param=PARAMS, max=st.integers(0, 5)),
    st.builds(RateLimitTool, tool=TOOLS, max_calls=st.integers(0, 2), interval_secs=st.just(60)),
    st.builds(BudgetToolParam, tool=TOOLS, param=PARAMS, max=st.integers(0, 6), interval_secs=st.just(60)),
    st.builds(DenyAfter, tool=TOOLS, after=TOOLS),
    st.builds(RequireApproval, tool=TOOLS, param=PARAMS, above=st.integers(0, 5)),
)
CASES = st.builds(
    Case,
    action=st.builds(
        Action, tool=st.sampled_from(["pay", "mail"]), parameters=st.dictionaries(PARAMS, VALUES, max_size=2)
    ),
    flags=st.frozensets(st.just("deny_after:pay:mail")),
)


@given(st.lists(RULES, max_size=6), RULES, CASES)
def test_adding_a_rule_never_allows_more(rules: list[Rule], added: Rule, case: Case) -> None:
    """What was refused stays refused, what was asked is asked or refused, and what is taken never shrinks."""
    before, after = PolicyEngine(rules).judge(case), PolicyEngine([*rules, added]).judge(case)
    assert set(before.violations) <= set(after.violations)
    assert set(before.asks) <= set(after.asks)
    assert before.reservation.forbids <= after.reservation.forbids
    assert before.reservation.raises <= after.reservation.raises
    limits = {(slot.window, slot.amount): slot.limit for slot in after.reservation.slots}
    assert all(limits[slot.window, slot.amount] <= slot.limit for slot in before.reservation.slots)


@given(st.lists(RULES, max_size=5).flatmap(lambda rules: st.tuples(st.just(rules), st.permutations(rules))), CASES)
def test_the_order_of_rules_never_changes_an_outcome(orders: tuple[list[Rule], list[Rule]], case: Case) -> None:
    """It only orders the findings."""
    one, other = (PolicyEngine(rules).judge(case) for rules in orders)
    assert sorted(map(repr, one.violations)) == sorted(map(repr, other.violations))
    assert sorted(map(repr, one.asks)) == sorted(map(repr, other.asks))
    assert one.reservation.forbids == other.reservation.forbids
    assert one.reservation.raises == other.reservation.raises
    taken = [
        {(slot.window, slot.amount, slot.limit) for slot in judgement.reservation.slots} for judgement in (one, other)
    ]
    assert taken[0] == taken[1]


def test_two_engines_over_the_same_rules_in_any_order_name_the_same_blanket_denials() -> None:
    """What is hidden does not depend on order either."""
    rules: list[Rule] = [DenyTool(tool="b"), DenyTool(tool="a"), DenyTool(tool="c", enforce=False)]
    assert {tuple(PolicyEngine(order).blanket_denied_tools()) for order in itertools.permutations(rules)} == {
        ("a", "b")
    }


def test_state_goes_back_to_a_snapshot() -> None:
    """A restored snapshot has the values of its moment, whatever was set, deleted or changed in place since."""
    state = StateStore({"a": [1], "b": 2})
    snapshot = state.snapshot()
    state.set("a", [3])
    state.delete("b")
    state.restore(snapshot)
    snapshot["a"].append(9)
    assert (state.get("a"), state.get("b"), state.keys()) == ([1], 2, ["a", "b"])

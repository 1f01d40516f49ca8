"""Grants: a person's leave for more calls, within bounds that they saw. Over memory, SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from guarded_core import (
    Guard,
    HumanApprovalRequired,
    InvalidApproval,
    InvalidPolicy,
    PolicyDenied,
    ToolExecutionError,
    ToolExecutionPolicy,
    ToolSettings,
)
from guarded_core.approvals.grant import Grant, GrantState
from guarded_core.approvals.grantable import Grantable
from guarded_core.audit.event import Outcome
from guarded_core.audit.memory import InMemoryToolAuditTrail
from guarded_core.policy.file import dump_policy, parse_policy
from guarded_core.rules.kinds import DenyToolParam, RequireApproval, RequireOrigin
from guarded_core.store.base import Store

LIMITS = Grantable(calls=50, seconds=3600, free=("note",), up_to={"/amount": 500}, total={"/amount": 1000})
CALL = {"to": "Ann", "amount": 20, "note": "thanks"}


class Bank:
    """A guard with one financial tool, and one session of Lee's."""

    def __init__(self, store: Store, *rules: Any, **settings: Any) -> None:
        self.paid: list[dict[str, Any]] = []
        self.trail = InMemoryToolAuditTrail()
        self.rules = rules
        self.settings = {"risk": "financial", "grant": LIMITS, **settings}
        self.guard = Guard(self.policy(), store=store, audit=None if store.keeps_trail else self.trail)

        @self.guard.tool
        def pay(to: str, amount: float, note: str = "") -> str:
            """Pays."""
            self.paid.append({"to": to, "amount": amount, "note": note})
            return "paid"

        self.lee = self.session("lee")

    def policy(self, **settings: Any) -> ToolExecutionPolicy:
        return ToolExecutionPolicy({"pay": ToolSettings(**self.settings | settings)}, rules=self.rules)

    def session(self, who: str, **options: Any) -> Any:
        return self.guard.session(who, tools=["pay"], max_calls=1000, **options)

    def pay(self, context: Any = None, **changes: Any) -> Any:
        """Propose CALL with changes; None among them leaves the argument out."""
        arguments = {name: value for name, value in (CALL | changes).items() if value is not None}
        return self.guard.call("pay", arguments, context=context or self.lee)

    def asked(self, context: Any = None, **changes: Any) -> Any:
        """The request that this call ends in."""
        with pytest.raises(HumanApprovalRequired) as caught:
            self.pay(context, **changes)
        assert caught.value.request_id is not None
        return self.guard.approvals.get(caught.value.request_id)

    def grant(self, context: Any = None, *, by: str = "anna", **bounds: Any) -> Grant:
        """A grant given at CALL: by default 5 calls, any note, up to 100."""
        bounds = {"calls": 5, "free": ["note"], "up_to": {"amount": 100}} | bounds
        return self.guard.approvals.grant(self.asked(context).id, by=by, **bounds)

    def granted(self, context: Any = None, **bounds: Any) -> Grant:
        """As `grant`, and the call that it was given at has run, by its own approval."""
        grant = self.grant(context, **bounds)
        assert self.pay(context) == "paid"
        assert self.guard.store.grant(grant.id).used == 0
        self.paid.clear()
        return grant

    def events(self, code: str | None = None, outcome: Outcome | None = None) -> list[Any]:
        found = list(self.guard.trail.events())
        return [e for e in found if (code is None or e.code == code) and (outcome is None or e.outcome is outcome)]


@pytest.fixture
def bank(store: Store) -> Bank:
    """Over each kind of store."""
    return Bank(store)


def test_calls_within_the_bounds_run_and_the_next_one_asks(bank: Bank) -> None:
    """As many as were granted, with any note and any amount up to the bound; then a person is asked again."""
    grant = bank.granted()
    for n in range(5):
        assert bank.pay(amount=[0, 1, 99.99, 100, 50.5][n], note=f"note {n}") == "paid"
    assert len(bank.paid) == 5
    bank.asked(note="one too many")
    assert bank.guard.store.grant(grant.id).used == 5
    assert bank.guard.approvals.grants() == []


def test_asynchronously_too(bank: Bank) -> None:
    """`acall` takes the same way."""
    bank.granted(calls=1)
    assert asyncio.run(bank.guard.acall("pay", CALL | {"amount": 3}, context=bank.lee)) == "paid"
    bank.asked(amount=4)


@pytest.mark.parametrize(
    "changes",
    [{"to": "Eve"}, {"amount": 100.01}, {"amount": -1}, {"to": "Ann "}, {"to": "ann"}],
    ids=["another payee", "more", "less than nothing", "a blank", "another case"],
)
def test_what_lies_outside_asks(bank: Bank, changes: dict[str, Any]) -> None:
    """Every argument that is not free is the one that was shown; an amount is from 0 to its bound."""
    bank.granted()
    bank.asked(**changes)
    assert bank.paid == []


def test_without_free_arguments_only_the_very_same_call_runs(bank: Bank) -> None:
    """What is not named is fixed, a default that the call leaves out included."""
    bank.granted(free=[], up_to={})
    bank.asked(note="other")
    bank.asked(amount=19)
    bank.asked(note=None)
    assert bank.pay() == "paid"


def test_the_sum_of_all_calls_is_kept(bank: Bank) -> None:
    """However many calls are left: what would pass the total asks; what still fits runs. Sums are exact."""
    grant = bank.granted(calls=50, total={"amount": "100.00"})
    for amount in (0.1, 0.2, 99.7):
        assert bank.pay(amount=amount) == "paid"
    bank.asked(amount=0.01)
    assert bank.pay(amount=0) == "paid"
    assert bank.guard.store.grant(grant.id).spent == {"/amount": Decimal("100.0")}


def test_the_policys_total_holds_where_the_person_names_none(bank: Bank) -> None:
    """1000 by the policy: two calls of 500, and nothing more."""
    bank.granted(calls=50, up_to={"amount": 500})
    bank.pay(amount=500)
    bank.pay(amount=500)
    bank.asked(amount=1)


@pytest.mark.parametrize("amounts", [[100.0] * 20, [30.0] * 20], ids=["as the count allows", "as the sum allows"])
def test_threads_take_exactly_what_was_granted(bank: Bank, amounts: list[float]) -> None:
    """20 threads against 5 calls and 500.00: exactly 5, and never more than 500.00."""
    bank.granted(calls=5 if amounts[0] == 100.0 else 50, total={"amount": "500.00"})

    def pay(n: int) -> bool:
        try:
            return bool(bank.pay(amount=amounts[n], note=f"thread {n}") == "paid")
        except ToolExecutionError:
            return False

    with ThreadPoolExecutor(20) as threads:
        ran = sum(threads.map(pay, range(20)))
    assert ran == len(bank.paid) == (5 if amounts[0] == 100.0 else 16)
    assert sum(paid["amount"] for paid in bank.paid) <= 500


def test_it_is_for_one_chain_of_principals_and_one_session(bank: Bank) -> None:
    """Another person, another session of the same person, and a subagent of theirs are asked."""
    bank.granted()
    bank.asked(bank.session("kim"))
    bank.asked(bank.session("lee"))
    bank.asked(bank.lee.delegate("helper", tools=["pay"], max_calls=5))
    bank.pay()


def test_it_can_be_for_every_session_of_that_person(bank: Bank) -> None:
    """And of nobody else."""
    bank.granted(every_session=True)
    assert bank.pay(bank.session("lee"), amount=1) == "paid"
    bank.asked(bank.session("kim"))
    bank.asked(bank.lee.delegate("helper", tools=["pay"], max_calls=5))


def test_a_deny_still_denies(store: Store) -> None:
    """Grants are matched after the rules."""
    bank = Bank(store, DenyToolParam(tool="pay", param="note", equals="bribe"))
    bank.granted()
    with pytest.raises(PolicyDenied):
        bank.pay(note="bribe")
    assert bank.paid == []


def test_a_rule_that_did_not_ask_then_asks_now(store: Store) -> None:
    """The person answered the reasons that they saw: a rule that asks above 50 was none of them."""
    bank = Bank(store, RequireApproval(tool="pay", param="amount", above=50))
    bank.granted()
    assert bank.pay(amount=50) == "paid"
    bank.asked(amount=51)


def test_where_a_value_came_from_is_asked_each_time(store: Store) -> None:
    """An origin rule that asked when the grant was given asks again about another value: the grant proves none."""
    open_payee = replace(LIMITS, free=("to", "note"))
    bank = Bank(store, RequireOrigin(tool="pay", param="to", otherwise="ask"), grant=open_payee)
    lee = bank.session("lee", request="Pay ann@firm.example and bob@firm.example, please.")
    request = bank.asked(lee, to="eve@elsewhere.example")
    assert len(request.reasons) == 2
    grant = bank.guard.approvals.grant(request.id, by="anna", calls=5, free=["to", "note"])
    assert grant.reasons == ("risk:financial",)
    bank.pay(lee, to="eve@elsewhere.example")
    bank.paid.clear()
    for payee in ("ann@firm.example", "bob@firm.example"):
        assert bank.pay(lee, to=payee) == "paid"
    assert len(bank.asked(lee, to="eve@other.example").reasons) == 2
    assert [paid["to"] for paid in bank.paid] == ["ann@firm.example", "bob@firm.example"]


def test_a_no_to_this_payload_outlasts_the_grant(bank: Bank) -> None:
    """What a person refused by itself is refused, though a grant would cover it."""
    refused = bank.asked(note="refused")
    bank.guard.approvals.decide(refused.id, by="anna", approve=False)
    bank.granted()
    with pytest.raises(ToolExecutionError) as caught:
        bank.pay(note="refused")
    assert caught.value.code == "approval_rejected"
    assert bank.paid == []


@pytest.mark.parametrize("by", ["anna", "lee", "otto"], ids=["who gave it", "whom it concerns", "somebody"])
def test_it_is_revoked_at_once_by_anybody(bank: Bank, by: str) -> None:
    """Nothing runs by it from then on; the trail says who."""
    grant = bank.granted()
    bank.pay()
    bank.guard.approvals.end_grant(grant.id, by=by, reason="enough")
    bank.asked(note="after")
    (event,) = bank.events("grant_revoked")
    assert (event.grant_id, event.approved_by, event.approval_reason) == (grant.id, (by,), "enough")
    with pytest.raises(InvalidApproval):
        bank.guard.approvals.end_grant(grant.id, by=by)


def test_a_grant_read_before_it_was_revoked_cannot_be_used(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revoked between judgement and commit: the commit does not fit any more, and the call asks."""
    grant = bank.granted()
    commit = bank.guard.store.commit

    def late(change: Any) -> None:
        monkeypatch.undo()
        bank.guard.approvals.end_grant(grant.id, by="anna")
        commit(change)

    monkeypatch.setattr(bank.guard.store, "commit", late)
    bank.asked(note="in between")
    assert bank.paid == []


def test_it_is_void_when_the_policy_says_otherwise_of_the_tool(bank: Bank) -> None:
    """Its bounds, its limits, a rule: what was granted was granted under that policy."""
    bank.granted()
    bank.guard.reload(bank.policy(grant=replace(LIMITS, calls=49)))
    bank.asked(note="under another policy")
    bank.guard.reload(bank.policy())
    assert bank.pay(note="under the old one") == "paid"


def test_it_ends_with_its_time(bank: Bank) -> None:
    """A second later it is no more."""
    grant = bank.granted(seconds=1)
    while bank.guard.store.now_ns() < grant.expires_ns:
        pass
    bank.asked(note="late")
    assert bank.guard.approvals.grants() == []


def test_as_many_people_have_to_agree_as_for_a_call(store: Store) -> None:
    """With a quorum of two the grant waits for the second, who is another person."""
    bank = Bank(store, approvals=2)
    grant = bank.grant()
    assert grant.state is GrantState.PENDING
    assert [found.id for found in bank.guard.approvals.grants()] == [grant.id]
    bank.asked(note="not yet")
    with pytest.raises(InvalidApproval):
        bank.guard.approvals.agree(grant.id, by="anna")
    assert bank.guard.approvals.agree(grant.id, by="otto").state is GrantState.LIVE
    assert bank.pay(note="now") == "paid"
    event = bank.events(outcome=Outcome.AUTHORIZED)[-1]
    assert (event.grant_id, event.approved_by) == (grant.id, ("anna", "otto"))


def test_nobody_grants_their_own_calls(bank: Bank) -> None:
    """Neither the principal, nor whoever it acts for; and nothing is decided by the attempt."""
    helper = bank.lee.delegate("helper", tools=["pay"], max_calls=5)
    for context, by in ((bank.lee, "lee"), (helper, "helper"), (helper, "lee")):
        with pytest.raises(InvalidApproval):
            bank.grant(context, by=by)
    assert bank.guard.approvals.grants() == []
    assert {request.state.value for request in bank.guard.approvals.pending()} == {"pending"}


@pytest.mark.parametrize(
    "bounds",
    [
        {"calls": 0},
        {"calls": 51},
        {"calls": True},
        {"seconds": 3601},
        {"free": ["to"]},
        {"free": ["/note/x"]},
        {"up_to": {"amount": 501}},
        {"up_to": {"amount": float("nan")}},
        {"up_to": {"amount": "many"}},
        {"up_to": {"to": 5}},
        {"up_to": {}, "total": {"amount": 5}},
        {"total": {"amount": 1001}},
        {"free": ["*"]},
    ],
    ids=str,
)
def test_nobody_grants_more_than_the_policy_lets(bank: Bank, bounds: dict[str, Any]) -> None:
    """Nothing is decided by the attempt: the call still waits for its answer."""
    with pytest.raises(InvalidApproval):
        bank.grant(**bounds)
    assert bank.guard.approvals.grants() == []
    assert len(bank.guard.approvals.pending()) == 1


def test_without_a_table_nothing_is_granted(store: Store) -> None:
    """The policy decides which tools can be granted."""
    bank = Bank(store, grant=None)
    with pytest.raises(InvalidApproval, match="grant table"):
        bank.grant()


def test_calls_of_a_destructive_tool_are_granted_exactly_as_shown(store: Store) -> None:
    """The policy cannot say otherwise; where only the code says that it is destructive, nothing is left open either."""
    with pytest.raises(InvalidPolicy) as caught:
        ToolSettings(risk="destructive", grant=LIMITS)
    assert caught.value.where == "grant"
    guard = Guard(ToolExecutionPolicy({"wipe": ToolSettings(grant=LIMITS)}), store=store)

    @guard.tool(risk="destructive")
    def wipe(table: str, amount: float = 1.0, note: str = "") -> str:
        """Wipes."""
        return "wiped"

    lee = guard.session("lee", tools=["wipe"])
    with pytest.raises(HumanApprovalRequired) as asked:
        guard.call("wipe", {"table": "a"}, context=lee)
    request_id = str(asked.value.request_id)
    with pytest.raises(InvalidApproval):
        guard.approvals.grant(request_id, by="anna", calls=2, free=["note"])
    guard.approvals.grant(request_id, by="anna", calls=2)
    assert [guard.call("wipe", {"table": "a"}, context=lee) for _ in range(3)] == ["wiped"] * 3
    with pytest.raises(HumanApprovalRequired):
        guard.call("wipe", {"table": "a"}, context=lee)


def test_the_trail_says_what_was_granted_and_each_call_names_it(bank: Bank) -> None:
    """First the grant, then the calls that used it, with who gave it; a call that a person approved names none."""
    grant = bank.granted(reason="a busy day")
    bank.pay(note="by the grant")
    (given,) = bank.events("granted")
    assert (given.grant_id, given.approved_by, given.approval_reason) == (grant.id, ("anna",), "a busy day")
    assert (given.tool, given.principal, given.request_id) == ("pay", "lee", grant.request_id)
    approved, used = bank.events(outcome=Outcome.AUTHORIZED)
    assert (approved.grant_id, approved.request_id) == (None, grant.request_id)
    assert (used.grant_id, used.approved_by) == (grant.id, ("anna",))
    assert bank.events(outcome=Outcome.SUCCEEDED)[-1].grant_id == grant.id


def test_a_call_that_never_started_gives_it_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed for it is as before: the count, and the sum."""
    bank = Bank(store)
    grant, commit = bank.granted(total={"amount": 50}), store.commit

    def torn(change: Any) -> None:
        commit(change)
        found = store.grant(grant.id)
        assert found is not None
        assert (found.used, found.spent["/amount"]) == (1, 5)
        store.release(change)
        raise OSError

    monkeypatch.setattr(store, "commit", torn)
    with pytest.raises(ToolExecutionError):
        bank.pay(amount=5)
    assert bank.paid == []
    found = store.grant(grant.id)
    assert found is not None
    assert (found.used, found.spent["/amount"]) == (0, 0)


def test_what_the_application_sets_unseen_cannot_be_granted(bank: Bank) -> None:
    """The person has not seen it, so they cannot fix it."""
    request = bank.asked()
    hidden = replace(request, arguments={**request.arguments, "note": "(set by the application)"})
    with pytest.raises(InvalidApproval, match="binds"):
        Grant.of(hidden, calls=1, now_ns=0)


def test_a_grant_is_found_by_another_process(url: str, open_store: Callable[..., Any]) -> None:
    """Given over one connection to the database, used over another, and nothing of it is lost on the way."""
    here, there = Bank(open_store(url)), Bank(open_store(url))
    lee = here.session("lee", session_id="task")
    grant = here.granted(lee, total={"amount": "70.10"})
    assert there.guard.store.grant(grant.id) == here.guard.store.grant(grant.id) == grant
    assert there.pay(there.session("lee", session_id="task"), amount=70.1) == "paid"
    here.asked(lee, amount=0.1)


def test_an_opaque_amount_is_read_as_rules_read_it(store: Store) -> None:
    """Of what the policy leaves to the tool, a text is no number, for a limit and for a grant alike."""
    settings = ToolSettings(risk="financial", grant=Grantable(calls=5, seconds=60, up_to={"/amount": 500}))
    for is_opaque in (False, True):
        opaque = ("amount",) if is_opaque else ()
        guard = Guard(ToolExecutionPolicy({"send": replace(settings, opaque=opaque)}), store=store)

        @guard.tool
        def send(amount: Decimal) -> str:
            """Send."""
            return f"sent {amount}"

        lee = guard.session("lee", tools=["send"])
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call("send", {"amount": "10"}, context=lee)
        guard.approvals.grant(str(asked.value.request_id), by="anna", calls=2, up_to={"amount": 100})
        assert guard.call("send", {"amount": "10"}, context=lee) == "sent 10"
        if is_opaque:
            with pytest.raises(HumanApprovalRequired):
                guard.call("send", {"amount": "20"}, context=lee)
        else:
            assert guard.call("send", {"amount": "20"}, context=lee) == "sent 20"


def test_a_policy_file_says_it_and_reads_back() -> None:
    """The table of a tool; faults are named with their place."""
    text = """
        version = 1
        [tools.pay]
        risk = "financial"
        [tools.pay.grant]
        calls = 20
        seconds = 600
        free = ["note"]
        up_to = { "/amount" = 99.5 }
    """
    policy = parse_policy(text)
    settings = policy.settings("pay")
    assert settings is not None
    assert settings.grant == Grantable(calls=20, seconds=600, free=("/note",), up_to={"/amount": 99.5})
    assert parse_policy(dump_policy(policy)).hash == policy.hash


@pytest.mark.parametrize(
    ("table", "where", "says"),
    [
        ("{ calls = 5 }", "tools.pay.grant.seconds", "is required"),
        ("{ calls = 5, seconds = 1, fre = [] }", "tools.pay.grant.fre", "unknown key; did you mean 'free'"),
        ("{ calls = 0, seconds = 1 }", "tools.pay.grant.calls", "at least 1"),
        ('{ calls = 1, seconds = 1, free = ["/a/*"] }', "tools.pay.grant.free", "one argument"),
        ('{ calls = 1, seconds = 1, free = ["a", "/a"] }', "tools.pay.grant.free", "twice"),
        ("{ calls = 1, seconds = 1, free = ['a'], up_to = { '/a/b' = 1 } }", "tools.pay.grant.free", "within another"),
        ("{ calls = 1, seconds = 1, up_to = { a = 0 } }", "tools.pay.grant.up_to", "positive"),
        ("{ calls = 1, seconds = 1, total = { a = 1 } }", "tools.pay.grant.total", "up_to too"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(table: str, where: str, says: str) -> None:
    """What a policy cannot say of grants, and where it stands."""
    with pytest.raises(InvalidPolicy) as caught:
        parse_policy(f'version = 1\n[tools.pay]\nrisk = "financial"\ngrant = {table}\n')
    assert (caught.value.where, says in caught.value.reason) == (where, True), str(caught.value)

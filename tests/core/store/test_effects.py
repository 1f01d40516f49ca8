"""One effect is had once, whoever calls: by payment id, for a time, in every store."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from guarded_core import (
    EffectDone,
    EffectKey,
    EffectRunning,
    EffectUnknown,
    Guard,
    InMemoryToolAuditTrail,
    InvalidPayload,
    InvalidPolicy,
    MemoryStore,
    NotExecuted,
    PolicyDenied,
    Store,
    ToolExecutionPolicy,
    ToolSettings,
    ToolSpec,
)
from guarded_core.policy.file import dump_policy
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.store.ledger import CallKey
from tests.core.calls import call_of

NUMBER: dict[str, Any] = {"type": "number"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"payment": {"type": ["string", "number", "null"]}, "cents": NUMBER},
    "required": ["cents"],
}
MINUTE = 60 * 10**9


class Bank:
    """A tool that pays, and what it paid."""

    def __init__(self, store: Store, **effect: Any) -> None:
        key = EffectKey(**{"by": ("/payment",), "window": "30d", **effect})
        self.policy = ToolExecutionPolicy({"pay": ToolSettings(risk="mutating", effect=key)})
        self.guard = Guard(self.policy, store=store, audit=InMemoryToolAuditTrail(99))
        self.spec = ToolSpec.of(name="pay", description="Pay.", schema=SCHEMA)
        self.guard.register(self.spec)
        self.paid: list[Any] = []
        self.fails: BaseException | None = None

    def pay(self, payment: Any = "p-1", cents: int = 5, *, by: str = "ann", place: str | None = None, **at: Any) -> Any:
        session = self.guard.session(by, tools=["pay"], **at)
        arguments = {"cents": cents} if payment is ... else {"payment": payment, "cents": cents}
        key = None if place is None else CallKey(position=place, tool_call_id="c")
        return self.guard.run(call_of(self.spec, self._pay, arguments=arguments, context=session, key=key))

    def _pay(self, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments.get("payment"))
        if self.fails is not None:
            raise self.fails
        return f"receipt {len(self.paid)}"

    def ids(self, code: str | None = None) -> list[str]:
        return [event.call_id for event in self.guard.audit.events if event.code == code]  # type: ignore[union-attr]


PLACES = pytest.mark.parametrize("place", [None, "place"])


@PLACES
def test_the_second_caller_is_told_that_it_is_done(store: Store, place: str | None) -> None:
    """Whoever calls, with whatever else: the tool runs once, and nobody learns another's result."""
    bank = Bank(store)
    assert bank.pay(place=place) == "receipt 1"
    for by, cents in (("bob", 5), ("bob", 6)):
        with pytest.raises(EffectDone) as done:
            bank.pay(by=by, cents=cents, place=place and f"{place} {cents}")
        assert "receipt" not in str(done.value)
    assert bank.pay("p-2", by="bob") == "receipt 2"
    assert bank.paid == ["p-1", "p-2"]


@PLACES
def test_the_same_caller_gets_the_result(store: Store, place: str | None) -> None:
    """Of the same chain of principals, another call with the same effect gets what that gave; it is on record."""
    bank = Bank(store)
    assert bank.pay(place=place) == "receipt 1"
    assert bank.pay(cents=6, place=place and "another") == "receipt 1"
    assert bank.paid == ["p-1"]
    assert bank.ids("replayed") == bank.ids()[:1]


def test_numbers_are_named_by_their_canonical_form(store: Store) -> None:
    """10 and 10.0 name one effect; the text "10" names another."""
    bank = Bank(store)
    assert [bank.pay(payment) for payment in (10, 10.0, "10")] == ["receipt 1", "receipt 1", "receipt 2"]


@pytest.mark.parametrize("payment", [..., None])
def test_an_effect_without_a_name_is_refused(store: Store, payment: Any) -> None:
    """An absent or null value would be one key for all such calls."""
    bank = Bank(store)
    with pytest.raises(InvalidPayload, match="names its effect"):
        bank.pay(payment)
    assert bank.paid == []


@pytest.mark.parametrize(
    ("per", "other"), [("tenant", {}), ("principal", {"by": "bob"}), ("session", {"session_id": "another"})]
)
def test_for_whom_one_value_names_one_effect(store: Store, per: str, other: dict[str, Any]) -> None:
    """A tenant's effects are all who share the store; a principal's and a session's are apart."""
    bank = Bank(store, per=per)
    assert bank.pay(session_id="one") == "receipt 1"
    if other:
        assert bank.pay(**other) == "receipt 2"
    assert bank.pay(session_id="one", cents=9) == "receipt 1"


@PLACES
def test_not_executed_frees_the_effect(store: Store, place: str | None) -> None:
    """A tool that had no effect leaves it to the next call, this one's own retry or another's."""
    bank = Bank(store)
    for _ in range(2):
        bank.fails = NotExecuted("shut")
        with pytest.raises(Exception, match=r"shut|failed"):
            bank.pay(place=place)
    bank.fails = None
    assert bank.pay(by="bob") == "receipt 3"
    with pytest.raises(EffectDone):
        bank.pay(place=place)


@PLACES
@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_raised_keeps_the_effect_until_a_person_settles_it(store: Store, place: str | None, outcome: Any) -> None:
    """Nobody pays again what may have been paid; a person says what became of it, and that counts from then on."""
    bank = Bank(store, window="1s")
    bank.fails = ValueError("printer")
    with pytest.raises(Exception, match=r"printer|failed"):
        bank.pay(place=place)
    bank.fails = None
    for by in ("ann", "bob"):
        with pytest.raises(EffectUnknown):
            bank.pay(by=by, place="elsewhere")
    bank.guard.reconcile(bank.ids()[0], outcome, by="lee")
    if outcome == "failed":
        assert bank.pay(by="bob") == "receipt 2"
    assert len(bank.paid) == (2 if outcome == "failed" else 1)


def test_what_is_under_way_is_told(store: Store) -> None:
    """Two callers at once: one pays, the other is told that it is being done."""
    bank, entered, go_on = Bank(store), threading.Event(), threading.Event()
    paid: list[Any] = []

    def slow(arguments: dict[str, Any]) -> str:
        entered.set()
        assert go_on.wait(10)
        return "receipt"

    def first() -> None:
        session = bank.guard.session("ann", tools=["pay"])
        paid.append(bank.guard.run(call_of(bank.spec, slow, arguments={"payment": "p", "cents": 1}, context=session)))

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert entered.wait(10)
        with pytest.raises(EffectRunning):
            bank.pay("p", by="bob")
    finally:
        go_on.set()
        thread.join(10)
    assert paid == ["receipt"]


def test_of_many_threads_one_has_the_effect(store: Store) -> None:
    """However many call at the same moment, with places of their own: one runs, all others are refused or replayed."""
    bank, said = Bank(store), []
    barrier = threading.Barrier(8)

    def one(n: int) -> None:
        barrier.wait()
        try:
            said.append(bank.pay(by=f"user-{n}", place=f"place {n}" if n % 2 else None))
        except (EffectDone, EffectRunning) as error:
            said.append(error.code)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(said) == 8
    assert said.count("receipt 1") == 1
    assert bank.paid == ["p-1"]


@PLACES
def test_a_window_that_is_over(place: str | None) -> None:
    """After the time that the policy says, the value names a new effect; "always" has no end."""
    for window, again in (("90m", ["p-1", "p-1"]), ("always", ["p-1"])):
        now = [10**18]
        bank = Bank(MemoryStore(clock=lambda now=now: now[0]), window=window)
        bank.pay(place=place and f"{place} 1")
        now[0] += 89 * MINUTE
        with pytest.raises(EffectDone):
            bank.pay(by="bob", place=place)
        now[0] += 2 * MINUTE
        try:
            bank.pay(by="bob", place=place and f"{place} 2")
        except EffectDone:
            assert window == "always"
        assert bank.paid == again


def test_a_trail_that_cannot_be_written_frees_the_effect(store: Store) -> None:
    """What the commit took is given back, the effect among it."""
    bank = Bank(store)
    append = bank.guard.audit.append
    bank.guard.audit.append = lambda event: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(Exception, match="record"):
        bank.pay()
    bank.guard.audit.append = append  # type: ignore[method-assign]
    assert bank.pay(by="bob") == "receipt 1"


def test_a_rule_is_asked_first(store: Store) -> None:
    """Who may not make the call learns nothing of whether it was made."""
    bank = Bank(store)
    bank.pay()
    settings = {"pay": bank.policy.settings("pay")}
    bank.guard.reload(ToolExecutionPolicy(settings, rules=[DenyToolParam(tool="pay", param="cents", equals=6)]))
    with pytest.raises(PolicyDenied):
        bank.pay(by="bob", cents=6)


@pytest.mark.parametrize(
    ("effect", "where"),
    [
        ({"by": (), "window": "1d"}, "by"),
        ({"by": ("/a/*",), "window": "1d"}, "by"),
        ({"by": ("/a~",), "window": "1d"}, "by"),
        ({"by": ("/a",), "window": "soon"}, "for"),
        ({"by": ("/a",), "window": "0d"}, "for"),
        ({"by": ("/a",), "window": "1d", "per": "planet"}, "per"),
    ],
)
def test_what_names_no_effect(effect: dict[str, Any], where: str) -> None:
    """An unusable setting names its place."""
    with pytest.raises(InvalidPolicy) as refused:
        EffectKey(**effect)
    assert refused.value.where == where


def test_in_a_policy_file(tmp_path: Any) -> None:
    """The window is required, "always" spelled out; what is written reads back as the same policy."""
    from guarded_core import load_policy

    def written(effect: str) -> Any:
        (tmp_path / "p.toml").write_text(f'version = 1\n[tools.pay]\nrisk = "financial"\neffect = {effect}\n')
        return load_policy(tmp_path / "p.toml")

    policy = written('{ by = ["/payment_id"], per = "session", for = "30d" }')
    assert policy.settings("pay").effect == EffectKey(by=("/payment_id",), per="session", window="30d")
    (tmp_path / "q.toml").write_text(dump_policy(policy))
    assert load_policy(tmp_path / "q.toml").hash == policy.hash
    for wrong, where in (
        ('{ by = ["/a"] }', "tools.pay.effect.for"),
        ('{ by = ["/a"], for = "x" }', "tools.pay.effect.for"),
        ('{ by = ["/a"], for = "1d", until = 3 }', "tools.pay.effect.until"),
        ("3", "tools.pay.effect"),
    ):
        with pytest.raises(InvalidPolicy) as refused:
            written(wrong)
        assert refused.value.where == where

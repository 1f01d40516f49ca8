"""What runs is what a person approved, types included; and a no is final, whatever the rules say later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalRejected,
    CallbackApprover,
    Guard,
    HumanApproval,
    HumanApprovalRequired,
    MemoryStore,
    ToolExecutionPolicy,
    ToolSpec,
)
from guarded_core.ground.payload import freeze
from guarded_core.rules.kinds import RequireOrigin
from guarded_core.store.ledger import CallKey
from tests.core.calls import call_of

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"x": {}}, "required": ["x"]}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of store."""
    if request.param == "memory":
        return MemoryStore()
    pytest.importorskip("sqlalchemy")
    return f"sqlite:///{tmp_path}/guard.db"


class Till:
    """A financial tool without types of its own, and what it was given."""

    def __init__(self, store: Any = None, **settings: Any) -> None:
        self.guard = Guard(ToolExecutionPolicy({"pay": "financial"}), store=store, **settings)
        self.spec = ToolSpec.of(name="pay", description="Pay.", schema=SCHEMA)
        self.guard.register(self.spec)
        self.got: list[str] = []
        self.session = self.guard.session("user-17", tools=["pay"], session_id="s")

    def call(self, x: Any, key: CallKey | None = None, *, is_async: bool = False) -> Any:
        call = call_of(self.spec, self._pay, arguments={"x": x}, context=self.session, key=key)
        return asyncio.run(self.guard.arun(call)) if is_async else self.guard.run(call)

    def _pay(self, arguments: dict[str, Any]) -> str:
        self.got.append(repr(arguments["x"]))
        return "paid"

    def decide(self, **answer: Any) -> Any:
        (asked,) = self.guard.approvals.pending()
        return self.guard.approvals.decide(asked.id, by="lee", **{"approve": True, **answer})


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("key", [None, CallKey(position="p", tool_call_id="c")])
@pytest.mark.parametrize(
    ("approved", "came", "runs"),
    [
        (10, 10.0, "10"),
        (10.0, 10, "10"),
        (0, -0.0, "0"),
        (-0.0, -0.0, "0"),
        (0.5, 0.5, "0.5"),
        ([1, [10.0]], [1.0, [10]], "[1, [10]]"),
        (2**60, 2**60, str(2**60)),
    ],
)
def test_what_was_shown_is_what_runs(
    store: Any, key: CallKey | None, is_async: bool, approved: Any, came: Any, runs: str
) -> None:
    """Numbers that have one digest have one approval: the tool gets the one that the person was shown."""
    till = Till(store)
    with pytest.raises(HumanApprovalRequired):
        till.call(approved, key, is_async=is_async)
    assert repr(till.guard.approvals.pending()[0].arguments["x"]) == runs
    till.decide()
    till.call(came, key, is_async=is_async)
    assert till.got == [runs]


def test_an_approval_given_in_advance(store: Any) -> None:
    """It is of the canonical bytes, and those run."""
    till = Till(store)
    till.session.approve(HumanApproval.for_payload("pay", {"x": 10.0}, "lee", "ticket"))
    till.call(10.0)
    assert till.got == ["10"]


def test_an_edit_to_another_spelling(store: Any) -> None:
    """What a person writes in the place of the model's number is what runs."""
    till = Till(store)
    key = CallKey(position="p", tool_call_id="c")
    with pytest.raises(HumanApprovalRequired):
        till.call(10.0, key)
    till.decide(arguments={"x": 10})
    till.call(10.0, key)
    assert till.got == ["10"]


def test_a_call_that_nobody_is_asked_about_runs_as_it_came() -> None:
    """Without an approval there is nothing that it could differ from."""
    till = Till()
    till.guard.reload(ToolExecutionPolicy({"pay": "mutating"}))
    for x in (10, 10.0, -0.0):
        till.call(x)
    assert till.got == ["10", "10.0", "-0.0"]


def test_a_tool_that_reads_the_shortest_form_as_something_else_does_not_run() -> None:
    """A parser that tells 10 from 10.0 would run another value than the one that was approved."""
    till = Till()

    def complete(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"x": [arguments["x"][0], type(arguments["x"][0]).__name__]}

    till.session.approve(HumanApproval.for_payload("pay", {"x": [10, "float"]}, "lee", "ticket"))
    call = call_of(till.spec, till._pay, arguments={"x": [10.0]}, context=till.session, complete=complete)
    with pytest.raises(Exception, match="shortest form"):
        till.guard.run(call)
    assert till.got == []


def test_canonical_types_keep_order_and_digest() -> None:
    """The copy has the same canonical bytes, its keys in the order that they came in."""
    payload = freeze({"b": 1.0, "a": [2.5, -0.0, True]})
    exact = payload.as_canonical()
    assert repr(exact.value) == "{'b': 1, 'a': [2.5, 0, True]}"
    assert freeze(exact.value) == payload == exact
    assert repr(payload.value) == "{'b': 1.0, 'a': [2.5, -0.0, True]}"
    plain = freeze({"a": 1})
    assert plain.as_canonical() is plain


# A no is final


@pytest.mark.parametrize("later", ["the rules", "the origin"])
@pytest.mark.parametrize("key", [None, CallKey(position="p", tool_call_id="c")])
def test_a_no_that_the_rules_overtake(store: Any, key: CallKey | None, later: str) -> None:
    """A person said no; then nothing asks any more: the same call does not run all the same."""
    rules = [RequireOrigin(tool="pay", param="x", otherwise="ask")] if later == "the origin" else []
    asks = ToolExecutionPolicy({"pay": "mutating"}, rules=rules)
    till = Till(store, approver=CallbackApprover(lambda request: Answer(by="lee", approve=False, reason="no")))
    if later == "the origin":
        till.guard.reload(asks)
    with pytest.raises(ApprovalRejected):
        till.call("GB29NWBK60161331926819", key)
    if later == "the origin":
        till.session.said("Do not pay GB29NWBK60161331926819!")
    else:
        till.guard.reload(asks)
    for _ in range(2):
        with pytest.raises(ApprovalRejected):
            till.call("GB29NWBK60161331926819", key)
    assert till.got == []
    till.session.said("Pay GB94BARC10201530093459.")
    other = None if key is None else CallKey(position="q", tool_call_id="c")
    assert till.call("GB94BARC10201530093459", other) == "paid"


def test_another_call_may_be_approved_after_a_no(store: Any) -> None:
    """A person who first says no to a call without a place of its own may still approve an equal one in advance."""
    till = Till(store)
    with pytest.raises(HumanApprovalRequired):
        till.call(1)
    till.decide(approve=False)
    with pytest.raises(ApprovalRejected):
        till.call(1)
    till.session.approve(HumanApproval.for_payload("pay", {"x": 1}, "lee", "on second thought"))
    assert till.call(1) == "paid"

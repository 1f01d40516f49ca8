"""An approval of one call runs that call and no other, whatever about it differs, and however alike it looks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from guarded_core import ApprovalRequest, HumanApprovalRequired, ToolExecutionPolicy, ToolRisk, ToolSettings, ToolSpec
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import RequestState
from guarded_core.pipeline.call import Authority
from guarded_core.pipeline.flow import enforce
from guarded_core.pipeline.steps import Services, run
from guarded_core.rules.kinds import RequireApproval
from guarded_core.session import ToolExecutionContext
from guarded_core.store.ledger import CallKey
from guarded_core.store.memory import MemoryStore
from tests.core.calls import call_of

SCHEMA = {
    "type": "object",
    "properties": {"amount": {}, "to": {"type": "string"}, "lines": {"type": "object", "additionalProperties": True}},
    "required": ["amount", "to"],
}
SHOWN = {"amount": 5, "to": "Ann", "lines": {"a": [1, 2], "b": None}}
KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")


def paying(*rules: Any, **settings: Any) -> ToolExecutionPolicy:
    """A policy that allows `pay`."""
    return ToolExecutionPolicy({"pay": ToolSettings(open_arguments=True, **settings)}, rules=rules)


class Bench:
    """Calls of `pay` that differ in one thing, over one store."""

    def __init__(self) -> None:
        self.store, self.ran = MemoryStore(), []
        self.policy = paying(risk="financial")
        self.spec = ToolSpec.of(name="pay", description="Pays.", schema=SCHEMA)
        self.context = ToolExecutionContext("user-17", ["pay", "pay_all"], 100, store=self.store)

    def call(self, arguments: Any = None, **changes: Any) -> Any:
        """Propose `pay` with SHOWN, or with what is given."""
        call = call_of(
            **{
                "spec": self.spec,
                "arguments": SHOWN if arguments is None else arguments,
                "context": self.context,
                "function": self.ran.append,
                "key": KEY,
                **changes,
            }
        )
        authority = Authority(policy=lambda: self.policy)
        return run(enforce(call, authority), Services(store=self.store, sink=None))

    def approved(self) -> ApprovalRequest:
        """SHOWN was asked about, and approved."""
        with pytest.raises(HumanApprovalRequired):
            self.call()
        (request,) = self.store.requests()
        return Approvals(self.store).decide(request.id, by="kim", approve=True)


ALIKE = [
    pytest.param({"amount": "5"}, id="a number as text"),
    pytest.param({"amount": True}, id="a boolean"),
    pytest.param({"amount": 5.000000000000001}, id="the next double"),
    pytest.param({"amount": -5}, id="a sign"),
    pytest.param({"amount": 5e9}, id="an exponent"),
    pytest.param({"amount": None}, id="null"),
    pytest.param({"amount": [5]}, id="a list of it"),
    pytest.param({"to": "ann"}, id="another case"),
    pytest.param({"to": "Ann "}, id="a space after"),
    pytest.param({"to": "Ann\u00a0"}, id="a space that does not break"),
    pytest.param({"to": "Ann\u200b"}, id="a space without width"),
    pytest.param({"to": "\u202eAnn"}, id="right to left"),
    pytest.param({"to": "\u0410nn"}, id="a Cyrillic letter"),
    pytest.param({"to": "A\uff4en"}, id="a wide letter"),
    pytest.param({"to": "A\u0301nn"}, id="a combining accent"),
    pytest.param({"to": "\u00c1nn"}, id="a composed accent"),
    pytest.param({"to": "Ann\x00"}, id="a null character"),
    pytest.param({"to": "Ann\\u200b"}, id="an escape spelt out"),
    pytest.param({"lines": {"a": [2, 1], "b": None}}, id="another order in a list"),
    pytest.param({"lines": {"a": [1, 2]}}, id="null left out"),
    pytest.param({"lines": {"a": [1, 2], "b": None, "c": None}}, id="null added"),
    pytest.param({"lines": {"a": {"0": 1, "1": 2}, "b": None}}, id="a list as an object"),
    pytest.param({"lines": {"\u0430": [1, 2], "b": None}}, id="a Cyrillic key"),
]


@pytest.mark.parametrize("key", [KEY, None], ids=["keyed", "without a key"])
@pytest.mark.parametrize("change", ALIKE)
def test_arguments_that_look_alike(change: dict[str, Any], key: CallKey | None) -> None:
    """Other arguments than the approved ones are asked about themselves; the approval stays for those it is of."""
    bench = Bench()
    approved = bench.approved()
    with pytest.raises(Exception, match=r"approve|exactly"):
        bench.call({**SHOWN, **change}, key=key)
    assert bench.ran == []
    assert bench.store.request(approved.id) == approved
    bench.call()
    assert bench.ran == [SHOWN]


@pytest.mark.parametrize(
    "same", [{"amount": 5.0}, {"lines": {"b": None, "a": [1, 2.0]}}], ids=["another spelling", "another order of keys"]
)
def test_arguments_that_are_the_same_json(same: dict[str, Any]) -> None:
    """One JSON value has one digest: numbers of equal value, objects in any order."""
    bench = Bench()
    bench.approved()
    bench.call({**SHOWN, **same})
    assert bench.ran == [SHOWN]


def test_another_call_with_equal_arguments() -> None:
    """Another call id, or another place in the run, needs an approval of its own."""
    bench = Bench()
    bench.approved()
    for other in (
        CallKey(position="thread-1/tools", tool_call_id="call-2"),
        CallKey(position="x", tool_call_id="call-1"),
    ):
        with pytest.raises(HumanApprovalRequired):
            bench.call(key=other)
    assert bench.ran == []


def test_another_session_principal_or_tool() -> None:
    """An approval serves its session, its principal, and the tool as it was and as the policy had it."""
    bench = Bench()
    bench.approved()
    others: list[dict[str, Any]] = [
        {"context": ToolExecutionContext("user-17", ["pay"], 9, store=bench.store)},
        {"context": ToolExecutionContext("user-18", ["pay"], 9, store=bench.store)},
        {"context": bench.context.delegate("helper", tools=["pay"], max_calls=9)},
        {"spec": ToolSpec.of(name="pay", description="Pays twice.", schema=SCHEMA)},
    ]
    for other in others:
        with pytest.raises(HumanApprovalRequired):
            bench.call(**other)
    bench.policy = paying(risk="financial", approvals=2)
    with pytest.raises(HumanApprovalRequired):
        bench.call()
    assert bench.ran == []


REQUEST = ApprovalRequest(
    id="r",
    tool="pay",
    digest="d",
    principal="user-17",
    session_id="s",
    created_ns=1,
    expires_ns=2,
    fingerprint="f",
    policy="p",
    call_key="k",
    tool_call_id="call-1",
    risk=ToolRisk.FINANCIAL,
    state=RequestState.APPROVED,
)
BOUND = {"tool", "digest", "principal", "on_behalf_of", "session_id", "fingerprint", "policy", "call_key"}


@pytest.mark.parametrize("name", [field.name for field in fields(ApprovalRequest)])
def test_every_field(name: str) -> None:
    """A request covers another that differs in what it is not bound to only; think about each new field."""
    other = replace(REQUEST, **{name: "other"})
    assert REQUEST.covers(other) is (name not in BOUND)


def test_a_read_only_call_that_is_asked_about_runs_once() -> None:
    """An approval is for one run, also of a tool that may otherwise run again and again."""
    bench = Bench()
    bench.policy = paying(RequireApproval(tool="pay"), risk="read_only")
    approved = bench.approved()
    bench.call()
    bench.call()
    assert bench.ran == [SHOWN]
    assert [request.id for request in bench.store.requests()] == [approved.id]

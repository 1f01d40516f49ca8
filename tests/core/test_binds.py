"""Arguments that the application sets, bound by the policy: judged, shown and approved as the model's own are."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalPayloadMismatch,
    Guard,
    HumanApprovalRequired,
    InvalidPayload,
    PolicyDenied,
    ToolExecutionPolicy,
    ToolSettings,
    ToolSpec,
)
from guarded_core.approvals.request import SET_BY_APPLICATION
from guarded_core.policy.file import load_policy
from guarded_core.rules.kinds import AllowToolParam
from guarded_core.store.ledger import CallKey
from guarded_core.testing import ScriptedApprover
from tests.core.calls import call_of
from tests.core.pausing import Pause, Waiting

SPEC = ToolSpec.of(
    name="pay",
    description="Pays.",
    schema={"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
)
KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")


class Desk:
    """A tool that takes an account and a token from the application, of which the policy binds the account."""

    def __init__(self, approver: Any = None, *, rules: Any = (), binds: tuple[str, ...] = ("account",)) -> None:
        self.ran: list[Any] = []
        self.pauses = False
        policy = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", binds=binds)}, rules=rules)
        self.guard = Guard(policy, approver=approver)
        self.guard.register(SPEC)

    def call(self, account: Any = "A-1", *, key: CallKey | None = KEY, arguments: Any = None, **changes: Any) -> Any:
        with self.guard.session("user-17", tools=["pay"], session_id="s") as session:
            call = {
                "spec": SPEC,
                "arguments": arguments or {"cents": 5},
                "context": session,
                "function": self.pay,
                "key": key,
                "signals": (Pause,),
                "injected": {"account": account, "token": object()},
                "set_by_application": frozenset({"account", "token"}),
                **changes,
            }
            return self.guard.run(call_of(**call))

    def pay(self, effective: dict[str, Any]) -> str:
        self.ran.append(effective)
        if self.pauses:
            raise Pause
        return "paid"


def test_a_person_sees_what_is_bound() -> None:
    """Of what the application sets, what is bound is shown with its value, anything else by its name."""
    approver = ScriptedApprover([True])
    desk = Desk(approver)
    assert desk.call() == "paid"
    assert approver.asked[0].arguments == {"cents": 5, "account": "A-1", "token": SET_BY_APPLICATION}
    assert desk.ran == [{"cents": 5, "account": "A-1"}]


@pytest.mark.parametrize("key", [KEY, None])
def test_an_approval_is_for_what_was_bound(key: CallKey | None) -> None:
    """The same arguments of the model for another account are another payload: its approval is not this one's."""
    desk = Desk(Waiting() if key else None)
    with pytest.raises((Pause, HumanApprovalRequired)):
        desk.call("A-1", key=key)
    (asked,) = desk.guard.approvals.pending()
    desk.guard.approvals.decide(asked.id, by="kim", approve=True)
    with pytest.raises(Pause if key else ApprovalPayloadMismatch):
        desk.call("A-2", key=key)
    assert desk.ran == []
    assert desk.call("A-1", key=key) == "paid"
    assert desk.ran == [{"cents": 5, "account": "A-1"}]


def test_unbound_it_is_the_applications_own_affair() -> None:
    """Without `binds` the value is neither shown nor part of what is approved."""
    approver = ScriptedApprover([True])
    desk = Desk(approver, binds=())
    assert desk.call() == "paid"
    assert approver.asked[0].arguments == {"cents": 5, "account": SET_BY_APPLICATION, "token": SET_BY_APPLICATION}
    assert desk.ran == [{"cents": 5}]


def test_rules_see_it() -> None:
    """A rule judges a bound argument as any other."""
    desk = Desk(ScriptedApprover([True]), rules=[AllowToolParam(tool="pay", param="account", allow=["A-1"])])
    assert desk.call("A-1") == "paid"
    with pytest.raises(PolicyDenied):
        desk.call("A-2", key=None)
    assert desk.ran == [{"cents": 5, "account": "A-1"}]


@pytest.mark.parametrize("injected", [None, {}, {"token": 1}])
def test_it_is_missing(injected: Any) -> None:
    """A call without what the policy binds does not run, and nobody is asked."""
    desk = Desk(ScriptedApprover([]))
    with pytest.raises(InvalidPayload, match="an argument that only the application can give is missing"):
        desk.call(injected=injected)
    assert desk.ran == []


@pytest.mark.parametrize("account", [object(), float("nan"), {1: 2}, "x" * 70_000])
def test_it_is_no_bounded_json(account: Any) -> None:
    """What has no digest cannot be bound."""
    desk = Desk(ScriptedApprover([]))
    with pytest.raises(Exception, match=r"do not fit|too large"):
        desk.call(account)
    assert desk.ran == []


def test_the_model_cannot_give_it() -> None:
    """An argument of that name from the model is one that the closed schema does not know."""
    desk = Desk(ScriptedApprover([]))
    with pytest.raises(InvalidPayload):
        desk.call(arguments={"cents": 5, "account": "A-2"})


def test_a_person_cannot_change_it() -> None:
    """An edit of a bound argument has no effect: what the application gives is asked about once more."""
    edit = Answer(by="kim", approve=True, arguments={"cents": 4, "account": "A-9", "token": SET_BY_APPLICATION})
    approver = ScriptedApprover([edit, True], by="lee")
    desk = Desk(approver)
    assert desk.call() == "paid"
    assert approver.asked[1].arguments == {"cents": 4, "account": "A-1", "token": SET_BY_APPLICATION}
    assert desk.ran == [{"cents": 4, "account": "A-1"}]


def test_a_paused_call_goes_on_with_what_was_judged() -> None:
    """Whatever the application would give by then."""
    desk = Desk(ScriptedApprover([True]))
    desk.pauses = True
    with pytest.raises(Pause):
        desk.call("A-1")
    desk.pauses = False
    assert desk.call("A-2") == "paid"
    assert desk.ran == [{"cents": 5, "account": "A-1"}] * 2


def test_in_a_file(tmp_path: Any) -> None:
    """`binds` is a list of names, and part of what the policy says of the tool."""
    hashes = set()
    for binds in ("", 'binds = ["account"]\n'):
        file = tmp_path / "policy.toml"
        file.write_text(f'version = 1\n[tools.pay]\nrisk = "financial"\n{binds}')
        policy = load_policy(file)
        settings = policy.settings("pay")
        assert settings is not None
        assert settings.binds == (("account",) if binds else ())
        hashes.add(policy.tool_hash("pay"))
    assert len(hashes) == 2

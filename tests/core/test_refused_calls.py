"""What a person refuses stays refused, for that very call, whatever the rules, the clock or the session say later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    AnsweredByPerson,
    ApprovalRejected,
    CallbackApprover,
    Guard,
    MemoryStore,
    StoreUnavailable,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolSettings,
    load_policy,
)
from guarded_core.pipeline.call import Call
from guarded_core.store.base import Change, Conflict
from guarded_core.store.ledger import CallKey
from guarded_core.tools.port import FunctionPort
from tests.core.pausing import Pause, Waiting

KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")
ASKS = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", expires_seconds=60)})
SILENT = ToolExecutionPolicy({"pay": ToolSettings(risk="mutating", lower_risk=True)})

Drive = Callable[[Guard, Call], Any]


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Drive:
    """Both ways of a call through a guard."""
    if request.param == "sync":
        return lambda guard, call: guard.run(call)
    return lambda guard, call: asyncio.run(guard.arun(call))


class Desk:
    """A guard whose approver makes the framework wait, and one keyed call that can be entered again and again."""

    def __init__(self, store: Any) -> None:
        self.guard = Guard(ASKS, store=store, approver=Waiting())
        self.ran: list[dict[str, Any]] = []

        @self.guard.tool(risk="financial")
        def pay(amount: int) -> str:
            """Pay."""
            return "never reached by this test"

        self.port = FunctionPort(self.guard.spec("pay"), self.ran.append)  # type: ignore[arg-type]
        self.port.signals = (Pause,)  # type: ignore[misc]

    def session(self, name: str = "s") -> ToolExecutionContext:
        return self.guard.session("user-17", tools=["pay"], session_id=name)

    def call(self, name: str = "s", **parts: Any) -> Call:
        filled = {"context": self.session(name), "arguments": {"amount": 5}, "key": KEY}
        return Call(tool="pay", port=self.port, **filled | parts)


@pytest.fixture(params=["memory", "sqlite"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """Over each kind of store."""
    if request.param == "memory":
        return Desk(MemoryStore())
    pytest.importorskip("sqlalchemy")
    return Desk(f"sqlite:///{tmp_path}/guard.db")


def refuse(guard: Guard, how: str, request_id: str) -> type[ApprovalRejected]:
    """Refuse the question in one of the three ways; what the call is then refused with."""
    if how == "revoke":
        guard.approvals.revoke(request_id)
    elif how == "respond":
        guard.approvals.decide(request_id, by="lee", approve=False, response="it was paid by hand")
    else:
        guard.approvals.decide(request_id, by="lee", approve=False, reason="not to them")
    return AnsweredByPerson if how == "respond" else ApprovalRejected


@pytest.mark.parametrize("how", ["reject", "respond", "revoke"])
@pytest.mark.parametrize("later", ["nothing", "no rule asks", "expired and pruned", "another session"])
def test_a_refused_call_never_runs(desk: Desk, drive: Drive, how: str, later: str) -> None:
    """A call that a person refused is refused when it is entered again: no later rule, prune or session frees it."""
    with pytest.raises(Pause):
        drive(desk.guard, desk.call())
    expected = refuse(desk.guard, how, desk.guard.approvals.pending()[0].id)
    if later == "no rule asks":
        desk.guard.reload(SILENT)
    elif later == "expired and pruned":
        store, now_ns = desk.guard.store, desk.guard.store.now_ns() + 10**13
        if hasattr(store, "prune"):
            store.prune(now_ns)
        else:
            store._clock = lambda: now_ns  # type: ignore[attr-defined]
    with pytest.raises(ApprovalRejected) as refused:
        drive(desk.guard, desk.call("other" if later == "another session" else "s"))
    assert type(refused.value) is expected
    assert desk.ran == []


def test_an_equal_call_is_another_call(desk: Desk, drive: Drive) -> None:
    """What was refused is one call: an equal one with another key runs where nothing asks any more."""
    with pytest.raises(Pause):
        drive(desk.guard, desk.call())
    refuse(desk.guard, "reject", desk.guard.approvals.pending()[0].id)
    desk.guard.reload(SILENT)
    drive(desk.guard, desk.call(key=CallKey(position="thread-1/tools", tool_call_id="call-2")))
    assert desk.ran == [{"amount": 5}]


@pytest.mark.parametrize("said", [False, True])
def test_a_no_stands_though_the_user_names_the_value_meanwhile(tmp_path: Path, said: bool) -> None:
    """Where a rule would not ask any more by the time a person says no, the no counts all the same."""
    file = tmp_path / "policy.toml"
    file.write_text(
        'version = 1\n[tools.pay]\nrisk = "financial"\napproval = "unproven"\n'
        '[[rules]]\nkind = "require_origin"\ntool = "pay"\nparam = "to"\notherwise = "ask"\n'
    )
    ran: list[str] = []

    def no(request: Any) -> bool:
        if said:
            session.said("Pay GB29NWBK60161331926819!")
        return False

    guard = Guard(load_policy(file), approver=CallbackApprover(no, by="lee"))

    @guard.tool()
    def pay(to: str) -> str:
        """Pay."""
        ran.append(to)
        return "paid"

    with (
        guard.session("user-17", tools=["pay"], request="Pay the invoice.") as session,
        pytest.raises(ApprovalRejected),
    ):
        pay("GB29NWBK60161331926819")
    assert ran == []


class _Stubborn(MemoryStore):
    """Says that somebody else has the claim, and shows no such call."""

    tried = 0

    def commit(self, change: Change) -> None:
        self.tried += 1
        raise Conflict("claim", "nobody's")


def test_a_store_that_contradicts_itself_ends_the_call(drive: Drive) -> None:
    """Where the store refuses a claim for ever and shows nobody who has it, the call is refused, and does not hang."""
    store = _Stubborn()
    desk = Desk(store)
    desk.guard.reload(SILENT)
    with pytest.raises(StoreUnavailable):
        drive(desk.guard, desk.call())
    assert 1 < store.tried < 1000
    assert desk.ran == []

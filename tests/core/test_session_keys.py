"""Every key that stands for a person or a session holds the whole chain: store, approvals, ledger."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guarded_core import Guard, HumanApprovalRequired, ToolExecutionContext, ToolExecutionPolicy
from guarded_core.audit.event import AuditEvent
from guarded_core.store.ledger import CallKey

TOOLS = ["refund", "note", "wait"]


class Office:
    """A guard in front of one tool that pays, on a store of either kind, and what it paid."""

    def __init__(self, store: str | None) -> None:
        self.guard = Guard(
            ToolExecutionPolicy({"refund": "financial", "note": "mutating", "wait": "mutating"}), store=store
        )
        self.paid: list[int] = []
        self.waiting = asyncio.Event()
        for tool in (self.refund, self.note, self.wait):
            self.guard.tool(tool)

    @property
    def events(self) -> list[AuditEvent]:
        """The trail."""
        store = self.guard.store
        return list(store.trail().events() if store.keeps_trail else self.guard.audit.events)  # type: ignore[attr-defined, union-attr]

    def refund(self, cents: int) -> str:
        """Pay money back."""
        self.paid.append(cents)
        return "paid"

    def helper_of(self, principal: str, *, session_id: str | None = None) -> ToolExecutionContext:
        """A subagent of that user: everybody's has the same name, and the same session id."""
        user = self.guard.session(principal, tools=TOOLS, session_id=session_id)
        return user.delegate("helper", tools=TOOLS, max_calls=5, session_id="task")

    def note(self, text: str) -> str:
        """Write something down."""
        return text

    async def wait(self) -> None:
        """Take long."""
        self.waiting.set()
        await asyncio.sleep(60)

    def keyed(self, helper: ToolExecutionContext, text: str) -> Any:
        """A call with a durable key: everybody's at the same place, with the same id and arguments."""
        key = CallKey(position="thread\nnode", tool_call_id="call-1")
        return self.guard.run(replace(self.guard._call("note", {"text": text}, helper), key=key))


@pytest.fixture(params=["memory", "sqlite"])
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Office:
    """An office on each kind of store."""
    return Office(f"sqlite:///{tmp_path}/guard.db" if request.param == "sqlite" else None)


def test_an_approval_for_one_users_subagent_is_not_anothers(office: Office) -> None:
    """Two users' subagents of one name and one session id share no approval: each is asked about itself."""
    alice, mallory = office.helper_of("alice"), office.helper_of("mallory")
    with pytest.raises(HumanApprovalRequired):
        office.guard.call("refund", {"cents": 900}, context=alice)
    request = office.guard.approvals.pending()[-1]
    office.guard.approvals.decide(request.id, by="lee", approve=True)
    with pytest.raises(HumanApprovalRequired):
        office.guard.call("refund", {"cents": 900}, context=mallory)
    assert office.paid == []
    assert office.guard.call("refund", {"cents": 900}, context=alice) == "paid"
    assert office.paid == [900]


def test_a_recorded_result_of_one_users_subagent_is_not_anothers(office: Office) -> None:
    """A call at the same place, with the same id and arguments, is in the ledger once for each chain."""
    alice, mallory = office.helper_of("alice"), office.helper_of("mallory")
    assert [office.keyed(helper, "x") for helper in (alice, mallory, alice)] == ["x", "x", "x"]
    ran = [event.on_behalf_of for event in office.events if event.outcome == "succeeded"]
    assert ran == [("alice",), ("mallory",)]


def test_an_unknown_outcome_of_one_users_subagent_is_not_anothers(office: Office) -> None:
    """What may have run for one user makes nobody ask about another user's equal call."""
    alice, mallory = office.helper_of("alice"), office.helper_of("mallory")

    async def cut_off() -> None:
        key = CallKey(position="thread", tool_call_id="call-1")
        call = replace(office.guard._call("wait", {}, alice), key=key)
        task = asyncio.ensure_future(office.guard.arun(call))
        await asyncio.wait_for(office.waiting.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut_off())
    asks = {helper.chain[0]: office.guard.decide("wait", {}, context=helper).outcome for helper in (alice, mallory)}
    assert asks == {"alice": "ask", "mallory": "allow"}


def test_a_delegated_session_is_picked_up_by_its_own_chain_only() -> None:
    """A delegated session's key holds who delegated, and the names of their sessions."""
    office = Office(None)
    keys = {
        office.helper_of("alice").session_id,
        office.helper_of("mallory").session_id,
        office.helper_of("alice", session_id="ticket-1").session_id,
        office.helper_of("alice", session_id="ticket-2").session_id,
        office.guard.session("helper", tools=["note"], session_id="task").session_id,
    }
    assert len(keys) == 5
    assert office.helper_of("alice").session_id in keys


@pytest.mark.parametrize("name", ["task", None])
def test_no_root_session_has_the_key_of_a_delegated_one(name: str | None) -> None:
    """Whatever a principal is called, no key of a session without a parent is one of a delegated session."""
    office = Office(None)
    alice = office.guard.session("alice", tools=["note"])
    key = alice.delegate("helper", tools=["note"], max_calls=1, session_id=name).session_id
    assert key.startswith("helper#")
    assert key.endswith("#")  # and a session's own name is never empty

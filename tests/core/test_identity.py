"""One form for the names of people and sessions: what cannot be told apart by looking is not two people."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from guarded_core import (
    CallbackApprover,
    ConsoleApprover,
    Guard,
    HumanApproval,
    ToolExecutionContext,
    ToolExecutionPolicy,
)
from guarded_core.approvals.notebook import NotebookApprover
from guarded_core.ground.errors import GuardConfigurationError, HumanApprovalRequired, InvalidApproval

GOOD = ["lee", "Lee Smith", "élodie", "山田", "o'neil@example.com", "user#17", "x" * 256, "🦊"]
BAD = {
    "blank behind": "lee ",
    "blank before": " lee",
    "tab": "lee\t",
    "no-break space": "lee\u00a0",
    "line break": "lee\nadmin",
    "zero-width space": "le\u200be",
    "joiner": "le\u200de",
    "order mark": "\ufefflee",
    "right to left": "lee\u202e",
    "filler": "lee\u3164",
    "variation selector": "lee\ufe0f",
    "grapheme joiner": "le\u034fe",
    "empty Braille cell": "lee\u2800",
    "decomposed": unicodedata.normalize("NFD", "élodie"),
    "lone surrogate": "lee\ud800",
    "nul": "lee\0",
    "private use": "lee\ue000",
    "blank": " ",
    "empty": "",
    "too long": "x" * 257,
    "too long in bytes": "é" * 129,
    "no text": 17,
}


def _pending() -> tuple[Guard, str]:
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}))

    @guard.tool
    def pay(cents: int) -> str:
        return "paid"

    with guard.session("user-17", tools=["pay"]), pytest.raises(HumanApprovalRequired):
        guard.call("pay", {"cents": 1})
    return guard, guard.approvals.pending()[0].id


ENTRIES: dict[str, Callable[[Any], object]] = {
    "session": lambda name: Guard(ToolExecutionPolicy({})).session(name, tools=[]),
    "delegate": lambda name: ToolExecutionContext("u", [], 1).delegate(name, tools=[], max_calls=1),
    "approval": lambda name: HumanApproval(tool="pay", digest="d", approver=name, reason="ticket"),
    "console": ConsoleApprover,
    "notebook": NotebookApprover,
    "callback": lambda name: CallbackApprover(lambda request: True, by=name),
    "decide": lambda name: (lambda guard, request: guard.approvals.decide(request, by=name, approve=True))(*_pending()),
    "reconcile": lambda name: _pending()[0].reconcile("call", "failed", by=name),
}


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
@pytest.mark.parametrize("entry", ENTRIES)
def test_another_form_is_refused_where_it_enters(entry: str, name: Any) -> None:
    """A principal or approver in any other form is refused at once, by a text that does not quote it."""
    with pytest.raises(GuardConfigurationError) as caught:
        ENTRIES[entry](name)
    assert "approver" in str(caught.value) or "principal" in str(caught.value) or "who says so" in str(caught.value)
    assert "lee" not in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
def test_this_form_is_taken_as_it_stands(name: str) -> None:
    """A name in the one form is kept unchanged: of a principal, and of an approver."""
    assert Guard(ToolExecutionPolicy({})).session(name, tools=[]).principal == name
    guard, request = _pending()
    assert guard.approvals.decide(request, by=name, approve=True).approvers == (name,)


@pytest.mark.parametrize("by", ["user-17", "user-17 ", "user-17\u200b", "user-\u00ad17"])
def test_nobody_approves_their_own_call_by_another_spelling(by: str) -> None:
    """A principal cannot pass for another person by what does not show."""
    guard, request = _pending()
    with pytest.raises(InvalidApproval):
        guard.approvals.decide(request, by=by, approve=True)


@pytest.mark.parametrize("name", [bad for key, bad in BAD.items() if not key.startswith("too long")], ids=repr)
def test_a_session_id_has_the_same_form(name: Any) -> None:
    """A session id is refused like a name; what one could not write down again could not be picked up."""
    with pytest.raises(GuardConfigurationError, match="session_id"):
        Guard(ToolExecutionPolicy({})).session("u", tools=[], session_id=name)

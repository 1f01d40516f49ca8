"""An approver that cannot ask is refused when the guard is made; or the log, the trail and the model are told."""

from __future__ import annotations

import functools
import logging
import traceback
from typing import Any

import pytest

from guarded_core import (
    Answer,
    CallbackApprover,
    ConsoleApprover,
    Guard,
    GuardConfigurationError,
    HumanApprovalRequired,
    NotebookApprover,
    QueueApprover,
    ToolExecutionPolicy,
)
from guarded_core.approvals.approver import CannotAsk

CANARY = "canary-5f1e7b"


class Asks:
    """An approver that does what it is told."""

    def __init__(self, does: Any) -> None:
        self._does = does

    def ask(self, request: Any) -> Any:
        return self._does(request)


def make_guard(approver: Any) -> Guard:
    """A guard with one financial function, `pay`."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=approver)

    @guard.tool
    def pay(to: str) -> str:
        """Pay."""
        return "paid"

    return guard


def refused(guard: Guard, way: Any) -> HumanApprovalRequired:
    """What a call of user-17 is refused with."""
    with guard.session("user-17", tools=["pay"]), pytest.raises(HumanApprovalRequired) as caught:
        way(guard.call, guard.acall, "pay", {"to": CANARY})
    return caught.value


async def _async(request: Any) -> Answer:
    return Answer(by="lee", approve=True)


def _fails(request: Any) -> Any:
    raise ZeroDivisionError(f"{request.arguments}")


@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (lambda request: True, "has no ask"),
        (True, "approver is a bool"),
        (False, "approver is a bool"),
        ("lee", "approver is a str"),
        (ConsoleApprover, "is the class ConsoleApprover"),
        ([QueueApprover(), object()], "approver is a object"),
        (type("Two", (), {"ask": lambda self, request, more: None})(), "takes one argument"),
        (type("Async", (), {"ask": _async})(), "takes one argument|is async"),
    ],
)
def test_what_is_no_approver_is_refused_at_once(approver: Any, why: str) -> None:
    """A guard is not made with something that could never ask."""
    with pytest.raises(GuardConfigurationError, match=why):
        Guard(ToolExecutionPolicy({}), approver=approver)


@pytest.mark.parametrize("make", [ConsoleApprover, NotebookApprover, lambda by: CallbackApprover(_fails, by=by)])
@pytest.mark.parametrize("by", ["", "  ", "x" * 300, 7])
def test_who_answers_is_somebody(make: Any, by: Any) -> None:
    """An approver's own person has a name, as an answer needs it."""
    with pytest.raises(GuardConfigurationError):
        make(by)


@pytest.mark.parametrize("callback", [True, "yes", lambda: True, lambda request, more: True])
def test_a_callback_takes_the_request(callback: Any) -> None:
    """What cannot be called with a request is refused at once."""
    with pytest.raises(GuardConfigurationError, match="takes the request"):
        CallbackApprover(callback, by="lee")


@pytest.mark.parametrize(
    ("approver", "kind"),
    [
        (CallbackApprover(_fails), "ZeroDivisionError"),
        (CallbackApprover(lambda request: True), "GuardConfigurationError"),
        (CallbackApprover(lambda request: "yes", by="lee"), "GuardConfigurationError"),
        (Asks(_fails), "ZeroDivisionError"),
        (Asks(lambda request: True), "TypeError"),
    ],
)
def test_it_fails_loudly(approver: Any, kind: str, way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The log and an event have the exception's type, the model reads that nobody could be asked; none quotes."""
    guard = make_guard(approver)
    error = refused(guard, way)
    assert "nobody could be asked" in str(error)
    assert error.request is not None
    (event,) = [event for event in guard.audit.events if event.code == "approver_failed"]
    assert event.error_type == kind
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert kind in record.getMessage()
    printed = "".join(traceback.format_exception(error))
    assert CANARY not in printed + caplog.text + repr(guard.audit.events)
    assert error.__cause__ is None
    assert guard.approvals.pending() == [error.request]  # it can still be decided elsewhere


@pytest.mark.parametrize(
    "answer",
    [
        Answer(by="user-17", approve=True),
        Answer(by="", approve=True),
        Answer(by="lee", approve=True, response="done"),
        Answer(by="lee", approve=False, reason="x" * 3000),
        Answer(by="lee", approve=True, arguments={"to": float("nan")}),
    ],
)
def test_an_answer_that_is_none(answer: Answer, way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """An answer that may not be given is in the log and the trail too, and the model reads that it was not accepted."""
    guard = make_guard(CallbackApprover(lambda request: answer))
    error = refused(guard, way)
    assert "was not accepted" in str(error)
    assert [event.error_type for event in guard.audit.events if event.code == "approver_failed"] == ["InvalidApproval"]
    assert "InvalidApproval" in caplog.text


def test_an_async_callback_in_a_sync_call(caplog: pytest.LogCaptureFixture) -> None:
    """A sync call cannot await anybody: it is refused, and the log says what would be right."""
    for callback in (_async, functools.partial(_async), lambda request: _async(request)):
        caplog.clear()
        guard = make_guard(CallbackApprover(callback))
        assert "nobody could be asked" in str(refused(guard, lambda call, acall, *args: call(*args)))
        assert "an async callback answers async calls only" in caplog.text


def test_the_next_one_is_asked_where_one_cannot_ask(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Of several approvers one that cannot ask is passed over; only where none can is that a failure."""

    def cannot(request: Any) -> Any:
        raise CannotAsk("the pager is off")

    guard = make_guard([Asks(cannot), Asks(lambda request: Answer(by="kim", approve=True))])
    with guard.session("user-17", tools=["pay"]):
        assert way(guard.call, guard.acall, "pay", {"to": "Ann"}) == "paid"
    assert "approver_failed" not in [event.code for event in guard.audit.events]
    guard = make_guard([Asks(cannot), Asks(lambda request: None)])
    assert "and has not yet" in str(refused(guard, way))
    assert "the approver failed" not in caplog.text
    guard = make_guard([Asks(cannot), Asks(cannot)])
    assert "nobody could be asked" in str(refused(guard, way))
    assert "the pager is off" in caplog.text


def test_an_approver_without_a_sync_way(way: Any) -> None:
    """One that only has `aask` answers async calls, and cannot ask for sync ones."""

    class Async:
        async def aask(self, request: Any) -> Answer:
            return Answer(by="kim", approve=True)

    guard = make_guard(Async())
    if way.__name__ == "_awaited":
        with guard.session("user-17", tools=["pay"]):
            assert way(guard.call, guard.acall, "pay", {"to": "Ann"}) == "paid"
    else:
        assert "nobody could be asked" in str(refused(guard, way))

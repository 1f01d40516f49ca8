"""Approvers: a function of the application, and the terminal."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalRejected,
    CallbackApprover,
    ConsoleApprover,
    Guard,
    GuardConfigurationError,
    HumanApprovalRequired,
    MemoryStore,
    QueueApprover,
    ToolExecutionPolicy,
    ToolSettings,
)

ARGUMENTS = {"amount": 500, "to": "Ann\u202eX\u200b"}


def make_guard(approver: Any, store: Any = None, **settings: Any) -> Guard:
    """A guard with one financial function, `pay`."""
    policy = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", **settings)})
    guard = Guard(policy, approver=approver, store=store)

    @guard.tool
    def pay(amount: int, to: str) -> str:
        """Pay."""
        return "paid"

    return guard


def pay(guard: Guard, way: Any) -> Any:
    """Pay, as user-17."""
    with guard.session("user-17", tools=["pay"]):
        return way(guard.call, guard.acall, "pay", ARGUMENTS)


class TestCallback:
    def test_true_is_yes(self, way: Any) -> None:
        """A callback that returns True approves in the name that was given."""
        guard = make_guard(CallbackApprover(lambda request: True, by="reviewer-9"))
        assert pay(guard, way) == "paid"
        assert guard.audit.events[-1].approved_by == ("reviewer-9",)

    def test_false_is_no(self, way: Any) -> None:
        """A callback that returns False rejects."""
        with pytest.raises(ApprovalRejected):
            pay(make_guard(CallbackApprover(lambda request: False, by="reviewer-9")), way)

    def test_an_answer_names_the_person_itself(self, way: Any) -> None:
        """A callback may say who answered, and why."""
        guard = make_guard(CallbackApprover(lambda request: Answer(by="kim", approve=True, reason="ticket 7")))
        assert pay(guard, way) == "paid"
        assert guard.audit.events[-1].approval_reason == "ticket 7"

    @pytest.mark.parametrize("said", ["yes", 1, object(), {"approve": True}])
    def test_truthy_is_not_yes(self, way: Any, said: Any) -> None:
        """Anything but True, False, an Answer or None refuses the call."""
        with pytest.raises(HumanApprovalRequired):
            pay(make_guard(CallbackApprover(lambda request: said, by="reviewer-9")), way)

    def test_an_async_callback_answers_async_calls(self) -> None:
        """An async callback is awaited by acall, and refuses a sync call."""
        import asyncio

        async def approve(request: Any) -> bool:
            await asyncio.sleep(0)
            return True

        guard = make_guard(CallbackApprover(approve, by="reviewer-9"))

        async def main() -> Any:
            async with guard.session("user-17", tools=["pay"]):
                return await guard.acall("pay", ARGUMENTS)

        assert asyncio.run(main()) == "paid"
        with guard.session("user-17", tools=["pay"]), pytest.raises(HumanApprovalRequired):
            guard.call("pay", ARGUMENTS)

    def test_two_people_are_two_people(self, way: Any) -> None:
        """A tool that needs two approvals is not satisfied by one person."""
        guard = make_guard(CallbackApprover(lambda request: True, by="reviewer-9"), approvals=2)
        with pytest.raises(HumanApprovalRequired) as caught:
            pay(guard, way)
        assert caught.value.request is not None
        assert caught.value.request.approvers == ("reviewer-9",)

    def test_the_second_person_completes_it(self) -> None:
        """A second person decides the request; the same call then runs, with both on record."""
        guard = make_guard(CallbackApprover(lambda request: True, by="reviewer-9"), approvals=2)
        with guard.session("user-17", tools=["pay"]):
            with pytest.raises(HumanApprovalRequired) as caught:
                guard.call("pay", ARGUMENTS)
            guard.approvals.decide(caught.value.request.id, by="kim", approve=True)  # type: ignore[union-attr]
            assert guard.call("pay", ARGUMENTS) == "paid"
        assert guard.audit.events[-1].approved_by == ("reviewer-9", "kim")


class TestQueue:
    def test_a_decision_from_elsewhere_lets_it_through(self, way: Any) -> None:
        """While the call waits, another thread decides its request in the store; then it runs."""
        store = MemoryStore()
        guard = make_guard(QueueApprover(store, wait_seconds=5, poll_seconds=0.005), store=store)

        def decide() -> None:
            while not guard.approvals.pending():
                time.sleep(0.005)
            guard.approvals.decide(guard.approvals.pending()[0].id, by="kim", approve=True, reason="ticket 7")

        deciding = threading.Thread(target=decide)
        deciding.start()
        assert pay(guard, way) == "paid"
        deciding.join()
        assert guard.audit.events[-1].approved_by == ("kim",)

    def test_a_no_from_elsewhere(self, way: Any) -> None:
        """A rejection in the store refuses the waiting call, with its reason."""
        store = MemoryStore()

        class Rejecting(QueueApprover):
            def ask(self, request: Any) -> Any:
                guard.approvals.decide(request.id, by="kim", approve=False, reason="too much")
                return super().ask(request)

            async def aask(self, request: Any) -> Any:
                return self.ask(request)

        guard = make_guard(Rejecting(store), store=store)
        with pytest.raises(ApprovalRejected, match="too much"):
            pay(guard, way)

    def test_the_wait_ends(self, way: Any) -> None:
        """When nobody decides in time the call is refused, and its request stays for later."""
        store = MemoryStore()
        guard = make_guard(QueueApprover(store, wait_seconds=0.02, poll_seconds=0.01), store=store)
        with pytest.raises(HumanApprovalRequired):
            pay(guard, way)
        assert len(guard.approvals.pending()) == 1


class TestInTurn:
    def test_the_next_is_asked_where_one_has_no_answer(self, way: Any) -> None:
        """Of several approvers the first answer counts; later ones are not asked."""
        asked: list[str] = []

        def person(name: str, says: bool | None) -> CallbackApprover:
            return CallbackApprover(lambda request: asked.append(name) or says, by=name)  # type: ignore[func-returns-value]

        guard = make_guard([person("away", None), person("kim", True), person("lee", False)])
        assert pay(guard, way) == "paid"
        assert asked == ["away", "kim"]

    @pytest.mark.parametrize(("kim", "ran"), [(True, True), (False, False), (None, False)])
    def test_of_several_people_each_is_asked(self, way: Any, kim: bool | None, ran: bool) -> None:
        """Where a call needs two people, the second is asked after the first; both are on record, or nothing runs."""
        asked: list[str] = []

        def person(name: str, says: bool | None) -> CallbackApprover:
            return CallbackApprover(lambda request: asked.append(name) or says, by=name)  # type: ignore[func-returns-value]

        guard = make_guard([person("lee", True), person("kim", kim)], approvals=2)
        if ran:
            assert pay(guard, way) == "paid"
            assert guard.audit.events[-1].approved_by == ("lee", "kim")
        else:
            with pytest.raises((ApprovalRejected, HumanApprovalRequired)):
                pay(guard, way)
        assert asked == ["lee", "kim"]


class Sends(io.StringIO):
    """A stream that is no terminal: each line may name the request that waits then."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = list(lines)
        self.guard: Guard | None = None

    def readline(self, size: int | None = -1, /) -> str:
        assert self.guard is not None
        return self._lines.pop(0).format(id=self.guard.approvals.pending()[-1].id) + "\n" if self._lines else ""


class TestConsole:
    def ask(self, way: Any, *lines: str) -> tuple[Any, str]:
        screen, sends = io.StringIO(), Sends(*lines)
        sends.guard = guard = make_guard(ConsoleApprover("lee", read=sends, write=screen))
        try:
            return pay(guard, way), screen.getvalue()
        except (ApprovalRejected, HumanApprovalRequired) as error:
            return error, screen.getvalue()

    @pytest.mark.parametrize("line", ["y {id}", "YES {id} ticket 7", "  y   {id:.8} why not"])
    def test_yes(self, way: Any, line: str) -> None:
        """Where input is not a terminal, y with the request's id approves; the rest of the line is the reason."""
        assert self.ask(way, line)[0] == "paid"

    @pytest.mark.parametrize("line", ["n {id}", "no {id} not now"])
    def test_no(self, way: Any, line: str) -> None:
        """n with the request's id rejects, and the reason reaches the model."""
        error = self.ask(way, line)[0]
        assert isinstance(error, ApprovalRejected)
        assert error.reason == ("not now" if "now" in line else "")

    @pytest.mark.parametrize("line", ["y", "", "n", "y {id:.7}", "y 0123456789abcdef", "yess {id}", "{id}", "y\t{id}x"])
    def test_a_line_that_names_no_request_answers_none(self, way: Any, line: str) -> None:
        """Lines that were meant for another question, or for none, are passed over."""
        assert isinstance(self.ask(way, line)[0], HumanApprovalRequired)
        assert self.ask(way, line, "y {id}")[0] == "paid"

    def test_nobody_at_the_terminal(self, way: Any) -> None:
        """At the end of input nobody answers, and the call stays undecided."""
        assert isinstance(self.ask(way)[0], HumanApprovalRequired)

    def test_the_payload_is_shown_whole_and_visible(self, way: Any) -> None:
        """Every argument is shown; invisible and bidirectional characters are spelt out."""
        _, screen = self.ask(way, "n {id}")
        assert '"amount": 500' in screen
        assert '"to": "Ann\\u202eX\\u200b"' in screen
        assert "user-17" in screen
        assert "\u202e" not in screen

    def test_what_differs_from_the_last_one_is_marked(self) -> None:
        """From the second call of a tool on, the payload shows what changed since the last one that was approved."""
        screen, sends = io.StringIO(), Sends("y {id}", "n {id}", "y {id}")
        sends.guard = guard = make_guard(ConsoleApprover("lee", read=sends, write=screen))
        with guard.session("user-17", tools=["pay"]):
            guard.call("pay", {"amount": 5, "to": "Ann"})
            with pytest.raises(ApprovalRejected):
                guard.call("pay", {"amount": 7, "to": "Eve"})
            guard.call("pay", {"amount": 6, "to": "Ann"})
        first, rejected, second = screen.getvalue().split("Approval wanted")[1:]
        assert "compared" not in first
        assert '-   "amount": 5,\n+   "amount": 7,' in rejected
        assert '-   "amount": 5,\n+   "amount": 6,\n    "to": "Ann"\n' in second


def test_one_store() -> None:
    """An approver that looks into the store serves the guards of one store."""
    approver, store = QueueApprover(wait_seconds=0.01), MemoryStore()
    make_guard(approver, store=store)
    make_guard(approver, store=store)
    with pytest.raises(GuardConfigurationError, match="one store"):
        make_guard(approver)
    with pytest.raises(GuardConfigurationError, match="no guard yet"):
        QueueApprover().store  # noqa: B018

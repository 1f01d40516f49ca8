"""Approvers: a function of the application, and the terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalRejected,
    CallbackApprover,
    ConsoleApprover,
    Guard,
    HumanApprovalRequired,
    ToolExecutionPolicy,
    ToolSettings,
)

ARGUMENTS = {"amount": 500, "to": "Ann\u202eX\u200b"}


def make_guard(approver: Any, **settings: Any) -> Guard:
    guard = Guard(ToolExecutionPolicy({"pay": ToolSettings(risk="financial", **settings)}), approver=approver)

    @guard.tool
    def pay(amount: int, to: str) -> str:
        """Pay."""
        return "paid"

    return guard


def pay(guard: Guard, way: Any) -> Any:
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


class TestConsole:
    def ask(self, typed: str, way: Any) -> tuple[Any, str]:
        screen = io.StringIO()
        guard = make_guard(ConsoleApprover("lee", read=io.StringIO(typed), write=screen))
        try:
            return pay(guard, way), screen.getvalue()
        except (ApprovalRejected, HumanApprovalRequired) as error:
            return error, screen.getvalue()

    def test_yes(self, way: Any) -> None:
        """Typing y approves."""
        assert self.ask("y\nticket 7\n", way)[0] == "paid"

    @pytest.mark.parametrize("typed", ["n\n\n", "\n\n", "yess\n\n", "ok\n\n"])
    def test_anything_else_is_no(self, way: Any, typed: str) -> None:
        """Anything but y or yes rejects."""
        assert isinstance(self.ask(typed, way)[0], ApprovalRejected)

    def test_nobody_at_the_terminal(self, way: Any) -> None:
        """At the end of input nobody answers, and the call stays undecided."""
        assert isinstance(self.ask("", way)[0], HumanApprovalRequired)

    def test_the_payload_is_shown_whole_and_visible(self, way: Any) -> None:
        """Every argument is shown; invisible and bidirectional characters are spelt out."""
        _, screen = self.ask("n\n\n", way)
        assert '"amount": 500' in screen
        assert '"to": "Ann\\u202eX\\u200b"' in screen
        assert "user-17" in screen
        assert "\u202e" not in screen

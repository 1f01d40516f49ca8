"""`NotebookApprover`: buttons where they can be pressed, the prompt where they cannot."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from guarded_core import ApprovalRejected, Guard, HumanApprovalRequired, NotebookApprover, ToolExecutionPolicy
from guarded_core.rules.kinds.asking import RequireApproval

widgets = pytest.importorskip("ipywidgets")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was displayed."""
    displayed: list[Any] = []
    monkeypatch.setattr("IPython.display.display", displayed.append)
    return displayed


def typing(*lines: str) -> Callable[[str], str]:
    """A prompt at which these lines are typed, and then the input ends; CODE is the code that the prompt tells."""
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        code = re.search(r"Type (\w{4}) for yes", prompt)
        return left.pop(0).replace("CODE", code[1] if code else "CODE")

    return read


def pay(approver: NotebookApprover, *, risk: str = "financial", is_async: bool = False) -> Any:
    """A call that this approver is asked about."""
    guard = Guard(ToolExecutionPolicy({"pay": risk}, rules=[RequireApproval(tool="pay")]), approver=approver)

    @guard.tool
    def pay(amount: int, to: str) -> str:
        """Pay."""
        return "paid"

    arguments = {"amount": 5, "to": "<b>Ann</b>\u202e"}
    with guard.session("user-17", tools=["pay"]):
        return asyncio.run(guard.acall("pay", arguments)) if is_async else guard.call("pay", arguments)


@pytest.mark.parametrize("is_async", [False, True])
class TestPrompt:
    def test_yes(self, shown: list[Any], is_async: bool) -> None:
        """In a running cell the payload is displayed, escaped, and the code of this showing is typed."""
        assert pay(NotebookApprover("lee", read=typing("CODE", "")), is_async=is_async) == "paid"
        (html,) = shown
        assert "&lt;b&gt;Ann&lt;/b&gt;\\u202e" in html.data

    @pytest.mark.parametrize("typed", ["n", "", "yess"])
    def test_anything_else_is_no(self, shown: list[Any], is_async: bool, typed: str) -> None:
        """Anything but y or yes rejects, with the reason that was typed."""
        with pytest.raises(ApprovalRejected, match="not now"):
            pay(NotebookApprover("lee", read=typing(typed, "not now")), is_async=is_async)

    def test_a_plain_yes_is_no_code(self, shown: list[Any], is_async: bool) -> None:
        """Of a financial call a y is no answer: it is asked again, with another code, three times at most."""
        assert pay(NotebookApprover("lee", read=typing("y", "yes", "CODE", "")), is_async=is_async) == "paid"
        with pytest.raises(HumanApprovalRequired):
            pay(NotebookApprover("lee", read=typing("y", "y", "y", "CODE")), is_async=is_async)

    async def test_the_loop_goes_on(self, shown: list[Any], is_async: bool) -> None:
        """While a cell's prompt waits, other tasks of its loop run."""
        beats = []

        def read(prompt: str) -> str:
            time.sleep(0.2)
            beats.append("read")
            return "n"

        async def beat() -> None:
            while "read" not in beats:
                beats.append("beat")
                await asyncio.sleep(0.01)

        beating = asyncio.ensure_future(beat())
        guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=NotebookApprover("lee", read=read))
        guard.tool(name="pay", description="Pay.")(lambda: None)
        with guard.session("user-17", tools=["pay"]), pytest.raises(ApprovalRejected):
            await guard.acall("pay", {})
        await beating
        assert beats.count("beat") > 5

    def test_nobody(self, shown: list[Any], is_async: bool) -> None:
        """Without anybody to type the call stays undecided."""
        with pytest.raises(HumanApprovalRequired):
            pay(NotebookApprover("lee", read=typing()), is_async=is_async)


class Asked:
    """An agent in a thread that waits for the buttons."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, risk: str, *, is_async: bool = False) -> None:
        self.outcome: list[Any] = []
        on_display: list[Any] = []
        is_shown = threading.Event()
        monkeypatch.setattr("IPython.display.display", lambda box: (on_display.append(box), is_shown.set()))

        def agent() -> None:
            try:
                self.outcome.append(pay(NotebookApprover("lee"), risk=risk, is_async=is_async))
            except ApprovalRejected as error:
                self.outcome.append(str(error))

        self._running = threading.Thread(target=agent, daemon=True)
        self._running.start()
        assert is_shown.wait(30)
        (box,) = on_display
        self.question, row, self.hint = box.children
        self.controls = row.children
        *self.texts, approve, reject = self.controls
        self.buttons = {"Approve": approve, "Reject": reject}

    @property
    def code(self) -> str:
        """The code that this showing tells."""
        typed, _ = self.texts
        return typed.placeholder.split()[1]

    def press(self, button: str, typed: str | None = None) -> None:
        """Press it, after typing."""
        if typed is not None:
            self.texts[0].value = typed
        self.buttons[button].click()

    @property
    def waits(self) -> bool:
        """Whether nothing was decided."""
        self._running.join(0.05)
        return self._running.is_alive()

    def ended(self) -> Any:
        """What became of the call."""
        self._running.join(30)
        return self.outcome[0]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("risk", ["financial", "mutating"])
@pytest.mark.parametrize("pressed", ["Approve", "Reject"])
def test_buttons(monkeypatch: pytest.MonkeyPatch, pressed: str, risk: str, is_async: bool) -> None:
    """An agent in a thread is answered by a button, with the reason beside it; then the buttons are dead."""
    asked = Asked(monkeypatch, risk, is_async=is_async)
    assert "&lt;b&gt;Ann&lt;/b&gt;\\u202e" in asked.question.value
    assert len(asked.texts) == (2 if risk == "financial" else 1)
    asked.texts[-1].value = "ticket 7"
    asked.press(pressed, asked.code if (risk, pressed) == ("financial", "Approve") else None)
    assert asked.ended() == "paid" if pressed == "Approve" else "ticket 7" in asked.ended()
    assert all(control.disabled for control in asked.controls)


@pytest.mark.parametrize("risk", ["financial", "destructive"])
@pytest.mark.parametrize("typed", [None, "", "y", "yes"])
def test_one_press_approves_nothing_dangerous(monkeypatch: pytest.MonkeyPatch, risk: str, typed: str | None) -> None:
    """Without the code of this showing Approve says what is missing; with it, in either case, the call runs."""
    asked = Asked(monkeypatch, risk)
    asked.press("Approve", typed)
    assert asked.waits
    assert asked.hint.value == f"Not approved: type {asked.code} first, then press Approve."
    asked.press("Approve", f" {asked.code.upper()} ")
    assert asked.ended() == "paid"
    assert asked.hint.value == ""


def test_the_code_of_another_showing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A code is drawn anew each time, so that what was typed for one question approves no other."""
    first = Asked(monkeypatch, "financial")
    code = first.code
    first.press("Approve", code)
    assert first.ended() == "paid"
    second = Asked(monkeypatch, "financial")
    assert second.code != code
    second.press("Approve", code)
    assert second.waits
    second.press("Reject")
    assert "rejected" in second.ended()


def test_buttons_that_nobody_presses(shown: list[Any]) -> None:
    """Buttons wait so long and no longer; the call is refused and its request stays."""
    outcome: list[Any] = []

    def agent() -> None:
        with pytest.raises(HumanApprovalRequired) as caught:
            pay(NotebookApprover("lee", wait_seconds=0.01))
        outcome.append(caught.value)

    running = threading.Thread(target=agent)
    running.start()
    running.join(30)
    assert outcome[0].request.votes == ()

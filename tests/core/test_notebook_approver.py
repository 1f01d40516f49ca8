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


def pay(approver: NotebookApprover, *, is_async: bool = False) -> Any:
    """A financial call that this approver is asked about."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=approver)

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


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("pressed", ["Approve", "Reject"])
def test_buttons(monkeypatch: pytest.MonkeyPatch, pressed: str, is_async: bool) -> None:
    """An agent in a thread is answered by a button, with the reason beside it; then the buttons are dead."""
    on_display: list[Any] = []
    is_shown = threading.Event()
    monkeypatch.setattr("IPython.display.display", lambda box: (on_display.append(box), is_shown.set()))
    outcome: list[Any] = []

    def agent() -> None:
        try:
            outcome.append(pay(NotebookApprover("lee"), is_async=is_async))
        except ApprovalRejected as error:
            outcome.append(str(error))

    running = threading.Thread(target=agent)
    running.start()
    assert is_shown.wait(30)
    (box,) = on_display
    question, controls = box.children
    assert "&lt;b&gt;Ann&lt;/b&gt;\\u202e" in question.value
    reason, *buttons = controls.children
    reason.value = "ticket 7"
    for button in buttons:
        if button.description == pressed:
            button.click()
    running.join(30)
    assert outcome[0] == "paid" if pressed == "Approve" else "ticket 7" in outcome[0]
    assert all(control.disabled for control in controls.children)


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

"""`NotebookApprover`: a person decides in a notebook, with two buttons or at the cell's prompt."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from guarded_core.approvals.approver import BaseApprover
from guarded_core.approvals.card import request_card, request_text
from guarded_core.approvals.console import LastApproved
from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.approvals.turns import Turns
from guarded_core.approvals.typed import at_prompt, discard_pending, needs_code, new_code
from guarded_core.display.html import card_html
from guarded_core.ground.bounds import identity


class NotebookApprover(BaseApprover):
    """Shows the whole payload below the cell; asks with buttons where they can be pressed, else at the prompt.

    A cell that is running, also one that awaits an agent, keeps its notebook from seeing a button, so that there the
    prompt asks. Buttons are for an agent that runs in a thread (``asyncio.to_thread``, ``threading.Thread``) while the
    notebook is free; they need ipywidgets. A destructive or financial call is approved by typing four characters that
    are drawn anew for each showing, with buttons too; another one by ``y`` or one press. Anything but yes is no.

    Args:
        by: who sits at the notebook.
        wait_seconds: how long buttons wait; then the call is refused, and its request stays until it expires.
        read: reads a line at a prompt, for tests.

    Raises:
        GuardConfigurationError: `by` names nobody.
    """

    _turns = Turns()  # one question at a time, whatever runs in parallel

    def __init__(self, by: str, *, wait_seconds: float = 900, read: Callable[[str], str] | None = None) -> None:
        self.by: str = identity(by, "the approver")
        self._wait_seconds = wait_seconds
        self._read = read
        self._last = LastApproved()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer; None where nobody gives one."""
        return self._turns.ask(self._ask, request, threading.current_thread() is not threading.main_thread())

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`: at the prompt where a cell awaits the agent, with buttons where another thread's loop runs it."""
        is_free = threading.current_thread() is not threading.main_thread()
        return await self._turns.aask(self._ask, request, is_free)

    def _ask(self, request: ApprovalRequest, is_free: bool) -> Answer | None:
        buttons = _Buttons.shown(request, self._last.of(request), self.by) if is_free else None
        answer = buttons.wait(self._wait_seconds) if buttons else self._prompt(request)
        return self._last.kept(request, answer)

    def _prompt(self, request: ApprovalRequest) -> Answer | None:
        last = self._last.of(request)
        return at_prompt(request, self.by, lambda whole: _display(request, last, whole), self._line)

    def _line(self, prompt: str, is_fresh: bool) -> str | None:
        """A line typed at the prompt; a kernel asks its notebook for one that it has not got yet."""
        if is_fresh and self._read is None and sys.stdin is not None and sys.stdin.isatty():
            discard_pending(sys.stdin)  # IPython at a terminal
        try:
            return (self._read or input)(prompt)
        except EOFError:
            return None


class _Buttons:
    """One question with its buttons, which are gone once it is answered.

    A press that was meant for what stood there before approves nothing dangerous: that takes the code of this showing.
    """

    def __init__(self, widgets: Any, html: str, by: str, code: str | None) -> None:
        self.by = by
        self._code = code
        self._answered = threading.Event()
        self._answer: Answer | None = None
        self._typed = widgets.Text(placeholder=f"Type {code} to approve")
        self._hint = widgets.Label()
        self._reason = widgets.Text(placeholder="Reason (optional)")
        approve = widgets.Button(description="Approve", button_style="success")
        reject = widgets.Button(description="Reject", button_style="danger")
        approve.on_click(lambda button: self._decide(True))
        reject.on_click(lambda button: self._decide(False))
        self._controls = (*(() if code is None else (self._typed,)), self._reason, approve, reject)
        self.box = widgets.VBox([widgets.HTML(html), widgets.HBox(self._controls), self._hint])

    @classmethod
    def shown(cls, request: ApprovalRequest, last: Any, by: str) -> _Buttons | None:
        """The question on display; None where there are no widgets."""
        try:
            widgets, display = import_module("ipywidgets"), import_module("IPython.display")
        except ImportError:
            return None
        code = new_code() if needs_code(request) else None
        buttons = cls(widgets, card_html(request_card(request, last)), by, code)
        display.display(buttons.box)
        return buttons

    def wait(self, seconds: float) -> Answer | None:
        """The answer, when one comes."""
        self._answered.wait(seconds)
        self._close()
        return self._answer

    def _decide(self, approve: bool) -> None:
        if approve and self._code is not None and self._typed.value.strip().lower() != self._code:
            self._hint.value = f"Not approved: type {self._code} first, then press Approve."
        elif not self._answered.is_set():
            self._answer = Answer(by=self.by, approve=approve, reason=self._reason.value.strip())
            self._answered.set()

    def _close(self) -> None:
        self._hint.value = ""
        for control in self._controls:
            control.disabled = True


def _display(request: ApprovalRequest, last: Any, whole: bool) -> None:
    try:
        display = import_module("IPython.display")
    except ImportError:
        print(request_text(request, last, whole=whole))
    else:  # what is folded, a reader of the card opens there
        display.display(display.HTML(card_html(request_card(request, last))))

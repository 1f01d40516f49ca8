"""`ConsoleApprover`: a person decides at the terminal."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any, TextIO

from guarded_core.approvals.approver import BaseApprover
from guarded_core.approvals.card import request_text
from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.approvals.turns import Turns
from guarded_core.approvals.typed import at_prompt, from_stream, read_line
from guarded_core.display.text import WIDTH
from guarded_core.ground.bounds import identity

_NARROWEST, _WIDEST = 40, 120  # columns


class LastApproved:
    """The last payload of each tool that an approver approved in this process, to show what differs."""

    def __init__(self) -> None:
        self._arguments: dict[str, Any] = {}

    def of(self, request: ApprovalRequest) -> Any:
        """The payload of the same tool; None where there is none yet."""
        return self._arguments.get(request.tool)

    def kept(self, request: ApprovalRequest, answer: Answer | None) -> Answer | None:
        """`answer`, whose payload is remembered where it is a yes."""
        if answer is not None and answer.approve:
            self._arguments[request.tool] = request.arguments if answer.arguments is None else answer.arguments
        return answer


class ConsoleApprover(BaseApprover):
    """Shows the whole payload at the terminal and reads yes or no; anything but yes is no.

    What was typed before the question stood there is discarded. A destructive or financial call is approved by typing
    four characters that are drawn anew for each showing, another one by ``y``; ``all`` shows long texts unfolded. Where
    input is not a terminal, a line names the request that it answers: ``y REQUEST [reason]`` or ``n REQUEST [reason]``.

    What differs from the last payload of the same tool that was approved here is marked. One question is shown at a
    time, whatever runs in parallel; under asyncio those that wait for their turn hold no thread.

    Args:
        by: who sits at the terminal.
        read, write: the streams, for tests; the terminal by default.

    Raises:
        GuardConfigurationError: `by` names nobody.
    """

    _turns = Turns()  # there is one terminal

    def __init__(self, by: str, *, read: TextIO | None = None, write: TextIO | None = None) -> None:
        self.by: str = identity(by, "the approver")
        self._read = read
        self._write = write
        self._last = LastApproved()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer typed; None where there is no one to type (end of input)."""
        return self._turns.ask(self._ask, request)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, without blocking the event loop."""
        return await self._turns.aask(self._ask, request)

    def _ask(self, request: ApprovalRequest) -> Answer | None:
        read, write = self._read or sys.stdin, self._write or sys.stdout
        last = self._last.of(request)

        def show(whole: bool) -> None:
            print(request_text(request, last, whole=whole, width=_width(write)), file=write)
            if not read.isatty():
                print(f"{self.by}: y {request.id} [reason], or n {request.id} [reason]", file=write, flush=True)

        if not read.isatty():
            return self._last.kept(request, from_stream(request, self.by, show, read))
        answer = at_prompt(request, self.by, show, partial(read_line, read, write))
        return self._last.kept(request, answer)


def _width(stream: TextIO) -> int:
    """The columns of a terminal, less one; of anything else the usual ones."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        columns = 0
    return min(max(columns - 1, _NARROWEST), _WIDEST) if columns else WIDTH

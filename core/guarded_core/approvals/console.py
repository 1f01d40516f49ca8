"""`ConsoleApprover`: a person decides at the terminal."""

from __future__ import annotations

import sys
import threading
from typing import Any, TextIO

from guarded_core.approvals.card import request_text
from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.ground.bounds import identity


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


class ConsoleApprover:
    """Shows the whole payload at the terminal and reads yes or no; anything but yes is no.

    What differs from the last payload of the same tool that was approved here is marked.

    Args:
        by: who sits at the terminal.
        read, write: the streams, for tests; the terminal by default.
    """

    _terminal = threading.Lock()  # one question at a time, whatever runs in parallel

    def __init__(self, by: str, *, read: TextIO | None = None, write: TextIO | None = None) -> None:
        self.by = identity(by, "the approver")
        self._read = read
        self._write = write
        self._last = LastApproved()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer typed; None where there is no one to type (end of input)."""
        read, write = self._read or sys.stdin, self._write or sys.stdout
        with self._terminal:
            print(request_text(request, self._last.of(request)), file=write)
            print(f"{self.by}, approve this call? [y/N] ", end="", file=write, flush=True)
            line = read.readline()
            if not line:
                return None
            approve = line.strip().lower() in ("y", "yes")
            print("Reason (optional): ", end="", file=write, flush=True)
            reason = read.readline().strip()
        return self._last.kept(request, Answer(by=self.by, approve=approve, reason=reason))

"""Who is asked: the protocol of an approver, one that calls a function, one that asks at the terminal."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TextIO

from guarded_core.approval import ApprovalRequest
from guarded_core.display import request_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person said to a request.

    Attributes:
        by: who, as the application authenticated them.
        approve: True for yes.
        reason: why; a no's reason reaches the model.
    """

    by: str
    approve: bool
    reason: str = ""


class Approver(Protocol):
    """Puts a request before a person and returns the answer, or None where the answer comes another way.

    An approver with ``async def aask(request)`` is awaited under asyncio; otherwise `ask` runs in a worker thread
    there. What it raises refuses the call.
    """

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer to `request`, after as long as it takes."""


class CallbackApprover:
    """Asks by calling a function of the application.

    Args:
        callback: takes the request, returns True, False, an `Answer`, or None to leave it undecided; may be async.
        by: who answers; not needed where the callback returns an `Answer`.
    """

    def __init__(
        self,
        callback: Callable[[ApprovalRequest], Answer | bool | Awaitable[Answer | bool | None] | None],
        *,
        by: str | None = None,
    ) -> None:
        self._callback = callback
        self._by = by

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says. Raises TypeError for an async callback: only the async entry points can await it."""
        said = self._callback(request)
        if inspect.iscoroutine(said):
            said.close()
            raise TypeError("an async callback answers async calls only (acall, ainvoke, aexecute)")
        return self._answer(said)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says, awaited where it is async."""
        said = self._callback(request)
        return self._answer(await said if isinstance(said, Awaitable) else said)

    def _answer(self, said: object) -> Answer | None:
        if isinstance(said, Answer) or said is None:
            return said
        if self._by is None or not isinstance(said, bool):
            # Truthy is not yes: a mistaken return value must never approve.
            raise TypeError("the callback returns True or False (with by=...), an Answer, or None")
        return Answer(by=self._by, approve=said)


class ConsoleApprover:
    """Shows the whole payload at the terminal and reads yes or no; anything but yes is no.

    Args:
        by: who sits at the terminal.
        read, write: the streams, for tests; the terminal by default.
    """

    _terminal = threading.Lock()  # one question at a time, whatever runs in parallel

    def __init__(self, by: str, *, read: TextIO | None = None, write: TextIO | None = None) -> None:
        self._by = by
        self._read = read
        self._write = write

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer typed; None where there is no one to type (end of input)."""
        read, write = self._read or sys.stdin, self._write or sys.stdout
        with self._terminal:
            print(request_text(request), file=write)
            print(f"{self._by}, approve this call? [y/N] ", end="", file=write, flush=True)
            line = read.readline()
            if not line:
                return None
            approve = line.strip().lower() in ("y", "yes")
            print("Reason (optional): ", end="", file=write, flush=True)
            reason = read.readline().strip()
        return Answer(by=self._by, approve=approve, reason=reason)

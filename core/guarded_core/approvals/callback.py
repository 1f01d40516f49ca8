"""`CallbackApprover`: asks by calling a function of the application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.ground.bounds import identity


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
        self.by = None if by is None else identity(by, "the approver")

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
        if self.by is None or not isinstance(said, bool):
            # Truthy is not yes: a mistaken return value must never approve.
            raise TypeError("the callback returns True or False (with by=...), an Answer, or None")
        return Answer(by=self.by, approve=said)

"""`CallbackApprover`: asks by calling a function of the application."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from guarded_core.approvals.approver import BaseApprover, CannotAsk, takes_one
from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.approvals.turns import off_the_loop
from guarded_core.ground.bounds import identity
from guarded_core.ground.errors import GuardConfigurationError


class CallbackApprover(BaseApprover):
    """Asks by calling a function of the application.

    Under asyncio a function that is not async runs in a thread of its own, so that it may take its time.

    Args:
        callback: takes the request, returns True, False, an `Answer`, or None to leave it undecided; may be async.
        by: who answers; not needed where the callback returns an `Answer`.

    Raises:
        GuardConfigurationError: the callback takes no request, or `by` names nobody.
    """

    def __init__(
        self,
        callback: Callable[[ApprovalRequest], Answer | bool | Awaitable[Answer | bool | None] | None],
        *,
        by: str | None = None,
    ) -> None:
        if not callable(callback) or not takes_one(callback):
            raise GuardConfigurationError("callback is a function that takes the request")
        self._callback = callback
        self.by = None if by is None else identity(by, "the approver")
        self._is_async = _is_async(callback)

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says. Raises CannotAsk for an async callback: only the async entry points can await it."""
        if self._is_async:
            raise CannotAsk("an async callback answers async calls only (acall, ainvoke, aexecute)")
        said = self._callback(request)
        if inspect.iscoroutine(said):
            said.close()
            raise CannotAsk("an async callback answers async calls only (acall, ainvoke, aexecute)")
        return self._answer(said)

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """What the callback says, awaited where it is async."""
        said = self._callback(request) if self._is_async else await off_the_loop(self._callback, request)
        return self._answer(await said if isinstance(said, Awaitable) else said)

    def _answer(self, said: object) -> Answer | None:
        if isinstance(said, Answer) or said is None:
            return said
        if self.by is None or not isinstance(said, bool):
            # Truthy is not yes: a mistaken return value must never approve.
            raise GuardConfigurationError("the callback returns True or False (with by=...), an Answer, or None")
        return Answer(by=self.by, approve=said)


def _is_async(callback: object) -> bool:
    """Whether calling it gives something to await: a coroutine function, a partial of one, or such an object."""
    while hasattr(callback, "func"):  # functools.partial
        callback = callback.func
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004

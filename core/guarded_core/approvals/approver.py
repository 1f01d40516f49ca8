"""Who is asked: the protocol of an approver, one that calls a function, one that asks at the terminal."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

from guarded_core.approvals.decisions import RequestStore
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.approvals.turns import off_the_loop
from guarded_core.ground.errors import GuardConfigurationError


class CannotAsk(GuardConfigurationError):
    """An approver cannot reach anybody from where the call is made; the next one is asked, if there is one.

    The text says what is missing, for the application's log; it quotes nothing of the call.
    """


class Approver(Protocol):
    """Puts a request before a person and returns the answer, or None where the answer comes another way.

    An approver with ``async def aask(request)`` is awaited under asyncio; otherwise `ask` runs there in its own thread.
    One with ``attach(store)`` is told, once, where the guard's requests are kept; one with ``frameworks``, of
    "langchain" and "llamaindex", serves no other. Where nobody can be asked it raises `CannotAsk`. Whatever else it
    raises refuses the call; the application's log and an event, ``approver_failed``, have the exception's type.
    """

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer to `request`, after as long as it takes."""


async def ask_async(approver: Approver, request: ApprovalRequest) -> Answer | None:
    """The approver's answer, awaited where it has an async way to ask, from a thread of its own where it has none."""
    aask = getattr(approver, "aask", None)
    if aask is None:
        return await off_the_loop(approver.ask, request)
    answer: Answer | None = await aask(request)
    return answer


def in_turn(approvers: Approver | Sequence[Approver] | None, store: RequestStore) -> InTurn | None:
    """One approver of all these: each is asked until one answers; None where there is none.

    Where a call needs several people, those who have voted are not asked again: the next one is.

    Args:
        approvers: who is asked, in order.
        store: where their guard keeps the requests.

    Raises:
        GuardConfigurationError: one of them cannot be asked.
    """
    if approvers is None:
        return None
    each = tuple(approvers) if isinstance(approvers, Sequence) else (approvers,)
    for approver in each:
        _check(approver)
    for approver in each:
        if hasattr(approver, "attach"):
            approver.attach(store)
    return InTurn(each) if each else None


def _check(approver: Any) -> None:
    """Refuse what is not an approver, while somebody looks: at its first question it would only refuse the call."""
    kind = type(approver).__name__
    if isinstance(approver, type):
        raise GuardConfigurationError(
            f"approver is the class {approver.__name__}, not one of it: {approver.__name__}(...)"
        )
    ask, aask = getattr(approver, "ask", None), getattr(approver, "aask", None)
    if not callable(ask) and not callable(aask):
        hint = "; wrap the function: CallbackApprover(function, by=...)" if callable(approver) else ""
        raise GuardConfigurationError(f"approver is a {kind}, which has no ask(request){hint}")
    if inspect.iscoroutinefunction(ask):
        raise GuardConfigurationError(f"{kind}.ask is async: name it aask")
    for way in filter(callable, (ask, aask)):
        if not takes_one(way):
            raise GuardConfigurationError(f"{kind}.{way.__name__} takes one argument, the request")


def takes_one(function: Any) -> bool:
    """Whether it can be called with one argument, as far as can be told."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # it does not tell its parameters
        return True
    return True


class Attached:
    """An approver's knowledge of the store that its guard's requests are in."""

    def __init__(self, store: RequestStore | None = None) -> None:
        self._store = store

    def attach(self, store: RequestStore) -> None:
        """Take the guard's store. Raises GuardConfigurationError where this approver serves another store already."""
        if self._store not in (None, store):
            raise GuardConfigurationError("an approver serves one store; make another one for the other guard")
        self._store = store

    @property
    def store(self) -> RequestStore:
        """Where the requests are. Raises GuardConfigurationError before a guard has this approver."""
        if self._store is None:
            raise GuardConfigurationError("this approver belongs to no guard yet: Guard(..., approver=...)")
        return self._store

    def is_waiting(self, request_id: str) -> bool:
        """Whether that request still waits for people."""
        request = self.store.request(request_id)
        return request is not None and request.state is RequestState.PENDING and request.is_live(self.store.now_ns())


class InTurn:
    """Several approvers as one; see `in_turn`."""

    def __init__(self, approvers: tuple[Approver, ...]) -> None:
        self._approvers = approvers

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The first answer. Raises CannotAsk where none of them can ask anybody."""
        failures: list[CannotAsk] = []
        left = self._left(request)
        for approver in left:
            try:
                if (answer := _ask(approver, request)) is not None:
                    return answer
            except CannotAsk as failure:
                failures.append(failure)
        _check_somebody_was_asked(failures, left)
        return None

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, awaiting."""
        failures: list[CannotAsk] = []
        left = self._left(request)
        for approver in left:
            try:
                if (answer := await ask_async(approver, request)) is not None:
                    return answer
            except CannotAsk as failure:
                failures.append(failure)
        _check_somebody_was_asked(failures, left)
        return None

    def check_framework(self, framework: str) -> None:
        """Raises GuardConfigurationError where no approver serves that framework, "langchain" or "llamaindex"."""
        if not any(framework in getattr(approver, "frameworks", (framework,)) for approver in self._approvers):
            kinds = ", ".join(type(approver).__name__ for approver in self._approvers)
            raise GuardConfigurationError(f"{kinds} cannot ask anybody about a tool of {framework}; add one that can")

    def _left(self, request: ApprovalRequest) -> list[Approver]:
        voters = {vote.by for vote in request.votes}
        return [approver for approver in self._approvers if getattr(approver, "by", None) not in voters]


def _ask(approver: Approver, request: ApprovalRequest) -> Answer | None:
    if not hasattr(approver, "ask"):
        raise CannotAsk(f"{type(approver).__name__} is async, and the call is not")
    return approver.ask(request)


def _check_somebody_was_asked(failures: list[CannotAsk], asked: list[Approver]) -> None:
    if failures and len(failures) == len(asked):
        raise failures[0]

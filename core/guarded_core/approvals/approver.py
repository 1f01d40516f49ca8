"""Who is asked: what an approver is, and several as one."""

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

    Where nobody can be asked it raises `CannotAsk`. Whatever else it raises refuses the call; the application's log and
    an event, ``approver_failed``, have the exception's type. What else an approver may have is in `BaseApprover`, with
    or without deriving from it.
    """

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer to `request`, after as long as it takes."""


class BaseApprover:
    """What an approver may have, and what holds where it has not; one of these two ways to ask is its own.

    Attributes:
        frameworks: of "langchain" and "llamaindex" those it serves; None for all, and for calls of neither.
        by: whose answers it gives, where they are always the same person's: who has voted is not asked again.
    """

    frameworks: frozenset[str] | None = None
    by: str | None = None

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer to `request`, after as long as it takes. Raises CannotAsk, where it can only be awaited."""
        raise CannotAsk(f"{type(self).__name__} is async, and the call is not")

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, for calls under asyncio: by default from a thread of its own."""
        return await off_the_loop(self.ask, request)

    def attach(self, store: RequestStore) -> None:
        """Told once where the guard's requests are kept."""


class _Completed(BaseApprover):
    """An approver that does not derive from `BaseApprover`: what it leaves unsaid has the default. It is asked once."""

    def __init__(self, approver: Any) -> None:
        self._approver = approver
        self._asks, self._awaits = hasattr(approver, "ask"), hasattr(approver, "aask")
        frameworks = getattr(approver, "frameworks", BaseApprover.frameworks)
        self.frameworks = None if frameworks is None else frozenset(frameworks)
        self.by = getattr(approver, "by", BaseApprover.by)

    def ask(self, request: ApprovalRequest) -> Answer | None:
        if not self._asks:
            raise CannotAsk(f"{type(self._approver).__name__} is async, and the call is not")
        answer: Answer | None = self._approver.ask(request)
        return answer

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        if not self._awaits:
            return await super().aask(request)
        answer: Answer | None = await self._approver.aask(request)
        return answer

    def attach(self, store: RequestStore) -> None:
        if hasattr(self._approver, "attach"):
            self._approver.attach(store)


def _completed(approver: Any) -> BaseApprover:
    return approver if isinstance(approver, BaseApprover) else _Completed(approver)


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
    each = tuple(approvers) if isinstance(approvers, Sequence) and not isinstance(approvers, str) else (approvers,)
    for approver in each:
        _check(approver)
    completed = [_completed(approver) for approver in each]
    for one in completed:
        one.attach(store)
    kinds = ", ".join(type(approver).__name__ for approver in each)
    return InTurn(tuple(completed), kinds) if each else None


def _check(approver: Any) -> None:
    """Refuse what is not an approver, while somebody looks: at its first question it would only refuse the call."""
    kind = type(approver).__name__
    if isinstance(approver, type):
        raise GuardConfigurationError(
            f"approver is the class {approver.__name__}, not one of it: {approver.__name__}(...)"
        )
    ask, aask = (_own(approver, name) for name in ("ask", "aask"))
    if not callable(ask) and not callable(aask):
        hint = "; wrap the function: CallbackApprover(function, by=...)" if callable(approver) else ""
        raise GuardConfigurationError(f"approver is a {kind}, which has no ask(request){hint}")
    if inspect.iscoroutinefunction(ask):
        raise GuardConfigurationError(f"{kind}.ask is async: name it aask")
    for way in filter(callable, (ask, aask)):
        if not takes_one(way):
            raise GuardConfigurationError(f"{kind}.{way.__name__} takes one argument, the request")


def _own(approver: Any, name: str) -> Any:
    """Its way to ask of that name; None where it has but the default."""
    is_default = getattr(type(approver), name, None) is getattr(BaseApprover, name)
    return None if is_default else getattr(approver, name, None)


def takes_one(function: Any) -> bool:
    """Whether it can be called with one argument, as far as can be told."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # it does not tell its parameters
        return True
    return True


class Attached(BaseApprover):
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


class InTurn(BaseApprover):
    """Several approvers as one; see `in_turn`.

    Attributes:
        approvers: all of them, in order.
    """

    def __init__(self, approvers: tuple[BaseApprover, ...], kinds: str) -> None:
        self.approvers = approvers
        self._kinds = kinds

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The first answer. Raises CannotAsk where none of them can ask anybody."""
        failures: list[CannotAsk] = []
        left = self._left(request)
        for approver in left:
            try:
                if (answer := approver.ask(request)) is not None:
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
                if (answer := await approver.aask(request)) is not None:
                    return answer
            except CannotAsk as failure:
                failures.append(failure)
        _check_somebody_was_asked(failures, left)
        return None

    def check_framework(self, framework: str) -> None:
        """Raises GuardConfigurationError where no approver serves that framework, "langchain" or "llamaindex"."""
        if not any(served is None or framework in served for served in (one.frameworks for one in self.approvers)):
            raise GuardConfigurationError(
                f"{self._kinds} cannot ask anybody about a tool of {framework}; add one that can"
            )

    def _left(self, request: ApprovalRequest) -> list[BaseApprover]:
        voters = {vote.by for vote in request.votes}
        return [approver for approver in self.approvers if approver.by not in voters]


def _check_somebody_was_asked(failures: list[CannotAsk], asked: list[BaseApprover]) -> None:
    if failures and len(failures) == len(asked):
        raise failures[0]

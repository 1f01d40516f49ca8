"""The steps that the flow yields, and the two drivers that answer them.

The flow never waits: whatever may wait (a disk, a database, a person, the tool) is a step. `run` answers steps by
calling, `arun` by awaiting; neither decides anything.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from guarded_core.approvals.approver import BaseApprover
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.sink import AuditSink
from guarded_core.pipeline.logs import log_event
from guarded_core.rules.case import AwaitedRule, Case, Finding
from guarded_core.rules.ruleset import failed
from guarded_core.store.base import Change, Query, Settlement, Snapshot, Store
from guarded_core.tools.port import ToolPort
from guarded_core.tools.running import running

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What answers the steps.

    Attributes:
        store: budgets, windows, approvals, ledger.
        sink: the audit trail, or its mirror where the store keeps the trail; None where there is no mirror.
        approver: who is asked; None leaves requests to be decided elsewhere.
    """

    store: Store
    sink: AuditSink | None
    approver: BaseApprover | None = None


class Step(Generic[T]):
    """Something for the world to do; ``answer = yield from step`` gives the flow its answer, typed."""

    __slots__ = ()

    # An interruptible step may be cancelled while it waits; all others run to their end.
    interruptible: ClassVar[bool] = False

    def __iter__(self) -> Generator[Step[Any], Any, T]:
        answer: T = yield self
        return answer

    def perform(self, services: Services) -> T:
        """Do it, waiting in place."""
        raise NotImplementedError

    def waits(self, services: Services) -> bool:
        """Whether `perform` may wait; then asyncio does it in a worker thread."""
        return services.store.blocking

    async def aperform(self, services: Services) -> T:
        """Do it without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(_WORKERS, self.perform, services)


Flow: TypeAlias = Generator[Step[Any], Any, T]

# A pool of its own: tools that fill asyncio's default pool can never keep a commit or a settlement from its turn.
_WORKERS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="guarded")
# And one for what may wait long, so that it never keeps those of `_WORKERS` from theirs.
_CONSULTANTS = ThreadPoolExecutor(max_workers=32, thread_name_prefix="guarded-checks")


@dataclass(slots=True, repr=False)
class Load(Step[Snapshot]):
    """Read one snapshot of the store."""

    query: Query

    def perform(self, services: Services) -> Snapshot:
        return services.store.load(self.query)


@dataclass(slots=True, repr=False)
class Consult(Step[dict[int, Finding | None]]):
    """Have the rules that must wait answer, all at once; what fails, or takes too long, is an objection."""

    interruptible: ClassVar[bool] = True
    rules: tuple[AwaitedRule, ...]
    case: Case

    def perform(self, services: Services) -> dict[int, Finding | None]:
        # In a thread without an event loop: the caller's may have one, which would never get its turn.
        context = contextvars.copy_context()
        return _CONSULTANTS.submit(context.run, asyncio.run, self._answers()).result()

    def waits(self, services: Services) -> bool:
        return True

    async def aperform(self, services: Services) -> dict[int, Finding | None]:
        return await self._answers()

    async def _answers(self) -> dict[int, Finding | None]:
        answers = await asyncio.gather(*[self._answer(rule) for rule in self.rules])
        return {id(rule): answer for rule, answer in zip(self.rules, answers, strict=True)}

    async def _answer(self, rule: AwaitedRule) -> Finding | None:
        try:
            return await asyncio.wait_for(rule.answer(self.case), rule.timeout)
        except TimeoutError:
            return Finding("the check did not answer in time")
        except Exception as error:
            return failed(error)


@dataclass(slots=True, repr=False)
class AddRequest(Step[bool]):
    """Keep a new approval request, in the place of `ended` where there is one: False if that has changed meanwhile."""

    request: ApprovalRequest
    max_pending: int
    ended: ApprovalRequest | None = None

    def perform(self, services: Services) -> bool:
        if self.ended is not None:
            return services.store.replace_request(self.ended, self.ended.replaced(self.request.id), self.request)
        services.store.add_request(self.request, max_pending=self.max_pending)
        return True


@dataclass(slots=True, repr=False)
class Decide(Step[ApprovalRequest]):
    """Put a person's answer, where there is one, into the store; the request as it then stands."""

    request_id: str
    answer: Answer | None

    def perform(self, services: Services) -> ApprovalRequest:
        return Approvals(services.store).answer(self.request_id, self.answer)


@dataclass(slots=True, repr=False)
class Commit(Step[None]):
    """Take everything an allowed call takes, or nothing."""

    change: Change

    def perform(self, services: Services) -> None:
        services.store.commit(self.change)


@dataclass(slots=True, repr=False)
class Release(Step[None]):
    """Give back what a commit took."""

    change: Change

    def perform(self, services: Services) -> None:
        services.store.release(self.change)


@dataclass(slots=True, repr=False)
class Settle(Step[None]):
    """Record in the store how a committed call ended."""

    settlement: Settlement

    def perform(self, services: Services) -> None:
        services.store.settle(self.settlement)


@dataclass(slots=True, repr=False)
class Deny(Step[int]):
    """Count a denial; the answer is how many equal ones the session tree has had."""

    event: AuditEvent
    root_id: str
    call_key: str | None = None

    def perform(self, services: Services) -> int:
        return services.store.deny(self.event, self.root_id, self.call_key)


@dataclass(slots=True, repr=False)
class Record(Step[None]):
    """Append an event to the trail.

    `stored` says that the store has it already (in a commit, settlement or denial), so that it only goes to the mirror.
    """

    event: AuditEvent
    stored: bool = False

    def __iter__(self) -> Generator[Step[Any], Any, None]:
        log_event(self.event)
        yield self

    def perform(self, services: Services) -> None:
        if not self.stored:
            services.store.record(self.event)
        if services.sink is not None:
            services.sink.append(self.event)

    def waits(self, services: Services) -> bool:
        store_waits = services.store.blocking and not self.stored
        return store_waits or (services.sink is not None and services.sink.blocking)

    async def aperform(self, services: Services) -> None:
        append = None if services.sink is None else services.sink.aappend
        if append is None:
            return await Step.aperform(self, services)
        if not self.stored and services.store.blocking:
            await asyncio.get_running_loop().run_in_executor(_WORKERS, services.store.record, self.event)
        await append(self.event)


@dataclass(slots=True, repr=False)
class Ask(Step["Answer | None"]):
    """Put a request before a person; None where the answer comes another way."""

    interruptible: ClassVar[bool] = True
    request: ApprovalRequest

    def perform(self, services: Services) -> Answer | None:
        return services.approver.ask(self.request) if services.approver else None

    def waits(self, services: Services) -> bool:
        return True

    async def aperform(self, services: Services) -> Answer | None:
        if services.approver is None:
            return None
        return await services.approver.aask(self.request)


@dataclass(slots=True, repr=False)
class Execute(Step[Any]):
    """Run the tool, once, with exactly these arguments.

    Attributes:
        port: whose tool.
        bound: what the port knows of this very call.
        arguments: a private copy of the effective arguments.
        limit: bytes of the result; what the tool gives out bit by bit is taken in that far.
        key: the call's idempotency key, for the tool to ask for.
        started: whether it was entered; a cancellation before that leaves no doubt that nothing ran.
    """

    interruptible: ClassVar[bool] = True
    port: ToolPort
    bound: Any
    arguments: dict[str, Any]
    limit: int
    key: str
    started: bool = False

    def perform(self, services: Services) -> Any:
        self.started = True
        with running(self.key):
            return self.port.taken_out(self.port.run(self.bound, self.arguments), self.limit)

    def waits(self, services: Services) -> bool:
        return True

    async def aperform(self, services: Services) -> Any:
        self.started = True
        with running(self.key):
            return await self.port.ataken_out(await self.port.arun(self.bound, self.arguments), self.limit)


def recorded(event: AuditEvent) -> Flow[None]:
    """Append one event to the trail."""
    yield from Record(event)


def run(flow: Flow[T], services: Services) -> T:
    """Drive a flow by calling."""
    try:
        step = next(flow)
        while True:
            try:
                answer = step.perform(services)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result


async def arun(flow: Flow[T], services: Services) -> T:
    """Drive a flow by awaiting.

    A cancellation that arrives during a commit, settlement or record lets it finish first, and reaches the flow at the
    next step that may be interrupted, or the caller at the end.
    """
    cancelled: asyncio.CancelledError | None = None
    try:
        step = next(flow)
        while True:
            try:
                if step.interruptible and cancelled is not None:
                    pending, cancelled = cancelled, None
                    raise pending
                if not step.waits(services):
                    answer = step.perform(services)
                elif step.interruptible:
                    answer = await step.aperform(services)
                else:
                    answer, cancelled = await _to_its_end(step.aperform(services), cancelled)
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as done:
        if cancelled is not None:
            raise cancelled from None
        result: T = done.value
        return result


async def _to_its_end(
    work: Coroutine[Any, Any, T], cancelled: asyncio.CancelledError | None
) -> tuple[T, asyncio.CancelledError | None]:
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = cancelled if task.cancelled() else error
        except Exception:
            break  # the work's own, raised again below
    return task.result(), cancelled

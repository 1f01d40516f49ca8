"""Which call of a workflow this is: the same one whenever its step is run again, also after a restart."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from workflows import Context
from workflows.context.state_store import DictState
from workflows.events import HumanResponseEvent

from guarded_core.ground.ids import new_id
from guarded_core.store.ledger import CallKey
from guarded_llamaindex import compat

_NONCE = "guarded_nonce"
_MAX_ENTERED = 4096

_entered: OrderedDict[tuple[str, CallKey], weakref.ref[object]] = OrderedDict()
_around: ContextVar[tuple[str, ...]] = ContextVar("guarded_workflow_runs", default=())


class ApprovalAnswered(HumanResponseEvent):
    """Wakes the call that asked: the decision itself is in the guard's store.

    Attributes:
        request_id: of the request that was decided.
    """

    request_id: str


class NeverSent(HumanResponseEvent):
    """What a step waits for that an answer has started once too often."""


@asynccontextmanager
async def one_call() -> AsyncIterator[CallKey | None]:
    """Run one guarded call in this block; the value is its durable key, None where there is none.

    A call has one where a workflow's step handles a model's tool call, unless another guarded call makes it.
    """
    step = compat.current_step()
    key = None if step is None or step.run in _around.get() else await _key(step)
    if step is None or key is None:
        yield None
        return
    place = (step.run, key)
    first = _entered.get(place)
    is_again = first is not None and first() is not step.invocation
    if is_again and not step.is_retried and not step.waits_for_others(ApprovalAnswered):
        # A second answer has started the step again. A second result would be taken for another call's.
        raise compat.waiting_for(NeverSent, waiter_id=f"{step.work_item}:{new_id()}")
    # Whatever this call was asked about: when its step ends, nobody waits for an answer any more.
    step.forget_waiters(ApprovalAnswered)
    _entered[place] = weakref.ref(step.invocation)
    while len(_entered) > _MAX_ENTERED:
        _entered.popitem(last=False)
    token = _around.set((*_around.get(), step.run))
    try:
        yield key
    except compat.SIGNALS:
        _entered.pop(place, None)  # the step is paused, and will be run again for this call
        raise
    finally:
        _around.reset(token)


async def lacks_memory() -> bool:
    """Whether an agent's context was restored without the memory that the agent writes its results into.

    A memory cannot be saved as JSON: the application sets it again. An agent that has none breaks after its tools ran.
    """
    step = compat.current_step()
    if step is None or await step.context.store.get(compat.OF_AN_AGENT, default=None) is None:
        return False
    return await step.context.store.get(compat.MEMORY, default=None) is None


def is_nested(step: compat.Step) -> bool:
    """Whether a guarded call of another workflow made this one: nobody sees the events of the inner workflow."""
    return any(run != step.run for run in _around.get())


async def _key(step: compat.Step) -> CallKey | None:
    nonce = await _nonce(step.context) if step.tool_call_id is not None else None
    if nonce is None or step.tool_call_id is None:
        return None
    return CallKey(position=f"{nonce}\n{step.work_item}", tool_call_id=step.tool_call_id)


async def _nonce(context: Context) -> str | None:
    """What tells this workflow's context from all others, kept in it; None where its state takes no such key."""
    nonce = await context.store.get(_NONCE, default=None)
    if nonce is None:
        async with context.store.edit_state() as state:
            if isinstance(state, DictState):
                nonce = state[_NONCE] = state.get(_NONCE) or new_id()
    return nonce if isinstance(nonce, str) else None

"""Which call of a workflow this is: the same one whenever its step is run again, also after a restart."""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass

from workflows import Context
from workflows.context.state_store import DictState
from workflows.events import HumanResponseEvent

from guarded_core.ground.ids import new_id
from guarded_core.store.ledger import CallKey
from guarded_llamaindex import compat

_NONCE = "guarded_nonce"
_MAX_ENTERED = 4096

NOT_STEPS = (
    "nothing tells it from other calls: its workflow's event needs the model's tool_id, and its context a state "
    "without a model of its own. It is not known again where the run is restored, and may then run twice"
)
NOT_AWAITED = "a sync call in a workflow is not known again where the run is restored, and may then run twice"

_entered: OrderedDict[tuple[str, CallKey], weakref.ref[object]] = OrderedDict()
_around: ContextVar[tuple[str, ...]] = ContextVar("guarded_workflow_runs", default=())
# The runs in which a model was shown guarded tools, and what is on its way to make their contexts known.
_shown: OrderedDict[str, None] = OrderedDict()
_making: set[asyncio.Task[object]] = set()


class ApprovalAnswered(HumanResponseEvent):
    """Wakes the call that asked: the decision itself is in the guard's store.

    Attributes:
        request_id: of the request that was decided.
    """

    request_id: str


class NeverSent(HumanResponseEvent):
    """What a step waits for that an answer has started once too often."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands.

    Attributes:
        key: its durable key, where there is one.
        keyless: why there is none, where a workflow's step makes the call.
        is_lost: whether it came with a context that was saved before anything told its calls from others: it may have
            run where that context was restored before.
    """

    key: CallKey | None = None
    keyless: str | None = None
    is_lost: bool = False


def sync_place() -> Place:
    """Where a call stands that is not awaited: it never has a key."""
    step = compat.current_step()
    return Place() if step is None or step.run in _around.get() else Place(keyless=NOT_AWAITED)


def model_is_asked() -> None:
    """Make the context known of the workflow whose model is just shown guarded tools: before it makes any call.

    Whenever the context is saved from then on, what tells its calls from others is saved with it.
    """
    step = compat.current_step()
    if step is None or step.run in _shown:
        return
    with suppress(RuntimeError):  # in a thread of its own: then the first call does it
        making = asyncio.get_running_loop().create_task(_make_known(step.context))
        _making.add(making)
        making.add_done_callback(_making.discard)
    _shown[step.run] = None
    while len(_shown) > _MAX_ENTERED:
        _shown.popitem(last=False)


async def _make_known(context: Context) -> None:
    with suppress(Exception):  # a store that fails now may do at the first call; that one tells
        await _nonce(context)


@asynccontextmanager
async def one_call() -> AsyncIterator[Place]:
    """Run one guarded call in this block; the value is where it stands.

    A call has a key where a workflow's step handles a model's tool call, unless another guarded call makes it.
    """
    step = compat.current_step()
    if step is None or step.run in _around.get():
        yield Place()
        return
    where = await _place(step)
    key = where.key
    if key is None:
        yield where
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
        yield where
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


async def _place(step: compat.Step) -> Place:
    if step.tool_call_id is None:
        return Place(keyless=NOT_STEPS)
    # Of a saved context that lacks it, any call that its model made before may have run in another restored one.
    is_doubtful = step.is_resumed and step.run not in _shown
    nonce = await _nonce(step.context, makes=not is_doubtful)
    if nonce is None:
        return Place(is_lost=True) if is_doubtful and await _takes_any_key(step.context) else Place(keyless=NOT_STEPS)
    return Place(CallKey(position=f"{nonce}\n{step.work_item}", tool_call_id=step.tool_call_id))


async def _nonce(context: Context, *, makes: bool = True) -> str | None:
    """What tells this workflow's context from all others, kept in it; None where its state takes no such key."""
    nonce = await context.store.get(_NONCE, default=None)
    if nonce is None and makes:
        async with context.store.edit_state() as state:
            if isinstance(state, DictState):
                nonce = state[_NONCE] = state.get(_NONCE) or new_id()
    return nonce if isinstance(nonce, str) else None


async def _takes_any_key(context: Context) -> bool:
    return isinstance(await context.store.get_state(), DictState)

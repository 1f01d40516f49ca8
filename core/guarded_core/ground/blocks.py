"""Which `with` block code is in: blocks that end when they are left, wherever that happens.

A ContextVar says which block a task, a thread or a callback inherits. By itself it lets a block out where a frame that
holds one is suspended in the middle: whoever runs next in that context would be in it. So a block that a generator's
frame entered belongs to that frame, and calls are looked for on their own stack, as long as there is such a block.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextvars import ContextVar, Token
from enum import StrEnum
from itertools import takewhile
from types import FrameType, MappingProxyType
from typing import Any, NamedTuple

from guarded_core.ground.drivers import stands_for_a_block

_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_SUSPENDABLE = _GENERATOR | inspect.CO_COROUTINE


class Misplaced(StrEnum):
    """Why code that has a block in its context, or on its stack, is not in it."""

    LEFT = "left"  # the block is over, and its enterer has gone on; this task or thread was started inside
    SUSPENDED = "suspended"  # the generator that entered it waits at a `yield`
    BESIDE = "beside"  # a waiting generator of the same enterer has one beside it: what was started may be either's
    ELSEWHERE = "elsewhere"  # a generator on the stack has a block of its own, and this context knows another one


class _Here(NamedTuple):
    """Who runs: a task, or a thread where there is none.

    Attributes:
        task: the running task.
        thread: the thread's own token; numbers of threads are used again.
    """

    task: asyncio.Task[Any] | None
    thread: object


class Block:
    """One entering of something; ends when it is left, and then counts in no context any more.

    Attributes:
        of: for whom the block is current; there is one current block for each.
        what: what was entered.
        frame: which frame entered it, to tell several blocks of one thing apart; None once it is left.
        generator: the generator's frame that it belongs to; None for a block that no frame suspends.
        outer: the block that was current before, and is again afterwards.
        inside: the block that it is written in: never one whose generator was suspended when this one was entered.
        beside: those that were passed over for that, innermost first.
        token: of the context that it was entered in; None once it is left.
        is_left: whether it is over.
        is_stranded: whether it was left where its own context could not be put back.
        lasts: whether tasks and threads started inside go on when it is left.
    """

    __slots__ = (
        "_task",
        "_thread",
        "beside",
        "frame",
        "generator",
        "inside",
        "is_left",
        "is_stranded",
        "lasts",
        "of",
        "outer",
        "token",
        "what",
    )

    def __init__(self, of: int, what: Any, frame: FrameType, here: _Here, outer: Block | None) -> None:
        self.of = of
        self.what = what
        self.frame: FrameType | None = frame
        self.generator: FrameType | None = None
        self.outer = self.inside = outer
        self.beside: tuple[Block, ...] = ()
        self.token: Token[Mapping[int, Block]] | None = None
        self.is_left = self.is_stranded = self.lasts = False
        self._task = None if here.task is None else weakref.ref(here.task)
        self._thread = here.thread

    def was_entered(self, here: _Here) -> bool:
        """Whether this very task entered it, or this very thread where no task runs."""
        if self._task is None or here.task is None:
            return self._task is None and here.task is None and self._thread is here.thread
        return self._task() is here.task

    @property
    def enterer(self) -> object:
        """Who entered it: equal for two blocks of one task, or of one thread where no task ran."""
        return self._task or self._thread

    @property
    def was_entered_here(self) -> bool:
        """Whether the task or thread that runs now entered it."""
        return self.was_entered(_here())

    @property
    def is_of_another_thread(self) -> bool:
        """Whether another thread than this one entered it, in whatever task."""
        return self._thread is not _thread.token


class Place(NamedTuple):
    """Where code is.

    Attributes:
        block: the block it is in, as far as that is certain; of one that was left, that block.
        misplaced: why it is not in the block that its context, or its stack, has.
    """

    block: Block | None = None
    misplaced: Misplaced | None = None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.token = object()


_thread = _Thread()
_current: ContextVar[Mapping[int, Block]] = ContextVar("guarded_blocks", default=MappingProxyType({}))

# The open blocks of generators, by frame; while there are none, no stack is looked at. Reading takes no lock: a frame's
# blocks are replaced whole. The lock is one that a thread may take twice, since the garbage collector, too, leaves
# blocks, in the middle of this.
_generators: dict[FrameType, tuple[Block, ...]] = {}
_lock = threading.RLock()


def enter(of: int, what: Any, frame: FrameType, *, ambient: bool = False) -> Block:
    """Make `what` current for `of` in this context, as the code of `frame` asks for.

    Args:
        ambient: the frame stands for a `with` block, whatever drives it.
    """
    here, known = _here(), _current.get()
    block = Block(of, what, frame, here, _behind_stranded(known.get(of), here))
    if _generators:
        running = _running(here)
        while block.inside is not None and _is_suspended(block.inside, running, here):
            block.beside = (*block.beside, block.inside)
            block.inside = block.inside.inside
    block.token = _current.set(MappingProxyType({**known, of: block}))
    block.generator = None if ambient else _owner(frame, here)
    if block.generator is not None:
        with _lock:
            _generators[block.generator] = (*_generators.get(block.generator, ()), block)
    return block


def leave(block: Block, *, lasts: bool = False) -> None:
    """End `block`, from whatever context; never raises.

    Args:
        lasts: tasks and threads that were started inside go on.
    """
    if block.is_left:
        return
    block.lasts = lasts
    block.is_left = True  # from here on it counts nowhere, whatever becomes of the rest
    generator, token = block.generator, block.token
    block.generator = block.token = block.frame = None
    if generator is not None:
        _disown(generator, block)
    block.is_stranded = not _put_back(block, token)


def _disown(generator: FrameType, block: Block) -> None:
    with _lock:
        rest = tuple([other for other in _generators.get(generator, ()) if other is not block])
        if rest:
            _generators[generator] = rest
        else:
            _generators.pop(generator, None)


def _put_back(block: Block, token: Token[Mapping[int, Block]] | None) -> bool:
    """Make the block around `block` current again; False where this is not its context, or not its turn."""
    known = _current.get()
    if token is None or known.get(block.of) is not block:
        return False
    try:
        _current.reset(token)  # only the very context that it was entered in takes it: a copy does not
    except (ValueError, RuntimeError):
        return False
    outer = _behind_stranded(block.outer, _here())
    others = {of: other for of, other in known.items() if of != block.of}
    _current.set(MappingProxyType(others if outer is None else {**others, block.of: outer}))
    return True


def around(of: int) -> Block | None:
    """The innermost open block of this context, where this very task or thread entered it."""
    here = _here()
    block = _behind_stranded(_current.get().get(of), here)
    return None if block is None or block.is_left or not block.was_entered(here) else block


def place(of: int) -> Place:
    """Where this code is, of the blocks of `of`."""
    block = _current.get().get(of)
    if not _generators and (block is None or not block.is_left):
        return Place(block)
    here = _here()
    block = _behind_stranded(block, here)
    if _generators:
        misplaced = _misplaced(of, block, here)
        if misplaced is not None:
            return misplaced
    if block is not None and block.is_left and not block.lasts:
        return Place(block, Misplaced.LEFT)
    return Place(block)


def _misplaced(of: int, block: Block | None, here: _Here) -> Place | None:
    """Where this code is, if generators have blocks and that tells; None where the context alone does."""
    running, enclosing = _running(here), tuple(_enclosing(block))
    for frame in running:
        own = next((own for own in reversed(_generators.get(frame, ())) if own.of == of), None)
        if own is not None and own not in enclosing:
            return Place(own, Misplaced.ELSEWHERE)
    if block is None or (block.is_left and not block.lasts):
        return None
    suspended = [outer for outer in enclosing if _is_suspended(outer, running, here)]
    if suspended:
        return Place(suspended[-1].inside, Misplaced.SUSPENDED)
    # Who entered a block itself is told by its stack. What it started is not, while one of its generators waits beside:
    # that one's steps start things in this context too.
    if not block.was_entered(here):
        of_one = takewhile(lambda outer: outer.enterer == block.enterer, enclosing)
        if any(not other.is_left for outer in of_one for other in outer.beside):
            return Place(None, Misplaced.BESIDE)
    return None


def _here() -> _Here:
    # The low-level question first: where no loop runs, asking for the task costs an exception.
    running = asyncio._get_running_loop() is not None
    return _Here(asyncio.current_task() if running else None, _thread.token)


def _behind_stranded(block: Block | None, here: _Here) -> Block | None:
    """Where code of `here` is with `block` in its context: its own that somebody else left are behind it."""
    while block is not None and block.is_left and block.is_stranded and block.was_entered(here):
        block = block.outer
    return block


def _enclosing(block: Block | None) -> Iterator[Block]:
    while block is not None:
        yield block
        block = block.inside


def _is_suspended(block: Block, running: list[FrameType], here: _Here) -> bool:
    """Whether it belongs to a generator of this task or thread that is not running: whoever runs is not in it."""
    generator = block.generator  # read once: another thread may leave the block
    return generator is not None and generator not in running and block.was_entered(here)


def _running(here: _Here) -> list[FrameType]:
    """The generators with blocks that are on this stack, innermost first; a task's stack ends with its coroutine."""
    last, found, owners = _coroutine(here), [], _generators
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame in owners:
            found.append(frame)
        if frame is last:
            break
        frame = frame.f_back
    return found


def _owner(frame: FrameType | None, here: _Here) -> FrameType | None:
    """The innermost frame on the way up from `frame` that can be suspended while others of its task or thread run."""
    last = _coroutine(here)
    while frame is not None and frame is not last:
        flags, driver = frame.f_code.co_flags, frame.f_back
        if flags & _GENERATOR:
            if not stands_for_a_block(driver):
                return frame
        elif flags & inspect.CO_COROUTINE and not (driver and driver.f_code.co_flags & _SUSPENDABLE):
            return frame  # awaited by nobody, and no task's: driven by hand, like a generator
        frame = driver
    return None


def _coroutine(here: _Here) -> FrameType | None:
    return None if here.task is None else getattr(here.task.get_coro(), "cr_frame", None)


def _forget_other_threads() -> None:
    """In a forked child: the other threads, and their generators, stayed with the parent; one may have had the lock."""
    global _lock
    _lock = threading.RLock()
    for frame, owned in tuple(_generators.items()):
        if all(block.is_of_another_thread for block in owned):
            del _generators[frame]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_other_threads)

"""One attempt of a graph's task: what came in it so far, and which of its calls are under way."""

from __future__ import annotations

from collections import Counter, OrderedDict
from concurrent.futures import Future
from threading import Lock
from typing import Any

from guarded_langchain.graph import compat

_MAX_ATTEMPTS = 4096
_lock = Lock()
# Each attempt is known by what LangGraph keeps of it, held here so that its address is not another's.
_attempts: OrderedDict[tuple[str, int, int], tuple[object, Attempt]] = OrderedDict()


class Attempt:
    """What is remembered of one attempt; the next one begins anew, and finds the same calls.

    Attributes:
        came: how often each equal call came.
        under_way: the calls that have begun; each is done when its call has ended or paused.
        is_over: whether one of its calls has paused it: nothing waits for what begins now.
    """

    __slots__ = ("came", "is_over", "under_way")

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self.under_way: set[Future[None]] = set()
        self.is_over = False


def attempt_of(runtime: Any) -> Attempt | None:
    """The attempt that this code runs in; None outside of a graph with a thread."""
    info = getattr(runtime, "execution_info", None)
    if info is None or info.thread_id is None:
        return None
    kept = compat.current_scratchpad()
    key = (str(info.checkpoint_ns), id(kept), getattr(info, "node_attempt", 1))
    with _lock:
        attempt = _attempts.setdefault(key, (kept, Attempt()))[1]
        _attempts.move_to_end(key)
        while len(_attempts) > _MAX_ATTEMPTS:
            _attempts.popitem(last=False)
    return attempt

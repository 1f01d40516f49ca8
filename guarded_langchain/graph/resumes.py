"""What a graph's run was resumed with: the value that its own caller sent, and that no other run has.

LangGraph keeps a resume value with the checkpoint and hands it to whatever asks next, in later runs too. What a person
answered must reach the question that they saw, and no other; so the value is read from the run that carries it.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from guarded_langchain.graph import compat

_ID = re.compile(r"[0-9a-f]{32}")
_MAX_RUNS = 1 << 16
_MAX_QUESTIONS = 1 << 12

# Runs that carry a value and questions that are shown, of this process, in the order in which they came.
_numbers = itertools.count(1)
_lock = threading.Lock()
_shown: OrderedDict[str, int] = OrderedDict()


@dataclass(frozen=True, slots=True, repr=False)
class Resume:
    """The value that a run was resumed with.

    Attributes:
        value: as its caller sent it; untrusted.
        number: when the run began, among this process's runs and questions.
        began_ns: the same by the monotonic clock.
    """

    value: Any
    number: int
    began_ns: int

    @property
    def age_ns(self) -> int:
        """For how long the run goes on."""
        return time.monotonic_ns() - self.began_ns

    @property
    def is_by_id(self) -> bool:
        """Whether it has values by the ids of interrupts; otherwise it is bare, for whatever is shown."""
        return isinstance(self.value, dict) and all(map(_is_id, self.value))

    def is_later_than(self, question_id: str) -> bool | None:
        """Whether that question was shown before the run began; None if this process has not shown it."""
        with _lock:
            shown = _shown.get(question_id)
        return None if shown is None else shown < self.number


def show(question_id: str) -> None:
    """Remember that this question is shown now; the first time counts."""
    with _lock:
        if question_id not in _shown:
            _shown[question_id] = next(_numbers)
        while len(_shown) > _MAX_QUESTIONS:
            _shown.popitem(last=False)


def current() -> Resume | None:
    """What the outermost graph that this code runs in was resumed with, in this run; None where it was not."""
    graph = _runs.current_graph()
    return graph.resume if graph else None


def is_spent() -> bool:
    """Whether a bare value is none for what a guarded call asks inside: it is of an earlier run, or for a guard.

    Where that cannot be told, it is what LangGraph takes it for.
    """
    spent = _spent_or_where()
    return spent if isinstance(spent, bool) else _is_for_guard(spent.shown())


async def ais_spent() -> bool:
    """As `is_spent`, awaiting."""
    spent = _spent_or_where()
    return spent if isinstance(spent, bool) else _is_for_guard(await spent.ashown())


def _spent_or_where() -> bool | compat.Place:
    """The same, or the place where it is to be told by what is shown."""
    graph = _runs.current_graph()
    if graph is None:
        return False
    if graph.resume is None or graph.resume.is_by_id:
        return True
    return compat.current_place() or False


def _is_for_guard(shown: Sequence[compat.Shown]) -> bool:
    """Whether a bare value was for a guard's question; or for nothing, as far as can be seen."""
    return not shown or any(map(is_question, shown))


def is_question(interrupt: Any) -> bool:
    """Whether an interrupt is a guard's: then its id is the request's."""
    value = interrupt.value[0] if isinstance(interrupt.value, list) and interrupt.value else interrupt.value
    return isinstance(value, dict) and interrupt.id in (value.get("request_id"), value.get("question_id"))


@cache
def watch() -> None:
    """Begin to look at what runs are started with; before, and for runs that began before, there is no `current`."""
    register_configure_hook(_handler, inheritable=True)


@dataclass(frozen=True, slots=True, repr=False)
class _Run:
    parent: UUID | None
    task: str
    resume: Resume | None


class _Runs(BaseCallbackHandler):
    """The runs that are under way: whose child each is, in which task, and what it was resumed with."""

    run_inline = True  # a child may ask at once

    def __init__(self) -> None:
        self._runs: dict[UUID, _Run] = {}

    @property
    def ignore_llm(self) -> bool:
        return True

    @property
    def ignore_retriever(self) -> bool:
        return True

    @property
    def ignore_custom_event(self) -> bool:
        return True

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        resume = None
        if (value := compat.resume_value(inputs)) is not None:
            resume = Resume(value, next(_numbers), time.monotonic_ns())
        self._begin(run_id, parent_run_id, metadata, resume)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        self._begin(run_id, parent_run_id, metadata, None)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **rest: Any) -> None:
        self._runs.pop(run_id, None)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **rest: Any) -> None:
        self._runs.pop(run_id, None)

    def on_tool_end(self, output: Any, *, run_id: UUID, **rest: Any) -> None:
        self._runs.pop(run_id, None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **rest: Any) -> None:
        self._runs.pop(run_id, None)

    def current_graph(self) -> _Run | None:
        """The run of the outermost graph that this code is in; None where that cannot be told.

        Where one graph runs inside another one's tool, on a thread of its own, it is the outermost of that thread.
        """
        inside = compat.current_run() if self._runs else None
        if inside is None:
            return None
        run_id, task = inside
        graphs: dict[str, UUID | None] = {}
        run = self._runs.get(run_id)
        while run is not None:
            if ":" in run.task:
                graphs[run.task] = run.parent  # the outermost run in a task is the graph's child
            run = self._runs.get(run.parent) if run.parent else None
        if ":" not in task and len(graphs) == 1:  # a subgraph with checkpoints of its own is not told by its task
            (task,) = graphs
        graph = graphs.get(task)
        return self._runs.get(graph) if graph else None

    def _begin(self, run_id: UUID, parent: UUID | None, metadata: dict[str, Any] | None, resume: Resume | None) -> None:
        task = compat.outer_task((metadata or {}).get("langgraph_checkpoint_ns"))
        with _lock:
            self._runs[run_id] = _Run(parent, task, resume)
            while len(self._runs) > _MAX_RUNS:  # runs that never ended: what they carried is never an answer
                del self._runs[next(iter(self._runs))]


def _is_id(key: object) -> bool:
    return isinstance(key, str) and _ID.fullmatch(key) is not None


_runs = _Runs()
_handler: ContextVar[Any] = ContextVar("guarded_runs", default=_runs)

"""What this adapter takes from LangGraph, and where it is beyond its documented interfaces, all in one place.

tests/langchain/test_compat.py checks each of them against the installed versions, and fails by name when one has moved.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool

from guarded_langchain.compat import declared, injected_arguments, is_injected

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

# Before 1.2.13, LangGraph counted the interrupts of tasks that had ended, and refused a bare value with more than one.
TAKES_BARE_VALUES = importlib.util.find_spec("langgraph") is not None and (
    importlib.util.find_spec("langgraph.pregel._task_status") is not None
)


try:
    from langgraph.config import get_config
    from langgraph.errors import GraphBubbleUp, GraphInterrupt
    from langgraph.graph import StateGraph
    from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.pregel import Pregel
    from langgraph.runtime import get_runtime
    from langgraph.types import Command, Interrupt
except ImportError:  # LangGraph is optional: without it there is no graph to pause, and nothing that injects
    HAS_LANGGRAPH = False
    SIGNALS: tuple[type[BaseException], ...] = ()
else:
    HAS_LANGGRAPH = True
    # Interrupts and parent commands: a graph's control flow, never a tool's failure.
    SIGNALS = (GraphBubbleUp,)
_SHOWS_SCHEMAS = HAS_LANGGRAPH and "response_schema" in inspect.signature(Interrupt.__init__).parameters


def state_fields(tool: BaseTool) -> dict[str, str | None]:
    """Arguments that a graph fills from its state: the field, or None for the whole state."""
    if not HAS_LANGGRAPH:
        return {}
    fields: dict[str, str | None] = {}
    for name, kind in declared(tool):
        for marker in get_args(kind)[1:]:
            if isinstance(marker, InjectedState):
                fields[name] = marker.field
            elif marker is InjectedState:
                fields[name] = None
    return fields


def framework_arguments(tool: BaseTool) -> frozenset[str]:
    """Arguments that a graph fills by itself: from its state, with its store."""
    if not HAS_LANGGRAPH:
        return frozenset()
    stores = {name for name, kind in declared(tool) if is_injected(kind, InjectedStore)}
    return frozenset(state_fields(tool)) | stores


def runtime_parameter(tool: BaseTool) -> str | None:
    """The parameter under which ToolNode hands the tool its ToolRuntime; None where it asks for none."""
    if not HAS_LANGGRAPH:
        return None
    named = [name for name, kind in declared(tool) if _is_tool_runtime(kind)]
    return named[-1] if named else BY_NAME if BY_NAME in injected_arguments(tool) else None


# ToolNode puts its ToolRuntime into whatever argument is called so.
BY_NAME = "runtime"


def runtime_type() -> type | None:
    """ToolRuntime, where there is LangGraph."""
    return ToolRuntime if HAS_LANGGRAPH else None


def _is_tool_runtime(kind: Any) -> bool:
    parts = (kind, getattr(kind, "__origin__", None), *get_args(kind))
    return any(isinstance(part, type) and issubclass(part, ToolRuntime) for part in parts)


def is_tool_runtime(held: object) -> bool:
    """Whether this is what ToolNode hands over, and not an application's own runtime."""
    return HAS_LANGGRAPH and isinstance(held, ToolRuntime)


def current_runtime() -> Runtime[Any] | None:
    """The runtime of the graph that this code runs in; None outside a graph."""
    if not HAS_LANGGRAPH:
        return None
    try:
        return get_runtime()
    except (RuntimeError, KeyError):  # outside any runnable, or in one that no graph runs
        return None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Shown:
    """An interrupt that a graph shows, and that nobody has answered.

    Attributes:
        id, value: the interrupt's.
        task: id of the outermost graph's task that it is of.
    """

    id: str
    value: Any
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a graph runs.

    Attributes:
        checkpoint: thread and checkpoint of the outermost graph.
        namespace: of the task, from the outermost graph's down.
        saver: keeps the checkpoints.
        outermost: the outermost graph's checkpoint, for the saver.
        is_call: whether its task is a call of the functional API, whose interrupts only its caller shows.
    """

    checkpoint: tuple[str, str]
    namespace: str
    saver: Any = field(repr=False, compare=False)
    outermost: RunnableConfig = field(repr=False, compare=False)
    is_call: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """See `path_of`."""
        return path_of(self.namespace)

    @property
    def task(self) -> str:
        """Id of the outermost graph's task."""
        return _task_id(outer_task(self.namespace))

    def shown(self) -> tuple[Shown, ...]:
        """What the outermost graph shows; nothing where its saver is only to be awaited, as in a graph that is."""
        try:
            return _open_interrupts(self.saver.get_tuple(self.outermost))
        except (NotImplementedError, asyncio.InvalidStateError):
            return ()

    async def ashown(self) -> tuple[Shown, ...]:
        """As `shown`, awaiting."""
        return _open_interrupts(await self.saver.aget_tuple(self.outermost))

    def is_apart(self, namespace: str) -> bool:
        """Whether that one belongs to another task of one graph, which then collects the interrupts of both.

        Otherwise both are in one task, or called by one, of which only the first interrupt is looked at.
        """
        own = self.namespace.split("|")
        for depth, (mine, others) in enumerate(zip(own, namespace.split("|"), strict=False)):
            if _task_id(mine) != _task_id(others):
                # Of a task in between it is not known whether it is a call.
                is_collected = depth == 0 or depth == len(own) - 1
                # A bare number tells apart the graphs that one task runs.
                return is_collected and not self.is_call and ":" in mine and ":" in others
        return False


def path_of(namespace: str) -> tuple[str, ...]:
    """A namespace without the ids of inner tasks, which change where a graph keeps no checkpoints."""
    outer, *inner = namespace.split("|")
    return (outer, *(part.partition(":")[0] for part in inner))


def current_place() -> Place | None:
    """Where the graph that this code runs in could pause, and go on in any process; None where none could."""
    try:
        config = get_config()
    except RuntimeError:
        return None
    inside, path = config.get("configurable", {}), _task_path(config)
    namespace, thread = inside.get("checkpoint_ns"), inside.get("thread_id")
    checkpoint = (inside.get("checkpoint_map") or {}).get("")
    # A saver where the graph has one, also where it has it from its parent.
    saver = inside.get("__pregel_checkpointer")
    if not namespace or thread is None or not checkpoint or not saver:
        return None
    outermost: RunnableConfig = {
        "configurable": {"thread_id": str(thread), "checkpoint_ns": "", "checkpoint_id": checkpoint}
    }
    return Place(
        checkpoint=(str(thread), checkpoint),
        namespace=namespace,
        saver=saver,
        outermost=outermost,
        is_call=path[0] == "__pregel_push" and path[-1] is True,
    )


def _task_path(config: RunnableConfig) -> tuple[Any, ...]:
    """How LangGraph came to run this task: its kind first, and last, of one that was sent, whether it is a call."""
    return config.get("metadata", {}).get("langgraph_path") or ("",)


def outer_task(namespace: object) -> str:
    """The outermost graph's task in a checkpoint namespace; empty where there is none."""
    return namespace.partition("|")[0] if isinstance(namespace, str) else ""


def current_run() -> tuple[UUID, str] | None:
    """The run that this code is in, for callbacks, and the outermost graph's task; None outside a graph."""
    if not HAS_LANGGRAPH:
        return None
    try:
        config = get_config()
    except RuntimeError:
        return None
    run_id = getattr(config.get("callbacks"), "parent_run_id", None)
    task = outer_task(config.get("configurable", {}).get("checkpoint_ns"))
    return (run_id, task) if run_id is not None and task else None


def current_scratchpad() -> object:
    """What LangGraph keeps of one attempt of the task that this code runs in; None outside a graph."""
    if not HAS_LANGGRAPH:
        return None
    try:
        return get_config().get("configurable", {}).get("__pregel_scratchpad")
    except RuntimeError:
        return None


def resume_value(entered: object) -> Any:
    """What a graph that is entered with this is resumed with; None where it is not."""
    return entered.resume if HAS_LANGGRAPH and isinstance(entered, Command) else None


# What is written of a task that says nothing of what it gave: a task with anything else has ended.
_CONTROL = ("__interrupt__", "__resume__", "__error__", "__error_source_node__")


def _open_interrupts(saved: Any) -> tuple[Shown, ...]:
    writes = (saved.pending_writes if saved else None) or ()
    ended = {task for task, channel, _ in writes if channel not in _CONTROL}
    return tuple(
        Shown(id=one.id, value=one.value, task=task)
        for task, channel, value in writes
        if channel == "__interrupt__" and task not in ended
        for one in (value if isinstance(value, (list, tuple)) else [value])
    )


def _task_id(segment: str) -> str:
    return segment.rpartition(":")[2]


def graph_interrupt(*shown: tuple[Any, str, dict[str, Any] | None]) -> BaseException:
    """The signal that pauses a graph and shows these values, each under its id; with none, it only pauses.

    Args:
        shown: value, id and the JSON Schema of an answer, which LangGraph before 1.2.13 does not show.
    """
    return GraphInterrupt(tuple(_interrupt(*each) for each in shown))


def _interrupt(value: Any, id: str, schema: dict[str, Any] | None) -> Any:
    if schema is None or not _SHOWS_SCHEMAS:
        return Interrupt(value=value, id=id)
    return Interrupt(value=value, id=id, response_schema=schema)


@contextmanager
def own_scratchpad(config: RunnableConfig, tool_call_id: str | None, *, hides_resume: bool) -> Iterator[RunnableConfig]:
    """Run one call in this block, apart from the other calls of its task.

    A task numbers the graphs that run inside it by one counter; a call that is replayed, and runs none, would shift the
    others onto its checkpoints, and they would return its results: each has numbers of its own.

    Args:
        config: of the call.
        tool_call_id: of the call.
        hides_resume: whether a bare value that the graph was resumed with is not for what the call asks inside.
    """
    given: RunnableConfig = config or {}  # `run`, called by itself, hands over none
    scratchpad = given.get("configurable", {}).get("__pregel_scratchpad")
    changes: dict[str, Any] = {}
    if (
        tool_call_id is not None and _task_path(given)[0] == "__pregel_pull"
    ):  # otherwise it was sent to a task of its own
        first = int.from_bytes(hashlib.sha256(tool_call_id.encode("utf-8", "surrogatepass")).digest()[:5])
        numbers = itertools.count(first + 1)
        changes["subgraph_counter"] = lambda: next(numbers)
    if hides_resume:
        changes["get_null_resume"] = lambda consume=False: None
    if scratchpad is None or not changes:
        yield config
        return
    own = replace(scratchpad, **changes)
    changed: RunnableConfig = {**config, "configurable": {**config["configurable"], "__pregel_scratchpad": own}}
    token = var_child_runnable_config.set(changed)
    try:
        yield changed
    finally:
        var_child_runnable_config.reset(token)


def tool_call_request(tool_call: Any, state: Any, runtime: Any) -> Any:
    """What middleware is asked about a call before its tool is known, as LangChain's human in the loop makes it."""
    own = ToolRuntime(
        state=state,
        context=runtime.context,
        config=get_config(),
        stream_writer=runtime.stream_writer,
        tool_call_id=tool_call["id"],
        store=runtime.store,
    )
    return ToolCallRequest(tool_call=tool_call, tool=None, state=state, runtime=own)


def is_tool_node(held: object) -> bool:
    """Whether this is the node of a graph that runs tools."""
    return HAS_LANGGRAPH and isinstance(held, ToolNode)


def is_graph(held: object) -> bool:
    """Whether this is a graph, compiled or not."""
    return HAS_LANGGRAPH and isinstance(held, StateGraph | Pregel)


def remote_graph(held: object) -> str | None:
    """The name of a graph that runs on a server, or of the entry that says where; None for anything else."""
    if isinstance(held, dict):  # as deepagents describes its remote subagents
        return str(held.get("name")) if isinstance(held.get("graph_id"), str) and "name" in held else None
    if HAS_LANGGRAPH and "langgraph.pregel.remote" in sys.modules:
        remote = sys.modules["langgraph.pregel.remote"].RemoteGraph
        return str(held.name) if isinstance(held, remote) else None
    return None


def tool_call_wrappers(node: Any) -> list[Any]:
    """What stands around a ToolNode's calls: middleware, where an agent has any."""
    return [wrapper for wrapper in (node._wrap_tool_call, node._awrap_tool_call) if wrapper is not None]

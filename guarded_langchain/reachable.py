"""Which tools an agent can get at, and which of them no guard stands in front of."""

from __future__ import annotations

import functools
import inspect
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool

from guarded_core.ground.moved import moved_name
from guarded_core.guard import Guard
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.tool import GuardedTool

# Before 0.2.0.
RENAMED = {
    "CoverageReport": "guarded_langchain.reachable:ReachableTools",
    "coverage_report": "guarded_langchain.reachable:reachable_tools",
}

_MAX_VISITED = 200_000
_LEAVES = (str, bytes, int, float, bool, type(None), type, types.ModuleType, Guard)
_CONTAINERS = (list, tuple, set, frozenset, deque)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableTools:
    """The tools that were found, by name, sorted.

    Attributes:
        guarded: wrapped by `guard_tool`.
        by_middleware: not wrapped, and run only by an agent whose GuardMiddleware guards them.
        unguarded: reachable without a guard.
    """

    guarded: tuple[str, ...]
    by_middleware: tuple[str, ...]
    unguarded: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Whether a guard stands in front of every tool that was found."""
        return not self.unguarded

    def __str__(self) -> str:
        return "\n".join(
            f"{title}: {', '.join(names) or 'none'}"
            for title, names in (
                ("unguarded", self.unguarded),
                ("guarded", self.guarded),
                ("guarded by middleware", self.by_middleware),
            )
        )


def reachable_tools(agent_or_tools: Any) -> ReachableTools:
    """Look for tools in an agent, a graph, a ToolNode, a middleware or a list of tools, and in what they hold.

    It follows attributes, containers, the variables that functions close over and the globals that they name, also
    inside guarded tools (an agent used as a tool has tools of its own). It finds what is there now; what comes while
    the agent runs is for GuardMiddleware. A provider's own tools, dicts in a list, count as unguarded: they run
    elsewhere. A tool that two nodes have, one of them without the middleware, counts as unguarded.
    """
    given = agent_or_tools
    provided = [str(tool.get("name") or tool.get("type")) for tool in _listed(given) if isinstance(tool, Mapping)]
    found = _Search().visit(given)
    covered: set[int] = set()
    exposed: set[int] = set()
    for node in found.nodes:
        is_covered = _Search().visit(graph_compat.tool_call_wrappers(node)).has_middleware
        # The node's own tools, and not what they hold: a subagent's node has middleware of its own, or none.
        (covered if is_covered else exposed).update(map(id, node.tools_by_name.values()))
    covered -= exposed
    by_middleware = {name for key, name in found.bare.items() if key in covered}
    unguarded = {name for key, name in found.bare.items() if key not in covered}
    return ReachableTools(
        guarded=tuple(sorted(found.guarded)),
        by_middleware=tuple(sorted(by_middleware)),
        unguarded=tuple(sorted({*unguarded, *provided, *found.provided})),
    )


def _listed(given: Any) -> Iterable[Any]:
    return given if isinstance(given, _CONTAINERS) else ()


class _Search:
    """A walk over all that an object holds."""

    def __init__(self) -> None:
        self.guarded: set[str] = set()
        self.bare: dict[int, str] = {}
        self.nodes: list[Any] = []
        self.has_middleware = False
        self.provided: set[str] = set()
        self._seen: dict[int, Any] = {}  # the objects too, so that no id is used twice

    def visit(self, root: Any) -> _Search:
        waiting = [root]
        while waiting and len(self._seen) < _MAX_VISITED:
            held = waiting.pop()
            if isinstance(held, _LEAVES) or id(held) in self._seen:
                continue
            self._seen[id(held)] = held
            waiting.extend(self._inside(held))
        return self

    def _inside(self, held: Any) -> Iterable[Any]:
        if isinstance(held, GuardedTool):
            self.guarded.add(held._gate.spec.name)
            # The inner tool is only reached through the guard; what it holds can be reached from inside it.
            return _attributes(held._gate.inner)
        if isinstance(held, BaseTool):
            self.bare[id(held)] = held.name
        elif isinstance(held, _guard_middleware()):
            self.has_middleware = True
            return ()
        elif graph_compat.is_tool_node(held):
            self.nodes.append(held)
        elif inspect.isfunction(held):
            self.provided.update(_provided(held))
        return _parts(held)


@functools.cache
def _guard_middleware() -> tuple[type, ...]:
    try:
        from guarded_langchain.middleware import GuardMiddleware
    except ImportError:  # without LangChain's agents there is none
        return ()
    return (GuardMiddleware,)


def _parts(held: Any) -> Iterator[Any]:
    if isinstance(held, Mapping):
        yield from held.values()
    elif isinstance(held, _CONTAINERS):
        yield from held
    elif isinstance(held, functools.partial):
        yield from (held.func, held.args, held.keywords)
    elif inspect.ismethod(held):
        yield from (held.__self__, held.__func__)
    elif inspect.isfunction(held):
        yield from _of_function(held)
    else:
        yield from _attributes(held)


def _provided(function: types.FunctionType) -> Iterator[str]:
    """The provider's own tools, dicts, among the tools that an agent's node gives to its model."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if name.endswith("tools") and isinstance(held, _CONTAINERS):
            yield from (
                str(tool.get("name") or tool.get("type"))
                for tool in held
                if isinstance(tool, Mapping) and "type" in tool
            )


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from (function.__defaults__, function.__kwdefaults__, vars(function))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            continue
    if not function.__module__.startswith(("langchain", "langgraph", "langsmith", "pydantic")):
        yield from (function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__)


def _attributes(held: Any) -> Iterator[Any]:
    # Pydantic keeps private and extra attributes apart from the others.
    for place in ("__dict__", "__pydantic_private__", "__pydantic_extra__"):
        attributes = getattr(held, place, None)
        if isinstance(attributes, dict):
            yield from attributes.values()
    for kind in type(held).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(held, name, None)


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name, RENAMED)

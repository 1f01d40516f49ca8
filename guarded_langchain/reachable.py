"""Which tools an agent can get at, and which of them no guard stands in front of."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool, BaseToolkit

from guarded_core.ground.given import misplaced
from guarded_core.ground.held import CONTAINERS, Walk, names_of
from guarded_core.ground.moved import moved_name
from guarded_core.ground.unguarded import UnguardedTools
from guarded_core.guard import Guard
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.tool import GuardedTool

# Before 0.2.0.
RENAMED = {
    "CoverageReport": "guarded_langchain.reachable:ReachableTools",
    "coverage_report": "guarded_langchain.reachable:reachable_tools",
}

# What code calls to make an agent, or a node for tools, where these modules are loaded.
_MAKERS = {
    "langchain.agents": ("create_agent",),
    "langgraph.graph": ("StateGraph",),
    "langgraph.prebuilt": ("create_react_agent", "ToolNode"),
    "langgraph_supervisor": ("create_supervisor",),
    "langgraph_swarm": ("create_swarm",),
    "deepagents": ("create_deep_agent",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableTools:
    """The tools that were found, by name, sorted.

    Attributes:
        guarded: wrapped by `guard_tool`.
        by_middleware: not wrapped, and run only by an agent whose GuardMiddleware guards them.
        unguarded: reachable without a guard.
        unknown: what tools may be behind, and cannot be looked into; one line each.
    """

    guarded: tuple[str, ...]
    by_middleware: tuple[str, ...]
    unguarded: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether a guard stands in front of every tool, and nothing is left that could not be looked into."""
        return not self.unguarded and not self.unknown

    def __str__(self) -> str:
        lines = {"unguarded": self.unguarded, "guarded": self.guarded, "guarded by middleware": self.by_middleware}
        if self.unknown:
            lines = {"unknown": self.unknown, **lines}
        return "\n".join(f"{title}: {', '.join(names) or 'none'}" for title, names in lines.items())


def reachable_tools(agent_or_tools: Any) -> ReachableTools:
    """Look for tools in an agent, a graph, a ToolNode, a middleware or a list of tools, and in what they hold.

    It follows attributes, containers, methods, the variables that functions close over and what they name and import,
    also inside guarded tools (an agent used as a tool has tools of its own). It finds what is there now; what comes
    while the agent runs is for GuardMiddleware. A provider's own tools, dicts in a list, count as unguarded: they run
    elsewhere. A tool that two nodes have, one of them without the middleware, counts as unguarded, and so does one that
    another tool's code can call: the middleware sees none of that. What is there and cannot be looked into is named as
    unknown: a graph on a server, a toolkit, an MCP client, code that makes agents as it runs.

    Raises:
        GuardConfigurationError: for what can hold no tool, such as None.
    """
    given = agent_or_tools
    if given is None or isinstance(given, str | bytes | int | float | type | Guard):
        # Nothing would be found in it, and all would look well.
        raise misplaced("agent_or_tools", "an agent, a graph, a middleware or a list of tools", given)
    listed = given if isinstance(given, CONTAINERS) else ()
    provided = [str(tool.get("name") or tool.get("type")) for tool in listed if isinstance(tool, Mapping)]
    found = _Search().search(given)
    covered: set[int] = set()
    exposed: set[int] = set()
    for node in found.nodes:
        is_covered = _Search().search(graph_compat.tool_call_wrappers(node)).has_middleware
        # The node's own tools, and not what they hold: a subagent's node has middleware of its own, or none.
        (covered if is_covered else exposed).update(map(id, node.tools_by_name.values()))
    covered -= exposed.union(*(_called_inside(tool) for tool in found.tools))
    by_middleware = {name for key, name in found.bare.items() if key in covered}
    unguarded = {name for key, name in found.bare.items() if key not in covered}
    return ReachableTools(
        guarded=tuple(sorted(found.guarded)),
        by_middleware=tuple(sorted(by_middleware)),
        unguarded=tuple(sorted({*unguarded, *provided, *found.provided})),
        unknown=tuple(sorted(found.unseen)),
    )


def assert_all_guarded(agent_or_tools: Any, *, allow_unknown: bool = False) -> None:
    """Check, as `reachable_tools` sees it now, that a guard stands in front of every tool; best right before it runs.

    Args:
        agent_or_tools: as for `reachable_tools`.
        allow_unknown: accepts what cannot be looked into.

    Raises:
        UnguardedTools: naming all that is not guarded, or not known to be.
    """
    found = reachable_tools(agent_or_tools)
    lines = [f"tool {name!r} is not guarded" for name in found.unguarded]
    lines += [] if allow_unknown else [f"it is not known what is behind {what}" for what in found.unknown]
    if lines:
        raise UnguardedTools(lines)


class _Search(Walk):
    """A walk over all that an agent holds."""

    def __init__(self) -> None:
        super().__init__(_makers())
        self.guarded: set[str] = set()
        self.bare: dict[int, str] = {}
        self.tools: list[BaseTool] = []
        self.nodes: list[Any] = []
        self.has_middleware = False
        self.provided: set[str] = set()

    def search(self, root: Any) -> _Search:
        self.visit(root, self._inside)
        return self

    def _inside(self, held: Any) -> Iterable[Any]:
        if isinstance(held, Guard):
            return ()
        if isinstance(held, GuardedTool):
            self.guarded.add(held._gate.spec.name)
            self.tools.append(held._gate.inner)
            # The inner tool is only reached through the guard; what it holds can be reached from inside it.
            return self.parts(held._gate.inner)
        if isinstance(held, BaseTool):
            self.bare[id(held)] = held.name
            self.tools.append(held)
        elif isinstance(held, _guard_middleware()):
            self.has_middleware = True
            return ()
        elif graph_compat.is_tool_node(held):
            self.nodes.append(held)
        elif isinstance(held, BaseToolkit):
            self.unseen[f"the toolkit {type(held).__name__}, which makes its tools when it is asked"] = None
        elif (name := graph_compat.remote_graph(held)) is not None:
            self.unseen[f"the graph {name!r}, which runs on a server"] = None
            return ()
        elif inspect.isfunction(held):
            self.provided.update(_provided(held))
        return self.parts(held)


class _CodeSearch(_Search):
    """A walk over what a tool's own code can call: up to the graphs in it, whose nodes are looked at for themselves."""

    def _inside(self, held: Any) -> Iterable[Any]:
        if graph_compat.is_graph(held) or graph_compat.is_tool_node(held) or _runs_graphs_alone(held):
            return ()
        if inspect.ismethod(held) and not isinstance(held.__self__, type):
            return self._of_method(held)
        return super()._inside(held)

    def _of_method(self, method: types.MethodType) -> Iterator[Any]:
        """The method's function, and what it names of its object, which often holds all of an agent's tools."""
        yield method.__func__
        owner, named, waiting = method.__self__, set[str](), [method.__func__]
        while waiting:
            function = inspect.unwrap(waiting.pop())
            if not inspect.isfunction(function):  # there is no saying what it uses
                yield owner
                return
            for name in names_of(function.__code__) - named:
                named.add(name)
                held = inspect.getattr_static(owner, name, None)
                if isinstance(held, types.FunctionType):  # another method
                    waiting.append(held)
                    yield held
                elif isinstance(held, property):
                    waiting += [one for one in (held.fget, held.fset) if one is not None]
                elif held is not None:
                    yield held


def _runs_graphs_alone(held: Any) -> bool:
    """Whether this is code of deepagents, which keeps how its subagents were described, with tools, beside them."""
    return inspect.isfunction(held) and str(held.__globals__.get("__name__")).partition(".")[0] == "deepagents"


def _called_inside(tool: BaseTool) -> set[int]:
    """The ids of the tools that this one's own code can call, outside any graph."""
    search = _CodeSearch()
    return set(search.search(list(search.parts(tool))).bare)


def _makers() -> list[object]:
    """What `_MAKERS` names, as far as it is loaded."""
    loaded = [(vars(sys.modules[module]), names) for module, names in _MAKERS.items() if module in sys.modules]
    return [module[name] for module, names in loaded for name in names if name in module]


@functools.cache
def _guard_middleware() -> tuple[type, ...]:
    try:
        from guarded_langchain.middleware import GuardMiddleware
    except ImportError:  # without LangChain's agents there is none
        return ()
    return (GuardMiddleware,)


def _provided(function: types.FunctionType) -> Iterator[str]:
    """The provider's own tools, dicts, among the tools that an agent's node gives to its model."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if name.endswith("tools") and isinstance(held, CONTAINERS):
            yield from (
                str(tool.get("name") or tool.get("type"))
                for tool in held
                if isinstance(tool, Mapping) and "type" in tool
            )


def __getattr__(name: str) -> Any:
    return moved_name(__name__, name, RENAMED)

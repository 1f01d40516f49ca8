"""What an object holds: its attributes and members, and what its functions close over, name and import."""

from __future__ import annotations

import dis
import functools
import importlib.util
import inspect
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_STANDARD = sys.stdlib_module_names - {"__main__"}
_INSTALLED = ("site-packages", "dist-packages", "<frozen")
CONTAINERS = list | tuple | set | frozenset | deque  # type: ignore[type-arg]

_MAX_VISITED = 200_000
_LEAVES = (str, bytes, int, float, bool, type(None), types.ModuleType)
# Loggers, loops, threads and locks: what they hold is everybody's.
_MACHINERY = ("logging", "asyncio", "_asyncio", "threading", "_thread", "concurrent")
_AGENTS = ("langchain", "langgraph", "llama_index", "workflows", "deepagents")
# Packages whose own globals and classes lead everywhere, and to nothing that an application gave them.
_FRAMEWORKS = (*_AGENTS, "guarded_core", "guarded_langchain", "guarded_llamaindex", "langsmith", "pydantic")
# What makes tools, or calls a server's, when it is asked: packages and their classes, which need not be installed.
_TOOL_SOURCES = {
    ("llama_index", "BaseToolSpec"): "the tool spec {}, which makes its tools when it is asked",
    ("llama_index", "BasicMCPClient"): "the MCP client {}, which calls a server's tools",
    ("langchain_mcp_adapters", "MultiServerMCPClient"): "the MCP client {}, which calls a server's tools",
    ("mcp", "ClientSession"): "the MCP client {}, which calls a server's tools",
    ("fastmcp", "Client"): "the MCP client {}, which calls a server's tools",
}


class Walk:
    """A walk over all that an object holds.

    Args:
        makers: functions and classes that make what is looked for: code that calls one has something more as it runs.

    Attributes:
        unseen: what could not be looked at, one line each, in the order it was met.
    """

    def __init__(self, makers: Iterable[object] = ()) -> None:
        self._makers = tuple(makers)
        self.unseen: dict[str, None] = {}
        self._followed: dict[int, bool] = {}
        self._seen: dict[int, Any] = {}  # the objects too, so that no id is used twice

    def visit(self, root: Any, inside: Callable[[Any], Iterable[Any]]) -> None:
        """Look at `root` and at all that is inside it; `inside` says what is held by an object, as `parts` does."""
        waiting = [root]
        while waiting:
            held = waiting.pop()
            if isinstance(held, _LEAVES) or type(held).__module__.startswith(_MACHINERY) or id(held) in self._seen:
                continue
            if len(self._seen) >= _MAX_VISITED:
                self.unseen[f"what comes after {_MAX_VISITED} objects"] = None
                return
            self._seen[id(held)] = held
            if (source := _tool_source(held)) is not None:
                self.unseen[source] = None
            waiting.extend(inside(held))

    def parts(self, held: Any) -> Iterator[Any]:
        """What `held` itself holds."""
        if isinstance(held, Mapping | CONTAINERS):
            yield from self._members(held)
        elif isinstance(held, functools.partial | functools.partialmethod):
            yield from (held.func, held.args, held.keywords, getattr(held, "__dict__", None))
        elif isinstance(held, weakref.ref):
            yield held()
        elif inspect.ismethod(held):
            # A tool made of a source's method is not the source.
            of_source = _tool_source(held.__self__) is not None
            yield from (self.parts(held.__self__) if of_source else (held.__self__,))
            yield held.__func__
        elif isinstance(held, types.BuiltinMethodType | types.MethodWrapperType):
            yield held.__self__
        elif inspect.isfunction(held):
            yield from self._of_function(held)
        elif isinstance(held, staticmethod | classmethod):
            yield held.__func__
        elif isinstance(held, property):
            yield from (held.fget, held.fset)
        elif isinstance(held, type):
            yield from self._of_class(held)
        elif inspect.isgenerator(held):
            yield held.gi_frame and held.gi_frame.f_locals
        else:
            yield from self._attributes(held)

    def _members(self, held: Any) -> list[Any]:
        try:
            return list(held.values() if isinstance(held, Mapping) else held)
        except Exception:
            self.unseen[f"{type(held).__qualname__}: its members cannot be read"] = None
            return []

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        yield from (function.__defaults__, function.__kwdefaults__, vars(function))
        is_frameworks = _leads_nowhere(function.__globals__.get("__name__", ""))
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            # A tool that a framework made of a source calls one tool of it; an application's code could call them all.
            if not (is_frameworks and _tool_source(held) is not None):
                yield held
        if self._follows(function.__globals__):
            yield from self._named(function)

    def _named(self, function: types.FunctionType) -> Iterator[Any]:
        names, imported = _names(function.__code__)
        modules = []
        for name in names & function.__globals__.keys():
            held = function.__globals__[name]
            if any(held is maker for maker in self._makers):
                self.unseen[f"{function.__qualname__}: what {name} makes as it runs"] = None
            elif isinstance(held, types.ModuleType):
                modules.append(held)
            else:
                yield held
        package = function.__globals__.get("__package__")
        for name in imported:
            full = importlib.util.resolve_name(name, package) if package or name[:1] != "." else name
            if full in sys.modules:
                modules.append(sys.modules[full])
            elif not _is_installed(full):
                self.unseen[f"{function.__qualname__}: it imports {full} as it runs"] = None
        yield from self._of_modules(function, modules, names)

    def _of_modules(
        self, function: types.FunctionType, modules: list[types.ModuleType], names: frozenset[str]
    ) -> Iterator[Any]:
        """What the code names of modules, and not all that is in them."""
        for module in modules:  # it grows
            if not self._follows(vars(module)):
                continue
            for name in names & vars(module).keys():
                held = vars(module)[name]
                if any(held is maker for maker in self._makers):
                    self.unseen[f"{function.__qualname__}: what {name} makes as it runs"] = None
                elif not isinstance(held, types.ModuleType):
                    yield held
                elif held not in modules:
                    modules.append(held)

    def _of_class(self, kind: type) -> Iterator[Any]:
        """What a class holds itself, its methods too, and the classes that it is made from."""
        if not self._follows(vars(sys.modules.get(kind.__module__, types))):
            return
        for name, held in vars(kind).items():
            if not (name.startswith("__") and isinstance(held, Mapping)):
                yield held
        yield from kind.__bases__

    def _follows(self, module: dict[str, Any]) -> bool:
        if id(module) not in self._followed:
            self._followed[id(module)] = _is_followed(module)
        return self._followed[id(module)]

    def _attributes(self, held: Any) -> Iterator[Any]:
        # Pydantic keeps private and extra attributes apart from the others.
        for place in ("__dict__", "__pydantic_private__", "__pydantic_extra__"):
            attributes = self._got(held, place)
            if isinstance(attributes, dict):
                yield from attributes.values()
        for kind in type(held).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                is_mangled = name.startswith("__") and not name.endswith("__")
                yield self._got(held, f"_{kind.__name__.lstrip('_')}{name}" if is_mangled else name)
        yield type(held)

    def _got(self, held: Any, name: str) -> Any:
        try:
            return getattr(held, name, None)
        except Exception:
            self.unseen[f"{type(held).__qualname__}: its {name} cannot be read"] = None
            return None


def names_of(code: types.CodeType) -> frozenset[str]:
    """The names that code uses: globals, attributes, and those in the functions inside it."""
    return _names(code)[0]


def _tool_source(held: object) -> str | None:
    """What to say of an object that has tools only when it is asked for them; None for anything else."""
    for kind in type(held).__mro__:
        line = _TOOL_SOURCES.get((kind.__module__.partition(".")[0], kind.__name__))
        if line is not None:
            return line.format(type(held).__name__)
    return None


def _leads_nowhere(module: object) -> bool:
    """Whether a module is of the standard library, of a framework or of this package."""
    name = str(module)
    # By how the name begins: langchain_core, langgraph_swarm, and so on.
    return name.partition(".")[0] in _STANDARD or name.startswith(_FRAMEWORKS)


def _is_followed(module: dict[str, Any]) -> bool:
    """Whether what a module's code names is looked at: an application's, and an installed one's that uses a framework.

    Other packages' lead everywhere, by their loops and caches.
    """
    if _leads_nowhere(module.get("__name__", "")):
        return False
    if not any(place in str(module.get("__file__")) for place in _INSTALLED):
        return True
    held = list(module.values())
    named = [one.__name__ if isinstance(one, types.ModuleType) else getattr(one, "__module__", None) for one in held]
    return any(str(name).startswith(_AGENTS) for name in named)


def _is_installed(module: str) -> bool:
    """Whether a module is of the standard library or an installed package, and so none of the application's."""
    top = module.partition(".")[0]
    if _leads_nowhere(top):
        return True
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and any(place in str(spec.origin) for place in _INSTALLED)


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The names that code uses, and the modules that it imports, also in the functions inside it.

    A relative import has its dots in front.
    """
    names, imported = set(code.co_names), set()
    level = taken = None
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            imported.add("." * (level or 0) + str(instruction.argval))
            names.update(taken or ())
        level, taken = taken, instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, also = _names(constant)
            names |= inner
            imported |= also
    return frozenset(names), frozenset(imported)

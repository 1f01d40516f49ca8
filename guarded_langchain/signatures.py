"""What a tool's own code says of its arguments, beside its schema: names that never reach it, and its defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, Tool

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.roundtrip import NO_JSON, as_json
from guarded_core.tools.schema.document import kinds
from guarded_langchain import compat


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What the tool's code puts in the place of arguments that are left out.

    Attributes:
        values: as JSON, by argument.
        implicit: those that are not JSON themselves: the code fills in its own.
        unknown: arguments whose default has no JSON form; nobody is shown it.
    """

    values: Mapping[str, Any]
    implicit: frozenset[str]
    unknown: frozenset[str]


def filled(tool: BaseTool, schema: Mapping[str, Any]) -> Filled:
    """The defaults of the tool's functions for what its `schema` declares.

    Raises InvalidTool where its sync and its async function fill in different values.
    """
    found: dict[str, Any] = {}
    implicit, unknown, root = set(), set(), dict(schema)
    declared = {name: sub for name, sub in root.get("properties", {}).items() if name not in root.get("required", ())}
    for name, default in _defaults(tool, declared):
        json = as_json(default)
        if json is None and "null" not in kinds(root, declared[name]):
            continue  # None stands for no value, and is none
        if json is NO_JSON:
            unknown.add(name)
            continue
        if json is not default:
            implicit.add(name)
        found[name] = json
    return Filled(values=found, implicit=frozenset(implicit), unknown=frozenset(unknown))


def taken(tool: BaseTool) -> frozenset[str]:
    """Names under which upstream puts values of its own into a call: an argument of such a name never arrives."""
    return frozenset(_taken(tool))


def is_needed(tool: BaseTool, name: str) -> bool:
    """Whether the tool's code cannot do without that argument."""
    return any(
        parameter.default is parameter.empty
        for parameters in map(_parameters, compat.functions(tool))
        for parameter in parameters
        if parameter.name == name
    )


def check_awaited(tool: BaseTool) -> None:
    """Raise InvalidTool where LangChain calls a function that it would have to await, or awaits one that it cannot."""
    func, coroutine = getattr(tool, "func", None), getattr(tool, "coroutine", None)
    if inspect.iscoroutinefunction(func) or inspect.isasyncgenfunction(func):
        raise InvalidTool(
            f"tool {tool.name!r}: its func is async, and LangChain does not await that one; hand it over as coroutine="
        )
    if inspect.isasyncgenfunction(coroutine) or inspect.isgeneratorfunction(coroutine):
        raise InvalidTool(
            f"tool {tool.name!r}: its coroutine yields, and LangChain can only await it; collect what it yields into a "
            "list, and return that"
        )


def _taken(tool: BaseTool) -> Iterator[str]:
    for method in (tool._run, tool._arun):
        if compat.takes(method, "run_manager"):
            yield "run_manager"
        if (config := compat.config_parameter(method)) is not None:
            yield config
    if isinstance(tool, StructuredTool | Tool):
        for function in compat.functions(tool):
            if compat.takes(function, "callbacks"):
                yield "callbacks"
            if (config := compat.config_parameter(function)) is not None:
                yield config


def _defaults(tool: BaseTool, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    own = [{p.name: p.default for p in _parameters(function)} for function in _own_functions(tool)]
    for name in names:
        values = [defaults[name] for defaults in own if name in defaults]
        if any(type(value) is not type(values[0]) or value != values[0] for value in values):
            raise InvalidTool(f"tool {tool.name!r}: sync and async functions have different defaults for {name!r}")
        if values and values[0] is not inspect.Parameter.empty:
            yield name, values[0]


def _own_functions(tool: BaseTool) -> list[Callable[..., Any]]:
    """The functions, but for an `_arun` that only passes on to `_run`."""
    return [f for f in compat.functions(tool) if getattr(f, "__func__", None) is not BaseTool._arun]


def _parameters(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return ()
    return [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]

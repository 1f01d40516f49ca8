"""Whether a function can be called at all as LlamaIndex calls it, which nobody else looks at before it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

from llama_index.core.tools import BaseTool, FunctionTool
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from workflows import Context

from guarded_core.ground.errors import InvalidTool
from guarded_llamaindex.arguments import Parameters

_OWN = "put a function of your own around it"


def as_tool(function: Callable[..., Any]) -> FunctionTool:
    """A tool of that function, as agents make one. Raises InvalidTool for one without a name or a signature."""
    try:
        return FunctionTool.from_defaults(function)
    except (AttributeError, ValueError) as error:
        kind = type(function).__name__
        raise InvalidTool(
            f"a {kind} is no tool by itself, without a name or a signature; make it one by "
            "FunctionTool.from_defaults(..., name=..., description=...), or " + _OWN
        ) from error


def check_shape(tool: FunctionTool, parameters: Parameters) -> None:
    """Raise InvalidTool where the tool's functions could not be called with what its schema makes a model give."""
    name = tool.metadata.get_name()
    if inspect.isasyncgenfunction(tool.async_fn) or inspect.isgeneratorfunction(tool.async_fn):
        raise InvalidTool(
            f"tool {name!r}: its async function yields, and LlamaIndex can only await it; collect what it yields into "
            "a list, and return that"
        )
    required = frozenset(parameters.schema.get("required", ()))
    given = {*parameters.names, *parameters.partials, *filter(None, [parameters.context])}
    for function in (tool.fn, tool.async_fn):
        for wrong in _misfits(function, given, required):
            raise InvalidTool(f"tool {name!r}: {wrong}")
    _check_defaults(name, tool)


def _misfits(function: Callable[..., Any], given: set[str], required: frozenset[str]) -> Iterator[str]:
    declared = inspect.signature(function).parameters
    by_name = {p.name for p in declared.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    for p in declared.values():
        if p.kind is p.POSITIONAL_ONLY:
            yield f"LlamaIndex gives arguments by name, and {p.name!r} is taken by position only; {_OWN}"
        elif p.name in by_name - given and p.default is p.empty:
            yield (
                f"{_which(function)} needs {p.name!r}, which nobody gives: it is not in the schema, and a Context "
                f"is given only where fn declares it too, as a type and not as text; declare it in both, or {_OWN}"
            )
    if not any(p.kind is p.VAR_KEYWORD for p in declared.values()):
        for missing in sorted(required - by_name):
            yield f"{_which(function)} takes no {missing!r}, which the schema requires; add it, or change fn_schema"


def _which(function: Callable[..., Any]) -> str:
    return "its async function" if inspect.iscoroutinefunction(function) else "its function"


def _check_defaults(name: str, tool: FunctionTool) -> None:
    """Of an argument that is left out, one value is judged; the function that runs must not fill in another."""
    first, second = (
        {p.name: p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty}
        for function in (tool.fn, tool.async_fn)
    )
    for argument in sorted(first.keys() & second.keys()):
        one, other = first[argument], second[argument]
        if not _is_same(one, other):
            raise InvalidTool(
                f"tool {name!r}: its two functions have different defaults for {argument!r}; give them one"
            )


def _is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:  # arrays, say, have no one answer
        return False


def without_json_form(tool: BaseTool) -> InvalidTool:
    """The error of a tool whose schema cannot be made: which parameter it is, and the way out."""
    name, found = tool.metadata.name, ""
    function = tool.real_fn if isinstance(tool, FunctionTool) else None
    parameters = inspect.signature(function).parameters.values() if function else ()
    hints = _hints(function)
    for p in parameters:
        if hints.get(p.name) is Context and isinstance(p.annotation, str):
            return InvalidTool(
                f"tool {name!r}: LlamaIndex does not see that {p.name!r} is a Context where annotations are text; "
                "leave `from __future__ import annotations` out of the module that defines the function"
            )
        if p.annotation is not p.empty and not found and not _has_json_form(hints.get(p.name, p.annotation)):
            found = f" {p.name!r}:"
    return InvalidTool(
        f"tool {name!r}:{found} a parameter's type has no JSON form; give the tool an fn_schema, or {_OWN}"
    )


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except Exception:  # names that only a type checker knows
        return {}


def _has_json_form(kind: Any) -> bool:
    try:
        TypeAdapter(kind).json_schema()
    except (PydanticUserError, NameError):
        return False
    return not isinstance(kind, str)

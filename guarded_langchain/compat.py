"""What this adapter takes from LangChain beyond its documented interfaces, in one place; `graph.compat` is LangGraph's.

tests/langchain/test_compat.py checks each of them against the installed versions, and fails by name when one has moved.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_type_hints

from langchain_core.tools import BaseTool, InjectedToolCallId
from langchain_core.tools.base import (
    _get_runnable_config_param,
    _is_injected_arg_type,
    _stringify,
    get_all_basemodel_annotations,
)
from langchain_core.utils.pydantic import get_fields

is_injected = _is_injected_arg_type


def to_args_and_kwargs(
    tool: BaseTool, arguments: dict[str, Any], tool_call_id: str | None
) -> tuple[Any, dict[str, Any]]:
    """The positional and keyword arguments of `_run`, by the tool's own parser."""
    return tool._to_args_and_kwargs(arguments, tool_call_id)


def parses_as_upstream(tool: BaseTool) -> bool:
    """Whether the tool's parser is BaseTool's own, which `models.keywords` stands in for: it costs a tenth."""
    kind = type(tool)
    return (kind._parse_input, kind._to_args_and_kwargs) == (BaseTool._parse_input, BaseTool._to_args_and_kwargs)


def stringified(content: Any) -> str:
    """A result that is not message content, as the text that a message gets."""
    return _stringify(content)


def config_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter that takes the RunnableConfig; None where there is none."""
    return _get_runnable_config_param(function)


def injected_arguments(tool: BaseTool) -> frozenset[str]:
    """Names of the arguments that are the framework's or the application's to give, from schema and signatures."""
    return tool._injected_args_keys | {name for name, kind in declared(tool) if _is_injected_arg_type(kind)}


def id_arguments(tool: BaseTool) -> frozenset[str]:
    """Names of the arguments that take the id of the model's call."""
    return frozenset(name for name, kind in declared(tool) if _is_injected_arg_type(kind, InjectedToolCallId))


def functions(tool: BaseTool) -> list[Callable[..., Any]]:
    """What holds the tool's code: the functions it was made from, or else its methods."""
    made_from = [getattr(tool, "func", None), getattr(tool, "coroutine", None)]
    return [function for function in made_from if function is not None] or [tool._run, tool._arun]


def declared(tool: BaseTool) -> Iterator[tuple[str, Any]]:
    """Every parameter with each type that it is given: by the tool's code, and by the fields of its schema."""
    for function in functions(tool):
        yield from resolved_hints(function).items()
    if isinstance(tool.args_schema, type):
        yield from get_all_basemodel_annotations(tool.args_schema).items()


def fields(model: Any) -> dict[str, bool]:
    """The names of a model's fields, each with whether a call has to give it; pydantic version 2 and 1."""
    return {
        name: info.is_required() if hasattr(info, "is_required") else bool(info.required)
        for name, info in get_fields(model).items()
    }


def takes(function: Callable[..., Any], parameter: str) -> bool:
    """Whether the function declares that parameter."""
    return parameter in inspect.signature(function).parameters


def named_as_callbacks(tool: BaseTool) -> frozenset[str]:
    """The parameters of the tool's code that upstream takes for callbacks by their names, and whose types do not."""
    found = set()
    for function in functions(tool):
        hints = resolved_hints(function)
        for name in {"callbacks", "run_manager"} & inspect.signature(function).parameters.keys():
            if "allback" not in str(hints.get(name, "")):
                found.add(name)
    return frozenset(found)


def starred(tool: BaseTool) -> frozenset[str]:
    """The names of ``*args`` and ``**kwargs`` in the tool's code, which upstream's own schemas show as fields."""
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = (p for function in functions(tool) for p in inspect.signature(function).parameters.values())
    return frozenset(parameter.name for parameter in parameters if parameter.kind in stars)


def resolved_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The function's annotations as objects; none where one of them cannot be resolved."""
    try:
        called = getattr(function, "func", function)
        # A class's own annotations are its attributes', not what it is called with.
        called = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
        hints = get_type_hints(called, include_extras=True)
    except Exception:
        return {}
    # What a partial has given by position already is nobody's to give.
    return {name: hints[name] for name in hints if not isinstance(function, partial) or name in _left(function)}


def _left(function: partial[Any]) -> set[str]:
    return {"return", *inspect.signature(function).parameters}


# What deepagents puts after whatever middleware an application gives it. None of it exchanges a tool that is there.
_ALWAYS_AFTER = (
    "deepagents.",
    *(f"langchain_{of}.middleware.prompt_caching" for of in ("anthropic", "aws", "fireworks")),
)


def has_middleware_inside(handler: Callable[..., Any]) -> bool:
    """Whether the handler that `create_agent` gave to a middleware leads to another that the application listed."""
    if "_chain_" not in getattr(handler, "__qualname__", ""):
        return False
    found: list[object] = []
    waiting: list[Any] = [handler]
    while waiting:
        held = waiting.pop()
        held = getattr(held, "__wrapped__", held)
        if inspect.ismethod(held):
            found.append(held.__self__)
        elif inspect.isfunction(held):
            cells = zip(held.__code__.co_freevars, held.__closure__ or (), strict=True)
            waiting.extend(cell.cell_contents for name, cell in cells if name in ("inner", "outer", "single_handler"))
    # In doubt there is one.
    return not found or any(not type(one).__module__.startswith(_ALWAYS_AFTER) for one in found)

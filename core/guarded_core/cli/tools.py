"""Tools named on the command line as ``module:name``: AiTools, framework tools or plain functions, as ToolSpecs."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.guard import Guard
from guarded_core.tools.function import PlainFunction
from guarded_core.tools.port import ToolPort
from guarded_core.tools.schema.terms import CLOSED, Terms
from guarded_core.tools.spec import AiTool, ToolSpec

# Who guards the tools of a framework, by the package that its tools' classes come from.
_ADAPTERS = {"langchain_core": "guarded_langchain", "llama_index": "guarded_llamaindex"}


def load_tools(target: str) -> list[Any]:
    """All tools of the list (or the one tool) that ``module:name`` names; it is imported. Raises InvalidTool."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise InvalidTool("name the tools as module:name, such as app.tools:TOOLS")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # an installed command does not look where it is run
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidTool(f"{target}: {error}") from error
    if inspect.isroutine(found) and _makes_tools(found):
        raise InvalidTool(f"{target} is a function that makes tools: name the list that it returns")
    return list(found) if isinstance(found, Iterable) else [found]


def _makes_tools(function: Any) -> bool:
    """Whether it takes nothing and, by its annotation or its name, returns tools: a policy for it is none for them."""
    returns = str(getattr(function, "__annotations__", {}).get("return", ""))
    named = function.__name__.endswith(("tools", "toolkit"))
    return not inspect.signature(function).parameters and (named or "Tool" in returns or "list" in returns.lower())


def load_specs(target: str) -> list[ToolSpec]:
    """The specs of the tools that ``module:name`` names.

    Raises:
        InvalidTool: there is no such module or name, or something in the list is not a tool.
    """
    return [spec_of(tool) for tool in load_tools(target)]


def admitted(guard: Guard, tools: Iterable[Any]) -> list[ToolSpec]:
    """Put tools behind `guard`, each as its framework's adapter does, so that they read arguments as they would in use.

    Returns their specs, of those too that the guard does not take: `guard.coverage()` says why.
    """
    specs: list[ToolSpec] = []
    for tool in tools:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the coverage says it
            specs += _admitted(guard, tool)
    return specs


def _admitted(guard: Guard, tool: Any) -> list[ToolSpec]:
    name, adapter = _name_of(tool), _adapter_of(tool)
    try:
        if adapter is not None:
            adapter.guard_tools([tool], guard, on_invalid="leave_out")
            found = guard.spec(name)
            return [spec_of(tool, guard.policy.terms(name)) if found is None else found]
        is_plain = not hasattr(tool, "metadata") and not hasattr(tool, "tool_call_schema") and inspect.isfunction(tool)
        made: Any = PlainFunction(tool, terms=guard.policy.terms(name)) if is_plain else ToolPort(spec_of(tool))
        guard.admit({made.spec.name: lambda: made}, lambda port: port, "leave_out")
        return [made.spec]
    except InvalidTool as error:
        guard.admit({name: partial(_refused, error)}, lambda port: port, "leave_out")
        return []


def _refused(error: InvalidTool) -> ToolPort:
    raise error


def _adapter_of(tool: Any) -> Any:
    """The adapter of the tool's framework; None for a tool of none, without the extra, or guarded already."""
    packages = {kind.__module__.partition(".")[0] for kind in type(tool).__mro__}
    name = next((adapter for package, adapter in _ADAPTERS.items() if package in packages), None)
    if name is None or name in packages:
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _name_of(tool: Any) -> str:
    named = getattr(tool, "metadata", None) or tool
    return str(getattr(named, "name", None) or getattr(tool, "__name__", type(tool).__name__))


def spec_of(tool: Any, terms: Terms = CLOSED) -> ToolSpec:
    """The spec of one tool, by what it looks like; no framework is imported. Raises InvalidTool."""
    if isinstance(tool, type) and issubclass(tool, AiTool):
        tool = tool()
    if isinstance(tool, AiTool):
        return ToolSpec.of_ai_tool(tool)
    metadata: Any = getattr(tool, "metadata", None)
    if hasattr(metadata, "get_parameters_dict"):  # LlamaIndex
        return ToolSpec.of(
            name=metadata.name, description=metadata.description, schema=metadata.get_parameters_dict(), terms=terms
        )
    model = getattr(tool, "tool_call_schema", None)  # LangChain: without what the application injects
    if model is not None:
        schema = model if isinstance(model, dict) else model.model_json_schema()
        return ToolSpec.of(name=tool.name, description=tool.description, schema=schema, terms=terms)
    if callable(tool) and hasattr(tool, "__name__"):
        return PlainFunction(tool, terms=terms).spec
    raise InvalidTool(f"{type(tool).__name__} is not a tool: neither an AiTool, a framework's tool nor a function")

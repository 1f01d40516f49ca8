"""Tools named on the command line as ``module:name``: AiTools, framework tools or plain functions, as ToolSpecs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.function import PlainFunction
from guarded_core.tools.spec import AiTool, ToolSpec


def load_specs(target: str) -> list[ToolSpec]:
    """The specs of all tools in the list (or the one tool) that ``module:name`` names; the module is imported.

    Raises:
        InvalidTool: there is no such module or name, or something in the list is not a tool.
    """
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
    tools = list(found) if isinstance(found, Iterable) else [found]
    return [spec_of(tool) for tool in tools]


def spec_of(tool: Any) -> ToolSpec:
    """The spec of one tool, by what it looks like; no framework is imported. Raises InvalidTool."""
    if isinstance(tool, type) and issubclass(tool, AiTool):
        tool = tool()
    if isinstance(tool, AiTool):
        return ToolSpec.of_ai_tool(tool)
    metadata: Any = getattr(tool, "metadata", None)
    if hasattr(metadata, "get_parameters_dict"):  # LlamaIndex
        return ToolSpec.of(name=metadata.name, description=metadata.description, schema=metadata.get_parameters_dict())
    model = getattr(tool, "tool_call_schema", None)  # LangChain: without what the application injects
    if model is not None:
        schema = model if isinstance(model, dict) else model.model_json_schema()
        return ToolSpec.of(name=tool.name, description=tool.description, schema=schema)
    if callable(tool) and hasattr(tool, "__name__"):
        return PlainFunction(tool).spec
    raise InvalidTool(f"{type(tool).__name__} is not a tool: neither an AiTool, a framework's tool nor a function")

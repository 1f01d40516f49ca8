"""LangChain's own standard tests for tools, passed by guarded tools of three kinds."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import guard_tool


@tool
def sample(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool("sample", response_format="content_and_artifact")
def artifact(a: int, b: int = 2) -> tuple[str, Any]:
    """Add two numbers."""
    return str(a + b), {"sum": a + b}


SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
    "required": ["a"],
}
BY_SCHEMA = StructuredTool(name="sample", description="Add two numbers.", args_schema=SCHEMA, func=lambda a, b: a + b)


class _Standard:
    inner: BaseTool

    @property
    def tool_constructor(self) -> BaseTool:
        guard = Guard(ToolExecutionPolicy({"sample": "read_only"}))
        return guard_tool(self.inner, guard, context=guard.session("user-17", tools=["sample"]))

    @property
    def tool_constructor_params(self) -> dict[str, Any]:
        return {}

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return {"a": 1, "b": 3}


class TestPydanticUnit(_Standard, ToolsUnitTests):
    """A tool with a pydantic schema."""

    inner = sample


class TestPydanticIntegration(_Standard, ToolsIntegrationTests):
    """A tool with a pydantic schema."""

    inner = sample


class TestArtifactUnit(_Standard, ToolsUnitTests):
    """A tool that returns content and artifact."""

    inner = artifact


class TestArtifactIntegration(_Standard, ToolsIntegrationTests):
    """A tool that returns content and artifact."""

    inner = artifact


class TestDictSchemaUnit(_Standard, ToolsUnitTests):
    """A tool with a JSON Schema, as MCP tools have."""

    inner = BY_SCHEMA


class TestDictSchemaIntegration(_Standard, ToolsIntegrationTests):
    """A tool with a JSON Schema, as MCP tools have."""

    inner = BY_SCHEMA

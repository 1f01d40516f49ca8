"""What is no list of LlamaIndex tools, no guard and no session is refused where it is handed over."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool

from guarded_core import Guard, GuardConfigurationError, ToolExecutionPolicy
from guarded_llamaindex import assert_all_guarded, guard_mcp_tools, guard_tool, guard_tools, guarded_retriever
from tests.wrong_objects import SECRET, Callable, Session, guard, read


def bare() -> FunctionTool:
    """A tool that nothing guards."""
    return FunctionTool.from_defaults(read)


class Spec:
    """Stands for a tool spec."""

    def to_tool_list(self) -> list[Any]:
        """Its tools."""
        return []


class Engine:
    """Stands for a query engine."""

    def query(self, text: str) -> str:
        """An answer."""
        return text


async def fetched() -> AsyncIterator[FunctionTool]:
    """Tools that come later."""
    yield bare()


def from_langchain() -> Any:
    """A tool of the other framework."""
    return pytest.importorskip("langchain_core.tools").StructuredTool.from_function(read)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: None, "None was given"),
        (lambda: 5, "an int was given"),
        (lambda: SECRET, "a str was given"),
        (lambda: b"read", "a bytes was given"),
        (lambda: {"read": read}, "a dict was given"),
        (lambda: FunctionTool, "the class FunctionTool was given; make an instance"),
        (bare, r"a FunctionTool was given; put it in a list, guard_tools\(\[tool\], guard\)"),
        (lambda: read, r"a function was given; put it in a list"),
        (lambda: guard_tool(bare(), guard()), "put it in a list"),
        (Session, "a Session was given; await guard_mcp_tools"),
        (Spec, "a Spec was given; hand over its tools"),
        (Engine, "an Engine was given; make a tool of it: QueryEngineTool"),
        (fetched, "an async_generator was given; await it first"),
        (from_langchain, "a StructuredTool was given; it is LangChain's: guarded_langchain"),
        (guard, "a Guard was given"),
        (Callable, "a Callable was given; make a tool of it"),
    ],
)
def test_what_is_no_list_of_tools(make: Any, says: str) -> None:
    """`guard_tools` takes a list: of anything else it names the type, and the way from there to a list of tools."""
    with pytest.raises(GuardConfigurationError, match=says) as refused:
        guard_tools(make(), guard())
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: None, "None was given"),
        (lambda: SECRET, "a str was given"),
        (lambda: [bare()], "a list was given"),
        (lambda: FunctionTool, "the class FunctionTool was given; make an instance"),
        (lambda: Session, "the class Session was given"),
        (Session, "a Session was given; await guard_mcp_tools"),
        (from_langchain, "it is LangChain's"),
        (guard, "a Guard was given"),
        (lambda: functools.partial(read, 1), "a partial was given.*make a tool of it"),
    ],
)
def test_what_is_no_tool(make: Any, says: str) -> None:
    """One wrong object is refused alone, and among tools: then none of them is guarded."""
    with pytest.raises(GuardConfigurationError, match=says):
        guard_tool(make(), guard())
    ours = guard()
    with pytest.raises(GuardConfigurationError, match=says) as refused:
        guard_tools([bare(), make()], ours)
    assert SECRET not in str(refused.value)
    assert ours.spec("read") is None


@pytest.mark.parametrize("given", [None, SECRET, Guard, ToolExecutionPolicy({"read": "read_only"}), Session()])
def test_what_is_no_guard(given: Any) -> None:
    """Every entry takes a Guard, and says by type what it got."""
    for attempt in (
        lambda: guard_tools([bare()], given),
        lambda: guard_tool(bare(), given),
        lambda: guarded_retriever([bare()], given),
    ):
        with pytest.raises(GuardConfigurationError, match=r"guard is a Guard, and .* was given") as refused:
            attempt()
        assert SECRET not in str(refused.value)


def test_swapped_arguments() -> None:
    """A guard in the place of the tools is told as that."""
    for swapped in (lambda: guard_tools(guard(), [bare()]), lambda: guard_tool(guard(), bare())):  # type: ignore[arg-type]
        with pytest.raises(GuardConfigurationError, match="the other way around: tools first, then the guard"):
            swapped()


@pytest.mark.parametrize("given", ["user-17", 5, guard()])
def test_what_is_no_session(given: Any) -> None:
    """`context=` is a session: a name in its place would only deny every call."""
    for attempt in (
        lambda: guard_tool(bare(), guard(), context=given),
        lambda: guard_tools([bare()], guard(), context=given),
        lambda: guarded_retriever([bare()], guard(), context=given),
    ):
        with pytest.raises(GuardConfigurationError, match="context is a session"):
            attempt()


@pytest.mark.parametrize("given", [None, "agent", guard(), 5, FunctionTool])
def test_what_is_no_agent(given: Any) -> None:
    """`assert_all_guarded` takes an agent or a workflow."""
    with pytest.raises(GuardConfigurationError, match="assert_all_guarded takes an agent"):
        assert_all_guarded(given)


@pytest.mark.parametrize("given", [None, "https://server", Session(), [bare()], Spec(), type("McpToolSpec", (), {})])
def test_what_is_no_mcp_spec(given: Any) -> None:
    """`guard_mcp_tools` takes a spec, and says how a client becomes one."""
    with pytest.raises(GuardConfigurationError, match=r"spec is a McpToolSpec, .*McpToolSpec\(client\)") as refused:
        asyncio.run(guard_mcp_tools(given, guard()))
    assert SECRET not in str(refused.value)


def test_swapped_mcp_arguments() -> None:
    """A guard in the place of the spec is told as that."""
    with pytest.raises(GuardConfigurationError, match="the other way around"):
        asyncio.run(guard_mcp_tools(guard(), Session()))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["schema", "schemas", "code_execution"])
def test_other_settings(name: str) -> None:
    """A setting of the wrong type is named."""
    entry: Any = guard_tool if name == "schema" else guard_tools
    with pytest.raises(GuardConfigurationError, match=f"{name} is .* was given"):
        entry(bare() if entry is guard_tool else [bare()], guard(), **{name: [SECRET]})


def test_generators_and_functions_are_taken() -> None:
    """What can be iterated is a list, and a function is made a tool of, bound or not."""

    class Shop:
        def read(self, id: int) -> str:
            """Read one."""
            return f"row {id}"

    assert [tool.metadata.name for tool in guard_tools((tool for tool in [bare()]), guard())] == ["read"]
    assert guard_tools([read], guard())[0].metadata.name == "read"
    assert guard_tool(Shop().read, guard()).metadata.name == "read"

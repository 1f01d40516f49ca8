"""What is no list of LangChain tools, no guard and no session is refused where it is handed over."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import StructuredTool

from guarded_core import Guard, GuardConfigurationError, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware, guard_tool, guard_tools, reachable_tools
from tests.wrong_objects import SECRET, Callable, Session, guard, read


def bare() -> StructuredTool:
    """A tool that nothing guards."""
    return StructuredTool.from_function(read)


class Client:
    """Stands for a MultiServerMCPClient."""

    async def get_tools(self) -> list[Any]:
        """What the servers have."""
        return []


async def fetched() -> AsyncIterator[StructuredTool]:
    """Tools that come later."""
    yield bare()


def from_llama_index() -> Any:
    """A tool of the other framework."""
    return pytest.importorskip("llama_index.core.tools").FunctionTool.from_defaults(read)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: None, "None was given"),
        (lambda: 5, "an int was given"),
        (lambda: SECRET, "a str was given"),
        (lambda: b"read", "a bytes was given"),
        (lambda: {"read": read}, "a dict was given"),
        (lambda: StructuredTool, "the class StructuredTool was given; make an instance"),
        (bare, r"a StructuredTool was given; put it in a list, guard_tools\(\[tool\], guard\)"),
        (lambda: read, r"a function was given; put it in a list"),
        (lambda: guard_tool(bare(), guard()), "put it in a list"),
        (Session, "a Session was given; load its tools first"),
        (Client, "a Client was given; hand over its tools"),
        (fetched, "an async_generator was given; await it first"),
        (from_llama_index, "a FunctionTool was given; it is LlamaIndex's: guarded_llamaindex"),
        (guard, "a Guard was given"),
        (Callable, "a Callable was given; make a tool of it"),
        (lambda: RunnableLambda(read), "as_tool"),
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
        (lambda: StructuredTool, "the class StructuredTool was given; make an instance"),
        (lambda: Session, "the class Session was given"),
        (Session, "a Session was given; load its tools first"),
        (from_llama_index, "it is LlamaIndex's"),
        (guard, "a Guard was given"),
        (lambda: functools.partial(read, 1), "a partial was given.*make a tool of it"),
        (lambda: RunnableLambda(read), "as_tool"),
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
        lambda: GuardMiddleware(given),
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
        lambda: GuardMiddleware(guard(), context=given),
    ):
        with pytest.raises(GuardConfigurationError, match="context is a session"):
            attempt()


@pytest.mark.parametrize("given", [None, "agent", guard(), 5, StructuredTool])
def test_nothing_can_be_reached_in_it(given: Any) -> None:
    """`reachable_tools` calls nothing complete in which no tool could be."""
    with pytest.raises(GuardConfigurationError, match="was given"):
        reachable_tools(given)


def test_generators_and_functions_are_taken() -> None:
    """What can be iterated is a list, and a function is made a tool of, bound or not."""

    class Shop:
        def read(self, id: int) -> str:
            """Read one."""
            return f"row {id}"

    assert [tool.name for tool in guard_tools((tool for tool in [bare()]), guard())] == ["read"]
    assert guard_tools([read], guard())[0].name == "read"
    assert guard_tool(Shop().read, guard()).name == "read"

"""Functions of every shape: they run as the bare tool does, or are refused when they are wrapped, with the way out."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from pydantic import BaseModel

from guarded_core import Guard, InvalidTool, ToolExecutionPolicy
from guarded_llamaindex import guard_tool
from guarded_llamaindex.testing import ScriptedLLM, tool_call

made = functools.partial(FunctionTool.from_defaults, name="tool", description="d")


def plain(a: int, b: int = 3) -> str:
    """Takes them by either."""
    return f"{a} {b}"


async def awaited(a: int, b: int = 3) -> str:
    """Is awaited."""
    return f"{a} {b}"


async def with_context(ctx: Context, a: int) -> str:
    """Takes the workflow's Context."""
    return str(a)


def by_name_only(*, a: int, b: int = 3) -> str:
    """Takes them by name."""
    return f"{a} {b}"


def and_more(a: int, *more: Any, **others: Any) -> str:
    """Takes more than a model is shown."""
    return f"{a} {more} {others}"


def by_text(a: "int", b: "int | None" = None) -> "str":
    """Its annotations are text."""
    return f"{a} {b}"


def by_position(a: int, b: int = 3, /) -> str:
    """Takes them by position."""
    return f"{a} {b}"


class Object:
    """Can be called, and has methods."""

    def __call__(self, a: int, b: int = 3) -> str:
        return f"{a} {b}"

    def method(self, a: int) -> str:
        return f"{type(self).__name__} {a}"

    async def awaited(self, a: int) -> str:
        return f"{type(self).__name__} {a}"

    @classmethod
    def of_class(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @staticmethod
    def alone(a: int) -> str:
        return str(a)


SHAPES: dict[str, Callable[[], FunctionTool]] = {
    "plain": lambda: made(plain),
    "awaited": lambda: made(async_fn=awaited),
    "awaited, as fn": lambda: made(awaited),
    "both": lambda: made(plain, async_fn=awaited),
    "by name only": lambda: made(by_name_only),
    "and more": lambda: made(and_more),
    "annotations as text": lambda: made(by_text),
    "partial": lambda: made(functools.partial(plain, b=5)),
    "partial, awaited": lambda: made(async_fn=functools.partial(awaited, b=5)),
    "partial by position": lambda: made(functools.partial(lambda z, a: f"{z} {a}", 5)),
    "object": lambda: made(Object()),
    "method": lambda: made(Object().method),
    "method, awaited": lambda: made(async_fn=Object().awaited),
    "class method": lambda: made(Object.of_class),
    "static method": lambda: made(Object.alone),
    "cached": lambda: made(functools.lru_cache(plain)),
    "context": lambda: made(async_fn=with_context),
    "partial params": lambda: made(plain, partial_params={"b": 9}),
}


async def through_an_agent(tool: Any) -> list[tuple[str, bool]]:
    """What a model reads."""
    agent = FunctionAgent(tools=[tool], llm=ScriptedLLM([[tool_call("tool", {"a": 1})], "done"]))
    return [(call.tool_output.content, call.tool_output.is_error) for call in (await agent.run("go")).tool_calls]


if "more" in made(and_more).metadata.get_parameters_dict().get("required", ()):
    del SHAPES["and more"]  # an older LlamaIndex takes `*more` for a parameter that a model has to name


@pytest.mark.parametrize("shape", SHAPES)
async def test_it_runs_as_the_bare_tool_does(shape: str) -> None:
    """Called by an agent, and by code, sync and async, the guarded tool says what the bare one says."""
    guard = Guard(ToolExecutionPolicy({"tool": "read_only"}))
    bare, guarded = SHAPES[shape](), guard_tool(SHAPES[shape](), guard)
    with guard.session("user-17", tools=["tool"]):
        said = await through_an_agent(guarded)
        assert said == await through_an_agent(bare)
        assert [is_error for _, is_error in said] == [False]
        if shape != "context":  # which only a workflow has
            assert (await guarded.acall(a=1)).content == (await bare.acall(a=1)).content
            by_thread = await asyncio.to_thread(lambda: (guarded.call(a=1).content, bare.call(a=1).content))
            assert by_thread[0] == by_thread[1]


class Wanted(BaseModel):
    a: int
    c: int


def context_as_text(ctx: "Context", a: int) -> str:
    """Takes a Context that LlamaIndex does not see."""
    return str(a)


def of_unknown(a: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Takes what nobody knows."""
    return str(a)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "by position": (
        lambda: made(by_position),
        "tool 'tool': .* by name, and 'a' is taken by position only; put",
    ),
    "of C": (lambda: made(len), "tool 'tool': .* 'obj' is taken by position only"),
    "context of the async one only": (
        lambda: made(lambda a: str(a), async_fn=with_context),
        "tool 'tool': its async function needs 'ctx', which nobody gives: .* declare it in both",
    ),
    "more in the async one": (
        lambda: made(plain, async_fn=with_other),
        "tool 'tool': its async function needs 'other', which nobody gives",
    ),
    "another default": (lambda: made(plain, async_fn=other_default), "tool 'tool': .* different defaults for 'b'"),
    "another schema": (
        lambda: made(plain, fn_schema=Wanted),
        "tool 'tool': its function takes no 'c', which the",
    ),
    "an async function that yields": (
        lambda: made(None, async_fn=yields),
        "tool 'tool': its async function yields, .* collect what it yields into a list",
    ),
    "a method of no object": (lambda: made(Object.method), "tool 'tool': its function needs 'self'"),
    "context as text": (
        lambda: made(context_as_text),
        "tool 'tool': LlamaIndex does not see that 'ctx' is a Context where annotations are text; leave `from",
    ),
    "unknown": (
        lambda: made(of_unknown),
        "tool 'tool': 'a': a parameter's type has no JSON form; give the tool",
    ),
    "object without a name": (
        lambda: Object(),
        "an Object was given; make a tool of it: FunctionTool",
    ),
    "partial without a name": (lambda: functools.partial(plain, 1), "a partial was given; make a tool of it"),
}


async def with_other(a: int, other: int) -> str:
    """Needs more than the sync one."""
    return f"{a} {other}"


async def yields(a: int) -> Any:
    """Cannot be awaited."""
    yield str(a)


async def other_default(a: int, b: int = 4) -> str:
    """Fills in another value."""
    return f"{a} {b}"


@pytest.mark.parametrize("shape", REFUSED)
def test_what_could_never_run_is_refused_when_it_is_wrapped(shape: str) -> None:
    """The error names the tool, the parameter and the way out."""
    make, message = REFUSED[shape]
    with pytest.raises(InvalidTool, match=message):
        guard_tool(make(), Guard(ToolExecutionPolicy({"tool": "read_only"})))

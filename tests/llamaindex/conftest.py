"""Guards and ways to call a LlamaIndex tool, shared by the adapter's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core import MockEmbedding, Settings
from llama_index.core.tools import AsyncBaseTool, BaseTool

from guarded_core import Guard, ToolExecutionPolicy
from guarded_llamaindex.testing import ScriptedLLM


def _called(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
    return tool.call(*args, **kwargs) if isinstance(tool, AsyncBaseTool) else tool(*args, **kwargs)


def _used_as_a_function(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
    return tool(*args, **kwargs)


def _awaited(tool: BaseTool, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(tool, AsyncBaseTool):
        return tool(*args, **kwargs)
    return asyncio.run(tool.acall(*args, **kwargs))


@pytest.fixture(params=[_called, _used_as_a_function, _awaited], ids=["call", "()", "acall"])
def way(request: pytest.FixtureRequest) -> Any:
    """The three ways a tool is called: `way(tool, *args, **kwargs)`."""
    return request.param


@pytest.fixture
def offline() -> Iterator[None]:
    """Indexes embed with a mock, and answer with what they found."""
    llm, embed_model = Settings._llm, Settings._embed_model
    Settings.llm, Settings.embed_model = ScriptedLLM(["an answer"] * 20), MockEmbedding(embed_dim=3)
    yield
    Settings._llm, Settings._embed_model = llm, embed_model


GuardOf = Callable[..., Guard]


@pytest.fixture
def guard_of() -> GuardOf:
    """Makes a guard that allows these read-only tools: `guard_of("search", "read")`."""

    def make(*tools: str, **settings: Any) -> Guard:
        return Guard(ToolExecutionPolicy(dict.fromkeys(tools, "read_only")), **settings)

    return make


@pytest.fixture
def outcomes() -> Callable[[Guard], list[tuple[str, str, str | None]]]:
    """Tool, outcome and code of each event in a guard's trail."""
    return lambda guard: [(e.tool, e.outcome.value, e.code) for e in guard.audit.events]  # type: ignore[union-attr]

"""`guarded_retriever`: the tools of an agent, hidden and narrowed by session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from llama_index.core.agent.workflow import ToolCall
from llama_index.core.async_utils import asyncio_run
from llama_index.core.objects import ObjectRetriever
from llama_index.core.schema import QueryType
from llama_index.core.tools import AsyncBaseTool, BaseTool, ToolMetadata, ToolOutput

from guarded_core.guard import Guard, check_handed_over
from guarded_core.session import ToolExecutionContext
from guarded_llamaindex.compat import current_event, current_workflow_context
from guarded_llamaindex.outputs import denied
from guarded_llamaindex.tool import GuardedTool, guard_tool, guard_tools


def guarded_retriever(
    tools: Iterable[BaseTool | Callable[..., Any]] | ObjectRetriever[Any],
    guard: Guard,
    *,
    context: ToolExecutionContext | None = None,
) -> GuardedRetriever:
    """A tool retriever that shows the model what the current session may call, and lets the guard judge every call.

    An agent's list of tools is fixed; a retriever is asked anew each turn. Give it all of the agent's tools::

        FunctionAgent(tool_retriever=guarded_retriever([search, refund], guard), llm=llm)

    A hidden tool that is called by name, and a name that the model made up, reach the guard, which refuses and records
    them.

    Args:
        tools: tools, functions, or a retriever of tools.
        guard: judges, records and runs their calls.
        context: whose calls these are; by default the current session's.

    Raises:
        InvalidTool, DuplicateTool: as `guard_tools`; for a retriever's tools, when it is asked.
    """
    return GuardedRetriever(tools, guard, context=context)


class GuardedRetriever(ObjectRetriever[BaseTool]):
    """An ObjectRetriever of guarded tools. Made by `guarded_retriever`."""

    def __init__(
        self,
        tools: Iterable[BaseTool | Callable[..., Any]] | ObjectRetriever[Any],
        guard: Guard,
        *,
        context: ToolExecutionContext | None = None,
    ) -> None:
        check_handed_over(guard, tools, context)
        self._guard = guard
        self._context = context
        self._source = tools if isinstance(tools, ObjectRetriever) else None
        fixed = [] if isinstance(tools, ObjectRetriever) else guard_tools(tools, guard, context=context)
        self._known: dict[str, tuple[object, GuardedTool]] = {tool.spec_name: (tool, tool) for tool in fixed}

    def guarded_tools(self) -> list[GuardedTool]:
        """Those that it was given, and those that its source has come up with so far."""
        return [tool for _, tool in self._known.values()]

    def retrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """As `aretrieve`."""
        found: list[BaseTool] = asyncio_run(self.aretrieve(str_or_query_bundle))
        return found

    async def aretrieve(self, str_or_query_bundle: QueryType) -> list[BaseTool]:
        """The visible tools; for an agent that is about to call a tool, that very tool, whether it exists or not."""
        found = await self._found(str_or_query_bundle)
        event = current_event()
        if isinstance(event, ToolCall) and event.tool_name == str_or_query_bundle:
            return self._called(event.tool_name)
        context, why = self._guard.resolve(self._context, runtime=current_workflow_context())
        if why is not None and not why.is_outside:
            return []
        return [tool for tool in found if self._guard.is_visible(tool.spec_name, context)]

    def _called(self, name: str) -> list[BaseTool]:
        if name in self._known:
            return [self._known[name][1]]
        if self._guard.spec(name) is not None:
            return []  # a guarded tool that the agent has beside this retriever, or does not have
        return [_NoTool(name, self._guard, self._context)]

    async def _found(self, query: QueryType) -> list[GuardedTool]:
        if self._source is None:
            return self.guarded_tools()
        return [self._guarded(tool) for tool in await self._source.aretrieve(query)]

    def _guarded(self, tool: BaseTool) -> GuardedTool:
        name = tool.metadata.get_name()
        bare, known = self._known.get(name, (None, None))
        if known is None or bare is not tool:
            known = guard_tool(tool, self._guard, context=self._context)
            self._known[name] = tool, known
        return known


class _NoTool(AsyncBaseTool):
    """Stands under a name that no tool has, so that calling it is refused and recorded like any other call."""

    def __init__(self, name: str, guard: Guard, context: ToolExecutionContext | None) -> None:
        self._metadata = ToolMetadata(name=name, description="")
        self._guard = guard
        self._context = context

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        output: ToolOutput = asyncio_run(self.acall(*args, **kwargs))
        return output

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        name, runtime = self._metadata.get_name(), current_workflow_context()
        return denied(await self._guard.arefuse(name, kwargs, context=self._context, runtime=runtime), name)

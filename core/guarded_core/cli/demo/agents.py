"""The demo's agents, one a framework, each driven by a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from guarded_core.cli.demo.scenes import Agent, Try
from guarded_core.guard import Guard

GOODBYE = "That is all."


class LangChainAgent:
    """LangChain's `create_agent` with guarded tools."""

    framework = "LangChain"
    needs = ("langchain.agents", "langgraph")

    def __init__(self, functions: Sequence[Callable[..., Any]], guard: Guard) -> None:
        from langchain_core.tools import StructuredTool

        from guarded_langchain import GuardMiddleware, guard_tools

        self._middleware = GuardMiddleware(guard)  # it hides what the session may not use
        self._tools = guard_tools([StructuredTool.from_function(function) for function in functions], guard)

    def run(self, tries: Sequence[Try]) -> list[str]:
        """Let the scripted model make these calls, one a turn; what it read after each."""
        return self._replies(self._agent(tries).invoke({"messages": [("user", "Please help.")]}))

    async def arun(self, tries: Sequence[Try]) -> list[str]:
        """The same on an event loop."""
        return self._replies(await self._agent(tries).ainvoke({"messages": [("user", "Please help.")]}))

    def _agent(self, tries: Sequence[Try]) -> Any:
        from langchain.agents import create_agent

        from guarded_langchain.testing import ScriptedChatModel, says, tool_call

        script: list[Any] = [says(tool_call(name, arguments)) for name, arguments in tries]
        script.append(GOODBYE)
        return create_agent(ScriptedChatModel(script), tools=self._tools, middleware=[self._middleware])

    @staticmethod
    def _replies(state: dict[str, Any]) -> list[str]:
        return [str(message.content) for message in state["messages"] if message.type == "tool"]


class LlamaIndexAgent:
    """LlamaIndex's `FunctionAgent` with guarded tools."""

    framework = "LlamaIndex"
    needs = ("llama_index.core", "llamaindex")

    def __init__(self, functions: Sequence[Callable[..., Any]], guard: Guard) -> None:
        from llama_index.core.tools import FunctionTool

        from guarded_llamaindex import guarded_retriever

        # It hides what the session may not use.
        self._retriever = guarded_retriever([FunctionTool.from_defaults(function) for function in functions], guard)

    def run(self, tries: Sequence[Try]) -> list[str]:
        """Let the scripted model make these calls, one a turn; what it read after each."""
        return asyncio.run(self.arun(tries))

    async def arun(self, tries: Sequence[Try]) -> list[str]:
        """The same on an event loop."""
        from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult

        from guarded_llamaindex.testing import ScriptedLLM, tool_call

        script: list[Any] = [[tool_call(name, arguments)] for name, arguments in tries]
        script.append(GOODBYE)
        handler = FunctionAgent(tool_retriever=self._retriever, llm=ScriptedLLM(script)).run("Please help.")
        events = [event async for event in handler.stream_events()]
        await handler
        return [event.tool_output.content for event in events if isinstance(event, ToolCallResult)]


def agents(functions: Sequence[Callable[..., Any]], guard: Guard) -> tuple[list[Agent], list[str]]:
    """One agent for each framework that is installed, all behind the one guard; and what to install for the others."""
    found: list[Agent] = []
    missing = []
    for kind in (LangChainAgent, LlamaIndexAgent):
        module, extra = kind.needs
        try:
            import_module(module)
        except ModuleNotFoundError:
            missing.append(f'{kind.framework} is not installed: pip install "guarded-tools[{extra}]"')
        else:
            found.append(kind(functions, guard))
    return found, missing

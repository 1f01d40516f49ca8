"""AgentDojo's functions as guarded tools: by the core alone, for LangChain, for LlamaIndex."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from guarded_core import Guard, ToolExecutionError, ToolSpec
from guarded_core.pipeline.call import Call
from guarded_core.tools.port import ToolPort

Invoke = Callable[[str, dict[str, Any]], Any]
Run = Callable[[str, dict[str, Any]], Any]


class Refused(Exception):
    """The guard refused the call; its code is the only argument."""


class Timed:
    """Times the tool itself, to be taken off what a guarded call takes."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.seconds = 0.0

    def __call__(self, name: str, arguments: dict[str, Any]) -> Any:
        started = time.thread_time()
        try:
            return self._run(name, arguments)
        finally:
            self.seconds += time.thread_time() - started


class _Port(ToolPort):
    """A function of AgentDojo's, whose arguments its own model completes."""

    wraps_errors = False

    def __init__(self, function: Any, run: Run) -> None:
        schema = function.parameters.model_json_schema()
        super().__init__(ToolSpec.of(name=function.name, description=function.description, schema=schema))
        self._model, self._run = function.parameters, run

    def complete(self, bound: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        completed: dict[str, Any] = self._model.model_validate(arguments).model_dump(mode="json")
        return completed

    def run(self, bound: Any, effective: dict[str, Any]) -> Any:
        return self._run(self.spec.name, effective)


def core(functions: list[Any], guard: Guard, run: Run) -> Invoke:
    """Through the guard's own entry."""
    ports = {function.name: _Port(function, run) for function in functions}
    guard.register(*ports.values())

    def invoke(name: str, arguments: dict[str, Any]) -> Any:
        context, why = guard.resolve()
        call = Call(tool=name, port=ports[name], arguments=arguments, context=context, no_context=why)
        try:
            return guard.run(call)
        except ToolExecutionError as error:
            raise Refused(error.code) from error

    return invoke


def langchain(functions: list[Any], guard: Guard, run: Run) -> Invoke:
    """As LangChain tools: text for the model, the result itself as artifact."""
    from langchain_core.tools import StructuredTool

    from benchmarks.agentdojo.world import as_text
    from guarded_langchain import guard_tools

    def tool(function: Any) -> StructuredTool:
        def body(**arguments: Any) -> tuple[str, Any]:
            result = run(function.name, arguments)
            return as_text(result), result

        return StructuredTool(
            name=function.name,
            description=function.description[:1000],
            args_schema=function.parameters,
            func=body,
            response_format="content_and_artifact",
        )

    tools = {tool.name: tool for tool in guard_tools([tool(function) for function in functions], guard)}

    def invoke(name: str, arguments: dict[str, Any]) -> Any:
        message = tools[name].invoke({"name": name, "args": arguments, "id": "call", "type": "tool_call"})
        if message.status == "error":
            raise Refused(message.artifact["code"])
        return message.artifact

    return invoke


def llamaindex(functions: list[Any], guard: Guard, run: Run) -> Invoke:
    """As LlamaIndex tools."""
    from llama_index.core.tools import FunctionTool, ToolMetadata

    from guarded_llamaindex import guard_tools

    def tool(function: Any) -> FunctionTool:
        def body(**arguments: Any) -> Any:
            return run(function.name, arguments)

        metadata = ToolMetadata(
            name=function.name, description=function.description[:1000], fn_schema=function.parameters
        )
        return FunctionTool(fn=body, metadata=metadata)

    tools = {tool.metadata.name: tool for tool in guard_tools([tool(function) for function in functions], guard)}

    def invoke(name: str, arguments: dict[str, Any]) -> Any:
        output = tools[name].call(**arguments)
        if output.is_error and isinstance(output.exception, ToolExecutionError):
            raise Refused(output.exception.code)
        return output.raw_output

    return invoke


ADAPTERS: dict[str, Callable[[list[Any], Guard, Run], Invoke]] = {
    "core": core,
    "langchain": langchain,
    "llamaindex": llamaindex,
}

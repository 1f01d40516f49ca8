"""How an inner tool is run with effective arguments: as its own `run` would, without a second trace where possible."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config
from langchain_core.tools import BaseTool, StructuredTool, Tool

from guarded_core.tools.port import before_entering
from guarded_langchain import compat

if TYPE_CHECKING:
    from guarded_langchain.arguments import CallArguments
    from guarded_langchain.gate import Proposal

_UPSTREAM = (BaseTool, StructuredTool, Tool)


class Runner(ABC):
    """Runs a tool with effective arguments; the result is the tool's own, not formatted yet.

    Attributes:
        refuses_sync: what `run` would raise at once, for a tool that can only be awaited.
    """

    refuses_sync: NotImplementedError | None = None

    @abstractmethod
    def run(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        """Once, in place."""

    @abstractmethod
    async def arun(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        """Once, awaiting."""


def runner(tool: BaseTool) -> Runner:
    """The way to run `tool`: what its own `run` would call, or, where it has an entry of its own, that."""
    for entry in ("invoke", "ainvoke", "run", "arun"):
        if getattr(type(tool), entry) not in [getattr(kind, entry) for kind in _UPSTREAM]:
            return _ByEntry(tool)
    return _ByFunction(tool)


@dataclass(frozen=True, slots=True)
class _Function:
    """What runs in the end, and what of upstream's it asks for; looked up once, which upstream does at each call."""

    function: Callable[..., Any]
    run_manager: bool
    callbacks: bool
    config: str | None

    @classmethod
    def of_method(cls, method: Callable[..., Any], signature: Callable[..., Any]) -> _Function:
        return cls(method, compat.takes(signature, "run_manager"), False, compat.config_parameter(signature))

    @classmethod
    def of_function(cls, function: Callable[..., Any]) -> _Function:
        return cls(function, False, compat.takes(function, "callbacks"), compat.config_parameter(function))

    def __call__(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        with before_entering():
            args, kwargs = arguments.for_tool(effective)
        if self.run_manager:
            kwargs["run_manager"] = proposal.run_manager
        if self.callbacks and proposal.run_manager:
            kwargs["callbacks"] = proposal.run_manager.get_child()
        if self.config:
            kwargs[self.config] = proposal.config
        return self.function(*args, **kwargs)


class _ByFunction(Runner):
    def __init__(self, tool: BaseTool) -> None:
        kind, func, coroutine = type(tool), getattr(tool, "func", None), getattr(tool, "coroutine", None)
        is_upstreams = kind._run in (StructuredTool._run, Tool._run)
        if is_upstreams and not func:
            upstreams = "StructuredTool" if kind._run is StructuredTool._run else "Tool"
            self.refuses_sync = NotImplementedError(f"{upstreams} does not support sync invocation.")
        if func and is_upstreams:
            self._sync = _Function.of_function(func)
        else:
            self._sync = _Function.of_method(tool._run, tool._run)
        if coroutine and kind._arun in (StructuredTool._arun, Tool._arun):
            self._async = _Function.of_function(coroutine)
        else:
            # Upstream looks at the same method: the default `_arun` passes on to `_run`.
            self._async = _Function.of_method(tool._arun, tool._run if kind._arun is BaseTool._arun else tool._arun)

    def run(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        return self._sync(effective, arguments, proposal)

    async def arun(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        return await self._async(effective, arguments, proposal)


class _ByEntry(Runner):
    """For a tool that overrides `invoke` or `run`: a bare call reaches that, so this one does, with its own trace."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool

    def run(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        return self._result(self._tool.invoke(self._input(effective, arguments), _child_config(proposal)))

    async def arun(self, effective: dict[str, Any], arguments: CallArguments, proposal: Proposal) -> Any:
        return self._result(await self._tool.ainvoke(self._input(effective, arguments), _child_config(proposal)))

    def _input(self, effective: dict[str, Any], arguments: CallArguments) -> Any:
        args = {**effective, **arguments.injected}
        if arguments.tool_call_id is None:
            return args
        return {"type": "tool_call", "name": self._tool.name, "args": args, "id": arguments.tool_call_id}

    def _result(self, output: Any) -> Any:
        return (output, None) if self._tool.response_format == "content_and_artifact" else output


def _child_config(proposal: Proposal) -> RunnableConfig:
    manager = proposal.run_manager
    return patch_config(proposal.config, callbacks=manager.get_child() if manager else None)

"""The guard as middleware of `create_agent`: shows the model its tools, and guards every tool the agent can get at."""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from guarded_core.ground.errors import GuardConfigurationError, ToolExecutionError
from guarded_core.guard import Guard
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import parse_risk, recorded_name
from guarded_langchain import compat
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.messages import ToolCallDenied
from guarded_langchain.runtime import handing_over
from guarded_langchain.tool import GuardedTool, guard_tool

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    raise ImportError('GuardMiddleware needs LangChain\'s agents: pip install "guarded-tools[langgraph]"') from error

_log = logging.getLogger("guarded_langchain")

_MAX_WRAPPED = 512


class GuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Guards an agent's tools, wrapped or not, and shows the model only those it may use.

    It belongs last in ``create_agent(middleware=[...])``: a middleware after it could put another tool in the place of
    one that it has looked at; it warns where it finds one. A tool that is guarded already is judged once.

    The model is shown allowlist ∩ principal's tools − blanket denials, with narrowed schemas; of a provider's own
    tools, which run at the provider, those that the policy lists and nobody has to approve. A call of an unknown or a
    hidden tool gets one and the same answer, and is audited; so is a call that is not valid JSON.

    It guards what the agent calls. Code that calls tools by itself, such as those in `ToolRuntime.tools`, reaches them
    as they were given to the agent: give it wrapped ones.

    Args:
        guard: whose policy, trail and approvals count.
        context: a session to use instead of the current one.
    """

    def __init__(self, guard: Guard, *, context: ToolExecutionContext | None = None) -> None:
        super().__init__()
        guard.check_framework("langchain")
        self._guard = guard
        self._context = context
        self._lock = Lock()
        self._wrapped: OrderedDict[int, tuple[BaseTool, BaseTool | None]] = OrderedDict()
        self._has_warned = False

    # The model's turn

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Show the model its tools, and audit the malformed calls in its answer."""
        response = handler(self._shown(request, handler))
        for refused in self._malformed(request, response):
            self._guard.refuse(**refused)
        return response

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As `wrap_model_call`, awaiting."""
        response = await handler(self._shown(request, handler))
        for refused in self._malformed(request, response):
            await self._guard.arefuse(**refused)
        return response

    # A tool's turn

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Run the call through the guard, or refuse it."""
        guarded = self._guarded_request(request, handler)
        if guarded is None:
            return _answer(self._guard.refuse(**self._unknown(request)), request)
        with handing_over(request.runtime):
            return handler(guarded)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As `wrap_tool_call`, awaiting."""
        guarded = self._guarded_request(request, handler)
        if guarded is None:
            return _answer(await self._guard.arefuse(**self._unknown(request)), request)
        with handing_over(request.runtime):
            return await handler(guarded)

    # What is shown

    def _shown(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._warn_unless_last(handler)
        context, why = self._guard.resolve(self._context, runtime=request.runtime)
        if why is not None and not why.is_outside:
            return request.override(tools=[])  # no call can pass
        shown: list[BaseTool | dict[str, Any]] = []
        for tool in request.tools:
            if isinstance(tool, dict):
                if self._is_shown_by_provider(tool, context):
                    shown.append(tool)
            elif (guarded := self._guarded(tool)) is not None and self._is_visible(guarded.name, context):
                shown.append(guarded)
        return request.override(tools=shown)

    def _is_visible(self, name: str, context: ToolExecutionContext | None) -> bool:
        return self._guard.is_visible(name, context)

    def _is_shown_by_provider(self, tool: dict[str, Any], context: ToolExecutionContext | None) -> bool:
        """A provider runs its own tools without asking anybody: only the allowlist can say yes."""
        function = tool.get("function")
        name = str((function if isinstance(function, dict) else tool).get("name") or tool.get("type"))
        settings = self._guard.policy.settings(name)
        if settings is None or settings.risk is None or parse_risk(settings.risk).needs_approval:
            return False
        return self._is_visible(name, context)

    # What is guarded

    def _guarded_request(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """The request with its tool behind the guard; None where there is no tool that the guard knows."""
        self._warn_unless_last(handler)
        guarded = None if request.tool is None else self._guarded(request.tool)
        if guarded is None or guarded is request.tool:
            return None if guarded is None else request
        return request.override(tool=guarded)

    def _guarded(self, tool: BaseTool) -> BaseTool | None:
        """The tool behind the guard; None for one that the guard does not take, which is then as good as unknown."""
        if isinstance(tool, GuardedTool):
            if tool._gate.guard is not self._guard:
                raise GuardConfigurationError(f"the tool {tool.name!r} is behind another guard than the middleware's")
            return tool
        with self._lock:
            known = self._wrapped.get(id(tool))
            if known is None:
                known = self._wrapped[id(tool)] = (
                    tool,
                    self._wrap(tool),
                )  # it holds the tool, so that the id is not reused
                if len(self._wrapped) > _MAX_WRAPPED:
                    self._wrapped.popitem(last=False)
            return known[1]

    def _wrap(self, tool: BaseTool) -> BaseTool | None:
        try:
            return guard_tool(tool, self._guard, context=self._context)
        except GuardConfigurationError as error:
            # Tools come and go while an agent runs: one that the policy does not know is denied, not the agent's end.
            _log.warning("the tool %s is hidden and refused: %s", recorded_name(tool.name), error)
            return None

    def _warn_unless_last(self, handler: Callable[[Any], Any]) -> None:
        if not self._has_warned and compat.has_middleware_inside(handler):
            self._has_warned = True
            warnings.warn(
                "GuardMiddleware is not the last middleware: one after it can put another tool in the place of a "
                "guarded one; list it last in create_agent(middleware=[...])",
                stacklevel=2,
            )

    # What is refused

    def _unknown(self, request: Any) -> dict[str, Any]:
        """What `guard.refuse` takes of a call of no tool at all."""
        call, runtime = request.tool_call, graph_compat.current_runtime()
        return {"name": call["name"], "arguments": call["args"], "context": self._context, "runtime": runtime}

    def _malformed(self, request: Any, response: Any) -> list[dict[str, Any]]:
        """What it takes of the calls in a model's answer that LangChain could not read."""
        said = getattr(getattr(response, "model_response", response), "result", None) or [response]
        calls = [call for message in said if isinstance(message, AIMessage) for call in message.invalid_tool_calls]
        whose = {"context": self._context, "runtime": request.runtime, "unreadable": True}
        return [{"name": call["name"] or "", "arguments": call["args"] or "", **whose} for call in calls]


def _answer(error: ToolExecutionError, request: Any) -> ToolMessage:
    if request.tool_call["id"] is None:
        raise ToolCallDenied(error)  # no message can answer it
    return ToolMessage(
        str(error),
        artifact=error.as_dict(),
        tool_call_id=request.tool_call["id"],
        name=error.tool,
        status="error",
    )

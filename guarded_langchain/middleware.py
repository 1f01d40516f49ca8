"""The guard as middleware of `create_agent`: shows the model its tools, and guards every tool the agent can get at."""

from __future__ import annotations

import logging
import warnings
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from threading import Lock
from typing import Any, Literal, Self, TypeAlias, get_args

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool

from guarded_core.approvals.request import ApprovalRequest
from guarded_core.approvals.turns import off_the_loop
from guarded_core.ground.errors import GuardConfigurationError, ToolExecutionError
from guarded_core.guard import Guard, check_handed_over
from guarded_core.pipeline.call import Call
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import parse_risk, recorded_name
from guarded_langchain import compat
from guarded_langchain.gate import Gate
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.graph.identity import last_said, sent_in
from guarded_langchain.graph.interrupt import InterruptApprover
from guarded_langchain.messages import ToolCallDenied
from guarded_langchain.runtime import handing_over
from guarded_langchain.tool import GuardedTool, guard_tool

try:
    from langchain.agents.middleware import AgentMiddleware
except ImportError as error:
    raise ImportError('GuardMiddleware needs LangChain\'s agents: pip install "guarded-tools[langgraph]"') from error

_log = logging.getLogger(__name__)

_MAX_WRAPPED = 512

ASKED_BY_APPLICATION = "asked_by_application"
Ask: TypeAlias = Literal["call", "message"]


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
        ask: "call", each call asks when its turn comes, and calls beside it that need nobody run meanwhile; or
            "message", the guard's InterruptApprover asks about all calls of one message of the model's in one
            interrupt, before any of them runs, as LangChain's human in the loop does. A call that cannot be judged
            before its turn asks then. Tools that a graph goes on with in another process are wrapped (`guard_tools`).
        when: by tool, whether a person has to approve this call too; takes LangChain's ToolCallRequest, which has no
            tool yet where a message asks. It adds questions to the policy's, and waives none.

    Raises:
        GuardConfigurationError: a setting that does not exist, or no approver of the guard's that asks so.
    """

    def __new__(cls, *args: Any, ask: Ask = "call", **settings: Any) -> Self:
        """An agent has another node for what asks after the model's turn; one that asks by call needs none."""
        kind: Any = _AskingByMessage if ask == "message" and cls is GuardMiddleware else cls
        made: Self = super().__new__(kind)
        return made

    def __init__(
        self,
        guard: Guard,
        *,
        context: ToolExecutionContext | None = None,
        ask: Ask = "call",
        when: Mapping[str, Callable[[Any], bool]] | None = None,
    ) -> None:
        super().__init__()
        check_handed_over(guard, context=context)
        guard.check_framework("langchain")
        if ask not in get_args(Ask) or (ask == "message" and not isinstance(self, _AskingByMessage)):
            raise GuardConfigurationError(f"ask is one of {', '.join(get_args(Ask))}; a subclass asks by call")
        self._guard = guard
        self._context = context
        self._when = dict(when or {})
        self._seen: dict[str, Gate] = {}
        self._lock = Lock()
        self._wrapped: OrderedDict[int, tuple[BaseTool, BaseTool | None]] = OrderedDict()
        self._has_warned = False
        asked = guard.approvers()
        self._may_not_pause = bool(asked) and all(isinstance(each, InterruptApprover) for each in asked)

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
        with handing_over(request.runtime, self._asks(request)):
            return handler(guarded)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As `wrap_tool_call`, awaiting."""
        guarded = self._guarded_request(request, handler)
        if guarded is None:
            return _answer(await self._guard.arefuse(**self._unknown(request)), request)
        with handing_over(request.runtime, self._asks(request)):
            return await handler(guarded)

    def _asks(self, request: Any) -> tuple[str, ...]:
        """Why a person has to approve this call, beside what the policy says."""
        when = self._when.get(request.tool_call["name"])
        if when is None:
            return ()
        try:
            return (ASKED_BY_APPLICATION,) if when(request) else ()
        except Exception as error:  # what cannot be told is asked about
            _log.error("when failed: %s", type(error).__name__)
            return (ASKED_BY_APPLICATION,)

    # What is shown

    def _shown(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self._warn_unless_last(handler)
        self._tell_unless_pausable()
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
                if isinstance(guarded, GuardedTool):
                    self._seen[guarded.name] = guarded._gate
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

    def _tell_unless_pausable(self) -> None:
        """Say at the model's first turn, before any call is refused for it, that nobody can be asked in this graph.

        Middleware does not see how its agent was compiled, and a server may add the checkpointer.
        """
        if self._may_not_pause and graph_compat.current_place() is None:
            self._may_not_pause = False
            _log.error(
                "nobody can be asked to approve a call of this agent: InterruptApprover pauses a graph, and this one "
                "has no checkpointer (create_agent(..., checkpointer=...)), or its run no thread_id"
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


class _AskingByMessage(GuardMiddleware):
    """Asks after the model's turn, about all calls of its message at once; see `GuardMiddleware`, `ask`."""

    def __init__(self, guard: Guard, **settings: Any) -> None:
        super().__init__(guard, **settings)
        found = [each for each in guard.approvers() if isinstance(each, InterruptApprover)]
        if not found:
            raise GuardConfigurationError('ask="message" needs an InterruptApprover among the guard\'s approvers')
        self._approver = found[0]

    @property
    def name(self) -> str:
        """As an agent's graph names its node."""
        return GuardMiddleware.__name__

    def after_model(self, state: Any, runtime: Any) -> None:
        """Interrupt the graph until people have decided all of the message's calls that need them."""
        place, calls = graph_compat.current_place(), self._about_to_come(state, runtime)
        if place is None or not (asked := self._asked(calls)):
            return
        refusal = self._approver.put_together(asked, place.shown())
        if asked := self._asked(calls):  # what a person changed is judged anew
            self._approver.show_together(place, asked, refusal)

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        """As `after_model`, awaiting."""
        place, calls = graph_compat.current_place(), self._about_to_come(state, runtime)
        if place is None or not (asked := await self._aasked(calls)):
            return
        refusal = await off_the_loop(self._approver.put_together, asked, await place.ashown())
        if asked := await self._aasked(calls):
            await off_the_loop(self._approver.show_together, place, asked, refusal)

    def _asked(self, calls: list[Call]) -> list[ApprovalRequest]:
        return [request for call in calls if (request := self._guard.propose(call)) is not None]

    async def _aasked(self, calls: list[Call]) -> list[ApprovalRequest]:
        return [request for call in calls if (request := await self._guard.apropose(call)) is not None]

    def _about_to_come(self, state: Any, runtime: Any) -> list[Call]:
        message = last_said(state["messages"])
        calls: dict[str, Call] = {}
        for said in message.tool_calls if message else ():
            gate = self._seen.get(said["name"]) or self._guard.port(said["name"])
            if message is None or not isinstance(gate, Gate) or said["id"] is None or said["id"] in calls:
                continue
            request = graph_compat.tool_call_request(said, state, runtime)
            call = gate.about_to_come(sent_in(message, said["id"]), self._asks(request))
            if call is not None:
                calls[said["id"]] = call
        return list(calls.values())


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

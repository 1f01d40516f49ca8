"""The direct entry point: a registry of AiTools, and the one method that runs them."""

from __future__ import annotations

import inspect
import threading
from typing import Any

from guarded_core.audit.sink import ToolAuditSink, completed
from guarded_core.ground.errors import DuplicateTool, GuardConfigurationError, ToolNotFound
from guarded_core.ground.given import require
from guarded_core.ground.payload import PayloadLimits, freeze
from guarded_core.pipeline.call import Authority, Call
from guarded_core.pipeline.flow import enforce
from guarded_core.pipeline.steps import Services, arun, run
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.preview.visible import ToolView, openai_schema, visible_tools
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.state import StateStore
from guarded_core.session import ToolExecutionContext
from guarded_core.store.opening import check_sink
from guarded_core.tools.port import FunctionPort
from guarded_core.tools.spec import AiTool, ToolSpec


class AiToolPort(FunctionPort):
    """The port of an AiTool, which returns JSON and nothing else.

    Args:
        tool: read once, here.

    Raises:
        InvalidTool: a name, description, parameter or risk is out of bounds.
    """

    def __init__(self, tool: AiTool) -> None:
        super().__init__(ToolSpec.of_ai_tool(tool), tool.execute)
        self.is_async = inspect.iscoroutinefunction(tool.execute)

    def check_output(self, result: Any, limit: int) -> None:
        """As for any tool; PayloadRefused for what is not JSON."""
        freeze(result, PayloadLimits(bytes=limit, depth=128, nodes=max(limit, 1)))


class ToolRegistry:
    """AiTools by name; everything about a tool is read once, when it is registered.

    Args:
        state: facts for rules.
    """

    def __init__(self, *, state: StateStore | None = None) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, AiToolPort] = {}
        self._engine = PolicyEngine()
        self._state = state or StateStore()

    def register(self, tool: AiTool) -> None:
        """Add `tool`.

        Raises:
            InvalidTool: a name, description, parameter or risk is out of bounds.
            DuplicateTool: its name is taken.
        """
        hint = "make an instance of it" if isinstance(tool, type) and issubclass(tool, AiTool) else ""
        require(AiTool, "tool", "an AiTool", tool, hint)
        port = AiToolPort(tool)
        name = port.spec.name
        with self._lock:
            if name in self._tools:
                raise DuplicateTool(name)
            self._tools = dict(sorted([*self._tools.items(), (name, port)]))

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def is_empty(self) -> bool:
        """Whether no tool is registered."""
        return not self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The registered names, sorted."""
        return tuple(self._tools)

    def execute(
        self,
        name: str,
        payload: object,
        context: ToolExecutionContext,
        policy: ToolExecutionPolicy,
        audit: ToolAuditSink,
    ) -> Any:
        """Judge one call, run it, record it, and return the tool's JSON.

        Args:
            name: which tool; untrusted.
            payload: its arguments, a JSON object or JSON text; untrusted.
            context: who calls.
            policy: what is allowed.
            audit: where the evidence goes; without it nothing runs.

        Raises:
            ToolExecutionError: the call was refused or failed (see errors.py).
            GuardConfigurationError: the tool is async: `aexecute` runs it; or what was handed over is something else.
        """
        services, port = _services(context, policy, audit), self._port(name)
        if port is not None and port.is_async:
            raise GuardConfigurationError(f"tool {name!r} is async; use aexecute")
        return run(enforce(self._call(name, payload, context), self._authority(policy)), services)

    async def aexecute(
        self,
        name: str,
        payload: object,
        context: ToolExecutionContext,
        policy: ToolExecutionPolicy,
        audit: ToolAuditSink,
    ) -> Any:
        """As `execute`, without blocking the event loop; a sync tool runs in a worker thread."""
        services = _services(context, policy, audit)
        return await arun(enforce(self._call(name, payload, context), self._authority(policy)), services)

    def visible_tools(self, policy: ToolExecutionPolicy, context: ToolExecutionContext | None = None) -> list[ToolView]:
        """The tools a model should be shown under `policy`, for `context` where one is given."""
        specs, rules = [port.spec for port in self._tools.values()], self._authority(policy).rules(policy, context)
        return visible_tools(specs, policy, context, rules)

    def export_openai_schema(
        self, policy: ToolExecutionPolicy, context: ToolExecutionContext | None = None
    ) -> list[dict[str, Any]]:
        """Those tools as OpenAI function definitions with closed schemas, in name order."""
        return [openai_schema(view) for view in self.visible_tools(policy, context)]

    def _call(self, name: str, payload: object, context: ToolExecutionContext) -> Call:
        return Call(tool=name, port=self._port(name), arguments=payload, context=context)

    def _port(self, name: object) -> AiToolPort | None:
        return self._tools.get(name) if type(name) is str else None

    def _authority(self, policy: ToolExecutionPolicy) -> Authority:
        return Authority(policy=lambda: policy, engine=self._engine, state=self._state, unknown=ToolNotFound)


def _services(context: ToolExecutionContext, policy: ToolExecutionPolicy, audit: ToolAuditSink) -> Services:
    require(ToolExecutionContext, "context", "a ToolExecutionContext", context)
    require(ToolExecutionPolicy, "policy", "a ToolExecutionPolicy", policy, "a Guard has it as guard.policy")
    check_sink(audit, context.store)
    return Services(store=context.store, sink=completed(audit))

"""The direct entry point: a registry of AiTools, and the one method that runs them."""

from __future__ import annotations

import inspect
import threading
from typing import Any

from guarded_core.audit.sink import ToolAuditSink
from guarded_core.ground.errors import DuplicateTool, GuardConfigurationError, ToolNotFound
from guarded_core.ground.payload import PayloadLimits, freeze
from guarded_core.pipeline.call import Authority, Call, never
from guarded_core.pipeline.flow import enforce
from guarded_core.pipeline.steps import Services, arun, run
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.preview.view import ToolView, openai_schema, visible_tools
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.state import StateStore
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import AiTool, ToolSpec


class ToolRegistry:
    """AiTools by name; everything about a tool is read once, when it is registered.

    Args:
        state: facts for rules.
    """

    def __init__(self, *, state: StateStore | None = None) -> None:
        self._lock = threading.Lock()
        self._tools: dict[str, tuple[ToolSpec, AiTool]] = {}
        self._engine = PolicyEngine()
        self._state = state or StateStore()

    def register(self, tool: AiTool) -> None:
        """Add `tool`.

        Raises:
            InvalidTool: a name, description, parameter or risk is out of bounds.
            DuplicateTool: its name is taken.
        """
        spec = ToolSpec.of_ai_tool(tool)
        with self._lock:
            if spec.name in self._tools:
                raise DuplicateTool(spec.name)
            self._tools = dict(sorted([*self._tools.items(), (spec.name, (spec, tool))]))

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
            GuardConfigurationError: the tool is async: `aexecute` runs it.
        """
        entry = self._tools.get(name) if type(name) is str else None
        if entry is not None and inspect.iscoroutinefunction(entry[1].execute):
            raise GuardConfigurationError(f"tool {name!r} is async; use aexecute")
        return run(enforce(self._call(name, payload, context), self._authority(policy)), _services(context, audit))

    async def aexecute(
        self,
        name: str,
        payload: object,
        context: ToolExecutionContext,
        policy: ToolExecutionPolicy,
        audit: ToolAuditSink,
    ) -> Any:
        """As `execute`, without blocking the event loop; a sync tool runs in a worker thread."""
        flow = enforce(self._call(name, payload, context), self._authority(policy))
        return await arun(flow, _services(context, audit))

    def visible_tools(self, policy: ToolExecutionPolicy, context: ToolExecutionContext | None = None) -> list[ToolView]:
        """The tools a model should be shown under `policy`, for `context` where one is given."""
        specs, rules = [spec for spec, _ in self._tools.values()], self._authority(policy).rules(policy, context)
        return visible_tools(specs, policy, context, rules)

    def export_openai_schema(
        self, policy: ToolExecutionPolicy, context: ToolExecutionContext | None = None
    ) -> list[dict[str, Any]]:
        """Those tools as OpenAI function definitions with closed schemas, in name order."""
        return [openai_schema(view) for view in self.visible_tools(policy, context)]

    def _call(self, name: str, payload: object, context: ToolExecutionContext) -> Call:
        entry = self._tools.get(name) if type(name) is str else None
        return Call(
            tool=name,
            spec=entry[0] if entry else None,
            arguments=payload,
            context=context,
            function=entry[1].execute if entry else never,
            check_output=_check_json,
        )

    def _authority(self, policy: ToolExecutionPolicy) -> Authority:
        return Authority(policy=lambda: policy, engine=self._engine, state=self._state, unknown=ToolNotFound)


def _services(context: ToolExecutionContext, audit: ToolAuditSink) -> Services:
    return Services(store=context.store, sink=audit)


def _check_json(output: Any, limit: int) -> None:
    freeze(output, PayloadLimits(bytes=limit, depth=128, nodes=max(limit, 1)))

"""`GuardedAgentWorkflow`: agents that hand over to each other only where the guard lets them."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.tools import AsyncBaseTool

from guarded_core.guard import Guard
from guarded_core.session import ToolExecutionContext
from guarded_llamaindex.tool import GuardedTool, guard_tool


class GuardedAgentWorkflow(AgentWorkflow):
    """An AgentWorkflow whose own tool, `handoff`, is behind the guard: in the policy, judged, and on record.

    Args:
        guard: judges, records and runs its calls.
        context: whose calls these are; by default the current session's.
        args, settings: as for `AgentWorkflow`; the agents' tools are guarded where they are wrapped.

    Raises:
        InvalidTool: the policy does not list `handoff`.
    """

    def __init__(self, *args: Any, guard: Guard, context: ToolExecutionContext | None = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._guard = guard
        self._context = context
        self._handoffs: dict[str, GuardedTool] = {}
        for agent in self.agents.values():
            self._get_handoff_tool(agent)

    def _get_handoff_tool(self, current_agent: BaseWorkflowAgent) -> AsyncBaseTool | None:
        bare = super()._get_handoff_tool(current_agent)
        if bare is None:
            return None
        # One a description, which names those that this agent can hand over to.
        shown = bare.metadata.description
        if shown not in self._handoffs:
            self._handoffs[shown] = guard_tool(bare, self._guard, context=self._context)
        return self._handoffs[shown]

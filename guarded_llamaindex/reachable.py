"""`assert_all_guarded`: what an agent could reach that no guard judges."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.objects import ObjectRetriever
from llama_index.core.tools import BaseTool, FunctionTool

from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.ground.held import Walk
from guarded_core.ground.unguarded import UnguardedTools
from guarded_core.guard import Guard
from guarded_llamaindex.code_execution import UnsafeCodeExecution
from guarded_llamaindex.compat import overrides
from guarded_llamaindex.handoff import GuardedAgentWorkflow
from guarded_llamaindex.retriever import GuardedRetriever
from guarded_llamaindex.tool import GuardedTool, inner_of

_FINDS_AND_CALLS = ("get_tools", "call_tool", "_call_tool")


def assert_all_guarded(
    agent: BaseWorkflowAgent | AgentWorkflow,
    *,
    code_execution: UnsafeCodeExecution | None = None,
    allow_handoff: bool = False,
    allow_unknown: bool = False,
) -> None:
    """Check, as the agent stands now, that each tool it can call is guarded; best right before it runs.

    It sees the agent's tools, its tool retriever, the agents of a workflow and how they hand over, code execution, and
    subclasses that find or call tools their own way; and in the same way the agents and tools that a guarded tool's own
    code holds, names or imports.

    Args:
        agent: an agent, or a workflow of agents.
        code_execution: accepts CodeActAgents.
        allow_handoff: accepts that a workflow's own tool `handoff` is not judged.
        allow_unknown: accepts what cannot be looked into, such as code that makes an agent as it runs.

    Raises:
        UnguardedTools: naming all that is not guarded, or not known to be.
    """
    if not isinstance(agent, AgentWorkflow | BaseWorkflowAgent):
        raise GuardConfigurationError(
            f"assert_all_guarded takes an agent or an AgentWorkflow, not {type(agent).__name__}"
        )
    search = _Search(code_execution, allow_handoff)
    search.visit(agent, search.inside)
    found = [*search.found, *(f"inside a guarded tool: tool {name!r} is not guarded" for name in search.bare())]
    if not allow_unknown:
        found += [f"it is not known what is behind {what}" for what in search.unseen]
    if found:
        raise UnguardedTools(found)


class _Search(Walk):
    """A walk over all that an agent can get at.

    Attributes:
        found: one line for each way around the guard.
    """

    def __init__(self, code_execution: UnsafeCodeExecution | None, allow_handoff: bool) -> None:
        super().__init__(_MAKERS)
        self._code_execution = code_execution
        self._allow_handoff = allow_handoff
        self.found: list[str] = []
        self._bare: list[BaseTool] = []
        self._guarded: set[int] = set()

    def bare(self) -> Iterator[str]:
        """The tools that the code of guarded ones can call without a guard.

        A tool made of a method is none of them where it is guarded as well: its object can call the method itself.
        """
        for tool in self._bare:
            of_method = isinstance(tool, FunctionTool) and inspect.ismethod(tool.real_fn)
            if not (of_method and id(tool) in self._guarded):
                yield tool.metadata.get_name()

    def inside(self, held: Any) -> Iterable[Any]:
        if isinstance(held, Guard):
            return ()
        if isinstance(held, AgentWorkflow):
            self.found.extend(_ways_of_workflow(held, self._allow_handoff))
            # The walk takes the last first.
            return reversed(held.agents.values())
        if isinstance(held, BaseWorkflowAgent):
            self.found.extend(_ways_of_agent(held, self._code_execution))
            retriever = held.tool_retriever if type(held.tool_retriever) is GuardedRetriever else None
            return [*(tool for tool in held.tools or () if type(tool) is GuardedTool), retriever]
        if type(held) is GuardedTool:
            # The inner tool is only reached through the guard; what it holds can be reached from inside it.
            inner = inner_of(held)
            self._guarded.add(id(inner))
            return self.parts(inner)
        if type(held) is GuardedRetriever:
            return held.guarded_tools()
        if isinstance(held, BaseTool):
            self._bare.append(held)
        elif isinstance(held, ObjectRetriever):
            self.unseen["a tool retriever, which finds its tools when it is asked"] = None
            return ()
        return self.parts(held)


# What code calls to make an agent.
_MAKERS = (AgentWorkflow, FunctionAgent, ReActAgent, CodeActAgent)


def _ways_of_workflow(workflow: AgentWorkflow, allow_handoff: bool) -> Iterator[str]:
    is_ours, where = type(workflow) is GuardedAgentWorkflow, "the workflow"
    base = type(workflow) if is_ours else AgentWorkflow
    yield from _own_ways(workflow, base, where, (*_FINDS_AND_CALLS, "_get_handoff_tool"))
    hands_over = any(workflow._get_handoff_tool(agent) for agent in workflow.agents.values())
    if hands_over and not is_ours and not allow_handoff:
        yield f"{where}: its own tool 'handoff' is not guarded; use GuardedAgentWorkflow"


def _ways_of_agent(agent: BaseWorkflowAgent, code_execution: UnsafeCodeExecution | None) -> Iterator[str]:
    where = f"agent {agent.name!r}"
    yield from _own_ways(agent, BaseWorkflowAgent, where)
    yield from _tools(agent, where)
    if agent.tool_retriever is not None and type(agent.tool_retriever) is not GuardedRetriever:
        yield f"{where}: its tool_retriever yields unguarded tools; use guarded_retriever"
    if isinstance(agent, CodeActAgent):
        if code_execution is None:
            yield f"{where}: it runs code that the model writes; see UnsafeCodeExecution"
        else:
            code_execution.use(where)


def _own_ways(agent: object, base: type, where: str, methods: tuple[str, ...] = _FINDS_AND_CALLS) -> Iterator[str]:
    for method in methods:
        if overrides(type(agent), base, method) or method in vars(agent):
            yield f"{where}: it has a {method} of its own"


def _tools(agent: BaseWorkflowAgent, where: str) -> Iterator[str]:
    names = []
    for tool in agent.tools or ():
        name = tool.metadata.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", "?")
        names.append(name)
        # Exactly this class: a subclass may have a way of its own.
        if type(tool) is not GuardedTool and not (isinstance(agent, CodeActAgent) and name == "execute"):
            yield f"{where}: tool {name!r} is not guarded"
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{where}: {count} tools are named {name!r}, and the last one is called"

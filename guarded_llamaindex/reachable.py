"""`assert_all_guarded`: what an agent could reach that no guard judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent, CodeActAgent
from llama_index.core.tools import BaseTool

from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.ground.unguarded import UnguardedTools
from guarded_llamaindex.code_execution import UnsafeCodeExecution
from guarded_llamaindex.compat import overrides
from guarded_llamaindex.retriever import GuardedRetriever
from guarded_llamaindex.tool import GuardedTool

_FINDS_AND_CALLS = ("get_tools", "call_tool", "_call_tool")


def assert_all_guarded(
    agent: BaseWorkflowAgent | AgentWorkflow, *, code_execution: UnsafeCodeExecution | None = None
) -> None:
    """Check, as the agent stands now, that each tool it can call is guarded; best right before it runs.

    It sees the agent's tools, its tool retriever, the agents of a workflow, code execution, and subclasses that find or
    call tools their own way. It cannot see into a guarded tool: an agent that a tool runs is asserted on its own.

    Args:
        agent: an agent, or a workflow of agents.
        code_execution: accepts CodeActAgents.

    Raises:
        UnguardedTools: naming all that is not guarded.
    """
    found = list(_ways(agent, code_execution))
    if found:
        raise UnguardedTools(found)


def _ways(agent: object, code_execution: UnsafeCodeExecution | None) -> Iterator[str]:
    if isinstance(agent, AgentWorkflow):
        yield from _own_ways(agent, AgentWorkflow, "the workflow")
        for one in agent.agents.values():
            yield from _ways(one, code_execution)
    elif isinstance(agent, BaseWorkflowAgent):
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
    else:
        raise GuardConfigurationError(
            f"assert_all_guarded takes an agent or an AgentWorkflow, not {type(agent).__name__}"
        )


def _own_ways(agent: object, base: type, where: str) -> Iterator[str]:
    for method in _FINDS_AND_CALLS:
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

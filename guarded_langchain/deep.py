"""A deep agent with the guard around each of its agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from guarded_core.guard import Guard
from guarded_core.session import ToolExecutionContext
from guarded_langchain.middleware import GuardMiddleware
from guarded_langchain.reachable import assert_all_guarded

try:
    from deepagents import create_deep_agent
    from deepagents.middleware.subagents import GENERAL_PURPOSE_SUBAGENT
except ImportError as error:
    raise ImportError("guarded_deep_agent needs deepagents: pip install deepagents") from error


def guarded_deep_agent(
    guard: Guard,
    model: Any,
    tools: Sequence[Any] = (),
    *,
    subagents: Sequence[Mapping[str, Any]] = (),
    middleware: Sequence[Any] = (),
    general_purpose: bool = True,
    context: ToolExecutionContext | None = None,
    allow_unknown: bool = False,
    **options: Any,
) -> Any:
    """`create_deep_agent`, with a GuardMiddleware in the agent and in each subagent, the general-purpose one too.

    The tools that deepagents brings, such as `task` and those for files, are tools like all others: the policy lists
    those that may be called.

    Args:
        guard: whose policy, trail and approvals count.
        model, tools, middleware, options: as for `create_deep_agent`.
        subagents: as there. One that is compiled already has to be guarded already.
        general_purpose: False where the model's harness profile has no such subagent.
        context: a session to use instead of the current one.
        allow_unknown: accepts subagents on servers, whose tools cannot be looked at.

    Raises:
        UnguardedTools: there is a tool that the guard does not stand in front of.
    """
    guarding = GuardMiddleware(guard, context=context)
    described = list(subagents)
    if general_purpose and all(spec["name"] != GENERAL_PURPOSE_SUBAGENT["name"] for spec in described):
        # Else deepagents would add one itself, without the guard.
        skills = {"skills": options["skills"]} if options.get("skills") else {}
        described.insert(0, {**GENERAL_PURPOSE_SUBAGENT, **skills})
    agent = create_deep_agent(
        model,
        list(tools),
        middleware=_with(guarding, middleware),
        subagents=[_guarded(spec, guarding) for spec in described],
        **options,
    )
    assert_all_guarded(agent, allow_unknown=allow_unknown)
    return agent


def _guarded(spec: Mapping[str, Any], guarding: GuardMiddleware) -> Any:
    if "runnable" in spec or "graph_id" in spec:  # compiled, or on a server: no middleware can be added
        return spec
    return {**spec, "middleware": _with(guarding, spec.get("middleware", ()))}


def _with(guarding: GuardMiddleware, middleware: Sequence[Any]) -> list[Any]:
    return [*middleware, *([] if any(isinstance(one, GuardMiddleware) for one in middleware) else [guarding])]

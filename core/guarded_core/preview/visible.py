"""What a model is shown: allowlist ∩ principal's set − blanket denials, with narrowed schemas.

Showing is a courtesy that saves turns; every call is judged again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from guarded_core.ground.errors import InvalidTool
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.rules.ruleset import RuleSet
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import ToolRisk, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolView:
    """A tool as a model is shown it.

    Attributes:
        name, description: as registered.
        schema: the closed schema, narrowed to what the rules can allow.
        risk: in force.
    """

    name: str
    description: str
    schema: dict[str, Any]
    risk: ToolRisk | None


def visible_tools(
    specs: Iterable[ToolSpec], policy: ToolExecutionPolicy, context: ToolExecutionContext | None, rules: RuleSet
) -> list[ToolView]:
    """The visible ones of `specs`, sorted by name; without a context, the policy's own view."""
    return [
        ToolView(
            name=spec.name,
            description=spec.description,
            schema=narrowed(spec, policy, rules),
            risk=policy.risk(spec),
        )
        for spec in sorted(specs, key=lambda spec: spec.name)
        if is_visible(spec.name, policy, context, rules) and can_be_judged(spec, policy)
    ]


def is_visible(name: str, policy: ToolExecutionPolicy, context: ToolExecutionContext | None, rules: RuleSet) -> bool:
    """Whether a call of the tool could be allowed at all, as far as its name tells."""
    if name not in policy.tools or (context is not None and (not context.is_open or not context.permits(name))):
        return False
    return not rules.hides(name)


def narrowed(spec: ToolSpec, policy: ToolExecutionPolicy, rules: RuleSet) -> dict[str, Any]:
    """The closed schema of `spec`, narrowed by the rules in force, a task's own among them."""
    return dict(rules.narrow(spec.name, spec.closed_schema(terms=policy.terms(spec.name))))


def can_be_judged(spec: ToolSpec, policy: ToolExecutionPolicy) -> bool:
    """Whether the tool's schema can be checked on the terms of `policy`, which may be another one than at its wrap."""
    try:
        spec.validator(terms=policy.terms(spec.name))
    except InvalidTool:
        return False
    return True


def openai_schema(view: ToolView) -> dict[str, Any]:
    """The view as an OpenAI function definition."""
    function = {"name": view.name, "description": view.description, "parameters": view.schema}
    return {"type": "function", "function": function}

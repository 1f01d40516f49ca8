"""What a policy says of calls that nobody makes: one call explained step by step, and cases with expected outcomes.

Both ask a guard of its own, over a store in memory: the pipeline's judgement, not a second one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from guarded_core.approvals.callback import CallbackApprover
from guarded_core.ground.errors import STEPS, GuardConfigurationError, InvalidPolicy, ToolExecutionError
from guarded_core.ground.wording import did_you_mean
from guarded_core.guard import Guard
from guarded_core.pipeline.call import Call
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.preview.decision import Decision
from guarded_core.rules.state import StateStore
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.port import FunctionPort
from guarded_core.tools.spec import ToolSpec

__all__ = [
    "CaseResult",
    "Earlier",
    "PolicyCase",
    "StepVerdict",
    "explain",
    "load_cases",
    "run_cases",
    "trial_guard",
    "trial_session",
]

PRINCIPAL = "somebody"
# Puts tools behind a guard.
Register = Callable[[Guard], None]

# Nothing is committed here, so that the steps from there on are not reached.
_STEPS = STEPS[: STEPS.index("commit")]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """One line of an explanation.

    Attributes:
        step: the flow's step.
        verdict: what it said; "would deny" for a rule that is not enforced, "-" for a step that was not reached.
        detail: which rule, and why.
    """

    step: str
    verdict: Literal["pass", "deny", "ask", "would deny", "-"]
    detail: str = ""


class Earlier(BaseModel):
    """A call that was made before in the session, approved where it had to be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tool: str
    arguments: dict[str, Any] = {}
    returns: Any = None


class PolicyCase(BaseModel):
    """A call and what should become of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = ""
    tool: str
    arguments: dict[str, Any] = {}
    expect: Literal["allow", "ask", "deny"]
    code: str | None = None
    rules: list[str] = []
    principal: str = PRINCIPAL
    role: str | None = None
    state: dict[str, Any] = {}
    before: list[Earlier] = []
    request: str = ""


class _Cases(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cases: list[PolicyCase] = Field(min_length=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """How a case went.

    Attributes:
        name: of the case.
        failure: what was not as expected; empty where all was.
    """

    name: str
    failure: str = ""


def trial_guard(
    policy: ToolExecutionPolicy,
    specs: Iterable[ToolSpec] = (),
    *,
    state: Mapping[str, Any] | None = None,
    register: Register | None = None,
) -> Guard:
    """A guard to try `policy` with. Tools that neither `specs` nor `register` brings take any arguments."""
    known = {spec.name: spec for spec in specs}
    guessed = (_guessed(name) for name in policy.tools - known.keys())
    guard = Guard(policy, approver=CallbackApprover(lambda request: True, by="the test"), state=StateStore(state))
    # A tool without any risk stays unknown here; a real guard would not even take it.
    guard.register(*(spec for spec in (*known.values(), *guessed) if policy.risk(spec) is not None))
    if register is not None:
        register(guard)
    return guard


def _guessed(name: str) -> ToolSpec:
    return ToolSpec.of(name=name, description="", schema={"type": "object", "additionalProperties": True}, closed=True)


def trial_session(
    guard: Guard, *, principal: str = PRINCIPAL, role: str | None = None, request: str = ""
) -> ToolExecutionContext:
    """A session of `guard`, with a role's tools or all; `request` is what the user said."""
    tools = guard.policy.tools if role is None else None
    return guard.session(principal, tools=tools, role=role, request=request)


def explain(
    guard: Guard, tool: str, arguments: object, context: ToolExecutionContext
) -> tuple[Decision, list[StepVerdict]]:
    """The decision on a call, and what each step says of it."""
    decision = guard.decide(tool, arguments, context=context)
    return decision, list(_explained(guard, tool, context, decision))


def _explained(guard: Guard, tool: str, context: ToolExecutionContext, decision: Decision) -> Iterator[StepVerdict]:
    reached = True
    for step in _STEPS:
        if not reached:
            yield StepVerdict(step=step, verdict="-")
            continue
        reached = decision.step != step
        if step == "rules":
            yield from _rules(decision)
        elif not reached:
            detail = _unauthorized(guard, tool, context, decision) if step == "authorise" else decision.message
            yield StepVerdict(step=step, verdict="deny", detail=detail or "")
        elif step == "approve" and decision.approval_request is not None:
            yield StepVerdict(step=step, verdict="ask", detail=", ".join(decision.approval_request.reasons))
        else:
            yield StepVerdict(step=step, verdict="pass")


def _rules(decision: Decision) -> Iterator[StepVerdict]:
    for violation in decision.violations:
        yield StepVerdict(step="rules", verdict="deny", detail=f"{violation.policy_name}: {violation.reason}")
    for name in decision.would_deny:
        yield StepVerdict(step="rules", verdict="would deny", detail=f"{name} (not enforced)")
    for ask in decision.asks:
        yield StepVerdict(step="rules", verdict="ask", detail=f"{ask.policy_name}: {ask.reason}")
    if not decision.violations and not decision.asks:
        yield StepVerdict(step="rules", verdict="pass")


def _unauthorized(guard: Guard, tool: str, context: ToolExecutionContext, decision: Decision) -> str:
    if decision.violations:
        return "; ".join(violation.reason for violation in decision.violations)
    if tool not in guard.policy.tools:
        return f"the allowlist has no {tool!r}{did_you_mean(tool, guard.policy.tools)}"
    if tool not in context.tools:
        return "the role does not have this tool"
    return "nobody declares a risk for this tool" if guard.spec(tool) is None else "no session"


def load_cases(path: str | Path) -> list[PolicyCase]:
    """The cases of a TOML file, one ``[[cases]]`` table each. Raises InvalidPolicy."""
    path = Path(path)
    try:
        return _Cases.model_validate(tomllib.loads(path.read_bytes().decode())).cases
    except OSError as error:
        raise InvalidPolicy(f"cannot be read: {type(error).__name__}", file=path.name) from None
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"])
        raise InvalidPolicy(fault["msg"], where=where.removeprefix("."), file=path.name) from None
    except ValueError as error:
        raise InvalidPolicy(f"is not TOML in UTF-8: {error}", file=path.name) from None


def run_cases(
    policy: ToolExecutionPolicy,
    cases: Iterable[PolicyCase],
    specs: Iterable[ToolSpec] = (),
    *,
    register: Register | None = None,
) -> Iterator[CaseResult]:
    """Each case's result, every one in a session of its own; tools as for `trial_guard`."""
    specs = tuple(specs)
    for number, case in enumerate(cases, 1):
        name = case.name or f"{number}: {case.tool}"
        try:
            failure = _failure(policy, case, specs, register)
        except (ToolExecutionError, GuardConfigurationError) as error:
            failure = f"could not be tried: {error}"
        yield CaseResult(name=name, failure=failure)


def _failure(
    policy: ToolExecutionPolicy, case: PolicyCase, specs: tuple[ToolSpec, ...], register: Register | None
) -> str:
    guard = trial_guard(policy, specs, state=case.state, register=register)
    context = trial_session(guard, principal=case.principal, role=case.role, request=case.request)
    for earlier in case.before:
        guard.run(_made(guard, earlier, context))
    decision = guard.decide(case.tool, case.arguments, context=context)
    if decision.outcome != case.expect or case.code not in (None, decision.code):
        wanted = case.expect if case.code is None else f"{case.expect} ({case.code})"
        return f"expected {wanted}, got {_said(decision)}"
    objecting = {violation.policy_name for violation in decision.violations} | {*decision.would_deny}
    if decision.approval_request is not None:
        objecting |= {*decision.approval_request.reasons}
    silent = sorted({*case.rules} - objecting)
    return f"expected an objection of {', '.join(silent)}, got {_said(decision)}" if silent else ""


def _made(guard: Guard, earlier: Earlier, context: ToolExecutionContext) -> Call:
    spec = guard.spec(earlier.tool)
    port = None if spec is None else FunctionPort(spec, lambda arguments: earlier.returns)
    return Call(tool=earlier.tool, port=port, arguments=earlier.arguments, context=context)


def _said(decision: Decision) -> str:
    code = f" ({decision.code})" if decision.code else ""
    reasons = [f"{violation.policy_name}: {violation.reason}" for violation in decision.violations]
    return f"{decision.outcome}{code}" + "".join(f"; {reason}" for reason in reasons)

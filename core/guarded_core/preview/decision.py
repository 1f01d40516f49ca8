"""What would happen to a call, were it made now: the pipeline's judgement without its consequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.ground.errors import PolicyDenied, Step
from guarded_core.ground.shown import Shown
from guarded_core.ground.violation import PolicyViolation
from guarded_core.pipeline.call import Authority, Call
from guarded_core.pipeline.judge import judge
from guarded_core.pipeline.record import open_record
from guarded_core.pipeline.steps import Flow
from guarded_core.pipeline.verdict import Refusal, Replay, Verdict
from guarded_core.preview.visible import can_be_judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Shown):
    """The judgement of one call.

    Attributes:
        outcome: "allow", "ask" (a person first) or "deny".
        code: the denial's code; None otherwise.
        step: the step of a call's way that refuses; None otherwise.
        message: what the model would read of a denial.
        violations: the rules that refuse.
        approval_request: what a person would be asked; it was neither stored nor asked.
        would_deny: names of unenforced rules that would refuse.
        asks: the rules that want a person to approve it.
    """

    outcome: Literal["allow", "ask", "deny"]
    code: str | None = None
    step: Step | None = None
    message: str | None = None
    violations: tuple[PolicyViolation, ...] = ()
    approval_request: ApprovalRequest | None = field(default=None, repr=False)
    would_deny: tuple[str, ...] = ()
    asks: tuple[PolicyViolation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One call as a model is shown it, as it is judged, and as it would run.

    Attributes:
        decision: the judgement.
        shown: JSON Schema of the arguments, as a model is shown it; empty for a tool that is not known.
        judged: the effective arguments; None where the call was refused before there were any.
        run: what the tool's code would get, by the same names; None where it would get nothing.
    """

    decision: Decision
    shown: Mapping[str, Any]
    judged: Mapping[str, Any] | None = field(default=None, repr=False)
    run: Mapping[str, Any] | None = field(default=None, repr=False)


def trace(call: Call, authority: Authority) -> Flow[Trace]:
    """Judge a call as `preview` does, and see what would run; nothing does."""
    verdict = yield from judge(open_record(call, authority))
    effective, port = verdict.found.effective, call.port
    decision = decided(verdict)
    policy = authority.policy()
    shown: Mapping[str, Any] = {}
    if port is not None and can_be_judged(port.spec, policy):
        own = port.spec.shown_schema(policy.terms(port.spec.name))
        shown = authority.rules(policy, call.context).narrow(port.spec.name, own)
    if effective is None or port is None:
        return Trace(decision=decision, shown=shown)
    runs = None if decision.outcome == "deny" else port.received(call.bound, effective.copy())
    return Trace(decision=decision, shown=shown, judged=effective.copy(), run=runs)


def preview(call: Call, authority: Authority) -> Flow[Decision]:
    """Judge a call; nothing is spent, asked or recorded."""
    return decided((yield from judge(open_record(call, authority))))


def decided(verdict: Verdict | Replay | Refusal) -> Decision:
    """What a judgement says."""
    found = verdict.found
    if isinstance(verdict, Refusal):
        error = verdict.error
        return Decision(
            outcome="deny",
            code=error.code,
            step=error.step,
            message=str(error),
            violations=error.violations if isinstance(error, PolicyDenied) else (),
            would_deny=found.would,
        )
    ask = None if isinstance(verdict, Replay) else verdict.ask
    request = ask if ask is not None and ask.state is RequestState.PENDING else None
    return Decision(
        outcome="ask" if request else "allow", approval_request=request, would_deny=found.would, asks=found.asks
    )

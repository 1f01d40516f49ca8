"""What would happen to a call, were it made now: the pipeline's judgement without its consequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from guarded_core.approvals.request import ApprovalRequest
from guarded_core.ground.errors import PolicyDenied, Step
from guarded_core.ground.shown import Shown
from guarded_core.ground.violation import PolicyViolation
from guarded_core.pipeline.call import Authority, Call
from guarded_core.pipeline.judge import Refusal, Replay, judge
from guarded_core.pipeline.record import open_record
from guarded_core.pipeline.steps import Flow


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


def preview(call: Call, authority: Authority) -> Flow[Decision]:
    """Judge a call; nothing is spent, asked or recorded."""
    verdict = yield from judge(open_record(call, authority))
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
    request = None if isinstance(verdict, Replay) else verdict.ask
    return Decision(
        outcome="ask" if request else "allow", approval_request=request, would_deny=found.would, asks=found.asks
    )

"""What a judgement stands on, and what it comes to."""

from __future__ import annotations

from typing import Any

from guarded_core.approvals.grant import GrantUse
from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.ground.errors import AnsweredByPerson, ApprovalRejected, ToolExecutionError
from guarded_core.ground.payload import Payload
from guarded_core.ground.struct import struct
from guarded_core.pipeline.record import Found
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Reservation
from guarded_core.rules.ruleset import RuleSet
from guarded_core.session import ToolExecutionContext
from guarded_core.store.base import Snapshot
from guarded_core.store.ledger import LedgerEntry
from guarded_core.tools.port import ToolPort
from guarded_core.tools.reading import Reading
from guarded_core.tools.spec import ToolRisk, ToolSpec


@struct
class Facts:
    """What one judgement stands on, all of one moment.

    Attributes:
        effect_key: names the effect that the call would have, where the policy says what makes it one.
        effect_held_by: the call that held it, and has freed it.
    """

    context: ToolExecutionContext
    policy: ToolExecutionPolicy
    port: ToolPort
    settings: ToolSettings
    rules: RuleSet
    risk: ToolRisk
    snapshot: Snapshot
    effective: Payload
    effect_key: str | None = None
    effect_held_by: str | None = None

    @property
    def spec(self) -> ToolSpec:
        """The tool, as it was registered."""
        return self.port.spec

    @property
    def reading(self) -> Reading:
        """What rules and grants make of the arguments: of an opaque one, what was written."""
        return self.spec.reading.as_written(self.settings.opaque)

    @property
    def may_run_again(self) -> bool:
        """Whether a call of the tool does no harm by running twice."""
        return self.risk is ToolRisk.READ_ONLY or self.settings.idempotent


@struct
class Replay:
    """A call that ran before: what the ledger has of it, and whose tool it is.

    Attributes:
        bound: what the port knows of the call that is made now.
        is_another: whether that is another call, which would have the same effect.
    """

    found: Found
    port: ToolPort
    entry: LedgerEntry
    bound: Any = None
    is_another: bool = False


@struct
class Refusal:
    """A judgement that refused: why, and what it had found until then."""

    found: Found
    error: ToolExecutionError


@struct
class Verdict:
    """A judgement that refused nothing: what the call has to take, and whether a person is to be asked first.

    Attributes:
        found: what events say of the call from now on.
        facts: what it stands on.
        reservation: window slots and flags.
        granted: approved requests to consume.
        grant: what to take from a grant that covers the call.
        ask: the request to put before a person; None where the call may go on.
        is_new: `ask` is not stored yet.
        resumes: the paused entry that is entered again; then nothing else is taken.
    """

    found: Found
    facts: Facts
    reservation: Reservation
    granted: tuple[ApprovalRequest, ...] = ()
    grant: GrantUse | None = None
    ask: ApprovalRequest | None = None
    is_new: bool = False
    resumes: LedgerEntry | None = None

    @property
    def goes_on(self) -> bool:
        """Whether this very call was judged before: the framework paused it, or somebody was asked about it."""
        asked = self.granted if self.ask is None or self.is_new else (self.ask,)
        return self.resumes is not None or any(request.call_key for request in asked)


def refused(tool: str, request: ApprovalRequest) -> ApprovalRejected:
    """What became of a call that a person refused, or answered in the tool's place: no rule has a say any more."""
    if request.state is RequestState.REVOKED:
        return ApprovalRejected(tool, "the question, or its approval, was taken back")
    vote = request.votes[-1]
    return (AnsweredByPerson if vote.responds else ApprovalRejected)(tool, vote.reason)

"""A person's one-use approval of exactly one payload: the request, the vote, and the one way to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from guarded_core.approvals.grantable import Offer
from guarded_core.ground.bounds import MAX_REASON, check_text, identity
from guarded_core.ground.errors import InvalidApproval
from guarded_core.ground.ids import new_id
from guarded_core.ground.payload import MAX_DEPTH, Payload, PayloadLimits, freeze
from guarded_core.ground.shown import Shown
from guarded_core.tools.spec import ToolRisk, is_identifier

SET_BY_APPLICATION = "(set by the application)"

OUTCOME_UNKNOWN, RAISED_BEFORE = "outcome_unknown", "raised_before"
"""Reasons to ask: an equal call of this caller was started, or raised, and may have had its effect."""

EDITED = "edited"
"""Reason to ask: a person changed the arguments, and nothing else wants one."""


class RequestState(StrEnum):
    """Where a request stands."""

    PENDING = "pending"  # waits for people
    APPROVED = "approved"  # enough people said yes; one call may use it, once
    REJECTED = "rejected"  # somebody said no
    EDITED = "edited"  # somebody changed the arguments: another request has them, and this one is over
    CONSUMED = "consumed"  # a call used it
    REVOKED = "revoked"  # taken back before any call used it


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanApproval:
    """A yes that the application hands over itself, for a payload it already knows.

    Build it with `for_payload`, or with `ApprovalRequest.grant`.

    Attributes:
        tool: name of the tool.
        digest: SHA-256 of the canonical payload.
        approver: who says yes, as the application authenticated them; at most 256 bytes.
        reason: why; at most 2048 bytes.
        request_id: the request it answers, None for one made in advance.
    """

    tool: str
    digest: str
    approver: str
    reason: str
    request_id: str | None = None

    def __post_init__(self) -> None:
        if not is_identifier(self.tool):
            raise InvalidApproval("the tool's name is 1 to 64 ASCII letters, digits, '_' or '-'")
        identity(self.approver, "the approver")
        check_text(self.reason, MAX_REASON, "the reason")

    @classmethod
    def for_payload(cls, tool: str, payload: Mapping[str, Any], approver: str, reason: str) -> Self:
        """The approval of `tool` with exactly `payload`. Raises InvalidApproval where that is not bounded JSON."""
        return cls(tool=tool, digest=_frozen(payload).digest, approver=approver, reason=reason)


_APPROVABLE = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=MAX_DEPTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person said to a request.

    Attributes:
        by: who, as the application authenticated them.
        approve: True for yes; anything but True is no.
        reason: why; a no's reason reaches the model.
        arguments: with a yes: not to the call as it is, but with these arguments, all of them.
        response: with a no: what the model gets in the place of the tool's result.
    """

    by: str
    approve: bool
    reason: str = ""
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)
    response: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's answer: who, yes or no, why, when in ns since the epoch; `responds`: the reason is for the model."""

    by: str
    approve: bool
    reason: str
    at_ns: int
    responds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest(Shown):
    """What a person is asked: this tool, for this principal, with exactly these effective arguments.

    An approval of it covers one call that matches every bound field, before it expires, once.

    Attributes:
        id: unguessable.
        tool, fingerprint, digest, policy, principal, session_id: what it is bound to; `policy` is the hash of what the
            policy says of this tool. fingerprint and policy are None for an approval given in advance.
        call_key: the ledger key, where the call has one; another call with equal arguments needs its own approval.
        tool_call_id: the id that the model's message gave the call, where the framework tells it.
        on_behalf_of: the principals that delegated to `principal`, root first.
        risk: of the tool.
        reasons: why a person is asked: the risk, or the names of the rules that ask.
        arguments: the effective arguments, whole; of those that the application set, which may be secret, the name.
        written: the arguments as the model sent them, where those are others; None otherwise.
        changed_from: the effective arguments that a person was shown when they changed them to these.
        required: how many distinct people have to say yes.
        self_approval: whether the principal's own chain may decide.
        created_ns, expires_ns: ns since the epoch.
        votes: answers so far.
        grantable: what a person may grant beside this one call; None where nothing.
        replaces: the request whose arguments a person changed to these, or that lacks some that would be filled in.
        replaced_by: the request that has the arguments since then.
        state: where it stands.
        version: grows with each change, for compare-and-set.
    """

    id: str
    tool: str
    digest: str
    principal: str
    session_id: str
    created_ns: int
    expires_ns: int
    fingerprint: str | None = None
    policy: str | None = None
    call_key: str | None = None
    tool_call_id: str | None = None
    on_behalf_of: tuple[str, ...] = ()
    risk: ToolRisk | None = None
    reasons: tuple[str, ...] = ()
    arguments: Any = field(default=None, repr=False)
    written: Any = field(default=None, repr=False)
    changed_from: Any = field(default=None, repr=False)
    required: int = 1
    self_approval: bool = False
    grantable: Offer | None = None
    votes: tuple[Vote, ...] = ()
    replaces: str | None = None
    replaced_by: str | None = None
    state: RequestState = RequestState.PENDING
    version: int = 0

    def is_live(self, now_ns: int) -> bool:
        """Whether it has not expired."""
        return now_ns < self.expires_ns

    @property
    def may_repeat(self) -> bool:
        """Whether an equal call may have had its effect already."""
        return OUTCOME_UNKNOWN in self.reasons or RAISED_BEFORE in self.reasons

    @property
    def is_refused(self) -> bool:
        """Whether it ended without a yes: for the very call that it is about, that is final."""
        return self.state in (RequestState.REJECTED, RequestState.REVOKED)

    def covers(self, wanted: ApprovalRequest) -> bool:
        """Whether an approval of this one is an approval of `wanted`: every bound field is the same."""
        return (
            self.is_about(wanted)
            and self.fingerprint in (None, wanted.fingerprint)
            and self.policy in (None, wanted.policy)
        )

    def is_about(self, wanted: ApprovalRequest) -> bool:
        """Whether it was about the call of `wanted`, or one that cannot be told from it, whatever the rules were."""
        return self.call_key in (None, wanted.call_key) and (
            (self.tool, self.digest, self.principal, self.on_behalf_of, self.session_id)
            == (wanted.tool, wanted.digest, wanted.principal, wanted.on_behalf_of, wanted.session_id)
        )

    def approves_another_payload(self, wanted: ApprovalRequest) -> bool:
        """Whether it is an approval of the same tool with other arguments than `wanted`'s."""
        return self.state is RequestState.APPROVED and self.tool == wanted.tool and self.digest != wanted.digest

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who said yes, in order."""
        return tuple(vote.by for vote in self.votes if vote.approve)

    def grant(self, by: str, reason: str) -> HumanApproval:
        """A yes to this very request, for `context.approve`."""
        return HumanApproval(tool=self.tool, digest=self.digest, approver=by, reason=reason, request_id=self.id)

    def voted(self, answer: Answer, *, now_ns: int) -> ApprovalRequest:
        """This request with one more vote.

        Raises:
            InvalidApproval: it is decided or expired, who answers belongs to the principal's own chain or has voted
                already, a text is blank or too long, or a response comes with a yes.
        """
        by, approve, reason = answer.by, answer.approve is True, answer.reason
        identity(by, "the approver")
        if answer.response is not None:
            if approve:
                raise InvalidApproval("a response stands in the place of the tool's result, so it goes with a no")
            check_text(answer.response, MAX_REASON, "the response")
            reason = answer.response
        elif reason:
            check_text(reason, MAX_REASON, "the reason")
        if self.state is not RequestState.PENDING:
            raise InvalidApproval(f"this request is {self.state.value} already")
        if not self.is_live(now_ns):
            raise InvalidApproval("this request has expired; the agent has to ask again")
        if not self.self_approval and by in (self.principal, *self.on_behalf_of):
            raise InvalidApproval("nobody approves their own call; another person has to decide")
        if any(vote.by == by for vote in self.votes):
            raise InvalidApproval("this person has decided already; another one is needed")
        votes = (*self.votes, Vote(by, approve, reason, now_ns, answer.response is not None))
        state = RequestState.PENDING
        if not approve:
            state = RequestState.REJECTED
        elif sum(vote.approve for vote in votes) >= self.required:
            state = RequestState.APPROVED
        return replace(self, votes=votes, state=state, version=self.version + 1)

    def edited(self, answer: Answer, *, now_ns: int) -> tuple[ApprovalRequest, ApprovalRequest] | None:
        """This request as it ends, and the one with the answer's arguments, which has its vote; None if they are equal.

        Raises:
            InvalidApproval: as `voted`; or the arguments are not a bounded JSON object, or come with a no.
        """
        if answer.approve is not True:
            raise InvalidApproval("changed arguments go with a yes")
        given = _frozen(answer.arguments)
        if self.arguments is not None and given.digest == _frozen(self.arguments).digest:
            return None
        fresh = replace(
            self,
            id=new_id(),
            arguments=given.copy(),
            digest=given.digest,
            changed_from=self.arguments,
            created_ns=now_ns,
            votes=(),
            replaces=self.id,
            version=0,
        )
        self.voted(answer, now_ns=now_ns)  # who may not decide this one may not decide the other
        return self.replaced(fresh.id), fresh.voted(answer, now_ns=now_ns)

    def replaced(self, by: str) -> ApprovalRequest:
        """This request as it ends, where that one has the arguments from now on."""
        return replace(self.moved(RequestState.EDITED), replaced_by=by)

    def moved(self, state: RequestState) -> ApprovalRequest:
        """This request in another state."""
        return replace(self, state=state, version=self.version + 1)


def _frozen(arguments: Any) -> Payload:
    try:
        payload = freeze(arguments, _APPROVABLE)
    except ValueError as error:
        raise InvalidApproval(f"these arguments cannot be approved: {error}") from None
    if type(payload.value) is not dict:
        raise InvalidApproval("the arguments are an object: every name with its value")
    return payload

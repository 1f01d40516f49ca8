"""The one way to decide a request, from whatever process reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Protocol

from guarded_core.approvals.grant import Grant, GrantState
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.bounds import MAX_REASON, check_text
from guarded_core.ground.errors import InvalidApproval


class RequestStore(Protocol):
    """The part of a store that keeps approval requests."""

    def now_ns(self) -> int:
        """The store's clock, ns since the epoch."""

    def request(self, request_id: str) -> ApprovalRequest | None:
        """The request of that id."""

    def requests(self, *, session_id: str | None = None, state: RequestState | None = None) -> list[ApprovalRequest]:
        """All requests of a session, or of all, oldest first."""

    def replace_request(self, old: ApprovalRequest, new: ApprovalRequest, added: ApprovalRequest | None = None) -> bool:
        """Put `new` where `old` is, if it still is, and keep `added` too; compare by id and version.

        One that `is_refused`, about a call with a key, is found by that key from then on, and never expires.
        """

    def grant(self, grant_id: str) -> Grant | None:
        """The grant of that id, with what calls have used of it."""

    def grants(self) -> list[Grant]:
        """All grants that have not expired, oldest first."""

    def add_grant(self, grant: Grant) -> None:
        """Keep a new grant."""

    def replace_grant(self, old: Grant, new: Grant) -> bool:
        """Put `new` where `old` is, if it still is, but for what calls have used; compare by id and version."""

    def record(self, event: AuditEvent) -> None:
        """Write an event to the trail of a store that keeps one; otherwise nothing."""


class Approvals:
    """The one place where requests are decided.

    Args:
        store: where they are kept; deciding works from any process that reaches it.
        record: writes what becomes of grants to the trail; by default the store's own.
    """

    def __init__(self, store: RequestStore, record: Callable[[AuditEvent], None] | None = None) -> None:
        self._store = store
        self._record = record or store.record

    def get(self, request_id: str) -> ApprovalRequest:
        """The request of that id. Raises InvalidApproval where there is none."""
        request = self._store.request(request_id)
        if request is None:
            raise InvalidApproval("there is no such request; list the pending ones first")
        return request

    def pending(self, *, session_id: str | None = None) -> list[ApprovalRequest]:
        """Requests that wait for people and have not expired, oldest first."""
        now_ns = self._store.now_ns()
        found = self._store.requests(session_id=session_id, state=RequestState.PENDING)
        return [request for request in found if request.is_live(now_ns)]

    def alike(self, request_id: str) -> list[ApprovalRequest]:
        """The pending requests of the same session about the same tool, for the same reasons, this one first.

        Each has a payload of its own: whoever answers them together has to be shown every one.
        """
        request = self.get(request_id)
        asked = (request.tool, request.fingerprint, request.policy, request.principal, request.reasons)
        others = [
            other
            for other in self.pending(session_id=request.session_id)
            if (other.tool, other.fingerprint, other.policy, other.principal, other.reasons) == asked
        ]
        return sorted(others, key=lambda other: other.id != request.id)

    def decide(
        self,
        request_id: str,
        *,
        by: str,
        approve: bool,
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        response: str | None = None,
    ) -> ApprovalRequest:
        """Record one person's answer and return the request as it then stands.

        A yes with other `arguments` ends this request and makes another one, which has this person's vote and is
        returned. The call is then judged with them from the start; where they are not yet what would run (a default is
        missing), it is asked about once more.

        Args:
            request_id: which request.
            by: who decides, as the application authenticated them.
            approve: True for yes; anything but True is no.
            reason: why; a no's reason reaches the model.
            arguments: with a yes: what the tool is to run with, all of it.
            response: with a no: what the model gets in the place of the tool's result, at most 2048 bytes.

        Raises:
            InvalidApproval: see `ApprovalRequest.voted` and `ApprovalRequest.edited`.
        """
        answer = Answer(by=by, approve=approve, reason=reason, arguments=arguments, response=response)
        return self._decide(request_id, answer)

    def answer(self, request_id: str, answer: Answer | None) -> ApprovalRequest:
        """As `decide`; without an answer, or where somebody else was first, the request as it stands is returned."""
        try:
            if answer is not None:
                return self._decide(request_id, answer)
        except InvalidApproval:
            if self.get(request_id).state is RequestState.PENDING:
                raise
        request = self.get(request_id)
        while request.replaced_by is not None:
            request = self.get(request.replaced_by)
        return request

    def revoke(self, request_id: str) -> ApprovalRequest:
        """Take back a request, or an approval that no call has used. Raises InvalidApproval where it is too late."""

        def revoked(request: ApprovalRequest) -> tuple[ApprovalRequest, ...]:
            if request.state in (RequestState.CONSUMED, RequestState.REVOKED, RequestState.EDITED):
                raise InvalidApproval(f"this request is {request.state.value} already")
            return (request.moved(RequestState.REVOKED),)

        return self._change(request_id, revoked)

    def grant(
        self,
        request_id: str,
        *,
        by: str,
        calls: int,
        seconds: int | None = None,
        free: Iterable[str] = (),
        up_to: Mapping[str, int | float | str | Decimal] | None = None,
        total: Mapping[str, int | float | str | Decimal] | None = None,
        every_session: bool = False,
        reason: str = "",
    ) -> Grant:
        """Approve the call that a request is about, and grant this many more of the same kind.

        What is not named in `free` or `up_to` is fixed to what the request shows. Where several people have to approve
        a call, as many have to agree to the grant (`agree`) before it is in force.

        Args:
            request_id: a pending request, as this person was shown it.
            by: who, as the application authenticated them.
            calls: how many more calls, this one not counted.
            seconds: for how long; as long as the policy lets by default.
            free: names or JSON Pointers of arguments that may be anything.
            up_to: by such a name, the highest amount of one call.
            total: by such a name, the highest sum of all those calls; the policy's by default.
            every_session: also for this principal's other sessions.
            reason: why.

        Raises:
            InvalidApproval: the policy does not let this be granted, or this person may not decide the request.
        """
        request = self.get(request_id)
        now_ns = self._store.now_ns()
        granted = Grant.of(
            request,
            calls=calls,
            seconds=seconds,
            free=free,
            up_to=up_to,
            total=total,
            every_session=every_session,
            now_ns=now_ns,
        ).agreed(by, reason, now_ns=now_ns)
        self.decide(request_id, by=by, approve=True, reason=reason)
        self._store.add_grant(granted)
        return self._put_in_force(granted)

    def agree(self, grant_id: str, *, by: str, reason: str = "") -> Grant:
        """One more person's yes to a grant that waits for it. Raises InvalidApproval for one who may not say it."""
        while True:
            found = self._grant(grant_id)
            agreed = found.agreed(by, reason, now_ns=self._store.now_ns())
            if self._store.replace_grant(found, agreed):
                return self._put_in_force(agreed)

    def grants(self) -> list[Grant]:
        """The grants that are in force, or wait for more people, with what calls have used of them; oldest first."""
        now_ns = self._store.now_ns()
        found = self._store.grants()
        return [granted for granted in found if granted.is_live(now_ns) or granted.state is GrantState.PENDING]

    def end_grant(self, grant_id: str, *, by: str, reason: str = "") -> Grant:
        """Take a grant back, at once: anybody may, the principal it was given for included.

        Raises InvalidApproval where it is over already.
        """
        while True:
            found = self._grant(grant_id)
            if reason:
                check_text(reason, MAX_REASON, "the reason")
            revoked = found.revoked(by)
            if self._store.replace_grant(found, revoked):
                self._record(_grant_event(revoked, "grant_revoked", (by,), reason, self._store.now_ns()))
                return revoked

    def _grant(self, grant_id: str) -> Grant:
        found = self._store.grant(grant_id)
        if found is None:
            raise InvalidApproval("there is no such grant; list them first")
        return found

    def _put_in_force(self, granted: Grant) -> Grant:
        """Let calls use it where enough people have agreed: first on record, then in force."""
        if not granted.is_agreed:
            return granted
        reasons = "\n".join(vote.reason for vote in granted.votes if vote.reason)
        self._record(_grant_event(granted, "granted", granted.approvers, reasons, self._store.now_ns()))
        live = granted.in_force()
        return live if self._store.replace_grant(granted, live) else self._grant(granted.id)

    def _decide(self, request_id: str, answer: Answer) -> ApprovalRequest:
        def answered(request: ApprovalRequest) -> tuple[ApprovalRequest, ...]:
            now_ns = self._store.now_ns()
            edited = None if answer.arguments is None else request.edited(answer, now_ns=now_ns)
            return edited or (request.voted(answer, now_ns=now_ns),)

        return self._change(request_id, answered)

    def _change(
        self, request_id: str, change: Callable[[ApprovalRequest], tuple[ApprovalRequest, ...]]
    ) -> ApprovalRequest:
        while True:  # each turn loses to another writer that got further, so this ends
            request = self.get(request_id)
            changed = change(request)
            if self._store.replace_request(request, *changed):
                return changed[-1]


def _grant_event(granted: Grant, code: str, by: tuple[str, ...], reason: str, now_ns: int) -> AuditEvent:
    """What became of a grant; its id stands where another event has the call's."""
    return AuditEvent(
        outcome=Outcome.NOTED,
        time_ns=now_ns,
        call_id=granted.id,
        tool=granted.tool,
        principal=granted.principal,
        on_behalf_of=granted.on_behalf_of,
        session_id=granted.session_id or "",
        code=code,
        fingerprint=granted.fingerprint,
        request_id=granted.request_id,
        grant_id=granted.id,
        approved_by=by,
        approval_reason=reason[:MAX_REASON] or None,
    )

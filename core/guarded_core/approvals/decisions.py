"""The one way to decide a request, from whatever process reaches the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
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


class Approvals:
    """The one place where requests are decided.

    Args:
        store: where they are kept; deciding works from any process that reaches it.
    """

    def __init__(self, store: RequestStore) -> None:
        self._store = store

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

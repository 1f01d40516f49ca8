"""The one way a call takes: judge (steps 1 to 8), ask and judge again, commit; then execution.py runs and settles it.

`enforce` is a plain generator: it decides and raises, and yields a step (steps.py) whenever the world has to do
something. Every entry, sync or async, direct or through a framework, runs this one flow.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import (
    AuditUnavailable,
    CallBudgetExhausted,
    GuardedToolsError,
    HumanApprovalRequired,
    InvalidApproval,
    NoSession,
    PolicyDenied,
    StoreUnavailable,
    ToolExecutionError,
    as_cause,
)
from guarded_core.ground.violation import PolicyViolation
from guarded_core.pipeline.call import Authority, Call
from guarded_core.pipeline.execution import Admission, entry_of, execute, type_name
from guarded_core.pipeline.judge import judge
from guarded_core.pipeline.record import CallRecord, Found, open_record
from guarded_core.pipeline.replay import GivenBack, given_back
from guarded_core.pipeline.steps import AddRequest, Ask, Commit, Decide, Deny, Flow, Record, Release
from guarded_core.pipeline.verdict import Refusal, Replay, Verdict, refused
from guarded_core.provenance.memory import Provenance
from guarded_core.session.hints import NO_SESSION_ID, used_up
from guarded_core.store.base import Change, Conflict, EffectClaim, TooManyRequests, is_recorded

_log = logging.getLogger(__name__)

_NOBODY_ASKED = (
    "A person has to approve this call, and nobody could be asked: the application's way to ask failed. "
    "It did not run; do not repeat it, and tell the user."
)
_NOT_ACCEPTED = (
    "A person has to approve this call, and the answer that came was not accepted: who gave it may not decide it, "
    "or it came too late. It did not run; tell the user."
)
_MAX_EDITS = 16  # an approver's code that always answers with the same, incomplete arguments must not go on for ever

_REPEATED = (
    "an error was given back again, and the tool not run: it may have had its effect. A retry helps tools that raise "
    "NotExecuted where they failed before any, and those with idempotent = true in the policy"
)

# Each conflict is another call's gain: an approval used, a claim taken. More of them than a session's calls that can
# wait for a person at once: the store contradicts itself.
_MAX_CONFLICTS = 64


def enforce(call: Call, authority: Authority) -> Flow[Any]:
    """Take one call from proposal to outcome; the value is the tool's result.

    Raises:
        ToolExecutionError: the call was refused or failed (see errors.py).
    """
    record, notes = open_record(call, authority), list(call.notes)
    call_id = record.call_id
    try:
        admitted = yield from _admit(record, notes)
        call_id = admitted.found.call_id
        if isinstance(admitted, Admission):
            return (yield from execute(admitted))
        if isinstance(admitted, Replay):
            replayed = given_back(admitted)
            if not isinstance(replayed, Refusal):
                return (yield from _replay(record, admitted, replayed))
            admitted = replayed
        yield from _deny(record, admitted, notes)
        raise admitted.error
    except ToolExecutionError as error:
        error.call_id = error.call_id or call_id
        raise


def refusal(call: Call, authority: Authority) -> Flow[ToolExecutionError]:
    """Take a call that reaches no tool through the same way; the value is why it was refused."""
    try:
        yield from enforce(call, authority)
    except ToolExecutionError as error:
        return error
    raise AssertionError("a call without a tool was not refused")


def propose(call: Call, authority: Authority) -> Flow[ApprovalRequest | None]:
    """Judge a call that is about to come, and keep the question that it will ask; nothing is spent, and nobody asked.

    The value is that question, while it waits for a person. Whatever refuses the call does so when it comes.
    """
    record = open_record(call, authority)
    found: Found | None = None
    for _ in range(_MAX_CONFLICTS):
        verdict = yield from judge(record, found)
        if not isinstance(verdict, Verdict) or verdict.ask is None:
            return None
        request = verdict.ask
        found = replace(verdict.found, requests=(request,))
        if verdict.is_new:
            try:
                answered_first = yield from _keep(record, found, request)
            except ToolExecutionError:
                return None
            if answered_first is not None:
                found = answered_first
                continue
        if request.state is RequestState.PENDING:
            return request
    return None


def _admit(record: CallRecord, notes: list[str]) -> Flow[Admission | Replay | Refusal]:
    """Steps 1 to 9: judge, ask, judge again, commit."""
    found: Found | None = None
    conflicts = 0
    while True:
        verdict = yield from judge(record, found)
        if not isinstance(verdict, Verdict):
            return verdict
        # What the events are about from here on: the question, or else the answers that are used up.
        requests = (verdict.ask,) if verdict.ask else verdict.granted
        found = replace(verdict.found, requests=requests) if requests else verdict.found
        try:
            if verdict.goes_on:
                notes.clear()  # noted before the framework entered it again
            yield from _note(record, found, notes)
            if verdict.ask is not None:
                found = yield from _ask(record, found, verdict, verdict.ask)
                continue
            admission = yield from _commit(record, found, verdict)
            conflicts += 1
            if admission is None and conflicts >= _MAX_CONFLICTS:
                _log.error("call %s: the store refuses it for ever, and does not show why", found.call_id)
                raise StoreUnavailable(record.tool)
        except ToolExecutionError as error:
            return Refusal(found=found, error=error)
        if admission is not None:
            return admission


def _warn_once(record: CallRecord, what: str) -> None:
    """Tell the application's log of what is to be told of a tool, the first time."""
    if record.authority.is_news(f"{record.tool}: {what}"):
        _log.warning("calls of %s: %s", record.tool, what)


def _replay(record: CallRecord, replay: Replay, given: GivenBack) -> Flow[Any]:
    """Hand out once more what the call gave back, and say so on the record of that very call."""
    if given.error is not None:
        _warn_once(record, _REPEATED)
    yield from _record(record.event(Outcome.NOTED, replay.found, code="replayed"))
    if given.error is not None:
        raise given.error
    return given.result


def _note(record: CallRecord, found: Found, notes: list[str]) -> Flow[None]:
    """Record what the entry noted, once."""
    while notes:
        code = notes.pop(0)
        yield from _record(record.event(Outcome.NOTED, found, code=code, requests=found.requests))


def _ask(record: CallRecord, found: Found, verdict: Verdict, request: ApprovalRequest) -> Flow[Found]:
    """Store the request, ask, and put the answer where the next judgement finds it; what that begins with."""
    tool, signals = record.tool, verdict.facts.port.signals
    if verdict.is_new:
        edited_first = yield from _keep(record, found, request)
        if edited_first is not None:
            return edited_first
        if request.state is not RequestState.PENDING:  # who changed it has said yes to all of this
            return found
    try:
        answer = yield from Ask(request)
        if answer is not None and not isinstance(answer, Answer):
            raise TypeError("an approver answers with an Answer")
    except signals:
        _warn_unnamed(record, verdict)
        raise
    except Exception as error:
        yield from _approver_failed(record, found, error)
        raise HumanApprovalRequired(tool, request, _NOBODY_ASKED) from None
    try:
        decided = yield from Decide(request.id, answer)
    except InvalidApproval as error:
        yield from _approver_failed(record, found, error)
        raise HumanApprovalRequired(tool, request, _NOT_ACCEPTED) from None
    except Exception as error:
        raise StoreUnavailable(tool) from as_cause(error)
    _stop_where_refused(record, found, decided)
    if decided.id != request.id:  # with other arguments: the call is judged with them from the start
        if found.edits == _MAX_EDITS:
            raise HumanApprovalRequired(tool, decided)
        return replace(found, edit=decided, effective=None, edits=found.edits + 1)
    # Where more people are needed, the next judgement finds the request with this answer, and asks the next of them.
    if answer is None and decided.state is RequestState.PENDING:
        waits = HumanApprovalRequired(tool, decided)
        raise waits.hinted(NO_SESSION_ID) if _warn_unnamed(record, verdict) else waits
    return found


def _warn_unnamed(record: CallRecord, verdict: Verdict) -> bool:
    """Whether the call waits in a session without a name, which no other request can pick up; the first time, warn."""
    is_unnamed = not verdict.facts.context.is_named
    if is_unnamed and record.authority.is_news(NO_SESSION_ID):
        _log.warning("%s", NO_SESSION_ID)
    return is_unnamed


def _stop_where_refused(record: CallRecord, found: Found, decided: ApprovalRequest) -> None:
    """Raise what a no, a response or a revocation makes of the call; the Denied event names that request."""
    if decided.is_refused:
        found.requests = (decided,)
        raise refused(record.tool, decided)


def _approver_failed(record: CallRecord, found: Found, error: Exception) -> Flow[None]:
    """Tell the application, loudly: its log and its trail. A foreign exception may quote the payload: its type does."""
    said = f": {error}" if isinstance(error, GuardedToolsError) else ""
    _log.error("call %s: the approver failed: %s%s", found.call_id, type_name(error), said)
    event = record.event(
        Outcome.NOTED, found, code="approver_failed", error_type=type_name(error), requests=found.requests
    )
    yield from _record(event)


def _keep(record: CallRecord, found: Found, request: ApprovalRequest) -> Flow[Found | None]:
    """Store a new request, in the place of the edit that it completes; what to judge where that was answered first."""
    edit = found.edit
    ended = edit if edit and edit.state in (RequestState.PENDING, RequestState.APPROVED) else None
    try:
        is_kept = yield from AddRequest(request, record.authority.max_pending, ended)
        answered = (yield from Decide(ended.id, None)) if ended is not None and not is_kept else None
    except TooManyRequests:
        raise HumanApprovalRequired(
            record.tool, message="Too many calls of this session wait for a person already. It did not run."
        ) from None
    except Exception as error:
        raise StoreUnavailable(record.tool) from as_cause(error)
    if answered is not None:
        _stop_where_refused(record, found, answered)
        return replace(found, edit=answered, effective=None)
    if request.state is RequestState.PENDING:
        yield from _record(record.event(Outcome.ASKED, found, rules=request.reasons, requests=found.requests))
    return None


def _commit(record: CallRecord, found: Found, verdict: Verdict) -> Flow[Admission | None]:
    """Step 9: take all of it, or nothing; None where somebody was first, and it is to be judged again."""
    if record.call.keyless is not None and verdict.facts.risk.needs_approval and not verdict.facts.may_run_again:
        _warn_once(record, record.call.keyless)
    change, origins = _change(record, found, verdict), verdict.facts.context.origins
    try:
        with origins.committing(found.call_id):
            yield from Commit(change)
    except Conflict as conflict:
        if conflict.what == "counter":
            raise _used_up(record, verdict, conflict.name) from None
        if conflict.what in ("slot", "flag"):
            found.refusing = (conflict.name,)
            violation = PolicyViolation(conflict.name, found.call_id, "another call was first")
            raise PolicyDenied(record.tool, [violation]) from None
        return None
    except Exception as error:
        raise StoreUnavailable(record.tool) from as_cause(error)
    facts = verdict.facts
    facts.context.spends(change.counters)
    yield from _record_authorized(change, origins)
    if verdict.granted:
        # What a person approved is as good as what the user said, there, and for the rest of the task.
        origins.approved(record.tool, facts.effective.value)
    return Admission(
        record=record,
        found=found,
        facts=facts,
        granted=verdict.granted,
        grant=verdict.grant.grant if verdict.grant else None,
        holds_claim=change.claim is not None,
    )


def _used_up(record: CallRecord, verdict: Verdict, key: str) -> CallBudgetExhausted:
    context, limit, error = verdict.facts.context, verdict.facts.settings.max_calls, CallBudgetExhausted(record.tool)
    for counter in context.counters(record.tool, limit):
        if counter.key == key:
            error.hinted(used_up(context, record.tool, counter))
    return error


def _change(record: CallRecord, found: Found, verdict: Verdict) -> Change:
    """All that the call takes, in one piece."""
    facts = verdict.facts
    # What may run again would only be dearer with the ledger; but an approval is for one run, and a call that is in the
    # ledger, since it was paused, stays there.
    is_kept = not facts.may_run_again or verdict.granted or verdict.grant or facts.snapshot.entry or facts.effect_key
    claim = entry_of(record, found, facts) if is_kept else None
    if verdict.resumes is not None:
        # It was authorised, and has spent, before it was paused: it takes over its own claim, once, and nothing else.
        return Change(
            event=record.event(Outcome.RESUMED, found),
            root_id=facts.context.root.session_id,
            claim=claim,
            supersedes=verdict.resumes.call_id,
        )
    # What the Authorized event says beside the call: its rules are those that would have denied it.
    code = "edited" if found.is_edited else "would_deny" if found.would else None
    return Change(
        event=record.event(
            Outcome.AUTHORIZED,
            found,
            code=code,
            rules=found.would,
            requests=verdict.granted,
            grant=verdict.grant.grant if verdict.grant else None,
        ),
        root_id=facts.context.root.session_id,
        counters=facts.context.counters(record.tool, facts.settings.max_calls),
        reservation=verdict.reservation,
        requests=verdict.granted,
        grant=verdict.grant,
        claim=claim,
        supersedes=facts.snapshot.entry.call_id if facts.snapshot.entry else None,
        effect=EffectClaim(key=facts.effect_key, supersedes=facts.effect_held_by) if facts.effect_key else None,
    )


def _record_authorized(change: Change, origins: Provenance) -> Flow[None]:
    event = change.event
    try:
        yield from Record(event, stored=True)
    except Exception as error:
        try:
            yield from Release(change)
            origins.released(event.call_id)
        except Exception as failure:
            # What was taken stays taken: too little is left, never too much.
            _log.error("call %s: what it took was not given back: %s", event.call_id, type_name(failure))
        raise AuditUnavailable(event.tool) from as_cause(error)


def _record(event: AuditEvent) -> Flow[None]:
    try:
        yield from Record(event)
    except Exception as error:
        raise AuditUnavailable(event.tool) from as_cause(error)


def _deny(record: CallRecord, refusal: Refusal, notes: list[str]) -> Flow[None]:
    """Write the one Denied event; where it cannot be written, that is the denial."""
    error, found, context = refusal.error, refusal.found, record.call.context
    if error.request_id is None and found.requests:
        error.request_id = found.requests[-1].id
    if isinstance(error, AuditUnavailable | StoreUnavailable):
        return  # there is nowhere to write it
    event = record.event(Outcome.DENIED, found, code=error.code, rules=found.refusing, requests=found.requests)
    # Of a session that is over there is no end of denials: they are counted, and each call is not remembered.
    is_over = isinstance(error, NoSession)
    try:
        call_key = None if is_over else record.ledger_key(found)
        count = yield from Deny(event, context.root.session_id if context else "", call_key)
        if not count:
            return  # the framework entered a denied call again
        if found.risk is not None and not is_over and not found.requests:
            yield from _note(record, found, notes)
        if is_recorded(count):
            yield from Record(event.repeated(count), stored=True)
    except Exception as failure:
        raise AuditUnavailable(record.tool) from as_cause(failure)

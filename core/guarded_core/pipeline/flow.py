"""The one way a call takes: judge (steps 1 to 8), ask and judge again, commit, execute, check the output, settle.

`enforce` is a plain generator: it decides and raises, and yields a step (steps.py) whenever the world has to do
something. Every entry, sync or async, direct or through a framework, runs this one flow.
"""

from __future__ import annotations

import logging
from typing import Any

from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import (
    AuditUnavailable,
    CallBudgetExhausted,
    ExecutionFailed,
    HumanApprovalRequired,
    InvalidApproval,
    NoSession,
    OutcomeUnaudited,
    OutcomeUnknown,
    OutputTooLarge,
    PolicyDenied,
    StoreUnavailable,
    ToolExecutionError,
)
from guarded_core.ground.payload import PayloadTooLarge, measure
from guarded_core.ground.struct import struct
from guarded_core.ground.violation import PolicyViolation
from guarded_core.pipeline.call import Authority, Call, Dossier, open_dossier
from guarded_core.pipeline.judge import Facts, Replay, Verdict, judge
from guarded_core.pipeline.steps import AddRequest, Ask, Commit, Decide, Deny, Execute, Flow, Record, Release, Settle
from guarded_core.store.base import Change, Conflict, Settlement, TooManyRequests, is_recorded
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.tools.port import ToolPort
from guarded_core.tools.spec import ToolRisk

_log = logging.getLogger("guarded_core")

_MAX_EDITS = 16  # an approver's code that always answers with the same, incomplete arguments must not go on for ever


def enforce(call: Call, authority: Authority) -> Flow[Any]:
    """Take one call from proposal to outcome; the value is the tool's result.

    Raises:
        ToolExecutionError: the call was refused or failed (see errors.py).
    """
    dossier = open_dossier(call, authority)
    try:
        try:
            admitted = yield from _admit(dossier)
            if isinstance(admitted, Replay):
                return _replayed(admitted)
        except ToolExecutionError as error:
            error.call_id = dossier.call_id
            if error.request_id is None and dossier.requests:
                error.request_id = dossier.requests[-1].id
            yield from _record_denial(dossier, error)
            raise
        return (yield from _execute(dossier, admitted))
    except ToolExecutionError as error:
        error.call_id = error.call_id or dossier.call_id
        raise


def _admit(dossier: Dossier) -> Flow[Facts | Replay]:
    """Steps 1 to 9: judge, ask, judge again, commit. A call that ran before is replayed."""
    while True:
        verdict = yield from judge(dossier)
        if isinstance(verdict, Replay):
            return verdict
        if verdict.goes_on:
            dossier.notes.clear()  # noted before the framework entered it again
        if dossier.notes:
            yield from _note(dossier)
        if verdict.ask is not None:
            yield from _ask(dossier, verdict.facts.port, verdict.ask, is_new=verdict.is_new)
            continue
        change = _change(dossier, verdict)
        try:
            yield from Commit(change)
        except Conflict as conflict:
            _refuse_conflict(dossier, conflict)
            continue
        except Exception as error:
            raise StoreUnavailable(dossier.tool) from error
        yield from _record_authorized(dossier, change)
        if verdict.granted:
            # What a person approved is as good as what the user said, for the rest of the task.
            verdict.facts.context.origins.approved(verdict.facts.effective.value)
        return verdict.facts


def _replayed(replay: Replay) -> Any:
    """What the call gave back when it ran."""
    try:
        return replay.port.decode(replay.entry.output)
    except ToolExecutionError:
        raise
    except Exception:
        text = "This call ran before, and its result cannot be read any more. It is not run again."
        raise OutcomeUnknown(replay.entry.tool, text) from None


def _note(dossier: Dossier) -> Flow[None]:
    """Record what the entry noted, once."""
    while dossier.notes:
        code, *dossier.notes = dossier.notes
        yield from _record(dossier, dossier.event(Outcome.NOTED, code=code))


def _record_authorized(dossier: Dossier, change: Change) -> Flow[None]:
    try:
        yield from Record(change.event, stored=True)
    except Exception as error:
        try:
            yield from Release(change)
        except Exception as failure:
            # What was taken stays taken: too little is left, never too much.
            _log.error("call %s: what it took was not given back: %s", dossier.call_id, _type_name(failure))
        raise AuditUnavailable(dossier.tool) from error


def _ask(dossier: Dossier, port: ToolPort, request: ApprovalRequest, *, is_new: bool) -> Flow[None]:
    """Store the request, ask, and put the answer where the next judgement finds it."""
    tool = dossier.tool
    dossier.requests = (request,)
    if is_new and not (yield from _keep(dossier, request)):
        return
    try:
        answer = yield from Ask(request)
    except port.signals:
        raise
    except Exception as error:
        raise HumanApprovalRequired(tool, request) from error
    try:
        decided = yield from Decide(request.id, answer)
    except InvalidApproval as error:
        _log.warning("an approver's answer was not accepted: %s", error)
        raise HumanApprovalRequired(tool, request) from error
    except Exception as error:
        raise StoreUnavailable(tool) from error
    if decided.id != request.id:  # with other arguments: the call is judged with them from the start
        dossier.edits += 1
        if dossier.edits > _MAX_EDITS:
            raise HumanApprovalRequired(tool, decided)
        dossier.edit, dossier.effective = decided, None
    # Where more people are needed, the next judgement finds the request with this answer, and asks the next of them.
    elif answer is None and decided.state is RequestState.PENDING:
        raise HumanApprovalRequired(tool, decided)


def _keep(dossier: Dossier, request: ApprovalRequest) -> Flow[bool]:
    """Store a new request, in the place of the edit that it completes; False where somebody has answered that first."""
    edit = dossier.edit
    ended = edit if edit and edit.state in (RequestState.PENDING, RequestState.APPROVED) else None
    try:
        is_kept = yield from AddRequest(request, dossier.authority.max_pending, ended)
        if ended is not None and not is_kept:
            dossier.edit, dossier.effective = (yield from Decide(ended.id, None)), None
            return False
    except TooManyRequests:
        raise HumanApprovalRequired(
            dossier.tool, message="Too many calls of this session wait for a person already. It did not run."
        ) from None
    except Exception as error:
        raise StoreUnavailable(dossier.tool) from error
    dossier.rules = request.reasons
    yield from _record(dossier, dossier.event(Outcome.ASKED))
    dossier.rules = ()
    return True


def _change(dossier: Dossier, verdict: Verdict) -> Change:
    """Step 9: all that the call takes, in one piece."""
    facts, keys = verdict.facts, dossier.call_keys()
    claim = None
    # A read-only call may run again, and the ledger would only cost it; but an approval is for one run, and a call
    # that is in the ledger, since it was paused, stays there.
    if keys is not None and (
        facts.risk is not ToolRisk.READ_ONLY or verdict.granted or facts.snapshot.entry is not None
    ):
        dossier.holds_claim = True
        claim = _entry(dossier, facts, keys)
    dossier.requests = verdict.granted
    if verdict.resumes is not None:
        # It was authorised, and has spent, before it was paused: it takes over its own claim, once, and nothing else.
        return Change(
            event=dossier.event(Outcome.RESUMED),
            root_id=facts.context.root.session_id,
            claim=claim,
            supersedes=verdict.resumes.call_id,
        )
    dossier.rules = dossier.would
    event = dossier.event(Outcome.AUTHORIZED, code=_remarkable(dossier))
    dossier.rules = ()
    return Change(
        event=event,
        root_id=facts.context.root.session_id,
        counters=facts.context.counters(dossier.tool, facts.settings.max_calls),
        reservation=verdict.reservation,
        requests=verdict.granted,
        claim=claim,
        supersedes=facts.snapshot.entry.call_id if facts.snapshot.entry else None,
    )


def _entry(dossier: Dossier, facts: Facts, keys: tuple[str, str]) -> LedgerEntry:
    return LedgerEntry(
        call_id=dossier.call_id,
        key=keys[0],
        twin_key=keys[1],
        tool=dossier.tool,
        principal=facts.context.principal,
        chain=facts.context.chain,
        session_id=facts.context.session_id,
        digest=facts.effective.digest,
        arguments=facts.effective.copy(),
        is_edited=dossier.is_edited,
    )


def _remarkable(dossier: Dossier) -> str | None:
    """What the Authorized event says beside the call: its rules are those that would have denied it."""
    return "edited" if dossier.is_edited else "would_deny" if dossier.would else None


def _refuse_conflict(dossier: Dossier, conflict: Conflict) -> None:
    """Somebody else was first: refuse what cannot come back, judge the rest again."""
    if conflict.what == "counter":
        raise CallBudgetExhausted(dossier.tool) from None
    if conflict.what in ("slot", "flag"):
        dossier.rules = (conflict.name,)
        violation = PolicyViolation(conflict.name, dossier.call_id, "another call was first")
        raise PolicyDenied(dossier.tool, [violation]) from None


class _Unusable(Exception):
    """The tool ran, and nothing can be done with what it returned; `failure` is what the caller gets."""

    def __init__(self, failure: ToolExecutionError, error: Exception) -> None:
        super().__init__()
        self.failure = failure
        self.error_type = _type_name(error)


def _execute(dossier: Dossier, facts: Facts) -> Flow[Any]:
    """Steps 10 to 12: run it once, check what comes back, settle it with exactly one terminal event."""
    port, limit = facts.port, facts.policy.output_bytes
    step = Execute(port, dossier.call.bound, facts.effective.copy())
    try:
        result = yield from step
        taken = _take_in(dossier, facts, result)
    except port.signals:
        yield from _pause(dossier, facts)
        raise
    except _Unusable as unusable:
        failure = unusable.failure
        error_type = None if isinstance(failure, OutputTooLarge) else unusable.error_type
        yield from _settle(dossier, CallState.FAILED, Outcome.FAILED, code=failure.code, error_type=error_type)
        raise failure from None
    except Exception as error:
        raised = _as_failure(dossier, port, error, limit)
        _remember(dossier, facts, str(raised), failed=True)
        code = raised.code if isinstance(raised, OutputTooLarge) else ExecutionFailed.code
        yield from _settle(dossier, CallState.FAILED, Outcome.FAILED, code=code, error_type=_type_name(error))
        if raised is error:
            raise
        raise raised from None
    except GeneratorExit:
        raise  # the driver itself is gone: nothing can be settled, the trail shows Authorized without an end
    except BaseException:
        # Cancelled or interrupted: in the middle, nobody knows how far it came.
        if step.started:
            yield from _settle(dossier, CallState.UNKNOWN, Outcome.UNKNOWN, code="cancelled", quietly=True)
        else:
            yield from _settle(dossier, CallState.FAILED, Outcome.FAILED, code="cancelled", quietly=True)
        raise
    _remember(dossier, facts, result, failed=taken.is_failure)
    if taken.is_failure:
        yield from _settle(dossier, CallState.FAILED, Outcome.FAILED, code=ExecutionFailed.code)
    else:
        yield from _settle(dossier, CallState.DONE, Outcome.SUCCEEDED, output=taken.output)
    return taken.handed_back


@struct
class _Taken:
    """A result within its bounds: what the caller gets, what the ledger keeps of it, and whether it is a failure."""

    handed_back: Any
    output: Any
    is_failure: bool


def _take_in(dossier: Dossier, facts: Facts, result: Any) -> _Taken:
    """Check a result and make of it what is handed back. Raises _Unusable."""
    port = facts.port
    try:
        port.check_output(result, facts.policy.output_bytes)
        is_failure = port.reports_failure(result)
        handed_back = port.handed_back(dossier.call.bound, result, facts.effective.value, is_edited=dossier.is_edited)
        output = port.encode(handed_back) if dossier.holds_claim and not is_failure else None
    except PayloadTooLarge as error:
        raise _Unusable(OutputTooLarge(dossier.tool, actual=error.actual, limit=error.limit), error) from None
    except Exception as error:
        # Its text is the tool's, or quotes the tool's: nobody has bounded it.
        raise _Unusable(ExecutionFailed(dossier.tool), error) from None
    return _Taken(handed_back=handed_back, output=output, is_failure=is_failure)


def _remember(dossier: Dossier, facts: Facts, result: Any, *, failed: bool) -> None:
    """Keep where the result's values came from, for rules that ask; of a failure, no part is trusted."""
    origins = facts.context.origins
    if not facts.rules.traces:
        origins.missed()
        return
    try:
        labels, arguments = facts.policy.labels("" if failed else dossier.tool), facts.effective.value
        for view in (result,) if isinstance(result, str) else facts.port.seen(result):
            origins.observe(dossier.tool, view, labels, arguments=arguments, call_id=dossier.call_id)
    except Exception as error:  # its values are unknown; the call is done all the same, and has to be settled
        origins.missed()
        _log.error("the result of call %s is not traced: %s", dossier.call_id, _type_name(error))


def _pause(dossier: Dossier, facts: Facts) -> Flow[None]:
    """The framework paused the tool in the middle: it is entered again where the ledger can tell it is the same."""
    keys = dossier.call_keys()
    claim = _entry(dossier, facts, keys) if keys and not dossier.holds_claim else None  # a read-only call has none yet
    if claim or dossier.holds_claim:
        try:
            yield from _settle(dossier, CallState.SUSPENDED, Outcome.SUSPENDED, claim=claim)
            return
        except Conflict:
            pass  # the same call runs a second time beside this one, and was paused first
    yield from _settle(dossier, CallState.UNKNOWN, Outcome.UNKNOWN, code="suspended")


def _as_failure(dossier: Dossier, port: ToolPort, error: Exception, limit: int) -> Exception:
    """What the caller gets for what the tool raised: its text is output too, untrusted and bounded."""
    if port.wraps_errors:
        return ExecutionFailed(dossier.tool)
    try:
        measure(str(error), limit)
    except PayloadTooLarge as over:
        return OutputTooLarge(dossier.tool, actual=over.actual, limit=over.limit)
    except Exception:
        return ExecutionFailed(dossier.tool)
    return error


def _settle(
    dossier: Dossier,
    state: CallState,
    outcome: Outcome,
    *,
    code: str | None = None,
    error_type: str | None = None,
    output: Any = None,
    claim: LedgerEntry | None = None,
    quietly: bool = False,
) -> Flow[None]:
    event = dossier.event(outcome, code=code, error_type=error_type)
    claimed = dossier.holds_claim
    try:
        settlement = Settlement(
            event=event, claimed=claimed, state=state, claim=claim, output=output, keep_ns=_KEEP_OUTPUT_NS
        )
        yield from Settle(settlement)
        yield from Record(event, stored=True)
    except Conflict:
        raise
    except Exception as error:
        _log.error("the outcome of call %s could not be recorded: %s", dossier.call_id, _type_name(error))
        if quietly:  # a cancellation is on its way, and must not be swallowed
            return
        raise OutcomeUnaudited(dossier.tool, outcome=outcome.value, reason=_type_name(error)) from error


_KEEP_OUTPUT_NS = 24 * 3600 * 1_000_000_000


def _record(dossier: Dossier, event: AuditEvent) -> Flow[None]:
    try:
        yield from Record(event)
    except Exception as error:
        raise AuditUnavailable(dossier.tool) from error


def _record_denial(dossier: Dossier, error: ToolExecutionError) -> Flow[None]:
    """Write the one Denied event; where it cannot be written, that is the denial."""
    if isinstance(error, AuditUnavailable | StoreUnavailable):
        return  # there is nowhere to write it
    context, keys = dossier.call.context, dossier.call_keys()
    event = dossier.event(Outcome.DENIED, code=error.code)
    # Of a session that is over there is no end of denials: they are counted, and each call is not remembered.
    is_over = isinstance(error, NoSession)
    try:
        root_id, call_key = context.root.session_id if context else "", keys[0] if keys and not is_over else None
        count = yield from Deny(event, root_id, call_key)
        if not count:
            return  # the framework entered a denied call again
        if dossier.risk is not None and not is_over and not dossier.requests:
            yield from _note(dossier)
        if is_recorded(count):
            yield from Record(event.repeated(count), stored=True)
    except Exception as failure:
        raise AuditUnavailable(dossier.tool) from failure


def _type_name(error: BaseException) -> str:
    return type(error).__name__[:64]

"""Steps 10 to 12 of a call's way: run it once, check what comes back, settle it with exactly one terminal event."""

from __future__ import annotations

import logging
from typing import Any

from guarded_core.approvals.grant import Grant
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import (
    ExecutionFailed,
    NotExecuted,
    OutcomeUnaudited,
    OutputTooLarge,
    ToolExecutionError,
    as_cause,
)
from guarded_core.ground.payload import PayloadTooLarge, measure
from guarded_core.ground.struct import struct
from guarded_core.pipeline.record import CallRecord, Found
from guarded_core.pipeline.replay import kept_error
from guarded_core.pipeline.steps import Execute, Flow, Record, Settle
from guarded_core.pipeline.verdict import Facts
from guarded_core.provenance.journal import Row
from guarded_core.store.base import Conflict, Settlement
from guarded_core.store.ledger import CallState, LedgerEntry, digest_of
from guarded_core.tools.port import NotEntered, ToolPort

_log = logging.getLogger(__name__)

_KEEP_OUTPUT_NS = 24 * 3600 * 1_000_000_000


@struct
class Admission:
    """A call that has been committed, and runs next.

    Attributes:
        record, found: what its events say.
        facts: what it was judged by.
        granted: the requests that it used up; its events name who approved them.
        grant: the grant that it used.
        holds_claim: whether the ledger has it.
    """

    record: CallRecord
    found: Found
    facts: Facts
    granted: tuple[ApprovalRequest, ...]
    grant: Grant | None
    holds_claim: bool

    def event(self, outcome: Outcome, *, code: str | None = None, error_type: str | None = None) -> AuditEvent:
        """The event of what became of it."""
        return self.record.event(
            outcome, self.found, code=code, error_type=error_type, requests=self.granted, grant=self.grant
        )

    def entry(self) -> LedgerEntry | None:
        """What the ledger is to have of it; None where the call has no key."""
        return entry_of(self.record, self.found, self.facts)


def entry_of(record: CallRecord, found: Found, facts: Facts) -> LedgerEntry | None:
    """What the ledger is to have of a call; None where the call has no key."""
    key = record.ledger_key(found)
    if key is None and facts.effect_key is not None:
        key = f"call {found.call_id}"  # it is known by its effect alone, and never entered again
    if key is None:
        return None
    effect, now_ns = facts.settings.effect, facts.snapshot.now_ns
    return LedgerEntry(
        call_id=found.call_id,
        key=key,
        tool=record.tool,
        principal=facts.context.principal,
        chain=facts.context.chain,
        session_id=facts.context.session_id,
        digest=facts.effective.digest,
        arguments=_kept(facts),
        is_edited=found.is_edited,
        effect_until_ns=0 if effect is None else effect.until_ns(now_ns),
    )


def _kept(facts: Facts) -> dict[str, Any]:
    """The effective arguments, but for what the application has set: a store is not the place for its secrets."""
    hidden = facts.port.set_by_application.difference(facts.settings.binds)
    return {name: value for name, value in facts.effective.copy().items() if name not in hidden}


class _Unusable(Exception):
    """The tool ran, and nothing can be done with what it returned; `failure` is what the caller gets."""

    def __init__(self, failure: ToolExecutionError, error: Exception) -> None:
        super().__init__()
        self.failure = failure
        self.error_type = type_name(error)


def execute(admission: Admission) -> Flow[Any]:
    """Run an admitted call; the value is the tool's result.

    Raises:
        ToolExecutionError: it failed, or its outcome could not be recorded.
    """
    facts, port = admission.facts, admission.facts.port
    key = admission.record.ledger_key(admission.found)
    # What is handed to foreign services is no key of the ledger's own.
    handed = admission.found.call_id if key is None else digest_of("idempotency", key)
    step = Execute(port, admission.record.call.bound, facts.effective.copy(), facts.policy.output_bytes, handed)
    try:
        result = yield from step
        taken = _take_in(admission, result)
    except port.signals:
        yield from _pause(admission)
        raise
    except _Unusable as unusable:
        failure = unusable.failure
        error_type = None if isinstance(failure, OutputTooLarge) else unusable.error_type
        yield from _fail(admission, CallState.UNUSABLE, failure, code=failure.code, error_type=error_type)
        raise failure from None
    except Exception as caught:
        error = caught.error if isinstance(caught, NotEntered) else caught
        state = CallState.NOT_EXECUTED if _had_no_effect(admission, caught) else CallState.RAISED
        raised = _as_failure(admission.record.tool, port, error, facts.policy.output_bytes)
        _remember(admission, str(raised), failed=True)
        code = raised.code if isinstance(raised, OutputTooLarge) else ExecutionFailed.code
        if state is CallState.NOT_EXECUTED:
            code = NotExecuted.code
        yield from _fail(admission, state, raised, code=code, error_type=type_name(error))
        if raised is caught:
            raise
        raise raised from None
    except GeneratorExit:
        raise  # the driver itself is gone: nothing can be settled, the trail shows Authorized without an end
    except BaseException:
        # Cancelled or interrupted: in the middle, nobody knows how far it came.
        if step.started:
            yield from _settle(admission, CallState.UNKNOWN, Outcome.UNKNOWN, code="cancelled", quietly=True)
        else:
            yield from _settle(admission, CallState.NOT_EXECUTED, Outcome.FAILED, code="cancelled", quietly=True)
        raise
    _remember(admission, result, failed=taken.is_failure)
    if taken.is_failure:  # its own words, which a replay repeats
        state = CallState.NOT_EXECUTED if facts.may_run_again else CallState.DONE
        yield from _settle(admission, state, Outcome.FAILED, code=ExecutionFailed.code, output=taken.output)
    else:
        yield from _settle(admission, CallState.DONE, Outcome.SUCCEEDED, output=taken.output)
    return taken.handed_back


def _had_no_effect(admission: Admission, error: Exception) -> bool:
    """Whether the tool's code was not entered, or says itself that it had no effect."""
    if not isinstance(error, NotExecuted):
        return isinstance(error, NotEntered)
    # Of a call inside this one it says nothing about what this one did before.
    is_its_own = error.call_id is None
    error.call_id = error.call_id or admission.found.call_id
    return is_its_own


def _fail(admission: Admission, state: CallState, error: Exception, *, code: str, error_type: str | None) -> Flow[None]:
    """Settle a call that failed; what may run twice is as good as not executed."""
    state = CallState.NOT_EXECUTED if admission.facts.may_run_again else state
    output = None if state is CallState.NOT_EXECUTED or not admission.holds_claim else kept_error(error)
    yield from _settle(admission, state, Outcome.FAILED, code=code, error_type=error_type, output=output)


@struct
class _Taken:
    """A result within its bounds: what the caller gets, what the ledger keeps of it, and whether it is a failure."""

    handed_back: Any
    output: Any
    is_failure: bool


def _take_in(admission: Admission, result: Any) -> _Taken:
    """Check a result and make of it what is handed back. Raises _Unusable."""
    record, facts, port = admission.record, admission.facts, admission.facts.port
    try:
        port.check_output(result, facts.policy.output_bytes)
        is_failure = port.reports_failure(result)
        is_edited = admission.found.is_edited
        handed_back = port.handed_back(record.call.bound, result, facts.effective.value, is_edited=is_edited)
        output = port.encode(handed_back) if admission.holds_claim else None
    except PayloadTooLarge as error:
        raise _Unusable(OutputTooLarge(record.tool, actual=error.actual, limit=error.limit), error) from None
    except ToolExecutionError as error:
        raise _Unusable(error, error) from None
    except Exception as error:
        # Its text is the tool's, or quotes the tool's: nobody has bounded it.
        raise _Unusable(ExecutionFailed(record.tool), error) from None
    return _Taken(handed_back=handed_back, output=output, is_failure=is_failure)


def _remember(admission: Admission, result: Any, *, failed: bool) -> None:
    """Keep where the result's values came from, for rules that ask; of a failure, no part is trusted."""
    facts, tool, call_id = admission.facts, admission.record.tool, admission.found.call_id
    origins = facts.context.origins
    if not facts.rules.traces:
        origins.missed()
        return
    try:
        labels, arguments = facts.policy.labels("" if failed else tool), facts.effective.value
        for view in (result,) if isinstance(result, str) else facts.port.seen(result):
            origins.observe(tool, view, labels, arguments=arguments, call_id=call_id, failed=failed)
    except Exception as error:  # its values are unknown; the call is done all the same, and has to be settled
        origins.missed()
        _log.error("the result of call %s is not traced: %s", call_id, type_name(error))


def _pause(admission: Admission) -> Flow[None]:
    """The framework paused the tool in the middle: it is entered again where the ledger can tell it is the same."""
    claim = None if admission.holds_claim else admission.entry()  # a read-only call has none yet
    if (claim or admission.holds_claim) and admission.record.ledger_key(admission.found) is not None:
        try:
            yield from _settle(admission, CallState.SUSPENDED, Outcome.SUSPENDED, claim=claim)
            return
        except Conflict:
            pass  # the same call runs a second time beside this one, and was paused first
    yield from _settle(admission, CallState.UNKNOWN, Outcome.UNKNOWN, code="suspended")


def _as_failure(tool: str, port: ToolPort, error: Exception, limit: int) -> Exception:
    """What the caller gets for what the tool raised: its text is output too, untrusted and bounded."""
    if port.wraps_errors:
        return ExecutionFailed(tool)
    try:
        measure(str(error), limit)
    except PayloadTooLarge as over:
        return OutputTooLarge(tool, actual=over.actual, limit=over.limit)
    except Exception:
        return ExecutionFailed(tool)
    return error


def _settle(
    admission: Admission,
    state: CallState,
    outcome: Outcome,
    *,
    code: str | None = None,
    error_type: str | None = None,
    output: Any = None,
    claim: LedgerEntry | None = None,
    quietly: bool = False,
) -> Flow[None]:
    event = admission.event(outcome, code=code, error_type=error_type)
    rows = _rows(admission, is_paused=state is CallState.SUSPENDED)
    settlement = Settlement(
        event=event,
        claimed=admission.holds_claim,
        state=state,
        claim=claim,
        output=output,
        keep_ns=_KEEP_OUTPUT_NS,
        memory=rows,
    )
    try:
        yield from Settle(settlement)
        if rows:
            admission.facts.context.origins.kept(rows)
        yield from Record(event, stored=True)
    except Conflict:
        raise
    except Exception as error:
        _log.error("the outcome of call %s could not be recorded: %s", event.call_id, type_name(error))
        if quietly:  # a cancellation is on its way, and must not be swallowed
            return
        raise OutcomeUnaudited(event.tool, outcome=outcome.value, reason=type_name(error)) from as_cause(error)


def _rows(admission: Admission, *, is_paused: bool) -> tuple[Row, ...]:
    """What the store is to keep of where values came from: that this call is over, and what was taken in meanwhile."""
    facts = admission.facts
    if not facts.rules.traces:
        return ()  # nothing asks here; where something does, the call is one that is not known
    try:
        return facts.context.origins.rows(admission.found.call_id, is_paused=is_paused)
    except Exception as error:  # the call is done all the same; elsewhere it is not known
        _log.error("what call %s returned is not kept: %s", admission.found.call_id, type_name(error))
        return ()


def type_name(error: BaseException) -> str:
    """The type of an error, as records carry it: its text may quote anything."""
    return type(error).__name__[:64]

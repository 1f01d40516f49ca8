"""Steps 1 to 8 of a call's way: whether it may run, by one policy and one snapshot of the store.

Judging spends, asks and records nothing; `flow.enforce` does, around it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from guarded_core.approvals.request import (
    EDITED,
)
from guarded_core.ground.errors import (
    CallBudgetExhausted,
    CannotRun,
    EditRefused,
    EffectDone,
    EffectRunning,
    EffectUnknown,
    GuardConfigurationError,
    InputTooLarge,
    InvalidPayload,
    NoSession,
    OutcomeUnknown,
    PolicyDenied,
    StoreUnavailable,
    ToolChanged,
    ToolExecutionError,
    Unauthorized,
    as_cause,
)
from guarded_core.ground.payload import Payload, freeze
from guarded_core.pipeline.approval import approval, doubts
from guarded_core.pipeline.arguments import as_shown, bound, effective, to_judge
from guarded_core.pipeline.call import Call
from guarded_core.pipeline.record import CallRecord, Found
from guarded_core.pipeline.steps import Consult, Flow, Load
from guarded_core.pipeline.verdict import Facts, Refusal, Replay, Verdict, refused
from guarded_core.policy.effect import EffectKey
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Action, Case, Reservation
from guarded_core.rules.ruleset import SILENT, Judgement, RuleSet
from guarded_core.session import Nobody, ToolExecutionContext
from guarded_core.session.hints import NOT_KNOWN, NOT_STORED, OVER, not_allowed, used_up
from guarded_core.store.base import Query, Snapshot
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.tools.port import ToolPort
from guarded_core.tools.spec import ToolRisk

_log = logging.getLogger(__name__)

_MAX_READS = 3

_LOST = (
    "This call came with a saved run that does not tell it from others, so it may have run before. It did not run now; "
    "tell the user, and do not repeat it before somebody has looked."
)


def judge(record: CallRecord, before: Found | None = None) -> Flow[Verdict | Replay | Refusal]:
    """Steps 1 to 8, by one policy and one snapshot of the store; a call that ran before is replayed.

    Args:
        record: the call.
        before: what an earlier judgement of it found: what a person was shown, or changed, stays as it is.
    """
    found = before or Found(call_id=record.call_id)
    try:
        return (yield from _judge(record, found))
    except ToolExecutionError as error:
        return Refusal(found=found, error=error)


def _judge(record: CallRecord, found: Found) -> Flow[Verdict | Replay]:
    call, authority, tool = record.call, record.authority, record.tool
    context = call.context
    policy = found.policy = authority.policy()
    if context is None or not context.is_open:
        raise _nobody(tool, call)
    port, was_bound = call.port, context.is_bound
    if port is None:
        raise authority.unknown(tool)
    found.spec = port.spec
    settings, risk = _authorise(record, found, policy, port, context)

    bounded = bound(tool, call.arguments, policy.limits)
    found.raw_digest = bounded.digest if isinstance(bounded, Payload) else ""
    rules = authority.rules(policy, context)
    snapshot = yield from _snapshot(record, found, context, settings, rules)
    if not was_bound:
        if not context.permits(tool):
            raise Unauthorized(tool).hinted(NOT_STORED)
        rules = authority.rules(policy, context)
    if snapshot.denials >= authority.max_denials:
        raise NoSession(tool, "This session is over: too many of its calls were refused. Tell the user.")
    paused = None
    if snapshot.entry is not None:
        if _is_finished(tool, snapshot.entry, snapshot.now_ns):
            found.call_id = snapshot.entry.call_id
            return Replay(found=found, port=port, entry=snapshot.entry)
        paused = snapshot.entry if snapshot.entry.state is CallState.SUSPENDED else None
    if snapshot.refused is not None:
        found.requests = (snapshot.refused,)
        raise refused(tool, snapshot.refused)
    for counter in () if paused is not None else context.counters(tool, settings.max_calls):
        if snapshot.spent[counter.key] >= counter.limit:
            raise CallBudgetExhausted(tool).hinted(used_up(context, tool, counter))
    # The source's order: an empty budget is told before a payload's faults.
    if not isinstance(bounded, Payload):
        raise bounded
    _check_ready(port, call)
    if paused is not None:
        found.call_id, found.is_edited = paused.call_id, paused.is_edited
        found.effective = freeze(port.restored(call.bound, paused.arguments), policy.limits)
    try:
        if found.effective is None:
            given = to_judge(record, found, port, snapshot, bounded, settings, policy.limits)
            # What a person was shown of a call is effective already; the model wrote something else.
            found.written = given if found.is_edited else bounded
            found.effective = effective(call, port, settings, given, policy)
        facts = Facts(
            context=context,
            policy=policy,
            port=port,
            settings=settings,
            rules=rules,
            risk=risk,
            snapshot=snapshot,
            effective=found.effective,
        )
        if call.is_lost and not facts.may_run_again:
            raise CannotRun(tool, _LOST)
        if paused is not None:
            return Verdict(found=found, facts=facts, reservation=Reservation(), resumes=paused)
        reservation, reasons = yield from _apply_rules(record, found, facts)
        if reasons and (exact := as_shown(call, facts)) is not facts.effective:
            found.effective = exact
            facts = replace(facts, effective=exact)
            reservation, reasons = yield from _apply_rules(record, found, facts)
        if settings.effect is not None:
            key = _effect_key(record, facts, settings.effect)
            held = yield from _effect(record, facts, key)
            if held is not None and not held.frees_effect(snapshot.now_ns):
                found.call_id = held.call_id
                return Replay(found=found, port=port, entry=held, bound=call.bound, is_another=True)
            facts = replace(facts, effect_key=key, effect_held_by=held.call_id if held else None)
    except (InputTooLarge, InvalidPayload, PolicyDenied) as refusal:
        if found.is_edited:
            raise EditRefused(tool, refusal) from None
        raise
    return approval(record, found, facts, reservation, reasons)


def _snapshot(
    record: CallRecord, found: Found, context: ToolExecutionContext, settings: ToolSettings, rules: RuleSet
) -> Flow[Snapshot]:
    """What the store says, all at one moment, once the session knows what it saw elsewhere."""
    authority, tool = record.authority, record.tool
    windows = rules.windows(tool, context.scope)
    for _ in range(_MAX_READS):
        query = context.query(
            tool,
            settings.max_calls,
            windows=windows,
            call_key=record.ledger_key(found),
            grants=settings.grant is not None,
            remembers=rules.traces,
        )
        snapshot = yield from _loaded(tool, query)
        _bind(tool, context, snapshot)
        if not (rules.traces and context.origins.is_behind):
            break  # else the session saw something elsewhere, beside what it saw here: all of it, in its order
    if rules.traces and context.origins.has_gap and authority.is_news(NOT_KNOWN):
        _log.warning("%s", NOT_KNOWN)
    return snapshot


def _loaded(tool: str, query: Query) -> Flow[Snapshot]:
    try:
        return (yield from Load(query))
    except Exception as error:
        raise StoreUnavailable(tool) from as_cause(error)


def _bind(tool: str, context: ToolExecutionContext, snapshot: Snapshot) -> None:
    """Have the session know what its store says of it; for a named one, that is what bounds it."""
    try:
        context.bind(snapshot)
    except StoreUnavailable:
        raise StoreUnavailable(tool) from None
    except GuardConfigurationError as error:
        raise NoSession(tool).hinted(str(error)) from None
    if not context.is_open:
        raise NoSession(tool).hinted(OVER)


def _nobody(tool: str, call: Call) -> NoSession:
    nobody = call.no_context or Nobody(hint=None if call.context is None else OVER)
    error = NoSession(tool, nobody.told)
    return error if nobody.hint is None else error.hinted(nobody.hint)


def _authorise(
    record: CallRecord, found: Found, policy: ToolExecutionPolicy, port: ToolPort, context: ToolExecutionContext
) -> tuple[ToolSettings, ToolRisk]:
    """Step 2: allowlist and principal's set; one Unauthorized for both, so that neither can be probed."""
    tool = record.tool
    settings = policy.settings(tool)
    if settings is None or not context.permits(tool):
        raise Unauthorized(tool).hinted(not_allowed(context, tool, policy.tools))
    spec = port.spec
    risk = policy.risk(spec)
    if risk is None:
        # Nobody said how dangerous it is.
        raise Unauthorized(tool)
    found.risk = risk
    pinned = settings.schema_sha256
    if (pinned is not None and pinned != spec.fingerprint) or _has_drifted(port, record.call):
        raise ToolChanged(tool, found.call_id)
    return settings, risk


def _has_drifted(port: ToolPort, call: Call) -> bool:
    try:
        return port.drifted(call.bound)
    except Exception:
        return True  # a tool that cannot be looked at is not known to be the one that was registered


def _check_ready(port: ToolPort, call: Call) -> None:
    """What can be known before the commit is checked before it."""
    try:
        port.check_ready(call.bound)
    except ToolExecutionError:
        raise
    except Exception:
        raise CannotRun(port.spec.name) from None


def _is_finished(tool: str, entry: LedgerEntry, now_ns: int) -> bool:
    """Step 4: what ended is replayed, result or error; what had no effect may be tried again, a paused call goes on.

    Any other is in the middle, or may have run: it never runs again by itself.
    """
    if entry.state in (CallState.NOT_EXECUTED, CallState.SUSPENDED):
        return False
    if entry.state in (CallState.CLAIMED, CallState.UNKNOWN):
        raise OutcomeUnknown(tool)
    if entry.state is CallState.DONE and entry.expires_ns <= now_ns:
        raise OutcomeUnknown(tool, "This call ran before, and its result is no longer kept. It is not run again.")
    return True


def _apply_rules(record: CallRecord, found: Found, facts: Facts) -> Flow[tuple[Reservation, tuple[str, ...]]]:
    """Step 7: every rule over the effective arguments; all violations in order. Deny beats ask beats allow.

    The value: what to take, and why a person has to be asked: risk, rules, doubt, or that a person changed it.
    """
    judgement = yield from _judgement(record, found, facts)
    found.would, found.asks, found.traced = judgement.would, judgement.asks, judgement.traced
    if judgement.violations:
        found.refusing = tuple([violation.policy_name for violation in judgement.violations])
        raise PolicyDenied(record.tool, judgement.violations)
    reasons = tuple([ask.policy_name for ask in judgement.asks])
    if facts.risk.needs_approval and not (judgement.proven and facts.settings.approval == "unproven"):
        reasons = (f"risk:{facts.risk.value}", *reasons)
    reasons = (*reasons, *record.call.asks, *doubts(facts))
    if found.is_edited:  # by whom is on record, and the edit used once, also where nothing else asks
        reasons = reasons or (EDITED,)
    return judgement.reservation, reasons


def _judgement(record: CallRecord, found: Found, facts: Facts) -> Flow[Judgement]:
    """What the rules in force say; those that have to wait for their answers are asked first."""
    if not facts.rules.rules_for(record.tool):
        return SILENT
    case = Case(
        action=Action(tool=record.tool, parameters=facts.effective.value, id=found.call_id),
        written=None if found.written in (None, facts.effective) else found.written.value,
        reading=facts.reading,
        scope=facts.context.scope,
        used=facts.snapshot.used,
        flags=facts.snapshot.flags,
        state=record.authority.state,
        origins=facts.context.origins,
    )
    awaited = facts.rules.awaited(record.tool)
    if awaited:
        case = replace(case, answers=(yield from Consult(awaited, case)))
    return facts.rules.judge(case)


def _effect_key(record: CallRecord, facts: Facts, effect: EffectKey) -> str:
    scope = facts.context.scope
    whose = {"principal": scope.principal, "session": scope.session_id}.get(effect.per, "")
    key = effect.key(record.tool, facts.effective.value, whose)
    if key is None:
        raise InvalidPayload(record.tool, "an argument that names its effect is missing, or null")
    return key


def _effect(record: CallRecord, facts: Facts, key: str) -> Flow[LedgerEntry | None]:
    """Who holds the effect that the call would have; raises what is told where its result is not this caller's."""
    tool, context = record.tool, facts.context
    query = context.query(tool, facts.settings.max_calls, call_key=key)
    held = (yield from _loaded(tool, query)).entry
    if held is None or held.frees_effect(facts.snapshot.now_ns):
        return held
    if held.state in (CallState.CLAIMED, CallState.SUSPENDED):
        raise EffectRunning(tool)
    if held.state in (CallState.UNKNOWN, CallState.RAISED):
        raise EffectUnknown(tool)
    # Nobody learns another's result.
    if held.state is not CallState.DONE or held.chain != context.chain or held.output is None:
        raise EffectDone(tool)
    return held

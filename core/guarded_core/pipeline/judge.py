"""Steps 1 to 8 of a call's way: whether it may run, by one policy and one snapshot of the store.

Judging spends, asks and records nothing; `flow.enforce` does, around it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from guarded_core.approvals.completion import is_completed
from guarded_core.approvals.grant import GrantUse
from guarded_core.approvals.grantable import Offer
from guarded_core.approvals.request import (
    EDITED,
    OUTCOME_UNKNOWN,
    RAISED_BEFORE,
    SET_BY_APPLICATION,
    ApprovalRequest,
    RequestState,
)
from guarded_core.ground.errors import (
    AnsweredByPerson,
    ApprovalPayloadMismatch,
    ApprovalRejected,
    CallBudgetExhausted,
    CannotRun,
    EditRefused,
    EffectDone,
    EffectRunning,
    EffectUnknown,
    GuardConfigurationError,
    InputTooLarge,
    InvalidPayload,
    InvalidTool,
    NoSession,
    OutcomeUnknown,
    PolicyDenied,
    StoreUnavailable,
    ToolChanged,
    ToolExecutionError,
    Unauthorized,
    as_cause,
)
from guarded_core.ground.ids import new_id
from guarded_core.ground.payload import Payload, PayloadLimits, PayloadRefused, PayloadTooLarge, freeze, parse
from guarded_core.ground.struct import struct
from guarded_core.pipeline.call import Call
from guarded_core.pipeline.record import CallRecord, Found
from guarded_core.pipeline.steps import Flow, Load
from guarded_core.policy.effect import EffectKey
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.rules.case import Action, Case, Reservation
from guarded_core.rules.ruleset import SILENT, Judgement, RuleSet
from guarded_core.session import Nobody, ToolExecutionContext
from guarded_core.session.hints import NOT_STORED, OVER, not_allowed, used_up
from guarded_core.store.base import Snapshot
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.tools.port import ToolPort
from guarded_core.tools.schema import Validator
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

    bounded = _bound(tool, call.arguments, policy.limits)
    found.raw_digest = bounded.digest if isinstance(bounded, Payload) else ""
    rules = authority.rules(policy, context)
    windows = rules.windows(tool, context.scope)
    query = context.query(
        tool,
        settings.max_calls,
        windows=windows,
        call_key=record.ledger_key(found),
        grants=settings.grant is not None,
    )
    try:
        snapshot = yield from Load(query)
    except Exception as error:
        raise StoreUnavailable(tool) from as_cause(error)
    _bind(tool, context, snapshot)
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
            given = _given(record, found, port, snapshot, bounded, settings, policy.limits)
            # What a person was shown of a call is effective already; the model wrote something else.
            found.written = given if found.is_edited else bounded
            found.effective = _effective(call, port, settings, given, policy)
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
        if paused is not None:
            return Verdict(found=found, facts=facts, reservation=Reservation(), resumes=paused)
        reservation, reasons = _apply_rules(record, found, facts)
        if reasons and (exact := _as_shown(call, facts)) is not facts.effective:
            found.effective = exact
            facts = replace(facts, effective=exact)
            reservation, reasons = _apply_rules(record, found, facts)
        if settings.effect is not None:
            held = yield from _effect(record, facts, settings.effect)
            if held is not None and not held.frees_effect(snapshot.now_ns):
                found.call_id = held.call_id
                return Replay(found=found, port=port, entry=held, bound=call.bound, is_another=True)
            key = _effect_key(record, facts, settings.effect)
            facts = replace(facts, effect_key=key, effect_held_by=held.call_id if held else None)
    except (InputTooLarge, InvalidPayload, PolicyDenied) as refusal:
        if found.is_edited:
            raise EditRefused(tool, refusal) from None
        raise
    return _approval(record, found, facts, reservation, reasons)


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


def _bound(tool: str, arguments: object, limits: PayloadLimits) -> Payload | ToolExecutionError:
    """Step 3: the exact private copy of the arguments, or what is wrong with them."""
    try:
        payload = freeze(parse(arguments, limits) if isinstance(arguments, str | bytes) else arguments, limits)
    except PayloadTooLarge as error:
        return InputTooLarge(tool, actual=error.actual, limit=error.limit, what=error.what)
    except PayloadRefused as error:
        return InvalidPayload(tool, error.reason)
    if type(payload.value) is not dict:
        return InvalidPayload(tool, "the arguments are not a JSON object")
    return payload


def _bounded(tool: str, arguments: object, limits: PayloadLimits) -> Payload:
    payload = _bound(tool, arguments, limits)
    if not isinstance(payload, Payload):
        raise payload
    return payload


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


def _given(
    record: CallRecord,
    found: Found,
    port: ToolPort,
    snapshot: Snapshot,
    proposed: Payload,
    settings: ToolSettings,
    limits: PayloadLimits,
) -> Payload:
    """The arguments to judge: of a call that somebody was asked about, what was shown, or what they changed it to.

    Computed defaults stay as shown when a framework enters the call again.
    """
    request, key = found.edit, record.ledger_key(found)
    if request is None and key is not None:
        request = next((asked for asked in reversed(snapshot.requests) if asked.call_key == key), None)
    if request is None:
        return proposed
    if request.replaces is not None:
        found.edit, found.is_edited, found.requests = request, True, (request,)
    not_the_models = port.set_by_application.union(settings.binds)
    return _bounded(record.tool, _without(request.arguments, not_the_models), limits)


def _without(arguments: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in names}


def _effective(
    call: Call, port: ToolPort, settings: ToolSettings, raw: Payload, policy: ToolExecutionPolicy
) -> Payload:
    """Step 6: checked on the closed schema, with defaults filled in; what every later step and the tool see."""
    spec = port.spec
    reason = _validator(spec, settings).check(raw.value)
    if reason is not None:
        raise InvalidPayload(spec.name, reason)
    completed = _completed(call, port, raw, settings)
    if settings.binds:
        completed = {**(raw.value if completed is None else completed), **_injected(call, spec.name, settings.binds)}
    if completed is None:
        return raw
    return _bounded(spec.name, completed, policy.limits)


def _validator(spec: ToolSpec, settings: ToolSettings) -> Validator:
    try:
        return spec.validator(terms=settings.terms)
    except InvalidTool:
        # Under another policy it was wrapped; under this one it would not be.
        raise InvalidPayload(spec.name, "they cannot be checked under the policy in force") from None


def _as_shown(call: Call, facts: Facts) -> Payload:
    """The effective arguments as their canonical bytes say them, which a person approves; themselves if they are that.

    10 and 10.0 have one digest, and so one approval: what runs is one of them, whichever came.
    """
    exact = facts.effective.as_canonical()
    if exact is facts.effective:
        return exact
    port, tool, limits = facts.port, facts.spec.name, facts.policy.limits
    own = _bounded(tool, _without(exact.copy(), port.set_by_application.union(facts.settings.binds)), limits)
    if _effective(call, port, facts.settings, own, facts.policy).digest != exact.digest:
        raise InvalidPayload(tool, "a number would be read as another value in its shortest form")
    return exact


def _completed(call: Call, port: ToolPort, raw: Payload, settings: ToolSettings) -> dict[str, Any] | None:
    """The arguments with what they lack filled in; None where they are effective as they stand."""
    try:
        if settings.opaque:
            return port.complete(call.bound, raw.copy(), frozenset(settings.opaque))
        return port.complete(call.bound, raw.copy())
    except ToolExecutionError:
        raise
    except Exception:
        # A validator of the tool's own; its text may quote what it was given.
        raise InvalidPayload(port.spec.name, "the tool's own validation refused them") from None


def _injected(call: Call, tool: str, names: tuple[str, ...]) -> dict[str, Any]:
    """What the application gives of the arguments that the policy binds."""
    injected = call.injected or {}
    if not injected.keys() >= set(names):
        raise InvalidPayload(tool, "an argument that only the application can give is missing")
    return {name: injected[name] for name in names}


def _apply_rules(record: CallRecord, found: Found, facts: Facts) -> tuple[Reservation, tuple[str, ...]]:
    """Step 7: every rule over the effective arguments; all violations in order. Deny beats ask beats allow.

    The value: what to take, and why a person has to be asked: risk, rules, doubt, or that a person changed it.
    """
    judgement = _judgement(record, found, facts)
    found.would, found.asks, found.traced = judgement.would, judgement.asks, judgement.traced
    if judgement.violations:
        found.refusing = tuple([violation.policy_name for violation in judgement.violations])
        raise PolicyDenied(record.tool, judgement.violations)
    reasons = tuple([ask.policy_name for ask in judgement.asks])
    if facts.risk.needs_approval and not (judgement.proven and facts.settings.approval == "unproven"):
        reasons = (f"risk:{facts.risk.value}", *reasons)
    reasons = (*reasons, *record.call.asks, *_doubts(facts))
    if found.is_edited:  # by whom is on record, and the edit used once, also where nothing else asks
        reasons = reasons or (EDITED,)
    return judgement.reservation, reasons


def _judgement(record: CallRecord, found: Found, facts: Facts) -> Judgement:
    """What the rules in force say."""
    if not facts.rules.rules_for(record.tool):
        return SILENT
    case = Case(
        action=Action(tool=record.tool, parameters=facts.effective.value, id=found.call_id),
        written=None if found.written in (None, facts.effective) else found.written.value,
        reading=facts.spec.reading.as_written(facts.settings.opaque),
        scope=facts.context.scope,
        used=facts.snapshot.used,
        flags=facts.snapshot.flags,
        state=record.authority.state,
        origins=facts.context.origins,
    )
    return facts.rules.judge(case)


def _effect_key(record: CallRecord, facts: Facts, effect: EffectKey) -> str:
    scope = facts.context.scope
    whose = {"principal": scope.principal, "session": scope.session_id}.get(effect.per, "")
    key = effect.key(record.tool, facts.effective.value, whose)
    if key is None:
        raise InvalidPayload(record.tool, "an argument that names its effect is missing, or null")
    return key


def _effect(record: CallRecord, facts: Facts, effect: EffectKey) -> Flow[LedgerEntry | None]:
    """Who holds the effect that the call would have; raises what is told where its result is not this caller's."""
    tool, context = record.tool, facts.context
    query = context.query(tool, facts.settings.max_calls, call_key=_effect_key(record, facts, effect))
    try:
        snapshot = yield from Load(query)
    except Exception as error:
        raise StoreUnavailable(tool) from as_cause(error)
    held = snapshot.entry
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


def _approval(
    record: CallRecord, found: Found, facts: Facts, reservation: Reservation, reasons: tuple[str, ...]
) -> Verdict:
    """Step 8: where something asks for it, an approval of exactly this, or the request for one; a no is final."""
    if not reasons and not facts.snapshot.requests:
        return Verdict(found=found, facts=facts, reservation=reservation)
    wanted = _request(record, found, facts, reasons)
    live = [request for request in facts.snapshot.requests if request.is_live(facts.snapshot.now_ns)]
    covering = [request for request in live if request.covers(wanted)]
    granted = _granted(covering, facts.settings, facts.context.chain)
    if granted:
        used = granted if reasons else ()
        return Verdict(found=found, facts=facts, reservation=reservation, granted=used)
    for request in live:
        if request.state is RequestState.REJECTED and request.is_about(wanted):
            found.requests = (request,)
            raise refused(record.tool, request)
    if not reasons:
        return Verdict(found=found, facts=facts, reservation=reservation)
    # What a person was asked about and changed is not what they granted.
    grants = () if found.is_edited else facts.snapshot.grants
    uses = (granted.use(wanted, facts.spec.reading, facts.snapshot.now_ns) for granted in grants)
    if (use := next(filter(None, uses), None)) is not None:
        return Verdict(found=found, facts=facts, reservation=reservation, grant=use)
    for request in covering:
        if request.state is RequestState.PENDING:
            return Verdict(found=found, facts=facts, reservation=reservation, ask=request)
    if not record.authority.asks and any(request.approves_another_payload(wanted) for request in live):
        raise ApprovalPayloadMismatch(record.tool)
    edit = found.edit
    if edit is not None and edit in live and is_completed(edit, wanted, facts.spec.schema):
        wanted = replace(wanted, votes=edit.votes, state=edit.state)
    return Verdict(found=found, facts=facts, reservation=reservation, ask=wanted, is_new=True)


def _doubts(facts: Facts) -> tuple[str, ...]:
    """Why a person is asked about a call that is equal to one that may have had its effect."""
    state = facts.snapshot.doubtful.get(facts.effective.digest)
    if state is None or facts.may_run_again:
        return ()
    if state is CallState.UNKNOWN:
        return (OUTCOME_UNKNOWN,)
    return (RAISED_BEFORE,) if facts.risk.needs_approval else ()


def refused(tool: str, request: ApprovalRequest) -> ApprovalRejected:
    """What became of a call that a person refused, or answered in the tool's place: no rule has a say any more."""
    if request.state is RequestState.REVOKED:
        return ApprovalRejected(tool, "the question, or its approval, was taken back")
    vote = request.votes[-1]
    return (AnsweredByPerson if vote.responds else ApprovalRejected)(tool, vote.reason)


def _written(found: Found, facts: Facts) -> Any:
    """What the model sent, where it is not what a person is shown."""
    if found.edit is not None:
        return found.edit.written
    return None if found.written is None or found.written.digest == facts.effective.digest else found.written.copy()


def _request(record: CallRecord, found: Found, facts: Facts, reasons: tuple[str, ...]) -> ApprovalRequest:
    context, settings, now_ns = facts.context, facts.settings, facts.snapshot.now_ns
    hidden = facts.port.set_by_application.difference(settings.binds)
    return ApprovalRequest(
        id=new_id(),
        tool=record.tool,
        digest=facts.effective.digest,
        fingerprint=facts.spec.fingerprint,
        policy=facts.policy.tool_hash(record.tool),
        principal=context.principal,
        on_behalf_of=context.on_behalf_of,
        session_id=context.session_id,
        call_key=record.ledger_key(found),
        tool_call_id=record.call.key.tool_call_id if record.call.key else None,
        risk=facts.risk,
        reasons=reasons,
        arguments=facts.effective.copy() | dict.fromkeys(hidden, SET_BY_APPLICATION),
        written=_written(found, facts),
        changed_from=found.edit.changed_from if found.edit else None,
        grantable=_grantable(found, facts, reasons),
        required=settings.approvals,
        self_approval=settings.self_approval,
        replaces=found.edit.id if found.edit else None,
        created_ns=now_ns,
        expires_ns=now_ns + settings.expires_seconds * 1_000_000_000,
    )


_EACH_TIME = frozenset({OUTCOME_UNKNOWN, RAISED_BEFORE, EDITED})


def _grantable(found: Found, facts: Facts, reasons: tuple[str, ...]) -> Offer | None:
    """What may be granted beside the call: not what is asked because of where a value came from, or out of doubt."""
    limits = facts.settings.grant
    answered = tuple([reason for reason in reasons if reason not in found.traced and reason not in _EACH_TIME])
    if limits is None or not answered:
        return None
    return Offer(limits.fixed() if facts.risk is ToolRisk.DESTRUCTIVE else limits, answered)


def _granted(
    covering: list[ApprovalRequest], settings: ToolSettings, chain: tuple[str, ...]
) -> tuple[ApprovalRequest, ...]:
    """The approved requests that together carry enough distinct people; empty where they do not."""
    people: set[str] = set()
    chosen = []
    for request in covering:
        if request.state is not RequestState.APPROVED:
            continue
        approvers = {by for by in request.approvers if settings.self_approval or by not in chain}
        if approvers - people:
            people |= approvers
            chosen.append(request)
        if len(people) >= settings.approvals:
            return tuple(chosen)
    return ()

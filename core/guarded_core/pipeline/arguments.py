"""Steps 3 and 6 of a call's way: the arguments, from what was sent to what every later step and the tool see."""

from __future__ import annotations

from typing import Any

from guarded_core.ground.errors import InputTooLarge, InvalidPayload, InvalidTool, ToolExecutionError
from guarded_core.ground.payload import Payload, PayloadLimits, PayloadRefused, PayloadTooLarge, freeze, parse
from guarded_core.pipeline.call import Call
from guarded_core.pipeline.record import CallRecord, Found
from guarded_core.pipeline.verdict import Facts
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.store.base import Snapshot
from guarded_core.tools.port import ToolPort
from guarded_core.tools.schema import Validator
from guarded_core.tools.spec import ToolSpec


def bound(tool: str, arguments: object, limits: PayloadLimits) -> Payload | ToolExecutionError:
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
    payload = bound(tool, arguments, limits)
    if not isinstance(payload, Payload):
        raise payload
    return payload


def to_judge(
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


def effective(call: Call, port: ToolPort, settings: ToolSettings, raw: Payload, policy: ToolExecutionPolicy) -> Payload:
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


def as_shown(call: Call, facts: Facts) -> Payload:
    """The effective arguments as their canonical bytes say them, which a person approves; themselves if they are that.

    10 and 10.0 have one digest, and so one approval: what runs is one of them, whichever came.
    """
    exact = facts.effective.as_canonical()
    if exact is facts.effective:
        return exact
    port, tool, limits = facts.port, facts.spec.name, facts.policy.limits
    own = _bounded(tool, _without(exact.copy(), port.set_by_application.union(facts.settings.binds)), limits)
    if effective(call, port, facts.settings, own, facts.policy).digest != exact.digest:
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

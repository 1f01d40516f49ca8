"""What an audit trail records: one frozen event, complete and free of payloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self

from guarded_core.ground.bounds import MAX_LIST, MAX_NAME, MAX_PRINCIPAL, MAX_REASON
from guarded_core.ground.shown import Shown
from guarded_core.tools.spec import ToolRisk


class Outcome(StrEnum):
    """What an event says of its call."""

    DENIED = "denied"  # refused before it ran; nothing was spent
    ASKED = "asked"  # a person was asked
    AUTHORIZED = "authorized"  # everything was checked and spent; it runs next
    SUSPENDED = "suspended"  # the framework paused it in the middle
    RESUMED = "resumed"  # and went on with it
    SUCCEEDED = "succeeded"  # it returned
    FAILED = "failed"  # it raised, or its output was refused
    UNKNOWN = "unknown"  # cancelled or crashed in the middle: it may have taken effect
    NOTED = "noted"  # something worth recording that changes nothing: would-deny, stripped arguments, repairs

    @property
    def is_terminal(self) -> bool:
        """Whether this ends an Authorized call: exactly one such event follows each Authorized."""
        return self in TERMINAL


TERMINAL = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent(Shown):
    """One thing that happened to one call.

    Payload values, and names that a model chose, never enter: `tool` is a registered name, a valid identifier or its
    ``invalid-tool-…`` stand-in; `payload_digest` is keyed (HMAC-SHA256) and absent where no key is set, since a plain
    hash of a short payload can be guessed.

    Attributes:
        outcome: what happened.
        time_ns: nanoseconds since the epoch, UTC.
        call_id: the guard's id of the call; Authorized and its terminal event share it.
        tool: name of the tool.
        principal: who called; empty where nobody did.
        on_behalf_of: the principals that delegated to `principal`, root first.
        session_id: the session, empty without one.
        risk: the risk in force; None for an unknown tool.
        code: the error's code on Denied, Failed and Unknown; what was noted on Noted.
        rules: names of the rules that refused, asked or would have refused.
        policy: hash of the policy in force.
        fingerprint: of the tool.
        request_id: the approval request, where one played a part.
        grant_id: the grant that a person gave for calls like this one, where it was used.
        approved_by: who approved, in the order they did.
        approval_reason: their reasons, one a line.
        payload_digest: keyed digest of the effective arguments.
        error_type: class name of what the tool raised; never its text.
        trace_id: of the trace that the call is a span of, in hex, where the guard has telemetry.
        count: how many equal denials of the session this event stands for so far.
    """

    outcome: Outcome
    time_ns: int
    call_id: str
    tool: str
    principal: str = ""
    on_behalf_of: tuple[str, ...] = ()
    session_id: str = ""
    risk: ToolRisk | None = None
    code: str | None = None
    rules: tuple[str, ...] = ()
    policy: str | None = None
    fingerprint: str | None = None
    request_id: str | None = None
    grant_id: str | None = None
    approved_by: tuple[str, ...] = ()
    approval_reason: str | None = None
    payload_digest: str | None = None
    error_type: str | None = None
    trace_id: str | None = None
    count: int = 1

    def repeated(self, count: int) -> AuditEvent:
        """This event, standing for `count` equal ones."""
        return self if count == self.count else replace(self, count=count)

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON: absent fields left out."""
        record: dict[str, Any] = {}
        for name, default in _FIELDS:
            value = getattr(self, name)
            if value != default:
                record[name] = list(value) if type(value) is tuple else value
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The event of that dict. Raises ValueError, without quoting it, for anything that is not a valid event."""
        if not isinstance(record, Mapping) or not set(record) <= _NAMES:
            raise ValueError("not an audit event: unknown fields")
        values = dict(record)
        try:
            values["outcome"] = Outcome(values["outcome"])
            if values.get("risk") is not None:
                values["risk"] = ToolRisk(values["risk"])
            for name in _TUPLES & set(values):
                values[name] = tuple(values[name])
            event = cls(**values)
        except (KeyError, TypeError, ValueError):
            raise ValueError("not an audit event: missing or wrong fields") from None
        event.check()
        return event

    def check(self) -> None:
        """Raise ValueError where a field has the wrong type or is over its bound."""
        for name, limit in _TEXTS.items():
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, str) or len(value.encode("utf-8", "surrogatepass")) > limit:
                raise ValueError(f"not an audit event: {name} is not text of at most {limit} bytes")
        for name in _TUPLES:
            items = getattr(self, name)
            if len(items) > MAX_LIST or not all(isinstance(i, str) and len(i) <= MAX_PRINCIPAL for i in items):
                raise ValueError(f"not an audit event: {name} is not a list of at most {MAX_LIST} short texts")
        for name in ("time_ns", "count"):
            number = getattr(self, name)
            if type(number) is not int or not 0 <= number < 1 << 63:
                raise ValueError(f"not an audit event: {name} is not a count")


_FIELDS = tuple((f.name, f.default) for f in fields(AuditEvent))
_NAMES = frozenset(name for name, _ in _FIELDS)
_TUPLES = frozenset({"on_behalf_of", "rules", "approved_by"})
_OPTIONAL = frozenset(f.name for f in fields(AuditEvent) if f.default is None)
_TEXTS = {
    "call_id": MAX_NAME,
    "tool": MAX_NAME,
    "principal": MAX_PRINCIPAL,
    "session_id": 2 * MAX_PRINCIPAL,
    "code": MAX_NAME,
    "policy": MAX_NAME,
    "fingerprint": MAX_NAME,
    "request_id": MAX_NAME,
    "grant_id": MAX_NAME,
    "approval_reason": MAX_REASON,
    "payload_digest": MAX_NAME,
    "error_type": MAX_NAME,
    "trace_id": MAX_NAME,
}

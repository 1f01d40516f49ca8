"""OpenTelemetry: a span around each call, an event for each decision, and metrics; no payload.

Spans and names follow OpenTelemetry's conventions for generative AI (``execute_tool``); what is the guard's own begins
with ``guard.``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import Any, Generic, TypeVar

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import SpanContext, Status, StatusCode, set_span_in_context
except ImportError as error:
    raise ImportError('OpenTelemetry needs an extra: pip install "guarded-tools[otel]"') from error

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import HumanApprovalRequired
from guarded_core.pipeline.call import Call
from guarded_core.pipeline.steps import Commit, Deny, Flow, Record, Step

T = TypeVar("T")

_log = logging.getLogger(__name__)

_NAME = "guarded_tools"
_MAX_REMEMBERED = 4_096
_DECIDED = (Outcome.AUTHORIZED, Outcome.RESUMED, Outcome.DENIED)
_FAULTY = (Outcome.FAILED, Outcome.UNKNOWN)


class _Remembered(Generic[T]):
    """The newest of what has to be known later in this process, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, T] = OrderedDict()

    def keep(self, name: str, value: T) -> None:
        with self._lock:
            self._kept[name] = value
            if len(self._kept) > _MAX_REMEMBERED:
                self._kept.popitem(last=False)

    def take(self, name: str | None) -> T | None:
        with self._lock:
            return None if name is None else self._kept.pop(name, None)


class _Told:
    """One call: its span, and the newest of what is to be said of it in the end."""

    __slots__ = ("about", "last", "span", "tool")

    def __init__(self, tool: str, span: Any) -> None:
        self.tool = tool
        self.span = span
        self.last: AuditEvent | None = None
        self.about: dict[str, Any] = {}


class OpenTelemetry:
    """Tells a guard's calls to OpenTelemetry; hand it to ``Guard(..., telemetry=OpenTelemetry())``.

    A span ``execute_tool NAME`` around each call is a child of the framework's span, and the parent of what the tool
    does. A call that was paused and is entered again in this process has a span of its own, linked to the first.

    Args:
        tracer_provider, meter_provider: OpenTelemetry's own for this process by default.
        principal: tells who called, as ``enduser.id``; off by default, since a trace goes further than a trail.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        principal: bool = False,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._principal = principal
        self._calls = meter.create_counter("guard.calls", "{call}", "Calls, by what became of them")
        self._denials = meter.create_counter("guard.denials", "{denial}", "Denials, by rule")
        self._decision = meter.create_histogram("guard.approval.duration", "s", "From a question to its decision")
        self._commit = meter.create_histogram("guard.commit.duration", "s", "How long a commit takes")
        self._paused: _Remembered[SpanContext] = _Remembered()
        self._asked: _Remembered[int] = _Remembered()

    def trace_id(self) -> str | None:
        """The current trace, in hex; None outside any."""
        context = trace.get_current_span().get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    def watched(self, call: Call, flow: Flow[T]) -> Flow[T]:
        """The same flow, told step by step."""
        # A name that no tool has is a model's invention: it would make a series of its own.
        tool = "unknown" if call.port is None else call.port.spec.name
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
        if self._principal and call.context is not None:
            attributes["enduser.id"] = call.context.principal
        try:
            span = self._tracer.start_span(f"execute_tool {tool}", attributes=attributes)
        except Exception as error:
            _told_nothing(error)
            return (yield from flow)
        token = attach(set_span_in_context(span))
        told, is_gone = _Told(tool, span), False
        try:
            return (yield from self._told(told, flow))
        except GeneratorExit:
            is_gone = True  # the driver is: perhaps in another context, which the token is not of
            raise
        finally:
            if not is_gone:
                detach(token)
            try:
                self._end(told)
            except Exception as error:
                _told_nothing(error)

    def _told(self, told: _Told, flow: Flow[T]) -> Flow[T]:
        """Pass each step on and each answer back; tell what the trail is told, and how long a commit takes."""
        step: Step[Any]
        try:
            step = next(flow)
            while True:
                begun = time.perf_counter() if type(step) is Commit else 0.0
                try:
                    answer = yield step
                except GeneratorExit:
                    flow.close()
                    raise
                except BaseException as error:
                    step = flow.throw(error)
                else:
                    self._tell(told, step, begun)
                    step = flow.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result

    def _tell(self, told: _Told, step: Step[Any], begun: float) -> None:
        try:
            if type(step) is Commit:
                self._commit.record(time.perf_counter() - begun, {"gen_ai.tool.name": told.tool})
            elif type(step) is Deny or (type(step) is Record and step.event.outcome is not Outcome.DENIED):
                self._tell_event(told, step.event)  # a trail has only some of equal denials
        except Exception as error:
            _told_nothing(error)

    def _tell_event(self, told: _Told, event: AuditEvent) -> None:
        about: dict[str, Any] = {"guard.decision": event.outcome.value, "guard.call_id": event.call_id}
        for name, value in (
            ("guard.code", event.code),
            ("guard.policy", event.policy),
            ("guard.request_id", event.request_id),
        ):
            if value is not None:
                about[name] = value
        if event.rules:
            about["guard.rules"] = event.rules
        told.span.add_event("guard.decision", about)
        if event.outcome is not Outcome.NOTED:
            told.last, told.about = event, about
        self._tell_time(told.tool, told.span, event)

    def _end(self, told: _Told) -> None:
        """What became of the call in the end: said once, since each word costs an SDK some time."""
        span, event, series = told.span, told.last, {"gen_ai.tool.name": told.tool}
        if event is None:
            span.end()
            return
        if event.outcome is Outcome.DENIED:
            for rule in event.rules:
                self._denials.add(1, {**series, "guard.rule": rule})
        if event.outcome in _FAULTY:
            told.about["error.type"] = kind = event.error_type or event.code or event.outcome.value
            span.set_status(Status(StatusCode.ERROR, kind))
        span.set_attributes(told.about)
        span.end()
        series["guard.decision"] = event.outcome.value
        self._calls.add(1, series if event.code is None else {**series, "guard.code": event.code})

    def _tell_time(self, tool: str, span: Any, event: AuditEvent) -> None:
        """What hangs together over a pause: the span before it, and how long a decision took."""
        if event.outcome is Outcome.ASKED and event.request_id is not None:
            self._asked.keep(event.request_id, event.time_ns)
            self._paused.keep(event.request_id, span.get_span_context())
        elif event.outcome is Outcome.SUSPENDED:
            self._paused.keep(event.call_id, span.get_span_context())
        elif event.outcome in _DECIDED and event.code != HumanApprovalRequired.code:
            asked = self._asked.take(event.request_id)
            if asked is not None:
                taken = max(0, event.time_ns - asked) / 1e9
                self._decision.record(taken, {"gen_ai.tool.name": tool, "guard.decision": event.outcome.value})
            for before in (self._paused.take(event.request_id), self._paused.take(event.call_id)):
                if before is not None and before != span.get_span_context():
                    span.add_link(before)


def _told_nothing(error: Exception) -> None:
    _log.warning("a call goes on untold: telemetry failed: %s", type(error).__name__)

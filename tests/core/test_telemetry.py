"""OpenTelemetry around calls of plain functions: spans, events, metrics, trace ids, and nothing of a payload."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from guarded_core import (
    CallbackApprover,
    Guard,
    HumanApprovalRequired,
    OpenTelemetry,
    PolicyDenied,
    ToolExecutionError,
    ToolExecutionPolicy,
)
from guarded_core.rules.kinds import LimitToolParam

SECRET = "tok-4711"


class Told:
    """A guard with telemetry, and what was exported."""

    def __init__(self, *, approver: Any = None, processor: SpanProcessor | None = None, **settings: Any) -> None:
        self.spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(processor or SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.tracer = tracers.get_tracer("application")
        telemetry = OpenTelemetry(
            tracer_provider=tracers, meter_provider=MeterProvider(metric_readers=[self.reader]), **settings
        )
        policy = ToolExecutionPolicy(
            {"read": "read_only", "pay": "financial", "broken": "mutating"},
            rules=[LimitToolParam(tool="pay", param="cents", max=100)],
        )
        self.guard = Guard(policy, approver=approver, telemetry=telemetry)
        self.inner: list[Any] = []

        @self.guard.tool
        def read(word: str) -> str:
            """Read."""
            self.inner.append(trace.get_current_span().get_span_context())
            return word

        @self.guard.tool
        def pay(cents: int, note: str = "") -> str:
            """Pay."""
            return note

        @self.guard.tool
        def broken(word: str) -> str:
            """Break."""
            raise RuntimeError(word)

    def call(self, is_async: bool, tool: str, arguments: dict[str, Any]) -> Any:
        """One call in a session, sync or async; the error where it was refused or failed."""
        with self.guard.session("user-17", tools=["read", "pay", "broken"]):
            try:
                if is_async:
                    return asyncio.run(self.guard.acall(tool, arguments))
                return self.guard.call(tool, arguments)
            except ToolExecutionError as error:
                return error

    @property
    def finished(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in that order."""
        return self.spans.get_finished_spans()

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Each metric's points: attributes, and a sum or a count."""
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], Any]]] = {}
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        value = getattr(point, "value", getattr(point, "count", None))
                        found.setdefault(metric.name, []).append((dict(point.attributes or {}), value))
        return found


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_is_a_span_between_the_application_and_the_tool(is_async: bool) -> None:
    """Its parent is what was current, and it is current in the tool; afterwards what was current is so again."""
    told = Told()
    with told.tracer.start_as_current_span("agent") as agent:
        assert told.call(is_async, "read", {"word": SECRET}) == SECRET
        assert trace.get_current_span() is agent
    call, _ = told.finished
    assert call.name == "execute_tool read"
    assert call.parent is not None
    assert call.parent.span_id == agent.get_span_context().span_id
    assert told.inner == [call.context]
    attributes = dict(call.attributes or {})
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "read"
    assert attributes["guard.decision"] == "succeeded"
    assert attributes["guard.policy"] == told.guard.policy.hash
    assert [event.attributes["guard.decision"] for event in call.events if event.attributes] == [
        "authorized",
        "succeeded",
    ]
    assert SECRET not in call.to_json()
    assert "user-17" not in call.to_json()


@pytest.mark.parametrize("is_async", [False, True])
def test_the_trail_has_the_trace(is_async: bool) -> None:
    """Each event of a call names the trace that its span is of; without telemetry there is none."""
    told = Told()
    told.call(is_async, "read", {"word": "a"})
    told.call(is_async, "pay", {"cents": 101})
    ids = [trace.format_trace_id(span.context.trace_id) for span in told.finished]
    assert [event.trace_id for event in told.guard.audit.events] == [ids[0], ids[0], ids[1]]  # type: ignore[union-attr]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_denial(is_async: bool) -> None:
    """It says which code and rules; it is no error of the system."""
    told = Told()
    assert isinstance(told.call(is_async, "pay", {"cents": 101, "note": SECRET}), PolicyDenied)
    (span,) = told.finished
    attributes = dict(span.attributes or {})
    assert attributes["guard.decision"] == "denied"
    assert attributes["guard.code"] == "policy_denied"
    assert attributes["guard.rules"] == ("limit_tool_param:pay.cents",)
    assert span.status.is_unset
    assert SECRET not in span.to_json()
    metrics = told.metrics()
    assert metrics["guard.denials"] == [({"gen_ai.tool.name": "pay", "guard.rule": "limit_tool_param:pay.cents"}, 1)]
    assert metrics["guard.calls"] == [
        ({"gen_ai.tool.name": "pay", "guard.decision": "denied", "guard.code": "policy_denied"}, 1)
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure(is_async: bool) -> None:
    """What the tool raised is named by its type, and the span has failed."""
    told = Told()
    told.call(is_async, "broken", {"word": SECRET})
    (span,) = told.finished
    assert not span.status.is_ok
    assert not span.status.is_unset
    assert dict(span.attributes or {})["error.type"] == "RuntimeError"
    assert SECRET not in span.to_json()


def test_a_name_that_a_model_made_up_is_told_nowhere() -> None:
    """It would make a series of its own in every metric."""
    told = Told()
    told.call(False, SECRET, {})
    (span,) = told.finished
    assert span.name == "execute_tool unknown"
    assert SECRET not in span.to_json()
    assert SECRET not in str(told.metrics())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_decision_by_a_person(is_async: bool) -> None:
    """Asked, then decided: both are events of the span, and the time between them is measured."""
    told = Told(approver=CallbackApprover(lambda request: True, by="lee"))
    assert told.call(is_async, "pay", {"cents": 5}) == ""
    (span,) = told.finished
    assert [dict(event.attributes or {})["guard.decision"] for event in span.events] == [
        "asked",
        "authorized",
        "succeeded",
    ]
    metrics = told.metrics()
    assert metrics["guard.approval.duration"] == [({"gen_ai.tool.name": "pay", "guard.decision": "authorized"}, 1)]
    assert metrics["guard.commit.duration"] == [({"gen_ai.tool.name": "pay"}, 1)]


def test_a_call_that_waited_is_linked_to_its_question() -> None:
    """The span of the call that runs links to the span of the one that asked."""
    told = Told()
    with told.guard.session("user-17", tools=["pay"]):
        with pytest.raises(HumanApprovalRequired):
            told.guard.call("pay", {"cents": 5})
        (request,) = told.guard.approvals.pending()
        told.guard.approvals.decide(request.id, by="lee", approve=True)
        told.guard.call("pay", {"cents": 5})
    asked, ran = told.finished
    assert [link.context for link in ran.links] == [asked.context]
    assert asked.links == ()


def test_principals_are_told_where_that_is_switched_on() -> None:
    """A trace goes further than a trail."""
    told = Told(principal=True)
    told.call(False, "read", {"word": "a"})
    assert dict(told.finished[0].attributes or {})["enduser.id"] == "user-17"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("fails_at", ["on_start", "on_end"])
def test_telemetry_that_fails_is_not_the_calls_fault(is_async: bool, fails_at: str) -> None:
    """A span processor of the application's that raises denies nothing and lets nothing pass."""

    class Failing(SpanProcessor):
        pass

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError

    processor = Failing()
    setattr(processor, fails_at, fails)
    told = Told(processor=processor)
    assert told.call(is_async, "read", {"word": "a"}) == "a"
    assert isinstance(told.call(is_async, "pay", {"cents": 101}), PolicyDenied)


def test_asking_what_would_happen_is_no_call() -> None:
    """A preview opens no span."""
    told = Told()
    with told.guard.session("user-17", tools=["read"]):
        assert told.guard.decide("read", {"word": "a"}).outcome == "allow"
    assert told.finished == ()


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    """Each series in the example's queries is a metric of ours, as Prometheus spells it, with attributes of ours."""
    told = Told(approver=CallbackApprover(lambda request: True, by="lee"))
    told.call(False, "pay", {"cents": 5})
    told.call(False, "pay", {"cents": 101})
    metrics = told.metrics()
    series = {name.replace(".", "_") for name in metrics}
    labels = {key.replace(".", "_") for points in metrics.values() for attributes, _ in points for key in attributes}
    dashboard = json.loads((Path(__file__).parents[2] / "examples" / "grafana_dashboard.json").read_text())
    queries = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    asked = set(re.findall(r"\b(guard_\w+?)(?:_total|_seconds_bucket)\b", queries))
    grouped = {label for group in re.findall(r"by \(([\w, ]+)\)", queries) for label in group.split(", ")} - {"le"}
    assert asked == series
    assert grouped <= labels

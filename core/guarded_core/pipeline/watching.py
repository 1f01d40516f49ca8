"""Telemetry, as far as the pipeline knows it: something that a flow's steps pass by."""

from __future__ import annotations

from typing import Protocol, TypeVar

from guarded_core.pipeline.call import Call
from guarded_core.pipeline.steps import Flow

T = TypeVar("T")


class Telemetry(Protocol):
    """Watches calls; it decides nothing, and what goes wrong in it is not the call's fault."""

    def trace_id(self) -> str | None:
        """The current trace, in hex; for the trail's events."""

    def watched(self, call: Call, flow: Flow[T]) -> Flow[T]:
        """The same flow, step by step."""

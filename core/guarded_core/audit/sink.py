"""Where audit events go: the sink protocol, and one sink that feeds several."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from guarded_core.audit.event import AuditEvent


@runtime_checkable
class ToolAuditSink(Protocol):
    """Takes events, one at a time, in the order they are acknowledged.

    `append` returns only when the event is kept as durably as this sink promises, and raises otherwise: a call whose
    Authorized event cannot be appended does not run. It must be safe to call from several threads. A sink that waits
    (for a disk, a network) is called from a worker thread under asyncio; one that sets ``blocking = False`` promises
    never to wait and is called in place; one with ``async def aappend(event)`` is awaited instead.
    """

    def append(self, event: AuditEvent) -> None:
        """Keep `event`, or raise."""


class TeeSink:
    """Appends each event to every sink, in order; the first failure is the event's failure.

    Args:
        sinks: one or more sinks; the first is the one to trust when they differ after a failure.
    """

    def __init__(self, *sinks: ToolAuditSink) -> None:
        if not sinks:
            # An empty tee would keep nothing and never complain.
            raise ValueError("TeeSink needs at least one sink")
        self.sinks = sinks
        self.blocking = any(getattr(sink, "blocking", True) for sink in sinks)

    def append(self, event: AuditEvent) -> None:
        """Keep `event` in every sink. Raises what the first failing sink raises."""
        for sink in self.sinks:
            sink.append(event)

"""Where audit events go: the sink protocol, and one sink that feeds several."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, cast, runtime_checkable

from guarded_core.audit.event import AuditEvent


@runtime_checkable
class ToolAuditSink(Protocol):
    """Takes events, one at a time, in the order they are acknowledged.

    `append` returns only when the event is kept as durably as this sink promises, and raises otherwise: a call whose
    Authorized event cannot be appended does not run. It must be safe to call from several threads. What else a sink may
    say of itself is in `AuditSink`, with or without deriving from it.
    """

    def append(self, event: AuditEvent) -> None:
        """Keep `event`, or raise."""


class AuditSink:
    """What a sink may have beside `append`, and what holds where it has not.

    Attributes:
        blocking: whether `append` may wait (for a disk, a network): under asyncio it is then called from a worker
            thread. One that says False promises never to wait, and is called in place.
        aappend: ``async def aappend(event)``, awaited under asyncio where `append` may wait.
    """

    __slots__ = ()

    blocking: bool = True
    aappend: Callable[[AuditEvent], Awaitable[None]] | None = None

    def append(self, event: AuditEvent) -> None:
        """Keep `event`, or raise."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise where the next event could not be kept, as far as that is known without one; nothing by default."""

    def close(self) -> None:
        """Let go of what the sink holds open; nothing by default."""


class _Completed(AuditSink):
    """A sink that does not derive from `AuditSink`: what it leaves unsaid has the default. It is asked once."""

    def __init__(self, sink: ToolAuditSink) -> None:
        self._sink = sink
        self.blocking = getattr(sink, "blocking", AuditSink.blocking)
        self.aappend = getattr(sink, "aappend", AuditSink.aappend)

    def append(self, event: AuditEvent) -> None:
        self._sink.append(event)

    def check(self) -> None:
        check = getattr(self._sink, "check", None)
        if callable(check):
            check()


def completed(sink: ToolAuditSink) -> AuditSink:
    """The sink itself where it derives from `AuditSink`; otherwise one that stands for it and has the defaults."""
    return cast(AuditSink, sink) if AuditSink in type(sink).__mro__ else _Completed(sink)


class TeeSink(AuditSink):
    """Appends each event to every sink, in order; the first failure is the event's failure.

    Args:
        sinks: one or more sinks; the first is the one to trust when they differ after a failure.
    """

    def __init__(self, *sinks: ToolAuditSink) -> None:
        if not sinks:
            # An empty tee would keep nothing and never complain.
            raise ValueError("TeeSink needs at least one sink")
        self.sinks = sinks
        self.blocking = any(completed(sink).blocking for sink in sinks)

    def append(self, event: AuditEvent) -> None:
        """Keep `event` in every sink. Raises what the first failing sink raises."""
        for sink in self.sinks:
            sink.append(event)

    def check(self) -> None:
        """Raise what the first sink raises that could not keep an event."""
        for sink in self.sinks:
            completed(sink).check()

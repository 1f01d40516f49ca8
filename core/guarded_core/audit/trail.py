"""What every trail is, wherever its events are kept: one face to read, verify and complete it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from guarded_core.audit.chain import Head
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.reconcile import RECONCILING, check_word, reconciled
from guarded_core.audit.scan import Progress
from guarded_core.audit.sink import AuditSink, TeeSink
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.shown import Shown

RECENT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events are wanted: those that match all that is given.

    Attributes:
        principal: who called.
        tool: name of the tool.
        outcome: what happened, or any of these; none wants all.
        call_id: of one call.
        since_ns: not older than this, ns since the epoch.
        last: only the newest, at most so many.

    Raises:
        ToolAuditTrailError: "invalid_filter": there is no such outcome, or `last` is below 0.
    """

    principal: str | None = None
    tool: str | None = None
    outcome: Outcome | Collection[Outcome] | None = None
    call_id: str | None = None
    since_ns: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        wanted = (self.outcome,) if isinstance(self.outcome, str) else self.outcome or ()
        try:
            object.__setattr__(self, "outcome", frozenset(map(Outcome, wanted)))
        except ValueError:
            raise ToolAuditTrailError("invalid_filter", f"an outcome is one of {', '.join(Outcome)}") from None
        if self.last is not None and self.last < 0:
            raise ToolAuditTrailError("invalid_filter", "last is how many of the newest events, 0 or more")

    @property
    def outcomes(self) -> frozenset[Outcome]:
        """The outcomes that are wanted; empty for all."""
        return self.outcome if isinstance(self.outcome, frozenset) else frozenset()

    @property
    def is_open(self) -> bool:
        """Whether every event matches; `last` alone leaves none out from the middle."""
        return self == Filter(last=self.last)

    def wants(self, event: AuditEvent) -> bool:
        """Whether the event matches."""
        return (
            self.principal in (None, event.principal)
            and self.tool in (None, event.tool)
            and self.call_id in (None, event.call_id)
            and (not self.outcomes or event.outcome in self.outcomes)
            and event.time_ns >= self.since_ns
        )

    def of(self, records: Iterable[tuple[int, AuditEvent]]) -> Iterator[tuple[int, AuditEvent]]:
        """The numbered events that match; all are read, also where only the last are wanted."""
        found = ((number, event) for number, event in records if self.wants(event))
        return found if self.last is None else _newest(found, self.last)


def _newest(records: Iterable[tuple[int, AuditEvent]], last: int) -> Iterator[tuple[int, AuditEvent]]:
    newest: deque[tuple[int, AuditEvent]] = deque(maxlen=last)
    try:
        newest.extend(records)
    except ToolAuditTrailError:
        yield from newest  # they stand before the fault
        raise
    yield from newest


class Verified(Protocol):
    """What was verified."""

    @property
    def records(self) -> int:
        """How many events."""

    @property
    def heads(self) -> tuple[Head, ...]:
        """Where the chains end, sealed where there are keys: kept elsewhere, they are the anchors of the next time."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found, for people."""


class Trail(Shown, AuditSink, ABC):
    """Events in the order they were acknowledged, numbered from 1.

    Everything here raises ToolAuditTrailError for what is wrong with the trail. A kind of one's own has `numbered`,
    `verify` and `__len__`, and `append` where it is a sink too.
    """

    __slots__ = ()

    @abstractmethod
    def numbered(self, wanted: Filter, *, progress: Progress | None = None) -> Iterator[tuple[int, AuditEvent]]:
        """The events that match, oldest first, with their numbers.

        Args:
            wanted: which.
            progress: called with what is done and what there is in all, where reading takes a while.
        """

    @abstractmethod
    def verify(self, anchors: Iterable[Head] = (), *, progress: Progress | None = None) -> Verified:
        """Check that nothing was changed, removed, moved or cut.

        Args:
            anchors: heads kept elsewhere; the trail must contain their positions.
            progress: called with what is done and what there is in all.
        """

    @abstractmethod
    def __len__(self) -> int:
        """How many events are kept."""

    def __bool__(self) -> bool:
        return True  # a trail without events is one all the same

    def __iter__(self) -> Iterator[AuditEvent]:
        return (event for _, event in self.numbered(Filter()))

    def events(
        self,
        *,
        principal: str | None = None,
        tool: str | None = None,
        outcome: Outcome | Collection[Outcome] | None = None,
        call_id: str | None = None,
        since_ns: int = 0,
        last: int | None = None,
    ) -> Iterator[AuditEvent]:
        """The events that match all that is given, oldest first.

        Args: as of `Filter`.
        """
        wanted = Filter(principal=principal, tool=tool, outcome=outcome, call_id=call_id, since_ns=since_ns, last=last)
        return (event for _, event in self.numbered(wanted))

    @property
    def recent(self) -> tuple[tuple[int, AuditEvent], ...]:
        """The newest twenty events with their numbers, oldest first."""
        return tuple(self.numbered(Filter(last=RECENT)))

    def heads(self) -> tuple[Head, ...]:
        """Where the chains of the trail stand, sealed: kept somewhere else, they pin everything up to here."""
        return self.verify().heads

    def unsettled(self, *, progress: Progress | None = None) -> tuple[AuditEvent, ...]:
        """The Authorized events of calls without a Succeeded, Failed or Unknown one, oldest first.

        After a crash these calls may have run or not: nobody knows but the systems they act on. Calls in flight are
        among them.
        """
        return begun_only(event for _, event in self.numbered(Filter(), progress=progress))

    def reconcile(self, call_id: str, outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
        """Record what a person found out about a call that has no outcome, or whose outcome is unknown.

        The trail alone is told; `Guard.reconcile` tells the ledger too, so that the call may be made again or not.

        Args:
            call_id: whose process is no longer running it.
            outcome: Succeeded, Failed, or Unknown where it cannot be found out.
            by: who says so; becomes the event's `approved_by`.
            reason: how they know; becomes its `approval_reason`.

        Returns:
            The event appended: the Authorized one with that outcome and the code "reconciled"; where the trail says
            Unknown already, a Noted one with the code "reconciled_succeeded" or "reconciled_failed".

        Raises:
            ToolAuditTrailError: "not_unsettled", "invalid_event", and as of `events` and `append`.
        """
        return append_word(self, self.events(call_id=call_id), outcome, by=by, reason=reason)

    def append(self, event: AuditEvent) -> None:
        """Keep `event`. Raises ToolAuditTrailError: "read_only", where something else writes this trail."""
        raise ToolAuditTrailError("read_only", "this trail is written by its guard, and only read here")


def append_word(trail: Trail, of_call: Iterable[AuditEvent], outcome: Outcome, *, by: str, reason: str) -> AuditEvent:
    """Append what somebody found out about the call of these events; see `Trail.reconcile`."""
    outcome = check_word(outcome, by, reason)
    with RECONCILING:
        event = reconciled(of_call, outcome, by=by, reason=reason, time_ns=time.time_ns())
        trail.append(event)
    return event


class KeptElsewhere(Trail):
    """The trail behind a sink that only takes events: whatever is asked of it raises, since what is there is not known.

    Args:
        sink: where the events go.
    """

    def __init__(self, sink: object) -> None:
        self._name = type(sink).__name__

    def numbered(self, wanted: Filter, *, progress: Progress | None = None) -> Iterator[tuple[int, AuditEvent]]:
        """Raises ToolAuditTrailError: "write_only"."""
        raise self._error()

    def verify(self, anchors: Iterable[Head] = (), *, progress: Progress | None = None) -> Verified:
        """Raises ToolAuditTrailError: "write_only"."""
        raise self._error()

    def __len__(self) -> int:
        raise self._error()

    def __repr__(self) -> str:
        return f"<the trail of {self._name}, which cannot be read here>"

    def _error(self) -> ToolAuditTrailError:
        return ToolAuditTrailError(
            "write_only", f"{self._name} takes events and shows none: read them where it puts them"
        )


def trail_of(sink: object) -> Trail:
    """The trail that a sink writes: itself, the first of several that is one, or one that can only say where it is."""
    behind = sink.sinks if isinstance(sink, TeeSink) else (sink,)
    return next((one for one in behind if isinstance(one, Trail)), KeptElsewhere(sink))


def begun_only(events: Iterable[AuditEvent]) -> tuple[AuditEvent, ...]:
    """The Authorized events that no Succeeded, Failed or Unknown one follows, in order."""
    begun: dict[str, AuditEvent] = {}
    for event in events:
        if event.outcome is Outcome.AUTHORIZED:
            begun[event.call_id] = event
        elif event.outcome.is_terminal:
            begun.pop(event.call_id, None)
    return tuple(begun.values())

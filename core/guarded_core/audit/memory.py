"""An audit trail in memory: bounded, process-local, for tests, notebooks and short-lived processes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from guarded_core.audit.chain import Head
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.scan import Progress
from guarded_core.audit.trail import Filter, Trail
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.wording import counted

MAX_CAPACITY = 1_000_000


class InMemoryToolAuditTrail(Trail):
    """Keeps the newest `capacity` events; the oldest go first.

    Args:
        capacity: 1 to 1,000,000 events.

    Raises:
        ToolAuditTrailError: the capacity is out of range.
    """

    blocking = False

    def __init__(self, capacity: int = 1024) -> None:
        if type(capacity) is not int or not 1 <= capacity <= MAX_CAPACITY:
            raise ToolAuditTrailError("invalid_capacity", f"capacity is 1 to {MAX_CAPACITY:,} events")
        self._records: deque[tuple[int, AuditEvent]] = deque(maxlen=capacity)
        self._lock = threading.Lock()
        self._sequence = 0

    def append(self, event: AuditEvent) -> None:
        """Keep `event` under the next sequence number; the first is 1."""
        with self._lock:
            self._sequence += 1
            self._records.append((self._sequence, event))

    @property
    def records(self) -> tuple[tuple[int, AuditEvent], ...]:
        """The kept events with their sequence numbers, oldest first."""
        with self._lock:
            return tuple(self._records)

    def numbered(self, wanted: Filter, *, progress: Progress | None = None) -> Iterator[tuple[int, AuditEvent]]:
        """The kept events that match, oldest first, with their sequence numbers."""
        return wanted.of(self.records)

    def verify(self, anchors: Iterable[Head] = (), *, progress: Progress | None = None) -> MemoryVerification:
        """Say how many events are kept: no chain seals them, and none of `anchors` can be of this trail.

        Raises:
            ToolAuditTrailError: "head_mismatch", for any anchor.
        """
        for _ in anchors:
            raise ToolAuditTrailError("head_mismatch", "a trail in memory has no chain, so the head is of another one")
        return MemoryVerification(records=len(self))

    @property
    def events(self) -> KeptEvents:
        """The kept events, oldest first, as a tuple: deprecated, call it as `Trail.events`."""
        return KeptEvents(event for _, event in self.records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<InMemoryToolAuditTrail of {len(self)} events, {self._sequence} appended>"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerification:
    """What a trail in memory can say: its events were not written anywhere, so there is nothing to check them by.

    Attributes:
        records: how many events are kept.
        heads: none.
    """

    records: int
    heads: tuple[Head, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found, for people."""
        return (f"not sealed: {counted(self.records, 'record')} in this process's memory, which no chain covers",)


class KeptEvents(tuple[AuditEvent, ...]):
    """The events of a trail in memory: for one more release a tuple, as `events` was, and called as `Trail.events`."""

    __slots__ = ()

    def __call__(
        self,
        *,
        principal: str | None = None,
        tool: str | None = None,
        outcome: Outcome | Collection[Outcome] | None = None,
        call_id: str | None = None,
        since_ns: int = 0,
        last: int | None = None,
    ) -> Iterator[AuditEvent]:
        """As `Trail.events`."""
        wanted = Filter(principal=principal, tool=tool, outcome=outcome, call_id=call_id, since_ns=since_ns, last=last)
        return (event for _, event in wanted.of(enumerate(self, 1)))

"""An audit trail in memory: bounded, process-local, for tests, notebooks and short-lived processes."""

from __future__ import annotations

import threading
from collections import deque
from typing import ClassVar

from guarded_core.audit.event import AuditEvent
from guarded_core.audit.trail import RECENT, Trail
from guarded_core.ground.errors import ToolAuditTrailError

MAX_CAPACITY = 1_000_000


class InMemoryToolAuditTrail(Trail):
    """Keeps the newest `capacity` events; the oldest go first.

    Args:
        capacity: 1 to 1,000,000 events.

    Raises:
        ToolAuditTrailError: the capacity is out of range.
    """

    blocking: ClassVar[bool] = False

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

    @property
    def recent(self) -> tuple[tuple[int, AuditEvent], ...]:
        """The newest twenty events with their numbers, oldest first."""
        return self.records[-RECENT:]

    @property
    def events(self) -> tuple[AuditEvent, ...]:
        """The kept events, oldest first."""
        return tuple(event for _, event in self.records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"<InMemoryToolAuditTrail of {len(self)} events, {self._sequence} appended>"

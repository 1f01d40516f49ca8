"""What every trail is, wherever its events are kept."""

from __future__ import annotations

from abc import abstractmethod

from guarded_core.audit.event import AuditEvent
from guarded_core.ground.shown import Shown

RECENT = 20


class Trail(Shown):
    """Events in the order they were acknowledged, numbered from 1."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many events are kept."""

    def __bool__(self) -> bool:
        return True  # a trail without events is one all the same

    @property
    @abstractmethod
    def recent(self) -> tuple[tuple[int, AuditEvent], ...]:
        """The newest twenty events with their numbers, oldest first."""

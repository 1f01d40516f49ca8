"""The room left under a segment's ceilings, and what of it is kept for outcomes that are still to come."""

from __future__ import annotations

from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.frames import TERMINAL_GROWTH
from guarded_core.ground.errors import ToolAuditTrailError

MIN_BYTES = 512
MAX_BYTES = 1 << 40
MAX_RECORDS = 1 << 32


class Room:
    """Bytes and records of one segment, under their ceilings.

    An Authorized event takes its own room and keeps as much again, and a little more, for its terminal event: a full
    trail refuses the next call instead of losing the outcome of one that runs.

    Args:
        max_bytes: 512 B to 1 TiB.
        max_records: 1 to 2³².
        rotates: whether a full segment gives way to a new one: then outcomes find room there, and none is kept here.

    Raises:
        ToolAuditTrailError: "invalid_capacity".
    """

    def __init__(self, max_bytes: int, max_records: int, *, rotates: bool) -> None:
        for value, low, high in ((max_bytes, MIN_BYTES, MAX_BYTES), (max_records, 1, MAX_RECORDS)):
            if type(value) is not int or not low <= value <= high:
                raise ToolAuditTrailError("invalid_capacity", f"this ceiling is {low:,} to {high:,}")
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.rotates = rotates
        self.length = 0
        self.records = 0
        self._kept: dict[str, int] = {}  # bytes, by call id
        self._kept_bytes = 0
        self._undo: list[tuple[str, int | None]] = []
        self._saved = (0, 0)

    @property
    def is_exceeded(self) -> bool:
        """Whether there is more than the ceilings allow."""
        return self.length > self.max_bytes or self.records > self.max_records

    def fits(self, event: AuditEvent, size: int, *, header: int | None = None) -> bool:
        """Whether a line of `size` bytes for `event` fits here, or in a new segment with a header of `header` bytes."""
        length, records = (self.length, self.records) if header is None else (header, 0)
        keeps = _keeps(event, size)
        frees = self._kept.get(event.call_id, 0) if event.outcome.is_terminal else 0
        bytes_after = length + size + keeps + self._kept_bytes - frees
        records_after = records + 1 + (keeps > 0) + len(self._kept) - (frees > 0)
        return bytes_after <= self.max_bytes and records_after <= self.max_records

    def take(self, event: AuditEvent, size: int) -> None:
        """Take the room of that line, until `roll_back`."""
        self.length += size
        self.records += 1
        if self.rotates:
            return
        if event.outcome is Outcome.AUTHORIZED:
            self._keep(event.call_id, _keeps(event, size))
        elif event.outcome.is_terminal and event.call_id in self._kept:
            self._keep(event.call_id, None)

    def begin(self, length: int, records: int = 0) -> None:
        """Stand in a segment of that length; what is kept for outcomes stays kept."""
        self.length, self.records = length, records
        self.confirm()

    def confirm(self) -> None:
        """Make what was taken final."""
        self._undo.clear()
        self._saved = (self.length, self.records)

    def roll_back(self) -> None:
        """Give back what was taken since the last `confirm`."""
        for call_id, size in reversed(self._undo.copy()):
            self._keep(call_id, size)
        self._undo.clear()
        self.length, self.records = self._saved

    def _keep(self, call_id: str, size: int | None) -> None:
        before = self._kept.pop(call_id, None)
        self._undo.append((call_id, before))
        if size is not None:
            self._kept[call_id] = size
        self._kept_bytes += (size or 0) - (before or 0)


def _keeps(event: AuditEvent, size: int) -> int:
    return size + TERMINAL_GROWTH if event.outcome is Outcome.AUTHORIZED else 0

"""The rows of sessions' memories, in memory: for several guards on one store, and sessions that one guard let go."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from guarded_core.provenance.journal import Kept, Lookup, Recalled, Row

MAX_BYTES = 64_000_000


class Memories:
    """Rows by session, each session's in their order; of too many, those that were used least lately go.

    A session whose rows are gone is one whose calls are not known. Not safe by itself: the store's lock is around it.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[str, dict[tuple[str, int], tuple[int, Row]]] = OrderedDict()
        self._bytes = 0
        self._last = 0

    def add(self, rows: Iterable[Row]) -> None:
        """Keep those that are not there yet."""
        for row in rows:
            of_session = self._rows.setdefault(row.session_id, {})
            self._rows.move_to_end(row.session_id)
            if (row.writer, row.number) not in of_session:
                self._last += 1
                self._bytes += len(row.sealed)
                of_session[row.writer, row.number] = self._last, row
        while self._bytes > MAX_BYTES:
            self._forget(next(iter(self._rows)))

    def answer(self, lookup: Lookup) -> Recalled:
        """Keep what it adds, and give what it asks for."""
        self.add(lookup.adds)
        found = []
        for n, row in self._rows.get(lookup.session_id, {}).values():
            if n > lookup.after:
                sealed = None if row.writer == lookup.writer else row.sealed
                found.append(Kept(n, row.writer, row.number, sealed))
        return Recalled(lookup=lookup, rows=tuple(found))

    def drop(self, principal: str) -> None:
        """Delete all that is of that person's sessions."""
        for session_id, rows in list(self._rows.items()):
            if any(row.principal == principal for _, row in rows.values()):
                self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        self._bytes -= sum(len(row.sealed) for _, row in self._rows.pop(session_id).values())

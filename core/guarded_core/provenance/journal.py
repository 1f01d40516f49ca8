"""What a session's memory leaves in the store, row by row, and what it finds there of other processes.

Every process that has the session is a writer with numbers of its own; the store puts the rows of all of them into one
order. A row that is missing, cannot be opened or cannot be read leaves a gap, and with a gap nothing is trusted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from guarded_core.ground.ids import new_id
from guarded_core.ground.struct import struct
from guarded_core.provenance.events import Event, Missed, Page, Pasted, Said, Seen
from guarded_core.provenance.seals import Seals

MAX_BYTES = 8_000_000  # of one session's rows; what comes later is missed
MAX_NOTED = 1_000_000  # characters that wait for the next row


@dataclass(frozen=True, slots=True, repr=False)
class Row:
    """A row of a session's memory, as a store takes it.

    Attributes:
        session_id: the root session's key.
        principal: whose session it is.
        writer: the process and memory that wrote it.
        number: of the writer's rows in this session, from 1.
        sealed: its content.
    """

    session_id: str
    principal: str
    writer: str
    number: int
    sealed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Kept:
    """A row as a store gives it back.

    Attributes:
        n: its place in the order in which the session's rows were committed.
        writer, number: see `Row`.
        sealed: its content; None for a row of the one who asks, which needs no more than its place.
    """

    n: int
    writer: str
    number: int
    sealed: bytes | None


@struct
class Lookup:
    """What a load reads and keeps of a session's memory.

    Attributes:
        session_id: whose.
        after: rows after that place are read.
        writer: whose rows come without their content.
        adds: rows to keep first, in the same transaction; one that is there already stays as it is.
    """

    session_id: str
    after: int
    writer: str
    adds: tuple[Row, ...] = ()


@struct
class Recalled:
    """What a store answers a `Lookup`: the rows in their order."""

    lookup: Lookup
    rows: tuple[Kept, ...]


class Journal:
    """One process's side of a session's memory in the store. Not safe by itself: its memory's lock is around it.

    Args:
        seals: open and seal rows.
        session_id: the root session's key.
        principal: whose it is.

    Attributes:
        is_torn: whether a row could not be read, for good.
        is_behind: whether rows came from before what this memory took in itself: all of it has to be read anew.
    """

    def __init__(self, seals: Seals, session_id: str, principal: str) -> None:
        self._seals, self._session_id, self._principal = seals, session_id, principal
        self._noted: list[Event] = []
        self._noted_size = 0
        self._begin_writing()
        self._begin_reading()

    def _begin_writing(self) -> None:
        self._process, self._writer, self._number = os.getpid(), new_id(), 0
        self._unsent: dict[int, tuple[Row, Page]] = {}
        self._sights: set[int] = set()  # own rows that say what was seen, whose place is not known yet

    def _begin_reading(self) -> None:
        self._after = self._bytes = 0
        self._numbers: dict[str, tuple[int, int]] = {}  # by writer: the highest, and how many
        self.is_torn = self.is_behind = False

    # Writing

    def note(self, event: Event) -> None:
        """Have an event go into the next row."""
        self._noted_size += _size(event)
        if self._noted_size > MAX_NOTED:  # where no rule asks, nobody asks for rows
            self._noted = []
            event = Missed()
        if self._noted[-1:] != [Missed()] or event != Missed():
            self._noted.append(event)

    def rows(self, call_id: str = "") -> tuple[Row, ...]:
        """All rows that the store is not known to have, the last of them with what was noted, and this call's end."""
        if self._process != os.getpid():  # a fork: the parent goes on with its own numbers
            self._begin_writing()
        if self._noted or call_id:
            page = Page(tuple(self._noted), call_id)
            self._noted, self._noted_size = [], 0
            self._number += 1
            self._unsent[self._number] = self._row(page), page
            if any(isinstance(event, Seen) for event in page.events):
                self._sights.add(self._number)
        return tuple([row for row, _ in self._unsent.values()])

    def _row(self, page: Page) -> Row:
        try:
            text = page.encode()
        except (TypeError, ValueError, RecursionError):
            text = b""
        if not text or self._bytes + len(text) > MAX_BYTES:
            text = Page((Missed(),), page.call_id).encode()
        self._bytes += len(text)
        sealed = self._seals.seal(text, *self._about(self._writer, self._number))
        return Row(self._session_id, self._principal, self._writer, self._number, sealed)

    def _about(self, writer: str, number: int) -> tuple[str, ...]:
        return self._session_id, self._principal, writer, str(number)

    def sent(self, rows: Sequence[Row]) -> None:
        """The store has these."""
        for row in rows:
            if row.writer == self._writer:
                self._unsent.pop(row.number, None)

    def forget(self) -> None:
        """Let go of what waits, and never trust again that all is there."""
        self._noted, self._noted_size = [], 0
        self._begin_writing()
        self._begin_reading()
        self.is_torn = True

    @property
    def has_unsent(self) -> bool:
        """Whether something is noted that the store is not known to have."""
        return bool(self._noted or self._unsent)

    def unsent(self) -> Iterator[Event]:
        """What the store may not have yet, in order."""
        for _, page in self._unsent.values():
            yield from page.events
        yield from self._noted

    # Reading

    def lookup(self) -> Lookup:
        """What the next load is to ask for: what is new, or all of it where it has to be read anew."""
        after, writer = (0, "") if self.is_behind else (self._after, self._writer)
        return Lookup(session_id=self._session_id, after=after, writer=writer, adds=self.rows())

    def arrived(self, recalled: Recalled) -> list[Page] | None:
        """What the rows of others say, in order; after a `lookup` of all, what all rows say, to begin anew with.

        None where some came before what was seen here already: in another order, verdicts would differ from those of
        one process. Then it `is_behind`.
        """
        lookup = recalled.lookup
        self.sent(lookup.adds)
        if not lookup.writer:
            self._begin_reading()
            pages = self._read(recalled.rows)
            own = self._numbers.get(self._writer, (0, 0))[1]
            self.is_behind = own + len(self._unsent) < self._number  # one of them came to be while all was read
            return pages
        rows = [row for row in recalled.rows if row.n > self._after]
        if self._is_late(rows):
            self.is_behind = True
            return None
        return self._read(rows)

    def _is_late(self, rows: Sequence[Kept]) -> bool:
        """Whether a row of another's stands before one of what was seen here."""
        others = [row.n for row in rows if row.sealed is not None]
        placed = {row.number: row.n for row in rows if row.sealed is None}
        return bool(others) and any(placed.get(number, others[0] + 1) > others[0] for number in self._sights)

    def _read(self, rows: Sequence[Kept]) -> list[Page]:
        pages = []
        for row in rows:
            self._after = max(self._after, row.n)
            highest, count = self._numbers.get(row.writer, (0, 0))
            self._numbers[row.writer] = max(highest, row.number), count + 1
            if row.writer == self._writer:
                self._sights.discard(row.number)
            if row.sealed is None:
                continue
            try:
                text = self._seals.open(row.sealed, *self._about(row.writer, row.number))
                pages.append(Page.decode(text))
            except ValueError:
                self.is_torn = True
                continue
            self._bytes += len(text)
        return pages

    @property
    def has_gap(self) -> bool:
        """Whether there is a row that is not known: one of a writer's numbers, one that cannot be read."""
        numbers = [found for writer, found in self._numbers.items() if writer != self._writer]
        return self.is_torn or self.is_behind or any(highest > count for highest, count in numbers)


def _size(event: Event) -> int:
    match event:
        case Said(text) | Pasted(text):
            return len(text)
        case Seen(leaves=leaves):
            return sum([len(leaf.text) for leaf in leaves])
        case _:
            return 0

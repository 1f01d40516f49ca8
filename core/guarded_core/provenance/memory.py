"""A session's memory of what was said and of what tools returned, for its threads and, by the store, its processes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from guarded_core.provenance.calls import Calls
from guarded_core.provenance.events import Approved, Event, KnownAs, Missed, Page, Pasted, Said, Seen
from guarded_core.provenance.index import Index, LabelsOf
from guarded_core.provenance.journal import Journal, Lookup, Recalled, Row
from guarded_core.provenance.labels import Labels, leaves
from guarded_core.provenance.origin import Spot, Trace
from guarded_core.provenance.structure import structured

_log = logging.getLogger(__name__)


class Provenance:
    """Where the values of a session came from; shared by all that was delegated from it.

    Safe to use from several threads. Memory and time are bounded: what does not fit is unknown, and nothing counts as
    the only one of its kind any more.

    Args:
        principal: the user's own name or address, as authenticated.
        is_shared: whether others may make calls in the session: it has a name to pick it up by.
        journal: what keeps it in the session's store, for other processes.
    """

    def __init__(self, principal: str = "", *, is_shared: bool = False, journal: Journal | None = None) -> None:
        self._lock = threading.Lock()
        self._principal = principal
        self._journal = journal
        self._calls = Calls(is_shared=is_shared)
        self._index = Index(principal)

    # What comes in

    def said(self, text: str, locales: Iterable[str] = ()) -> None:
        """Take in what the user said: a request, or a later turn. Never a model's words.

        What they quote is a source that they point at, not their word; what they say must not be is not taken in.

        Args:
            text: the turn.
            locales: the languages that its numbers and dates may be written in; none for any.
        """
        self._take_in(Said(text, tuple(locales)))

    def pasted(self, text: str) -> None:
        """Take in somebody else's text that the user handed over: a source that they point at."""
        self._take_in(Pasted(text))

    def known_as(self, *names: str) -> None:
        """Take in names, addresses and accounts that the user goes by: as if said; what they wrote is theirs."""
        if names := tuple(filter(None, names)):
            self._take_in(KnownAs(names))

    def approved(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Take in a payload that a person approved: each value is the user's in its own place from now on.

        Approving a call is not saying its text: nowhere else does it prove anything.
        """
        self._take_in(Approved(tool, arguments))

    def observe(
        self,
        tool: str,
        output: Any,
        labels: Labels,
        *,
        arguments: Mapping[str, Any] | None = None,
        call_id: str = "",
        failed: bool = False,
    ) -> None:
        """Take in what a tool returned.

        Args:
            tool: its name.
            output: JSON, models, dataclasses, or text; text that is JSON, a Markdown table, a mail with its head, lines
                of ``name: value`` or CSV is read as such. Anything else has no values that are known afterwards.
            labels: what the policy says of its parts.
            arguments: what it was called with: what an output echoes of them gains nothing by it.
            call_id: the guard's id of the call.
            failed: whether it reported a failure: then the policy's `labels` say nothing of it anywhere else either.
        """
        output = structured(output, any_form=labels.reads_structure)
        found, is_whole = leaves(output)
        for setting, pointer in labels.unmet(output, found):
            _log.warning("the label %s = %r covers nothing of what %s returned", setting, pointer, tool)
        seen = Seen(tool, "" if failed else tool, call_id, arguments or {}, found, is_whole)
        self._take_in(seen, lambda tool: labels)

    def missed(self) -> None:
        """Take note that something was returned unseen: nothing is trusted, or the only one of its kind, any more."""
        self._take_in(Missed())

    def _take_in(self, event: Event, labels: LabelsOf = Labels.none) -> None:
        with self._lock:
            self._index.apply(event, labels)
            if self._journal is not None:
                self._journal.note(event)

    # Calls, and other processes

    @contextmanager
    def committing(self, call_id: str) -> Iterator[None]:
        """Around the commit of a call of the session: it is known, unless that raises."""
        with self._lock:
            self._calls.begin()
        is_committed = False
        try:
            yield
            is_committed = True
        finally:
            with self._lock:
                self._calls.end(call_id if is_committed else None)

    def released(self, call_id: str) -> None:
        """A call that was committed never started, and gave back what it took."""
        with self._lock:
            self._calls.released(call_id)

    def rows(self, call_id: str, *, is_paused: bool = False) -> tuple[Row, ...]:
        """What the store is to keep with the end, or the pause, of that call; nothing where it keeps no memory."""
        with self._lock:
            if self._journal is not None:
                return self._journal.rows(call_id)
            if is_paused:
                self._calls.paused(call_id)  # it may go on elsewhere, and nothing would say so
            return ()

    def kept(self, rows: tuple[Row, ...]) -> None:
        """The store has these rows."""
        with self._lock:
            if self._journal is not None:
                self._journal.sent(rows)

    @property
    def has_unsent(self) -> bool:
        """Whether it knows of something that the store is still to keep."""
        return self._journal is not None and self._journal.has_unsent

    def lookup(self) -> Lookup | None:
        """What a load is to ask the store for; None where it keeps no memory."""
        with self._lock:
            return None if self._journal is None else self._journal.lookup()

    def forget(self) -> None:
        """Let go of all that was taken in; that there was something stays known."""
        with self._lock:
            self._index = Index(self._principal)
            self._index.apply(Missed(), Labels.none)
            if self._journal is not None:
                self._journal.forget()

    @property
    def has_gap(self) -> bool:
        """Whether the session made calls, or saw something, that is not known here: nothing in outputs is trusted."""
        return self._index.has_gap

    @property
    def is_behind(self) -> bool:
        """Whether the store has rows that stand before what was seen here: they are read with the next load."""
        return self._journal is not None and self._journal.is_behind

    def catch_up(self, spent: int, recalled: Recalled | None, labels: LabelsOf) -> None:
        """Take in what a load found.

        Args:
            spent: how many calls the session has made, in whatever process.
            recalled: what the store keeps of its memory.
            labels: what the policy says of a tool's output.
        """
        with self._lock:
            self._calls.count(spent)
            if self._journal is not None and recalled is not None:
                self._take_over(self._journal, recalled, labels)
            self._check_gaps()

    def _take_over(self, journal: Journal, recalled: Recalled, labels: LabelsOf) -> None:
        pages = journal.arrived(recalled)
        if pages is None:
            return
        if not recalled.lookup.writer:  # all of it, in its order
            self._index = Index(self._principal)
            pages.append(Page(tuple(journal.unsent())))
        for page in pages:
            if page.call_id:
                self._calls.know(page.call_id)
            for event in page.events:
                self._index.apply(event, labels)

    def _check_gaps(self) -> None:
        is_torn = self._journal is not None and self._journal.has_gap
        self._index.suspect(is_torn or self._calls.has_gap)

    # What is asked

    def trace(self, value: Any, kind: str = "auto", spot: Spot | None = None) -> tuple[Trace, ...]:
        """Where `value` was seen, best first.

        Args:
            value: a scalar; anything else is unknown.
            kind: a `Kind`, or "auto" for what the value looks like.
            spot: where in a call it stands; None for nowhere.
        """
        with self._lock:
            return self._index.trace(value, kind, spot)

    def identifiers(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each link, address and account in free text; what is malformed is unknown."""
        with self._lock:
            found = self._index.identifiers(text)
        yield from found

    def leaks(self, text: str) -> Trace | None:
        """A secret in `text`, or an identifier of a source that the user did not name; None where there is neither."""
        with self._lock:
            return self._index.leaks(text)

    def names(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each proper name in free text."""
        with self._lock:
            found = self._index.names(text)
        yield from found

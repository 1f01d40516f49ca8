"""What a session knows, as an index: no text is ever read again. One thread at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from guarded_core.ground.ids import new_id
from guarded_core.provenance.events import Approved, Event, KnownAs, Missed, Pasted, Said, Seen
from guarded_core.provenance.labels import Labels, leaves
from guarded_core.provenance.mentions import Outgoing, outgoing
from guarded_core.provenance.origin import UNKNOWN, Origin, Spot, Trace
from guarded_core.provenance.phrases import sought
from guarded_core.provenance.reading import Reading
from guarded_core.provenance.sightings import MAX_SIGHTINGS, PROVEN, Sightings, Source
from guarded_core.provenance.spoken import Spoken
from guarded_core.provenance.structure import structured
from guarded_core.provenance.utterance import utterance
from guarded_core.provenance.values import (
    Kind,
    canonical,
    codes,
    detect,
    is_downgrade,
    looks,
    normalised,
    plain,
    proper_names,
)

LabelsOf: TypeAlias = Callable[[str], Labels]

MAX_UNREAD = 8_192
MAX_UNREAD_OUTPUTS = 64
_LEAF = 160
_RANK = {origin: rank for rank, origin in enumerate(Origin)}
_PASTED, _PASTED_LABELS = "pasted text", Labels(named_by=("text",))
_READ = (Kind.NUMBER, Kind.AMOUNT, Kind.DATE)
_SUM = re.compile(
    r"(?:\A|_|-)(?:amount|sum|price|total|cost|fee|betrag|summe|preis|kosten|montant|somme|prix|importe|monto|precio|importo"
    r"|salary|deposit|refund|payment|tip|donation|budget|bid)s?(?:\Z|_|-|[A-Z])|(?:Amount|Sum|Price|Total|Cost|Fee)\Z"
)
_USERS = (Trace(origin=Origin.USER),)


class Index:
    """Where the values of a session came from, by what was taken in. Bounded: what does not fit is unknown.

    Args:
        principal: the user's own name or address, as authenticated.

    Attributes:
        misses: whether something was returned unseen.
    """

    def __init__(self, principal: str) -> None:
        self._spoken = Spoken()
        self._kept = Sightings()
        self._unread: list[Reading] = []
        self._unread_characters = 0
        self._self: set[str] = set()
        self.misses = False
        self._know_as((principal,))

    def suspect(self, has_gap: bool) -> None:
        """Whether there are calls that are not known: then nothing in outputs is trusted, as where it misses any."""
        self._kept.has_gap = has_gap or self.misses

    @property
    def has_gap(self) -> bool:
        """Whether there are calls that are not known, or something was returned unseen."""
        return self._kept.has_gap

    # What comes in

    def apply(self, event: Event, labels: LabelsOf) -> None:
        """Take in an event; `labels` has what the policy says of a tool's output."""
        match event:
            case Said(text, locales):
                turn = utterance(text)
                for part in turn.own:
                    self._say(part, locales)
                for block in turn.quoted:
                    self._point_at(block)
            case Pasted(text):
                self._point_at(text)
            case KnownAs(names):
                self._know_as(names)
            case Approved(tool, arguments):
                self._spoken.approve(tool, arguments)
            case Seen(tool, labelled_as, call_id, arguments, found, is_whole):
                self._see(Reading(tool, call_id, labels(labelled_as), arguments, found), is_whole)
            case Missed():
                self.misses = self._kept.has_gap = True

    def _point_at(self, text: str) -> None:
        name = f"pasted {new_id()}"  # that nobody can guess, and call another record by
        self._spoken.point(name)
        found, is_whole = leaves(structured(text))
        self._see(Reading(_PASTED, "", _PASTED_LABELS, {"text": name}, found), is_whole)

    def _know_as(self, names: Iterable[str]) -> None:
        for name in filter(None, names):
            self._say(name)
            if (form := canonical(detect(name), name)) is not None:
                self._self.add(form)

    def _see(self, reading: Reading, is_whole: bool) -> None:
        if not is_whole:
            self._kept.missed()
        self._unread.append(reading)
        self._unread_characters += sum(len(leaf.text) + _LEAF for leaf in reading.leaves)
        if self._unread_characters > MAX_UNREAD or len(self._unread) > MAX_UNREAD_OUTPUTS:
            self._read()

    def _read(self) -> None:
        """Index what came in: at once where it is much, else when somebody asks; most small outputs are never asked."""
        unread, self._unread, self._unread_characters = self._unread, [], 0
        if self._kept.is_full:
            return
        gap, self._kept.has_gap = self._kept.has_gap, False  # what counts as an echo must not hang on what may pass
        try:
            for reading in unread:
                self._kept.propose(reading.arguments, self._is_known)
                self._kept.take_in(reading, self._self)
        except Exception:
            self.misses = gap = True
            raise
        finally:
            self._kept.has_gap = gap

    def _is_known(self, kind: Kind, value: str) -> bool:
        if self._spoken.says(kind, value):
            return True
        return _RANK[self._trace(kind, value)[0].origin] <= _RANK[Origin.NAMED]

    def _say(self, text: str, locales: Iterable[str] = ()) -> None:
        for _, form in self._spoken.say(text, locales):
            self._kept.near.know(form)

    # What is asked

    def trace(self, value: Any, kind: str = "auto", spot: Spot | None = None) -> tuple[Trace, ...]:
        """Where `value` was seen, best first.

        Args:
            value: a scalar; anything else is unknown.
            kind: a `Kind`, or "auto" for what the value looks like.
            spot: where in a call it stands; None for nowhere.
        """
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return UNKNOWN
        text = value if isinstance(value, str) else plain(value)
        self._read()
        if spot is not None and self._spoken.approved(spot, text):
            return _USERS
        return self._trace_at(kind, text, spot)

    def _trace_at(self, kind: str, text: str, spot: Spot | None) -> tuple[Trace, ...]:
        asked = looks(text) if kind == "auto" else Kind(kind)
        if asked is Kind.NUMBER and spot is not None and _is_sum(spot):
            asked = Kind.AMOUNT
        traces = self._trace(asked, text)
        if traces[0].origin is not Origin.USER:
            # What a number is for is not known here: the number of a thing that the user named is theirs as well.
            is_name = kind == "auto" and asked is Kind.NUMBER and self._spoken.holds(Kind.ID, text, text)
            return (*_USERS, *traces) if is_name else traces
        if asked in _READ and self._is_doubtful(asked, text, spot):
            return tuple(trace for trace in traces if trace.origin is not Origin.USER) or UNKNOWN
        return traces

    def _is_doubtful(self, kind: Kind, text: str, spot: Spot | None) -> bool:
        """Whether the call holds another reading of the same words beside this one."""
        rivals = self._spoken.rivals(kind, canonical(kind, text) or "")
        if not rivals or spot is None:
            return False
        return any(canonical(kind, leaf.text) in rivals for leaf in leaves(spot.arguments)[0])

    def identifiers(self, text: str) -> list[tuple[Trace, ...]]:
        """The traces of each link, address and account in free text; what is malformed is unknown."""
        text = normalised(text)
        self._read()
        return [self._trace_out(each) for each in outgoing(text)]

    def _trace_out(self, found: Outgoing) -> tuple[Trace, ...]:
        if found.kind is None:
            return UNKNOWN
        traces = self._trace(found.kind, found.raw)
        if not found.is_word or traces[0].origin is Origin.USER:
            return traces
        both = (*traces, *self._trace(Kind.VERBATIM, found.raw))
        return tuple(sorted(both, key=lambda trace: _RANK[trace.origin]))

    def leaks(self, text: str) -> Trace | None:
        """A secret in `text`, or an identifier of a source that the user did not name; None where there is neither."""
        text = normalised(text)
        self._read()
        for secret, source in self._kept.secrets_in(text):
            if not self._spoken.mentions(secret):
                return _traced(Origin.SECRET, source)
        for code in codes(text):
            if self._spoken.code(code):
                continue
            sources = self._kept.codes.get(code)
            if sources is None:
                if not self._kept.is_complete:
                    return UNKNOWN[0]
            elif not any(self._may_leave(source) for source in sources):
                return _traced(Origin.UNTRUSTED, sources[0])
        return UNKNOWN[0] if self._kept.secrets.is_full else None

    def names(self, text: str) -> list[tuple[Trace, ...]]:
        """The traces of each proper name in free text."""
        found = list(dict.fromkeys(proper_names(normalised(text))))
        self._read()
        return [self._trace(Kind.PHRASE, name) for name in found]

    def _may_leave(self, source: Source) -> bool:
        return self._kept.worth(source) in PROVEN or any(map(self._spoken.names, source.names))

    def _is_linked(self, name: str) -> bool:
        """Whether a member named the record, by its address."""
        return any(source.origin is Origin.MEMBER for source in self._kept.tokens.get((Kind.URL, name), ()))

    def _trace(self, kind: Kind, value: str) -> tuple[Trace, ...]:
        form = canonical(kind, value)
        if form is None:
            return UNKNOWN
        found: dict[Trace, None] = {}
        exact = sought(form) if kind in (Kind.VERBATIM, Kind.EXACT) else None
        if self._spoken.holds(kind, form, value, exact):
            found[_USERS[0]] = None
        for source in self._kept.tokens.get((Kind.NUMBER if kind is Kind.AMOUNT else kind, form), ()):
            if not (kind is Kind.URL and source.is_secure and is_downgrade(value)):
                found.update((_traced(origin, source), None) for origin in self._origins(source, kind, form))
        if kind is Kind.PHRASE or exact is not None:
            for index in (self._kept.trusted, self._kept.seen):
                hits = index.find(form.split(" ")) if exact is None else index.find_exactly(exact)
                sources = {id(source): source for source in islice(hits, MAX_SIGHTINGS)}
                for source in sources.values():
                    found.update((_traced(origin, source), None) for origin in self._origins(source, kind, form))
        traces = sorted(found, key=lambda trace: _RANK[trace.origin])
        if not traces:
            return UNKNOWN
        may_resemble = exact is None or any(sign in form for sign in "@./")
        if may_resemble and _RANK[traces[0].origin] > _RANK[Origin.MADE] and self._kept.near.resembles(form):
            return (Trace(origin=Origin.LOOKALIKE, call_id=traces[0].call_id, tool=traces[0].tool),)
        return tuple(traces)

    def _origins(self, source: Source, kind: Kind, form: str) -> Iterator[Origin]:
        """What a sighting is worth by what is known now."""
        # A link with a query may carry out what it was made for.
        carries = source.origin is Origin.MEMBER and kind is Kind.URL and "?" in form
        yield Origin.UNTRUSTED if carries else self._kept.worth(source)
        if not self._kept.is_complete:
            return
        for name in source.names:
            if self._spoken.names(name):
                group = self._kept.named.get(name)
                if group is not None and source.is_person and len(group.records) == 1:
                    yield Origin.OWN
                    yield Origin.NAMED
                if group is not None and (source.is_id or source.is_text) and group.only.get(kind) == form:
                    yield Origin.NAMED
                yield Origin.MENTIONED
            elif self._is_linked(name):
                yield Origin.MENTIONED


def _is_sum(spot: Spot) -> bool:
    """Whether a parameter is called as sums of money are."""
    name = next((step for step in reversed(spot.path) if step != "*"), "")
    return _SUM.search(name) is not None


def _traced(origin: Origin, source: Source) -> Trace:
    return Trace(origin=origin, call_id=source.call_id, tool=source.tool)

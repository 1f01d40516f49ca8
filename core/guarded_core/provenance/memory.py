"""A session's memory of what was said and of what tools returned, as an index: no text is ever read again."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from guarded_core.ground.ids import new_id
from guarded_core.provenance.labels import Labels, leaves
from guarded_core.provenance.mentions import Outgoing, outgoing
from guarded_core.provenance.origin import UNKNOWN, Origin, Spot, Trace
from guarded_core.provenance.phrases import sought
from guarded_core.provenance.reading import Reading
from guarded_core.provenance.sightings import MAX_SIGHTINGS, Sightings, Source
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

_log = logging.getLogger(__name__)

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
_GOOD = (Origin.TRUSTED, Origin.MADE, Origin.KNOWN)
_USERS = (Trace(origin=Origin.USER),)


class Provenance:
    """Where the values of a session came from; shared by all that was delegated from it.

    Safe to use from several threads. Memory and time are bounded: what does not fit is unknown, and nothing counts as
    the only one of its kind any more.

    Args:
        principal: the user's own name or address, as authenticated.
        is_complete: False where the session began elsewhere: what was read there is unknown. None where that is not
            known yet, until `begins`.
    """

    def __init__(self, principal: str = "", *, is_complete: bool | None = True) -> None:
        self._lock = threading.Lock()
        self._spoken = Spoken()
        self._kept = Sightings(is_complete=is_complete is not False)
        self._unread: list[Reading] = []
        self._unread_characters = 0
        self._is_undecided = is_complete is None
        self._self: set[str] = set()
        self.known_as(principal)

    def begins(self, *, has_begun: bool) -> None:
        """Say whether the session has made calls elsewhere, as its first step finds it; only the first word counts."""
        with self._lock:
            if self._is_undecided:
                self._is_undecided = False
                if has_begun:
                    self._kept.missed()

    # What comes in

    def said(self, text: str, locales: Iterable[str] = ()) -> None:
        """Take in what the user said: a request, or a later turn. Never a model's words.

        What they quote is a source that they point at, not their word; what they say must not be is not taken in.

        Args:
            text: the turn.
            locales: the languages that its numbers and dates may be written in; none for any.
        """
        turn = utterance(text)
        for part in turn.own:
            with self._lock:
                self._say(part, locales)
        for block in turn.quoted:
            self.pasted(block)

    def pasted(self, text: str) -> None:
        """Take in somebody else's text that the user handed over: a source that they point at."""
        name = f"pasted {new_id()}"  # that nobody can guess, and call another record by
        with self._lock:
            self._spoken.point(name)
        self.observe(_PASTED, text, _PASTED_LABELS, arguments={"text": name})

    def known_as(self, *names: str) -> None:
        """Take in names, addresses and accounts that the user goes by: as if said; what they wrote is theirs."""
        with self._lock:
            for name in filter(None, names):
                self._say(name)
                if (form := canonical(detect(name), name)) is not None:
                    self._self.add(form)

    def approved(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Take in a payload that a person approved: each value is the user's in its own place from now on.

        Approving a call is not saying its text: nowhere else does it prove anything.
        """
        with self._lock:
            self._spoken.approve(tool, arguments)

    def observe(
        self, tool: str, output: Any, labels: Labels, *, arguments: Mapping[str, Any] | None = None, call_id: str = ""
    ) -> None:
        """Take in what a tool returned.

        Args:
            tool: its name.
            output: JSON, models, dataclasses, or text; text that is JSON, a Markdown table, a mail with its head, lines
                of ``name: value`` or CSV is read as such. Anything else has no values that are known afterwards.
            labels: what the policy says of its parts.
            arguments: what it was called with: what an output echoes of them gains nothing by it.
            call_id: the guard's id of the call.
        """
        output = structured(output, any_form=labels.reads_structure)
        found, is_whole = leaves(output)
        for setting, pointer in labels.unmet(output, found):
            _log.warning("the label %s = %r covers nothing of what %s returned", setting, pointer, tool)
        reading = Reading(tool, call_id, labels, arguments or {}, found)
        with self._lock:
            if not is_whole:
                self._kept.missed()
            self._unread.append(reading)
            self._unread_characters += sum(len(leaf.text) + _LEAF for leaf in reading.leaves)
            if self._unread_characters > MAX_UNREAD or len(self._unread) > MAX_UNREAD_OUTPUTS:
                self._read()

    def missed(self) -> None:
        """Take note that something was returned unseen: nothing counts as the only one of its kind any more."""
        self._kept.missed()

    def _read(self) -> None:
        """Index what came in: at once where it is much, else when somebody asks; most small outputs are never asked."""
        unread, self._unread, self._unread_characters = self._unread, [], 0
        if self._kept.is_full:
            return
        try:
            for reading in unread:
                self._kept.propose(reading.arguments, self._is_known)
                self._kept.take_in(reading, self._self)
        except Exception:
            self._kept.missed()
            raise

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
        with self._lock:
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

    def identifiers(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each link, address and account in free text; what is malformed is unknown."""
        text = normalised(text)
        found = outgoing(text)
        with self._lock:
            self._read()
            traces = [self._trace_out(each) for each in found]
        yield from traces

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
        with self._lock:
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

    def names(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each proper name in free text."""
        found = list(dict.fromkeys(proper_names(normalised(text))))
        with self._lock:
            self._read()
            traces = [self._trace(Kind.PHRASE, name) for name in found]
        yield from traces

    def _may_leave(self, source: Source) -> bool:
        return source.origin in (Origin.TRUSTED, Origin.MADE, Origin.KNOWN) or any(
            map(self._spoken.names, source.names)
        )

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
        yield Origin.UNTRUSTED if carries else source.origin
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

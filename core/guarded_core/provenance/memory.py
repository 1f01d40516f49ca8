"""A session's memory of what was said and of what tools returned, as an index: no text is ever read again."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from guarded_core.ground.ids import new_id
from guarded_core.provenance.labels import Labels, Leaf, leaves
from guarded_core.provenance.lookalike import Lookalikes
from guarded_core.provenance.mentions import Outgoing, identifiers, outgoing
from guarded_core.provenance.ngrams import MAX_RUN, NGrams, pieces
from guarded_core.provenance.origin import UNKNOWN, Origin, Spot, Trace
from guarded_core.provenance.phrases import PhraseIndex
from guarded_core.provenance.reading import Reading
from guarded_core.provenance.room import Room
from guarded_core.provenance.spoken import Spoken
from guarded_core.provenance.structure import structured
from guarded_core.provenance.utterance import utterance
from guarded_core.provenance.values import (
    Kind,
    Token,
    canonical,
    codes,
    detect,
    is_downgrade,
    normalised,
    plain,
    proper_names,
    words,
    words_at,
)

_log = logging.getLogger("guarded_core")

MAX_BYTES = 3_000_000  # of what was returned; the user's own words have a room of theirs
MAX_TOKENS = 200_000
MAX_RECORDS = 20_000
MAX_SIGHTINGS = 32
MAX_PROPOSED = 10_000
MAX_SECRETS = 20_000
MAX_UNREAD = 8_192
MAX_UNREAD_OUTPUTS = 64
_MIN_SECRET = 4
_MAX_TYPED = 256
_TOKEN, _SIGHTING, _SOURCE, _PROPOSED, _GROUP, _LEAF = 240, 40, 180, 480, 600, 160
_SECRET_WORD = re.compile(r"\w+")
_RANK = {origin: rank for rank, origin in enumerate(Origin)}
_PASTED, _PASTED_LABELS = "pasted text", Labels(named_by=("text",))
_READ = (Kind.NUMBER, Kind.AMOUNT, Kind.DATE)
_SUM = re.compile(
    r"(?:\A|_|-)(?:amount|sum|price|total|cost|fee|betrag|summe|preis|kosten|montant|somme|prix|importe|monto|precio|importo"
    r"|salary|deposit|refund|payment|tip|donation|budget|bid)s?(?:\Z|_|-|[A-Z])|(?:Amount|Sum|Price|Total|Cost|Fee)\Z"
)
_USERS = (Trace(origin=Origin.USER),)


@dataclass(slots=True, repr=False)
class _Named:
    """All that was read under one name, whatever record it stood in."""

    only: dict[Kind, str | None] = field(default_factory=dict)  # None where there are several of a kind
    records: set[int] = field(default_factory=set)

    def hold(self, kind: Kind, form: str) -> None:
        if self.only.setdefault(kind, form) != form:
            self.only[kind] = None


@dataclass(frozen=True, slots=True, repr=False)
class _Source:
    """A part of an output: the call, the names of the record, and what the policy says of it."""

    call_id: str
    tool: str
    names: tuple[str, ...]
    origin: Origin
    is_text: bool = False
    is_id: bool = False
    is_person: bool = False
    is_secure: bool = False


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
        self._room = room = Room(MAX_BYTES)
        self._spoken = Spoken()
        self._tokens: dict[Token, list[_Source]] = {}
        self._codes: dict[str, list[_Source]] = {}
        self._count = 0
        self._named: dict[str, _Named] = {}
        self._trusted = PhraseIndex[_Source](room)
        self._seen = PhraseIndex[_Source](room)
        self._secrets = NGrams[_Source](MAX_SECRETS, room)
        self._proposed: set[Token] = set()
        self._echoes = NGrams[None](MAX_PROPOSED, room)
        self._near = Lookalikes(room)
        self._unread: list[Reading] = []
        self._unread_characters = 0
        self._has_all = is_complete is not False
        self._is_undecided = is_complete is None
        self._self: set[str] = set()
        self.known_as(principal)

    def begins(self, *, has_begun: bool) -> None:
        """Say whether the session has made calls elsewhere, as its first step finds it; only the first word counts."""
        with self._lock:
            if self._is_undecided:
                self._has_all, self._is_undecided = not has_begun, False

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
            self._has_all = self._has_all and is_whole
            self._unread.append(reading)
            self._unread_characters += sum(len(leaf.text) + _LEAF for leaf in reading.leaves)
            if self._unread_characters > MAX_UNREAD or len(self._unread) > MAX_UNREAD_OUTPUTS:
                self._read()

    def missed(self) -> None:
        """Take note that something was returned unseen: nothing counts as the only one of its kind any more."""
        self._has_all = False

    def _read(self) -> None:
        """Index what came in: at once where it is much, else when somebody asks; most small outputs are never asked."""
        unread, self._unread, self._unread_characters = self._unread, [], 0
        if self._room.is_full:
            return
        try:
            for reading in unread:
                self._propose(reading.arguments)
                self._take_in(reading)
        except Exception:
            self._has_all = False
            raise

    def _say(self, text: str, locales: Iterable[str] = ()) -> None:
        for _, form in self._spoken.say(text, locales):
            self._near.know(form)

    def _propose(self, arguments: Mapping[str, Any]) -> None:
        for leaf in leaves(arguments)[0]:
            mentioned = [(kind, raw) for kind, _, raw in identifiers(normalised(leaf.text))]
            for kind, value in [(_looks(leaf.text), leaf.text), *mentioned]:
                if _RANK[self._trace(kind, value)[0].origin] <= _RANK[Origin.NAMED]:
                    continue
                if kind is Kind.VERBATIM:
                    for piece in pieces(words(normalised(value))):
                        self._echoes.add(piece, None)
                    kind = Kind.PHRASE
                form = canonical(kind, value)
                if form is None or (kind, form) in self._proposed:
                    continue
                if len(self._proposed) >= MAX_PROPOSED or not self._room.take(_PROPOSED + 4 * len(form)):
                    self._has_all = False
                    return
                self._proposed.add((kind, form))
                self._proposed.add((Kind.ID, value))

    def _take_in(self, reading: Reading) -> None:
        for record in reading.records():
            own = reading.is_own(record, self._self)
            names = reading.names(record)
            groups = [group for name in names if (group := self._group(name)) is not None]
            for group in groups:
                if len(group.records) < 2:
                    group.records.add(reading.digest(record))
            sources: dict[_Source, _Source] = {}
            for leaf in record:
                self._take_in_leaf(reading, leaf, names, groups, own, sources)

    def _group(self, name: str) -> _Named | None:
        group = self._named.get(name)
        if group is None and len(self._named) < MAX_RECORDS and self._room.take(_GROUP + len(name)):
            group = self._named[name] = _Named()
        return group

    def _take_in_leaf(
        self,
        reading: Reading,
        leaf: Leaf,
        names: tuple[str, ...],
        groups: list[_Named],
        own: bool | None,
        sources: dict[_Source, _Source],
    ) -> None:
        marks, labels = reading.labels.marks(leaf.path), reading.labels
        origin = Origin.MEMBER if labels.members else Origin.UNTRUSTED
        if marks.id and labels.makes and self._may_trust:
            origin = Origin.MADE
        elif marks.trusted and self._may_trust:
            origin = Origin.TRUSTED
        elif marks.people and own is True:
            origin = Origin.OWN  # the user wrote to them
        is_person, is_text = marks.people and own is not False, not (marks.people or marks.author)

        source = _Source(
            reading.call_id, reading.tool, names, origin, is_text=is_text, is_id=marks.id, is_person=is_person
        )
        known = sources.get(source)
        if known is None:
            self._room.take(_SOURCE)
            known = sources[source] = source
        source = known
        text = normalised(leaf.text)
        if marks.secret:
            self._keep_secret(text, source)
        if len(leaf.text) <= _MAX_TYPED:
            self._see_whole(leaf.text, source, groups if marks.id else [])
        for kind, form, raw in identifiers(text):
            is_secure = raw[:8].lower() == "https://"
            self._see(kind, form, replace(source, is_secure=True) if is_secure else source)
            if is_text:
                for group in groups:
                    group.hold(kind, form)
        for code in codes(text):
            self._keep(self._codes, code, source)
        if origin is not Origin.TRUSTED:
            self._seen.add(text, source)
            return
        placed = words_at(text)
        for start, end in self._echoes.cut([word for _, word in placed]):
            from_, to = placed[start][0] if start else 0, placed[end][0] if end < len(placed) else len(text)
            self._trusted.add(text[from_:to], source)

    @property
    def _may_trust(self) -> bool:
        return not self._room.is_full and not self._echoes.is_full and len(self._proposed) < MAX_PROPOSED

    @property
    def _is_complete(self) -> bool:
        """Whether all that was returned is known: only then is anything the only one of its kind."""
        return self._has_all and not self._room.is_full

    def _see_whole(self, value: str, source: _Source, groups: list[_Named]) -> None:
        kind = detect(value)
        if kind in (Kind.NUMBER, Kind.DATE) and (form := canonical(kind, value)) is not None:
            self._see(kind, form, source)
        is_typed = source.is_id or source.origin in (Origin.TRUSTED, Origin.MADE)
        if is_typed and (form := canonical(Kind.ID, value)) is not None:
            self._see(Kind.ID, form, source)
            for group in groups:
                group.hold(Kind.ID, form)
        if source.is_person and (form := canonical(Kind.PHRASE, value)) is not None:
            self._see(Kind.PHRASE, form, source)

    def _see(self, kind: Kind, form: str, source: _Source) -> None:
        if (kind, form) in self._proposed:
            # The call itself brought it here; the output proves nothing of it.
            source = _Source(source.call_id, source.tool, (), Origin.UNTRUSTED)
        elif source.origin is Origin.TRUSTED and kind in (Kind.EMAIL, Kind.URL):
            self._near.know(form)
        self._keep(self._tokens, (kind, form), source)

    def _keep(self, index: dict[Any, list[_Source]], key: Any, source: _Source) -> None:
        sources = index.get(key)
        if sources is None:
            if self._count >= MAX_TOKENS or not self._room.take(_TOKEN + 2 * len(key if type(key) is str else key[1])):
                self._has_all = False
                return
            self._count += 1
            sources = index[key] = []
        if len(sources) < MAX_SIGHTINGS and source not in sources and self._room.take(_SIGHTING):
            sources.append(source)

    def _keep_secret(self, text: str, source: _Source) -> None:
        row = _SECRET_WORD.findall(text.casefold())
        for start in range(0, len(row), MAX_RUN):  # a part of a long secret is one as well
            run = row[start : start + MAX_RUN]
            if sum(map(len, run)) >= _MIN_SECRET:
                self._secrets.add(run, source)

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
        asked = _looks(text) if kind == "auto" else Kind(kind)
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
            row = _SECRET_WORD.findall(text.casefold())
            for start, end, source in self._secrets.find(row):
                if not self._spoken.mentions(" ".join(row[start:end])):
                    return _traced(Origin.SECRET, source)
            for code in codes(text):
                if self._spoken.code(code):
                    continue
                sources = self._codes.get(code)
                if sources is None:
                    if not self._is_complete:
                        return UNKNOWN[0]
                elif not any(self._may_leave(source) for source in sources):
                    return _traced(Origin.UNTRUSTED, sources[0])
            return UNKNOWN[0] if self._secrets.is_full else None

    def names(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each proper name in free text."""
        found = list(dict.fromkeys(proper_names(normalised(text))))
        with self._lock:
            self._read()
            traces = [self._trace(Kind.PHRASE, name) for name in found]
        yield from traces

    def _may_leave(self, source: _Source) -> bool:
        return source.origin in (Origin.TRUSTED, Origin.MADE, Origin.OWN) or any(map(self._spoken.names, source.names))

    def _is_linked(self, name: str) -> bool:
        """Whether a member named the record, by its address."""
        return any(source.origin is Origin.MEMBER for source in self._tokens.get((Kind.URL, name), ()))

    def _trace(self, kind: Kind, value: str) -> tuple[Trace, ...]:
        form = canonical(kind, value)
        if form is None:
            return UNKNOWN
        found: dict[Trace, None] = {}
        if self._spoken.holds(kind, form, value):
            found[Trace(origin=Origin.USER)] = None
        for source in self._tokens.get((Kind.NUMBER if kind is Kind.AMOUNT else kind, form), ()):
            if not (kind is Kind.URL and source.is_secure and is_downgrade(value)):
                found.update((_traced(origin, source), None) for origin in self._origins(source, kind, form))
        if kind in (Kind.PHRASE, Kind.VERBATIM, Kind.EXACT):
            for index in (self._trusted, self._seen):
                hits = index.find(form.split(" ")) if kind is Kind.PHRASE else index.find_exactly(form)
                sources = {id(source): source for source in islice(hits, MAX_SIGHTINGS)}
                for source in sources.values():
                    found.update((_traced(origin, source), None) for origin in self._origins(source, kind, form))
        traces = sorted(found, key=lambda trace: _RANK[trace.origin])
        if not traces:
            return UNKNOWN
        if _RANK[traces[0].origin] > _RANK[Origin.MADE] and self._near.resembles(form):
            return (Trace(origin=Origin.LOOKALIKE, call_id=traces[0].call_id, tool=traces[0].tool),)
        return tuple(traces)

    def _origins(self, source: _Source, kind: Kind, form: str) -> Iterator[Origin]:
        """What a sighting is worth by what is known now."""
        # A link with a query may carry out what it was made for.
        carries = source.origin is Origin.MEMBER and kind is Kind.URL and "?" in form
        yield Origin.UNTRUSTED if carries else source.origin
        if not self._is_complete:
            return
        for name in source.names:
            if self._spoken.names(name):
                group = self._named.get(name)
                if group is not None and source.is_person and len(group.records) == 1:
                    yield Origin.OWN
                if group is not None and (source.is_id or source.is_text) and group.only.get(kind) == form:
                    yield Origin.NAMED
                yield Origin.MENTIONED
            elif self._is_linked(name):
                yield Origin.MENTIONED


def _is_sum(spot: Spot) -> bool:
    """Whether a parameter is called as sums of money are."""
    name = next((step for step in reversed(spot.path) if step != "*"), "")
    return _SUM.search(name) is not None


def _looks(value: str) -> Kind:
    """The kind that a value is compared as where the policy names none."""
    kind = detect(value)
    return Kind.VERBATIM if kind is Kind.PHRASE else kind


def _traced(origin: Origin, source: _Source) -> Trace:
    return Trace(origin=origin, call_id=source.call_id, tool=source.tool)

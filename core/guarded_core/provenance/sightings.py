"""What tools returned, indexed: who said what where, and what the policy says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from guarded_core.provenance.labels import Leaf, Marks, leaves
from guarded_core.provenance.lookalike import Lookalikes
from guarded_core.provenance.mentions import identifiers
from guarded_core.provenance.ngrams import MAX_RUN, NGrams, pieces
from guarded_core.provenance.origin import Origin
from guarded_core.provenance.phrases import PhraseIndex
from guarded_core.provenance.reading import Reading
from guarded_core.provenance.room import Room
from guarded_core.provenance.values import Kind, Token, canonical, codes, detect, looks, normalised, words, words_at

MAX_BYTES = 4_200_000  # of what was returned; the user's own words have a room of theirs
MAX_TOKENS = 200_000
MAX_RECORDS = 20_000
MAX_SIGHTINGS = 32
MAX_PROPOSED = 10_000
MAX_SECRETS = 20_000
_MIN_SECRET = 4
_MAX_TYPED = 256
_TOKEN, _SIGHTING, _SOURCE, _PROPOSED, _GROUP, _KEY = 240, 40, 180, 480, 600, 100
PROVEN = (Origin.TRUSTED, Origin.MADE, Origin.KNOWN)
_SECRET_WORD = re.compile(r"\w+")


@dataclass(slots=True, repr=False)
class Named:
    """All that was read under one name, whatever record it stood in."""

    only: dict[Kind, str | None] = field(default_factory=dict)  # None where there are several of a kind
    records: set[int] = field(default_factory=set)

    def hold(self, kind: Kind, form: str) -> None:
        """Take in a value: the only one of its kind, or one of several."""
        if self.only.setdefault(kind, form) != form:
            self.only[kind] = None


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """A part of an output: the call, the names of the record, and what the policy says of it."""

    call_id: str = field(compare=False)  # of the first call that it was so in
    tool: str
    names: tuple[str, ...]
    origin: Origin
    is_text: bool = False
    is_id: bool = False
    is_person: bool = False
    is_secure: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the policy says nothing of it."""
        return self.origin in (Origin.UNTRUSTED, Origin.MEMBER) and not (self.is_id or self.is_person)


class Sightings:
    """The values of outputs, by where they were seen. Bounded: once something does not fit, nothing is unique any more.

    Attributes:
        has_gap: whether the session made calls that are not known here. What they were made with is not known either,
            and any output may echo it: then nothing in outputs is trusted.
    """

    def __init__(self) -> None:
        self._room = room = Room(MAX_BYTES)
        self._has_all = True
        self.has_gap = False
        self._count = 0
        self._looked_at: set[int] = set()
        self._proposed: set[Token] = set()
        self._echoes = NGrams[None](MAX_PROPOSED, room)
        self.tokens: dict[Token, list[Source]] = {}
        self.codes: dict[str, list[Source]] = {}
        self.named: dict[str, Named] = {}
        self.trusted, self.seen = PhraseIndex[Source](room), PhraseIndex[Source](room)
        self.secrets = NGrams[Source](MAX_SECRETS, room)
        self.near = Lookalikes(room)

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self._room.is_full

    @property
    def is_complete(self) -> bool:
        """Whether all that was returned is known: only then is anything the only one of its kind."""
        return self._has_all and not self.has_gap and not self._room.is_full

    def worth(self, source: Source) -> Origin:
        """What a sighting counts for by itself, by what is known now."""
        return Origin.UNTRUSTED if self.has_gap and source.origin in PROVEN else source.origin

    def missed(self) -> None:
        """Take note that something was returned unseen."""
        self._has_all = False

    def _is_new(self, what: Hashable) -> bool:
        """Whether this was not looked at before; the same again changes nothing."""
        key = hash(what)
        if key in self._looked_at:
            return False
        if self._room.take(_KEY):
            self._looked_at.add(key)
        return True

    def secrets_in(self, text: str) -> list[tuple[str, Source]]:
        """The secrets in normalised text, as their words joined by blanks, with where they are from."""
        row = _SECRET_WORD.findall(text.casefold())
        return [(" ".join(row[start:end]), source) for start, end, source in self.secrets.find(row)]

    def propose(self, arguments: Mapping[str, Any], is_known: Callable[[Kind, str], bool]) -> None:
        """Take in what a call was made with: what an output echoes of it gains nothing by it, unless it was known."""
        for leaf in leaves(arguments)[0]:
            if not self._is_new(leaf.text):
                continue
            mentioned = [(kind, raw) for kind, _, raw in identifiers(normalised(leaf.text))]
            for kind, value in [(looks(leaf.text), leaf.text), *mentioned]:
                if (kind, value) in self._proposed or is_known(kind, value):
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

    def take_in(self, reading: Reading, user: set[str]) -> None:
        """Index an output; `user` is what the user goes by."""
        for record in reading.records():
            own = reading.is_own(record, user)
            names = reading.names(record)
            groups = [group for name in names if (group := self._group(name)) is not None]
            for group in groups:
                if len(group.records) < 2:
                    group.records.add(reading.digest(record))
            sources: dict[int, tuple[Marks, Source]] = {}
            kept: set[int] = set()
            for leaf in record:
                marks = reading.labels.marks(leaf.path)
                if id(marks) not in sources:
                    sources[id(marks)] = marks, self._source(reading, marks, names, own)
                if self._take_in_leaf(leaf, marks, sources[id(marks)][1], groups):
                    kept.add(id(marks))
            self._room.take(_SOURCE * len(kept))

    def _group(self, name: str) -> Named | None:
        group = self.named.get(name)
        if group is None and len(self.named) < MAX_RECORDS and self._room.take(_GROUP + len(name)):
            group = self.named[name] = Named()
        return group

    def _source(self, reading: Reading, marks: Marks, names: tuple[str, ...], own: bool | None) -> Source:
        origin = Origin.MEMBER if reading.labels.members else Origin.UNTRUSTED
        if marks.id and reading.labels.makes and self._may_trust:
            origin = Origin.MADE
        elif marks.trusted and self._may_trust:
            origin = Origin.TRUSTED
        elif marks.people and own is True:
            origin = Origin.KNOWN  # the user wrote to them
        return Source(
            reading.call_id,
            reading.tool,
            names,
            origin,
            is_text=not (marks.people or marks.author),
            is_id=marks.id,
            is_person=marks.people and own is not False,
        )

    def _take_in_leaf(self, leaf: Leaf, marks: Marks, source: Source, groups: list[Named]) -> bool:
        """Index a leaf; whether it was new."""
        # The names of fields are the same in every record: they are looked at once, unless they count.
        is_field = leaf.is_key and source.is_plain and leaf.text.replace("_", "").isalpha()
        if not self._is_new((leaf.path, leaf.text, source.tool if is_field else source)):
            return False
        text = normalised(leaf.text)
        if marks.secret:
            self._keep_secret(text, source)
        if len(leaf.text) <= _MAX_TYPED:
            self._see_whole(leaf.text, source, groups if marks.id else [])
        for kind, form, raw in identifiers(text):
            is_secure = raw[:8].lower() == "https://"
            self._see(kind, form, replace(source, is_secure=True) if is_secure else source)
            if source.is_text:
                for group in groups:
                    group.hold(kind, form)
        for code in codes(text):
            self._keep(self.codes, code, source)
        if source.origin is not Origin.TRUSTED:
            if leaf.is_key or detect(leaf.text) is Kind.PHRASE:  # others are found as what they are
                self.seen.add(text, source)
            return True
        placed = words_at(text)
        for start, end in self._echoes.cut([word for _, word in placed]):
            from_, to = placed[start][0] if start else 0, placed[end][0] if end < len(placed) else len(text)
            self.trusted.add(text[from_:to], source)
        return True

    @property
    def _may_trust(self) -> bool:
        return not self._room.is_full and not self._echoes.is_full and len(self._proposed) < MAX_PROPOSED

    def _see_whole(self, value: str, source: Source, groups: list[Named]) -> None:
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

    def _see(self, kind: Kind, form: str, source: Source) -> None:
        if (kind, form) in self._proposed:
            # The call itself brought it here; the output proves nothing of it.
            source = Source(source.call_id, source.tool, (), Origin.UNTRUSTED)
        elif source.origin is Origin.TRUSTED and kind in (Kind.EMAIL, Kind.URL):
            self.near.know(form)
        self._keep(self.tokens, (kind, form), source)

    def _keep(self, index: dict[Any, list[Source]], key: Any, source: Source) -> None:
        sources = index.get(key)
        if sources is None:
            if self._count >= MAX_TOKENS or not self._room.take(_TOKEN + 2 * len(key if type(key) is str else key[1])):
                self._has_all = False
                return
            self._count += 1
            sources = index[key] = []
        if len(sources) < MAX_SIGHTINGS and source not in sources and self._room.take(_SIGHTING):
            sources.append(source)

    def _keep_secret(self, text: str, source: Source) -> None:
        row = _SECRET_WORD.findall(text.casefold())
        for start in range(0, len(row), MAX_RUN):  # a part of a long secret is one as well
            run = row[start : start + MAX_RUN]
            if sum(map(len, run)) >= _MIN_SECRET:
                self.secrets.add(run, source)

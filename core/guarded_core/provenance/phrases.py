"""Which phrases some texts hold: an index of words, bounded, so that no text is ever searched again."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from guarded_core.provenance.room import Room
from guarded_core.provenance.values import words, words_at

S = TypeVar("S")

MAX_STEPS = 64  # places that are looked at for one phrase
_WORD, _TEXT = 36, 110  # bytes of the arrays for a word, and of what belongs to a text
_SMALLEST = 64
_OPENING = "'\"\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a([{<`\u2013\u2014"
_CLOSING = "'\"\u2018\u2019\u201c\u201d\u00ab\u00bb\u2039\u203a)]}>`,.;:!?\u2026\u2013\u2014"
_SIGNS = frozenset(_OPENING + _CLOSING + " ")
_ENDS = re.compile(rf"(?:['\u2019]s)?[{re.escape(_CLOSING)}]*(?:\s|\Z)|[\u2013\u2014]")
_QUOTES = {first + last for first, last in ("''", '""', "\u2018\u2019", "\u201c\u201d", "\u201e\u201c", "\u201e\u201d",
                                            "\u00ab\u00bb", "\u00bb\u00ab", "``")}  # fmt: skip


class Found(NamedTuple):
    """A place where a phrase stands.

    Attributes:
        text: the text that it stands in.
        start, end: where.
    """

    text: str
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """Whether that is all of the text, or all that stands between quotation marks."""
        before, after = self.text[max(0, self.start - 1) : self.start], self.text[self.end : self.end + 1]
        return not (before or after) or before + after in _QUOTES

    @property
    def is_apart(self) -> bool:
        """Whether it stands by itself: beside blanks, quotation marks and what ends a sentence."""
        before = self.text[max(0, self.start - 1) : self.start]
        return (before in " " or before in _OPENING) and _ENDS.match(self.text, self.end) is not None


class Sought(NamedTuple):
    """A value that texts are searched for, sign by sign.

    Attributes:
        text: it.
        hashes: of its folded words.
        lead: signs before its first word.
        has_bare_ends: whether it neither begins nor ends with a sign that may belong to the text around it.
    """

    text: str
    hashes: list[int]
    lead: int
    has_bare_ends: bool


def sought(value: str) -> Sought:
    """A value, ready to be searched for; one without words is nowhere."""
    placed = words_at(value)
    has_bare_ends = bool(value) and not {value[0], value[-1]} & _SIGNS
    return Sought(value, [_hash(word) for _, word in placed], placed[0][0] if placed else 0, has_bare_ends)


class PhraseIndex(Generic[S]):
    """Texts, and the places of each word and each pair of words: a phrase is found in time by its own length.

    Places of one hash are chained, last first; only the first 64 of a chain are looked at, so that of what stands
    everywhere, only the last places are known.

    Args:
        room: what it may take; once that is full, further texts are left out.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._texts: list[str] = []
        self._sources: list[S] = []
        self._starts = array("I")  # of each text, in the arrays below
        self._offsets = array("I")  # of each word in its text
        self._words, self._pairs = _Chains(), _Chains()  # at the same places: a word, and it with the next one

    def add(self, text: str, source: S) -> None:
        """Take in a text in normal form."""
        text = " ".join(text.split())
        found = words_at(text)
        if not found or not self._room.take(_TEXT + len(text) * _width(text) + _WORD * (len(found) + 1)):
            return
        self._texts.append(text)
        self._sources.append(source)
        self._starts.append(len(self._offsets))
        hashes = [_hash(word) for _, word in found]
        self._offsets.extend([offset for offset, _ in found])
        self._words.extend(hashes)
        self._pairs.extend([*map(_pair, hashes, hashes[1:]), 0])

    def find(self, phrase: Sequence[str]) -> Iterator[S]:
        """The sources of the texts that hold these folded words in a row."""
        for number, start, end in self._find([_hash(word) for word in phrase]):
            if words(self._texts[number][start:end]) == list(phrase):
                yield self._sources[number]

    def find_exactly(self, value: Sought) -> Iterator[S]:
        """The sources of the texts that hold this very value by itself: each sign of it, and none beside it."""
        for number, start, _ in self._find(value.hashes):
            start -= value.lead
            if start < 0 or not self._texts[number].startswith(value.text, start):
                continue
            found = Found(self._texts[number], start, start + len(value.text))
            if found.is_whole or (value.has_bare_ends and found.is_apart):
                yield self._sources[number]

    def _find(self, hashes: list[int]) -> Iterator[tuple[int, int, int]]:
        """Text, start and end of what has the hashes of some words in a row."""
        if not hashes or not self._texts:
            return
        wanted = array("I", hashes)
        for place in self._candidates(hashes):
            if place < 0 or self._words.hashes[place : place + len(wanted)] != wanted:
                continue
            number = bisect_right(self._starts, place) - 1
            after = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._offsets)
            if place + len(wanted) > after:
                continue  # it runs into the next text
            start = self._offsets[place]
            end = self._offsets[place + len(wanted)] if place + len(wanted) < after else len(self._texts[number])
            yield number, start, end

    def _candidates(self, hashes: list[int]) -> Iterator[int]:
        if len(hashes) == 1:
            yield from self._words.places(hashes[0])[:MAX_STEPS]
            return
        best: list[int] | None = None
        # The first, the last and a middle pair, and the first one that is not everywhere.
        for offset in dict.fromkeys((0, len(hashes) - 2, (len(hashes) - 2) // 2)):
            places = self._pairs.places(_pair(hashes[offset], hashes[offset + 1]))
            if best is None or len(places) <= MAX_STEPS:
                best = [place - offset for place in places]
            if len(places) <= MAX_STEPS:
                break
        yield from (best or [])[:MAX_STEPS]


class _Chains:
    """Places by the hash of what stands there: the last place of each bucket, and for each place the one before it."""

    def __init__(self) -> None:
        self.hashes = array("I")
        self._before = array("I")
        self._last = array("I", bytes(4 * _SMALLEST))

    def extend(self, hashes: list[int]) -> None:
        """The next places; 0 for one where nothing stands."""
        self.hashes.extend(hashes)
        if len(self.hashes) > len(self._last):
            size = len(self._last)
            while size < len(self.hashes):
                size *= 2
            self._last = array("I", bytes(4 * size))
            del self._before[:]
        mask, last, before = len(self._last) - 1, self._last, self._before
        for place in range(len(before), len(self.hashes)):
            own = self.hashes[place]
            bucket = own & mask
            before.append(last[bucket])
            if own:
                last[bucket] = place + 1  # 0 ends a chain

    def places(self, own: int) -> list[int]:
        """The last places of that hash, one more than may be looked at."""
        found: list[int] = []
        place = self._last[own & (len(self._last) - 1)]
        steps = 0
        while place and len(found) <= MAX_STEPS and steps < 8 * MAX_STEPS:
            if self.hashes[place - 1] == own:
                found.append(place - 1)
            place = self._before[place - 1]
            steps += 1
        return found


def _hash(word: str) -> int:
    return hash(word) & 0xFFFFFFFF or 1


def _pair(first: int, second: int) -> int:
    return (first * 0x9E3779B1 + second) & 0xFFFFFFFF or 1


def _width(text: str) -> int:
    """How many bytes a character of it takes."""
    return 1 if text.isascii() else 2 if max(text) <= "\uffff" else 4

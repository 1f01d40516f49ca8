"""Which phrases some texts hold: an index of words, bounded, so that no text is ever read again."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

S = TypeVar("S")

# A word that is everywhere says nothing; a phrase of nothing but such words is not looked for.
_MAX_PLACES = 4096


class PhraseIndex(Generic[S]):
    """Texts as one long row of words, with the places of each word.

    Args:
        limit: words that are kept; once it is reached, further texts are left out and `is_full` says so.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._row: list[str] = []
        self._places: dict[str, array[int]] = {}
        self._starts: list[int] = []
        self._sources: list[S] = []
        self.is_full = False

    def add(self, words: list[str], source: S) -> None:
        """Take in a text, as `values.words` gives it."""
        if not words:
            return
        if len(self._row) + len(words) > self._limit:
            self.is_full = True
            return
        self._starts.append(len(self._row))
        self._sources.append(source)
        known = self._places
        for place, word in enumerate(words, len(self._row)):
            places = known.get(word)
            if places is None:
                known[word] = array("I", (place,))
            elif len(places) <= _MAX_PLACES:
                places.append(place)
        self._row += words
        self._row.append("")  # no phrase runs from one text into the next

    def find(self, words: list[str]) -> Iterator[S]:
        """The sources of the texts that hold these words in a row; none also where all of them are everywhere."""
        rarest, places = 0, None
        for offset, word in enumerate(words):
            found = self._places.get(word)
            if found is None:
                return
            if places is None or len(found) < len(places):
                rarest, places = offset, found
        if places is None or len(places) > _MAX_PLACES:
            return
        for place in places:
            start = place - rarest
            if start >= 0 and self._row[start : start + len(words)] == words:
                yield self._sources[bisect_right(self._starts, start) - 1]

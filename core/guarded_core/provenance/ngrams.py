"""Runs of words, found in other rows of words: secrets in what goes out, echoes in what comes in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from guarded_core.provenance.room import Room

S = TypeVar("S")

MAX_RUN = 8
_RUN = 320


def pieces(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Runs of at most eight words that cover `words`; where they do not divide evenly, the last two overlap."""
    for start in range(0, len(words), MAX_RUN):
        yield words[max(0, min(start, len(words) - MAX_RUN)) : start + MAX_RUN]


class NGrams(Generic[S]):
    """A bounded set of runs of words, each with where it came from.

    Args:
        limit: runs that are kept; once it, or the room, is full, `is_full` says so.
        room: what it may take.
    """

    def __init__(self, limit: int, room: Room) -> None:
        self._limit, self._room = limit, room
        # By their hashes; two runs of one hash only make for a question more.
        self._runs: dict[int, S] = {}
        self._lengths: dict[int, int] = {}  # a bit for each length of the runs that begin with that word
        self.is_full = False

    def add(self, words: Sequence[str], source: S) -> None:
        """Take in a run of at most eight words; an empty one is none."""
        run = hash(tuple(words))
        if not words or run in self._runs:
            return
        if len(words) > MAX_RUN:
            raise ValueError("a run has at most eight words")
        if len(self._runs) >= self._limit or not self._room.take(_RUN):
            self.is_full = True
            return
        self._runs[run] = source
        first = hash(words[0])
        self._lengths[first] = self._lengths.get(first, 0) | 1 << len(words)

    def find(self, words: Sequence[str]) -> Iterator[tuple[int, int, S]]:
        """Where the runs stand in `words`: start, end, and where the run came from."""
        if not self._runs:
            return
        for place, word in enumerate(words):
            lengths = self._lengths.get(hash(word), 0)
            while lengths:
                length = lengths.bit_length() - 1
                lengths ^= 1 << length
                run = hash(tuple(words[place : place + length]))
                if place + length <= len(words) and run in self._runs:
                    yield place, place + length, self._runs[run]

    def cut(self, words: list[str]) -> list[tuple[int, int]]:
        """The stretches of `words` between the runs that stand in it, from and to."""
        inside = [False] * len(words)
        for start, end, _ in self.find(words):
            inside[start:end] = [True] * (end - start)
        ends = [0, *(place for place in range(1, len(words)) if inside[place] != inside[place - 1]), len(words)]
        return [(start, end) for start, end in pairwise(ends) if start < end and not inside[start]]

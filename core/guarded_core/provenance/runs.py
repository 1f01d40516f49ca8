"""Runs of words, found in other rows of words: secrets in what goes out, echoes in what comes in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

S = TypeVar("S")

_MAX_ALIKE = 256


class WordRuns(Generic[S]):
    """A bounded set of runs of words, each with where it came from.

    Args:
        limit: runs that are kept; once it is reached, `is_full` says so.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0
        self._by_first: dict[str, dict[tuple[str, ...], S]] = {}
        self.is_full = False

    def add(self, words: Sequence[str], source: S) -> None:
        """Take in a run; an empty one is none."""
        if not words:
            return
        runs = self._by_first.setdefault(words[0], {})
        if tuple(words) in runs:
            return
        # Many runs that begin alike would make looking for them slow.
        if self._count >= self._limit or len(runs) >= _MAX_ALIKE:
            self.is_full = True
            return
        self._count += 1
        runs[tuple(words)] = source

    def find(self, words: Sequence[str]) -> Iterator[tuple[int, int, S]]:
        """Where the runs stand in `words`: start, end, and where the run came from."""
        if not self._by_first:
            return
        for place, word in enumerate(words):
            for run, source in self._by_first.get(word, {}).items():
                if tuple(words[place : place + len(run)]) == run:
                    yield place, place + len(run), source

    def cut(self, words: list[str]) -> list[list[str]]:
        """What is left of `words` between the runs that stand in it."""
        inside = [False] * len(words)
        for start, end, _ in self.find(words):
            inside[start:end] = [True] * (end - start)
        if True not in inside:
            return [words]
        left: list[list[str]] = [[]]
        for word, is_inside in zip(words, inside, strict=True):
            if is_inside:
                left.append([])
            else:
                left[-1].append(word)
        return [part for part in left if part]

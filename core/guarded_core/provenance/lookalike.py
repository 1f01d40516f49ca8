"""Which identifiers are one edit away from a known one."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from guarded_core.provenance.room import Room

_MAX_KNOWN = 4096
_MAX_LENGTH = 254
_NAME, _PRINT = 220, 12


class _Prints:
    """A set of texts by their 64-bit hashes, eight bytes each; two texts of one hash only make for a question more."""

    def __init__(self) -> None:
        self._sorted = array("q")
        self._new: set[int] = set()

    def add(self, text: str) -> None:
        self._new.add(hash(text))
        if len(self._new) > 512 + len(self._sorted) // 16:
            self._sorted = array("q", sorted([*self._sorted, *self._new]))
            self._new.clear()

    def __contains__(self, text: str) -> bool:
        wanted = hash(text)
        if wanted in self._new:
            return True
        place = bisect_left(self._sorted, wanted)
        return place < len(self._sorted) and self._sorted[place] == wanted


class Lookalikes:
    """Known addresses and domains, indexed by what is left of each when one character is taken out.

    Args:
        room: what it may take; once that is full, everything may resemble one that did not fit.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._known: set[str] = set()
        self._without_one = _Prints()
        self._is_full = False

    def know(self, identifier: str) -> None:
        """Take in a known address, account or link; the domain of an address and the host of a link count too."""
        for name in _parts(identifier):
            if name in self._known or len(name) > _MAX_LENGTH:
                continue
            if len(self._known) >= _MAX_KNOWN or not self._room.take(_NAME + (_PRINT + 1) * len(name)):
                self._is_full = True
                return
            self._known.add(name)
            for shortened in _shortened(name):
                self._without_one.add(shortened)

    def resembles(self, identifier: str) -> bool:
        """Whether it, or its domain or host, is not known itself but one insertion, deletion or substitution away."""
        return any(self._is_near(name) for name in _parts(identifier))

    def _is_near(self, name: str) -> bool:
        if name in self._known:
            return False
        if self._is_full:
            return True  # it may resemble one that did not fit
        # Shorter by one, equal but for one, longer by one.
        return name in self._without_one or any(
            shortened in self._without_one or shortened in self._known for shortened in set(_shortened(name))
        )


def _parts(identifier: str) -> Iterator[str]:
    yield identifier
    if "@" in identifier:
        yield identifier.partition("@")[2]
    elif "/" in identifier:
        yield identifier.partition("/")[0]


def _shortened(name: str) -> Iterator[str]:
    # What is longer is not an address.
    return (name[:index] + name[index + 1 :] for index in range(min(len(name), _MAX_LENGTH)))

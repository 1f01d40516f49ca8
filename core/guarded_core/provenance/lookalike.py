"""Which identifiers are one edit away from a known one."""

from __future__ import annotations

from collections.abc import Iterator

_MAX_KNOWN = 4096
_MAX_LENGTH = 254


class Lookalikes:
    """Known addresses and domains, indexed by what is left of each when one character is taken out."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._without_one: set[str] = set()
        self._is_full = False

    def know(self, identifier: str) -> None:
        """Take in a known address, account or link; the domain of an address and the host of a link count too."""
        for name in _parts(identifier):
            if name in self._known or len(name) > _MAX_LENGTH:
                continue
            if len(self._known) >= _MAX_KNOWN:
                self._is_full = True
                return
            self._known.add(name)
            self._without_one.update(_shortened(name))

    def resembles(self, identifier: str) -> bool:
        """Whether it, or its domain or host, is not known itself but one insertion, deletion or substitution away."""
        return any(self._is_near(name) for name in _parts(identifier))

    def _is_near(self, name: str) -> bool:
        if name in self._known:
            return False
        if self._is_full:
            return True  # it may resemble one that did not fit
        shortened = set(_shortened(name))
        # Shorter by one, equal but for one, longer by one.
        return name in self._without_one or bool(shortened & self._without_one) or bool(shortened & self._known)


def _parts(identifier: str) -> Iterator[str]:
    yield identifier
    if "@" in identifier:
        yield identifier.partition("@")[2]
    elif "/" in identifier:
        yield identifier.partition("/")[0]


def _shortened(name: str) -> Iterator[str]:
    # What is longer is not an address.
    return (name[:index] + name[index + 1 :] for index in range(min(len(name), _MAX_LENGTH)))

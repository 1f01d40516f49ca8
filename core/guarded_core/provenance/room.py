"""How much a session may remember: one account for all of its indexes, in bytes."""

from __future__ import annotations


class Room:
    """A number of bytes, from which every index takes before it keeps something. Sizes are estimates, rounded up.

    Args:
        size: bytes that there are.
    """

    def __init__(self, size: int) -> None:
        self._left = size

    @property
    def is_full(self) -> bool:
        """Whether something did not fit. From then on nothing fits, so that what is kept has no holes."""
        return self._left < 0

    def take(self, size: int) -> bool:
        """Whether `size` more bytes fit."""
        if self._left < size:
            self._left = -1
            return False
        self._left -= size
        return True

"""Which of a session's calls are known here: one that was made elsewhere, and left no trace, shows by the count."""

from __future__ import annotations

MAX_KNOWN = 65_536  # of one session: more of them are taken for unknown


class Calls:
    """Compares what the store says was spent with the calls that are known. Not safe by itself: a lock is around it.

    Args:
        is_shared: whether others may make calls in the session; where nobody can, none has to be known.
    """

    def __init__(self, *, is_shared: bool = True) -> None:
        self._most = MAX_KNOWN if is_shared else 0
        self._known: set[str] = set()
        self._under_way = 0
        self._spent = 0

    def know(self, call_id: str) -> None:
        """A call of which the session's memory says what became of it."""
        self._add(call_id)

    def paused(self, call_id: str) -> None:
        """A call that may go on elsewhere, where nothing says so here."""
        self._known.discard(call_id)

    def released(self, call_id: str) -> None:
        """A call that never started, and gives back what it spent."""
        self._known.discard(call_id)
        self._spent -= 1  # the next word says it exactly

    def begin(self) -> None:
        """A call is being committed: it may have been counted already, and is not known yet."""
        self._under_way += 1

    def end(self, call_id: str | None) -> None:
        """That call was committed; None where it was not."""
        self._under_way -= 1
        if call_id is not None:
            self._add(call_id)

    def _add(self, call_id: str) -> None:
        # By its identity, not by a count: a call that was paused is told of twice.
        if len(self._known) < self._most:
            self._known.add(call_id)

    def count(self, spent: int) -> None:
        """So many calls the session has made. A smaller number is an older word, whatever the clocks say."""
        self._spent = max(self._spent, spent)

    @property
    def has_gap(self) -> bool:
        """Whether there is a call that is not known."""
        return self._spent > len(self._known) + self._under_way

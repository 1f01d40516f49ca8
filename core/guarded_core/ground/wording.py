"""Names that were not found, and counts, as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 16


def did_you_mean(name: object, choices: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest of `choices`; where none is near, all of them unless they are many."""
    known = sorted(choices)
    near = get_close_matches(str(name), known, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there is {', '.join(known)}" if 0 < len(known) <= _MOST else ""


def counted(number: int, what: str) -> str:
    """``1 tool``, ``2 tools``."""
    return f"{number:,} {what}{'s' * (number != 1)}"

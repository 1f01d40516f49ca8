"""Text in which every character shows."""

from __future__ import annotations

import difflib
import json
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

_MAX_COMPARED = 1000
# Control, format (zero-width, bidirectional), private, unassigned, surrogate; line and paragraph separators.
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """`text` with every character that does not show, or that changes how others show, as ``\\u…``."""
    return "".join(char if _shows(char) else _escape(char) for char in text)


def _shows(char: str) -> bool:
    category = unicodedata.category(char)
    return char == " " or (category not in _INVISIBLE and category != "Zs")


def _escape(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 0x7F else f"\\x{ord(char):02x}"


def payload_text(arguments: Any, last: Any = None) -> str:
    """The arguments whole, as indented JSON in which every character is visible.

    With `last`, an earlier payload, what is new begins with ``+`` and what is gone with ``-``; payloads of more than a
    thousand lines are not compared.
    """
    lines, before = _lines(arguments), [] if last is None else _lines(last)
    # Comparing takes the square of what a model may send.
    if last is None or len(lines) + len(before) > 2 * _MAX_COMPARED:
        return "\n".join(lines)
    return "\n".join(_compared(before, lines))


def _compared(before: list[str], lines: list[str]) -> Iterator[str]:
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, before, lines).get_opcodes():
        if kind == "equal":
            yield from (f"  {line}" for line in lines[new_start:new_end])
            continue
        for gone, new in zip_longest(before[start:end], lines[new_start:new_end]):
            yield from (f"{sign} {line}" for sign, line in (("-", gone), ("+", new)) if line is not None)


def _lines(arguments: Any) -> list[str]:
    lines = json.dumps(arguments, indent=2, ensure_ascii=False, sort_keys=True).split("\n")
    return [visible(line) for line in lines]


def time_text(time_ns: int) -> str:
    """A moment, such as ``2026-01-31 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def principal_text(principal: str, on_behalf_of: Iterable[str]) -> str:
    """The chain of principals, the caller first."""
    return " for ".join([principal, *reversed(tuple(on_behalf_of))])

"""Text in which every character shows: short texts, payloads, times."""

from __future__ import annotations

import difflib
import hashlib
import html
import json
import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from guarded_core.display.lookalikes import lookalikes
from guarded_core.display.safe import CLOSE, OPEN, WARNING, WRAP, escape, named, spelt

Medium: TypeAlias = Literal["terminal", "html", "markdown", "mrkdwn", "plain"]

WIDTH = 76  # columns: fewer than the narrowest usual terminal has, so that it never breaks a line itself

_MAX_COMPARED = 1000
_MAX_SHOWN, _HEAD, _TAIL = 2000, 1500, 400  # characters of one text
_MOST_NAMED = 4
_BLANKS = re.compile(r"\A +| +\Z| {2,}")
# What is not to be torn apart where a line is wrapped: an escape, a count.
_PIECE = re.compile(r"\\u[0-9a-f]{4}|\\U[0-9a-f]{8}|\\x[0-9a-f]{2}|\\.|⟨[^⟩]*⟩|.", re.DOTALL)
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """`text` with every character that is outside the safe set (see `guarded_core.display.safe`) as an escape."""
    return text if text.isascii() and text.isprintable() else "".join(spelt(text))


def payload_text(arguments: Any, last: Any = None, *, whole: bool = False, width: int = WIDTH) -> str:
    """The arguments as indented JSON in which every character is visible, and no two payloads look the same.

    Below a value, behind ``⚠``, stands what a person could not see: characters that are spelt out, look-alikes in names
    and addresses, and what is folded. Blanks are counted where there are several; a long text is folded, with its
    length and digest; a long line goes on behind ``⤷``. None of these signs is ever drawn for a payload's own.

    Args:
        arguments: JSON.
        last: an earlier payload: what is new begins with ``+`` and what is gone with ``-``; payloads of more than a
            thousand lines are not compared.
        whole: fold nothing.
        width: columns of a line.
    """
    lines = list(_drawn(arguments, whole=whole))
    before = [] if last is None else list(_drawn(last, whole=whole))
    # Comparing takes the square of what a model may send.
    if last is not None and len(lines) + len(before) <= 2 * _MAX_COMPARED:
        lines = list(_compared(before, lines))
    return "\n".join(row for line in lines for row in _rows(line, width))


def is_folded(arguments: Any) -> bool:
    """Whether `payload_text` leaves out a part of some text in it."""
    if isinstance(arguments, dict):
        return any(is_folded(part) for item in arguments.items() for part in item)
    if isinstance(arguments, list):
        return any(map(is_folded, arguments))
    return isinstance(arguments, str) and len(arguments) > _MAX_SHOWN


def in_medium(text: str, medium: Medium) -> str:
    """Lines of `payload_text` and the like, so that this medium draws them as they are, and nothing in them is markup.

    Args:
        text: lines in which every character is visible already.
        medium: "terminal" and "plain" take them as they are; "html" as a ``<pre>``; "markdown" and Slack's "mrkdwn" as
            a fenced block, in which backticks are spelt out.
    """
    if medium in ("terminal", "plain"):
        return text
    if medium == "html":
        return f'<pre dir="ltr">{html.escape(text)}</pre>'
    fenced = text.replace("`", "\\u0060")
    return f"```\n{html.escape(fenced, quote=False) if medium == 'mrkdwn' else fenced}\n```"


def wrapped(line: str, width: int = WIDTH) -> Iterator[str]:
    """A line in rows of at most `width` columns; none but the first begins with what a payload says."""
    indent = "  " if line.startswith(" ") else ""
    row, columns = "", 0
    for piece in _PIECE.findall(line):
        takes = sum(map(_columns, piece))
        if columns + takes > width and row.strip():
            yield row
            row = f"{indent}{WRAP} "
            columns = len(row)
        row += piece
        columns += takes
    yield row


def shown(text: str) -> str:
    """`visible`, with blanks counted where they are several, or stand at an end."""
    return _blanks_counted(text, visible)


def time_text(time_ns: int) -> str:
    """A moment, such as ``2026-01-31 12:00:00 UTC``."""
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def principal_text(principal: str, on_behalf_of: Iterable[str]) -> str:
    """The chain of principals, the caller first."""
    return " for ".join([principal, *reversed(tuple(on_behalf_of))])


def _compared(before: list[str], lines: list[str]) -> Iterator[str]:
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, before, lines).get_opcodes():
        if kind == "equal":
            yield from (f"  {line}" for line in lines[new_start:new_end])
            continue
        for gone, new in zip_longest(before[start:end], lines[new_start:new_end]):
            yield from (f"{sign} {line}" for sign, line in (("-", gone), ("+", new)) if line is not None)


def _rows(line: str, width: int) -> Iterator[str]:
    """The rows of a payload's line; what stands behind ``⚠`` is ours, and breaks between words."""
    start, sign, note = line.partition(WARNING)
    if not sign:
        return wrapped(line, width)
    start += sign + " "
    return (start + row for row in textwrap.wrap(note.strip(), max(width - len(start), 20), break_long_words=False))


def _drawn(
    value: Any, indent: str = "", key: str | None = None, comma: str = "", *, whole: bool = False
) -> Iterator[str]:
    """The lines of one value, in the layout of ``json.dumps(value, indent=2, sort_keys=True)``, each with its notes."""
    start = indent
    notes: list[str] = []
    if key is not None:
        name, notes = _quoted(key, whole=whole)
        start = f"{indent}{name}: "
    if isinstance(value, dict | list) and value:
        opens, closes = "{}" if isinstance(value, dict) else "[]"
        yield start + opens
        yield from _noted(indent, notes)
        keys: list[Any] = sorted(value) if isinstance(value, dict) else [None] * len(value)
        for number, one in enumerate(keys):
            part = value[number] if one is None else value[one]
            more = "," if number + 1 < len(keys) else ""
            yield from _drawn(part, indent + "  ", one, more, whole=whole)
        yield indent + closes + comma
    elif isinstance(value, str):
        text, more_notes = _quoted(value, whole=whole)
        yield start + text + comma
        yield from _noted(indent, notes + more_notes)
    else:
        yield start + json.dumps(value) + comma
        yield from _noted(indent, notes)


def _noted(indent: str, notes: list[str]) -> Iterator[str]:
    return (f"{indent}{WARNING} {note}" for note in dict.fromkeys(notes))


def _quoted(text: str, *, whole: bool) -> tuple[str, list[str]]:
    """`text` as a JSON text, and what has to be said beside it."""
    if whole or len(text) <= _MAX_SHOWN:
        drawn, folded = _inside(text), []
    else:
        left_out = f"{OPEN}{len(text) - _HEAD - _TAIL:,} characters folded{CLOSE}"
        drawn = _inside(text[:_HEAD]) + left_out + _inside(text[-_TAIL:])
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        folded = [f"folded: {len(text):,} characters, SHA-256 {digest}"]
    if text.isascii() and text.isprintable():
        return f'"{drawn}"', lookalikes(text) + folded
    return f'"{drawn}"', _spelt_out(text) + lookalikes(text) + folded


def _inside(text: str) -> str:
    """What stands between the quotes: every character safe or an escape, blanks counted."""
    return _blanks_counted(text, _escaped)


def _blanks_counted(text: str, draw: Callable[[str], str]) -> str:
    parts, end = [], 0
    for blanks in _BLANKS.finditer(text):
        length = blanks.end() - blanks.start()
        counted = f"{OPEN}{length:,} blank{'s' * (length != 1)}{CLOSE}"
        parts += [draw(text[end : blanks.start()]), counted]
        end = blanks.end()
    return "".join((*parts, draw(text[end:])))


def _escaped(text: str) -> str:
    return "".join(
        _SHORT.get(char) or (_json_escape(char) if len(piece) > 1 else piece)
        for char, piece in zip(text, spelt(text), strict=True)
    )


def _json_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFF else escape(char)


def _spelt_out(text: str) -> list[str]:
    """The characters that are not drawn as they are, named; line breaks and tabs tell themselves."""
    pieces = zip(text, spelt(text), strict=True)
    chars = Counter(char for char, piece in pieces if len(piece) > 1 and char not in _SHORT)
    if not chars:
        return []
    total, names = sum(chars.values()), ", ".join(named(char) for char in list(chars)[:_MOST_NAMED])
    more = f" and {len(chars) - _MOST_NAMED} others" if len(chars) > _MOST_NAMED else ""
    return [f"{total:,} character{'s' * (total != 1)} spelt out: {names}{more}"]


def _columns(char: str) -> int:
    if char.isascii():
        return 1
    return 0 if unicodedata.category(char) == "Mn" else 2 if unicodedata.east_asian_width(char) in "WFA" else 1

"""Which characters are drawn as they are; all others are spelt out.

The safe set, in whole:

- printable ASCII;
- letters, and digits that are letters to Unicode, of the scripts that Unicode recommends for identifiers (UAX #31) and
  that run from left to right, composed (NFC), none that is a compatible form of others, such as ﬁ or fullwidth ones,
  unless its own script has it from old (Hangul and Thai have some);
- marks of those scripts behind a letter of their own script, three at most;
- punctuation, symbols and emoji, but none that is blank, that draws boxes, that can be taken for the quotes and
  backslashes of the drawing, or that only the drawing uses: ``⚠ ⟨ ⟩ ⤷``;
- letters that run from right to left, in a text of nothing else: beside others they would change the order in which
  those are read.

So no blank but the space, no control, format, private or unassigned character, no variation selector, no filler, no
letter with loose accents, and no digits but 0 to 9.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib import import_module
from typing import Any

WARNING, OPEN, CLOSE, WRAP = "⚠", "⟨", "⟩", "⤷"
_OURS = frozenset((WARNING, OPEN, CLOSE, WRAP))

# UAX #31, table 5; the three that run from right to left apart.
_SCRIPTS = frozenset(
    """LATIN GREEK CYRILLIC ARMENIAN GEORGIAN ETHIOPIC DEVANAGARI BENGALI GURMUKHI GUJARATI ORIYA TAMIL TELUGU KANNADA
    MALAYALAM SINHALA THAI LAO TIBETAN MYANMAR KHMER HANGUL HIRAGANA KATAKANA BOPOMOFO HAN""".split()  # noqa: SIM905
)
_TO_THE_LEFT = frozenset(("ARABIC", "HEBREW", "THAANA"))
_ALPHABETS = frozenset(("LATIN", "GREEK", "CYRILLIC"))
_LETTERS = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo"))
_MARKS = frozenset(("Mn", "Mc"))
_SIGNS = frozenset(("Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sc", "Sm", "So"))
# Words in Unicode's names of characters that show nothing, or that draw frames.
_UNSEEN = frozenset(("BLANK", "FILLER", "NULL", "INVISIBLE", "SPACE", "OBJECT", "BOX", "BLOCK"))
_SYNTAX = ("''", '"', "\\")  # what Unicode's table has for look-alikes of a double quote and a backslash
_MOST_MARKS = 3


def spelt(text: str) -> list[str]:
    """`text` in pieces, one for each character: itself where it is safe where it stands, otherwise its escape."""
    if text.isascii() and text.isprintable():
        return list(text)
    if _runs_to_the_left(text):
        return list(text)
    pieces, marks, before = [], 0, ""
    for char in text:
        is_mark = not char.isascii() and unicodedata.category(char) in _MARKS
        marks = marks + 1 if is_mark else 0
        shows = marks <= _MOST_MARKS and _fits(before, char) if is_mark else is_safe(char)
        if shows and before and not char.isascii() and not unicodedata.is_normalized("NFC", before + char):
            shows = False
        pieces.append(char if shows else escape(char))
        before = char if shows else ""
    return pieces


@lru_cache(1 << 14)
def is_safe(char: str) -> bool:
    """Whether this character by itself is drawn as it is."""
    if char.isascii():
        return char.isprintable()
    category, script = unicodedata.category(char), script_of(char)
    if char in _OURS or not unicodedata.is_normalized("NFC", char) or unicodedata.bidirectional(char) in ("R", "AL"):
        return False
    if not _UNSEEN.isdisjoint(unicodedata.name(char, "BLANK").replace("-", " ").split()):
        return False
    if category in _LETTERS:
        is_wide = script == "COMMON" and unicodedata.east_asian_width(char) == "W"  # such as the mark of a long vowel
        return (script in _SCRIPTS or is_wide) and _is_itself(char, script)
    return category in _SIGNS and _is_sign(char) and not looks_like(char, *_SYNTAX)


def escape(char: str) -> str:
    """The character as an escape, as Python and (but for those beyond U+FFFF) JSON write it."""
    code = ord(char)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def named(char: str) -> str:
    """The character's number and name, such as ``U+200B ZERO WIDTH SPACE``."""
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def script_of(char: str) -> str:
    """The script that Unicode counts the character to, such as ``CYRILLIC``."""
    script: str = _table("categories").alias(char)
    return script


@lru_cache(1 << 14)
def looks_like(char: str, *texts: str) -> bool:
    """Whether Unicode's table of confusable characters has it beside one of these texts."""
    return not {found["c"] for found in _table("confusables").confusables_data.get(char, ())}.isdisjoint(texts)


@lru_cache(1 << 14)
def ascii_twin(char: str) -> str | None:
    """The ASCII letter or digit that Unicode's table has for a look-alike of this character."""
    found = (str(entry["c"]) for entry in _table("confusables").confusables_data.get(char, ()))
    return next((twin for twin in found if len(twin) == 1 and twin.isascii() and twin.isalnum()), None)


def _runs_to_the_left(text: str) -> bool:
    """Whether it is letters from right to left, with single spaces between them, and nothing else."""
    words = text.split(" ")
    return all(words) and all(map(_is_to_the_left, "".join(words)))


@lru_cache(1 << 14)
def _is_to_the_left(char: str) -> bool:
    if char.isascii() or unicodedata.category(char) != "Lo" or unicodedata.bidirectional(char) not in ("R", "AL"):
        return False
    return script_of(char) in _TO_THE_LEFT and unicodedata.is_normalized("NFKC", char)


def _fits(before: str, mark: str) -> bool:
    """Whether a mark belongs to what was drawn before it."""
    return bool(before) and script_of(mark) in _SCRIPTS and script_of(before) == script_of(mark)


def _is_itself(char: str, script: str) -> bool:
    """Whether a letter is not a compatible form of others, or of none but its own script's."""
    plain = unicodedata.normalize("NFKC", char)
    return plain == char or (script not in _ALPHABETS and all(script_of(part) == script for part in plain))


def _is_sign(char: str) -> bool:
    """Whether punctuation or a symbol is not a compatible form; the wide ones of East Asia are everyday signs there."""
    if unicodedata.category(char)[0] == "P" and unicodedata.decomposition(char).startswith("<wide>"):
        return True
    return unicodedata.is_normalized("NFKC", char)


def _table(name: str) -> Any:
    """One of Unicode's tables, scripts or confusables; they take 0.1 s to load, and only unusual texts need them."""
    return import_module(f"confusable_homoglyphs.{name}")

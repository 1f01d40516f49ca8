"""What a person has to be told of letters that can be taken for others, in identifiers, addresses and URLs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from guarded_core.display.safe import ascii_twin, named, script_of

_MOST_NAMED = 4
_LATIN = "LATIN"
# Scripts that are written together (UTS #39, "highly restrictive"); the rest are not mixed in one word.
_TOGETHER = (
    frozenset((_LATIN, "HAN", "HIRAGANA", "KATAKANA")),
    frozenset((_LATIN, "HAN", "BOPOMOFO")),
    frozenset((_LATIN, "HAN", "HANGUL")),
)
_WORD = re.compile(r"\w+")
_ADDRESS = re.compile(r"@|://|\w\.\w\w|^[\\/]|\w[\\/]\w")
_NAME = re.compile(r"[\d_]|\w[:.]\w")
_ENCODED = re.compile(r"(?i)(?:^|[^\w-])xn--\w")
_FEWEST = 3  # letters of a word in prose that looks like one of another script


def lookalikes(text: str) -> list[str]:
    """What may be taken for something else in `text`, in the words of a warning; nothing for plain ASCII."""
    found = ["an encoded name (xn--)"] if _ENCODED.search(text) else []
    if text.isascii():
        return found
    strange: dict[str, None] = {}
    for token in text.split():
        if token.isascii():
            continue
        strange |= dict.fromkeys(_strange(token, is_all=token == text.strip(), text=text))
        if mixed := _mixed(token):
            found.append(f"mixes {mixed} in one word")
    twins = [f"{named(char)} is not {ascii_twin(char)}" for char in strange if ascii_twin(char)]
    others = [named(char) for char in strange if not ascii_twin(char)]
    found += [f"looks like another: {_some(twins)}"] * bool(twins)
    found += [f"unusual in an address: {_some(others)}"] * bool(others)
    return list(dict.fromkeys(found))


def _some(texts: list[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _strange(token: str, *, is_all: bool, text: str) -> Iterator[str]:
    """The characters of a word that a person has to look at twice."""
    if _ADDRESS.search(token):
        yield from (char for char in token if not char.isascii())  # addresses are ASCII, nearly always
        return
    is_name = is_all or _NAME.search(token) is not None
    for word in _WORD.findall(token):
        scripts = _scripts(word)
        is_twin = all(char.isascii() or ascii_twin(char) for char in word)
        is_prose = len(word) < _FEWEST or _LATIN not in _scripts(text)
        if (scripts == {_LATIN} and is_name) or _mixed(word) or (is_twin and (is_name or not is_prose)):
            yield from (char for char in word if not char.isascii() and ascii_twin(char))


def _mixed(token: str) -> str:
    """The scripts of a word that are not written together, ``CYRILLIC and LATIN``."""
    for word in _WORD.findall(token):
        scripts = _scripts(word)
        if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
            return " and ".join(sorted(scripts))
    return ""


def _scripts(text: str) -> frozenset[str]:
    letters = {char for char in text if unicodedata.category(char)[0] == "L"}
    return frozenset(map(script_of, letters)) - {"COMMON", "INHERITED"}

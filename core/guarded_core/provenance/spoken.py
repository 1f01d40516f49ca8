"""What the user said, and what a person approved."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from guarded_core.provenance.labels import leaves
from guarded_core.provenance.origin import Spot
from guarded_core.provenance.phrases import PhraseIndex
from guarded_core.provenance.room import Room
from guarded_core.provenance.values import (
    MAX_IDENTIFIER,
    Kind,
    Token,
    codes,
    identifiers,
    is_downgrade,
    named,
    normalised,
    quantities,
)

MAX_BYTES = 1_000_000
_VALUE = 400
MAX_APPROVED = 10_000
# A number is an id only where it is said to be one: "June 13" names no file.
_NUMERIC_ID = re.compile(r"(?:#|\b(?:id|no|nr|number)\b[.:]?)\s*['\"]?(\d+)|['\"](\d+)['\"]", re.IGNORECASE | re.ASCII)
_BREAK = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d,;()<>\[\]{}]+")


class Spoken:
    """The user's words as values: nothing else is ever the user's."""

    def __init__(self) -> None:
        self._tokens: set[Token] = set()
        self._secure: set[str] = set()
        self._room = Room(MAX_BYTES)
        self._phrases = PhraseIndex[bool](self._room)
        self._names: set[str] = set()
        self._codes: set[str] = set()
        self._approved: set[tuple[Spot, str]] = set()

    def say(self, text: str) -> list[Token]:
        """Take in a turn of the user's; its addresses and links. What does not fit is not known."""
        text = normalised(text)
        self._phrases.add(text, True)
        if not self._room.take(_VALUE * (1 + text.count(" ")) + 4 * len(text)):
            return []
        found = []
        for kind, form, raw in identifiers(text, by_user=True):
            found.append((kind, form))
            if kind is Kind.URL and raw[:8].lower() == "https://":
                self._secure.add(form)
            self._names.add(form)
        self._tokens.update(found)
        self._tokens.update(quantities(text))
        parts = {part for whole in _BREAK.split(text) for part in (whole, whole.rstrip(".:!?"))}
        self._tokens.update((Kind.EXACT, part) for part in parts)
        self._tokens.update((Kind.ID, part) for part in parts if not part.isdigit())
        self._tokens.update((Kind.ID, digits) for groups in _NUMERIC_ID.findall(text) for digits in groups)
        self._names.update(named(text))
        self._codes.update(codes(text))
        return found

    def approve(self, tool: str, arguments: Mapping[str, Any]) -> None:
        """Take in the values of a payload that a person approved, each as a whole and for its own place only."""
        for leaf in leaves(arguments)[0]:
            if len(self._approved) >= MAX_APPROVED:
                return
            if len(leaf.text) <= MAX_IDENTIFIER:
                self._approved.add((Spot(tool, leaf.path), leaf.text))

    def approved(self, spot: Spot, value: str) -> bool:
        """Whether a person approved this very value there."""
        return (spot, value) in self._approved

    def point(self, name: str) -> None:
        """Take in the name of a record that the user pointed at."""
        self._names.add(name)

    def holds(self, kind: Kind, form: str, value: str) -> bool:
        """Whether the user said it: `form` is the canonical form of `value`."""
        if (kind, form) in self._tokens:
            return not (kind is Kind.URL and is_downgrade(value) and form in self._secure)
        if kind in (Kind.VERBATIM, Kind.EXACT):
            return any(self._phrases.find_exactly(form))
        return kind is Kind.PHRASE and self.mentions(form)

    def mentions(self, phrase: str) -> bool:
        """Whether these words, joined by blanks, were said in a row."""
        return any(self._phrases.find(phrase.split(" ")))

    def names(self, key: str) -> bool:
        """Whether the user named the record of that key: in quotes, by its file name, or by its address."""
        return key in self._names

    def code(self, code: str) -> bool:
        """Whether the user said an identifier-like token."""
        return code in self._codes

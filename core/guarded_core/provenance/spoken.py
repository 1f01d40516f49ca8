"""What the user said, and what a person approved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

from guarded_core.provenance.labels import leaves
from guarded_core.provenance.mentions import identifiers
from guarded_core.provenance.origin import Spot
from guarded_core.provenance.phrases import PhraseIndex, Sought, sought
from guarded_core.provenance.quantities import Quantity, quantities
from guarded_core.provenance.room import Room
from guarded_core.provenance.values import (
    MAX_IDENTIFIER,
    Kind,
    Token,
    canonical,
    codes,
    is_downgrade,
    named,
    normalised,
)

MAX_BYTES = 1_000_000
_VALUE = 400
MAX_APPROVED = 10_000
# A number is an id only where it is said to be one: "June 13" names no file.
_QUOTED_ID = re.compile(r"['\"](\d+)['\"]", re.ASCII)
_BREAK = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d,;()<>\[\]{}]+")


class Spoken:
    """The user's words as values: nothing else is ever the user's."""

    def __init__(self) -> None:
        self._tokens: set[Token] = set()
        self._sure: set[Token] = set()  # numbers and dates that can be read in one way only
        self._rivals: dict[Token, set[str]] = {}  # the other readings of what can be read in several ways
        self._secure: set[str] = set()
        self._room = Room(MAX_BYTES)
        self._phrases = PhraseIndex[bool](self._room)
        self._names: set[str] = set()
        self._codes: set[str] = set()
        self._approved: set[tuple[Spot, str]] = set()

    def say(self, text: str, locales: Iterable[str] = ()) -> list[Token]:
        """Take in a turn of the user's; its addresses and links. What does not fit is not known.

        Args:
            text: what they typed.
            locales: the languages that its numbers and dates are written in; none for any.
        """
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
            if kind is Kind.URL and "#" in form:
                found.append((kind, form.partition("#")[0].rstrip("/")))  # what the server is asked for
        self._tokens.update(found)
        for quantity in quantities(text, locales):
            self._say_quantity(quantity)
        parts = {part for whole in _BREAK.split(text) for part in (whole, whole.rstrip(".:!?"))}
        self._tokens.update((Kind.EXACT, part) for part in parts)
        self._tokens.update((Kind.ID, part) for part in parts if not part.isdigit())
        self._tokens.update((Kind.ID, digits) for digits in _QUOTED_ID.findall(text))
        self._names.update(named(text))
        self._codes.update(codes(text))
        return found

    def _say_quantity(self, quantity: Quantity) -> None:
        kinds = [quantity.kind]
        if quantity.kind is Kind.NUMBER and quantity.role in ("money", "plain"):
            kinds.append(Kind.AMOUNT)
        elif quantity.kind is Kind.ID:
            kinds.append(Kind.ACCOUNT)
        for token in ((kind, form) for kind in kinds for form in quantity.forms):
            if token[0] is Kind.ACCOUNT and canonical(*token) is None:
                continue
            self._tokens.add(token)
            if len(quantity.forms) == 1:
                self._sure.add(token)
            else:
                self._rivals.setdefault(token, set()).update(form for form in quantity.forms if form != token[1])

    def rivals(self, kind: Kind, form: str) -> Set[str]:
        """The other readings of the words in which the user said it; none where they said it clearly as well."""
        token = (kind, form)
        return frozenset() if token in self._sure else self._rivals.get(token, frozenset())

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

    def holds(self, kind: Kind, form: str, value: str, exact: Sought | None = None) -> bool:
        """Whether the user said it: `form` is the canonical form of `value`, `exact` what is sought sign by sign."""
        if (kind, form) in self._tokens:
            return not (kind is Kind.URL and is_downgrade(value) and form in self._secure)
        if exact is not None:
            return any(self._phrases.find_exactly(exact))
        return kind is Kind.PHRASE and self.mentions(form)

    def says(self, kind: Kind, value: str) -> bool:
        """Whether the user said a value of that kind."""
        form = canonical(kind, value)
        exact = sought(value) if kind in (Kind.VERBATIM, Kind.EXACT) else None
        return form is not None and self.holds(kind, form, value, exact)

    def mentions(self, phrase: str) -> bool:
        """Whether these words, joined by blanks, were said in a row."""
        return any(self._phrases.find(phrase.split(" ")))

    def names(self, key: str) -> bool:
        """Whether the user named the record of that key: in quotes, by its file name, or by its address."""
        return key in self._names

    def code(self, code: str) -> bool:
        """Whether the user said an identifier-like token."""
        return code in self._codes

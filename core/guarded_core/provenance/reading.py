"""One output, taken apart into records, with what the policy says of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from guarded_core.provenance.labels import Labels, Leaf
from guarded_core.provenance.values import Kind, canonical, detect, normalised, words

MAX_NAMES = 8


@dataclass(frozen=True, slots=True, repr=False)
class Reading:
    """One output, taken apart."""

    tool: str
    call_id: str
    labels: Labels
    arguments: Mapping[str, Any]
    leaves: list[Leaf]

    def records(self) -> list[list[Leaf]]:
        """Its leaves by the record that they belong to."""
        if not self.labels.has_records:
            return [self.leaves]
        found: dict[tuple[str, ...], list[Leaf]] = {}
        for leaf in self.leaves:
            found.setdefault(self.labels.record(leaf), []).append(leaf)
        return list(found.values())

    def names(self, record: list[Leaf]) -> tuple[str, ...]:
        """What a user would call it: the values of its naming fields, and of the arguments that it was read by."""
        keys = [leaf.text for leaf in record if self.labels.marks(leaf.path).key] if self.labels.names_fields else []
        keys += [value for name in self.labels.key_arguments if isinstance(value := self.arguments.get(name), str)]
        return tuple(islice(dict.fromkeys(filter(None, map(_name_of, keys))), MAX_NAMES))

    def is_own(self, record: list[Leaf], user: set[str]) -> bool | None:
        """Whether the user wrote it; None where the policy names no author."""
        if not self.labels.has_author:
            return None
        authors = [leaf.text for leaf in record if self.labels.marks(leaf.path).author]
        return bool(authors) and all(canonical(detect(author), author) in user for author in authors)

    def digest(self, record: list[Leaf]) -> int:
        """Tells records of one name apart."""
        ids = [leaf.text for leaf in record if self.labels.marks(leaf.path).id]
        return hash(tuple(ids or [(leaf.path, leaf.text) for leaf in record]))


def _name_of(key: str) -> str | None:
    """The name that a key gives a record, in the form in which the user's own words are compared with it."""
    kind = detect(key)
    if kind is Kind.PHRASE:
        return " ".join(words(normalised(key))) or None
    return canonical(kind, key)

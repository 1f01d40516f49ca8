"""What a session's memory takes in, as events that can be written down and taken in again elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from guarded_core.provenance.labels import Leaf

_VERSION = 1
_ITEM = "*"


@dataclass(frozen=True, slots=True, repr=False)
class Said:
    """A turn of the user's, and the languages that they may write numbers in."""

    text: str
    locales: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Pasted:
    """Somebody else's text that the user handed over."""

    text: str


@dataclass(frozen=True, slots=True, repr=False)
class KnownAs:
    """Names, addresses and accounts that the user goes by."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Approved:
    """A payload that a person approved."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Seen:
    """What a tool returned.

    Attributes:
        tool: its name.
        labelled_as: the tool whose labels count: the same, or none where it reported a failure.
        call_id: the guard's id of the call; empty where it was not the guard's.
        arguments: what it was called with.
        leaves: the output's scalars and keys.
        is_whole: whether these are all of them.
    """

    tool: str
    labelled_as: str
    call_id: str
    arguments: Mapping[str, Any]
    leaves: list[Leaf]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Missed:
    """Something was returned, or said, that is not known."""


Event: TypeAlias = Said | Pasted | KnownAs | Approved | Seen | Missed


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """Some events in their order, and the call that they end with.

    Attributes:
        events: what was taken in.
        call_id: a call that was settled, or paused, after them; empty for none.
    """

    events: tuple[Event, ...]
    call_id: str = ""

    def encode(self) -> bytes:
        """It as JSON. Raises TypeError, ValueError or RecursionError where an argument has no such form."""
        written = [_written(event) for event in self.events]
        # ASCII: a lone surrogate, which a tool may return, has no UTF-8.
        return json.dumps([_VERSION, self.call_id, written], separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, text: bytes) -> Page:
        """The page that was written so.

        Raises:
            ValueError: it is none, or a newer release's.
        """
        try:
            version, call_id, written = json.loads(text)
            if version == _VERSION and isinstance(call_id, str):
                return cls(tuple(_read(name, *parts) for name, *parts in written), call_id)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, StopIteration):
            pass
        # Raised out here: a decoder's error carries the whole text along.
        raise ValueError("not a page of a session's memory")


def _written(event: Event) -> list[Any]:
    match event:
        case Said(text, locales):
            return ["said", text, locales]
        case Pasted(text):
            return ["pasted", text]
        case KnownAs(names):
            return ["known_as", names]
        case Approved(tool, arguments):
            return ["approved", tool, arguments]
        case Seen(tool, labelled_as, call_id, arguments, leaves, is_whole):
            return ["seen", tool, labelled_as, call_id, arguments, *_packed(leaves), is_whole]
        case Missed():
            return ["missed"]


def _read(name: str, *parts: Any) -> Event:
    match name, parts:
        case "said", (text, locales):
            return Said(text, tuple(locales))
        case "pasted", (text,):
            return Pasted(text)
        case "known_as", (names,):
            return KnownAs(tuple(names))
        case "approved", (tool, arguments):
            return Approved(tool, arguments)
        case "seen", (tool, labelled_as, call_id, arguments, paths, rows, is_whole):
            return Seen(tool, labelled_as, call_id, arguments, list(_unpacked(paths, rows)), is_whole)
        case "missed", ():
            return Missed()
    raise ValueError("an unknown event")


def _packed(leaves: Sequence[Leaf]) -> tuple[list[tuple[str, ...]], list[list[Any]]]:
    """The different paths, and for each leaf its path's number, whether it is a key, its text, its items' indices."""
    numbers: dict[tuple[str, ...], int] = {}
    rows = []
    for path, place, text, is_key in leaves:
        number = numbers.setdefault(path, len(numbers))
        indices = [step for step, general in zip(place, path, strict=True) if general == _ITEM]
        rows.append([number, int(is_key), text, *indices])
    return list(numbers), rows


def _unpacked(paths: Sequence[Sequence[str]], rows: Sequence[Sequence[Any]]) -> Iterator[Leaf]:
    known = [tuple(path) for path in paths]
    for number, is_key, text, *indices in rows:
        path, found = known[number], iter(indices)
        place = tuple([next(found) if step == _ITEM else step for step in path]) if indices else path
        yield Leaf(path, place, text, bool(is_key))

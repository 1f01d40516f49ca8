"""On which terms a tool's arguments are judged, as the policy says it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from guarded_core.ground.pointer import Param

Tokens = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the policy says of the schema of one tool.

    Attributes:
        open: free-form places that stay as the schema declares them, with all that is below; ``()`` is everything.
        opaque_patterns: places whose patterns only the tool itself checks, where no linear-time engine takes them.
    """

    open: frozenset[Tokens] = frozenset()
    opaque_patterns: frozenset[Tokens] = frozenset()

    @property
    def is_all_open(self) -> bool:
        """Whether every free-form place stays open."""
        return () in self.open

    def is_open(self, place: Tokens) -> bool:
        """Whether the place, or one above it, stays open."""
        return any(_leads_to(way, place[: len(way)]) for way in self.open)

    def leads_to_open(self, place: Tokens) -> bool:
        """Whether a place that stays open is here or below."""
        return any(_leads_to(way[: len(place)], place) for way in self.open if len(way) >= len(place))

    def leaves_patterns_of(self, place: Tokens) -> bool:
        """Whether only the tool checks the patterns of this place."""
        return any(_leads_to(way, place) for way in self.opaque_patterns)


CLOSED = Terms()
OPEN = Terms(open=frozenset({()}))


@lru_cache(maxsize=1024)
def terms_of(places: tuple[str, ...], opaque_patterns: tuple[str, ...], everything: bool) -> Terms:
    """The terms that a policy writes down, each place as a name or a JSON Pointer. Raises InvalidPolicy."""
    return Terms(
        open=frozenset([Param.parse(text).tokens for text in places] + [()] * everything),
        opaque_patterns=frozenset(Param.parse(text).tokens for text in opaque_patterns),
    )


def _leads_to(way: Tokens, place: Tokens) -> bool:
    return len(way) == len(place) and all(
        wanted is None or wanted == token for wanted, token in zip(way, place, strict=True)
    )


def pointer_of(place: Tokens) -> str:
    """The place as a JSON Pointer, ``*`` for every member."""
    parts = ("*" if token is None else token.replace("~", "~0").replace("/", "~1") for token in place)
    return "".join(f"/{part}" for part in parts)

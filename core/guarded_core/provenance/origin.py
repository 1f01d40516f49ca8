"""The origins a value can have, and what a rule may ask about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Origin(StrEnum):
    """Where a value came from, best first."""

    USER = "user"  # the user's own words, or a value that a person approved at this very place in this task
    TRUSTED = "trusted"  # a part of an output that the policy trusts
    MADE = "made"  # names an object that this task made
    OWN = "own"  # a person in the one record of their own that the user named
    KNOWN = "known"  # a person in any record that the user wrote: somebody they have dealt with before
    NAMED = "named"  # what the user pointed at: the only value of its kind, or such a person, in the source they named
    MEMBER = "member"  # text by an authenticated member: good for a read
    MENTIONED = (
        "mentioned"  # in the source that the user named, beside others of its kind; or in one that a member linked to
    )
    LOOKALIKE = "lookalike"  # one edit away from a known address or domain
    SECRET = "secret"  # noqa: S105 - in a part of an output that may not leave
    UNTRUSTED = "untrusted"  # in some other output
    UNKNOWN = "unknown"  # never seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One place where a value was seen.

    Attributes:
        origin: what kind of place.
        call_id, tool: the call whose output it was in; empty where it was not an output.
    """

    origin: Origin
    call_id: str = ""
    tool: str = ""

    def __str__(self) -> str:
        by = f" from {self.tool}" if self.tool else ""
        return f"{self.origin.value}{by}" + (f" (call {self.call_id})" if self.call_id else "")


@dataclass(frozen=True, slots=True, repr=False)
class Spot:
    """Where in a call a value stands.

    Attributes:
        tool: the tool that is called.
        path: the way to the value in the arguments; items of arrays are ``*``.
        arguments: all of them, as they were written.
    """

    tool: str
    path: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


class Origins(Protocol):
    """What a session remembers, as rules see it. Nothing in it is ever guessed in favour of a value."""

    def trace(self, value: Any, kind: str = "auto", spot: Spot | None = None) -> tuple[Trace, ...]:
        """Where `value`, a scalar, was seen, best first; at least one Trace, of UNKNOWN where nowhere.

        At a `spot` where a person approved the very value before, it is the user's.
        """

    def identifiers(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each link, address and account in free text."""

    def leaks(self, text: str) -> Trace | None:
        """What `text` carries out that it may not: a secret, or an identifier of a source the user did not name."""

    def names(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """The traces of each proper name in free text."""


class NoOrigins:
    """Remembers nothing: every value is unknown, and any text may carry something out."""

    def trace(self, value: Any, kind: str = "auto", spot: Spot | None = None) -> tuple[Trace, ...]:
        """UNKNOWN."""
        return UNKNOWN

    def identifiers(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """UNKNOWN, whatever the text."""
        yield UNKNOWN

    def leaks(self, text: str) -> Trace | None:
        """Something that is not known."""
        return UNKNOWN[0]

    def names(self, text: str) -> Iterator[tuple[Trace, ...]]:
        """UNKNOWN, whatever the text."""
        yield UNKNOWN


UNKNOWN = (Trace(origin=Origin.UNKNOWN),)
NO_ORIGINS = NoOrigins()

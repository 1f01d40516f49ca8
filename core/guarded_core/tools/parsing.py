"""Arguments that a tool parses: what it makes of them has to read back as itself, or something else runs."""

from __future__ import annotations

import marshal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Unsteady(ValueError):
    """Arguments that would be other ones, were they read once more: a person would approve one value, and another run.

    Attributes:
        names: which.
    """

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__("the arguments do not survive a round trip through their model")
        self.names = names


class Parser(ABC):
    """What parses a tool's arguments, and writes them as JSON again; names are those of the schema."""

    @property
    def is_stable(self) -> bool:
        """Whether it is known to make the same of what it dumps as of the JSON before, so that it need not be tried."""
        return False

    @abstractmethod
    def parse(self, arguments: dict[str, Any]) -> Any:
        """What the tool's own parser makes of them, and may change them in place. Raises ValueError."""

    @abstractmethod
    def dumped(self, parsed: Any, opaque: frozenset[str]) -> dict[str, Any]:
        """What the model gave of them, as JSON, without the opaque ones. Raises ValueError."""

    @abstractmethod
    def values(self, parsed: Any) -> dict[str, Any]:
        """What the tool's code gets of them."""

    def read_first(self) -> frozenset[str]:
        """The parameters with a validator of the tool's own that sees them before their type does."""
        return frozenset()

    def without(self, names: frozenset[str]) -> Parser:
        """One that takes whatever stands for these parameters, or nothing."""
        return self

    def refused(self, error: Exception) -> frozenset[str]:
        """The parameters that `parse` refused; none where it refused them together, or another way."""
        errors = getattr(error, "errors", None)
        return (
            frozenset(str(fault["loc"][0]) for fault in errors() if fault["loc"]) if callable(errors) else frozenset()
        )


class Settled(NamedTuple):
    """What `settled` makes of arguments.

    Attributes:
        effective: as JSON.
        parsed: what the tool gets; None where it is still to be parsed.
        is_changed: whether `effective` differs from what was given.
    """

    effective: dict[str, Any]
    parsed: Any
    is_changed: bool


def settled(
    parser: Parser,
    arguments: dict[str, Any],
    *,
    injected: Mapping[str, Any] | None = None,
    opaque: frozenset[str] = frozenset(),
) -> Settled:
    """The arguments as JSON that reads back as itself, and what the tool gets of them.

    Args:
        parser: the tool's.
        arguments: as they were given.
        injected: what code gives beside them.
        opaque: those that stay as they were given, whatever the tool makes of them.

    Raises:
        Unsteady: read once more, they would be other ones.
        ValueError: they do not fit.
    """
    beside = injected or {}
    given = written(arguments)  # before a validator sees them, and may change them in place
    kept = {name: value for name, value in read(given).items() if name in opaque} if opaque else {}
    parsed = parser.parse({**arguments, **beside})
    try:
        effective = {**parser.dumped(parsed, opaque), **kept}
    except Exception as error:
        raise Unsteady(frozenset()) from error
    dumped = written(effective)
    if dumped == given:
        return Settled(effective, parsed, is_changed=False)  # it is the parse of what it dumps
    if parser.is_stable and not (beside or opaque):
        return Settled(effective, None, is_changed=True)
    try:
        again = parser.parse({**read(dumped), **beside})
    except Exception as error:
        raise Unsteady(parser.refused(error)) from error
    reread, values = {**parser.dumped(again, opaque), **kept}, parser.values(again)
    if written(reread) != dumped or not same(parser.values(parsed), values):
        raise Unsteady(_differing(effective, reread) | _differing(parser.values(parsed), values))
    return Settled(effective, again, is_changed=True)


def _differing(one: dict[str, Any], other: dict[str, Any]) -> frozenset[str]:
    names = one.keys() | other.keys()
    return frozenset(name for name in names if not (name in one and name in other and same(one[name], other[name])))


_BY_IDENTITY: Any = object.__eq__
_SCALARS = frozenset({str, int, float, bool, type(None), bytes})


def same(one: Any, other: Any) -> bool:
    """Whether two parsed values are equal and of equal types, all the way down; what knows no equality has its type."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind in _SCALARS:
        return bool(one == other or (one != one and other != other))
    if hasattr(kind, "__pydantic_validator__") or hasattr(kind, "__fields__"):
        extra, others = _extra(one), _extra(other)
        is_closed = extra is None and others is None
        return _same_members(vars(one), vars(other)) and (is_closed or same(extra, others))
    if isinstance(one, dict):
        return _same_members(one, other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and _all_same(one, other)
    if kind.__eq__ is _BY_IDENTITY:
        return True
    try:
        return bool(one == other) or bool(one != one and other != other)
    except Exception:
        return True  # such as an array, which compares to another array


def _same_members(one: dict[Any, Any], other: dict[Any, Any]) -> bool:
    return list(one) == list(other) and _all_same(one.values(), other.values())  # in one order


def _all_same(ones: Iterable[Any], others: Iterable[Any]) -> bool:
    for one, other in zip(ones, others, strict=True):
        # What is the same without another call: most values are such.
        is_plain = type(one) in _SCALARS and type(one) is type(other) and one == other
        if not is_plain and not same(one, other):
            return False
    return True


def _extra(model: Any) -> Any:
    return getattr(model, "__pydantic_extra__", None)


def written(arguments: dict[str, Any]) -> bytes:
    """The arguments, told from all others to the type (1, 1.0 and True differ). Raises ValueError for no plain JSON.

    Within one process only: to see whether a model dumps what it was given, whatever a validator does to it in place.
    """
    return marshal.dumps(arguments, 2)  # from version 3 on, equal values may be written differently


def read(arguments: bytes) -> Any:
    """A copy of what was written."""
    return marshal.loads(arguments)  # noqa: S302 - this process wrote it

"""How the values of a call are compared and read as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import orjson

from guarded_core.ground.payload import MAX_DEPTH, PayloadLimits, freeze
from guarded_core.tools.reading import Place, exact

__all__ = ["any_text", "exact", "has_text", "is_number", "text_of", "texts_of"]

_ESCAPED = re.compile(r'["\\\x00-\x1f]')  # RFC 8785, 3.2.2.2
_UNSURE = (b".0,", b".0]", b".0}", b"e-")  # what an integral or a very small float looks like
_WORDS = {None: "null", True: "true", False: "false"}
# The policy's own limits were kept before a rule looks.
_LIMITS = PayloadLimits(bytes=1 << 30, depth=MAX_DEPTH, nodes=1 << 30, characters=1 << 30)


def is_number(value: Any) -> bool:
    """Whether `value` is a JSON number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: Any) -> str:
    """The string form of a value: a string itself, of anything else its canonical JSON."""
    if isinstance(value, str):
        return value
    kind = type(value)
    if kind is int:
        return str(value)
    if value is None or kind is bool:
        return _WORDS[value]
    if kind is float and 1e-4 <= abs(value) < 1e15:  # where Python and RFC 8785 write it alike
        return str(int(value)) if value.is_integer() else repr(value)
    if kind is dict or kind is list:
        written = _written(value)
        if written is not None:
            return written
    return freeze(value, _LIMITS).canonical.decode()


def _written(container: Any) -> str | None:
    """The canonical JSON of a container without keys or numbers that RFC 8785 writes otherwise than orjson."""
    try:
        written = orjson.dumps(container, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return None
    plain = written.isascii() and not any(sign in written for sign in _UNSURE)
    return written.decode() if plain else None


def has_text(value: Any, part: str) -> bool:
    """Whether `part` is in one of the value's texts."""
    return containing(part)(value)


def containing(part: str) -> Callable[[Any], bool]:
    """Tells whether `part` is in one of a value's texts."""
    if _ESCAPED.search(part):
        return lambda value: any_text(value, lambda text: part in text)
    # JSON writes all that is inside as it is.
    return lambda value: part in (value if type(value) is str else text_of(value))


_PLAIN = frozenset({str, int, bool, type(None)})


def is_same(one: Any, other: Any) -> bool:
    """Whether they are equal scalars of one type, so that no rule can tell them apart; False says nothing."""
    kind = type(one)
    if kind is not type(other):
        return False
    return bool(one == other) if kind in _PLAIN else kind is float and one == other != 0  # there are two zeros


class Named:
    """Values that a rule names, and whether another one is one of them, at the place of a parameter.

    Args:
        values: which.
    """

    __slots__ = ("_last", "_values")

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = tuple(values)
        # One pair, put in its place at once: two threads at two places never see a half of each other's.
        self._last: tuple[Place | None, set[Hashable]] = (None, set())

    def has(self, value: Any, place: Place) -> bool:
        """Whether the tool takes `value` for one of them there. Raises TypeError for what is not JSON."""
        at, keys = self._last
        if at is not place:
            keys = place.keys(self._values)
            self._last = (place, keys)
        return place.key(value) in keys


def any_text(value: Any, test: Callable[[str], bool]) -> bool:
    """Whether `test` holds for one of the value's texts."""
    return test(value) if isinstance(value, str) else any(map(test, texts_of(value)))


def texts_of(value: Any) -> list[str]:
    """The string form of a value, and of every scalar and key inside it.

    The JSON of an object alone would hide its strings from a search: ``"`` is written ``\\"`` there.
    """
    texts = [text_of(value)]
    pending = [value] if isinstance(value, list | dict) else []
    for container in pending:
        if isinstance(container, dict):
            texts += container
        for member in container.values() if isinstance(container, dict) else container:
            if type(member) is str:
                texts.append(member)
            elif isinstance(member, list | dict):
                pending.append(member)
            else:
                texts.append(text_of(member))
    return texts

"""A JSON Pointer into arguments or outputs, with ``*`` for every member, and the value that stands for none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from guarded_core.ground.errors import InvalidPolicy

Path = tuple[str, ...]
"""The way to a value; what stands for the items of arrays is said where it is made."""


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""Stands where no value is; None is JSON's null."""

_EVERY = "*"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a top-level name, or a JSON Pointer (RFC 6901) in which the token ``*`` stands for every member.

    Attributes:
        text: as the policy writes it.
        tokens: the way down; None for ``*``.
        name: the argument, where it is a whole one.
    """

    text: str
    tokens: tuple[str | None, ...]
    name: str | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.tokens[0] if len(self.tokens) == 1 else None)

    @classmethod
    def parse(cls, text: object) -> Param:
        """The parameter that `text` names. Raises InvalidPolicy."""
        if not isinstance(text, str) or not text:
            raise InvalidPolicy("a parameter is a name, or a JSON Pointer such as '/items/*/sku'", where="param")
        if not text.startswith("/"):
            if "*" in text:
                raise InvalidPolicy("'*' stands in a JSON Pointer, such as '/*' or '/items/*/sku'", where="param")
            return cls(text, (text,))
        if re.search("~(?![01])", text):
            raise InvalidPolicy(
                "in a JSON Pointer '~' is written '~0', and '/' in a name is written '~1'", where="param"
            )
        tokens = (token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/"))
        return cls(text, tuple(None if token == _EVERY else token for token in tokens))

    @property
    def pointer(self) -> str:
        """It as a JSON Pointer."""
        if self.text.startswith("/"):
            return self.text
        return "/" + self.text.replace("~", "~0").replace("/", "~1")

    def find(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Every value it points to, with ABSENT for each place where the way ends early.

        Empty only where ``*`` meets an empty object or array. Raises TypeError for what is not JSON.
        """
        if self.name is not None:
            return [arguments.get(self.name, ABSENT)]
        found: list[Any] = [arguments if isinstance(arguments, dict) else dict(arguments)]
        for token in self.tokens:
            found = [member for value in found for member in _members(value, token)]
        return found

    def locate(self, arguments: Mapping[str, Any]) -> list[tuple[Path, Any]]:
        """What `find` finds, each value with the way to it, in which items of arrays are ``*``."""
        found: list[tuple[Path, Any]] = [((), arguments if isinstance(arguments, dict) else dict(arguments))]
        for token in self.tokens:
            found = [
                ((*path, step), member)
                for path, value in found
                for step, member in zip(_steps(value, token), _members(value, token), strict=True)
            ]
        return found


def _steps(value: Any, token: str | None) -> Iterable[str]:
    if isinstance(value, list):
        return [_EVERY] * (len(value) if token is None else 1)
    return value if token is None and isinstance(value, dict) else (_EVERY if token is None else token,)


def _members(value: Any, token: str | None) -> Any:
    if isinstance(value, dict):
        return value.values() if token is None else (value.get(token, ABSENT),)
    if isinstance(value, list):
        if token is None:
            return value
        index = int(token) if _INDEX.fullmatch(token) else len(value)
        return (value[index] if index < len(value) else ABSENT,)
    if value is ABSENT or value is None or isinstance(value, str | int | float):
        return (ABSENT,)
    raise TypeError("not JSON")

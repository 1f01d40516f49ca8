"""What makes two calls one effect, whoever makes them: a payment with one id is made once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import PayloadLimits, freeze
from guarded_core.ground.pointer import ABSENT, Param

Per = Literal["tenant", "principal", "session"]

FOR_EVER_NS = 2**63 - 1
_UNITS_NS = {"s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}
_LENGTH = re.compile(r"([1-9][0-9]{0,5})([smhd])", re.ASCII)
_LIMITS = PayloadLimits(bytes=1 << 24, nodes=1 << 20, depth=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectKey:
    """What calls of a tool have in common that have one effect, which is had once.

    Attributes:
        by: JSON Pointers of the arguments that name the effect, such as a payment's id; each has to have a value.
        window: how long a done effect is not had again: "30d", "12h", "90m", "45s", or "always". In a file: `for`.
        per: for whom one value names one effect: all who share the store (a tenant), a principal, or a session.
    """

    by: tuple[str, ...]
    window: str
    per: Per = "tenant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", tuple(self.by))
        if not self.by:
            raise InvalidPolicy("names at least one argument", where="by")
        for place in self.by:
            try:
                param = Param.parse(place)
            except InvalidPolicy as error:
                raise InvalidPolicy(error.reason, where="by") from None
            if None in param.tokens:
                raise InvalidPolicy("an effect is named by single values, without '*'", where="by")
        if self.per not in get_args(Per):
            raise InvalidPolicy(f"must be one of {', '.join(get_args(Per))}", where="per")
        if self.window != "always" and (not isinstance(self.window, str) or not _LENGTH.fullmatch(self.window)):
            raise InvalidPolicy('a time such as "30d", "12h", "90m" or "45s"; or "always"', where="for")

    def until_ns(self, now_ns: int) -> int:
        """Until when an effect that is had now is not had again."""
        found = _LENGTH.fullmatch(self.window)
        return FOR_EVER_NS if found is None else now_ns + int(found[1]) * _UNITS_NS[found[2]]

    def key(self, tool: str, arguments: Mapping[str, Any], scope: str) -> str | None:
        """The key of the effect that a call has; None where an argument that names it is absent or null.

        Args:
            tool: its name.
            arguments: effective ones.
            scope: for whom, as `per` says; empty for all.
        """
        values = [Param.parse(place).find(arguments)[0] for place in self.by]
        if any(value is ABSENT or value is None for value in values):
            return None
        return "effect " + freeze([tool, self.per, scope, list(self.by), values], _LIMITS).digest

"""How far the policy lets a person grant calls of a tool in advance, and the bounds of one grant within that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from guarded_core.ground.errors import InvalidApproval, InvalidPolicy
from guarded_core.ground.pointer import Param
from guarded_core.ground.struct import struct

_MAX_CALLS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Grantable:
    """How far a person may grant calls of a tool in advance; what is not named here is fixed to what they saw.

    Attributes:
        calls: the most calls that one grant is good for.
        seconds: the longest that it is good for.
        free: JSON Pointers of arguments that it may leave open.
        up_to: by JSON Pointer of a number, the highest bound that it may set for one call.
        total: by JSON Pointer of such a number, the highest sum over all its calls.
    """

    calls: int
    seconds: int
    free: tuple[str, ...] = ()
    up_to: Mapping[str, int | float] = field(default_factory=dict)
    total: Mapping[str, int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("calls", "seconds"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidPolicy(f"{name} is at least 1; without a grant table nothing can be granted", where=name)
        if self.calls > _MAX_CALLS:
            raise InvalidPolicy(f"calls is at most {_MAX_CALLS}", where="calls")
        object.__setattr__(self, "free", tuple(_pointer(name, "free") for name in self.free))
        for table in ("up_to", "total"):
            bounds = {_pointer(name, table): _bound(number, table) for name, number in getattr(self, table).items()}
            object.__setattr__(self, table, bounds)
        places = [*self.free, *self.up_to]
        for place in places:
            others = [other for other in places if other == place or other.startswith(place + "/")]
            if len(others) > 1:
                raise InvalidPolicy(f"{place} is named twice, or within another", where="free")
        if unbounded := self.total.keys() - self.up_to.keys():
            raise InvalidPolicy(f"{min(unbounded)} needs a bound in up_to too", where="total")

    @property
    def varies(self) -> bool:
        """Whether calls of one grant may differ."""
        return bool(self.free or self.up_to)

    def fixed(self) -> Grantable:
        """The same for calls that are all alike."""
        return Grantable(calls=self.calls, seconds=self.seconds) if self.varies else self

    def within(
        self,
        *,
        calls: int,
        seconds: int | None,
        free: Iterable[str],
        up_to: Mapping[str, Any],
        total: Mapping[str, Any],
    ) -> Bounds:
        """The bounds of one grant. Raises InvalidApproval where they reach further than this."""
        seconds = self.seconds if seconds is None else seconds
        for name, value, limit in (("calls", calls, self.calls), ("seconds", seconds, self.seconds)):
            if type(value) is not int or not 1 <= value <= limit:
                raise InvalidApproval(f"{name} is 1 to {limit}, by the policy of this tool")
        opened = tuple(dict.fromkeys(_named(name) for name in ([free] if isinstance(free, str) else free)))
        highest = {_named(name): _amount(number, "up_to") for name, number in up_to.items()}
        sums = {_named(name): _amount(number, "total") for name, number in total.items()}
        _require(opened, self.free, "left open")
        _require(highest, self.up_to, "granted up to a bound")
        _require(sums, highest, "granted up to a total, since the grant gives no bound of one call")
        for pointer, number in highest.items():
            if number > _decimal(self.up_to[pointer]):
                raise InvalidApproval(
                    f"{pointer} may be granted up to {self.up_to[pointer]}, by the policy of this tool"
                )
        for pointer in highest.keys() & self.total:
            most = _decimal(self.total[pointer])
            if sums.setdefault(pointer, most) > most:
                raise InvalidApproval(f"the total of {pointer} is at most {most}, by the policy of this tool")
        return Bounds(calls=calls, seconds=seconds, free=opened, up_to=highest, total=sums)


@struct
class Bounds:
    """The bounds of one grant; see `Grantable`."""

    calls: int
    seconds: int
    free: tuple[str, ...]
    up_to: dict[str, Decimal]
    total: dict[str, Decimal]


@dataclass(frozen=True, slots=True)
class Offer:
    """What may be granted at one request.

    Attributes:
        limits: how far.
        reasons: the request's reasons that a grant answers; every other one is asked about each time.
    """

    limits: Grantable
    reasons: tuple[str, ...]


def _pointer(name: object, where: str) -> str:
    try:
        param = Param.parse(name)
    except InvalidPolicy as error:
        raise InvalidPolicy(error.reason, where=where) from None
    if None in param.tokens:
        raise InvalidPolicy("names one argument, so '*' cannot stand in it", where=where)
    return param.pointer


def _bound(number: object, where: str) -> int | float:
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise InvalidPolicy("a bound is a positive number", where=where)
    return number


def _named(name: object) -> str:
    try:
        return _pointer(name, "")
    except InvalidPolicy as error:
        raise InvalidApproval(error.reason) from None


def _decimal(number: int | float) -> Decimal:
    return Decimal(repr(number))  # 0.1 is a tenth


def _amount(number: object, what: str) -> Decimal:
    """A bound that a person gives: a number, or text of one. Raises InvalidApproval."""
    try:
        if isinstance(number, bool) or not isinstance(number, int | float | str | Decimal):
            raise InvalidOperation
        amount = Decimal(repr(number) if isinstance(number, float) else number)
    except InvalidOperation:
        raise InvalidApproval(f"{what} is a number, such as 500 or '500.00'") from None
    if not amount.is_finite() or amount <= 0 or amount.adjusted() > 30 or amount.as_tuple().exponent < -30:  # type: ignore[operator]
        raise InvalidApproval(f"{what} is a positive number of at most 30 digits before and after the point")
    return amount


def _require(names: Iterable[str], known: Iterable[str], what: str) -> None:
    if unknown := set(names) - set(known):
        allowed = ", ".join(sorted(known)) or "none"
        raise InvalidApproval(f"{min(unknown)} cannot be {what}; of this tool: {allowed}")

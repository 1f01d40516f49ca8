"""When a parameter's value is one that a rule speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from guarded_core.ground.pointer import ABSENT
from guarded_core.rules.kinds.base import check_number, check_text, compiled, json_value, number_of
from guarded_core.rules.values import Named, any_text, containing
from guarded_core.tools.reading import Place

Test = Callable[[Any, Place], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """Tests that a value has to pass all of; none at all means that its presence is enough.

    Attributes:
        tests: the tests.
        error: why a pattern in it does not compile; empty where all is well.
        has_bound: whether one of them is a bound, which an absent value cannot be shown to keep.
    """

    tests: tuple[Test, ...]
    error: str = ""
    has_bound: bool = False

    @classmethod
    def of(
        cls, *, equals: Any = ABSENT, contains: str | None = None, matches: str | None = None, above: Any = None
    ) -> Condition:
        """The condition of a rule's settings. Raises InvalidPolicy."""
        tests: list[Test] = []
        error = ""
        if equals is not ABSENT:
            wanted = json_value(equals, "equals")
            tests.append(Named((wanted,)).has)
        if contains is not None:
            check_text(contains, "contains")
            found = containing(contains)
            tests.append(lambda value, place: found(value))
        if matches is not None:
            pattern = compiled(matches, "matches")
            error = pattern.error
            tests.append(lambda value, place: any_text(value, pattern.matches))
        if above is not None:
            check_number(above, "above")
            bound = number_of(above)
            tests.append(lambda value, place: _is_above(place.number(value), bound))
        return cls(tuple(tests), error, above is not None)

    def holds(self, values: Iterable[Any], place: Place) -> bool:
        """Whether it holds for one of `values`, which stand at `place`; never for an absent one."""
        for value in values:
            if value is ABSENT:
                continue
            for test in self.tests:
                if not test(value, place):
                    break
            else:
                return True
        return False


def _is_above(number: Decimal | None, bound: Decimal) -> bool:
    return number is None or number > bound  # what is not a number cannot be shown to be small

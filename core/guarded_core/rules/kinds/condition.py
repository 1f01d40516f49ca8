"""When a parameter's value is one that a rule speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from guarded_core.ground.pointer import ABSENT
from guarded_core.rules.kinds.base import check_number, check_text, compiled, json_value
from guarded_core.rules.values import any_text, exact, has_text, is_number

Test = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """Tests that a value has to pass all of; none at all means that its presence is enough.

    Attributes:
        tests: the tests.
        error: why a pattern in it does not compile; empty where all is well.
    """

    tests: tuple[Test, ...]
    error: str = ""

    @classmethod
    def of(
        cls, *, equals: Any = ABSENT, contains: str | None = None, matches: str | None = None, above: Any = None
    ) -> Condition:
        """The condition of a rule's settings. Raises InvalidPolicy."""
        tests: list[Test] = []
        error = ""
        if equals is not ABSENT:
            wanted = exact(json_value(equals, "equals"))
            tests.append(lambda value: exact(value) == wanted)
        if contains is not None:
            check_text(contains, "contains")
            tests.append(lambda value: has_text(value, contains))
        if matches is not None:
            pattern = compiled(matches, "matches")
            error = pattern.error
            tests.append(lambda value: any_text(value, pattern.matches))
        if above is not None:
            check_number(above, "above")
            # What is no number cannot be shown to be small.
            tests.append(lambda value: not is_number(value) or value > above)
        return cls(tuple(tests), error)

    def holds(self, values: Iterable[Any]) -> bool:
        """Whether it holds for one of `values`; never for an absent one."""
        for value in values:
            if value is ABSENT:
                continue
            for test in self.tests:
                if not test(value):
                    break
            else:
                return True
        return False

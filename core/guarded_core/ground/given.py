"""What was handed over in the place of something else: named by its type, never by its value."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from guarded_core.ground.errors import GuardConfigurationError, InvalidTool

_NAME = 64
_NO_LISTS = (str, bytes, bytearray, Mapping, type)


def kind(value: object) -> str:
    """``None``, ``a function``, ``the class X``, or ``a`` or ``an`` and the name of its type."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__[:_NAME]}"
    if inspect.isroutine(value):
        return "a function"
    name = type(value).__name__[:_NAME]
    return f"{'an' if name[:1] in 'AEIOUaeiou' else 'a'} {name}"


def misplaced(what: str, wanted: str, value: object, hint: str = "") -> GuardConfigurationError:
    """The error for `value`, which stands where `what` belongs; a hint says what to do."""
    return GuardConfigurationError(f"{what} is {wanted}, and {kind(value)} was given{hint and '; '}{hint}")


def require(kinds: type | tuple[type, ...], what: str, wanted: str, value: object, hint: str = "") -> None:
    """Raises GuardConfigurationError unless `value` is one of `kinds`."""
    if not isinstance(value, kinds):
        raise misplaced(what, wanted, value, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKind:
    """A framework's tools, and what its adapter says of anything else.

    Attributes:
        framework: its name.
        base: what all of its tools are.
        others: by the top module of a type's bases, what to do with an object of that type.
        ways: by an attribute that an object has, what to do with it; the first that fits.
    """

    framework: str
    base: type
    others: Mapping[str, str]
    ways: Mapping[str, str]

    def listed(self, tools: Iterable[Any]) -> list[Any]:
        """Each of `tools`. Raises GuardConfigurationError for what is no list of them."""
        if isinstance(tools, self.base) or inspect.isroutine(tools):
            hint = "put it in a list, guard_tools([tool], guard), or use guard_tool(tool, guard)"
        elif isinstance(tools, Iterable) and not isinstance(tools, _NO_LISTS) and not self._other(tools):
            return list(tools)
        else:
            hint = self._way(tools)
        raise misplaced("tools", f"a list of {self.framework} tools and functions", tools, hint)

    def check(self, tool: object) -> None:
        """Raises InvalidTool for what is neither a tool of the framework nor a function to make one of."""
        if isinstance(tool, self.base) or (inspect.isroutine(tool) and not isinstance(tool, type)):
            return
        hint = self._way(tool)
        raise InvalidTool(
            f"each is a {self.framework} tool or a function, and {kind(tool)} was given{hint and '; '}{hint}"
        )

    def _other(self, value: object) -> str:
        tops = {base.__module__.partition(".")[0] for base in type(value).__mro__}
        return next((way for top, way in self.others.items() if top in tops), "")

    def _way(self, value: object) -> str:
        if isinstance(value, type):
            return "make an instance of it first" if issubclass(value, self.base) else ""
        if inspect.isawaitable(value) or inspect.isasyncgen(value):
            return "await it first"
        return self._other(value) or next((way for name, way in self.ways.items() if hasattr(value, name)), "")

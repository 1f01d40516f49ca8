"""Rules that name what is forbidden; an absent parameter never violates one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from guarded_core.ground.pointer import ABSENT
from guarded_core.rules.case import Case, Finding
from guarded_core.rules.kinds.base import ParamRule, RuleKind, ToolRule, check_text, either, keep
from guarded_core.rules.kinds.condition import Condition
from guarded_core.rules.values import containing


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyTool(ToolRule):
    """Denies every call of a tool, which is then not shown to a model at all."""

    kind: ClassVar[str] = "deny_tool"

    @property
    def denies(self) -> str:
        """The tool that no call can be allowed of."""
        return self.tool

    def check(self, case: Case) -> Finding | None:
        """An objection, always."""
        return Finding("the tool is denied")


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyKeyword(RuleKind):
    """Denies a call of any tool with a text in any parameter, however deep, or in a name that it does not declare.

    Upper and lower case differ.

    Attributes:
        keyword: the text.
    """

    kind: ClassVar[str] = "deny_keyword"

    keyword: str
    _found: Callable[[Any], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_text(self.keyword, "keyword")
        keep(self, "_found", containing(self.keyword))

    @property
    def subject(self) -> str:
        """The text."""
        return self.keyword

    def check(self, case: Case) -> Finding | None:
        """An objection where the text is found."""
        for arguments in (case.action.parameters, case.rewritten):
            for name, value in arguments.items():
                # An open argument's name is the model's own text; a declared one's is not.
                if self._found(value) or (self.keyword in name and not case.reading.declares(name)):
                    return Finding("a parameter contains a denied keyword")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyToolParam(ParamRule):
    """Denies a call whose parameter is present, and has the value or the part that is named, if any.

    Attributes:
        equals: the exact JSON value.
        contains: a part of the value's string form, or of a string inside it; with `equals`, both have to hold.
    """

    kind: ClassVar[str] = "deny_tool_param"

    equals: Any = ABSENT
    contains: str | None = None
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        keep(self, "_condition", Condition.of(equals=self.equals, contains=self.contains))

    @property
    def only(self) -> tuple[Any, ...] | None:
        """No value at all, where none is named."""
        return None if self._condition.tests else ()

    def check(self, case: Case) -> Finding | None:
        """An objection where one of the parameter's values is as named."""
        if self._condition.holds(either(self._param, case), self.place(case)):
            denied = "a denied value" if self._condition.tests else "a value, and must be left out"
            return Finding(f"parameter {self.param!r} has {denied}")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DenyToolParamMatching(ParamRule):
    """Denies a call whose parameter matches a regular expression anywhere in its string form.

    Attributes:
        matches: the expression, without lookaround and backreferences; one that does not compile denies every call.
    """

    kind: ClassVar[str] = "deny_tool_param_matching"

    matches: str
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        keep(self, "_condition", Condition.of(matches=self.matches))

    @property
    def error(self) -> str:
        """Why the pattern does not compile."""
        return self._condition.error

    def check(self, case: Case) -> Finding | None:
        """An objection where one of the parameter's values matches."""
        if self.error:
            return Finding(self.error)
        if self._condition.holds(either(self._param, case), self.place(case)):
            return Finding(f"parameter {self.param!r} matches a denied pattern")
        return None

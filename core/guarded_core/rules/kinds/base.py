"""What all kinds of rules share: their settings, and how they are checked when a rule is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any, ClassVar, Literal, get_args

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import PayloadRefused, PayloadTooLarge, freeze
from guarded_core.ground.pointer import ABSENT, Param
from guarded_core.rules.case import Case, Finding, Rule
from guarded_core.rules.patterns import Pattern, is_glob
from guarded_core.rules.values import is_number
from guarded_core.tools.reading import Place
from guarded_core.tools.spec import is_identifier

Absence = Literal["deny", "allow"]


def keep(rule: RuleKind, name: str, value: object) -> None:
    """Set a field of a frozen rule while it is made."""
    object.__setattr__(rule, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleKind(Rule):
    """A rule with settings, as a policy file writes it.

    Attributes:
        enforce: false records what the rule would have done, and does nothing.
        description: one line for people.
    """

    kind: ClassVar[str]

    enforce: bool = True
    description: str = ""

    @property
    def name(self) -> str:
        """Kind and subject, such as ``deny_tool:deploy``."""
        return f"{self.kind}:{self.subject}"

    @property
    def subject(self) -> str:
        """What the rule is about."""
        raise NotImplementedError

    @property
    def spec(self) -> Mapping[str, Any]:
        """Its settings as JSON; one that has its default is left out."""
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        defaults = {f.name: f.default for f in fields(self)}
        return {"kind": self.kind} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
            if value is not defaults[name] and value != defaults[name]
        }

    def check(self, case: Case) -> Finding | None:
        """The objection to `case`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRule(RuleKind):
    """A rule about the calls of some tools.

    Attributes:
        tool: exact name, or a glob such as ``mail_*``.
    """

    tool: str

    def __post_init__(self) -> None:
        check_tool(self.tool, "tool")

    @property
    def subject(self) -> str:
        """The tool."""
        return self.tool

    @property
    def tools(self) -> str | tuple[str, ...] | None:
        """The tools it is asked of."""
        return self.tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamRule(ToolRule):
    """A rule about one parameter of some tools.

    Attributes:
        param: name, or JSON Pointer such as ``/items/*/sku``, of the parameter.
    """

    param: str
    _param: Param = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ToolRule.__post_init__(self)
        keep(self, "_param", Param.parse(self.param))

    @property
    def subject(self) -> str:
        """Tool and parameter."""
        return joined_subject(self.tool, self.param)

    @property
    def parameter(self) -> Param | None:
        """That parameter."""
        return self._param

    def values(self, case: Case) -> list[Any]:
        """What the parameter has in this call; ABSENT for each place where it is missing."""
        return self._param.find(case.action.parameters)

    def place(self, case: Case) -> Place:
        """What the tool makes of values there."""
        return case.reading.at(self._param)

    def left_out(self, case: Case) -> bool:
        """Whether the call does not give the parameter, and nothing stands in its place."""
        written = self.values(case) if case.written is None else self._param.find(case.written)
        return all(value is ABSENT for value in written) and all(
            value is ABSENT or value is None for value in self.values(case)
        )


def either(param: Param, case: Case) -> list[Any]:
    """The effective values of a parameter, and others that were written; ABSENT only where the effective one is."""
    effective = param.find(case.action.parameters)
    if not case.rewritten or not (param.tokens[0] is None or param.tokens[0] in case.rewritten):
        return effective
    return [*effective, *(value for value in param.find(case.rewritten) if value is not ABSENT)]


def check_tool(tool: object, where: str) -> None:
    """Raises InvalidPolicy unless `tool` can name a tool."""
    if not is_identifier(tool) and not (isinstance(tool, str) and is_glob(tool)):
        raise InvalidPolicy(
            "must be a tool's name, of ASCII letters, digits, '_' or '-', or a glob of such", where=where
        )


def check_text(text: object, where: str) -> None:
    """Raises InvalidPolicy unless `text` is a string that is not empty: an empty one is in every text."""
    if not isinstance(json_value(text, where), str) or not text:
        raise InvalidPolicy("must be text that is not empty", where=where)


def check_number(number: object, where: str, *, at_least: float | None = None, at_most: float | None = None) -> None:
    """Raises InvalidPolicy unless `number` is a JSON number within these bounds."""
    json_value(number, where)
    if not is_number(number):
        raise InvalidPolicy("must be a number", where=where)
    if at_least is not None and number < at_least:  # type: ignore[operator]
        raise InvalidPolicy(f"must be at least {at_least}", where=where)
    if at_most is not None and number > at_most:  # type: ignore[operator]
        raise InvalidPolicy(f"must be at most {at_most}", where=where)


def check_absence(absent: object) -> None:
    """Raises InvalidPolicy for what is not an `Absence`."""
    if absent not in get_args(Absence):
        raise InvalidPolicy('must be "deny" or "allow"', where="absent")


def number_of(number: int | float) -> Decimal:
    """A rule's own number, as people write it: 0.1 is a tenth."""
    return Decimal(repr(number))


def json_value(value: object, where: str) -> Any:
    """A private copy of a JSON value. Raises InvalidPolicy for what is not one."""
    try:
        return freeze(value).value
    except (PayloadRefused, PayloadTooLarge) as error:
        raise InvalidPolicy(f"is not a JSON value that rules can compare: {error}", where=where) from None


def compiled(pattern: object, where: str, *, whole: bool = False) -> Pattern:
    """`pattern`, compiled; one that does not compile is not an error here: its rule denies, and says why."""
    check_text(pattern, where)
    try:
        return Pattern(str(pattern), whole=whole)
    except InvalidPolicy as error:
        raise InvalidPolicy(error.reason, where=where) from None


def joined_subject(tool: str, param: str) -> str:
    """Tool and parameter in one name: ``http_request.url``, or ``order/items/*/sku``."""
    return tool + param if param.startswith("/") else f"{tool}.{param}"

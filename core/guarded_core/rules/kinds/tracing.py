"""Rules about where a value came from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.pointer import ABSENT, Path
from guarded_core.provenance.origin import UNKNOWN, Origin, Origins, Spot, Trace
from guarded_core.rules.case import Asks, Case, Effect, Finding
from guarded_core.rules.kinds.base import ParamRule, check_number, check_tool, keep, number_of
from guarded_core.rules.patterns import names_tool

ValueKind = Literal[
    "auto", "email", "url", "account", "number", "amount", "date", "id", "exact", "phrase", "text", "names"
]

_FREE_TEXT = ("text", "names")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireOrigin(ParamRule):
    """Denies a call, or asks a person, unless the values of its parameter came from accepted origins.

    Origins, best first: user, trusted, made, own, known, named, member, mentioned, lookalike, secret, untrusted,
    unknown. "known" is whom the user has dealt with before, in any record of theirs; "named" is what they pointed at;
    who accepts "own" accepts both the people of their one record that they named, and those they know.
    Each scalar inside the parameter counts by itself; what is absent or empty, and a truth value, says nothing.

    A value is compared by what it looks like ("auto"), or as the kind that `value` names. "text" is for free text: it
    looks at the links, addresses and accounts in it, and at what it carries out (secrets, and identifiers of sources
    that the user did not name); "names" looks at the proper names in it.

    Attributes:
        accept: origins that pass.
        ask: origins that a person is asked about.
        otherwise: what becomes of any other origin: "deny" or "ask".
        value: what values are compared as.
        returned_by: names or globs of the tools whose outputs count; a mail's id may be alike a file's.
        up_to: numbers from 0 to this one pass, wherever they came from.
    """

    kind: ClassVar[str] = "require_origin"

    accept: tuple[Origin, ...] = (Origin.USER, Origin.TRUSTED)
    ask: tuple[Origin, ...] = ()
    otherwise: Effect = "deny"
    value: ValueKind = "auto"
    returned_by: tuple[str, ...] = ()
    up_to: int | float | None = None

    def __post_init__(self) -> None:
        ParamRule.__post_init__(self)
        for name in ("accept", "ask"):
            keep(self, name, _origins(getattr(self, name), name))
        if self.value not in get_args(ValueKind):
            raise InvalidPolicy(f"must be one of {', '.join(get_args(ValueKind))}", where="value")
        keep(self, "returned_by", tuple(self.returned_by))
        for tool in self.returned_by:
            check_tool(tool, "returned_by")
        if self.otherwise not in ("deny", "ask"):
            raise InvalidPolicy('must be "deny" or "ask"', where="otherwise")
        if self.up_to is not None:
            check_number(self.up_to, "up_to", at_least=0)

    @property
    def traces(self) -> bool:
        """It does; a tool's standing approval can be waived where it holds."""
        return True

    @property
    def refuses(self) -> bool:
        """Unless it asks instead."""
        return self.otherwise != "ask"

    @property
    def asks(self) -> Asks:
        """About some values, where it is told to."""
        return "some" if self.ask or self.otherwise == "ask" else "never"

    def speaks_of(self, case: Case) -> bool:
        """Whether the call has a value of the parameter at all."""
        return any(True for _ in self._scalars(case))

    def check(self, case: Case) -> Finding | None:
        """An objection to the first value that must not pass, or else the wish to be asked about another."""
        asked = None
        accept, ask = _meant(self.accept), _meant(self.ask)
        for traces in self._traces(case):
            if any(trace.origin in accept for trace in traces):
                continue
            if any(trace.origin in ask for trace in traces):
                asked = asked or traces[0]
            elif self.otherwise == "ask":
                return self._finding(asked or traces[0], "ask")  # no other value can be denied
            else:
                return self._finding(traces[0], "deny")
        return None if asked is None else self._finding(asked, "ask")

    def _scalars(self, case: Case) -> Iterator[tuple[Path, Any]]:
        """The values as they were written, since those came from somewhere; where none was, what the tool has."""
        effective = self._param.locate(case.action.parameters)
        written = effective if case.written is None else self._param.locate(case.written)
        is_absent = any(value is ABSENT for _, value in written)
        return _scalars([*written, *effective] if is_absent else written)

    def _finding(self, trace: Trace, effect: Effect) -> Finding:
        return Finding(f"parameter {self.param!r} has a value of origin {trace}", effect)

    def _traces(self, case: Case) -> Iterator[tuple[Trace, ...]]:
        reads, arguments = self.place(case), case.action.parameters if case.written is None else case.written
        for path, value in self._scalars(case):
            number = reads.number(value)
            if self.value in _FREE_TEXT:
                yield from self._in_text(value, case.origins)
            elif self.up_to is None or number is None or not 0 <= number <= number_of(self.up_to):
                traces = case.origins.trace(value, self.value, Spot(case.action.tool, path, arguments))
                yield tuple(trace for trace in traces if self._counts(trace)) or UNKNOWN

    def _counts(self, trace: Trace) -> bool:
        return not self.returned_by or not trace.tool or any(names_tool(tool, trace.tool) for tool in self.returned_by)

    def _in_text(self, value: Any, origins: Origins) -> Iterator[tuple[Trace, ...]]:
        if not isinstance(value, str):
            yield UNKNOWN
        elif self.value == "names":
            yield from origins.names(value)
        else:
            yield from origins.identifiers(value)
            leak = origins.leaks(value)
            if leak is not None:
                yield (leak,)


def _meant(origins: tuple[Origin, ...]) -> frozenset[str]:
    """Who accepts "own" accepts whom the user knows as well: that is what it stood for before it was two."""
    return frozenset(origins) | ({Origin.KNOWN} if Origin.OWN in origins else frozenset())


def _origins(given: object, where: str) -> tuple[str, ...]:
    if not isinstance(given, list | tuple):
        raise InvalidPolicy("must be a list of origins", where=where)
    try:
        return tuple(Origin(name).value for name in given)  # plain text, for the policy's hash
    except ValueError:
        raise InvalidPolicy(f"must name origins: {', '.join(Origin)}", where=where) from None


def _scalars(located: Iterable[tuple[Path, Any]]) -> Iterator[tuple[Path, Any]]:
    """Every scalar, and every key, with the way to it; one that stands at a place several times, once."""
    pending = deque(located)
    known: set[tuple[Path, type, Any]] = set()
    while pending:
        path, value = pending.popleft()
        if isinstance(value, dict):
            pending += [(path, key) for key in value]
            pending += [((*path, key), member) for key, member in value.items()]
        elif isinstance(value, list):
            pending += [((*path, "*"), item) for item in value]
        elif value is ABSENT or value is None or isinstance(value, bool) or value == "":
            continue
        elif (path, type(value), value) not in known:
            known.add((path, type(value), value))
            yield path, value

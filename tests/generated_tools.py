"""Tools drawn at random, for both frameworks: what is shown, judged, approved and run has to be one thing."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import dataclasses
import datetime as dt
import enum
import ipaddress
import json
import os
import re
import uuid
from collections import Counter, deque
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    StringConstraints,
    TypeAdapter,
    WrapValidator,
    create_model,
)
from typing_extensions import TypedDict

from guarded_core.ground.payload import PayloadLimits, freeze

IS_FULL = os.environ.get("GUARDED_FULL") == "1"
EXAMPLES = 5_000 if IS_FULL else 220

ROOT = Path(__file__).parents[1]


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    number: int = 1


class Aliased(BaseModel):
    full_name: str = Field(alias="fullName")
    tags: list[str] = Field(default_factory=list)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Movie(TypedDict):
    title: str
    year: int


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass(frozen=True)
class Kind:
    """A parameter's type, with JSON that fits it, and JSON that may not.

    Attributes:
        annotation: the type.
        fitting: the first is its default, where it has one.
        odd: other spellings, wrong types, and values that are out of bounds.
        free: whether it takes any object.
    """

    annotation: Any
    fitting: tuple[Any, ...]
    odd: tuple[Any, ...] = (None, "", [], {"a": 1}, 7, True)
    free: bool = False


KINDS: dict[str, Kind] = {
    "str": Kind(str, ("bob", " A b ", "Ünï", '["x"]', "")),
    "int": Kind(int, (7, -1, 0, 10_000_000_000), ("7", 7.0, 7.5, None, True)),
    "float": Kind(float, (1.5, 2, -0.25), ("1.5", None, True)),
    "bool": Kind(bool, (True, False), ("true", 1, None)),
    "optional str": Kind(str | None, ("a", None), (7, [])),
    "date": Kind(dt.date, ("2026-01-02", "1999-12-31"), ("2026-01-02T00:00:00Z", 1, "tomorrow")),
    "datetime": Kind(dt.datetime, ("2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00"), ("2026-01-02", 1, "now")),
    "time": Kind(dt.time, ("03:04:05", "23:59:59.250000"), (3600, "noon")),
    "timedelta": Kind(dt.timedelta, ("P1DT2H", "PT90M"), (90, "1 day")),
    "Decimal": Kind(Decimal, ("10.50", 3, 0.1, "1e3"), ("ten", None)),
    "UUID": Kind(uuid.UUID, ("123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000"), ("no", 1)),
    "Path": Kind(Path, ("docs/a.txt", "docs//./b"), (1, None)),
    "bytes": Kind(bytes, ("abc", "é"), (1, None)),
    "HttpUrl": Kind(HttpUrl, ("https://Example.com", "https://example.com/a?b=1"), ("ftp://x", "no", 1)),
    "IPv4": Kind(ipaddress.IPv4Address, ("192.168.0.1",), ("1.2.3", 1)),
    "str enum": Kind(Colour, ("red", "blue"), ("green", 1)),
    "int enum": Kind(Level, (1, 2), ("1", 3)),
    "literal": Kind(Literal["a", 1], ("a", 1), ("b", 2)),
    "list": Kind(list[int], ([1, 2], []), (["1"], [1.5], 1)),
    "set": Kind(set[str], (["b", "a", "c"], [], ["a", "a"]), ([1], "a")),
    "frozenset": Kind(frozenset[int], ([3, 1, 2],), (["1"],)),
    "tuple": Kind(tuple[int, str], ([1, "a"],), ([1], ["a", 1], [1, "a", 2])),
    "tuple of any length": Kind(tuple[int, ...], ([1, 2, 3], []), (["a"],)),
    "deque": Kind(deque[int], ([1, 2],), (["a"],)),
    "map of int": Kind(dict[str, int], ({}, {"a": 1}), ({"a": "x"},), free=True),
    "map of any": Kind(dict[str, Any], ({}, {"a": {"b": [1]}}), ([],), free=True),
    "bare dict": Kind(dict, ({}, {"a": 1}), ("a",), free=True),
    "list of dict": Kind(list[dict[str, Any]], ([], [{"a": 1}]), (["a"],), free=True),
    "any": Kind(Any, ("a", 1.5, None, [1, ["a"]], {"a": 1}), free=True),
    "model": Kind(Address, ({"street": "a"}, {"street": "b", "number": 2}), ({"number": 1}, {"street": 1}, "a")),
    "model with an alias": Kind(Aliased, ({"fullName": "a"}, {"fullName": "b", "tags": ["x"]}), ({"full_name": "a"},)),
    "list of models": Kind(list[Address], ([{"street": "a"}], []), ([{"street": "a", "more": 1}], ["a"])),
    "map of models": Kind(dict[str, Address], ({}, {"k": {"street": "a"}}), ({"k": {}},), free=True),
    "one of models": Kind(
        Annotated[Cat | Dog, Field(discriminator="kind")],
        ({"kind": "cat", "lives": 9}, {"kind": "dog", "name": "Rex"}),
        ({"kind": "cow"}, {"kind": "cat", "name": "Tom"}),
    ),
    "dataclass": Kind(Point, ({"x": 1, "y": 2.5}, {"x": 1}), ({"y": 1}, [1])),
    "typed dict": Kind(Movie, ({"title": "a", "year": 1999},), ({"title": "a"}, {"title": "a", "year": 1, "more": 2})),
    "named tuple": Kind(Pair, ([1, "a"],), ([1], {"left": 1})),
    "int or str": Kind(int | str, (1, "1", "a"), (None, [])),
    "date or str": Kind(dt.date | str, ("2026-01-02", "soon"), (None, [])),
    "bounded int": Kind(Annotated[int, Field(ge=1, le=10)], (1, 10), (0, 11, "5")),
    "patterned str": Kind(Annotated[str, StringConstraints(pattern=r"^[a-z]{2,4}$")], ("ab", "abcd"), ("A", "abcde")),
    "stripped str": Kind(Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True)], (" Ab ", "ab"), (1,)),
    "json": Kind(Json[list[int]], ("[1, 2]", "[]"), ("{", [1], "1")),
    "size": Kind(ByteSize, (1000, 12), ("1KB", -1)),
}

VALIDATORS = ("none", "before", "after", "wrap", "normalising", "unsteady")
DEFAULTS = ("none", "plain", "factory")


def _reads_text(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in "[{" else value
    except ValueError:
        return value


def _unsteady(value: Any) -> Any:
    return f"<{value}>" if type(value) is str else -value - 1 if type(value) is int else value


def _normalised(value: Any) -> Any:
    return value.strip().lower() if type(value) is str else value


_ANNOTATED: dict[str, Any] = {
    "before": BeforeValidator(_reads_text),
    "after": AfterValidator(lambda value: value),
    "wrap": WrapValidator(lambda value, inner: inner(value)),
    "normalising": AfterValidator(_normalised),
    "unsteady": AfterValidator(_unsteady),
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One parameter of a drawn tool."""

    name: str
    kind: str
    validator: str = "none"
    default: str = "none"
    alias: str | None = None

    @property
    def shown_as(self) -> str:
        """Its name in the schema."""
        return self.alias or self.name

    @property
    def annotation(self) -> Any:
        """Its type with its validator."""
        own = KINDS[self.kind].annotation
        return own if self.validator == "none" else Annotated[own, _ANNOTATED[self.validator]]

    @property
    def is_unsteady(self) -> bool:
        """Whether its validator changes what it made."""
        return self.validator == "unsteady" and self.kind in ("str", "int")

    def value(self) -> Any:
        """Its default, as Python has it."""
        return TypeAdapter(KINDS[self.kind].annotation).validate_python(KINDS[self.kind].fitting[0])

    def field(self) -> tuple[Any, Any]:
        """It as pydantic declares it."""
        given: dict[str, Any] = {"alias": self.alias} if self.alias else {}
        if self.default == "plain":
            given["default"] = self.value()
        elif self.default == "factory":
            given["default_factory"] = self.value
        return self.annotation, Field(**given)


@dataclasses.dataclass(frozen=True)
class Case:
    """A drawn tool, what its policy says, and one call of it."""

    made: str
    parameters: tuple[Parameter, ...]
    extra: str
    injected: str
    is_open: bool
    is_opaque: bool
    arguments: dict[str, Any]
    is_async: bool

    @property
    def settings(self) -> dict[str, Any]:
        """What the policy says of it, beside its risk."""
        places = tuple(f"/{one.shown_as}" for one in self.parameters if KINDS[one.kind].free)
        opaque = tuple(one.shown_as for one in self.parameters if one.is_unsteady)
        return {
            "open": places if self.is_open else (),
            "open_arguments": self.is_open and self.extra == "allow",
            "opaque": opaque if self.is_opaque else (),
        }

    def model(self) -> type[BaseModel]:
        """Its parameters as a model."""
        config = ConfigDict(extra=self.extra) if self.extra != "none" else ConfigDict()
        fields: dict[str, Any] = {one.name: one.field() for one in self.parameters}
        return create_model("Arguments", __config__=config, **fields)

    def classes(self) -> list[str]:
        """The classes that it falls into."""
        found = [f"made: {self.made}", f"extra: {self.extra}", f"injected: {self.injected}"]
        for one in self.parameters:
            found += [f"type: {one.kind}", f"validator: {one.validator}", f"default: {one.default}"]
            found.append("name: an alias" if one.alias else "name: its own")
        found.append("call: async" if self.is_async else "call: sync")
        if self.is_open:
            found.append("policy: open")
        if self.settings["opaque"]:
            found.append("policy: opaque")
        return list(dict.fromkeys(found))


@st.composite
def cases(draw: Any, *, made: dict[str, dict[str, tuple[str, ...]]], first: str) -> Case:
    """Any tool, with a call of it that mostly fits.

    Args:
        draw: hypothesis's.
        made: the ways to make a tool, each with what it leaves open: "extra", "injected", "validator", "default",
            "alias".
        first: the kind of the first parameter.
    """
    turn = sorted(KINDS).index(first)

    def pick(options: Any) -> Any:
        """One of them; which one is the likeliest depends on the kind."""
        return options[(turn + draw(st.integers(0, len(options) - 1))) % len(options)]

    way = pick(sorted(made))
    allowed = made[way]
    parameters = []
    for name in draw(st.sampled_from([("alpha",), ("alpha", "beta"), ("alpha", "beta", "gamma")])):
        kind = draw(st.sampled_from(sorted(KINDS))) if parameters else first
        default = pick(allowed["default"])
        validator = pick(allowed["validator"])
        if validator == "unsteady" and kind not in ("str", "int"):
            kind, validator = (draw(st.sampled_from(["str", "int"])), validator) if parameters else (kind, "after")
        alias = name.upper() if "yes" in allowed["alias"] and draw(st.booleans()) else None
        # Pydantic shows such a default parsed, where its own schema wants text: that tool is refused at wrap.
        default = "none" if kind == "json" else default
        parameters.append(Parameter(name, kind, validator, default, alias))
    arguments = {}
    for one in parameters:
        if one.default != "none" and draw(st.booleans()):
            continue
        known = KINDS[one.kind]
        odd = draw(st.integers(0, 5)) == 0
        arguments[one.shown_as] = draw(st.sampled_from(known.odd if odd else known.fitting))
    if draw(st.integers(0, 7)) == 0:
        arguments["zz"] = draw(st.sampled_from(["more", 1]))
    return Case(
        made=way,
        parameters=tuple(parameters),
        extra=pick(allowed["extra"]),
        injected=pick(allowed["injected"]),
        is_open=draw(st.booleans()),
        is_opaque=draw(st.booleans()),
        arguments=json.loads(json.dumps(arguments)),
        is_async=draw(st.booleans()),
    )


def profile(**more: Any) -> Any:
    """How many examples, and no deadline: a shared machine has slow moments."""
    share = -(-EXAMPLES // len(KINDS))
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    return settings(
        max_examples=share, deadline=None, derandomize=not IS_FULL, suppress_health_check=slow, database=None, **more
    )


def canonical(value: Any) -> bytes:
    """Its canonical bytes."""
    return freeze(value, PayloadLimits()).canonical


def sorted_sets(value: Any, dumped: Any) -> Any:
    """The JSON of a value with each set in it in one order, written apart from the guard's own."""
    if isinstance(value, set | frozenset):
        return sorted(dumped, key=canonical)
    if isinstance(value, list | tuple | deque) and isinstance(dumped, list):
        return [sorted_sets(*pair) for pair in zip(value, dumped, strict=True)]
    return dumped


def dumped(parameter: Parameter, value: Any) -> Any:
    """What a body's value says as JSON, by its type."""
    adapter: TypeAdapter[Any] = TypeAdapter(KINDS[parameter.kind].annotation)
    return sorted_sets(value, adapter.dump_python(value, mode="json", by_alias=True, round_trip=True))


def shortest(value: Any) -> Any:
    """The value with 10 for 10.0 where nothing parses it: a person approves a number in its shortest form."""
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is dict:
        return {name: shortest(member) for name, member in value.items()}
    return [shortest(member) for member in value] if type(value) is list else value


def closed_list() -> set[str]:
    """The codes of refusals that a bare tool does not have, as docs/differences.md lists them."""
    text = (ROOT / "docs" / "differences.md").read_text()
    table = text.partition("<!-- codes -->")[2].partition("<!-- end of codes -->")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def each_kind() -> list[str]:
    """The kinds of a first parameter: each has its share of the examples, so that none is left out."""
    return sorted(KINDS)


def report(counts: Counter[str], wanted: set[str], capsys: Any) -> None:
    """Print how many examples fell into each class, and fail for one that is empty."""
    with capsys.disabled() if IS_FULL else nullcontext():
        for name, count in sorted(counts.items()):
            print(f"\n{count:6}  {name}", end="")
    empty = wanted - counts.keys()
    assert not empty, f"no example of {sorted(empty)}"


def classes_of(made: dict[str, dict[str, tuple[str, ...]]]) -> set[str]:
    """Every class that `cases` can draw."""
    found = {f"made: {way}" for way in made} | {f"type: {kind}" for kind in KINDS}
    for name in ("extra", "injected", "validator", "default"):
        found |= {f"{name}: {one}" for allowed in made.values() for one in allowed[name]}
    found |= {"name: its own", "call: sync", "call: async", "policy: open"}
    return found


def over_all(
    made: dict[str, dict[str, tuple[str, ...]]],
    judged: Callable[[Case, Counter[str], set[str]], None],
    wanted: set[str],
    capsys: Any,
) -> None:
    """Have `judged` look at tools drawn for each kind of parameter, and report how many fell into each class.

    Args:
        made: how tools are made here.
        judged: asserts what holds of one, counts its classes, and is told the closed list of refusals.
        wanted: the classes, beside those of `made`, of which none may be empty.
        capsys: prints the report.
    """
    counts: Counter[str] = Counter()
    closed = closed_list()
    for kind in each_kind():

        @profile()
        @given(cases(made=made, first=kind))
        def holds(case: Case) -> None:
            judged(case, counts, closed)

        holds()
    report(counts, classes_of(made) | wanted, capsys)

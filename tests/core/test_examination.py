"""Tools are tried with samples when they are wrapped: what does not read back as itself is refused, by its name."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    Field,
    HttpUrl,
    Json,
    PlainSerializer,
    StringConstraints,
    WrapValidator,
    field_serializer,
    field_validator,
    model_validator,
)

from guarded_core import CallbackApprover, Guard, InvalidTool, PolicyDenied, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import AllowToolParam, DenyToolParam
from guarded_core.tools import samples
from guarded_core.tools.parsing import same


def registered(kind: Any, *, rules: Any = (), approver: Any = None, risk: str = "read_only", **settings: Any) -> Any:
    """A function with a parameter `to` of that kind, which returns what it gets, behind a guard; and the guard."""

    def send(to: Any, text: str = "hi") -> Any:
        ran.append(to)
        return "sent"

    ran: list[Any] = []
    send.__annotations__ = {"to": kind, "text": str}
    guard = Guard(ToolExecutionPolicy({"send": ToolSettings(risk=risk, **settings)}, rules=rules), approver=approver)
    return guard.tool(send), guard, ran


class Nested(BaseModel):
    inner: Annotated[str, AfterValidator(lambda value: value + "!")] = "x"
    count: int


class Swapped(BaseModel):
    a: int
    b: int

    @model_validator(mode="after")
    def swap(self) -> Swapped:
        self.a, self.b = self.b, self.a
        return self


class ByField(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def greet(cls, value: str) -> str:
        return f"Dear {value}"


class Masked(BaseModel):
    name: str

    @field_serializer("name")
    def mask(self, value: str) -> str:
        return "***"


UNSTEADY: dict[str, Any] = {
    "after": Annotated[str, AfterValidator(lambda value: f"<{value}>")],
    "after a number": Annotated[int, AfterValidator(lambda value: value * 100)],
    "within bounds": Annotated[int, Field(ge=10, le=20), AfterValidator(lambda value: min(value + 1, 20))],
    "of a time": Annotated[dt.datetime, AfterValidator(lambda value: value + dt.timedelta(days=1))],
    "before": Annotated[str, BeforeValidator(lambda value: f"{value}!")],
    "around": Annotated[str, WrapValidator(lambda value, inner: inner(value)[::-1] + "x")],
    "of another type": Annotated[list[str], AfterValidator(lambda value: ",".join(value))],
    "after a pattern": Annotated[
        str, StringConstraints(pattern=r"^ORD-\d{6}$"), AfterValidator(lambda value: value[4:])
    ],
    "a serializer": Annotated[str, PlainSerializer(lambda value: "***")],
    "a model's serializer": Masked,
    "a nested field": Nested,
    "in a list": list[Nested],
    "a field validator": ByField,
    "a model validator": Swapped,
    "a union": Annotated[str, AfterValidator(lambda value: f"<{value}>")] | None,
    "a map": dict[str, Annotated[int, AfterValidator(lambda value: -value)]],
}
STEADY: dict[str, Any] = {
    "text": str,
    "number": float,
    "normalised": Annotated[str, AfterValidator(lambda value: value.strip().lower())],
    "absolute": Annotated[int, AfterValidator(abs)],
    "read from text": Annotated[list[str], BeforeValidator(lambda v: json.loads(v) if isinstance(v, str) else v)],
    "url": HttpUrl,
    "time": dt.datetime,
    "span": dt.timedelta,
    "decimal": Decimal,
    "id": UUID,
    "path": Path,
    "size": ByteSize,
    "json": Json[list[int]],
    "set": set[str],
    "choice": Literal["a", "b"],
    "either": dt.date | str,
    "anything": Any,
}


class TestSteady:
    """A parameter has to read back as itself."""

    @pytest.mark.parametrize("kind", UNSTEADY.values(), ids=UNSTEADY)
    def test_one_that_does_not_is_refused_at_wrap(self, kind: Any) -> None:
        """By its name, with the way out; and what the policy marks is not refused."""
        with pytest.raises(InvalidTool, match=r"tool 'send': what 'to' .*\[tools.send\] opaque = \[\"to\"\]"):
            registered(kind)
        registered(kind, opaque=("to",))

    @pytest.mark.parametrize("kind", STEADY.values(), ids=STEADY)
    def test_one_that_does_is_taken(self, kind: Any) -> None:
        """Also where it normalises what it gets."""
        registered(kind)

    def test_only_the_odd_ones_are_named(self) -> None:
        """Whatever else the function takes, and whatever the policy says of others."""
        with pytest.raises(InvalidTool, match="what 'to' is parsed to"):
            registered(UNSTEADY["after"], opaque=("text",))


class TestOpaque:
    """An opaque parameter is judged, shown, approved and recorded as it is written; the tool makes its own of it."""

    KIND = Annotated[str, AfterValidator(lambda value: f"<{value}>")]

    def test_the_tool_gets_what_it_makes_of_it_once(self) -> None:
        """As without a guard."""
        send, guard, ran = registered(self.KIND, opaque=("to",))
        with guard.session("u", tools=["send"]):
            assert send(to="bob") == "sent"
        assert ran == ["<bob>"]

    @pytest.mark.parametrize(
        ("rule", "allowed"),
        [
            (DenyToolParam(tool="send", param="to", equals="bob"), ["<bob>"]),
            (DenyToolParam(tool="send", param="to", equals="<bob>"), ["bob"]),
            (AllowToolParam(tool="send", param="to", allow=["bob"]), ["bob"]),
            (AllowToolParam(tool="send", param="to", allow=["<bob>"]), ["<bob>"]),
        ],
    )
    def test_rules_see_what_was_written(self, rule: Any, allowed: list[str]) -> None:
        """And nothing that the tool would make of it, or of the rule's own values."""
        send, guard, _ = registered(self.KIND, rules=[rule], opaque=("to",))
        with guard.session("u", tools=["send"]):
            for value in ("bob", "<bob>"):
                if value in allowed:
                    assert send(to=value) == "sent"
                else:
                    with pytest.raises(PolicyDenied):
                        send(to=value)

    async def test_so_does_a_person(self) -> None:
        """And the digest is of that: another text asks again."""
        seen: list[Any] = []
        approver = CallbackApprover(lambda request: seen.append(request.arguments) or True, by="lee")
        _, guard, ran = registered(self.KIND, approver=approver, risk="financial", opaque=("to",))
        async with guard.session("u", tools=["send"]):
            assert await guard.acall("send", {"to": "bob"}) == "sent"
            assert guard.call("send", {"to": "kim"}) == "sent"
        assert seen == [{"to": "bob", "text": "hi"}, {"to": "kim", "text": "hi"}]
        assert ran == ["<bob>", "<kim>"]

    def test_what_is_left_out_stays_out(self) -> None:
        """The function's own default is not put through its validator by the guard's dump."""

        def send(to: Annotated[str, PlainSerializer(lambda value: "***")] = "all") -> str:
            return to

        guard = Guard(ToolExecutionPolicy({"send": ToolSettings(risk="read_only", opaque=("to",))}))
        guarded = guard.tool(send)
        with guard.session("u", tools=["send"]):
            assert guarded() == "all"
            assert guarded("bob") == "bob"


def test_samples_fit_their_schema() -> None:
    """For each kind of schema there are some, the same each time."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 40},
            "short": {"type": "string", "maxLength": 2},
            "order": {"type": "string", "pattern": r"^(ORD|INV)-[0-9]{6}[a-z]?$"},
            "count": {"type": "integer", "minimum": 10, "maximum": 12},
            "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.25},
            "kind": {"enum": ["a", 1, None]},
            "when": {"type": "string", "format": "date"},
            "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False},
            "tree": {"$ref": "#/$defs/Tree"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1},
        },
        "$defs": {
            "Tree": {
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}, "n": {"type": "integer"}},
                "required": ["n"],
            }
        },
    }
    drawn = samples.of_parameters(schema)
    assert drawn.keys() == schema["properties"].keys()
    for name, values in drawn.items():
        fits = samples.fitting(schema, schema["properties"][name])
        assert values, name
        assert fits is not None
        assert all(map(fits, values)), name
    assert samples.of_parameters(schema) == drawn
    assert max(map(len, drawn.values())) <= samples.MOST


@pytest.mark.parametrize(
    ("one", "other", "are_same"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (float("nan"), float("nan"), True),
        ([1, {"a": (2,)}], [1, {"a": (2,)}], True),
        ([1, {"a": (2,)}], [1, {"a": [2]}], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (Nested(inner="a", count=1), Nested(inner="a", count=1), True),
        (Nested(inner="a", count=1), Nested(inner="b", count=1), False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (object(), object(), True),
    ],
)
def test_same_is_equal_and_of_equal_type(one: Any, other: Any, are_same: bool) -> None:
    """All the way down; what knows no equality has only its type."""
    assert same(one, other) is are_same


def test_a_function_is_tried_before_it_is_registered() -> None:
    """One that is refused is unknown afterwards."""

    def taken(make: Callable[[], Any]) -> str:
        with pytest.raises(InvalidTool) as refused:
            make()
        return str(refused.value)

    guard = Guard(ToolExecutionPolicy({"send": "read_only"}))

    def send(to: Annotated[str, AfterValidator(lambda value: f"<{value}>")]) -> str:
        return to

    assert "'to'" in taken(lambda: guard.tool(send))
    assert guard.spec("send") is None

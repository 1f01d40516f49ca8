"""Argument models: their schema, JSON that parses back to itself, and what LangChain's own parser would hand over."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import Field as FieldV1
from pydantic.v1 import SecretStr as SecretStrV1

from guarded_core import Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_langchain import guard_tool
from guarded_langchain.arguments import Given, ToolArguments
from guarded_langchain.testing import ScriptedChatModel, says, tool_call


def made(model: Any, function: Any = print) -> StructuredTool:
    """A tool with that model."""
    return StructuredTool(name="sample", description="d", args_schema=model, func=function)


class Colour(Enum):
    RED = "red"


class Item(BaseModel):
    sku: str = Field(alias="SKU")
    count: int = 1


class Rich(BaseModel):
    when: datetime
    day: date = date(2026, 1, 2)
    wait: timedelta = timedelta(seconds=5)
    amount: Decimal = Decimal("1.50")
    id: UUID = UUID(int=7)
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    items: list[Item] = Field(default_factory=list)
    labels: dict[str, int] = Field(default_factory=dict)
    either: int | str | None = None
    limit: int = Field(5, ge=0, alias="max")
    pair: tuple[int, str] = (1, "x")


class RichV1(BaseModelV1):
    when: datetime
    day: date = date(2026, 1, 2)
    colour: Colour = Colour.RED
    labels: dict[str, int] = FieldV1(default_factory=dict)
    either: int | None = None
    limit: int = FieldV1(5, alias="max")


MOMENTS = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=UTC).isoformat()
)
SHARED = {
    "when": MOMENTS,
    "day": st.just("2026-05-06"),
    "colour": st.just("red"),
    "labels": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
    "max": st.integers(0, 99),
}
RICH = SHARED | {
    "wait": st.just("PT7S"),
    "amount": st.sampled_from(["3.25", "10"]),
    "id": st.uuids().map(str),
    "kind": st.sampled_from(["a", "b"]),
    "items": st.lists(
        st.fixed_dictionaries({"SKU": st.text(max_size=3)}, optional={"count": st.integers(0, 5)}), max_size=2
    ),
    "either": st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=3)),
    "pair": st.just([2, "y"]),
}


def some_of(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments with some of the optional ones."""
    optional = {name: strategy for name, strategy in values.items() if name != "when"}
    return st.fixed_dictionaries({"when": values["when"]}, optional=optional)


@pytest.mark.parametrize(("model", "values"), [(Rich, RICH), (RichV1, SHARED)], ids=["version 2", "version 1"])
@given(data=st.data())
def test_the_tool_gets_what_langchains_parser_makes(model: Any, values: dict[str, Any], data: st.DataObject) -> None:
    """Effective arguments are JSON, parse to themselves, and reach the tool as upstream's parser hands them over."""
    inner = made(model)
    arguments = ToolArguments(inner)
    raw = data.draw(some_of(values))
    call = arguments.of_call(Given(arguments=raw), "call-1")
    completed = call.complete(dict(raw))
    effective = raw if completed is None else completed
    assert call.complete(dict(effective)) is None
    bare = inner._to_args_and_kwargs(dict(raw), "call-1")
    assert call.for_tool(dict(effective)) == bare
    # A later try parses them anew, and gets the same.
    later = arguments.of_call(Given(arguments=raw), "call-1")
    assert later.for_tool(effective) == bare


def test_a_default_factory_runs_once(guard: Guard) -> None:
    """What is judged, asked about and run is one value, not two draws."""
    drawn: list[int] = []

    def draw() -> int:
        drawn.append(len(drawn))
        return drawn[-1]

    class Args(BaseModel):
        number: int = Field(default_factory=draw)

    ran: list[int] = []
    guard_tool(made(Args, lambda number: ran.append(number)), guard).invoke({})
    assert (drawn, ran) == ([0], [0])


def test_a_validator_that_changes_a_value_twice_is_refused(guard: Guard) -> None:
    """Otherwise a person would approve one value, and another one would run."""

    class Args(BaseModel):
        number: int

        @field_validator("number")
        @classmethod
        def grow(cls, value: int) -> int:
            return value + 1

    with pytest.raises(InvalidTool, match="'number'"):
        guard_tool(made(Args), guard)
    strict = guard.policy
    guard.reload(ToolExecutionPolicy({"sample": ToolSettings(risk="read_only", opaque=("number",))}))
    guarded = guard_tool(made(Args), guard)
    guard.reload(strict)
    call = {"name": "sample", "args": {"number": 1}, "id": "call-1", "type": "tool_call"}
    assert guarded.invoke(call).artifact["code"] == "invalid_payload"


def test_defaults_that_json_cannot_say_stay_the_tools_own(guard: Guard) -> None:
    """A function, or None for an int, is filled in by the parser, where nothing was given."""
    marker = object()

    class Args(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        a: int = None  # type: ignore[assignment]
        b: Any = marker

    ran: list[Any] = []
    guarded = guard_tool(made(Args, lambda a, b: ran.append((a, b))), guard)
    guarded.invoke({})
    guarded.invoke({"a": 1, "b": [2]})
    assert ran == [(None, marker), (1, [2])]


class BothNames(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    q: str = Field(alias="query")


class Choices(BaseModel):
    q: str = Field(validation_alias=AliasChoices("query", "q2"), serialization_alias="other")


class BothNamesV1(BaseModelV1):
    q: str = FieldV1(alias="query")

    class Config:
        allow_population_by_field_name = True


@pytest.mark.parametrize(
    ("model", "names"), [(BothNames, ["q", "query"]), (Choices, ["query"]), (BothNamesV1, ["q", "query"])]
)
def test_arguments_go_by_the_names_that_the_parser_takes(model: Any, names: list[str], guard: Guard) -> None:
    """The alias, and the field's own name where the model takes it; rules and approvers see one name."""
    ran: list[str] = []
    guarded: Any = guard_tool(made(model, lambda q: ran.append(q)), guard)
    for name in names:
        guarded.invoke({name: "x"})
    guarded.func(q="x")  # the function's own parameter
    assert ran == ["x"] * (len(names) + 1)
    spec = guard.spec("sample")
    assert spec is not None
    assert list(spec.schema["properties"]) == ["query"]


def test_another_name_for_an_argument_is_no_change_of_the_call(guard: Guard) -> None:
    """The model is told of changes that somebody made, not of a name that the parser takes too."""
    inner = made(BothNames, lambda q: f"got {q}")
    model = ScriptedChatModel([says(tool_call("sample", {"q": "x"})), "done"])
    out = create_agent(model, tools=[guard_tool(inner, guard)]).invoke({"messages": [("user", "go")]})
    assert out["messages"][2].content == "got x"


@pytest.mark.parametrize("twice", [{"q": "a", "query": "b"}])
def test_one_argument_under_both_names_is_refused(twice: dict[str, str], guard: Guard) -> None:
    """Which of them counts would be the parser's secret."""
    call = {"name": "sample", "args": twice, "id": "call-1", "type": "tool_call"}
    assert guard_tool(made(BothNames), guard).invoke(call).artifact["code"] == "invalid_payload"


class Open(BaseModel, extra="allow"):
    a: int


class OpenV1(BaseModelV1):
    a: int

    class Config:
        extra = "allow"


@pytest.mark.parametrize("model", [Open, OpenV1])
def test_open_arguments_reach_the_tool_where_the_policy_says_so(model: Any) -> None:
    """A model that allows extra arguments gets them only if the policy keeps it open."""
    for is_open in (True, False):
        settings = ToolSettings(risk="read_only", open_arguments=is_open)
        guard = Guard(ToolExecutionPolicy({"sample": settings}))
        ran: list[Any] = []
        guarded = guard_tool(made(model, lambda **given: ran.append(given)), guard)  # noqa: B023
        call = {"name": "sample", "args": {"a": 1, "b": {"c": 2}}, "id": "call-1", "type": "tool_call"}
        with guard.session("user-17", tools=["sample"]):
            assert (guarded.invoke(call).status == "success") == is_open
        assert ran == ([{"a": 1, "b": {"c": 2}}] if is_open else [])


def test_a_function_without_a_signature_is_refused(guard: Guard) -> None:
    """What it takes cannot be told."""
    with pytest.raises(InvalidTool, match="no signature"):
        guard_tool(made(Open, type), guard)


class Masked(BaseModel):
    password: SecretStr


class Left(BaseModel):
    a: int = Field(exclude=True)


class Path(BaseModel):
    a: int = Field(validation_alias=AliasPath("deep", "a"))


class NoJson(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    a: Guard


class MaskedV1(BaseModelV1):
    password: SecretStrV1


class NestedV1(BaseModelV1):
    inner: list[MaskedV1]


class LeftV1(BaseModelV1):
    a: int = FieldV1(exclude=True)


class NoJsonV1(BaseModelV1):
    a: Guard

    class Config:
        arbitrary_types_allowed = True


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Masked, "masked"),
        (Left, "excluded"),
        (Path, "plain alias"),
        (NoJson, "no JSON form"),
        (MaskedV1, "masked"),
        (NestedV1, "masked"),
        (LeftV1, "excluded"),
        (NoJsonV1, "no JSON form"),
    ],
)
def test_arguments_that_cannot_be_approved_are_refused_when_wrapping(model: Any, why: str, guard: Guard) -> None:
    """Two payloads must not look alike to an approver, and each must have a JSON form."""
    with pytest.raises(InvalidTool, match=why):
        guard_tool(made(model), guard)


def test_what_code_injects_may_be_anything(guard: Guard) -> None:
    """Masked or without a JSON form: an approver is not shown it."""

    @tool
    def sample(a: int, password: Annotated[SecretStr, InjectedToolArg] = SecretStr("x")) -> str:  # noqa: B008
        """Use a password."""
        return password.get_secret_value()

    assert guard_tool(sample, guard).invoke({"a": 1}) == "x"


def test_a_tool_that_takes_anything_needs_a_schema(guard: Guard) -> None:
    """`*args` and `**kwargs` of a subclass say nothing that could be checked."""

    class Anything(BaseTool):
        name: str = "sample"
        description: str = "d"

        def _run(self, *args: Any, **kwargs: Any) -> str:
            return "ran"

    with pytest.raises(InvalidTool, match="give the tool an args_schema"):
        guard_tool(Anything(), guard)

"""Validators and serializers that do not read back as themselves are refused at wrap, or judged as they are written."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import asyncio
import json
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import validator as validator_v1

from guarded_core import CallbackApprover, Guard, InvalidTool, ToolExecutionPolicy, ToolSettings, ToolWarning
from guarded_langchain import guard_tool, guard_tools

Bracketed = Annotated[str, AfterValidator(lambda value: f"<{value}>")]


def guarded(bare: BaseTool, *, asks: bool = False, **settings: Any) -> tuple[BaseTool, list[Any]]:
    """The tool behind a guard of its own, with a session; and what its approver saw."""
    seen: list[Any] = []
    known = ToolSettings(risk="financial" if asks else "read_only", **settings)
    approver = CallbackApprover(lambda request: seen.append(request.arguments) or True, by="lee")
    guard = Guard(ToolExecutionPolicy({bare.name: known}), approver=approver)
    return guard_tool(bare, guard, context=guard.session("u", tools=[bare.name])), seen


class ByField(BaseModel):
    to: str

    @field_validator("to")
    @classmethod
    def bracket(cls, value: str) -> str:
        return f"<{value}>"


class ByAlias(BaseModel):
    recipient: Bracketed = Field(alias="to")


class Serialized(BaseModel):
    to: Annotated[str, PlainSerializer(lambda value: "***")]


class V1(BaseModelV1):
    to: str

    @validator_v1("to")
    def bracket(cls, value: str) -> str:
        return f"<{value}>"


def send_by(model: Any) -> BaseTool:
    """A tool with that model of its arguments."""

    def send(to: str = "", recipient: str = "") -> str:
        return to or recipient

    return StructuredTool(name="send", description="Send.", args_schema=model, func=send)


@tool
def send(to: Bracketed) -> str:
    """Send."""
    return to


@tool
def send_with_runtime(to: Bracketed, runtime: ToolRuntime, call_id: Annotated[str, InjectedToolCallId]) -> str:
    """Send."""
    return to


send_with_runtime.name = "send"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("bare", [send, *map(send_by, (ByField, ByAlias, Serialized, V1))])
def test_it_is_refused_at_wrap_or_judged_as_written(bare: BaseTool, is_async: bool) -> None:
    """With the parameter's name; where the policy marks it, a person sees what was written, and the bare value runs."""
    with pytest.raises(InvalidTool, match=r"'send'.*'to'.*opaque"):
        guarded(bare)
    sends, seen = guarded(bare, asks=True, opaque=("to",))
    call = {"type": "tool_call", "id": "1", "name": "send", "args": {"to": "bob"}}
    answer = asyncio.run(sends.ainvoke(call)) if is_async else sends.invoke(call)
    # An older LangChain loses an aliased field on the bare tool's way.
    assert answer.content == (bare.invoke(call).content or "<bob>")
    assert seen == [{"to": "bob"}]


def test_also_where_code_injects_arguments() -> None:
    """They are not there yet when the tool is wrapped."""
    with pytest.raises(InvalidTool, match=r"'send'.*'to'.*opaque"):
        guarded(send_with_runtime)
    guarded(send_with_runtime, opaque=("to",))


def test_what_a_before_validator_takes_is_what_its_schema_says() -> None:
    """A text instead of a list runs where the schema that a model is shown has it."""

    def read(value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    texts = WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]})

    @tool
    def honest(tags: Annotated[list[str], BeforeValidator(read), texts]) -> str:
        """Tag."""
        return repr(tags)

    tags, seen = guarded(honest, asks=True)
    assert tags.invoke({"tags": '["x", "y"]'}) == "['x', 'y']" == honest.invoke({"tags": '["x", "y"]'})
    assert seen == [{"tags": ["x", "y"]}]


class TestOnInvalid:
    """Each tool is wrapped, or refused, by itself."""

    @staticmethod
    def tools() -> list[Any]:
        """One that can be guarded, and three that cannot."""

        @tool
        def read(order: int) -> str:
            """Read."""
            return f"order {order}"

        schema = {"type": "object", "properties": {"to": {"type": "string", "pattern": "(?=a)b"}}}
        pattern = StructuredTool(name="pattern", description="P.", args_schema=schema, func=lambda to: to)
        unknown = StructuredTool.from_function(lambda: "", name="unknown", description="No risk.")
        return [send, read, pattern, unknown, {"type": "web_search"}]

    POLICY = ToolExecutionPolicy({"send": "read_only", "read": "read_only", "pattern": "read_only"})

    def test_one_error_has_the_reason_for_each(self) -> None:
        """Nothing is wrapped, and nothing is known afterwards."""
        guard = Guard(self.POLICY)
        with pytest.raises(InvalidTool) as refused:
            guard_tools(self.tools(), guard)
        for part in ("'send'", "'pattern'", "provider"):
            assert part in str(refused.value)
        assert guard.spec("read") is None

    def test_the_others_are_wrapped(self) -> None:
        """What is left out is said, once, and stands in the coverage with its reason."""
        guard = Guard(self.POLICY)
        with pytest.warns(ToolWarning) as said:
            wrapped = guard_tools(self.tools(), guard, on_invalid="leave_out")
        assert [one.name for one in wrapped] == ["read"]
        assert len(said) == 4
        with guard.session("u", tools=["read"]):
            assert wrapped[0].invoke({"order": 7}) == "order 7"
        rows = {row.name: row for row in guard.coverage().tools}
        assert rows.keys() == {"send", "read", "pattern", "unknown", "web_search"}
        assert "opaque" in rows["send"].why[0]
        assert "opaque_patterns" in rows["pattern"].why[0]
        assert "no risk is declared" in rows["unknown"].why[0]
        assert all(row.standings == {"hidden"} for name, row in rows.items() if name != "read")

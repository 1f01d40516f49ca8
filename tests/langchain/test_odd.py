"""What is odd about a tool is said when it is wrapped, and stands in the coverage; a copy shows its own description."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import json
import logging
from typing import Annotated, Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, BeforeValidator, Field

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import AllowToolParam
from guarded_langchain import guard_tools

MARKER = object()


@tool
def search(query: str, filters: dict[str, Any]) -> str:
    """Search."""
    return query


@tool
def tag(tags: Annotated[list[str], BeforeValidator(lambda v: json.loads(v) if isinstance(v, str) else v)]) -> str:
    """Tag."""
    return repr(tags)


class Marked(BaseModel):
    order: int
    by: Any = Field(default=MARKER)


marked = StructuredTool(name="marked", description="Mark.", args_schema=Marked, func=lambda order, by: str(order))
PATTERN = {"type": "object", "properties": {"to": {"type": "string", "pattern": "(?=a)."}}}
mail = StructuredTool(name="mail", description="Mail.", args_schema=PATTERN, func=lambda to: to)


@pytest.mark.parametrize(
    ("bare", "settings", "said"),
    [
        (search, {}, 'open = ["/filters"]'),
        (tag, {}, "a validator takes more than the schema"),
        (tag, {"opaque": ("tags",)}, "judged as written, whatever the tool makes of it: tags"),
        (mail, {"opaque_patterns": ("to",)}, "only the tool checks the pattern of /to"),
        (marked, {"open": ("by",)}, "a default that JSON cannot say, so no rule and no person sees it: by"),
    ],
)
def test_it_is_said_once(bare: BaseTool, settings: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    """With what would mend it."""
    guard = Guard(ToolExecutionPolicy({bare.name: ToolSettings(risk="read_only", **settings)}))
    with caplog.at_level(logging.WARNING, logger="guarded_core"):
        (guarded,) = guard_tools([bare], guard)
        guard_tools([guarded], guard)
    (record,) = caplog.records
    assert said in record.getMessage()
    (row,) = guard.coverage().tools
    assert any(said in odd for odd in row.odd)


def test_of_an_ordinary_tool_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Nor of one that the policy opens."""
    policy = {"search": ToolSettings(risk="read_only", open=("/filters",)), "plain": "read_only"}
    guard = Guard(ToolExecutionPolicy(policy))
    plain = StructuredTool.from_function(lambda: "", name="plain", description="Plain.")
    guard_tools([search, plain], guard)
    assert caplog.records == []
    assert [row.odd for row in guard.coverage().tools] == [(), ()]


@pytest.mark.parametrize("rules", [[], [AllowToolParam(tool="look", param="q", allow=["a"])]])
def test_a_copy_shows_its_own_description(rules: Any) -> None:
    """Wherever a model looks; the schema and the calls are those of the tool that was guarded."""

    @tool
    def look(q: str) -> str:
        """Original."""
        return q

    class Other(BaseModel):
        z: int

    guard = Guard(ToolExecutionPolicy({"look": "read_only"}, rules=rules))
    (guarded,) = guard_tools([look], guard)
    copied = guarded.model_copy(update={"description": "Changed.", "args_schema": Other})
    for one, text in ((copied, "Changed."), (guarded, "Original.")):
        schema = one.tool_call_schema
        as_json = schema if isinstance(schema, dict) else schema.model_json_schema()
        assert as_json["description"] == convert_to_openai_tool(one)["function"]["description"] == text
        assert as_json["properties"].keys() == {"q"}
    with guard.session("u", tools=["look"]):
        assert copied.invoke({"q": "a"}) == "a"
        renamed = guarded.model_copy(update={"name": "other"})
        call = {"type": "tool_call", "id": "1", "name": "other", "args": {"q": "a"}}
        assert renamed.invoke(call).artifact["code"] == "policy_denied"

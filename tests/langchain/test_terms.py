"""Free-form arguments and patterns that only the tool checks: what a model is shown is what is accepted."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import asyncio
from typing import Any

import jsonschema_rs
import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from guarded_core import Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_langchain import ToolCallDenied, guard_tool

LOOKAHEAD = r"^(?!\.)(?!.*\.\.)[^@]+@[^@]+$"


def guarded(bare: BaseTool, **settings: Any) -> BaseTool:
    """The tool behind a guard of its own, with a session."""
    guard = Guard(ToolExecutionPolicy({bare.name: ToolSettings(risk="read_only", **settings)}))
    return guard_tool(bare, guard, context=guard.session("u", tools=[bare.name]))


def accepts(tool: BaseTool, arguments: dict[str, Any], *, is_async: bool) -> bool:
    """Whether a call of it passes."""
    try:
        result = asyncio.run(tool.ainvoke(arguments)) if is_async else tool.invoke(arguments)
    except ToolCallDenied as denied:
        return denied.error.code != "invalid_payload"
    return bool(result == repr(arguments["arg"]))


def shown(tool: BaseTool) -> jsonschema_rs.Draft202012Validator:
    """What a model is shown, as a validator."""
    parameters = convert_to_openai_tool(tool)["function"]["parameters"]
    schema = tool.tool_call_schema
    as_json = schema if isinstance(schema, dict) else schema.model_json_schema()
    assert as_json["properties"].keys() == parameters["properties"].keys() == tool.args.keys()
    return jsonschema_rs.Draft202012Validator(parameters)


KINDS: list[tuple[Any, Any]] = [
    (dict[str, Any], {"foo": "bar"}),
    (dict, {"foo": {"bar": [1]}}),
    (dict[str, str], {"foo": "bar"}),
    (list[dict[str, Any]], [{"foo": "bar"}]),
    (list, [{"foo": "bar"}]),
    (dict[str, Any] | None, {"foo": "bar"}),
    (Any, {"foo": "bar"}),
]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("place", [None, "/arg", "arg", "everything"])
@pytest.mark.parametrize(("declared", "value"), KINDS, ids=[str(declared) for declared, _ in KINDS])
def test_a_free_form_argument_is_shown_as_it_is_accepted(
    declared: Any, value: Any, place: str | None, is_async: bool
) -> None:
    """Closed, until the policy keeps it open."""

    def look(arg: Any) -> str:
        return repr(arg)

    look.__annotations__["arg"] = declared
    bare = StructuredTool.from_function(look, name="look", description="Look.")
    settings = {"open_arguments": True} if place == "everything" else {"open": (place,)} if place else {}
    tool = guarded(bare, **settings)
    assert accepts(tool, {"arg": value}, is_async=is_async) is (place is not None)
    assert shown(tool).is_valid({"arg": value}) is (place is not None)
    if place is not None:
        assert convert_to_openai_tool(tool) == convert_to_openai_tool(bare)


def test_a_reload_shows_what_it_opens() -> None:
    """The next time a model looks."""

    def look(arg: dict[str, Any]) -> str:
        return repr(arg)

    bare = StructuredTool.from_function(look, name="look", description="Look.")
    guard = Guard(ToolExecutionPolicy({"look": "read_only"}))
    tool = guard_tool(bare, guard, context=guard.session("u", tools=["look"]))
    assert not shown(tool).is_valid({"arg": {"a": 1}})
    guard.reload(ToolExecutionPolicy({"look": ToolSettings(risk="read_only", open=("/arg",))}))
    assert shown(tool).is_valid({"arg": {"a": 1}})
    assert tool.invoke({"arg": {"a": 1}}) == "{'a': 1}"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_pattern_can_be_left_to_the_tool(is_async: bool) -> None:
    """Which is shown as the tool declares it; without the policy's word it is refused, by its parameter's name."""
    schema = {"type": "object", "properties": {"arg": {"type": "string", "pattern": LOOKAHEAD}}, "required": ["arg"]}
    bare = StructuredTool(name="send", description="Send.", args_schema=schema, func=repr_of, coroutine=arepr_of)
    with pytest.raises(InvalidTool, match=r"'send'.*/arg.*opaque_patterns"):
        guarded(bare)
    tool = guarded(bare, opaque_patterns=("/arg",))
    assert accepts(tool, {"arg": "kim@example.com"}, is_async=is_async)
    assert convert_to_openai_tool(tool) == convert_to_openai_tool(bare)


def repr_of(arg: str) -> str:
    """What a tool returns here."""
    return repr(arg)


async def arepr_of(arg: str) -> str:
    """The same."""
    return repr(arg)

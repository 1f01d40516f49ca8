"""Free-form arguments and patterns that only the tool checks: what a model is shown is what is accepted."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from llama_index.core.tools import FunctionTool

from guarded_core import Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_llamaindex import guard_tool

LOOKAHEAD = r"^(?!\.)(?!.*\.\.)[^@]+@[^@]+$"


def guarded(bare: FunctionTool, *, schema: Any = None, **settings: Any) -> Any:
    """The tool behind a guard of its own, with a session."""
    name = bare.metadata.get_name()
    guard = Guard(ToolExecutionPolicy({name: ToolSettings(risk="read_only", **settings)}))
    return guard_tool(bare, guard, schema=schema, context=guard.session("u", tools=[name]))


KINDS: list[tuple[Any, Any]] = [
    (dict[str, Any], {"foo": "bar"}),
    (dict, {"foo": {"bar": [1]}}),
    (dict[str, str], {"foo": "bar"}),
    (list[dict[str, Any]], [{"foo": "bar"}]),
    (list, [{"foo": "bar"}]),
    (dict[str, Any] | None, {"foo": "bar"}),
    (Any, {"foo": "bar"}),
]


@pytest.mark.parametrize("place", [None, "/arg", "arg", "everything"])
@pytest.mark.parametrize(("declared", "value"), KINDS, ids=[str(declared) for declared, _ in KINDS])
async def test_a_free_form_argument_is_shown_as_it_is_accepted(declared: Any, value: Any, place: str | None) -> None:
    """Closed, until the policy keeps it open."""

    def look(arg: Any) -> str:
        return repr(arg)

    look.__annotations__ = {"arg": declared, "return": str}
    bare = FunctionTool.from_defaults(look, name="look", description="Look.")
    settings = {"open_arguments": True} if place == "everything" else {"open": (place,)} if place else {}
    tool = guarded(bare, **settings)
    for output in (tool.call(arg=value), await tool.acall(arg=value)):
        assert output.is_error is (place is None)
        assert place is None or output.raw_output == repr(value)
    parameters = tool.metadata.to_openai_tool()["function"]["parameters"]
    assert jsonschema_rs.Draft202012Validator(parameters).is_valid({"arg": value}) is (place is not None)
    assert tool.metadata.get_parameters_dict() == parameters
    if place is not None:
        assert tool.metadata.to_openai_tool() == bare.metadata.to_openai_tool()


async def test_a_pattern_can_be_left_to_the_tool() -> None:
    """Which is shown as the server declares it; without the policy's word it is refused, by its parameter's name."""

    def send(arg: str) -> str:
        return repr(arg)

    bare = FunctionTool.from_defaults(send, name="send", description="Send.")
    schema = {"type": "object", "properties": {"arg": {"type": "string", "pattern": LOOKAHEAD}}, "required": ["arg"]}
    with pytest.raises(InvalidTool, match=r"'send'.*/arg.*opaque_patterns"):
        guarded(bare, schema=schema)
    tool = guarded(bare, schema=schema, opaque_patterns=("/arg",))
    assert (await tool.acall(arg="kim@example.com")).raw_output == repr("kim@example.com")
    assert tool.metadata.get_parameters_dict() == schema

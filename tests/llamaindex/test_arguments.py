"""Strict arguments: what LlamaIndex would let through is refused, and what is judged is what runs."""

from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Literal

import pytest
from llama_index.core.agent.react.output_parser import ReActOutputParser
from llama_index.core.tools import BaseTool, FunctionTool, ToolOutput
from llama_index.core.workflow import Context
from pydantic import BaseModel, Field, field_validator

from guarded_core import Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_core.approvals.request import SET_BY_APPLICATION
from guarded_core.rules.kinds import LimitToolParam
from guarded_core.testing import ScriptedApprover
from guarded_llamaindex import guard_tool

REFUSED = "The arguments do not fit the tool's schema: "


class Ran(list[Any]):
    """What a tool was run with."""


@pytest.fixture
def ran() -> Ran:
    """What the tools of a test were run with."""
    return Ran()


def transfer(ran: Ran) -> FunctionTool:
    """A tool with a partial parameter that its own schema still shows."""

    def transfer(amount: int, account: str, api_key: str = "none") -> str:
        ran.append((amount, account, api_key))
        return "done"

    class Transfer(BaseModel):
        amount: int
        account: str

    return FunctionTool.from_defaults(transfer, fn_schema=Transfer, partial_params={"account": "a-1", "api_key": "s3"})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"amount": 1, "note": "x"}, "at /: a property that the schema does not declare"),
        ({"amount": "1"}, "at /amount: wrong type, expected integer"),
        ({"amount": 1.5}, "at /amount: wrong type, expected integer"),
        ({}, "at /: a required property is missing"),
        ({"amount": 1, "account": "a-2"}, "at /: a property that the schema does not declare"),
        ({"amount": 1, "api_key": "other"}, "at /: a property that the schema does not declare"),
        ({"amount": True}, "at /amount: wrong type, expected integer"),
        ({"amount": object()}, "a value is not an object, array, string, number, boolean or null"),
        ({"amount": float("nan")}, "a number is not finite, or too large to be exact"),
    ],
    ids=["unknown", "text", "fraction", "missing", "shown partial", "hidden partial", "boolean", "object", "nan"],
)
def test_arguments_that_do_not_fit_are_refused(
    way: Any, guard_of: Any, outcomes: Any, ran: Ran, arguments: dict[str, Any], reason: str
) -> None:
    """Unknown keys, wrong types and overridden partial parameters never reach the function; the model is told why."""
    guard = guard_of("transfer")
    tool = guard_tool(transfer(ran), guard)
    with guard.session("user-17", tools=["transfer"]):
        output = way(tool, **arguments)
    assert ran == []
    assert output.content.startswith(REFUSED + reason)
    assert output.is_error
    assert outcomes(guard) == [("transfer", "denied", "invalid_payload")]


def test_model_is_not_shown_what_the_application_sets(guard_of: Any, ran: Ran) -> None:
    """A partial parameter is no argument of the model's, whatever the tool's own schema says."""
    tool = guard_tool(transfer(ran), guard_of("transfer"))
    parameters = tool.metadata.to_openai_tool()["function"]["parameters"]
    assert list(parameters["properties"]) == ["amount"]
    assert parameters["required"] == ["amount"]


def test_partial_secret_is_shown_to_nobody(way: Any, ran: Ran) -> None:
    """A person who is asked reads that the application set it, rules and the tool see it, the output does not."""
    approver = ScriptedApprover([True])
    policy = ToolExecutionPolicy(
        {"transfer": "financial"}, rules=[LimitToolParam(tool="transfer", param="amount", max=9)]
    )
    guard = Guard(policy, approver=approver)
    tool = guard_tool(transfer(ran), guard)
    with guard.session("user-17", tools=["transfer"]):
        output = way(tool, amount=5)
    marker = "(set by the application)"
    assert ran == [(5, "a-1", "s3")]
    assert approver.asked[0].arguments == {"amount": 5, "account": marker, "api_key": marker}
    assert output.raw_input == {"args": (), "kwargs": {"amount": 5, "account": marker, "api_key": marker}}


def test_context_is_not_the_models_to_give(way: Any, guard_of: Any, ran: Ran) -> None:
    """A value under the Context's name is an unknown argument, unless it is the workflow's own Context."""

    def who(ctx: Context, name: str) -> str:
        ran.append(name)
        return name

    guard = guard_of("who")
    tool = guard_tool(who, guard)
    with guard.session("user-17", tools=["who"]):
        output = way(tool, ctx="mine", name="lee")
    assert ran == []
    assert output.content.startswith(REFUSED + "at /: a property that the schema does not declare")


def test_custom_validator_counts(way: Any, guard_of: Any, ran: Ran) -> None:
    """LlamaIndex describes fn_schema but never runs it; here its validators are asked, and quote nothing."""

    class Visit(BaseModel):
        url: str = Field(min_length=3)
        at: datetime = datetime(2026, 1, 1)

        @field_validator("url")
        @classmethod
        def _only_https(cls, url: str) -> str:
            if not url.startswith("https://"):
                raise ValueError(f"not https: {url}")
            return url

    def visit(url: str, at: Any = None) -> str:
        ran.append((url, at))
        return "ok"

    guard = guard_of("visit")
    tool = guard_tool(FunctionTool.from_defaults(visit, fn_schema=Visit), guard)
    with guard.session("user-17", tools=["visit"]):
        refused = [way(tool, url="http://evil"), way(tool, url="https://x", at="yesterday"), way(tool, url="h")]
        assert way(tool, url="https://x").content == "ok"
    assert ran == [("https://x", None)]
    assert [output.content for output in refused[:2]] == [
        REFUSED + "the tool's own validation refused them. Correct them and try again."
    ] * 2
    assert refused[2].content.startswith(REFUSED + "at /url: ")


def test_strict_and_closed_models_are_asked_in_json(way: Any, guard_of: Any, ran: Ran) -> None:
    """A strict model takes dates and enums from JSON, and a closed one is not asked about what the application sets."""

    class Day(BaseModel, strict=True, extra="forbid"):
        day: date
        unit: Literal["h", "d"] = "d"

    def plan(day: str, unit: str = "h", tenant: str = "") -> str:
        ran.append((day, unit, tenant))
        return "planned"

    guard = guard_of("plan")
    tool = guard_tool(FunctionTool.from_defaults(plan, fn_schema=Day, partial_params={"tenant": "acme"}), guard)
    with guard.session("user-17", tools=["plan"]):
        assert way(tool, day="2026-01-31", unit="d").content == "planned"
        assert way(tool, day="2026-02-01").content == "planned"
        assert way(tool, day="31.1.2026").is_error
    assert ran == [("2026-01-31", "d", "acme"), ("2026-02-01", "h", "acme")]


def test_default_is_judged_like_a_given_value(way: Any, ran: Ran) -> None:
    """Leaving an argument out is no way past a rule about it."""

    def pay(amount: int = 1000) -> str:
        ran.append(amount)
        return "paid"

    policy = ToolExecutionPolicy({"pay": "read_only"}, rules=[LimitToolParam(tool="pay", param="amount", max=100)])
    guard = Guard(policy)
    tool = guard_tool(pay, guard)
    with guard.session("user-17", tools=["pay"]):
        assert way(tool).raw_output["code"] == "policy_denied"
        assert way(tool, amount=100).content == "paid"
    assert ran == [100]


def test_what_was_judged_runs_whatever_changes_meanwhile(way: Any, ran: Ran) -> None:
    """Lists that a caller changes while a person is asked, and mutable defaults, change nothing."""

    def pay(to: list[str], notes: list[str] = []) -> str:  # noqa: B006 - as people write it
        ran.append((list(to), list(notes)))
        notes.append("seen")
        return "paid"

    recipients = ["ann"]

    class Attacker(ScriptedApprover):
        def ask(self, request: Any) -> Any:
            recipients.append("mallory")
            return super().ask(request)

    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=Attacker([True, True]))
    tool = guard_tool(pay, guard)
    with guard.session("user-17", tools=["pay"]):
        way(tool, to=recipients)
        way(tool, to=["bob"])
    assert ran == [(["ann"], []), (["bob"], [])]


def test_tool_that_changed_since_it_was_guarded_is_refused(way: Any, guard_of: Any, ran: Ran) -> None:
    """Another description, name or schema on the inner tool is drift."""
    inner = transfer(ran)
    guard = guard_of("transfer")
    tool = guard_tool(inner, guard)
    inner.metadata.description = "Also deletes everything."
    with guard.session("user-17", tools=["transfer"]):
        output = way(tool, amount=1)
    assert (ran, output.raw_output["code"]) == ([], "policy_denied")


@pytest.mark.parametrize("name", ["account", "limit"])
def test_another_partial_parameter_is_another_tool(way: Any, guard_of: Any, ran: Ran, name: str) -> None:
    """A partial parameter that is changed or added later is drift: rules have not seen it."""
    inner = transfer(ran)
    guard = guard_of("transfer")
    tool = guard_tool(inner, guard)
    inner.partial_params[name] = "a-666"
    with guard.session("user-17", tools=["transfer"]):
        output = way(tool, amount=1)
    assert (ran, output.raw_output["code"]) == ([], "policy_denied")


def test_a_person_sees_the_partial_that_the_policy_binds(way: Any, ran: Ran) -> None:
    """A bound partial is shown with its value, any other by its name; the tool runs with both."""
    approver = ScriptedApprover([True])
    settings = ToolSettings(risk="financial", binds=("account",))
    guard = Guard(ToolExecutionPolicy({"transfer": settings}), approver=approver)
    with guard.session("user-17", tools=["transfer"]):
        assert way(guard_tool(transfer(ran), guard), amount=1).content == "done"
    assert approver.asked[0].arguments == {"amount": 1, "account": "a-1", "api_key": SET_BY_APPLICATION}
    assert ran == [(1, "a-1", "s3")]


def test_partial_is_not_the_models_wherever_the_schema_declares_it(way: Any, guard_of: Any, ran: Ran) -> None:
    """Also below an allOf, where it cannot be cut from what a model is shown."""
    schema = {
        "type": "object",
        "properties": {"amount": {}},
        "allOf": [{"properties": {"account": {"type": "string"}}}],
    }
    guard = guard_of("transfer")
    tool = guard_tool(transfer(ran), guard, schema=schema)
    with guard.session("user-17", tools=["transfer"]):
        assert way(tool, amount=1, account="a-666").raw_output["code"] == "invalid_payload"
        assert way(tool, amount=1).content == "done"
    assert ran == [(1, "a-1", "s3")]


def test_react_wrappers_are_plain_json(way: Any, guard_of: Any, ran: Ran) -> None:
    """ReAct's lenient parser yields subclasses of dict and list, also inside; they are judged as the JSON they are."""

    class Line(BaseModel):
        sku: str

    def order(lines: list[Line], address: Line) -> str:
        ran.append((lines, address, type(lines), type(lines[0]), type(address)))
        return "ordered"

    text = 'Thought: x\nAction: order\nAction Input: {"lines": [{"sku": "a",}], "address": {"sku": "b"}}'
    arguments = ReActOutputParser().parse(text).action_input  # type: ignore[attr-defined]
    assert type(arguments["address"]) is not dict
    guard = guard_of("order")
    with guard.session("user-17", tools=["order"]):
        output = way(guard_tool(order, guard), **arguments)
    assert output.content == "ordered"
    assert ran == [([{"sku": "a"}], {"sku": "b"}, list, dict, dict)]


def test_bottomless_arguments_are_refused(way: Any, guard_of: Any, ran: Ran) -> None:
    """Nesting, and lists that contain themselves, end at the payload limits, not at the stack."""

    def f(x: Any) -> str:
        ran.append(x)
        return ""

    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)
    wide: Any = 0
    for _ in range(40):
        wide = [wide, wide]
    guard = guard_of("f")
    tool = guard_tool(f, guard)
    with guard.session("user-17", tools=["f"]):
        codes = [way(tool, x=x).raw_output["code"] for x in (deep, endless, wide)]
    assert (ran, codes) == ([], ["input_too_large"] * 3)


def test_too_many_by_position_is_the_callers_mistake(way: Any, guard_of: Any) -> None:
    """A model passes names; code that passes too much by position, or the same twice, gets Python's own TypeError."""

    def f(x: int) -> int:
        return x

    guard = guard_of("f")
    tool = guard_tool(f, guard)
    with guard.session("user-17", tools=["f"]):
        with pytest.raises(TypeError, match="by position"):
            way(tool, 1, 2)
        with pytest.raises(TypeError, match="two values"):
            way(tool, 1, x=2)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (lambda: FunctionTool.from_defaults(lambda x: x, name="no good"), "a tool's name is 1 to 64"),
        (lambda: FunctionTool.from_defaults(_takes_an_object, name="f"), "a parameter's type has no JSON form"),
    ],
    ids=["name", "type"],
)
def test_tool_that_cannot_be_judged_cannot_be_guarded(
    guard_of: Any, tool: Callable[[], BaseTool], message: str
) -> None:
    """It is the developer's error, raised while wrapping, with what to change."""
    with pytest.raises(InvalidTool, match=message):
        guard_tool(tool(), guard_of("f"))


def _takes_an_object(x: "Undefined") -> str:  # type: ignore[name-defined] # noqa: F821
    return ""


def test_free_form_objects_are_the_policys_to_allow(way: Any, ran: Ran) -> None:
    """An open object is refused, unless the policy says that the tool's arguments are open."""

    def record(data: dict[str, Any]) -> str:
        ran.append(data)
        return "ok"

    guard = Guard(ToolExecutionPolicy({"record": "read_only"}))
    tool = guard_tool(record, guard)
    with guard.session("user-17", tools=["record"]):
        assert way(tool, data={"a": 1}).is_error
        guard.reload(ToolExecutionPolicy({"record": ToolSettings(risk="read_only", open_arguments=True)}))
        output: ToolOutput = way(tool, data={"a": {"b": [1]}})
    assert output.content == "ok"
    assert ran == [{"a": {"b": [1]}}]

"""What is judged and approved is what the body gets: open arguments, defaults, names that upstream takes for itself."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import asyncio
import json
from datetime import date
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForToolRun
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, tool
from pydantic import BaseModel, ConfigDict, Field, HttpUrl
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import Field as FieldV1

from guarded_core import Answer, CallbackApprover, Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import AllowToolParam, DenyToolParam, LimitToolParam, RequireApproval
from guarded_langchain import ToolCallDenied, guard_tool, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call


def guarded(bare: BaseTool, *, rules: Any = (), asks: bool = False, **settings: Any) -> tuple[BaseTool, list[Any]]:
    """The tool behind a guard of its own, with a session; and what its approver saw."""
    seen: list[Any] = []
    known = ToolSettings(risk="financial" if asks else "read_only", **settings)
    approver = CallbackApprover(lambda request: seen.append(request.arguments) or True, by="lee")
    guard = Guard(ToolExecutionPolicy({bare.name: known}, rules=rules), approver=approver)
    return guard_tool(bare, guard, context=guard.session("u", tools=[bare.name])), seen


class Pay(BaseModel):
    model_config = ConfigDict(extra="allow")
    cents: int = Field(alias="amount")


class PayByEither(Pay):
    model_config = ConfigDict(extra="allow", populate_by_name=True)


class PayV1(BaseModelV1):
    cents: int = FieldV1(alias="amount")

    class Config:
        extra = "allow"


@pytest.mark.parametrize("model", [Pay, PayByEither, PayV1])
def test_an_open_argument_does_not_replace_a_field(model: Any) -> None:
    """Under the field's own name it would run in the place of the value that was judged."""
    ran: list[Any] = []

    def pay(cents: int, **more: Any) -> str:
        ran.append((cents, more))
        return "paid"

    bare = StructuredTool(name="pay", description="Pay.", args_schema=model, func=pay)
    limit = LimitToolParam(tool="pay", param="amount", max=100)
    pays, _ = guarded(bare, rules=[limit], open_arguments=True)
    assert pays.invoke({"amount": 5, "note": "x"}) == "paid"
    with pytest.raises(ToolCallDenied, match="two names"):
        pays.invoke({"amount": 5, "cents": 5000})
    assert ran == [(5, {"note": "x"})]


def order_schema(**properties: Any) -> dict[str, Any]:
    """A schema with `order`, required, and others that may be left out."""
    return {"type": "object", "properties": {"order": {"type": "integer"}, **properties}, "required": ["order"]}


class TestDefaults:
    """A default is the code's, and is judged."""

    @staticmethod
    def pays(ran: list[Any], is_async: bool) -> BaseTool:
        """Pays a default of 50,000 BTC."""

        def pay(order: int, cents: int = 50_000, currency: str = "BTC", on: date = date(2026, 1, 2)) -> str:
            ran.append((order, cents, currency, on))
            return "paid"

        async def apay(order: int, cents: int = 50_000, currency: str = "BTC", on: date = date(2026, 1, 2)) -> str:
            return pay(order, cents, currency, on)

        schema = order_schema(cents={"type": "integer"}, currency={"type": "string"}, on={"type": "string"})
        made_of: Any = {"coroutine": apay} if is_async else {"func": pay}
        return StructuredTool(name="pay", description="Pay.", args_schema=schema, **made_of)

    @pytest.mark.parametrize("is_async", [False, True])
    def test_the_codes_own_defaults_are_shown_and_run(self, is_async: bool) -> None:
        """Also those that are no JSON: the body gets its own object."""
        ran: list[Any] = []
        pays, seen = guarded(self.pays(ran, is_async), asks=True)
        call = {"type": "tool_call", "id": "1", "name": "pay", "args": {"order": 1}}
        answer = asyncio.run(pays.ainvoke(call)) if is_async else pays.invoke(call)
        assert answer.content == "paid"
        assert seen == [{"order": 1, "cents": 50_000, "currency": "BTC", "on": "2026-01-02"}]
        assert ran == [(1, 50_000, "BTC", date(2026, 1, 2))]

    @pytest.mark.parametrize(
        "rule",
        [
            RequireApproval(tool="pay", param="cents", above=100),
            DenyToolParam(tool="pay", param="currency", equals="BTC"),
        ],
    )
    def test_rules_see_them(self, rule: Any) -> None:
        """To leave an argument out is no way past a rule."""
        ran: list[Any] = []
        guard = Guard(ToolExecutionPolicy({"pay": "read_only"}, rules=[rule]))
        pays = guard_tool(self.pays(ran, False), guard, context=guard.session("u", tools=["pay"]))
        with pytest.raises(ToolCallDenied):
            pays.invoke({"order": 1})
        assert ran == []

    def test_what_only_the_schema_calls_a_default_reaches_nobody(self) -> None:
        """The bare tool never gets it: its server or its code decides."""
        bare = StructuredTool.from_function(
            lambda **given: str(sorted(given)), name="ds", description="D.", args_schema=order_schema(n={"default": 10})
        )
        looks, seen = guarded(bare, asks=True)
        assert looks.invoke({"order": 1}) == bare.invoke({"order": 1}) == "['order']"
        assert seen == [{"order": 1}]

    def test_two_functions_have_to_agree(self) -> None:
        """Otherwise another value would be approved than runs."""

        def pay(order: int, cents: int = 1) -> str:
            return ""

        async def apay(order: int, cents: int = 2) -> str:
            return ""

        schema = order_schema(cents={"type": "integer"})
        bare = StructuredTool(name="pay", description="Pay.", args_schema=schema, func=pay, coroutine=apay)
        with pytest.raises(InvalidTool, match="'cents'"):
            guarded(bare)


def hook_of(name: str, ran: list[Any], *, catches: bool = False) -> StructuredTool:
    """A tool with an argument of that name."""
    names: dict[str, Any] = {"ran": ran}
    takes, keeps = ("**given", "given") if catches else (f"{name}: str", name)
    exec(f"def hook({takes}) -> str:\n    ran.append({keeps})\n    return 'ok'", names)
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"}, "x": {"type": "string"}},
        "required": [] if catches else [name],
    }
    hook: Any = names["hook"]
    return StructuredTool.from_function(hook, name="hook", description="D.", args_schema=schema)


async def _async(x: int) -> str:
    """D."""
    return "ok"


async def _async_items(x: int) -> Any:
    """D."""
    yield "ok"


def _items(x: int) -> Any:
    """D."""
    yield "ok"


class TestAwaiting:
    """A function that LangChain cannot call is refused at wrap: the bare tool gives out what nobody awaits."""

    @pytest.mark.parametrize("func", [_async, _async_items])
    def test_an_async_func(self, func: Any) -> None:
        """It is to be a coroutine."""
        with pytest.raises(InvalidTool, match="hand it over as coroutine="):
            guarded(StructuredTool.from_function(func, name="f"))

    @pytest.mark.parametrize("coroutine", [_async_items, _items])
    def test_a_coroutine_that_yields(self, coroutine: Any) -> None:
        """It cannot be awaited."""
        with pytest.raises(InvalidTool, match="return that"):
            guarded(StructuredTool.from_function(coroutine=coroutine, name="f"))

    async def test_what_they_are_to_be(self) -> None:
        """A generator is a func, whose items are collected; an async function a coroutine."""
        items, _ = guarded(StructuredTool.from_function(_items, name="f"))
        assert items.invoke({"x": 1}) == ["ok"]
        awaited, _ = guarded(StructuredTool.from_function(coroutine=_async, name="f"))
        assert await awaited.ainvoke({"x": 1}) == "ok"


class TestNames:
    """Upstream has values of its own for some names."""

    @pytest.mark.parametrize("name", ["callbacks", "run_manager", "config", "runtime"])
    def test_an_argument_that_would_not_arrive_is_refused_at_wrap(self, name: str) -> None:
        """By its name: a person would approve one value, and another one would run."""
        with pytest.raises(InvalidTool, match=f"argument named '{name}'"):
            guarded(hook_of(name, []))

    @pytest.mark.parametrize("name", ["run_manager", "config"])
    def test_one_that_can_be_left_out_is_not_shown(self, name: str) -> None:
        """As in the bare tool, it never arrives; wrapping says so once."""
        ran: list[Any] = []
        with pytest.warns(UserWarning, match=f"never hands over an argument named '{name}'"):
            hook, seen = guarded(hook_of(name, ran, catches=True), asks=True)
        schema: Any = hook.tool_call_schema
        assert set(schema["properties"]) == set(hook.args) == {"x"}
        hook.invoke({"x": "a", name: "b"})
        assert seen == ran == [{"x": "a"}]

    def test_callbacks_reach_a_function_that_takes_anything(self) -> None:
        """Upstream puts its own only where it is asked for by name."""
        ran: list[Any] = []
        hook, seen = guarded(hook_of("callbacks", ran, catches=True), asks=True)
        hook.invoke({"callbacks": "https://ok.example"})
        assert seen == ran == [{"callbacks": "https://ok.example"}]

    def test_an_argument_may_have_the_adapters_own_name(self) -> None:
        """The adapter then takes another one for the runtime."""
        ran: list[Any] = []
        hook, seen = guarded(hook_of("guarded_runtime", ran), asks=True)
        assert in_agent(hook, {"guarded_runtime": "x"}) == ["ok"]
        assert (seen, ran) == ([{"guarded_runtime": "x"}], ["x"])

    @pytest.mark.parametrize(
        ("name", "declared", "is_odd"),
        [
            ("runtime", Any, True),
            ("runtime", str, False),
            ("run_manager", str, True),
            ("callbacks", str, True),
            ("callbacks", Any, True),
            ("run_manager", CallbackManagerForToolRun | None, False),
            ("state", str, False),
        ],
    )
    def test_what_a_framework_fills_by_name_is_told(
        self, name: str, declared: Any, is_odd: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Of a schema that was inferred: whoever wraps it may take it for the model's."""
        names: dict[str, Any] = {"Kind": declared}
        exec(f"def hook(x: int, {name}: Kind = None) -> str:\n    'D.'\n    return 'ok'", names)
        guarded(StructuredTool.from_function(names["hook"]))
        told = f"filled by the framework for their names alone, and never a model's: {name}"
        assert (told in caplog.text) == is_odd

    def test_a_runtime_without_a_type_is_the_graphs(self) -> None:
        """LangGraph fills it by its name: a model is not shown it, and what it sends is stripped."""

        @tool
        def by_name(x: int, runtime: Any) -> str:
            """Tell who gave it."""
            return f"{x} {type(runtime).__name__}"

        own, seen = guarded(by_name, asks=True)
        assert set(own.args) == {"x"}
        assert in_agent(own, {"x": 1}) == in_agent(own, {"x": 1, "runtime": "forged"}) == ["1 ToolRuntime"]
        assert seen == [{"x": 1}, {"x": 1}]
        with pytest.raises(ToolCallDenied, match="only the application"):
            own.invoke({"x": 1, "runtime": "forged"})

    def test_a_class_is_called_by_its_constructor(self) -> None:
        """Its attributes' types say nothing of its arguments."""

        class Made:
            count: Any = None

            def __init__(self, query: str, count: int) -> None:
                self.count = count

            def __str__(self) -> str:
                return f"count={self.count}"

        bare = StructuredTool.from_function(
            func=Made, name="made", description="D.", args_schema=order_schema(query={}, count={})
        )
        del bare.args_schema["properties"]["order"], bare.args_schema["required"]  # type: ignore[union-attr, index]
        assert in_agent(guarded(bare)[0], {"query": "a", "count": 5}) == ["count=5"]


class TestResults:
    """What comes back."""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_generator_is_taken_out(self, is_async: bool) -> None:
        """As content and as an artifact: before the call is settled, within the bound for results."""

        def sample(n: int) -> Any:
            return (str(i) for i in range(n)), iter(range(n))

        bare = StructuredTool.from_function(sample, description="D.", response_format="content_and_artifact")
        guard = Guard(ToolExecutionPolicy({"sample": "mutating"}, output_bytes=1000))
        made = guard_tool(bare, guard, context=guard.session("u", tools=["sample"]))

        def answer(n: int) -> Any:
            call = {"type": "tool_call", "id": "1", "name": "sample", "args": {"n": n}}
            return asyncio.run(made.ainvoke(call)) if is_async else made.invoke(call)

        message = answer(2)
        assert (message.content, message.artifact) == (["0", "1"], [0, 1])
        assert "too large" in answer(5_000).content

    def test_a_coroutine_that_nothing_awaits_is_a_failure(self) -> None:
        """It is closed, and on record as failed; awaited, it is the result."""
        ran: list[int] = []

        async def real(n: int) -> int:
            ran.append(n)
            return n

        bare = StructuredTool.from_function(
            lambda n: real(n), name="f", description="D.", args_schema=order_schema(n={})
        )
        del bare.args_schema["required"]  # type: ignore[union-attr, arg-type]
        made, _ = guarded(bare)
        with pytest.raises(TypeError, match="has to be awaited"):
            made.invoke({"n": 1})
        assert asyncio.run(made.arun({"n": 2})) == 2
        assert ran == [2]

    @pytest.mark.parametrize(
        ("result", "content"),
        [
            ('{"rows": 3}', '{"rows": 3}'),
            ({"rows": 3}, '{"rows": 3}'),
            ("ran", "{note}\n\nran"),
            ([{"type": "text", "text": "ran"}], [{"type": "text", "text": "{note}"}, {"type": "text", "text": "ran"}]),
        ],
    )
    @pytest.mark.parametrize("with_artifact", [False, True])
    def test_a_persons_edit_is_told_beside_json(self, result: Any, content: Any, with_artifact: bool) -> None:
        """The note stands in the message's additional_kwargs, and before content that is no JSON."""

        def sample(n: int) -> Any:
            """Sample."""
            return (result, {"n": n}) if with_artifact else result

        kind: Any = "content_and_artifact" if with_artifact else "content"
        bare = StructuredTool.from_function(sample, response_format=kind)
        edit = Answer(by="lee", approve=True, arguments={"n": 2})
        guard = Guard(
            ToolExecutionPolicy({"sample": "financial"}), approver=CallbackApprover(lambda request: edit, by="lee")
        )
        made = guard_tool(bare, guard, context=guard.session("u", tools=["sample"]))
        message = made.invoke({"type": "tool_call", "id": "1", "name": "sample", "args": {"n": 1}})
        note = message.additional_kwargs["guarded_note"]
        assert note.endswith('sample with these arguments: {"n":2}')
        assert message.content == json.loads(json.dumps(content).replace("{note}", json.dumps(note)[1:-1]))
        assert message.artifact == ({"n": 2} if with_artifact else None)
        assert (message.status, message.name, message.tool_call_id) == ("success", "sample", "1")


def in_agent(made: BaseTool, arguments: dict[str, Any]) -> list[Any]:
    """What an agent's model reads of one call."""
    agent = create_agent(ScriptedChatModel([says(tool_call(made.name, arguments)), "Done."]), [made])
    messages = agent.invoke({"messages": [("user", "x")]})["messages"]
    return [message.content for message in messages if isinstance(message, ToolMessage)]


class TestDecide:
    """`guard.decide` reads a call as the tool would."""

    @pytest.mark.parametrize("as_text", [False, True])
    def test_what_it_says_is_what_happens(self, as_text: bool) -> None:
        """The tool's own normalisation and its code's defaults count."""

        def fetch(url: HttpUrl) -> str:
            """Fetch."""
            return str(url)

        def pay(order: int, cents: int = 50_000) -> str:
            return "paid"

        rules = [
            AllowToolParam(tool="fetch", param="url", allow=["https://ok.example/"]),
            RequireApproval(tool="pay", param="cents", above=100),
        ]
        guard = Guard(ToolExecutionPolicy({"fetch": "read_only", "pay": "mutating"}, rules=rules))
        schema = order_schema(cents={"type": "integer"})
        paying = StructuredTool(name="pay", description="Pay.", args_schema=schema, func=pay)
        fetching, _ = guard_tools([StructuredTool.from_function(fetch), paying], guard)

        def decided(name: str, arguments: dict[str, Any]) -> Any:
            return guard.decide(name, json.dumps(arguments) if as_text else arguments)

        with guard.session("u", tools=["fetch", "pay"]):
            assert decided("fetch", {"url": "https://OK.example"}).outcome == "allow"
            assert fetching.invoke({"url": "https://OK.example"}) == "https://ok.example/"
            assert decided("fetch", {"url": "https://evil.example"}).outcome == "deny"
            asked = decided("pay", {"order": 1})
            assert (asked.outcome, asked.approval_request.arguments) == ("ask", {"order": 1, "cents": 50_000})

    def test_a_tool_that_waits_for_the_application_is_judged_on_its_schema(self) -> None:
        """What only a real call has is not known yet."""

        @tool
        def sample(a: int, user: Annotated[str, InjectedToolArg]) -> str:
            """Act for a user."""
            return user

        guard = Guard(ToolExecutionPolicy({"sample": "read_only"}))
        guard_tool(sample, guard)
        with guard.session("u", tools=["sample"]):
            assert guard.decide("sample", {"a": 1}).outcome == "allow"
            assert guard.decide("sample", {"a": "1"}).code == "invalid_payload"


@pytest.mark.parametrize("is_async", [False, True])
def test_very_deep_arguments_are_refused_with_an_event(is_async: bool) -> None:
    """LangChain writes them out for its traces before anything is judged, and could not."""
    schema = {"type": "object", "properties": {"q": {}}}
    bare = StructuredTool.from_function(lambda q: "x", name="f", description="D.", args_schema=schema)
    guard = Guard(ToolExecutionPolicy({"f": "read_only"}))
    made = guard_tool(bare, guard, context=guard.session("u", tools=["f"]))
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    call = {"type": "tool_call", "id": "1", "name": "f", "args": {"q": deep}}
    answer = asyncio.run(made.ainvoke(call)) if is_async else made.invoke(call)
    assert answer.status == "error"
    events: Any = guard.audit
    assert [(event.outcome.value, event.code) for event in events.events] == [("denied", "input_too_large")]

"""Injected arguments: whatever code gives arrives, whatever a model sends in its place is stripped and on record."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from langchain_core.tools.base import _DirectlyInjectedToolArg
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.memory import InMemoryStore
from pydantic import AliasChoices, BaseModel, Field

from guarded_core import Answer, Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.testing import ScriptedApprover
from guarded_langchain import ToolCallDenied, guard_tool, guard_tools, injected
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

Calls = list[dict[str, Any]]
STRIPPED = [("sample", "noted", "injected_arguments_stripped")]
RAN = [("sample", "authorized", None), ("sample", "succeeded", None)]


def with_user(calls: Calls, default: bool = True) -> BaseTool:
    """A tool for a user whom the application names."""
    if default:

        @tool
        def sample(a: int, user: Annotated[str, InjectedToolArg] = "nobody") -> str:
            """Act for a user."""
            calls.append({"a": a, "user": user})
            return user
    else:

        @tool
        def sample(a: int, user: Annotated[str, InjectedToolArg]) -> str:
            """Act for a user."""
            calls.append({"a": a, "user": user})
            return user

    return sample


def call(**args: Any) -> dict[str, Any]:
    """A ToolCall."""
    return {"name": "sample", "args": args, "id": "call-1", "type": "tool_call"}


WAYS = {
    "ToolCall": lambda t, args: t.invoke(call(**args)).content,
    "ToolCall, async": lambda t, args: asyncio.run(t.ainvoke(call(**args))).content,
    "dict": lambda t, args: t.invoke(args),
    "run": lambda t, args: t.run(args),
    "_run": lambda t, args: t._run(**args),
    "func": lambda t, args: t.func(**args),
}


@pytest.mark.parametrize("use", WAYS.values(), ids=WAYS)
def test_a_forged_argument_is_stripped_and_on_record(use: Any, guard: Guard, outcomes: Any) -> None:
    """A JSON value for an injected argument could be the model's, so it never reaches the tool."""
    calls: Calls = []
    assert use(guard_tool(with_user(calls), guard), {"a": 1, "user": "admin"}) == "nobody"
    assert calls == [{"a": 1, "user": "nobody"}]
    assert outcomes(guard) == STRIPPED + RAN


@pytest.mark.parametrize("use", WAYS.values(), ids=WAYS)
def test_what_the_application_vouches_for_arrives(use: Any, guard: Guard, outcomes: Any) -> None:
    """`injected(value)` says that code filled the argument in."""
    calls: Calls = []
    assert use(guard_tool(with_user(calls, default=False), guard), {"a": 1, "user": injected("user-17")}) == "user-17"
    assert outcomes(guard) == RAN


def test_a_forged_argument_that_is_needed_makes_a_denial(guard: Guard, outcomes: Any) -> None:
    """Stripped, a required injected argument is missing: the tool does not run, and both are on record."""
    calls: Calls = []
    answer = guard_tool(with_user(calls, default=False), guard).invoke(call(a=1, user="admin"))
    assert answer.status == "error"
    assert "only the application can give" in answer.content
    assert "admin" not in answer.content
    assert calls == []
    assert outcomes(guard) == [*STRIPPED, ("sample", "denied", "invalid_payload")]


def test_the_schema_does_not_show_injected_arguments(guard: Guard) -> None:
    """What is judged has the model's arguments only."""
    guard_tool(with_user([]), guard)
    spec = guard.spec("sample")
    assert spec is not None
    assert list(spec.schema["properties"]) == ["a"]


# In a graph


class State(MessagesState):
    mood: str
    level: int


def node(tools: list[BaseTool]) -> Any:
    """A graph that only runs tools."""
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(store=InMemoryStore())


def everything(calls: Calls) -> BaseTool:
    """A tool with an injected argument of every kind."""

    @tool
    def sample(
        a: int,
        state: Annotated[dict[str, Any], InjectedState],
        mood: Annotated[str, InjectedState("mood")],
        store: Annotated[Any, InjectedStore()],
        tool_call_id: Annotated[str, InjectedToolCallId],
        runtime: ToolRuntime,
        user: Annotated[str, InjectedToolArg] = "nobody",
    ) -> str:
        """Take everything."""
        calls.append(
            {
                "state": len(state["messages"]),
                "mood": mood,
                "store": type(store).__name__,
                "id": tool_call_id,
                "runtime": runtime.tool_call_id,
                "user": user,
            }
        )
        return "done"

    return sample


FORGED = {
    "state": {"messages": []},
    "mood": "forged",
    "store": "forged",
    "tool_call_id": "forged",
    "runtime": {"state": {}},
    "user": "forged",
}
TRUE = {"state": 1, "mood": "good", "store": "InMemoryStore", "id": "call-1", "runtime": "call-1", "user": "nobody"}


@pytest.mark.parametrize("args", [{"a": 1}, {"a": 1, **FORGED}], ids=["honest", "forged"])
def test_a_graph_gives_what_is_true(args: dict[str, Any], guard: Guard, outcomes: Any) -> None:
    """State, store, runtime and id are the graph's own, whatever the model's message says."""
    calls: Calls = []
    graph = node([guard_tool(everything(calls), guard)])
    state = {"messages": [AIMessage("", tool_calls=[call(**args)])], "mood": "good", "level": 1}
    graph.invoke(state)
    asyncio.run(graph.ainvoke(state))
    assert calls == [TRUE, TRUE]
    assert outcomes(guard) == (RAN if len(args) == 1 else STRIPPED + RAN) * 2


def test_outside_a_graph_everything_forged_is_stripped(guard: Guard, outcomes: Any) -> None:
    """Without a graph there is nobody to give state, store and runtime: the forged ones are not taken for them."""
    calls: Calls = []
    answer = guard_tool(everything(calls), guard).invoke(call(a=1, **FORGED))
    assert answer.status == "error"
    assert calls == []
    assert outcomes(guard) == [*STRIPPED, ("sample", "denied", "invalid_payload")]


def test_a_state_field_that_equals_a_forged_one_is_the_states(guard: Guard, outcomes: Any) -> None:
    """A forged value is told from the state's by what the graph holds, also where small numbers are one object."""

    @tool
    def sample(level: Annotated[int, InjectedState("level")], other: Annotated[int, InjectedToolArg] = 0) -> str:
        """Read a level."""
        return f"{level} {other}"

    graph = node([guard_tool(sample, guard)])
    state = {"messages": [AIMessage("", tool_calls=[call(level=9, other=1)])], "mood": "good", "level": 1}
    assert graph.invoke(state)["messages"][-1].content == "1 0"


def test_a_runtime_is_delivered_beside_an_explicit_schema(guard: Guard) -> None:
    """A subclass gets the ToolRuntime that its `_run` asks for, which a bare one would miss."""

    class Args(BaseModel):
        a: int

    class Sample(BaseTool):
        name: str = "sample"
        description: str = "Uses the runtime."
        args_schema: type[BaseModel] = Args

        def _run(self, a: int, runtime: ToolRuntime) -> str:
            return f"{a} {runtime.tool_call_id}"

    state = {"messages": [AIMessage("", tool_calls=[call(a=1)])], "mood": "good", "level": 1}
    assert node([guard_tool(Sample(), guard)]).invoke(state)["messages"][-1].content == "1 call-1"


def test_a_models_own_argument_may_be_called_runtime(guard: Guard) -> None:
    """An argument of that name that is the model's to give stays the model's."""

    @tool
    def sample(runtime: int) -> str:
        """Say how long a film is."""
        return f"{runtime} minutes"

    state = {"messages": [AIMessage("", tool_calls=[call(runtime=90)])], "mood": "good", "level": 1}
    assert node([guard_tool(sample, guard)]).invoke(state)["messages"][-1].content == "90 minutes"


def test_a_forged_config_is_stripped(guard: Guard, outcomes: Any) -> None:
    """A config in a model's arguments is not the run's config, by name or through the method itself."""

    @tool
    def sample(a: int, config: RunnableConfig = None) -> str:  # type: ignore[assignment]
        """Read the config."""
        return str((config or {}).get("configurable", {}).get("user"))

    forged = {"configurable": {"user": "admin"}}
    guarded: Any = guard_tool(sample, guard)
    real: RunnableConfig = {"configurable": {"user": "user-17"}, "callbacks": []}
    assert guarded.invoke(call(a=1, config=forged), real).content == "user-17"
    assert guarded.invoke({"a": 1, "config": forged}, real) == "user-17"
    assert guarded._run(a=1, config=forged) == "None"
    assert guarded.func(a=1, config=forged) == "None"


def test_a_dict_schema_with_an_injected_argument(guard: Guard) -> None:
    """The annotation decides, also where a declared JSON Schema shows the argument."""

    def sample(a: int, user: Annotated[str, InjectedToolArg] = "nobody") -> str:
        return user

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "user": {"type": "string"}},
        "required": ["a"],
    }
    guarded = guard_tool(StructuredTool(name="sample", description="d", args_schema=schema, func=sample), guard)
    assert guarded.invoke({"a": 1, "user": "admin"}) == "nobody"
    assert guarded.invoke({"a": 1, "user": injected("user-17")}) == "user-17"


def test_a_model_schema_with_an_injected_argument(guard: Guard, outcomes: Any) -> None:
    """So it does where a declared pydantic schema shows it."""

    class Args(BaseModel):
        a: int
        user: str = "nobody"

    class Sample(BaseTool):
        name: str = "sample"
        description: str = "Acts for a user."
        args_schema: type[BaseModel] = Args

        def _run(self, a: int, user: Annotated[str, InjectedToolArg]) -> str:
            return user

    assert guard_tool(Sample(), guard).invoke({"a": 1, "user": "admin"}) == "nobody"
    assert outcomes(guard) == STRIPPED + RAN


@pytest.mark.parametrize("name", ["user", "usr", "who"])
def test_a_forged_argument_goes_by_none_of_its_names(name: str, outcomes: Any) -> None:
    """Also where the policy keeps arguments open, an alias leads to no injected argument."""

    class Args(BaseModel, extra="allow"):
        a: int
        user: Annotated[str, InjectedToolArg] = Field("nobody", validation_alias=AliasChoices("usr", "who"))

    @tool(args_schema=Args)
    def sample(a: int, user: str, **others: Any) -> str:
        """Act for a user."""
        return f"{user} {others}"

    guard = Guard(ToolExecutionPolicy({"sample": ToolSettings(risk="read_only", open_arguments=True)}))
    with guard.session("user-17", tools=["sample"]):
        assert guard_tool(sample, guard).invoke({"a": 1, "b": 2, name: "admin"}) == "nobody {'b': 2}"
    assert outcomes(guard) == STRIPPED + RAN


def test_an_id_is_needed_where_the_tool_asks_for_one(guard: Guard) -> None:
    """Without a ToolCall there is no id to inject: a denial that says so."""

    @tool
    def sample(tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Say the id."""
        return tool_call_id

    guarded = guard_tool(sample, guard)
    assert guarded.invoke(call()).content == "call-1"
    with pytest.raises(ToolCallDenied, match="needs the id of a model's tool call"):
        guarded.invoke({})


def test_an_agent_built_on_strict_models_works(guard: Guard) -> None:
    """A model that forbids extra arguments gets its injected ones all the same."""

    class Args(BaseModel, extra="forbid"):
        a: int
        state: Annotated[dict[str, Any], InjectedState]

    @tool(args_schema=Args)
    def sample(a: int, state: dict[str, Any]) -> str:
        """Count."""
        return f"{a} {len(state['messages'])}"

    model = ScriptedChatModel([says(tool_call("sample", {"a": 1})), "done"])
    out = create_agent(model, tools=[guard_tool(sample, guard)]).invoke({"messages": [("user", "go")]})
    assert out["messages"][2].content == "1 2"


class Mood(MessagesState):
    mood: str


def test_the_policy_binds_a_field_of_the_state(is_async: bool) -> None:
    """A person sees it and approves it with the model's arguments; the tool gets what was judged, the model no word."""

    @tool
    def greet(name: str, mood: Annotated[str, InjectedState("mood")]) -> str:
        """Greet."""
        return f"{mood} {name}"

    approver = ScriptedApprover([Answer(by="kim", approve=True, arguments={"name": "Bo"}), True], by="lee")
    policy = ToolExecutionPolicy({"greet": ToolSettings(risk="financial", binds=("mood",))})
    guard = Guard(policy, approver=approver)
    builder = StateGraph(Mood)
    builder.add_node("tools", ToolNode(guard_tools([greet], guard)))
    builder.add_edge(START, "tools")
    graph = builder.compile()
    call = {"type": "tool_call", "name": "greet", "args": {"name": "Al"}, "id": "call-1"}
    state = {"messages": [AIMessage("", tool_calls=[call])], "mood": "good"}
    with guard.session("user-17", tools=["greet"]):
        result = asyncio.run(graph.ainvoke(state)) if is_async else graph.invoke(state)
    # Of what was bound and shown, the edit left nothing to ask about again.
    assert [request.arguments for request in approver.asked] == [{"name": "Al", "mood": "good"}]
    assert result["messages"][-1].content == (
        "Note: your call was changed before it ran; do not repeat it. What ran is greet with these arguments: "
        '{"name":"Bo"}\n\ngood Bo'
    )


def test_the_policy_binds_what_code_hands_over() -> None:
    """`injected` marks it as the application's; what the model would put there is not what is asked about."""
    approver, calls = ScriptedApprover([True]), Calls()
    policy = ToolExecutionPolicy({"sample": ToolSettings(risk="financial", binds=("user",))})
    guard = Guard(policy, approver=approver)
    sample = guard_tool(with_user(calls), guard)
    with guard.session("user-17", tools=["sample"]):
        assert sample.invoke({"a": 1, "user": injected("u-1")}) == "u-1"
        with pytest.raises(ToolCallDenied, match="an argument that only the application can give is missing"):
            sample.invoke({"a": 1, "user": "u-2"})
    assert [request.arguments for request in approver.asked] == [{"a": 1, "user": "u-1"}]
    assert calls == [{"a": 1, "user": "u-1"}]


class Own(_DirectlyInjectedToolArg):
    pass


@pytest.mark.parametrize("is_async", [False, True])
def test_a_runtime_of_the_applications_own_needs_no_id(is_async: bool) -> None:
    """Code that hands a runtime of its own over by hand is no model's call, and waits for no message."""
    guard = Guard(ToolExecutionPolicy({"search": "read_only"}))

    @tool
    def search(text: str, runtime: Own) -> str:
        """Search."""
        return f"{text} {type(runtime).__name__}"

    guarded, given = guard_tool(search, guard), {"text": "x", "runtime": Own()}
    with guard.session("user-17", tools=["search"]):
        said = asyncio.run(guarded.ainvoke(given)) if is_async else guarded.invoke(given)
    assert said == "x Own"


def test_a_runtime_that_a_partial_has_given_is_nobodys_to_give() -> None:
    """Bound by position, it is no argument any more, and another one does not get in its place."""

    def search(runtime: Own, text: str) -> str:
        return f"{text} {type(runtime).__name__}"

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    bound = StructuredTool.from_function(partial(search, Own()), name="search", description="d", args_schema=schema)
    guard = Guard(ToolExecutionPolicy({"search": "read_only"}))
    with guard.session("user-17", tools=["search"]):
        assert guard_tool(bound, guard).invoke({"text": "x"}) == "x Own"

"""Ways around the guard: each is closed, by every attribute, copy and detour that a tool has."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, StructuredTool, tool
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel

from guarded_core import DuplicateTool, Guard, GuardConfigurationError, InvalidTool, ToolExecutionPolicy
from guarded_langchain import ToolCallDenied, guard_tool, guard_tools

Calls = list[int]


def plain(calls: Calls, name: str = "sample") -> BaseTool:
    """A tool that counts its calls."""

    def both(a: int) -> str:
        calls.append(a)
        return f"ran {a}"

    async def aboth(a: int) -> str:
        calls.append(a)
        return f"ran {a}"

    return StructuredTool.from_function(func=both, coroutine=aboth, name=name, description="Count.")


def refused(use: Callable[[], Any]) -> None:
    """`use` ends in a denial, raised or returned."""
    try:
        answer = use()
    except ToolCallDenied:
        return
    assert isinstance(answer, ToolMessage)
    assert answer.status == "error"


CALL = {"name": "sample", "args": {"a": 1}, "id": "call-1", "type": "tool_call"}
ROUTES: dict[str, Callable[[Any], Any]] = {
    "func": lambda t: t.func(a=1),
    "func, by position": lambda t: t.func(1),
    "coroutine": lambda t: asyncio.run(t.coroutine(a=1)),
    "_run": lambda t: t._run(a=1),
    "_run of the class": lambda t: type(t)._run(t, a=1),
    "_run, with a config": lambda t: t._run(a=1, config={"callbacks": []}),
    "_arun": lambda t: asyncio.run(t._arun(a=1)),
    "run": lambda t: t.run({"a": 1}),
    "run of BaseTool": lambda t: BaseTool.run(t, {"a": 1}),
    "invoke of BaseTool": lambda t: BaseTool.invoke(t, {"a": 1}),
    "arun": lambda t: asyncio.run(t.arun({"a": 1})),
    "invoke": lambda t: t.invoke({"a": 1}),
    "ainvoke": lambda t: asyncio.run(t.ainvoke({"a": 1})),
    "call by another name": lambda t: t.invoke({**CALL, "name": "allowed"}),
    "batch": lambda t: t.batch([{"a": 1}])[0],
    "stream": lambda t: next(iter(t.stream({"a": 1}))),
    "transform": lambda t: next(iter(t.transform(iter([{"a": 1}])))),
    "with_retry": lambda t: t.with_retry(stop_after_attempt=1).invoke({"a": 1}),
    "with_config": lambda t: t.with_config(run_name="x").invoke(CALL),
    "bind": lambda t: t.bind().invoke(CALL),
    "pipe": lambda t: (t | RunnableLambda(lambda x: x)).invoke(CALL),
    "map": lambda t: t.map().invoke([{"a": 1}])[0],
    "as_tool": lambda t: t.as_tool(name="other", description="d", arg_types={"a": int}).invoke({"a": 1}),
    "a copy": lambda t: t.model_copy().invoke({"a": 1}),
    "a deep copy": lambda t: t.model_copy(deep=True).invoke({"a": 1}),
    "copy.copy": lambda t: copy.copy(t).invoke({"a": 1}),
    "copy.deepcopy": lambda t: copy.deepcopy(t).invoke({"a": 1}),
    "a renamed copy": lambda t: t.model_copy(update={"name": "allowed"}).invoke({"a": 1}),
    "func of a copy": lambda t: t.model_copy().func(a=1),
    "StructuredTool._run": lambda t: StructuredTool._run(t, a=1, config={}),
    "a new tool from func": lambda t: StructuredTool.from_function(t.func, name="allowed", description="d").invoke(
        {"a": 1}
    ),
    "ToolNode": lambda t: ToolNode([t]).tools_by_name["sample"].invoke(CALL),
    "handlers set later": lambda t: _with_handlers(t).invoke(CALL),
}


def _with_handlers(t: Any) -> Any:
    t.handle_tool_error = t.handle_validation_error = True
    return t


@pytest.mark.filterwarnings("ignore:This API is in beta")
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_no_route_leads_around_the_guard(route: Callable[[Any], Any]) -> None:
    """A tool that the session may not use does not run by any route, and each try is on record."""
    calls: Calls = []
    guard = Guard(ToolExecutionPolicy({"sample": "read_only", "allowed": "read_only"}))
    guarded = guard_tool(plain(calls), guard)
    with guard.session("user-17", tools=["allowed"]):
        refused(lambda: route(guarded))
    assert calls == []
    assert [(e.outcome.value, e.code) for e in guard.audit.events] == [("denied", "unauthorized")]  # type: ignore[union-attr]


@pytest.mark.filterwarnings("ignore:This API is in beta")
@pytest.mark.parametrize("route", [name for name in ROUTES if name != "a renamed copy"])
def test_every_route_is_guarded_once_where_it_is_allowed(route: str, guard: Guard, outcomes: Any) -> None:
    """An allowed call runs once by each of these routes, with one Authorized and one terminal event."""
    calls: Calls = []
    ROUTES[route](guard_tool(plain(calls), guard))
    assert calls == [1]
    assert outcomes(guard) == [("sample", "authorized", None), ("sample", "succeeded", None)]


def test_entries_have_no_way_to_what_they_stand_for(guard: Guard) -> None:
    """Neither the entries nor their metadata hold the tool's own function."""
    guarded: Any = guard_tool(plain([]), guard)
    for entry in (guarded.func, guarded.coroutine):
        assert not hasattr(entry, "__wrapped__")
        assert entry.__name__ in {"both", "aboth"}
        assert next(iter(entry.__annotations__)) == "a"


def test_configurable_fields_are_refused(guard: Guard) -> None:
    """They would make a new tool from this one's fields, without the guard."""
    guarded: Any = guard_tool(plain([]), guard)
    with pytest.raises(GuardConfigurationError, match="no configurable fields"):
        guarded.configurable_fields()


def test_pickling_is_refused(guard: Guard) -> None:
    """A guard does not travel: the other process guards the tool itself."""
    with pytest.raises(GuardConfigurationError, match="cannot be pickled"):
        pickle.dumps(guard_tool(plain([]), guard))


def test_two_tools_of_one_name_are_refused(guard_of: Any) -> None:
    """Which of them would run is not decidable, so none is guarded."""
    guard = guard_of("sample")
    with pytest.raises(DuplicateTool):
        guard_tools([plain([]), plain([])], guard)
    assert guard.spec("sample") is None


def test_one_error_names_every_tool_without_a_risk(guard_of: Any) -> None:
    """Nothing is guarded by halves: the developer sees all that is to be declared."""
    with pytest.raises(InvalidTool, match="first, second"):
        guard_tools([plain([], "sample"), plain([], "first"), plain([], "second")], guard_of("sample"))


def test_wrapping_twice_gives_the_same_object(guard_of: Any) -> None:
    """`guard_tool` and `guard_tools` leave a guarded tool as it is, and it is judged once."""
    guard = guard_of("sample")
    once = guard_tool(plain([]), guard)
    assert guard_tool(once, guard) is once
    assert guard_tools([once], guard) == [once]
    with guard.session("user-17", tools=["sample"]):
        once.invoke({"a": 1})
    assert len(guard.audit) == 2


def test_another_guard_risk_or_context_is_a_mistake(guard_of: Any) -> None:
    """What a second wrapping could not honour is an error instead of being left out."""
    guard, other = guard_of("sample"), guard_of("sample")
    once = guard_tool(plain([]), guard)
    with pytest.raises(GuardConfigurationError, match="another guard"):
        guard_tool(once, other)
    with pytest.raises(GuardConfigurationError, match="another risk or context"):
        guard_tool(once, guard, risk="financial")
    with pytest.raises(GuardConfigurationError, match="another risk or context"):
        guard_tool(once, guard, context=guard.session("user-17", tools=["sample"]))


@pytest.mark.parametrize("change", ["name", "description", "args_schema", "func", "coroutine", "in place"])
def test_a_tool_that_changes_after_it_was_wrapped_is_denied(change: str, guard: Guard, outcomes: Any) -> None:
    """Nobody looked at what it is now."""
    calls: Calls = []
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    inner: Any = StructuredTool(
        name="sample",
        description="d",
        args_schema=schema,
        func=calls.append,
        coroutine=plain([]).coroutine,  # type: ignore[attr-defined]
    )
    guarded = guard_tool(inner, guard)

    class Other(BaseModel):
        a: str

    if change == "in place":
        schema["properties"]["a"]["type"] = "string"
    else:
        changes = {"args_schema": Other, "func": print, "coroutine": print}
        setattr(inner, change, changes.get(change, "other"))
    assert guarded.invoke(CALL).status == "error"
    assert calls == []
    assert outcomes(guard) == [("sample", "denied", "policy_denied")]
    assert guard.audit.events[-1].rules == ()  # type: ignore[union-attr]


def test_a_guarded_tool_that_is_renamed_is_denied(guard: Guard) -> None:
    """Its own name is frozen like the inner one's."""
    guarded = guard_tool(plain([]), guard)
    guarded.name = "other"
    assert guarded.invoke(CALL).artifact["code"] == "policy_denied"


def test_the_type_key_of_arguments_means_nothing(guard: Guard) -> None:
    """Arguments that look like a ToolCall inside a ToolCall stay arguments."""

    @tool
    def sample(type: str, id: str) -> str:
        """Take look-alikes."""
        return f"{type} {id}"

    bare = {"type": "tool_call", "id": "x"}
    guarded = guard_tool(sample, guard)
    assert guarded.invoke({**CALL, "args": bare}).content == sample.invoke({**CALL, "args": bare}).content


@pytest.mark.parametrize("inside", ["func", "invoke", "_run"])
def test_a_call_inside_a_call_is_judged_for_itself(inside: str, guard_of: Any, outcomes: Any) -> None:
    """The scope of one guarded call opens no other: a tool that calls a second one's entry is judged for both."""
    guard = guard_of("outer", "inner")
    calls: Calls = []
    second: Any = guard_tool(plain(calls, "inner"), guard)

    @tool
    def outer(a: int) -> str:
        """Call another tool."""
        return str(second.invoke({"a": a}) if inside == "invoke" else getattr(second, inside)(a=a))

    first = guard_tool(outer, guard)
    call = {**CALL, "name": "outer"}
    with guard.session("user-17", tools=["outer", "inner"]):
        assert first.invoke(call).content == "ran 1"
    with guard.session("user-17", tools=["outer"]):
        refusal = first.invoke(call)
    assert (refusal.status, refusal.artifact["tool"]) == ("error", "inner")
    assert calls == [1]
    assert outcomes(guard) == [
        ("outer", "authorized", None),
        ("inner", "authorized", None),
        ("inner", "succeeded", None),
        ("outer", "succeeded", None),
        ("outer", "authorized", None),
        ("inner", "denied", "unauthorized"),
        ("outer", "failed", "execution_failed"),
    ]


def test_a_function_without_a_docstring_is_refused(guard: Guard) -> None:
    """LangChain can make no tool of it; the error is the guard's own."""

    def sample(a: int) -> int:
        return a

    with pytest.raises(InvalidTool, match="docstring"):
        guard_tool(sample, guard)


def test_a_providers_own_tool_cannot_be_guarded(guard: Guard) -> None:
    """It runs at the provider."""
    with pytest.raises(InvalidTool, match="provider"):
        guard_tool({"type": "web_search"}, guard)  # type: ignore[arg-type]


@pytest.mark.parametrize("junk", [None, 3, ["a"], "no dict", b"bytes"])
def test_input_that_is_no_mapping_is_refused(junk: Any, guard: Guard) -> None:
    """Whatever else reaches a tool is a denial, not a crash."""
    with pytest.raises((ToolCallDenied, TypeError)):
        guard_tool(plain([]), guard)._run(junk, "and more")
    with pytest.raises(ToolCallDenied):
        guard_tool(plain([]), guard).run(junk)


def test_too_many_positions_are_a_type_error(guard: Guard) -> None:
    """As the function itself would say, and nothing is judged."""
    guarded: Any = guard_tool(plain([]), guard)
    with pytest.raises(TypeError, match="positional"):
        guarded.func(1, 2)
    with pytest.raises(TypeError, match="twice"):
        guarded.func(1, a=2)


def test_a_context_handed_over_in_code_is_used(guard_of: Any) -> None:
    """`context=` serves where there is no `with`; one of another guard is refused."""
    guard, other = guard_of("sample"), guard_of("sample")
    mine = guard_tool(plain([]), guard, context=guard.session("user-17", tools=["sample"]))
    assert mine.invoke({"a": 1}) == "ran 1"
    foreign = guard_tool(plain([], "sample"), other, context=guard.session("user-17", tools=["sample"]))
    with pytest.raises(ToolCallDenied, match="not issued by this guard"):
        foreign.invoke({"a": 1})


def test_no_session_no_call(guard_of: Any) -> None:
    """Outside any session nothing runs, and the message says how to open one."""
    with pytest.raises(ToolCallDenied, match=r"guard\.session"):
        guard_tool(plain([]), guard_of("sample")).invoke({"a": 1})


def test_a_tool_shown_in_a_message_is_its_own_message(guard: Guard) -> None:
    """Two calls of one message under one id are refused: which of them an answer belongs to is not decidable."""
    from langgraph.graph import END, START, MessagesState, StateGraph

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([guard_tool(plain([]), guard)]))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    twins = [{**CALL, "args": {"a": n}} for n in (1, 2)]
    answers = graph.compile().invoke({"messages": [AIMessage("", tool_calls=twins)]})["messages"][1:]
    assert [answer.artifact["code"] for answer in answers] == ["invalid_payload"] * 2

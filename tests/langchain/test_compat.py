"""What the adapter takes from LangChain and LangGraph beyond their documented interfaces is still as it was.

When one of these fails after an upgrade, upstream has moved, and `compat.py` is the place to follow.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, Tool, tool
from langchain_core.tools import base as tools_base
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.prebuilt import tool_node as node_module
from langgraph.types import Command, interrupt

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import compat, guard_tool
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.graph import resumes
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

HOOKS = {
    "_to_args_and_kwargs": ["self", "tool_input", "tool_call_id"],
    "_parse_input": ["self", "tool_input", "tool_call_id"],
    "_filter_injected_args": ["self", "tool_input"],
}


@pytest.mark.parametrize(("name", "parameters"), HOOKS.items())
def test_hooks_of_a_tool_take_what_they_took(name: str, parameters: list[str]) -> None:
    """The methods that a guarded tool overrides or calls have the signature that it relies on."""
    hook = getattr(BaseTool, name, None)
    assert hook is not None, f"BaseTool.{name} is gone"
    assert list(inspect.signature(hook).parameters) == parameters


@pytest.mark.parametrize("method", ["run", "arun"])
def test_run_goes_through_the_hooks(method: str) -> None:
    """`run` asks `_to_args_and_kwargs`, and hands its positional part to `_run` with config and run manager."""
    source = inspect.getsource(getattr(BaseTool, method))
    for part in (
        "_to_args_and_kwargs(",
        "_filter_injected_args(",
        "_get_runnable_config_param(",
        "*tool_args, **tool_kwargs",
    ):
        assert part in source, f"BaseTool.{method} no longer has {part}"


@pytest.mark.parametrize(
    "name", ["_get_runnable_config_param", "_is_injected_arg_type", "_stringify", "get_all_basemodel_annotations"]
)
def test_functions_are_where_they_were(name: str) -> None:
    """The private helpers that `compat.py` imports exist."""
    assert hasattr(tools_base, name), f"langchain_core.tools.base.{name} is gone"


@pytest.mark.parametrize("made", [StructuredTool, Tool])
def test_run_of_a_made_tool_calls_its_function(made: Any) -> None:
    """`_run` of a tool made from a function adds config and callbacks, and nothing else: `inner.py` does the same."""
    for method, function in (("_run", "func"), ("_arun", "coroutine")):
        source = inspect.getsource(getattr(made, method))
        assert f"self.{function}(*args, **kwargs)" in source
        assert 'get("callbacks")' in source
        assert source.count("kwargs[") == 2, "it hands over more than callbacks and config"


def test_injected_arguments_are_found() -> None:
    """Every kind of injected argument is told from the model's own."""

    @tool
    def sample(
        a: int,
        state: Annotated[dict[str, Any], InjectedState],
        mood: Annotated[str, InjectedState("mood")],
        store: Annotated[Any, InjectedStore()],
        tool_call_id: Annotated[str, InjectedToolCallId],
        user: Annotated[str, InjectedToolArg],
        runtime: ToolRuntime[Any, Any],
        config: RunnableConfig,
    ) -> str:
        """Take everything."""
        return ""

    names = {"state", "mood", "store", "tool_call_id", "user", "runtime"}
    assert compat.injected_arguments(sample) == names
    assert graph_compat.state_fields(sample) == {"state": None, "mood": "mood"}
    assert compat.id_arguments(sample) == {"tool_call_id"}
    assert graph_compat.framework_arguments(sample) == {"state", "mood", "store"}
    assert graph_compat.runtime_parameter(sample) == "runtime"
    assert compat.config_parameter(sample.func) == "config"  # type: ignore[attr-defined]


def test_tool_nodes_find_what_they_inject_in_the_entries() -> None:
    """ToolNode reads the annotations of `func` or `coroutine`: that is how a guarded tool gets its ToolRuntime."""
    source = inspect.getsource(node_module._get_all_injected_args)
    assert 'getattr(tool, "func", None) or getattr(tool, "coroutine", None)' in source
    guard = Guard(ToolExecutionPolicy({"sample": "read_only"}))

    @tool
    def sample(a: int) -> str:
        """Take one."""
        return ""

    node = ToolNode([guard_tool(sample, guard)])
    assert node._injected_args["sample"].runtime == "guarded_runtime"


def test_tool_nodes_keep_their_wrappers() -> None:
    """`reachable_tools` looks there for the middleware."""
    assert graph_compat.tool_call_wrappers(ToolNode([])) == []
    assert graph_compat.tool_call_wrappers(ToolNode([], wrap_tool_call=lambda request, execute: execute(request)))


@pytest.mark.parametrize(("first", "expected"), [(True, [True, False]), (False, [False])])
def test_a_middleware_is_told_whether_another_is_inside(first: bool, expected: list[bool]) -> None:
    """The handlers of `create_agent` show by their names whether they lead to another middleware."""
    seen: dict[str, list[bool]] = {"model": [], "tool": []}

    class Looking(AgentMiddleware[Any, Any, Any]):
        def __init__(self, label: str) -> None:
            super().__init__()
            self.label = label

        @property
        def name(self) -> str:
            return self.label

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            seen["model"].append(compat.has_middleware_inside(handler))
            return handler(request)

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            seen["tool"].append(compat.has_middleware_inside(handler))
            return handler(request)

    @tool
    def sample(a: int) -> str:
        """Take one."""
        return "ran"

    middleware = [Looking("outer"), Looking("inner")] if first else [Looking("only")]
    model = ScriptedChatModel([says(tool_call("sample", {"a": 1})), "done"])
    create_agent(model, tools=[sample], middleware=middleware).invoke({"messages": [("user", "go")]})
    assert seen["tool"] == expected
    assert seen["model"] == expected * 2


def test_runtimes_are_found_in_a_graph_only() -> None:
    """`current_runtime` is the running graph's, and None elsewhere."""
    assert graph_compat.current_runtime() is None
    found: list[Any] = []

    @tool
    def sample(a: int) -> str:
        """Look."""
        found.append(graph_compat.current_runtime())
        return "ran"

    sample.invoke({"a": 1})
    model = ScriptedChatModel([says(tool_call("sample", {"a": 1})), "done"])
    create_agent(model, tools=[sample], context_schema=str).invoke({"messages": [("user", "go")]}, context="c")  # type: ignore[arg-type]
    assert found[0] is None
    assert found[1].context == "c"
    assert found[1].execution_info.thread_id is None


class Entered:
    """A graph of two tasks, of which one asks by `interrupt`, and what was found inside it each time."""

    def __init__(self) -> None:
        self.saver = InMemorySaver()
        self.found: list[dict[str, Any]] = []
        builder = StateGraph(MessagesState)
        builder.add_node("asks", self.asks)
        builder.add_node("ends", lambda state: {"messages": []})
        builder.add_edge(START, "asks")
        builder.add_edge(START, "ends")
        self.graph = builder.compile(checkpointer=self.saver)

    def asks(self, state: MessagesState) -> dict[str, Any]:
        config, place = get_config(), graph_compat.current_place()
        assert place is not None
        scratchpad = config["configurable"]["__pregel_scratchpad"]
        self.found.append(
            {
                "config": config,
                "place": place,
                "shown": place.shown(),
                "resume": scratchpad.get_null_resume(False),
                "run": graph_compat.current_run(),
                "carried": resumes.current(),
            }
        )
        interrupt("sure?")
        return {"messages": []}

    def __call__(self, entered: Any) -> dict[str, Any]:
        self.graph.invoke(entered, {"configurable": {"thread_id": 7}})
        return self.found[-1]


def test_where_a_graph_could_pause() -> None:
    """A task knows its saver, its checkpoints and its place, by the names that `current_place` reads."""
    entered = Entered()
    inside = entered({"messages": []})
    configurable, place = inside["config"]["configurable"], inside["place"]
    root = entered.saver.get_tuple({"configurable": {"thread_id": "7", "checkpoint_ns": ""}})
    assert root is not None
    assert configurable["__pregel_checkpointer"] is place.saver is entered.saver
    assert place.checkpoint == ("7", root.checkpoint["id"])
    assert configurable["checkpoint_ns"] == place.namespace == f"asks:{place.task}"
    assert inside["config"]["metadata"]["langgraph_checkpoint_ns"] == place.namespace
    assert inside["config"]["metadata"]["langgraph_path"][0] == "__pregel_pull"
    assert {"subgraph_counter", "get_null_resume"} <= {field.name for field in fields(_scratchpad(inside))}
    assert inside["shown"] == ()


def _scratchpad(inside: dict[str, Any]) -> Any:
    return inside["config"]["configurable"]["__pregel_scratchpad"]


def test_what_a_graph_shows_and_was_resumed_with() -> None:
    """The saver has the interrupts of tasks that have not ended; the run carries the value, and no later one does."""
    resumes.watch()
    entered = Entered()
    entered({"messages": []})
    inside = entered(Command(resume="yes"))
    (shown,) = inside["shown"]
    assert (shown.value, shown.task) == ("sure?", inside["place"].task)
    assert inside["run"] == (inside["config"]["callbacks"].parent_run_id, f"asks:{shown.task}")
    assert (inside["resume"], inside["carried"].value, inside["carried"].is_by_id) == ("yes", "yes", False)
    inside = entered({"messages": []})
    assert (inside["shown"], inside["resume"], inside["carried"]) == ((), None, None)
    by_id = entered(Command(resume={"a" * 32: "yes"}))
    assert (by_id["resume"], by_id["carried"].is_by_id) == (None, True)
    assert entered(None)["carried"] is None


def test_what_is_no_end_of_a_task() -> None:
    """What LangGraph itself writes of a task that has not ended; older versions have no list of it."""
    status = pytest.importorskip("langgraph.pregel._task_status")
    assert set(graph_compat._CONTROL) == status.CONTROL_WRITES

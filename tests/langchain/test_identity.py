"""Which call of a graph a call is: ids that a model gave are evidence, not identity."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from guarded_core import CallbackApprover, Guard, NotExecuted, ToolExecutionPolicy
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

pytest.importorskip("langgraph")

from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Any:
    """Enter a graph, sync or async."""
    if request.param:
        return lambda graph, entered, config=CONFIG: asyncio.run(graph.ainvoke(entered, config))
    return lambda graph, entered, config=CONFIG: graph.invoke(entered, config)


class Door:
    """A lock that really locks, in order, and an error to raise after its effect."""

    def __init__(self, *, fails: Exception | None = None) -> None:
        self.done: list[str] = []
        self.fails = fails
        self.guard = Guard(ToolExecutionPolicy({"lock": "mutating", "unlock": "mutating"}))

        @tool
        def lock(door: int) -> str:
            """Lock."""
            return self.do(f"lock {door}")

        @tool
        def unlock(door: int) -> str:
            """Unlock."""
            return self.do(f"unlock {door}")

        self.tools = guard_tools([lock, unlock], self.guard)

    def do(self, what: str) -> str:
        self.done.append(what)
        if self.fails is not None:
            raise copy.copy(self.fails)
        return f"{what} done"

    def session(self) -> Any:
        return self.guard.session("user-17", tools=["lock", "unlock"], session_id="s")

    def replays(self) -> int:
        return sum(event.code == "replayed" for event in self.guard.audit.events)  # type: ignore[union-attr]


def told(result: dict[str, Any]) -> list[str]:
    """What the model was told of its calls."""
    return [str(message.content) for message in result["messages"] if message.type == "tool"]


def test_an_id_that_comes_again_in_another_message_is_another_call(run: Any) -> None:
    """Providers without ids of their own repeat the tool's name: each call of each message runs, and is recorded."""
    door = Door()
    calls = [says(tool_call(name, {"door": 1}, id=name)) for name in ("lock", "unlock", "lock")]
    agent = create_agent(ScriptedChatModel([*calls, "It is locked."]), door.tools, checkpointer=InMemorySaver())
    with door.session():
        result = run(agent, {"messages": [("user", "lock, unlock, lock")]})
    assert door.done == ["lock 1", "unlock 1", "lock 1"]
    assert told(result) == [f"{what} done" for what in door.done]
    assert door.replays() == 0


def test_a_fork_and_a_replay_are_the_same_call(run: Any) -> None:
    """A checkpoint that is entered again, by whatever place, finds the call by the message; each replay is noted."""
    door = Door()
    agent = create_agent(
        ScriptedChatModel([says(tool_call("lock", {"door": 1}, id="c")), *["done"] * 9]),
        door.tools,
        checkpointer=InMemorySaver(),
    )
    with door.session():
        run(agent, {"messages": [("user", "lock")]})
        (before,) = [state.config for state in agent.get_state_history(CONFIG) if state.next == ("tools",)]
        for times in (1, 2):
            assert told(run(agent, None, before)) == ["lock 1 done"]
            assert door.replays() == times
    assert door.done == ["lock 1"]


@pytest.mark.parametrize("fails", [ValueError("jammed"), NotExecuted("jammed")])
def test_retry_middleware(run: Any, fails: Exception) -> None:
    """A retry does not run again what raised after it was entered; it helps what says that it had no effect."""
    door = Door(fails=fails)
    agent = create_agent(
        ScriptedChatModel([says(tool_call("lock", {"door": 1}, id="c")), "done"]),
        door.tools,
        middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0, on_failure="continue")],
        checkpointer=InMemorySaver(),
    )
    with door.session():
        (text,) = told(run(agent, {"messages": [("user", "lock")]}))
    assert "jammed" in text
    assert len(door.done) == (3 if isinstance(fails, NotExecuted) else 1)


def test_retry_middleware_lets_a_pause_pass(run: Any) -> None:
    """A question is no failure: nobody retries it, the graph pauses, and the approved call runs once."""
    paid: list[int] = []

    @tool
    def pay(x: int) -> str:
        """Pay."""
        paid.append(x)
        return "paid"

    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=InterruptApprover())
    agent: Any = create_agent(
        ScriptedChatModel([says(tool_call("pay", {"x": 1}, id="c")), "done"]),
        guard_tools([pay], guard),
        middleware=[ToolRetryMiddleware(max_retries=2, initial_delay=0)],
        checkpointer=InMemorySaver(),
    )
    with guard.session("user-17", tools=["pay"], session_id="s"):
        assert "__interrupt__" in run(agent, {"messages": [("user", "pay")]})
        (asked,) = guard.approvals.pending()
        guard.approvals.decide(asked.id, by="lee", approve=True)
        assert told(run(agent, None)) == ["paid"]
    assert paid == [1]


def test_a_node_that_is_retried(run: Any) -> None:
    """A node's retry policy enters the same call: it is told what it raised, and does not run."""
    door = Door(fails=ValueError("jammed"))

    def node(state: MessagesState) -> Any:
        answer = door.tools[0].invoke(tool_call("lock", {"door": 1}, id="c") | {"type": "tool_call"})
        return {"messages": [("user", str(answer.content))]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("node", node, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=ValueError))
    graph.add_edge(START, "node")
    with door.session():
        result = run(graph.compile(checkpointer=InMemorySaver()), {"messages": [("user", "go")]})
    assert "jammed" in str(result["messages"][-1].content)
    assert door.done == ["lock 1"]


def test_equal_calls_of_one_node_are_counted(run: Any) -> None:
    """Code that calls a tool twice with one id and equal arguments does it twice, and only twice after a resume."""
    door = Door()
    call: Any = tool_call("lock", {"door": 1}, id="c") | {"type": "tool_call"}

    def node(state: MessagesState) -> Any:
        first = door.tools[0].invoke(call)
        interrupt("go on?")
        second = door.tools[0].invoke(call)
        return {"messages": [("user", f"{first.content}, {second.content}")]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    app = graph.compile(checkpointer=InMemorySaver())
    with door.session():
        run(app, {"messages": [("user", "go")]})
        result = run(app, Command(resume="yes"))
    assert result["messages"][-1].content == "lock 1 done, lock 1 done"
    assert door.done == ["lock 1", "lock 1"]
    assert door.replays() == 1


def test_the_functional_api() -> None:
    """An entrypoint that is resumed finds the calls that it made before, in their order."""
    door = Door()

    @entrypoint(checkpointer=InMemorySaver())
    def flow(doors: list[int]) -> list[str]:
        said = [door.tools[0].invoke({**tool_call("lock", {"door": n}, id="c"), "type": "tool_call"}) for n in doors]
        interrupt("go on?")
        return [str(message.content) for message in said]

    with door.session():
        flow.invoke([1, 2, 1], CONFIG)
        assert flow.invoke(Command(resume="yes"), CONFIG) == ["lock 1 done", "lock 2 done", "lock 1 done"]
    assert door.done == ["lock 1", "lock 2", "lock 1"]


def test_calls_that_a_tool_makes_inside(run: Any) -> None:
    """Two calls of one task whose tools each make an equal inner call make two; after a resume there are no more."""
    done: list[str] = []
    guard = Guard(ToolExecutionPolicy(dict.fromkeys(["outer", "inner", "wait"], "mutating")))

    @tool
    def inner(n: int) -> str:
        """Do."""
        done.append("inner")
        return "did"

    @tool
    def outer(which: str) -> str:
        """Have it done."""
        return str(guarded[1].invoke({"type": "tool_call", "name": "inner", "args": {"n": 1}, "id": "i"}).content)

    @tool
    def wait(n: int) -> str:
        """Wait for somebody."""
        return str(interrupt("go on?"))

    guarded = guard_tools([outer, inner, wait], guard)
    calls = [tool_call("outer", {"which": w}, id=w) for w in "ab"] + [tool_call("wait", {"n": 1}, id="w")]
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(guarded))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    app = graph.compile(checkpointer=InMemorySaver())
    with guard.session("user-17", tools=["outer", "inner", "wait"], session_id="s"):
        run(app, {"messages": [AIMessage("", tool_calls=calls)]})
        result = run(app, Command(resume="yes"))
    assert told(result) == ["did", "did", "yes"]
    assert done == ["inner", "inner"]


def test_one_message_on_two_threads() -> None:
    """The same message in another thread is another call."""
    door = Door()

    class Own(MessagesState):
        pass

    graph: Any = StateGraph(Own)
    graph.add_node("tools", ToolNode(door.tools))
    graph.add_edge(START, "tools")
    app = graph.compile(checkpointer=InMemorySaver())
    message = AIMessage("", id="m-1", tool_calls=[tool_call("lock", {"door": 1}, id="c")])
    with door.session():
        for thread in ("a", "b", "a"):
            app.invoke({"messages": [message]}, {"configurable": {"thread_id": thread}})
    assert door.done == ["lock 1", "lock 1"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("agent", None),
        ("no checkpointer", "compile it with a checkpointer"),
        ("in a node", "invoke it with"),
        ("outside", None),
    ],
)
def test_calls_that_nothing_tells_from_others_are_told_of(
    run: Any, how: str, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a tool that needs approval runs without a durable key in a graph, the log says so once, and what helps."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=CallbackApprover(lambda request: True, by="kim"))

    @tool
    def pay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    @tool("pay")
    async def apay(order: int) -> str:
        """Pay."""
        return f"paid {order}"

    is_async = "ainvoke" in run.__code__.co_names
    (paid,) = guard_tools([apay if is_async else pay], guard)
    calls = [says(tool_call("pay", {"order": n}, id=f"c{n}")) for n in (1, 2)]
    model = ScriptedChatModel([*calls, "Done."])

    def node(state: Any) -> Any:
        return {"messages": [("ai", paid.invoke({"order": n})) for n in (1, 2)]}

    async def anode(state: Any) -> Any:
        return {"messages": [("ai", await paid.ainvoke({"order": n})) for n in (1, 2)]}

    with guard.session("user-17", tools=["pay"], session_id="s"):
        if how == "outside":
            for n in (1, 2):
                asyncio.run(paid.ainvoke({"order": n})) if is_async else paid.invoke({"order": n})
        elif how == "in a node":
            builder = StateGraph(MessagesState)
            builder.add_node("pay", anode if is_async else node)
            builder.add_edge(START, "pay")
            run(builder.compile(checkpointer=InMemorySaver()), {"messages": []})
        else:
            saver = InMemorySaver() if how == "agent" else None
            agent = create_agent(model, [paid], checkpointer=saver)
            run(agent, {"messages": [("user", "pay")]}, CONFIG if saver else {})
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == (0 if why is None else 1)
    assert all(str(why) in text and "pay" in text for text in warned)

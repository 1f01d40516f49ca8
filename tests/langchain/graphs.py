"""Graphs of every kind around guarded tools, and a model that does what the user's message says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

KINDS = ("agent", "react_v1", "react_v2", "tool_node", "subgraph")
CONFIG = {"configurable": {"thread_id": "thread-1"}}


def plan(*turns: list[tuple[str, dict[str, Any], str]]) -> dict[str, Any]:
    """A user's message that has the model make these calls (name, arguments, id), turn by turn."""
    return {"messages": [HumanMessage(json.dumps(turns))]}


PAY = plan([("pay", {"amount": 5}, "call-1")])
THREE = plan([("pay", {"amount": 1}, "a"), ("look", {"what": "x"}, "b"), ("pay", {"amount": 2}, "c")])


SPOKEN: list[dict[str, Any]] = []
"""The arguments of each call that a model made, in every graph of this process, as often as it said so."""


def model() -> ScriptedChatModel:
    """A model that makes the calls of the last user's message, then says "done"; the same in every process."""

    def step(messages: Sequence[BaseMessage]) -> AIMessage:
        last = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
        turns = json.loads(str(messages[last].content))
        turn = sum(isinstance(message, AIMessage) for message in messages[last:])
        if turn == len(turns):
            return AIMessage("done")
        SPOKEN.extend(arguments for _, arguments, _ in turns[turn])
        return says(*(tool_call(name, arguments, id=id) for name, arguments, id in turns[turn]))

    return ScriptedChatModel([step] * 200)


def graph(kind: str, tools: Sequence[Any], saver: Any) -> Any:
    """A compiled graph of that kind."""
    if kind == "agent":
        return create_agent(model(), tools, checkpointer=saver)
    if kind in ("react_v1", "react_v2"):
        return create_react_agent(model(), tools, checkpointer=saver, version=kind[-2:])
    builder = StateGraph(MessagesState)
    if kind == "subgraph":
        builder.add_node("agent", create_agent(model(), tools))
        builder.add_edge(START, "agent")
        builder.add_edge("agent", END)
    else:
        mind = model()
        builder.add_node("model", lambda state: {"messages": [mind.invoke(state["messages"])]})
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "model")
        builder.add_conditional_edges("model", tools_condition)
        builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


class Desk:
    """A guard with a financial and a mutating tool, and what they did."""

    def __init__(self, approver: Any = None, store: Any = None, **settings: Any) -> None:
        self.did: list[Any] = []
        policy = ToolExecutionPolicy(
            {"pay": ToolSettings(risk="financial", **settings), "look": "mutating", "assign": "mutating"}
        )
        self.guard = Guard(policy, approver=approver or InterruptApprover(), store=store)

        @tool
        def pay(amount: int) -> str:
            """Pay."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool
        def look(what: str) -> str:
            """Look."""
            self.did.append(what)
            return f"saw {what}"

        self.tools = guard_tools([pay, look], self.guard)

    def session(self) -> Any:
        return self.guard.session("user-17", tools=["pay", "look", "assign"], session_id="s")

    def decide(self, interrupt: Any, approve: bool = True, reason: str = "") -> None:
        request_id = interrupt.id
        self.guard.approvals.decide(request_id, by="kim", approve=approve, reason=reason)

    def outcomes(self) -> list[str]:
        """What the trail says, but for its notes of replays, which depend on how often a graph is entered."""
        return [event.outcome.value for event in self.guard.audit.events if event.code != "replayed"]


class Runs:
    """Runs a graph of one kind, sync or async, each time as a new process would: from what is saved.

    Args:
        kind: of the graph.
        tools: for it.
        is_async: how it is run.
        path: a SQLite file for checkpoints; in memory without one.
    """

    def __init__(self, kind: str, tools: Sequence[Any], *, is_async: bool, path: Any = None) -> None:
        self.kind, self.tools, self.is_async, self.path = kind, tools, is_async, path
        self._memory = InMemorySaver()

    def __call__(self, entered: Any, config: Any = CONFIG) -> dict[str, Any]:
        """What the graph returns."""
        return self.enter(lambda graph: graph.invoke(entered, config), lambda graph: graph.ainvoke(entered, config))

    def state(self, config: Any = CONFIG) -> Any:
        """Where the graph stands."""
        return self.enter(lambda graph: graph.get_state(config), lambda graph: graph.aget_state(config))

    def history(self, config: Any = CONFIG) -> list[Any]:
        """Where it stood, newest first."""

        async def collected(graph: Any) -> list[Any]:
            return [state async for state in graph.aget_state_history(config)]

        return self.enter(lambda graph: list(graph.get_state_history(config)), collected)

    def enter(self, call: Callable[[Any], Any], acall: Callable[[Any], Any]) -> Any:
        """What the call gives for the graph: `call` where it is sync, `acall` where it is awaited."""
        if self.is_async:
            return asyncio.run(self._aenter(acall))
        if self.path is None:
            return call(graph(self.kind, self.tools, self._memory))
        with SqliteSaver.from_conn_string(str(self.path)) as saver:
            return call(graph(self.kind, self.tools, saver))

    async def _aenter(self, acall: Callable[[Any], Any]) -> Any:
        if self.path is None:
            return await acall(graph(self.kind, self.tools, self._memory))
        async with AsyncSqliteSaver.from_conn_string(str(self.path)) as saver:
            return await acall(graph(self.kind, self.tools, saver))

"""Worlds for the never-twice tests: agents of both frameworks over a store whose power can be cut at any step.

A world makes an agent's model ask for calls of one financial tool, `pay`, answers the questions in the store, and runs
the agent again and again, each time as a new process would. What the tool really did is kept apart from all of that.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

from guarded_core import Guard, InvalidApproval, MemoryStore, ToolExecutionPolicy, ToolSettings
from guarded_core.approval import RequestState
from guarded_core.store.base import Query

POINTS = (
    *("add_request", "commit", "settle", "deny"),
    *("after add_request", "after commit", "after settle", "after deny"),
    *("tool", "after tool"),
)
"""Where the power can be cut: before and after what the store keeps, and before and after what the tool does."""


_RUN_SECONDS = 0.1  # after which a workflow is taken to wait for a person; one that does not is woken once more


class PowerCut(BaseException):
    """The process is gone: nothing after this is kept, whoever catches it."""


class Power:
    """Cut once, at a point; until it is back, nothing works."""

    def __init__(self) -> None:
        self.cut_at: str | None = None
        self.is_off = False

    def passes(self, point: str) -> None:
        """Go past that point. Raises PowerCut where it is cut there, or still off."""
        if self.cut_at == point:
            self.cut_at, self.is_off = None, True
        if self.is_off:
            raise PowerCut

    def back(self) -> None:
        """A new process starts."""
        self.cut_at, self.is_off = None, False


class FragileStore(MemoryStore):
    """Survives power cuts as a database would: what it has kept is kept."""

    def __init__(self, power: Power) -> None:
        self.power = power
        self.skipped_ns = 0
        super().__init__(clock=lambda: 1_000_000_000 + self.skipped_ns)

    def load(self, query: Any) -> Any:
        """As the store's own."""
        self.power.passes("load")
        return super().load(query)

    def denials(self) -> int:
        """How many calls of the session were denied."""
        names = {"session_id": "user-17#s", "root_id": "user-17#s"}
        return self.load(Query(principal="user-17", tool="pay", **names)).denials


def _fragile(name: str) -> Any:
    kept = getattr(MemoryStore, name)

    def method(self: FragileStore, *args: Any, **kwargs: Any) -> Any:
        self.power.passes(name)
        result = kept(self, *args, **kwargs)
        self.power.passes(f"after {name}")
        return result

    return method


for _name in ("add_request", "commit", "settle", "deny"):
    setattr(FragileStore, _name, _fragile(_name))


@dataclass(kw_only=True)
class Book:
    """What the tool really did, and what people really approved; each call by its own number.

    Attributes:
        paid: how often each number was paid, with the amount.
        approved: the amounts that somebody approved for each number.
        power: of the process.
    """

    power: Power
    paid: Counter[tuple[int, int]] = field(default_factory=Counter)
    approved: set[tuple[int, int]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, number: int, amount: int) -> str:
        """The tool's effect: it cannot be undone."""
        self.power.passes("tool")
        with self._lock:
            self.paid[number, amount] += 1
        self.power.passes("after tool")
        return f"paid {amount} for {number}"

    def faults(self) -> list[str]:
        """What must never be: a call that ran twice, or without an approval of exactly it."""
        twice = [f"{call} ran {count} times" for call, count in self.paid.items() if count > 1]
        return twice + [f"{call} ran unapproved" for call in self.paid if call not in self.approved]


class World(Protocol):
    """An agent of one framework."""

    book: Book
    guard: Guard
    store: FragileStore
    power: Power

    def start(self, calls: list[tuple[int, int, str]]) -> None:
        """A user's message, on which the model makes these calls at once: number, amount, id."""

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        """The same message, where the first process died before it had kept anything of it."""

    def restart(self) -> None:
        """Put a new process in the place of this one: what was only in memory is gone."""

    def wake(self, how: random.Random) -> None:
        """Enter the agent again, in one of the ways that an application or a network client can."""

    def is_finished(self) -> bool:
        """Whether the agent has said its last word."""

    def results(self) -> dict[str, str]:
        """What the model was told of each call, by its id."""


def make_guard(store: FragileStore, approver: Any) -> Guard:
    """A guard over that store; `pay` asks."""
    policy = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", expires_seconds=60)})
    return Guard(policy, store=store, approver=approver, max_pending=10_000, max_denials=10_000)


def session(guard: Guard) -> Any:
    """The session, picked up again by each process."""
    return guard.session("user-17", tools=["pay"], session_id="s", max_calls=10_000)


def decide(world: World, approve: bool, choose: random.Random | None = None) -> None:
    """Decide one waiting question, or all of them; an approval is written into the book as it was shown."""
    waiting = world.guard.approvals.pending()
    for request in [choose.choice(waiting)] if choose and waiting else waiting:
        try:
            decided = world.guard.approvals.decide(request.id, by="kim", approve=approve, reason="as you say")
        except InvalidApproval:
            continue
        if decided.state is RequestState.APPROVED:
            world.book.approved.add((request.arguments["number"], request.arguments["amount"]))


def play(world: World, seed: int) -> str:
    """One random schedule of messages, decisions, resumes, crashes and clock jumps; what is wrong with it, if anything.

    In the end everything is approved and the agent is woken until it has finished.
    """
    rnd = random.Random(seed)
    known: list[tuple[int, int, str]] = []

    def message() -> None:
        calls: dict[str, tuple[int, int, str]] = {}
        for _ in range(rnd.choice([1, 2, 2, 3])):
            call = (len(known), rnd.choice([5, 6, 999]), f"id-{rnd.randrange(6)}")
            if known and rnd.random() < 0.15:  # the very same call in another message
                call = rnd.choice(known)
            known.append(call)
            calls.setdefault(call[2], call)
        world.start(list(calls.values()))

    message()
    for _ in range(rnd.randrange(4, 14)):
        step = rnd.choices(
            ["approve", "reject", "wake", "cut", "late", "message", "restart"], [30, 8, 35, 20, 5, 6, 6]
        )[0]
        if step in ("approve", "reject"):
            decide(world, step == "approve", rnd)
        elif step == "wake":
            world.wake(rnd)
        elif step == "cut":
            world.power.cut_at = rnd.choice(POINTS)
            world.wake(rnd)
            world.power.back()
            world.restart()
        elif step == "late":
            world.store.skipped_ns += 61_000_000_000
        elif step == "message" and (world.is_finished() or rnd.random() < 0.2):
            message()
        elif step == "restart":
            world.restart()
        if faults := world.book.faults():
            return f"seed {seed}: {faults}"
    for _ in range(60):
        if world.is_finished():
            break
        decide(world, True)
        world.wake(random.Random(rnd.random()))
    faults = world.book.faults() + ([] if world.is_finished() else ["it never ends"])
    return f"seed {seed}: {faults}" if faults else ""


class LangGraphWorld:
    """An agent of LangGraph, paused by interrupts."""

    def __init__(self, kind: str, *, is_async: bool, serial: bool = True, path: Any = None) -> None:
        from langchain_core.tools import tool

        from guarded_langchain import InterruptApprover, guard_tools
        from tests.langchain.graphs import Runs

        self.power = Power()
        self.store, self.book = FragileStore(self.power), Book(power=self.power)
        self._serial = serial
        self._approver = InterruptApprover
        self.guard = make_guard(self.store, InterruptApprover(serial=serial))

        @tool
        def pay(number: int, amount: int) -> str:
            """Pay."""
            return self.book.pay(number, amount)

        @tool("pay")
        async def apay(number: int, amount: int) -> str:
            """Pay."""
            await asyncio.sleep(0)
            return self.book.pay(number, amount)

        self._tool = apay if is_async else pay
        self._guard_tools = guard_tools
        self._runs = Runs(kind, guard_tools([self._tool], self.guard), is_async=is_async, path=path)

    def restart(self) -> None:
        """A new process: another approver, another guard, the same store and checkpoints."""
        self.guard = make_guard(self.store, self._approver(serial=self._serial))
        self._runs.tools = self._guard_tools([self._tool], self.guard)

    def start(self, calls: list[tuple[int, int, str]]) -> None:
        from tests.langchain.graphs import plan

        self._enter(plan([("pay", {"number": number, "amount": amount}, id) for number, amount, id in calls]))

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        self._enter(None)  # the graph's checkpoints have it

    def wake(self, how: random.Random) -> None:
        from langgraph.types import Command

        shown = [interrupt.id for task in self._runs.state().tasks for interrupt in task.interrupts]
        yes = {"decisions": [{"type": "approve"}]}
        way = how.choice(["none", "none", "bare", "map", "wrong", "fork", "superseded", "twice"])
        if way in ("fork", "superseded"):
            history = self._runs.history()
            old = [state for state in history if way == "fork" or any(task.interrupts for task in state.tasks)]
            if old:
                self._enter(None if way == "fork" else Command(resume=yes), how.choice(old).config)
        elif way == "bare" and len(shown) == 1:
            self._enter(Command(resume=yes))
        elif way == "map" and shown:
            self._enter(Command(resume={id: yes for id in shown if how.random() < 0.7} or {shown[0]: yes}))
        elif way == "wrong":
            self._enter(Command(resume={f"{how.getrandbits(128):032x}": yes}))
        elif way == "twice":
            threads = [threading.Thread(target=self._enter, args=(None,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            self._enter(None)

    def is_finished(self) -> bool:
        return not self._runs.state().next

    def results(self) -> dict[str, str]:
        messages = self._runs.state().values["messages"]
        return {message.tool_call_id: str(message.content) for message in messages if message.type == "tool"}

    def _enter(self, entered: Any, config: Any = None) -> None:
        from tests.langchain.graphs import CONFIG

        try:
            with session(self.guard):
                self._runs(entered, config or CONFIG)
        except (PowerCut, Exception):
            # A resume that the framework itself refuses, or a process that died: what counts is what was done.
            return


class LlamaIndexWorld:
    """An agent of LlamaIndex, whose context is saved after each time it was entered, and restored before the next."""

    def __init__(self, kind: str) -> None:
        import llama_index.core.agent.workflow  # noqa: F401  now, so that no run has to wait for it

        from guarded_llamaindex import WorkflowApprover

        self.power = Power()
        self.store, self.book = FragileStore(self.power), Book(power=self.power)
        self.kind = kind
        self._approver_type = WorkflowApprover
        self._saved: list[str] = []
        self._said: dict[str, str] = {}
        self._finished = False
        self._calls: list[tuple[int, int, str]] = []
        self.restart()

    def restart(self) -> None:
        """A new process: another approver, another guard, the same store and saved contexts."""
        self._approver = self._approver_type()
        self.guard = make_guard(self.store, self._approver)

    def start(self, calls: list[tuple[int, int, str]]) -> None:
        self._calls, self._saved, self._said, self._finished = calls, [], {}, False
        asyncio.run(self._enter(None, ()))

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        if not self._saved:
            self.start(calls)

    def wake(self, how: random.Random) -> None:
        if not self._saved:
            return
        saved = self._saved[-1] if how.random() < 0.7 else how.choice(self._saved)
        ids = [request.id for request in self.store.requests(session_id="user-17#s")] or ["none"]
        asyncio.run(self._enter(saved, [how.choice(ids) for _ in range(how.choice([0, 0, 1, 3]))]))

    def is_finished(self) -> bool:
        return self._finished

    def results(self) -> dict[str, str]:
        return self._said

    def _agent(self, is_new: bool) -> Any:
        from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent

        from guarded_llamaindex import guard_tools
        from guarded_llamaindex.testing import ScriptedLLM, tool_call

        async def pay(number: int, amount: int) -> str:
            """Pay."""
            await asyncio.sleep(0)
            return self.book.pay(number, amount)

        named: Any = {"name": "clerk", "description": "Pays.", "tools": guard_tools([pay], self.guard)}
        arguments = [{"number": number, "amount": amount} for number, amount, _ in self._calls]
        if self.kind == "react":
            texts = [f"Thought: pay\nAction: pay\nAction Input: {json.dumps(each)}" for each in arguments]
            script = [*(texts if is_new else []), *["Thought: done\nAnswer: done"] * 9]
            return ReActAgent(**named, llm=ScriptedLLM(script, function_calling=False))
        calls = [tool_call("pay", each, id=id) for each, (_, _, id) in zip(arguments, self._calls, strict=True)]
        clerk = FunctionAgent(**named, llm=ScriptedLLM([*([calls] if is_new else []), *["done"] * 9]))
        if self.kind == "function":
            return clerk
        handoff = tool_call("handoff", {"to_agent": "clerk", "reason": "it pays"})
        front = FunctionAgent(
            name="front", description="Talks.", tools=[], can_handoff_to=["clerk"], llm=ScriptedLLM([[handoff]])
        )
        return AgentWorkflow(agents=[front, clerk], root_agent="front")

    async def _enter(self, saved: str | None, events: Any) -> None:
        try:
            with session(self.guard):
                await self._run(saved, events)
        except (PowerCut, Exception):
            return

    async def _run(self, saved: str | None, events: Any) -> None:
        from llama_index.core.agent.workflow import ToolCallResult
        from llama_index.core.llms import ChatMessage
        from llama_index.core.memory import ChatMemoryBuffer
        from workflows import Context

        agent = self._agent(saved is None)
        if saved is None:
            handler = agent.run("pay")
        else:
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(saved)))
            memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage(content="pay")])
            await handler.ctx.store.set("memory", memory)
        for request_id in events:
            self._approver.wake(handler, request_id)

        async def follow() -> None:
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult) and event.tool_name == "pay":
                    self._said[event.tool_id] = str(event.tool_output.content)
            self._finished = str(await handler) == "done" or self._finished

        following = asyncio.create_task(follow())
        while saved is None and not (self.guard.approvals.pending() or following.done() or self.power.is_off):
            await asyncio.sleep(0.01)  # the model has to have spoken: after a restart it says "done"
        done, _ = await asyncio.wait({following}, timeout=_RUN_SECONDS)
        if not done:
            if not self.power.is_off:
                self._saved.append(json.dumps(handler.ctx.to_dict()))
            await handler.cancel_run()
            following.cancel()
        await asyncio.gather(following, return_exceptions=True)

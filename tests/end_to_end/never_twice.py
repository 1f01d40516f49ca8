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
from typing import Any, Literal, Protocol, TypeAlias

from guarded_core import Guard, InvalidApproval, MemoryStore, ToolExecutionPolicy, ToolSettings
from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.store.base import Query

POINTS = (
    *("add_request", "replace_request", "commit", "settle", "deny"),
    *("after add_request", "after replace_request", "after commit", "after settle", "after deny"),
    *("tool", "after tool"),
)
"""Where the power can be cut: before and after what the store keeps, and before and after what the tool does."""


RAISES, TOO_LARGE = 13, 14
"""Amounts that are paid, and then fail: the tool raises, or returns more than may be returned."""

MAX_RESULT = 4_096

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


for _name in ("add_request", "replace_request", "commit", "settle", "deny"):
    setattr(FragileStore, _name, _fragile(_name))


@dataclass(kw_only=True)
class Book:
    """What the tool really did, and what people really approved; each call by its own number.

    Attributes:
        paid: how often each number was paid, with the amount.
        approved: the amounts that somebody approved for each number.
        asked: how many messages of the model have a call of each number, where there are several: each is a call.
        power: of the process.
    """

    power: Power
    paid: Counter[tuple[int, int]] = field(default_factory=Counter)
    approved: set[tuple[int, int]] = field(default_factory=set)
    asked: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def pay(self, number: int, amount: int) -> str:
        """The tool's effect: it cannot be undone."""
        self.power.passes("tool")
        with self._lock:
            self.paid[number, amount] += 1
        self.power.passes("after tool")
        if amount % 1000 == RAISES:  # also where a person changed it
            raise ValueError("the printer is out of paper")
        return f"paid {amount} for {number}" + "!" * (MAX_RESULT if amount % 1000 == TOO_LARGE else 0)

    def faults(self) -> list[str]:
        """What must never be: a call that ran twice, or without an approval of exactly it."""
        times: Counter[int] = Counter()
        for (number, _), count in self.paid.items():
            times[number] += count
        twice = [f"{number} ran {count} times" for number, count in times.items() if count > (self.asked[number] or 1)]
        return twice + [f"{call} ran unapproved" for call in self.paid if call not in self.approved]


Said: TypeAlias = Literal["approve", "edit", "reject", "respond"]


class World(Protocol):
    """An agent of one framework.

    Attributes:
        keeps_ids: whether calls have the ids that the model gave them; otherwise an equal call is always another one.
    """

    keeps_ids: bool
    book: Book
    guard: Guard
    store: FragileStore
    power: Power

    def answer(self, request: ApprovalRequest, said: Said) -> None:
        """A person's answer to a question, at once or with the next time that the agent is entered."""

    def start(self, calls: list[tuple[int, int, str]]) -> None:
        """A user's message, on which the model makes these calls at once: number, amount, id."""

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        """The same message, where the first process died before it had kept anything of it."""

    def restart(self) -> None:
        """Put a new process in the place of this one: what was only in memory is gone."""

    def wake(self, how: random.Random, *, anew: bool = True) -> None:
        """Enter the agent again, in one of the ways that an application or a network client can.

        Args:
            how: chooses.
            anew: whether also from checkpoints before the model's turn: what it then calls are other calls.
        """

    def is_finished(self) -> bool:
        """Whether the agent has said its last word."""

    def results(self) -> dict[str, str]:
        """What the model was told of each call, by its id."""


def make_guard(store: FragileStore, approver: Any) -> Guard:
    """A guard over that store; `pay` asks."""
    policy = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", expires_seconds=60), "assign": "mutating"})
    policy = policy.with_payload_limits(MAX_RESULT, MAX_RESULT)
    return Guard(policy, store=store, approver=approver, max_pending=10_000, max_denials=10_000)


def session(guard: Guard) -> Any:
    """The session, picked up again by each process."""
    return guard.session("user-17", tools=["pay", "assign"], session_id="s", max_calls=10_000)


def decide(world: World, said: Said, choose: random.Random | None = None) -> None:
    """Answer one waiting question, or all of them."""
    waiting = world.guard.approvals.pending()
    for request in [choose.choice(waiting)] if choose and waiting else waiting:
        world.answer(request, said)


def edited(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a person makes of a call: another amount, so that each call is told from what it was."""
    return {**arguments, "amount": arguments["amount"] + 1000}


class DecidesInStore:
    """Answers are decisions, made outside of the framework."""

    keeps_ids = True
    book: Book
    guard: Guard

    def answer(self, request: ApprovalRequest, said: Said) -> None:
        """Decide; an approval is written into the book as it was shown, or changed."""
        answer: dict[str, Any] = {
            "approve": {"approve": True},
            "edit": {"approve": True, "arguments": edited(request.arguments)},
            "reject": {"approve": False, "reason": "as you say"},
            "respond": {"approve": False, "response": "it was paid by hand"},
        }[said]
        try:
            decided = self.guard.approvals.decide(request.id, by="kim", **answer)
        except InvalidApproval:
            return
        if decided.state is RequestState.APPROVED:
            self.book.approved.add((decided.arguments["number"], decided.arguments["amount"]))


def play(world: World, seed: int) -> str:
    """One random schedule of messages, decisions, resumes, crashes and clock jumps; what is wrong with it, if anything.

    In the end everything is approved and the agent is woken until it has finished.
    """
    rnd = random.Random(seed)
    known: list[tuple[int, int, str]] = []

    def message() -> None:
        calls: dict[str, tuple[int, int, str]] = {}
        for _ in range(rnd.choice([1, 2, 2, 3])):
            call = (len(known), rnd.choice([5, 6, 999, RAISES, TOO_LARGE]), f"id-{rnd.randrange(6)}")
            if known and rnd.random() < 0.15:  # a call equal to the last in all but the message, and so another call
                call = rnd.choice(known)
            known.append(call)
            calls.setdefault(call[2], call)
        world.start(list(calls.values()))

    message()
    for _ in range(rnd.randrange(4, 14)):
        step = rnd.choices(
            ["approve", "edit", "reject", "respond", "wake", "cut", "late", "message", "restart"],
            [22, 10, 5, 4, 35, 20, 5, 6, 6],
        )[0]
        if step in ("approve", "edit", "reject", "respond"):
            decide(world, step, rnd)  # type: ignore[arg-type]
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
        decide(world, "approve")
        world.wake(random.Random(rnd.random()))
    faults = world.book.faults() + ([] if world.is_finished() else ["it never ends"])
    return f"seed {seed}: {faults}" if faults else ""


class LangGraphWorld(DecidesInStore):
    """An agent of LangGraph, paused by interrupts, and woken when somebody has decided."""

    def __init__(self, kind: str, *, is_async: bool, serial: bool = True) -> None:
        from tests.langchain.graphs import SPOKEN, Runs

        self.power = Power()
        self.store, self.book = FragileStore(self.power), Book(power=self.power)
        self.kind = kind
        self._is_async, self._serial = is_async, serial
        self._spoken = len(SPOKEN)
        self._runs = Runs(kind.removeprefix("subagents_"), (), is_async=is_async)
        self.restart()

    def restart(self) -> None:
        """A new process: another approver, another guard, the same store and checkpoints."""
        from guarded_langchain import InterruptApprover

        self.guard = make_guard(self.store, InterruptApprover(serial=self._serial, **self._replies()))
        self._runs.tools = self._tools()

    def _tools(self) -> list[Any]:
        """`pay`; or `assign`, which has an agent of its own pay."""
        from langchain_core.tools import tool

        from guarded_langchain import guard_tools
        from tests.langchain.graphs import graph, plan

        @tool
        def pay(number: int, amount: int) -> str:
            """Pay."""
            return self.book.pay(number, amount)

        @tool("pay")
        async def apay(number: int, amount: int) -> str:
            """Pay."""
            await asyncio.sleep(0)
            return self.book.pay(number, amount)

        tools = guard_tools([apay if self._is_async else pay], self.guard)
        if not self.kind.startswith("subagents_"):
            return tools
        inner = graph("agent", tools, None)

        def task(number: int, amount: int) -> Any:
            return plan([("pay", {"number": number, "amount": amount}, f"pay-{number}")])

        @tool
        def assign(number: int, amount: int) -> str:
            """Have an agent pay."""
            return str(inner.invoke(task(number, amount))["messages"][-2].content)

        @tool("assign")
        async def aassign(number: int, amount: int) -> str:
            """Have an agent pay."""
            return str((await inner.ainvoke(task(number, amount)))["messages"][-2].content)

        return guard_tools([aassign if self._is_async else assign], self.guard)

    def start(self, calls: list[tuple[int, int, str]]) -> None:
        from tests.langchain.graphs import plan

        (tool,) = self._runs.tools
        self._enter(plan([(tool.name, {"number": number, "amount": amount}, id) for number, amount, id in calls]))

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        self._enter(None)  # the graph's checkpoints have it

    def wake(self, how: random.Random, *, anew: bool = True) -> None:
        from langgraph.types import Command

        shown = self._shown()
        yes = {"decisions": [{"type": "approve"}]}
        way = how.choice(["none", "none", "bare", "map", "wrong", "fork", "superseded", "twice"])
        if anew and way in ("fork", "superseded"):
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
            self._twice(None)
        else:
            self._enter(None)

    def _replies(self) -> dict[str, Any]:
        return {}

    def _shown(self) -> list[str]:
        return [interrupt.id for task in self._runs.state().tasks for interrupt in task.interrupts]

    def _twice(self, entered: Any) -> None:
        threads = [threading.Thread(target=self._enter, args=(entered,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

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
        finally:
            self._count_asked()

    def _count_asked(self) -> None:
        """A fork from before the model's turn has the model speak again: what it then calls is another call."""
        from tests.langchain.graphs import SPOKEN

        self.book.asked = Counter(arguments["number"] for arguments in SPOKEN[self._spoken :])


class ReplyingWorld(LangGraphWorld):
    """An agent of LangGraph whose answers come only with what it is resumed with, as stock interfaces send them."""

    def __init__(self, kind: str, *, is_async: bool, serial: bool = True) -> None:
        super().__init__(kind, is_async=is_async, serial=serial)
        self._said: dict[str, Any] = {}

    def answer(self, request: ApprovalRequest, said: Said) -> None:
        """Have the reply sent with the next resumes, again and again; what it approves is written into the book."""
        arguments = edited(request.arguments) if said == "edit" else request.arguments
        self._said[request.id] = {
            "approve": [{"type": "accept", "args": {"action": "pay", "args": arguments}}],
            "edit": {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": arguments}}]},
            "reject": {"decisions": [{"type": "reject", "message": "as you say", "request_id": request.id}]},
            "respond": [{"type": "response", "args": "it was paid by hand"}],
        }[said]
        if said in ("approve", "edit"):
            self.book.approved.add((arguments["number"], arguments["amount"]))

    def wake(self, how: random.Random, *, anew: bool = True) -> None:
        """Enter the agent again, mostly with replies: bare, by id, to the wrong question, to old checkpoints, twice."""
        from langgraph.types import Command

        shown = [id for id in self._shown() if id in self._said]
        by_id = {id: reply for id, reply in self._said.items() if how.random() < 0.9} or dict(self._said)
        ways = ["by id"] * 4 + ["bare"] * 6 + ["none", "wrong", "swapped", "garbage", "fork", "superseded", "twice"]
        way = how.choice(ways)
        if way == "bare" and len(shown) == len(self._shown()) == 1:
            self._enter(Command(resume=self._said[shown[0]]))
        elif anew and way in ("fork", "superseded") and (history := self._runs.history()):
            state = how.choice(history)
            asked = [interrupt.id for task in state.tasks for interrupt in task.interrupts]
            bare = way == "superseded" and len(asked) == 1 and asked[0] in self._said
            self._enter(Command(resume=self._said[asked[0]] if bare else by_id) if by_id else None, state.config)
        elif way == "wrong":
            self._enter(Command(resume={f"{how.getrandbits(128):032x}": APPROVE}))
        elif way == "swapped" and self._shown():  # an approval of another question, under this one's id
            other = {"type": "approve", "request_id": f"{how.getrandbits(128):032x}"}
            self._enter(Command(resume={id: {"decisions": [other]} for id in self._shown()}))
        elif way == "garbage" and self._shown():
            garbage = how.choice([True, "yes", {"decisions": [{"type": "approve"}] * 2}, [{"type": "APPROVE"}]])
            self._enter(Command(resume=dict.fromkeys(self._shown(), garbage)))
        elif way == "twice" and by_id:
            self._twice(Command(resume=by_id))
        else:
            self._enter(Command(resume=by_id) if by_id and way != "none" else None)

    def _replies(self) -> dict[str, Any]:
        return {"identify": lambda runtime: "kim"}


APPROVE = {"decisions": [{"type": "approve"}]}


class LlamaIndexWorld(DecidesInStore):
    """An agent of LlamaIndex, whose context is saved after each time it was entered, and restored before the next."""

    def __init__(self, kind: str) -> None:
        import llama_index.core.agent.workflow  # noqa: F401  now, so that no run has to wait for it

        from guarded_llamaindex import WorkflowApprover

        self.power = Power()
        self.store, self.book = FragileStore(self.power), Book(power=self.power)
        self.kind = kind
        self.keeps_ids = kind != "react"  # its calls are text, and LlamaIndex makes the ids up
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
        self.book.asked.update(number for number, _, _ in calls)
        asyncio.run(self._enter(None, ()))

    def start_again(self, calls: list[tuple[int, int, str]]) -> None:
        if not self._saved:
            self.start(calls)

    def wake(self, how: random.Random, *, anew: bool = True) -> None:
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

"""A run that is saved, restored and goes on: what would break it afterwards is known before a tool runs."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any, ClassVar

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCall, ToolCallResult
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool, ToolOutput
from pydantic import BaseModel
from workflows import Context, Workflow, step
from workflows.events import Event, StartEvent, StopEvent

from guarded_core import CallbackApprover, Guard, ToolExecutionPolicy
from guarded_llamaindex import WorkflowApprover, guard_tools
from guarded_llamaindex.outputs import savable
from guarded_llamaindex.testing import ScriptedLLM, tool_call

pytestmark = pytest.mark.filterwarnings("ignore:Skipping serialization")


class Shop:
    """A look at something that is no JSON, and a refund that a person approves."""

    def __init__(self, seen: Any = "seen", risk: str = "financial") -> None:
        self.refunded: list[int] = []
        self.approver = WorkflowApprover()
        policy = ToolExecutionPolicy({"refund": risk, "look": "mutating"})
        self.guard = Guard(policy, approver=self.approver)

        async def refund(order: int) -> str:
            """Refund."""
            self.refunded.append(order)
            return "refunded"

        async def look(order: int) -> Any:
            """Look."""
            return seen

        self.tools = guard_tools([refund, look], self.guard)

    def agent(self, script: list[Any], kind: str = "function") -> Any:
        clerk = FunctionAgent(name="clerk", description="Refunds.", tools=self.tools, llm=ScriptedLLM(script))
        return clerk if kind == "function" else AgentWorkflow(agents=[clerk], root_agent="clerk")

    def session(self) -> Any:
        return self.guard.session("user-17", tools=["refund", "look"], session_id="s")

    async def asked(self, handler: Any) -> Any:
        """The one question of a run, once it is asked."""
        while not self.guard.approvals.pending():
            await asyncio.sleep(0.01)
            assert not handler.is_done()
        (request,) = self.guard.approvals.pending()
        return request


@pytest.mark.parametrize("kind", ["function", "workflow"])
def test_a_context_without_its_memory_spends_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Restored from JSON without a memory, the run breaks before the refund, not after: with one it is made once."""
    shop = Shop()

    async def main() -> None:
        handler = shop.agent([[tool_call("refund", {"order": 7})], "done"], kind).run("refund")
        request = await shop.asked(handler)
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        shop.guard.approvals.decide(request.id, by="lee", approve=True)
        agent = shop.agent(["done"], kind)
        broken = agent.run(ctx=Context.from_dict(agent, json.loads(saved)))
        shop.approver.wake(broken, request)
        with pytest.raises(Exception, match="memory"):
            await broken
        assert shop.refunded == []
        assert shop.guard.approvals.get(request.id).state.value == "approved"
        assert "has no memory" in caplog.text
        agent = shop.agent(["done"], kind)
        handler = agent.run(ctx=Context.from_dict(agent, json.loads(saved)))
        await handler.ctx.store.set("memory", ChatMemoryBuffer.from_defaults())
        shop.approver.wake(handler, request)
        assert str(await handler) == "done"

    with shop.session():
        asyncio.run(main())
    assert shop.refunded == [7]


@pytest.mark.parametrize("seen", [threading.Lock(), b"\xff\xfe", {"deep": [object()]}, 1 + 2j], ids=type)
@pytest.mark.parametrize("together", [True, False])
def test_an_earlier_result_that_is_no_json_is_saved_as_its_text(seen: Any, together: bool) -> None:
    """The run can be saved at a pause whatever a guarded tool returned; the application still gets the object."""
    shop = Shop(seen)
    look, refund = tool_call("look", {"order": 7}), tool_call("refund", {"order": 7})
    raw: list[Any] = []

    async def main() -> None:
        handler = shop.agent([[look, refund], "done"] if together else [[look], [refund], "done"]).run("refund")
        request = await shop.asked(handler)
        saved = json.loads(json.dumps(handler.ctx.to_dict()))
        async for event in handler.stream_events():
            if isinstance(event, ToolCallResult) and event.tool_name == "look":
                raw.append(event.tool_output.raw_output)
                break
        await handler.cancel_run()
        shop.guard.approvals.decide(request.id, by="lee", approve=True)
        agent = shop.agent(["done"])
        handler = agent.run(ctx=Context.from_dict(agent, saved))
        await handler.ctx.store.set("memory", ChatMemoryBuffer.from_defaults())
        shop.approver.wake(handler, request)
        assert str(await handler) == "done"

    with shop.session():
        asyncio.run(main())
    assert raw == [seen]
    assert shop.refunded == [7]


def test_what_can_be_saved_is_left_as_it_is() -> None:
    """An output of JSON is the tool's own object; another one differs in what it is saved as, and in nothing else."""
    plain = ToolOutput(tool_name="look", content="x", raw_input={}, raw_output={"a": [1]})
    assert savable(plain) is plain
    lock, error = threading.Lock(), ValueError("x")
    odd = ToolOutput("look", content="x", raw_input={"order": 7}, raw_output=lock, is_error=True, exception=error)
    saved = savable(odd)
    assert (saved.content, saved.raw_input, saved.raw_output, saved.is_error) == ("x", {"order": 7}, lock, True)
    assert saved.exception is error
    assert ToolOutput(**json.loads(saved.model_dump_json(exclude={"blocks"})), content="x").raw_output == str(lock)


@pytest.mark.parametrize("restored", [False, True])
def test_ids_that_come_again_in_further_turns_are_other_calls(restored: bool) -> None:
    """An integration that gives the tool's name for an id makes as many calls as the model did, in each turn."""
    shop = Shop(risk="mutating")
    call = [tool_call("refund", {"order": 7}, id="refund")]

    async def main() -> None:
        agent = shop.agent([call, "one", call, call, "two"])
        ctx = Context(agent)
        assert str(await agent.run("refund", ctx=ctx)) == "one"
        if restored:
            ctx = Context.from_dict(agent, json.loads(json.dumps(ctx.to_dict())))
        assert str(await agent.run("refund twice", ctx=ctx)) == "two"

    with shop.session():
        asyncio.run(main())
    assert shop.refunded == [7, 7, 7]
    assert [event.code for event in shop.guard.audit.events] == [None] * 6  # type: ignore[union-attr]


class Clerk:
    """A refund that needs nobody, beside bare tools that take their time."""

    def __init__(self, risk: str = "mutating", **settings: Any) -> None:
        self.refunded: list[int] = []
        self.patience = 5.0
        self.guard = Guard(ToolExecutionPolicy({"refund": risk}), **settings)

        async def refund(order: int) -> str:
            """Refund."""
            self.refunded.append(order)
            return "refunded"

        async def wait(n: int) -> str:
            """Wait."""
            await asyncio.sleep(self.patience)
            return "waited"

        (self.refund,) = guard_tools([refund], self.guard)
        self.wait = FunctionTool.from_defaults(async_fn=wait)

    def session(self) -> Any:
        return self.guard.session("user-17", tools=["refund"], session_id="s")

    def outcomes(self) -> list[str]:
        return [event.code or event.outcome.value for event in self.guard.trail.events()]


async def done(agent: Any, saved: str) -> str:
    """What the agent says at the end of a run that was saved."""
    handler = agent.run(ctx=Context.from_dict(agent, json.loads(saved)))
    await handler.ctx.store.set("memory", ChatMemoryBuffer.from_defaults())
    return str(await handler)


@pytest.mark.parametrize("kind", ["function", "workflow"])
def test_a_context_saved_before_its_first_guarded_call(kind: str) -> None:
    """Saved once the model has spoken, and restored twice, the call that was still to come is one call."""
    desk = Clerk()
    waits = [tool_call("wait", {"n": n}, id=f"w{n}") for n in range(4)]  # an agent makes four calls at a time

    def agent(script: list[Any]) -> Any:
        clerk = FunctionAgent(
            name="clerk", description="Refunds.", tools=[desk.refund, desk.wait], llm=ScriptedLLM([*script, "done"])
        )
        return clerk if kind == "function" else AgentWorkflow(agents=[clerk], root_agent="clerk")

    async def main() -> None:
        handler = agent([[*waits, tool_call("refund", {"order": 7})]]).run("refund")
        async for event in handler.stream_events():
            if isinstance(event, ToolCall):
                break
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        desk.patience = 0.0
        assert [await done(agent([]), saved) for _ in range(2)] == ["done", "done"]

    with desk.session():
        asyncio.run(main())
    assert desk.refunded == [7]
    assert desk.outcomes() == ["authorized", "succeeded", "replayed"]


def test_a_context_saved_while_the_model_was_asked() -> None:
    """The model is asked again by each run that is restored: what it then calls is a call of its own."""
    desk = Clerk()

    def agent(script: list[Any]) -> Any:
        return FunctionAgent(tools=[desk.refund], llm=SlowLLM(script), name="clerk", description="Refunds.")

    async def main() -> None:
        handler = agent([]).run("refund")
        await asyncio.sleep(0.1)
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        for _ in range(2):
            SlowLLM.patience = 0.0
            assert await done(agent([tool_call("refund", {"order": 7}), "done"]), saved) == "done"

    SlowLLM.patience = 5.0
    with desk.session():
        asyncio.run(main())
    assert desk.refunded == [7, 7]


class SlowLLM(ScriptedLLM):
    """Takes its time."""

    patience: ClassVar[float] = 0.0

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self.patience)
        return await super().astream_chat(messages, **kwargs)


class Asked(Event):
    """A model's call, in a workflow of the application's own."""

    tool_id: str
    tool_kwargs: dict[str, Any]


class Own(Workflow):
    """Calls a tool for a model that nobody here has seen."""

    desk: Clerk

    @step
    async def think(self, event: StartEvent) -> Asked:
        return Asked(tool_id="r", tool_kwargs={"order": 7})

    @step
    async def act(self, context: Context, event: Asked) -> StopEvent:
        await asyncio.sleep(self.desk.patience)
        return StopEvent(str(await self.desk.refund.acall(**event.tool_kwargs)))


@pytest.mark.parametrize("risk", ["mutating", "read_only"])
def test_a_saved_call_that_nothing_tells_from_others(risk: str) -> None:
    """Where no model was shown the tool, a restored call that may have run before does not run; a look may."""
    desk = Clerk(risk)
    Own.desk = desk

    async def main() -> list[str]:
        handler = Own().run()
        await asyncio.sleep(0.1)
        saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()
        desk.patience = 0.0
        told = [await Own().run(ctx=Context.from_dict(Own(), json.loads(saved))) for _ in range(2)]
        return [*told, await Own().run()]

    with desk.session():
        *told, of_its_own = asyncio.run(main())
    assert of_its_own == "refunded"  # a run of its own
    if risk == "read_only":
        assert told == ["refunded", "refunded"]
        return
    assert all("did not run" in text for text in told)
    assert desk.refunded == [7]
    assert desk.outcomes() == ["cannot_run", "cannot_run", "authorized", "succeeded"]


class Typed(BaseModel):
    """A state that takes no other keys."""

    seen: int = 0


class Calling(Workflow):
    """Calls a tool in a step, in one of the ways that nothing tells from others."""

    @step
    async def act(self, context: Context, event: StartEvent) -> StopEvent:
        tool = event.get("tool")
        return StopEvent(str(tool.call(order=7) if event.get("sync") else await tool.acall(order=7)))


class CallingTyped(Own):
    """Calls a tool from a model's event, over a state of a type of its own."""

    @step
    async def act(self, context: Context[Typed], event: Asked) -> StopEvent:
        return StopEvent(str(await self.desk.refund.acall(**event.tool_kwargs)))


@pytest.mark.parametrize("how", ["no id", "sync", "typed", "agent", "outside"])
def test_calls_that_nothing_tells_from_others_are_told_of(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Where a tool that needs approval runs in a step without a durable key, the log says so once, and what helps."""
    Own.desk = desk = Clerk("financial", approver=CallbackApprover(lambda request: True, by="kim"))

    async def main() -> None:
        for _ in range(2):
            if how in ("no id", "sync"):
                await Calling().run(tool=desk.refund, sync=how == "sync")
            elif how == "typed":
                await CallingTyped().run()
            elif how == "outside":
                await desk.refund.acall(order=7)
            else:
                script = ScriptedLLM([tool_call("refund", {"order": 7}), "done"])
                await FunctionAgent(tools=[desk.refund], llm=script, name="clerk", description="Refunds.").run("go")

    with desk.session():
        asyncio.run(main())
    assert desk.refunded == [7, 7]
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == (0 if how in ("agent", "outside") else 1)
    assert all("refund" in text and "may then run twice" in text for text in warned)

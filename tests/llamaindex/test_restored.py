"""A run that is saved, restored and goes on: what would break it afterwards is known before a tool runs."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ToolCallResult
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import ToolOutput
from workflows import Context

from guarded_core import Guard, ToolExecutionPolicy
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

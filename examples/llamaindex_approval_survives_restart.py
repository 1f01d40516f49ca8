"""A LlamaIndex agent that waits for a person, is saved as JSON, and goes on in another process.

    python examples/llamaindex_approval_survives_restart.py          # all three steps, one after another
    python examples/llamaindex_approval_survives_restart.py ask      # or each by itself, in a folder of yours
    guarded approvals approve 1a2b --store sqlite:///guard.db --by lee
    python examples/llamaindex_approval_survives_restart.py go_on

It runs offline: the model is a script. Put a real one in its place.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from workflows import Context

from guarded_core import Approvals, Guard, ToolExecutionPolicy
from guarded_llamaindex import ApprovalRequested, WorkflowApprover, guard_tools
from guarded_llamaindex.testing import ScriptedLLM, tool_call

STORE = "sqlite:///guard.db"  # budgets, approvals, the ledger and the audit trail
SAVED = Path("context.json")  # where the workflow waits
QUESTION = "Please refund order A-17."


async def issue_refund(order: str, amount: float) -> str:
    """Refund an order."""
    with open("refunds.log", "a") as log:
        print(order, amount, file=log)
    return f"refunded {amount} for {order}"


def opened(*script: Any) -> tuple[Guard, FunctionAgent]:
    """The guard and the agent; the same in every process."""
    guard = Guard(ToolExecutionPolicy({"issue_refund": "financial"}), store=STORE, approver=WorkflowApprover())
    return guard, FunctionAgent(tools=guard_tools([issue_refund], guard), llm=ScriptedLLM(script))


async def ask() -> None:
    """The agent wants to refund, and waits; its context is saved."""
    guard, agent = opened(tool_call("issue_refund", {"order": "A-17", "amount": 20.0}))
    with guard.session("user-17", tools=["issue_refund"], session_id="ticket-42"):
        handler = agent.run(QUESTION)
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequested):
                print(event.text)
                break
        await asyncio.sleep(0.1)  # the step is paused a moment after its event
        warnings.filterwarnings("ignore", message="Skipping serialization")  # the memory is given anew below
        SAVED.write_text(json.dumps(handler.ctx.to_dict()))
        await handler.cancel_run()


async def approve() -> None:
    """A person approves it: here in code, as `guarded approvals approve` does at a terminal."""
    from guarded_core.store.sql import SqlStore

    with SqlStore.open(STORE) as store:
        approvals = Approvals(store)
        (request,) = approvals.pending()
        approvals.decide(request.id, by="lee", approve=True, reason="ticket 42")
        print(f"lee approved {request.tool}")


async def go_on() -> None:
    """The workflow is restored, and finds the decision; restored once more it repeats nothing."""
    for _ in range(2):
        guard, agent = opened("Your refund is on its way.")
        with guard.session("user-17", tools=["issue_refund"], session_id="ticket-42"):
            handler = agent.run(ctx=Context.from_dict(agent, json.loads(SAVED.read_text())))
            memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage(content=QUESTION)])
            await handler.ctx.store.set("memory", memory)
            async for event in handler.stream_events():
                if isinstance(event, ToolCallResult):
                    print(event.tool_output.content)
            print(await handler)
    with open("refunds.log") as log:
        print("refunds made:", len(log.readlines()))


if __name__ == "__main__":
    steps = {"ask": ask, "approve": approve, "go_on": go_on}
    if len(sys.argv) > 1:
        asyncio.run(steps[sys.argv[1]]())
    else:
        with tempfile.TemporaryDirectory() as folder:
            for step in steps:  # each in a process of its own
                subprocess.run([sys.executable, os.path.abspath(__file__), step], cwd=folder, check=True)

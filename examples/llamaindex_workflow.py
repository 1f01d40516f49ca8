"""A workflow of two agents that hand off to each other and spend from one shared budget.

Run it: ``python examples/llamaindex_workflow.py``. The models are scripted ones; nothing leaves this machine.
"""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent

from guarded_core import Guard, Role, ToolExecutionPolicy
from guarded_llamaindex import GuardedAgentWorkflow, assert_all_guarded, audited_events, guard_tools
from guarded_llamaindex.testing import ScriptedLLM, tool_call

NOTES: list[str] = []


def search_web(query: str) -> str:
    """Searches the web."""
    return f"three facts about {query}"


def write_note(text: str) -> str:
    """Keeps a note."""
    NOTES.append(text)
    return "noted"


policy = ToolExecutionPolicy(
    {"search_web": "read_only", "write_note": "mutating", "handoff": "read_only"},
    roles={"writer": Role(tools=frozenset({"search_web", "write_note", "handoff"}), max_calls=5)},
)
guard = Guard(policy)

researcher = FunctionAgent(
    name="researcher",
    description="Finds facts.",
    tools=guard_tools([search_web], guard),
    can_handoff_to=["writer"],
    llm=ScriptedLLM(
        [
            [tool_call("search_web", {"query": "otters"}), tool_call("search_web", {"query": "rivers"})],
            tool_call("handoff", {"to_agent": "writer", "reason": "the facts are there"}),
        ]
    ),
)
writer = FunctionAgent(
    name="writer",
    description="Writes notes.",
    tools=guard_tools([write_note], guard),
    can_handoff_to=["researcher"],
    llm=ScriptedLLM(
        [
            [tool_call("write_note", {"text": f"otter note {n}"}) for n in (1, 2, 3)],  # one more than is left
            tool_call("publish", {}),  # no such tool
            "Two notes are written.",
        ]
    ),
)
workflow = GuardedAgentWorkflow([researcher, writer], root_agent="researcher", guard=guard)
assert_all_guarded(workflow)


async def main() -> None:
    async with guard.session("editor-2", role="writer") as session:
        handler = workflow.run("Write about otters.")
        async for _ in audited_events(handler, guard):  # as handler.stream_events(), and made-up calls are recorded
            pass
        print(await handler)
        print("calls left:", session.remaining_calls)
    print("notes:", NOTES)
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:10} {event.code or ''}")


if __name__ == "__main__":
    asyncio.run(main())

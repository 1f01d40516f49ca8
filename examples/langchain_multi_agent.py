"""A graph of agents: a supervisor that asks a researcher, each with its own tools, all spending from one budget.

Run it: ``python examples/langchain_multi_agent.py``. The models are scripted ones; nothing leaves this machine.
"""

from __future__ import annotations

from langchain.agents import create_agent
from langchain_core.tools import tool

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware, guard_tools, reachable_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

PUBLISHED: list[str] = []


@tool
def search_web(query: str) -> str:
    """Search the web."""
    return f"three facts about {query}"


@tool
def publish(text: str) -> str:
    """Publish a text."""
    PUBLISHED.append(text)
    return "published"


policy = ToolExecutionPolicy({"search_web": "read_only", "publish": "mutating", "ask_researcher": "read_only"})
guard = Guard(policy)

# The researcher has the middleware, and a tool that it may not use: what it reads on the web cannot make it publish.
researcher = create_agent(
    ScriptedChatModel(
        [
            says(tool_call("search_web", {"query": "otters"})),
            says(tool_call("publish", {"text": "Buy my otters!"})),  # as a page on the web told it to
            "Otters hold hands while they sleep.",
        ]
    ),
    tools=[search_web, publish],
    middleware=[GuardMiddleware(guard)],
)


@tool
def ask_researcher(question: str) -> str:
    """Ask the researcher."""
    session = current["session"]
    # Whom it acts for, which tools it may use and how many calls it may make: only ever less than its caller.
    with session.delegate("researcher", tools=["search_web"], max_calls=2):
        answer = researcher.invoke({"messages": [("user", question)]})
    for message in answer["messages"]:
        if message.type == "tool":
            print("researcher:", message.content)
    return str(answer["messages"][-1].content)


supervisor = create_agent(
    ScriptedChatModel(
        [
            says(tool_call("ask_researcher", {"question": "What do otters do?"})),
            says(tool_call("publish", {"text": "Otters hold hands while they sleep."})),
            says(tool_call("publish", {"text": "And once more."})),
            "It is published.",
        ]
    ),
    tools=guard_tools([ask_researcher, publish], guard),
)
current = {}

if __name__ == "__main__":
    print(reachable_tools(supervisor))
    with guard.session("editor-3", tools=["ask_researcher", "search_web", "publish"], max_calls=3) as session:
        current["session"] = session
        for message in supervisor.invoke({"messages": [("user", "Write about otters.")]})["messages"]:
            if message.type == "tool":
                print("supervisor:", message.content)
    print(PUBLISHED)
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:14} {event.principal:10} {' for '.join(event.on_behalf_of)}")

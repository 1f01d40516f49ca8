"""A FastAPI endpoint whose authenticated user is the principal: each request has its own session, tools and budget.

Run it: ``python examples/langchain_fastapi.py``, with ``pip install fastapi httpx`` besides. It asks itself a few
questions and ends; serve it with ``uvicorn langchain_fastapi:app``. The model is a scripted one.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from langchain.agents import create_agent
from langchain_core.tools import tool
from pydantic import BaseModel

from guarded_core import Guard, Role, ToolExecutionPolicy
from guarded_langchain import GuardMiddleware, guard_tools
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

USERS = {"token-of-ann": ("ann", "support"), "token-of-bob": ("bob", "customer")}


@tool
def find_order(order_id: int) -> str:
    """Look up an order."""
    return f"order {order_id}: delivered"


@tool
def cancel_order(order_id: int) -> str:
    """Cancel an order."""
    return f"order {order_id}: cancelled"


policy = ToolExecutionPolicy(
    {"find_order": "read_only", "cancel_order": "mutating"},
    roles={
        "support": Role(tools=frozenset({"find_order", "cancel_order"}), max_calls=20),
        "customer": Role(tools=frozenset({"find_order"}), max_calls=5),
    },
)
guard = Guard(policy)
model = ScriptedChatModel(
    [says(tool_call("cancel_order", {"order_id": 7})), lambda messages: f"It says: {messages[-1].content}"] * 2
)
agent = create_agent(model, tools=guard_tools([find_order, cancel_order], guard), middleware=[GuardMiddleware(guard)])
app = FastAPI()
bearer = HTTPBearer(auto_error=False)


def user(credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> tuple[str, str]:
    """Who asks, as your own authentication says it; never from the question or its arguments."""
    found = USERS.get(credentials.credentials) if credentials else None
    if found is None:
        raise HTTPException(401)
    return found


class Question(BaseModel):
    text: str


@app.post("/ask")
async def ask(question: Question, asking: Annotated[tuple[str, str], Depends(user)]) -> dict[str, str]:
    """Answer a question with what its asker may use."""
    principal, role = asking
    async with guard.session(principal, role=role):
        said = await agent.ainvoke({"messages": [("user", question.text)]})
    return {"answer": said["messages"][-1].text}


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    with TestClient(app) as client:
        for token in ("token-of-ann", "token-of-bob", "no token"):
            headers = {"Authorization": f"Bearer {token}"}
            reply = client.post("/ask", json={"text": "Cancel order 7"}, headers=headers)
            print(reply.status_code, reply.json().get("answer", ""))
    print("shown:", [turn.tool_names for turn in model.seen[::2]])
    for event in guard.trail.events():
        print(f"{event.outcome:10} {event.tool:12} {event.principal}")

"""LangChain's human-in-the-loop middleware before a tool's invoke; a predicate sees one argument, nobody is asked."""

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.runtime import Runtime


def make(folder, arguments):
    def pay(to: str, amount: float, currency: str, url: str, items: list[dict[str, str]]) -> str:
        """Pays."""
        return "paid"

    tool = StructuredTool.from_function(pay)
    asks = {"allowed_decisions": ["approve"], "when": lambda request: request.tool_call["args"]["amount"] > 100}
    middleware = HumanInTheLoopMiddleware({"pay": asks})
    message = AIMessage("", tool_calls=[{"name": "pay", "args": arguments, "id": "1"}])
    runtime = Runtime()
    state = {"messages": [message]}

    def call():
        middleware.after_model(state, runtime)
        return tool.invoke(arguments)

    return call

"""Query-engine tools over a small local index: who may search what, how often, and with what words.

Run it: ``python examples/llamaindex_query_engine.py``. Embeddings and the model are mocks; nothing leaves this machine.
"""

from __future__ import annotations

import asyncio

from llama_index.core import Document, MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import DenyToolParam
from guarded_llamaindex import assert_all_guarded, guarded_retriever
from guarded_llamaindex.testing import ScriptedLLM, tool_call

Settings.embed_model = MockEmbedding(embed_dim=8)
Settings.llm = ScriptedLLM(["Returns are free for 30 days."] * 3)  # what the query engine answers with

handbook = VectorStoreIndex.from_documents([Document(text="Returns are free for 30 days.")])
salaries = VectorStoreIndex.from_documents([Document(text="Ann earns 5,000 a month.")])

tools = [
    QueryEngineTool.from_defaults(handbook.as_query_engine(), name="ask_handbook", description="Company rules."),
    RetrieverTool.from_defaults(handbook.as_retriever(), name="find_pages", description="Pages of the handbook."),
    QueryEngineTool.from_defaults(salaries.as_query_engine(), name="ask_salaries", description="Who earns what."),
]
policy = ToolExecutionPolicy(
    {
        "ask_handbook": ToolSettings(risk="read_only", max_calls=2),
        "find_pages": "read_only",
        "ask_salaries": "read_only",
    },
    rules=[DenyToolParam(tool="ask_*", param="input", contains="password")],
)
guard = Guard(policy)

llm = ScriptedLLM(
    [
        [
            tool_call("ask_handbook", {"input": "How long can I return things?"}),
            tool_call("find_pages", {"input": "returns"}),
            tool_call("ask_salaries", {"input": "Ann"}),  # hidden from this user, and made up by the model
            tool_call("ask_handbook", {"input": "What is the admin password?"}),
        ],
        "Within 30 days.",
    ]
)
# The retriever shows each user their own tools, and hands every call to the guard.
agent = FunctionAgent(tool_retriever=guarded_retriever(tools, guard), llm=llm)
assert_all_guarded(agent)


async def main() -> None:
    with guard.session("employee-4", tools=["ask_handbook", "find_pages"]):
        print(await agent.run("Can I still return this?"))
    print("shown to the model:", llm.seen[0].tool_names)
    for message in llm.seen[1].messages:
        if message.role == "tool":
            print("-", str(message.content).strip())


if __name__ == "__main__":
    asyncio.run(main())

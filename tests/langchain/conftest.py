"""Tools of every kind, guards over them, and ways to call them, shared by the adapter's tests."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import asyncio
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun, CallbackManagerForToolRun
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    create_retriever_tool,
    tool,
)
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import Field as FieldV1

from guarded_core import Guard, ToolExecutionPolicy
from guarded_langchain import guard_tool


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of tool: how to make one, and arguments that it takes.

    Attributes:
        sync: whether it can be called without a loop.
        alone: whether it can be called outside a graph.
        text: whether it also takes one text instead of named arguments.
        needs_id: whether only a whole ToolCall will do.
        traces_itself: whether an entry of its own starts a trace of its own inside the guarded one.
    """

    name: str
    make: Callable[[], BaseTool]
    args: dict[str, Any]
    sync: bool = True
    alone: bool = True
    text: bool = False
    needs_id: bool = False
    traces_itself: bool = False


def _decorated() -> BaseTool:
    @tool
    def sample(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    return sample


def _coroutine() -> BaseTool:
    @tool
    async def sample(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    return sample


def _structured() -> BaseTool:
    def sample(a: int, b: int = 2) -> str:
        return f"sync {a + b}"

    async def asample(a: int, b: int = 2) -> str:
        return f"async {a + b}"

    return StructuredTool.from_function(
        func=sample,
        coroutine=asample,
        name="sample",
        description="Add two numbers.",
        tags=["adding"],
        metadata={"team": "sums"},
        extras={"defer_loading": True},
        verbose=False,
        return_direct=True,
    )


def _simple() -> BaseTool:
    return Tool(name="sample", func=lambda text: f"got {text}", description="Take one text.")


class Ordered(BaseModel):
    a: int
    when: date = date(2026, 1, 2)
    tags: list[str] = Field(default_factory=lambda: ["new"])


class Subclass(BaseTool):
    name: str = "sample"
    description: str = "A subclass."
    args_schema: type[BaseModel] = Ordered
    api_key: str = "of the application"

    def _run(self, a: int, when: date, tags: list[str], run_manager: CallbackManagerForToolRun | None = None) -> str:
        return f"{a} {when.isoformat()} {tags} {run_manager is not None}"


class AsyncSubclass(Subclass):
    async def _arun(self, a: int, when: date, tags: list[str], config: RunnableConfig) -> str:  # type: ignore[override]
        return f"async {a} {when.isoformat()} {tags} {config['configurable']['k']}"


class Inferred(BaseTool):
    name: str = "sample"
    description: str = "A subclass without a schema of its own."

    def _run(self, a: int, b: str = "x") -> str:
        return f"{a}{b}"


class OwnEntry(Subclass):
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return super().invoke(input, config, **kwargs)


class OwnParser(Subclass):
    def _parse_input(self, tool_input: Any, tool_call_id: str | None) -> Any:
        return {**super()._parse_input(tool_input, tool_call_id), "tags": ["parsed by itself"]}


SCHEMA = {
    "type": "object",
    "title": "sample",
    "properties": {"a": {"type": "integer"}, "note": {"type": "string", "default": "none"}},
    "required": ["a"],
}


def _dict_schema() -> BaseTool:
    def sample(a: int, note: str = "none") -> str:
        return f"{a} {note}"

    return StructuredTool(name="sample", description="By JSON Schema.", args_schema=SCHEMA, func=sample)


def _like_mcp() -> BaseTool:
    async def sample(runtime: Annotated[object | None, InjectedToolArg()] = None, **arguments: Any) -> Any:
        return [{"type": "text", "text": f"{arguments} {runtime is not None}"}], {"structured_content": {"x": 1}}

    return StructuredTool(
        name="sample",
        description="As langchain-mcp-adapters makes them.",
        args_schema=SCHEMA,
        coroutine=sample,
        response_format="content_and_artifact",
        metadata={"readOnlyHint": True},
    )


class V1(BaseModelV1):
    a: int = FieldV1(description="a number")
    when: date = date(2026, 1, 2)
    other: int | None = None


def _v1() -> BaseTool:
    def sample(a: int, when: date, other: int | None) -> str:
        return f"{a} {when.isoformat()} {other}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return StructuredTool.from_function(func=sample, name="sample", description="Version 1.", args_schema=V1)


class Aliased(BaseModel):
    q: str = Field(alias="query", description="the question")
    top: int = Field(3, alias="top-k")


def _aliased() -> BaseTool:
    @tool(args_schema=Aliased)
    def sample(q: str, top: int) -> str:
        """Search."""
        return f"{q} {top}"

    return sample


ALIASED = {"query": "z", "top-k": 9}


def _aliases_work() -> bool:
    """Whether a bare tool gets aliased arguments at all: LangChain's older versions lose them."""
    try:
        return bool(_aliased().invoke(dict(ALIASED)))
    except TypeError:
        return False


def _no_arguments() -> BaseTool:
    @tool
    def sample() -> str:
        """Say something."""
        return "something"

    return sample


def _loose_defaults() -> BaseTool:
    @tool
    def sample(a: int, b: int = None, **kwargs: Any) -> str:  # type: ignore[assignment]  # noqa: RUF013
        """Defaults that no JSON says."""
        return f"{a} {b} {kwargs}"

    return sample


def _artifact() -> BaseTool:
    @tool(response_format="content_and_artifact")
    def sample(a: int) -> tuple[str, Any]:
        """Return an artifact."""
        return f"content {a}", {"raw": a}

    return sample


def _command() -> BaseTool:
    @tool
    def sample(a: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Return a command."""
        return Command(update={"messages": [ToolMessage(f"commanded {a}", tool_call_id=tool_call_id)]})

    return sample


def _message() -> BaseTool:
    @tool
    def sample(a: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Return a message."""
        return ToolMessage(f"message {a}", tool_call_id=tool_call_id, artifact=[a])

    return sample


def _state() -> BaseTool:
    @tool
    def sample(a: int, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Read the state."""
        return f"{a} {len(state['messages'])}"

    return sample


def _state_field() -> BaseTool:
    @tool
    def sample(a: int, mood: Annotated[str, InjectedState("mood")]) -> str:
        """Read a field of the state, plain JSON."""
        return f"{a} {mood}"

    return sample


def _store() -> BaseTool:
    @tool
    def sample(a: int, store: Annotated[Any, InjectedStore()]) -> str:
        """Read the store."""
        return f"{a} {type(store).__name__}"

    return sample


def _runtime() -> BaseTool:
    @tool
    def sample(a: int, runtime: ToolRuntime) -> str:
        """Use the runtime."""
        return f"{a} {runtime.tool_call_id} {len(runtime.state['messages'])}"

    return sample


class OnlyA(BaseModel):
    a: int


def _runtime_beside_schema() -> BaseTool:
    @tool(args_schema=OnlyA)
    def sample(a: int, runtime: ToolRuntime) -> str:
        """Use the runtime, which the declared schema leaves out."""
        return f"{a} {runtime.tool_call_id}"

    return sample


def _config() -> BaseTool:
    @tool
    def sample(a: int, config: RunnableConfig) -> str:
        """Read the config."""
        return f"{a} {config['configurable']['k']}"

    return sample


def _runnable() -> BaseTool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RunnableLambda(lambda given: given["a"] + 1).as_tool(
            name="sample", description="A runnable.", arg_types={"a": int}
        )


class Retriever(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document(page_content=f"about {query}")]


def _retriever() -> BaseTool:
    return create_retriever_tool(Retriever(), "sample", "Look something up.")


def _retriever_with_documents() -> BaseTool:
    return create_retriever_tool(Retriever(), "sample", "Look something up.", response_format="content_and_artifact")


def _agent() -> BaseTool:
    graph = StateGraph(MessagesState)
    graph.add_node(
        "reply", lambda state: {"messages": [AIMessage(f"seen {state['messages'][-1].content}", id="reply")]}
    )
    graph.add_edge(START, "reply")
    agent = graph.compile()

    @tool
    def sample(question: str) -> str:
        """Ask another agent."""
        return str(agent.invoke({"messages": [HumanMessage(question, id="question")]})["messages"][-1].content)

    return sample


KINDS = [
    Kind(name="decorated", make=_decorated, args={"a": 1}),
    Kind(name="coroutine", make=_coroutine, args={"a": 1, "b": 5}, sync=False),
    Kind(name="structured", make=_structured, args={"a": 1}),
    Kind(name="simple", make=_simple, args={"__arg1": "hi"}, text=True),
    Kind(name="subclass", make=Subclass, args={"a": 1, "when": "2026-03-04"}),
    Kind(name="async-subclass", make=AsyncSubclass, args={"a": 1}),
    Kind(name="inferred", make=Inferred, args={"a": 1}),
    Kind(name="own-entry", make=OwnEntry, args={"a": 1}, traces_itself=True),
    Kind(name="own-parser", make=OwnParser, args={"a": 1}),
    Kind(name="dict-schema", make=_dict_schema, args={"a": 1, "note": "n"}),
    Kind(name="like-mcp", make=_like_mcp, args={"a": 1, "note": "n"}, sync=False),
    Kind(name="pydantic-v1", make=_v1, args={"a": 1, "when": "2026-03-04"}),
    *([Kind(name="aliased", make=_aliased, args=ALIASED)] if _aliases_work() else []),
    Kind(name="no-arguments", make=_no_arguments, args={}),
    Kind(name="loose-defaults", make=_loose_defaults, args={"a": 1}),
    Kind(name="artifact", make=_artifact, args={"a": 1}),
    Kind(name="command", make=_command, args={"a": 1}, needs_id=True),
    Kind(name="message", make=_message, args={"a": 1}, needs_id=True),
    Kind(name="state", make=_state, args={"a": 1}, alone=False),
    Kind(name="state-field", make=_state_field, args={"a": 1}, alone=False),
    Kind(name="store", make=_store, args={"a": 1}, alone=False),
    Kind(name="runtime", make=_runtime, args={"a": 1}, alone=False),
    Kind(name="runtime-beside-schema", make=_runtime_beside_schema, args={"a": 1}, alone=False),
    Kind(name="config", make=_config, args={"a": 1}),
    Kind(name="runnable", make=_runnable, args={"a": 1}),
    Kind(name="retriever", make=_retriever, args={"query": "q"}),
    Kind(name="retriever-with-documents", make=_retriever_with_documents, args={"query": "q"}),
    Kind(name="agent", make=_agent, args={"question": "q"}, text=True),
]


GuardOf = Callable[..., Guard]


@pytest.fixture
def guard_of() -> GuardOf:
    """Makes a guard that allows these read-only tools: `guard_of("search", "read")`."""

    def make(*tools: str, **settings: Any) -> Guard:
        return Guard(ToolExecutionPolicy(dict.fromkeys(tools, "read_only")), **settings)

    return make


@pytest.fixture
def kinds() -> dict[str, Kind]:
    """The kinds by name."""
    return {kind.name: kind for kind in KINDS}


@pytest.fixture
def guard() -> Iterator[Guard]:
    """A guard over one mutating tool called "sample", in a session that may use it."""
    made = Guard(ToolExecutionPolicy({"sample": "mutating"}))
    with made.session("user-17", tools=["sample"]):
        yield made


Outcomes = Callable[[Guard], list[tuple[str, str, str | None]]]


@pytest.fixture
def outcomes() -> Outcomes:
    """Tool, outcome and code of each event in a guard's trail."""
    return lambda guard: [(e.tool, e.outcome.value, e.code) for e in guard.audit.events]  # type: ignore[union-attr]


@pytest.fixture
def pair(request: pytest.FixtureRequest, guard: Guard) -> tuple[BaseTool, BaseTool]:
    """One tool of the `kind`, or `lone` kind, bare and guarded."""
    kind = request.getfixturevalue("kind" if "kind" in request.fixturenames else "lone")
    return kind.make(), guard_tool(kind.make(), guard)


CONFIG: RunnableConfig = {"configurable": {"k": "v"}, "tags": ["t"], "metadata": {"m": 1}}


class State(MessagesState):
    mood: str


def _node(tools: list[BaseTool], **settings: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("tools", ToolNode(tools, **settings))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(store=InMemoryStore())


def call_of(tool: BaseTool, args: dict[str, Any]) -> dict[str, Any]:
    """A ToolCall."""
    return {"name": tool.name, "args": dict(args), "id": "call-1", "type": "tool_call"}


def _state_with(tool: BaseTool, args: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [AIMessage("", tool_calls=[call_of(tool, args)])], "mood": "good"}


def _through_node(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return _node([tool]).invoke(_state_with(tool, args), config)["messages"][-1]


def _through_node_async(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return asyncio.run(_node([tool]).ainvoke(_state_with(tool, args), config))["messages"][-1]


def _with_call(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return tool.invoke(call_of(tool, args), config)


def _with_call_async(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return asyncio.run(tool.ainvoke(call_of(tool, args), config))


def _with_dict(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return tool.invoke(dict(args), config)


def _with_dict_async(tool: BaseTool, args: dict[str, Any], config: RunnableConfig) -> Any:
    return asyncio.run(tool.ainvoke(dict(args), config))


@dataclass(frozen=True)
class Way:
    """A way to call a tool: `way(tool, args, config)`.

    Attributes:
        name: short.
        in_graph: through a ToolNode.
        has_id: with a ToolCall.
        is_async: awaited.
    """

    name: str
    call: Callable[[BaseTool, dict[str, Any], RunnableConfig], Any]
    in_graph: bool = False
    has_id: bool = True
    is_async: bool = False

    def __call__(self, tool: BaseTool, args: dict[str, Any], config: RunnableConfig | None = None) -> Any:
        return self.call(tool, args, config or {**CONFIG})

    def serves(self, kind: Kind) -> bool:
        """Whether a bare tool of this kind can be called like this."""
        return (kind.alone or self.in_graph) and (self.has_id or not kind.needs_id)


WAYS = [
    Way("node", _through_node, in_graph=True),
    Way("node-async", _through_node_async, in_graph=True, is_async=True),
    Way("call", _with_call),
    Way("call-async", _with_call_async, is_async=True),
    Way("dict", _with_dict, has_id=False),
    Way("dict-async", _with_dict_async, has_id=False, is_async=True),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`kind` and `way` are all kinds and ways, together the pairs that a bare tool can do; `lone` needs no graph."""
    if "lone" in metafunc.fixturenames:
        lone = [kind for kind in KINDS if kind.alone and not kind.traces_itself]
        metafunc.parametrize("lone", lone, ids=lambda each: each.name)
    names = [name for name in ("kind", "way") if name in metafunc.fixturenames]
    if names == ["kind", "way"]:
        pairs = [(kind, way) for kind in KINDS for way in WAYS if way.serves(kind)]
        metafunc.parametrize(names, pairs, ids=[f"{kind.name}-{way.name}" for kind, way in pairs])
    elif names:
        every: list[Any] = KINDS if names == ["kind"] else WAYS
        metafunc.parametrize(names[0], every, ids=lambda each: each.name)


def comparable(value: Any) -> Any:
    """A result as something that compares by content: messages and commands by their parts."""
    if isinstance(value, ToolMessage):
        return (value.content, value.artifact, value.tool_call_id, value.name, value.status)
    if isinstance(value, Command):
        return {key: [comparable(item) for item in items] for key, items in dict(value.update or {}).items()}  # type: ignore[arg-type]
    return value


def outcome(run: Callable[[], Any]) -> Any:
    """What `run` returns, or the type and text of what it raises."""
    try:
        return comparable(run())
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.fixture
def same() -> Callable[[Callable[[], Any], Callable[[], Any]], None]:
    """Asserts that two ways of running something come to the same."""

    def check(guarded: Callable[[], Any], bare: Callable[[], Any]) -> None:
        assert outcome(guarded) == outcome(bare)

    return check


@pytest.fixture(params=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    """Whether a graph is awaited."""
    return bool(request.param == "async")


@pytest.fixture(params=["memory", "sqlite"])
def path(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """Where checkpoints are kept; in memory for None."""
    return None if request.param == "memory" else tmp_path / "checkpoints.db"

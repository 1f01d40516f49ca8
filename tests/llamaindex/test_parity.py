"""Bare and guarded side by side: the same output, the same errors, the same execution, the same schema."""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.readers.base import BaseReader
from llama_index.core.tools import (
    BaseTool,
    FunctionTool,
    QueryEngineTool,
    RetrieverTool,
    ToolMetadata,
    ToolOutput,
)
from llama_index.core.tools.ondemand_loader_tool import OnDemandLoaderTool
from llama_index.core.tools.tool_spec.base import BaseToolSpec
from llama_index.core.tools.tool_spec.load_and_search import LoadAndSearchToolSpec
from llama_index.core.workflow import Context
from pydantic import BaseModel, Field
from workflows import Workflow, step
from workflows.events import StartEvent, StopEvent

from guarded_llamaindex import guard_tool
from guarded_llamaindex.compat import CALL_TOOL_CALLS_TWICE

Calls = list[tuple[Any, ...]]


class Colour(enum.Enum):
    RED = "red"


class Order(BaseModel):
    sku: str = Field(description="Which article")
    amount: int = Field(ge=1)


class State(BaseModel):
    name: str = "x"


class Pages(BaseReader):
    def __init__(self, calls: Calls) -> None:
        self.calls = calls

    def load_data(self, topic: str) -> list[Document]:  # type: ignore[override]
        """Loads pages."""
        self.calls.append((topic,))
        return [Document(id_="1", text=f"about {topic}")]


class Tools:
    """One tool of each kind; each run adds to `calls`."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def _giving(self, value: Any) -> BaseTool:
        def give() -> Any:
            """Gives."""
            self.calls.append(())
            return value

        return FunctionTool.from_defaults(give, return_direct=True)

    def sync_function(self) -> BaseTool:
        def add(a: int, b: int = 2) -> int:
            """Adds."""
            self.calls.append((a, b))
            return a + b

        return FunctionTool.from_defaults(add)

    def async_function(self) -> BaseTool:
        async def add(a: int, b: int = 2) -> int:
            """Adds."""
            self.calls.append((a, b))
            return a + b

        return FunctionTool.from_defaults(async_fn=add)

    def both(self) -> BaseTool:
        def add(a: int, b: int = 2) -> str:
            self.calls.append(("sync", a, b))
            return f"sync {a + b}"

        async def aadd(a: int, b: int = 2) -> str:
            self.calls.append(("async", a, b))
            return f"async {a + b}"

        return FunctionTool.from_defaults(add, async_fn=aadd)

    def given_schema(self) -> BaseTool:
        def order(sku: str, amount: int) -> str:
            self.calls.append((sku, amount))
            return f"{amount} × {sku}"

        return FunctionTool.from_defaults(order, fn_schema=Order, name="place-order", description="Orders.")

    def typed_defaults(self) -> BaseTool:
        def report(
            title: str,
            day: date = date(2026, 1, 31),
            colour: Colour = Colour.RED,
            at: datetime | None = None,
            limit: int = None,  # type: ignore[assignment] # noqa: RUF013 - as people write it
        ) -> str:
            self.calls.append((title, day, colour, at, limit))
            return repr((title, day, colour, at, limit))

        return FunctionTool.from_defaults(report)

    def field_defaults(self) -> BaseTool:
        def tag(
            title: Annotated[str, "What to tag"],
            tags: list[str] = Field(default_factory=lambda: ["x"]),  # noqa: B008
            note: str = Field(default="none", description="What else"),
        ) -> str:
            self.calls.append((title, tags, note))
            return repr((title, tags, note))

        return FunctionTool.from_defaults(tag)

    def nested_model(self) -> BaseTool:
        def order(order: Order, lines: list[Order]) -> str:
            self.calls.append((order, lines))
            return repr((order, lines))

        return FunctionTool.from_defaults(order)

    def partial(self) -> BaseTool:
        handle = object()

        def fetch(path: str, tenant: str, connection: Any = None) -> str:
            self.calls.append((path, tenant, connection is handle))
            return f"{tenant}/{path}"

        return FunctionTool.from_defaults(fetch, partial_params={"tenant": "acme", "connection": handle})

    def text_callback(self) -> BaseTool:
        def shout(text: str) -> str:
            self.calls.append((text,))
            return text

        return FunctionTool.from_defaults(shout, callback=lambda raw: f"{raw}!")

    def output_callback(self) -> BaseTool:
        def shout(text: str) -> str:
            self.calls.append((text,))
            return text

        async def callback(raw: str) -> ToolOutput:
            return ToolOutput(tool_name="other", content=f"{raw}?", raw_input={"from": "callback"}, raw_output=[raw])

        return FunctionTool.from_defaults(shout, async_callback=callback)

    def blocks(self) -> BaseTool:
        def draw(text: str) -> list[Any]:
            self.calls.append((text,))
            return [TextBlock(text=text), ImageBlock(url="https://example.com/a.png")]

        return FunctionTool.from_defaults(draw)

    def documents(self) -> BaseTool:
        def load(path: str) -> list[Document]:
            self.calls.append((path,))
            return [Document(id_="1", text=path), Document(id_="2", text="b")]

        return FunctionTool.from_defaults(load)

    def raising(self) -> BaseTool:
        def fail(path: str) -> str:
            self.calls.append((path,))
            raise FileNotFoundError(f"no such file: {path}")

        return FunctionTool.from_defaults(fail)

    def none(self) -> BaseTool:
        return self._giving(None)

    def nested_dict(self) -> BaseTool:
        return self._giving({"a": [1, {"b": None}]})

    def empty_text(self) -> BaseTool:
        return self._giving("")

    def open_keywords(self) -> BaseTool:
        def record(**fields: Any) -> str:
            self.calls.append(tuple(sorted(fields.items())))
            return "recorded"

        return FunctionTool.from_defaults(record, fn_schema=Order, name="record", description="Records.")

    def method_of_a_spec(self) -> BaseTool:
        calls = self.calls

        class Files(BaseToolSpec):
            spec_functions = ["read"]  # noqa: RUF012

            def read(self, path: str) -> str:
                """Reads a file."""
                calls.append((path,))
                return f"content of {path}"

        return Files().to_tool_list()[0]

    def subclass(self) -> BaseTool:
        calls = self.calls

        class Loud(FunctionTool):
            def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
                calls.append(("loud",))
                return super().call(*args, **kwargs)

        def say(text: str) -> str:
            calls.append((text,))
            return text

        return Loud.from_defaults(say)

    def sync_only(self) -> BaseTool:
        calls = self.calls

        class Old(BaseTool):
            @property
            def metadata(self) -> ToolMetadata:
                return ToolMetadata(name="old", description="Old.")

            def __call__(self, text: str) -> ToolOutput:  # type: ignore[override]
                calls.append((text,))
                return ToolOutput(tool_name="old", content=text, raw_input={"input": text}, raw_output=text)

        return Old()

    def query_engine(self) -> BaseTool:
        calls = self.calls

        class Echo(CustomQueryEngine):
            def custom_query(self, query_str: str) -> str:
                calls.append((query_str,))
                return f"found {query_str}"

        return QueryEngineTool.from_defaults(Echo(), name="docs")

    def retriever(self) -> BaseTool:
        index = VectorStoreIndex.from_documents([Document(id_="1", text="the only document")])
        return RetrieverTool.from_defaults(index.as_retriever(), name="docs")

    def on_demand(self) -> BaseTool:
        return OnDemandLoaderTool.from_defaults(Pages(self.calls), name="pages", description="Loads.")

    def load_and_search(self) -> BaseTool:
        loader = FunctionTool.from_defaults(Pages(self.calls).load_data, name="pages")
        return LoadAndSearchToolSpec.from_defaults(loader).to_tool_list()[0]


@dataclass(frozen=True)
class Case:
    make: Callable[[Tools], BaseTool]
    kwargs: dict[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    same_raw_output: bool = True  # False where it has a fresh id each time


CASES = {
    "sync": Case(Tools.sync_function, {"a": 1, "b": 5}),
    "sync, default": Case(Tools.sync_function, {"a": 1}),
    "sync, by position": Case(Tools.sync_function, {"b": 3}, (1,)),
    "async": Case(Tools.async_function, {"a": 1}),
    "sync and async": Case(Tools.both, {"a": 1}),
    "given schema": Case(Tools.given_schema, {"sku": "x", "amount": 2}),
    "typed defaults": Case(Tools.typed_defaults, {"title": "t"}),
    "typed, given": Case(Tools.typed_defaults, {"title": "t", "day": "2026-02-01", "colour": "red", "limit": 3}),
    "field defaults": Case(Tools.field_defaults, {"title": "t"}),
    "field defaults, given": Case(Tools.field_defaults, {"title": "t", "tags": ["y"], "note": ""}),
    "nested model": Case(
        Tools.nested_model, {"order": {"sku": "x", "amount": 1}, "lines": [{"sku": "y", "amount": 2}]}
    ),
    "text callback": Case(Tools.text_callback, {"text": "hey"}),
    "output callback": Case(Tools.output_callback, {"text": "hey"}),
    "blocks": Case(Tools.blocks, {"text": "hey"}),
    "documents": Case(Tools.documents, {"path": "a"}),
    "raising": Case(Tools.raising, {"path": "a"}),
    # Where `call_tool` would call again, a failure by position is told as an output: another stated difference.
    **({} if CALL_TOOL_CALLS_TWICE else {"raising, by position": Case(Tools.raising, args=("a",))}),
    "none": Case(Tools.none),
    "dict": Case(Tools.nested_dict),
    "empty text": Case(Tools.empty_text),
    "open keywords": Case(Tools.open_keywords, {"sku": "x", "amount": 2}),
    "tool spec": Case(Tools.method_of_a_spec, {"path": "a"}),
    "subclass": Case(Tools.subclass, {"text": "hey"}),
    "query engine": Case(Tools.query_engine, {"input": "what"}),
    "query engine, by position": Case(Tools.query_engine, args=("what",)),
    "retriever": Case(Tools.retriever, {"input": "what"}, same_raw_output=False),
    "retriever, by position": Case(Tools.retriever, args=("what",), same_raw_output=False),
    "on demand": Case(Tools.on_demand, {"topic": "cats", "query_str": "why"}, same_raw_output=False),
    "load and search": Case(Tools.load_and_search, {"topic": "cats"}),
}


def outcome(way: Any, tool: BaseTool, case: Case) -> dict[str, Any]:
    """All that a caller sees of one call."""
    try:
        output = way(tool, *case.args, **case.kwargs)
    except Exception as error:
        return {"raised": (type(error), str(error))}
    return {
        "type": type(output),
        "blocks": output.blocks,
        "content": output.content,
        "tool_name": output.tool_name,
        "raw_input": output.raw_input,
        "raw_output": output.raw_output if case.same_raw_output else type(output.raw_output),
        "is_error": output.is_error,
        "exception": repr(output.exception),
    }


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_call_is_the_bare_tools(guard_of: Any, way: Any, case: Case) -> None:
    """Output, error and execution of a guarded call are those of the bare tool, for every kind of tool and each way."""
    tools, guarded_tools = Tools(), Tools()
    bare, inner = case.make(tools), case.make(guarded_tools)
    guard = guard_of(str(bare.metadata.name))
    guarded = guard_tool(inner, guard)
    wanted = outcome(way, bare, case)
    with guard.session("user-17", tools=[guarded.spec_name]):
        found = outcome(way, guarded, case)
    assert found == wanted
    assert guarded_tools.calls == tools.calls
    assert [event.outcome.value for event in guard.audit.events] == [
        "authorized",
        "failed" if "raised" in wanted else "succeeded",
    ]


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_metadata_is_the_bare_tools(guard_of: Any, case: Case) -> None:
    """Where no rule narrows it, a model and an agent are shown the very same tool."""
    bare = case.make(Tools())
    guarded = guard_tool(bare, guard_of(str(bare.metadata.name)))
    assert guarded.metadata.to_openai_tool() == bare.metadata.to_openai_tool()
    assert guarded.metadata.fn_schema_str == bare.metadata.fn_schema_str
    assert guarded.metadata.fn_schema is bare.metadata.fn_schema
    assert guarded.metadata.return_direct is bare.metadata.return_direct


def test_sync_only_tool_is_called_as_agents_do(guard_of: Any, way: Any) -> None:
    """A tool without acall takes its one input by position, however the parameter is named."""
    tools, guard = Tools(), guard_of("old")
    tool = guard_tool(tools.sync_only(), guard)
    with guard.session("user-17", tools=["old"]):
        if way.__name__ == "_used_as_a_function":
            assert tool("hey").content == "hey"
        else:
            assert way(tool, input="hey").content == "hey"
    assert tools.calls == [("hey",)]


@pytest.mark.parametrize("name", ["sync_function", "async_function", "both"])
async def test_sync_call_in_a_running_loop(guard_of: Any, name: str) -> None:
    """A sync call from inside a loop does what the bare tool's does."""
    tools, guard = Tools(), guard_of("add")
    bare = getattr(tools, name)()
    with guard.session("user-17", tools=["add"]):
        outputs = [tool.call(a=1, b=2).model_dump() for tool in (bare, guard_tool(bare, guard))]
    assert outputs[0] == outputs[1]
    assert tools.calls[0] == tools.calls[1]


def test_partial_parameters_reach_the_tool(guard_of: Any, way: Any) -> None:
    """What the application has set reaches the function as it is; the output's raw_input does not show it."""
    tools, guard = Tools(), guard_of("fetch")
    tool = guard_tool(tools.partial(), guard)
    with guard.session("user-17", tools=["fetch"]):
        output = way(tool, path="a")
    assert tools.calls == [("a", "acme", True)]
    assert output.content == "acme/a"
    marker = "(set by the application)"
    assert output.raw_input == {"args": (), "kwargs": {"path": "a", "tenant": marker, "connection": marker}}


@pytest.mark.parametrize("annotation", [Context, Context[State]], ids=["Context", "Context[State]"])
def test_context_reaches_the_tool_and_not_its_input(guard_of: Any, way: Any, annotation: Any) -> None:
    """The workflow's Context is handed through untouched, and left out of raw_input."""
    calls: Calls = []

    def who(ctx: Any, name: str) -> str:
        calls.append((ctx, name))
        return name

    who.__annotations__["ctx"] = annotation

    class Empty(Workflow):
        @step
        async def only(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

    context: Context[Any] = Context(Empty())
    guard = guard_of("who")
    bare = FunctionTool.from_defaults(who)
    tool = guard_tool(bare, guard)
    assert (tool.requires_context, tool.ctx_param_name) == (True, "ctx")
    with guard.session("user-17", tools=["who"]):
        output = way(tool, ctx=context, name="lee")
        positional = tool.fn(context, "lee")
    assert calls == [(context, "lee"), (context, "lee")]
    assert output.raw_input == way(bare, ctx=context, name="lee").raw_input == {"args": (), "kwargs": {"name": "lee"}}
    assert positional == "lee"


def test_missing_context_is_the_bare_tools_error(guard_of: Any, way: Any) -> None:
    """Without a workflow, a tool that needs its Context fails as the bare one does."""

    def who(ctx: Context, name: str) -> str:
        return name

    guard = guard_of("who")
    tool = guard_tool(FunctionTool.from_defaults(who), guard)
    with guard.session("user-17", tools=["who"]), pytest.raises(ValueError, match="Context is required"):
        way(tool, name="lee")


@pytest.mark.parametrize("is_error", [True, False])
def test_returned_tool_output_keeps_its_error_and_blocks(guard_of: Any, way: Any, is_error: bool) -> None:
    """A function's own ToolOutput is not flattened to text: a stated difference from the bare FunctionTool."""
    returned = ToolOutput(
        tool_name="f", blocks=[TextBlock(text="a"), ImageBlock(url="https://example.com/a.png")], is_error=is_error,
        raw_input={},
    )  # fmt: skip

    def f() -> ToolOutput:
        return returned

    guard = guard_of("f")
    with guard.session("user-17", tools=["f"]):
        output = way(guard_tool(f, guard))
    assert output.is_error is is_error
    assert output.blocks == returned.blocks
    assert output.raw_output is returned
    assert guard.audit.events[-1].outcome.value == ("failed" if is_error else "succeeded")

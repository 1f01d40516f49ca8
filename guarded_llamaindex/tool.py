"""`guard_tool`: a LlamaIndex tool behind a guard, everywhere the bare one fits."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from guarded_core.ground.errors import CannotRun, DuplicateTool, InvalidTool, ToolExecutionError
from guarded_core.ground.given import ToolKind, require
from guarded_core.guard import Guard, OnInvalid, check_handed_over
from guarded_core.pipeline.call import Call, edit_note
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.port import ToolPort, before_entering
from guarded_core.tools.spec import ToolRisk, ToolSpec
from guarded_llamaindex.arguments import Bound, Parameters, unseen_defaults
from guarded_llamaindex.code_execution import CodeExecutionRefused, UnsafeCodeExecution
from guarded_llamaindex.compat import (
    CALL_TOOL_CALLS_TWICE,
    SIGNALS,
    current_event,
    current_workflow_context,
    is_mcp_tool,
    unspanned,
)
from guarded_llamaindex.metadata import ShownMetadata
from guarded_llamaindex.outputs import (
    check_output,
    decode,
    denied,
    encode,
    failed,
    handed_back,
    is_failure,
    savable,
    views,
    with_note,
    with_raw,
)
from guarded_llamaindex.reentry import Place, lacks_memory, model_is_asked, one_call, sync_place
from guarded_llamaindex.shapes import as_tool, check_shape, without_json_form

_log = logging.getLogger(__name__)

Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]
AsyncEntry = Callable[[tuple[Any, ...], dict[str, Any]], Awaitable[Any]]

_TOOLS = ToolKind(
    framework="LlamaIndex",
    base=BaseTool,
    others={
        "langchain_core": "it is LangChain's: guarded_langchain guards it",
        "guarded_core": "plain functions go through @guard.tool, and AiTools through a ToolRegistry",
    },
    ways={
        "fetch_tools": "await guard_mcp_tools(spec, guard) guards an MCP server's tools",
        "list_tools": "await guard_mcp_tools(McpToolSpec(client), guard) guards an MCP server's tools",
        "to_tool_list": "hand over its tools: guard_tools(spec.to_tool_list(), guard)",
        "retrieve": "guarded_retriever(retriever, guard) guards what a retriever of tools finds",
        "query": "make a tool of it: QueryEngineTool.from_defaults(engine, name=..., description=...)",
        "__call__": "make a tool of it: FunctionTool.from_defaults(it, name=..., description=...)",
    },
)


def guard_tool(
    tool: BaseTool | Callable[..., Any],
    guard: Guard,
    *,
    risk: ToolRisk | str | None = None,
    context: ToolExecutionContext | None = None,
    schema: Mapping[str, Any] | None = None,
    code_execution: UnsafeCodeExecution | None = None,
) -> GuardedTool:
    """The same tool, behind `guard`; a tool that it guards already is returned as it is.

    Args:
        tool: any LlamaIndex tool, or a function to make one of.
        guard: judges, records and runs its calls.
        risk: what it can do; the policy may say so instead, and the strictest word counts.
        context: whose calls these are; by default the current session's.
        schema: the original JSON Schema of the arguments, where the tool has only a conversion of it.
        code_execution: accepts that a CodeActAgent uses the tool.

    Raises:
        InvalidTool: it cannot be guarded as it is declared, or no risk is declared.
    """
    check_handed_over(guard, tool, context)
    wanted = _wanted(tool, guard, context, risk=risk, schema=schema, code_execution=code_execution)
    if isinstance(wanted, GuardedTool):
        return wanted
    guard.check_framework("llamaindex")
    guard.admit({wanted.spec.name: lambda: wanted}, lambda one: one.port)
    return GuardedTool(wanted)


def guard_tools(
    tools: Iterable[BaseTool | Callable[..., Any]],
    guard: Guard,
    *,
    context: ToolExecutionContext | None = None,
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
    code_execution: UnsafeCodeExecution | None = None,
    on_invalid: OnInvalid = "refuse",
) -> list[Listed]:
    """All of `tools` behind `guard`, each as by `guard_tool`.

    Args:
        tools, guard, context, code_execution: as for `guard_tool`.
        schemas: original schemas by the tools' names.
        on_invalid: what becomes of a tool that cannot be guarded: "refuse" raises, with the reason for each such tool,
            and "leave_out" returns the others; it warns, and `guard.coverage()` has the tool and the reason.

    Raises:
        InvalidTool: one of them cannot be guarded as it is declared, or some have no risk: all of those are named.
        DuplicateTool: two of them share a name.
    """
    check_handed_over(guard, tools, context)
    require((Mapping, type(None)), "schemas", "JSON Schemas by the tools' names", schemas)

    def made(tool: BaseTool | Callable[..., Any]) -> _Wanted | GuardedTool:
        schema = (schemas or {}).get(_name(tool))
        return _wanted(tool, guard, context, schema=schema, code_execution=code_execution)

    makers: dict[str, Callable[[], _Wanted | GuardedTool]] = {}
    for tool in _TOOLS.listed(tools):
        name = tool.spec_name if isinstance(tool, GuardedTool) else _name(tool)
        if name in makers:
            # An agent keeps the last tool of a name, and never says so.
            raise DuplicateTool(name)
        makers[name] = partial(made, tool)
    guard.check_framework("llamaindex")
    admitted = guard.admit(makers, lambda one: one._port if isinstance(one, GuardedTool) else one.port, on_invalid)
    guarded: list[Any] = [one if isinstance(one, GuardedTool) else GuardedTool(one) for one in admitted]
    return guarded


class GuardedTool(FunctionTool):
    """A FunctionTool whose every entry goes through the guard. Made by `guard_tool`.

    `call` and `acall` return a refusal as ``ToolOutput(is_error=True)``. ``fn``, ``async_fn`` and what is built on them
    return what the tool's own function does, and raise a refusal. No attribute leads to the inner tool.
    """

    def __init__(self, wanted: _Wanted) -> None:
        inner, parameters = wanted.inner, wanted.parameters
        port = wanted.port
        self._shown = ShownMetadata.of(inner.metadata, port.shown_schema)
        super().__init__(
            fn=_function(port.call, inner, parameters),
            async_fn=_async_function(port.acall, inner, parameters),
            metadata=self._shown,
        )
        if isinstance(inner, FunctionTool) and inspect.iscoroutinefunction(inner.real_fn):
            self._real_fn = self._async_fn
        self.requires_context = parameters.context is not None
        self.ctx_param_name = parameters.context
        self._field_defaults = {}  # the inner tool fills in its own
        self._port = port
        self._code_execution = wanted.code_execution
        self.spec_name = wanted.spec.name
        self.guard = wanted.guard
        self.context = wanted.context

    @property
    def real_fn(self) -> Callable[..., Any]:
        """The function that a CodeActAgent gives to the model's code: refused, unless that was accepted."""
        if self._code_execution is None:
            raise CodeExecutionRefused(self.spec_name)
        self._code_execution.use(f"tool {self.spec_name!r}")
        return super().real_fn

    @unspanned
    def call(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """The inner tool's output; a refusal as an output that is an error. Raises what the tool itself raises."""
        return self._answer(self._port.call, args, kwargs)

    @unspanned
    def __call__(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`."""
        return self._answer(self._port.dunder_call, args, kwargs)

    @unspanned
    async def acall(self, /, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`, without blocking the event loop."""
        self._shown.refused(False)
        try:
            return await self._port.acall(args, kwargs)  # type: ignore[no-any-return]
        except ToolExecutionError as error:
            self._shown.refused(True)
            return denied(error, self.spec_name)
        except Exception as error:
            return self._raised_once(error, args, kwargs)

    def _answer(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolOutput:
        try:
            return entry(args, kwargs)  # type: ignore[no-any-return]
        except ToolExecutionError as error:
            return denied(error, self.spec_name)
        except Exception as error:
            return self._raised_once(error, args, kwargs)

    def _raised_once(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolOutput:
        """Raise the tool's own error, unless `call_tool` would then run the tool a second time."""
        if CALL_TOOL_CALLS_TWICE and len(args) == 1 and not kwargs and not isinstance(error, SIGNALS):
            return failed(error, self.spec_name, {"args": args, "kwargs": kwargs})
        raise error

    def __deepcopy__(self, memo: dict[int, Any]) -> GuardedTool:
        # As functions are: there is one guard, and one tool behind it.
        return self

    def __repr__(self) -> str:
        return f"<GuardedTool {self.spec_name!r}>"


# Agents take lists of tools of various types, and lists are invariant: a list of guarded tools is any of these.
Listed = TypeVar("Listed", GuardedTool, FunctionTool, BaseTool, BaseTool | Callable[..., Any], default=GuardedTool)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """A tool that is about to be guarded."""

    inner: BaseTool
    guard: Guard
    spec: ToolSpec
    parameters: Parameters
    context: ToolExecutionContext | None
    code_execution: UnsafeCodeExecution | None

    @cached_property
    def port(self) -> _Port:
        """What the pipeline knows of it."""
        return _port(self)


def _wanted(
    tool: BaseTool | Callable[..., Any],
    guard: Guard,
    context: ToolExecutionContext | None,
    *,
    risk: ToolRisk | str | None = None,
    schema: Mapping[str, Any] | None = None,
    code_execution: UnsafeCodeExecution | None = None,
) -> _Wanted | GuardedTool:
    if isinstance(tool, GuardedTool):
        if tool.guard is not guard or (context is not None and tool.context is not context):
            raise InvalidTool(
                f"tool {tool.spec_name!r} is guarded already, for another guard or context; wrap the bare one"
            )
        return tool
    require((Mapping, type(None)), "schema", "a JSON Schema", schema)
    require((UnsafeCodeExecution, type(None)), "code_execution", "an UnsafeCodeExecution", code_execution)
    _TOOLS.check(tool)
    inner = tool if isinstance(tool, BaseTool) else as_tool(tool)
    if schema is None and is_mcp_tool(inner):
        warnings.warn(
            f"tool {inner.metadata.name!r} has only a conversion of its MCP server's schema, without most constraints; "
            "use guard_mcp_tools, or hand the original over as schema=",
            stacklevel=3,
        )
    try:
        parameters = Parameters.of(inner, schema)
    except PydanticUserError as error:
        raise without_json_form(inner) from error
    if isinstance(inner, FunctionTool):
        check_shape(inner, parameters)
    spec = ToolSpec.of(
        name=inner.metadata.name or "",
        description=inner.metadata.description or "",
        schema=parameters.schema,
        risk=risk,
        reading=parameters.reading,
        terms=guard.policy.terms(inner.metadata.name or ""),
    )
    return _Wanted(
        inner=inner, guard=guard, spec=spec, parameters=parameters, context=context, code_execution=code_execution
    )


def _name(tool: BaseTool | Callable[..., Any]) -> str:
    return (tool.metadata.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", None)) or ""


@dataclass(slots=True, repr=False)
class _Entered:
    """One call inside the guard: its arguments, and the way of the inner tool that it took."""

    bound: Bound
    run: Callable[..., Any]
    in_step: bool = False
    lacks_memory: bool = False


class _Port(ToolPort):
    """The port of a LlamaIndex tool, and the ways in. What reaches the inner tool is in `_port`'s closures."""

    signals = SIGNALS
    wraps_errors = False

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the tool's ``call``."""
        raise NotImplementedError

    def dunder_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As calling the tool itself."""
        raise NotImplementedError

    async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As the tool's ``acall``."""
        raise NotImplementedError

    def shown_schema(self) -> dict[str, Any]:
        """The schema that a model is shown now."""
        raise NotImplementedError

    def run(self, bound: _Entered, effective: dict[str, Any]) -> Any:
        """Run the inner tool the way that this call came."""
        with before_entering():
            args, kwargs = bound.bound.shape(effective)
        return handed_back(bound.run(*args, **kwargs), bound.bound)

    async def arun(self, bound: _Entered, effective: dict[str, Any]) -> Any:
        """As `run`, awaiting."""
        with before_entering():
            args, kwargs = bound.bound.shape(effective)
        return handed_back(await bound.run(*args, **kwargs), bound.bound)

    def check_ready(self, bound: _Entered) -> None:
        """Raise CannotRun in an agent whose context was restored without its memory: its run would break afterwards."""
        if bound.lacks_memory:
            _log.error("an agent's context has no memory: set it once it is restored, before the run goes on")
            raise CannotRun(self.spec.name)

    def received(self, bound: _Entered, effective: dict[str, Any]) -> dict[str, Any]:
        """What the inner tool's function would get of them; what it fills in itself is not among them."""
        args, kwargs = bound.bound.shape(effective)
        parameters = bound.bound.parameters
        given = {**dict(zip(parameters.names, args, strict=False)), **kwargs}
        return {name: value for name, value in given.items() if name != parameters.context}

    def complete(
        self, bound: _Entered, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """The effective arguments, by the tool's own model and defaults."""
        return bound.bound.complete(arguments)

    def taken_out(self, result: Any, limit: int) -> Any:
        """The output with all that its raw output would give out later."""
        if not isinstance(result, ToolOutput):
            return super().taken_out(result, limit)
        return with_raw(result, super().taken_out(result.raw_output, limit))

    async def ataken_out(self, result: Any, limit: int) -> Any:
        """As `taken_out`, awaiting."""
        if not isinstance(result, ToolOutput):
            return await super().ataken_out(result, limit)
        return with_raw(result, await super().ataken_out(result.raw_output, limit))

    def restored(self, bound: _Entered, kept: dict[str, Any]) -> dict[str, Any]:
        """With the partial parameters, which stay out of the ledger."""
        return {**bound.bound.parameters.json_partials, **kept}

    def check_output(self, result: Any, limit: int) -> None:
        """Bound what a model reads and what an application gets."""
        check_output(result, limit)

    def reports_failure(self, result: Any) -> bool:
        """Whether the output is an error."""
        return is_failure(result)

    def seen(self, result: Any) -> tuple[Any, ...]:
        """Raw output and content."""
        return views(result)

    def handed_back(self, bound: _Entered, result: Any, ran: dict[str, Any], *, is_edited: bool) -> Any:
        """The output, with a note for the model where a person changed its call."""
        if bound.in_step:
            result = savable(result)
        if not is_edited:
            return result
        own = {name: value for name, value in ran.items() if name not in self.set_by_application}
        return with_note(result, edit_note(self.spec.name, own))

    def encode(self, result: Any) -> Any:
        """Blocks and raw output, as far as they are JSON."""
        return encode(result)

    def decode(self, stored: Any) -> Any:
        """The same output again."""
        return decode(stored)


def _port(wanted: _Wanted) -> _Port:
    """The port of `wanted`: no attribute of it leads to the inner tool."""
    inner, guard, spec, parameters = wanted.inner, wanted.guard, wanted.spec, wanted.parameters
    run, arun = _methods(inner)
    frozen = _identity(inner)
    unseen = unseen_defaults(inner, spec.schema)

    def proposed(port: _Port, bound: Bound, run: Callable[..., Any], place: Place) -> Call:
        context, no_context = guard.resolve(wanted.context, runtime=bound.context or current_workflow_context())
        return Call(
            tool=spec.name,
            port=port,
            arguments=bound.arguments,
            context=context,
            no_context=no_context,
            bound=_Entered(bound, run),
            injected=parameters.partials,
            key=place.key,
            keyless=place.keyless,
            is_lost=place.is_lost,
        )

    class Port(_Port):
        def drifted(self, bound: _Entered) -> bool:
            return _identity(inner) != frozen

        def oddities(self) -> Iterator[str]:
            if unseen:
                yield f"a default that JSON cannot say, so no rule and no person sees it: {', '.join(sorted(unseen))}"

        def asked_about(self, arguments: object) -> tuple[ToolPort, object, Any]:
            bound = parameters.bind((), arguments if isinstance(arguments, dict) else {})
            return self, bound.arguments if isinstance(arguments, dict) else arguments, _Entered(bound, run)

        def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return guard.run(proposed(self, parameters.bind(args, kwargs), run, sync_place()))

        def dunder_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return guard.run(proposed(self, parameters.bind(args, kwargs), inner, sync_place()))

        async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            bound = parameters.bind(args, kwargs)
            async with one_call() as place:
                call = proposed(self, bound, arun, place)
                call.bound.in_step = current_event() is not None
                call.bound.lacks_memory = (place.key is not None or place.is_lost) and await lacks_memory()
                return await guard.arun(call)

        def shown_schema(self) -> dict[str, Any]:
            model_is_asked()
            own = spec.shown_schema(guard.policy.terms(spec.name))
            return dict(guard.rules_in_force(wanted.context).narrow(spec.name, own))

    return Port(spec, set_by_application=frozenset(parameters.partials))


def inner_of(tool: GuardedTool) -> BaseTool:
    """The tool behind the guard, to look at what it holds; only closures lead there."""
    inner: BaseTool = inspect.getclosurevars(type(tool._port).drifted).nonlocals["inner"]
    return inner


def _methods(tool: BaseTool) -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    """How agents call the tool: sync and async; a sync-only one takes its ``input`` by position, in a worker thread."""
    if isinstance(tool, AsyncBaseTool):
        return tool.call, tool.acall

    def call(*args: Any, **kwargs: Any) -> Any:
        if not args and kwargs.keys() == {"input"}:
            return tool(kwargs["input"])
        return tool(*args, **kwargs)

    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(call, *args, **kwargs)

    return call, acall


def _identity(tool: BaseTool) -> tuple[Any, ...]:
    metadata = tool.metadata
    partials = tool.partial_params if isinstance(tool, FunctionTool) else {}
    # By identity: what the application sets may be anything, and may change inside, such as a connection.
    return metadata.name, metadata.description, metadata.fn_schema, {n: id(value) for n, value in partials.items()}


def _function(entry: Entry, inner: BaseTool, parameters: Parameters) -> Callable[..., Any]:
    def fn(*args: Any, **kwargs: Any) -> Any:
        return _raw(entry(args, kwargs))

    return _looking_like(inner, parameters, fn)


def _async_function(entry: AsyncEntry, inner: BaseTool, parameters: Parameters) -> Callable[..., Awaitable[Any]]:
    async def async_fn(*args: Any, **kwargs: Any) -> Any:
        return _raw(await entry(args, kwargs))

    return _looking_like(inner, parameters, async_fn)


def _raw(output: Any) -> Any:
    return output.raw_output if isinstance(output, ToolOutput) else output


def _looking_like(inner: BaseTool, parameters: Parameters, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the name, text and signature of the inner tool's; no ``__wrapped__``, which leads to it."""
    model = inner.real_fn if isinstance(inner, FunctionTool) else None
    name = getattr(model, "__name__", None) or inner.metadata.get_name()
    function.__name__ = function.__qualname__ = name
    function.__doc__ = getattr(model, "__doc__", None) or inner.metadata.description
    if model is not None:
        signature = inspect.signature(model)
    else:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in parameters.names])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function

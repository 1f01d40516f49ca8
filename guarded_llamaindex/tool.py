"""`guard_tool`: a LlamaIndex tool behind a guard, everywhere the bare one fits."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llama_index.core.tools import AsyncBaseTool, BaseTool, FunctionTool, ToolOutput
from pydantic.errors import PydanticUserError
from typing_extensions import TypeVar

from guarded_core.ground.errors import DuplicateTool, InvalidTool, ToolExecutionError
from guarded_core.guard import Guard
from guarded_core.pipeline.call import Call, edit_note
from guarded_core.session import ToolExecutionContext
from guarded_core.store.ledger import CallKey
from guarded_core.tools.spec import ToolRisk, ToolSpec
from guarded_llamaindex.arguments import Bound, Parameters
from guarded_llamaindex.code_execution import CodeExecutionRefused, UnsafeCodeExecution
from guarded_llamaindex.compat import CALL_TOOL_CALLS_TWICE, SIGNALS, current_workflow_context, is_mcp_tool, unspanned
from guarded_llamaindex.metadata import ShownMetadata
from guarded_llamaindex.outputs import (
    check_output,
    decode,
    denied,
    encode,
    failed,
    is_failure,
    told,
    views,
    with_note,
)
from guarded_llamaindex.reentry import one_call

Entry = Callable[[tuple[Any, ...], dict[str, Any]], Any]
AsyncEntry = Callable[[tuple[Any, ...], dict[str, Any]], Awaitable[Any]]


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
    wanted = _wanted(tool, guard, context, risk=risk, schema=schema, code_execution=code_execution)
    if isinstance(wanted, GuardedTool):
        return wanted
    guard.register(wanted.spec)
    return GuardedTool(wanted)


def guard_tools(
    tools: Iterable[BaseTool | Callable[..., Any]],
    guard: Guard,
    *,
    context: ToolExecutionContext | None = None,
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
    code_execution: UnsafeCodeExecution | None = None,
) -> list[Listed]:
    """All of `tools` behind `guard`, each as by `guard_tool`; `schemas` has original schemas by the tools' names.

    Raises:
        InvalidTool: one of them cannot be guarded as it is declared, or some have no risk: all of those are named.
        DuplicateTool: two of them share a name.
    """
    wanted = [
        _wanted(tool, guard, context, schema=(schemas or {}).get(_name(tool)), code_execution=code_execution)
        for tool in tools
    ]
    seen: set[str] = set()
    for one in wanted:
        name = one.spec_name if isinstance(one, GuardedTool) else one.spec.name
        if name in seen:
            # An agent keeps the last tool of a name, and never says so.
            raise DuplicateTool(name)
        seen.add(name)
    guard.register(*(one.spec for one in wanted if not isinstance(one, GuardedTool)))
    guarded: list[Any] = [one if isinstance(one, GuardedTool) else GuardedTool(one) for one in wanted]
    return guarded


class GuardedTool(FunctionTool):
    """A FunctionTool whose every entry goes through the guard. Made by `guard_tool`.

    `call` and `acall` return a refusal as ``ToolOutput(is_error=True)``. ``fn``, ``async_fn`` and what is built on them
    return what the tool's own function does, and raise a refusal. No attribute leads to the inner tool.
    """

    def __init__(self, wanted: _Wanted) -> None:
        inner, parameters = wanted.inner, wanted.parameters
        entries = _entries(wanted)
        self._shown = ShownMetadata.of(inner.metadata, entries.shown_schema)
        super().__init__(
            fn=_function(entries.call, inner, parameters),
            async_fn=_async_function(entries.acall, inner, parameters),
            metadata=self._shown,
        )
        if isinstance(inner, FunctionTool) and inspect.iscoroutinefunction(inner.real_fn):
            self._real_fn = self._async_fn
        self.requires_context = parameters.context is not None
        self.ctx_param_name = parameters.context
        self._field_defaults = {}  # the inner tool fills in its own
        self._entries = entries
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
    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """The inner tool's output; a refusal as an output that is an error. Raises what the tool itself raises."""
        return self._answer(self._entries.call, args, kwargs)

    @unspanned
    def __call__(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`."""
        return self._answer(self._entries.dunder_call, args, kwargs)

    @unspanned
    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """As `call`, without blocking the event loop."""
        self._shown.refused(False)
        try:
            return await self._entries.acall(args, kwargs)  # type: ignore[no-any-return]
        except ToolExecutionError as error:
            self._shown.refused(True)
            return denied(error, self.spec_name)
        except Exception as error:
            return self._told_once(error, args, kwargs)

    def _answer(self, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolOutput:
        try:
            return entry(args, kwargs)  # type: ignore[no-any-return]
        except ToolExecutionError as error:
            return denied(error, self.spec_name)
        except Exception as error:
            return self._told_once(error, args, kwargs)

    def _told_once(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToolOutput:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A tool that is about to be guarded."""

    inner: BaseTool
    guard: Guard
    spec: ToolSpec
    parameters: Parameters
    context: ToolExecutionContext | None
    code_execution: UnsafeCodeExecution | None


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
    inner = tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool)
    if schema is None and is_mcp_tool(inner):
        warnings.warn(
            f"tool {inner.metadata.name!r} has only a conversion of its MCP server's schema, without most constraints; "
            "use guard_mcp_tools, or hand the original over as schema=",
            stacklevel=3,
        )
    try:
        parameters = Parameters.of(inner, schema)
    except PydanticUserError as error:
        raise InvalidTool(f"tool {inner.metadata.name!r}: a parameter's type has no JSON form") from error
    spec = ToolSpec.of(
        name=inner.metadata.name or "",
        description=inner.metadata.description or "",
        schema=parameters.schema,
        risk=risk,
        reading=parameters.reading,
    )
    return _Wanted(
        inner=inner, guard=guard, spec=spec, parameters=parameters, context=context, code_execution=code_execution
    )


def _name(tool: BaseTool | Callable[..., Any]) -> str:
    return (tool.metadata.name if isinstance(tool, BaseTool) else getattr(tool, "__name__", None)) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entries:
    """The ways in, as functions: what they close over is reached by no attribute."""

    call: Entry
    dunder_call: Entry
    acall: AsyncEntry
    shown_schema: Callable[[], dict[str, Any]]


def _entries(wanted: _Wanted) -> _Entries:
    inner, guard, spec, parameters = wanted.inner, wanted.guard, wanted.spec, wanted.parameters
    hidden = frozenset(parameters.partials)
    frozen = _identity(inner)

    def drifted() -> bool:
        return _identity(inner) != frozen

    def edited(result: Any, ran: dict[str, Any], is_edited: bool) -> Any:
        if not is_edited:
            return result
        own = {name: value for name, value in ran.items() if name not in hidden}
        return with_note(result, edit_note(spec.name, own))

    def request(bound: Bound, function: Callable[[dict[str, Any]], Any], key: CallKey | None = None) -> Call:
        context, no_context = guard.resolve(wanted.context, runtime=bound.context or current_workflow_context())
        return Call(
            tool=spec.name,
            spec=spec,
            arguments=bound.arguments,
            context=context,
            no_context=no_context,
            function=function,
            complete=bound.complete,
            set_by_application=hidden,
            injected=parameters.partials,
            drifted=drifted,
            check_output=check_output,
            views=views,
            failed=is_failure,
            told=edited,
            key=key,
            encode=encode,
            decode=decode,
            signals=SIGNALS,
            wraps_errors=False,
        )

    def entry(run: Callable[..., Any]) -> Entry:
        def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            bound = parameters.bind(args, kwargs)

            def execute(effective: dict[str, Any]) -> Any:
                args, kwargs = bound.shape(effective)
                return told(run(*args, **kwargs), bound)

            return guard.run(request(bound, execute))

        return enter

    def async_entry(run: Callable[..., Awaitable[Any]]) -> AsyncEntry:
        async def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            bound = parameters.bind(args, kwargs)

            async def execute(effective: dict[str, Any]) -> Any:
                args, kwargs = bound.shape(effective)
                return told(await run(*args, **kwargs), bound)

            async with one_call() as key:
                return await guard.arun(request(bound, execute, key))

        return enter

    def shown_schema() -> dict[str, Any]:
        return dict(guard.rules_in_force(wanted.context).narrow(spec.name, parameters.schema))

    call, acall = _methods(inner)
    return _Entries(call=entry(call), dunder_call=entry(inner), acall=async_entry(acall), shown_schema=shown_schema)


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

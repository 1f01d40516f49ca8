"""Guarded tools: the same tools to a model and a framework, and no way around the guard."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, Tool
from langchain_core.tools import tool as as_tool
from pydantic import PrivateAttr

from guarded_core.ground.errors import DuplicateTool, GuardConfigurationError, InvalidTool
from guarded_core.ground.given import ToolKind
from guarded_core.ground.payload import MAX_DEPTH
from guarded_core.guard import Guard, OnInvalid, check_handed_over
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import ToolRisk, parse_risk
from guarded_langchain import compat
from guarded_langchain.arguments import is_json
from guarded_langchain.gate import Gate, Proposal
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.graph.identity import sent_call
from guarded_langchain.graph.siblings import announced
from guarded_langchain.runtime import asked_for, handed_over

if TYPE_CHECKING:
    _Base: TypeAlias = BaseTool
else:
    _Base = object

ToolLike: TypeAlias = BaseTool | Callable[..., Any]

_NO_CONFIG: RunnableConfig = {}

_TOOLS = ToolKind(
    framework="LangChain",
    base=BaseTool,
    others={
        "llama_index": "it is LlamaIndex's: guarded_llamaindex guards it",
        "guarded_core": "plain functions go through @guard.tool, and AiTools through a ToolRegistry",
    },
    ways={
        "get_tools": "hand over its tools: guard_tools(await client.get_tools(), guard)",
        "list_tools": "load its tools first, with langchain_mcp_adapters: guard_tools(await load_mcp_tools(it), guard)",
        "as_tool": "a Runnable becomes a tool by its as_tool()",
        "__call__": "make a tool of it: StructuredTool.from_function(it, name=..., description=...)",
    },
)


def _is_within(value: object, depth: int) -> bool:
    """Whether containers stand in each other no deeper than that."""
    level: list[Any] = [value]
    while level:
        if depth < 0:
            return False
        depth -= 1
        inside = (held.values() if isinstance(held, dict) else held for held in level)
        found = (member for members in inside for member in members if isinstance(member, dict | list | tuple))
        level = list({id(member): member for member in found}.values())  # one that is shared counts once
    return True


class _Raw:
    """Carries a call from `run` to `_run`; it is not JSON, so no model can send one."""

    __slots__ = ("given", "tool_call_id")

    def __init__(self, given: object, tool_call_id: str | None) -> None:
        self.given = given
        self.tool_call_id = tool_call_id


class GuardedTool(_Base):
    """What all guarded tools are: LangChain's own run, callbacks and error handling around a gate."""

    _gate: Gate

    # What a model is shown: the inner tool's own, as long as no rule narrows it.

    @property
    def tool_call_schema(self) -> Any:
        """The schema of a model's calls."""
        inner, shown = self._gate.inner, self._gate.narrowed_schema()
        if inner.description == self.description:
            return inner.tool_call_schema if shown is None else shown
        # A copy of a guarded tool can have a description of its own.
        own = {"description": self.description}
        return inner.model_copy(update=own).tool_call_schema if shown is None else {**shown, **own}

    @property
    def args(self) -> dict[str, Any]:
        """The properties of that schema."""
        shown = self._gate.narrowed_schema()
        return self._gate.inner.args if shown is None else dict(shown["properties"])

    def get_input_schema(self, config: RunnableConfig | None = None) -> Any:
        """The inner tool's own."""
        return self._gate.inner.get_input_schema(config)

    @property
    def _injected_args_keys(self) -> frozenset[str]:
        keys: frozenset[str] = self._gate.arguments.injected
        return keys

    def _filter_injected_args(self, tool_input: dict[str, Any]) -> dict[str, Any]:
        # For callbacks. Upstream looks at the schema's annotations again at each call.
        injected = self._gate.arguments.injected
        own = {name: value for name, value in tool_input.items() if name not in injected}
        # They are traced before they are judged; what is too deep to be judged cannot even be written out.
        return own if _is_within(own, MAX_DEPTH) else dict.fromkeys(own, "(too deep)")

    # What runs

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """As the inner tool's; its graph knows from here on that the call is under way."""
        with announced():
            return await super().ainvoke(input, config, **kwargs)

    def _to_args_and_kwargs(self, tool_input: Any, tool_call_id: str | None) -> tuple[Any, dict[str, Any]]:
        # Nothing is parsed here: `_run` gets the call as it came.
        return (_Raw(tool_input, tool_call_id),), {}

    def _run(self, *args: Any, config: RunnableConfig = _NO_CONFIG, run_manager: Any = None, **kwargs: Any) -> Any:
        return self._gate.enter(self, self._proposal(args, kwargs, config, run_manager))

    async def _arun(
        self, *args: Any, config: RunnableConfig = _NO_CONFIG, run_manager: Any = None, **kwargs: Any
    ) -> Any:
        return await self._gate.aenter(self, self._proposal(args, kwargs, config, run_manager))

    def _proposal(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], config: RunnableConfig, run_manager: Any
    ) -> Proposal:
        arguments = self._gate.arguments
        if len(args) == 1 and type(args[0]) is _Raw:
            raw, tool_call_id = args[0].given, args[0].tool_call_id
            given = arguments.split(raw, runtime=handed_over(tool_call_id))
        else:
            # Somebody calls the method itself, perhaps with a model's words for keywords: those make no config.
            given, tool_call_id = arguments.split(arguments.by_name(args, kwargs), by_field=True), None
            config = _NO_CONFIG if is_json(config) else config
            run_manager = None if is_json(run_manager) else run_manager
        own_config = arguments.config_in(given.injected)
        return Proposal(
            given=given,
            tool_call_id=tool_call_id,
            sent=sent_call(given.runtime, tool_call_id),
            asks=asked_for(tool_call_id),
            config=config if own_config is None else own_config,
            run_manager=run_manager,
        )

    # What would lead around the guard, or lose it

    def configurable_fields(self, **kwargs: Any) -> NoReturn:
        """Refused: it makes a new tool from this one's fields, without the guard."""
        raise GuardConfigurationError("a guarded tool has no configurable fields; configure the tool, then guard it")

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        # The guard is one: a copy of its budget and its trail would be another.
        return self.model_copy()

    def __reduce__(self) -> NoReturn:
        raise GuardConfigurationError("a guarded tool cannot be pickled; guard the tool in the process that runs it")


for _method in (GuardedTool._run, GuardedTool._arun):
    # Upstream reads both at each call, to find the config: annotations as text would be compiled each time.
    _method.__annotations__ = {"config": RunnableConfig}
    _method.__dict__["__signature__"] = inspect.signature(_method)


class GuardedStructuredTool(GuardedTool, StructuredTool):
    """A StructuredTool behind a guard; see `guard_tool`."""

    _gate: Gate = PrivateAttr()


class GuardedSimpleTool(GuardedTool, Tool):
    """A single-input Tool behind a guard; see `guard_tool`."""

    _gate: Gate = PrivateAttr()


class GuardedBaseTool(GuardedTool, BaseTool):
    """Any other tool behind a guard; see `guard_tool`."""

    _gate: Gate = PrivateAttr()

    @property
    def coroutine(self) -> Callable[..., Any]:
        """A guarded entry, as the other kinds have one: ToolNode reads its annotations."""
        return _aentry(self._gate, self._gate.inner._run, lambda: self)


def guard_tool(
    tool: ToolLike,
    guard: Guard,
    *,
    risk: ToolRisk | str | None = None,
    context: ToolExecutionContext | None = None,
) -> BaseTool:
    """The same tool behind `guard`: every way into it is judged, recorded and, if allowed, run.

    A denial is a ToolMessage with status "error" and the small plain record as its artifact; without a tool call id it
    is raised as ToolCallDenied. Of a tool with `return_direct`, a denial ends the agent's run as any answer of it does.

    Args:
        tool: any LangChain tool, or a function as for LangChain's own ``@tool``. One that `guard` guards already is
            returned as it is.
        guard: whose policy, trail and approvals count.
        risk: what the tool can do; the strictest of this and the policy's counts.
        context: a session to use instead of the current one.

    Raises:
        InvalidTool: it cannot be guarded as it is declared, or nobody declared its risk.
        GuardConfigurationError: another guard has it, or it was guarded with another risk or context.
    """
    check_handed_over(guard, tool, context)
    (guarded,) = _guarded([tool], guard, risk=risk, context=context)
    return guarded


def guard_tools(
    tools: Iterable[ToolLike] | BaseToolkit,
    guard: Guard,
    *,
    context: ToolExecutionContext | None = None,
    on_invalid: OnInvalid = "refuse",
) -> list[BaseTool]:
    """`guard_tool` for each of them.

    Args:
        tools, guard, context: as for `guard_tool`.
        on_invalid: what becomes of a tool that cannot be guarded: "refuse" raises, with the reason for each such tool,
            and "leave_out" returns the others; it warns, and `guard.coverage()` has the tool and the reason.

    Raises:
        DuplicateTool: two of them have one name.
        InvalidTool: as for `guard_tool`; one error names every tool without a declared risk.
    """
    check_handed_over(guard, tools, context)
    listed = tools.get_tools() if isinstance(tools, BaseToolkit) else _TOOLS.listed(tools)
    return _guarded(listed, guard, risk=None, context=context, on_invalid=on_invalid)


def _guarded(
    tools: Iterable[ToolLike],
    guard: Guard,
    *,
    risk: ToolRisk | str | None,
    context: ToolExecutionContext | None,
    on_invalid: OnInvalid = "refuse",
) -> list[BaseTool]:
    def made(tool: BaseTool | InvalidTool) -> tuple[BaseTool, Gate]:
        if isinstance(tool, InvalidTool):
            raise tool
        return tool, _gate(tool, guard, risk, context)

    found = [_found(tool) for tool in tools]
    for name, count in Counter(name for name, _ in found).items():
        if count > 1:
            raise DuplicateTool(name)
    guard.check_framework("langchain")
    makers = {name: partial(made, tool) for name, tool in found}
    admitted = guard.admit(makers, lambda pair: pair[1], on_invalid)
    return [tool if isinstance(tool, GuardedTool) else _wrap(gate) for tool, gate in admitted]


def _found(tool: Any) -> tuple[str, BaseTool | InvalidTool]:
    """A tool by its name, or why it is none."""
    try:
        known = _as_tool(tool)
    except InvalidTool as error:
        named = tool.get("name") or tool.get("type") if isinstance(tool, dict) else getattr(tool, "__name__", None)
        return str(named or type(tool).__name__), error
    return known.name, known


def _as_tool(tool: Any) -> BaseTool:
    if isinstance(tool, BaseTool):
        return tool
    if isinstance(tool, dict):
        raise InvalidTool(
            "a provider's own tool runs at the provider: GuardMiddleware can hide it, nothing can guard it"
        )
    _TOOLS.check(tool)
    try:
        return cast(BaseTool, as_tool(tool))
    except ValueError as error:  # no docstring, as a rule
        raise InvalidTool(str(error)) from error


def _gate(tool: BaseTool, guard: Guard, risk: ToolRisk | str | None, context: ToolExecutionContext | None) -> Gate:
    if not isinstance(tool, GuardedTool):
        return Gate(tool, guard, risk=risk, context=context)
    gate: Gate = tool._gate
    if gate.guard is not guard:
        raise GuardConfigurationError(f"the tool {tool.name!r} is behind another guard already")
    if (risk is not None and parse_risk(risk) is not gate.spec.risk) or (context not in (None, gate.context)):
        raise GuardConfigurationError(f"the tool {tool.name!r} was guarded with another risk or context")
    return gate


def _wrap(gate: Gate) -> BaseTool:
    inner = gate.inner
    kept = {name: getattr(inner, name) for name in BaseTool.model_fields}
    guarded: list[GuardedTool] = []
    kind: type[GuardedTool] = GuardedBaseTool
    if isinstance(inner, StructuredTool | Tool):
        kind = GuardedStructuredTool if isinstance(inner, StructuredTool) else GuardedSimpleTool
        kept["func"] = _entry(gate, inner.func, lambda: guarded[0]) if inner.func else None
        kept["coroutine"] = _aentry(gate, inner.coroutine, lambda: guarded[0]) if inner.coroutine else None
    guarded.append(kind(**kept))
    guarded[0]._gate = gate
    return guarded[0]


def _entry(gate: Gate, function: Callable[..., Any], tool: Callable[[], GuardedTool]) -> Callable[..., Any]:
    """Stands where the tool's function stood, and calls the guarded tool."""

    def entry(*args: Any, **kwargs: Any) -> Any:
        return tool()._run(*args, **kwargs)

    return _looking_like(entry, function, gate)


def _aentry(gate: Gate, function: Callable[..., Any], tool: Callable[[], GuardedTool]) -> Callable[..., Any]:
    async def entry(*args: Any, **kwargs: Any) -> Any:
        return await tool()._arun(*args, **kwargs)

    return _looking_like(entry, function, gate)


def _looking_like(entry: Callable[..., Any], function: Callable[..., Any], gate: Gate) -> Callable[..., Any]:
    """`entry` with the function's name, annotations and signature, and without ``__wrapped__``."""
    entry.__name__ = getattr(function, "__name__", gate.spec.name)
    entry.__qualname__ = getattr(function, "__qualname__", entry.__name__)
    entry.__doc__ = function.__doc__
    entry.__annotations__ = compat.resolved_hints(function)
    if (runtime := graph_compat.runtime_type()) and not gate.arguments.asks_for_runtime:
        # ToolNode then hands over its ToolRuntime: what it injected, and what the model really sent, can be told.
        entry.__annotations__[gate.arguments.runtime] = runtime
    entry.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return entry

"""The ways into a guarded call that two checkouts are compared by; loads only what the entry asked for needs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.tools import Payment, apay, arguments, house, langchain, llamaindex, passing_rules, policy
from guarded_core import (
    AiTool,
    Guard,
    InMemoryToolAuditTrail,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolParam,
    ToolRegistry,
    ToolRisk,
)

Call: TypeAlias = Callable[[], Any]  # one call; returns an awaitable where the entry is async

UNLIMITED = 10**9
KEYS = {"bench": b"benchmark-secret-of-32-bytes-long"}


class Pay(AiTool):
    name = "pay"
    description = "Pays."
    risk = ToolRisk.MUTATING
    parameters = (
        ToolParam("to", "string", "Whom."),
        ToolParam("amount", "number", "How much."),
        ToolParam("currency", "string", "Of what."),
        ToolParam("url", "string", "Where."),
        ToolParam("items", "array", "What for."),
    )

    def execute(self, payload: dict[str, Any]) -> str:
        return "paid"


def _session(guard: Guard) -> ToolExecutionContext:
    return guard.session("ann", tools=["pay"], max_calls=UNLIMITED)


def _guard_call(guard: Guard, size: str = "200 B") -> Call:
    return functools.partial(guard.call, "pay", arguments(size), context=_session(guard))


def _guard_acall() -> Call:
    guard = Guard(policy(), audit=InMemoryToolAuditTrail(1024))
    guard.tool(name="pay")(apay)  # async, so that no thread is in the way
    return functools.partial(guard.acall, "pay", arguments("200 B"), context=_session(guard))


def _registry() -> Call:
    registry = ToolRegistry()
    registry.register(Pay())
    context = ToolExecutionContext("ann", ["pay"], max_calls=UNLIMITED)
    allowed = ToolExecutionPolicy(["pay"], rules=passing_rules("pay"))
    audit = InMemoryToolAuditTrail(1024)
    return functools.partial(registry.execute, "pay", arguments("200 B"), context, allowed, audit)


def _langchain(method: str, schema: Any, size: str = "200 B") -> Call:
    from guarded_langchain import guard_tool

    guard = house()
    tool = guard_tool(langchain(schema), guard, context=_session(guard))
    return functools.partial(getattr(tool, method), arguments(size))


def _llamaindex(method: str, size: str = "200 B") -> Call:
    from guarded_llamaindex import guard_tool

    guard = house()
    tool = guard_tool(llamaindex(), guard, context=_session(guard))
    return functools.partial(getattr(tool, method), **arguments(size))


DICT = Payment.model_json_schema()
ENTRIES: dict[str, Callable[[Path], Call]] = {
    "guard.call, no rules": lambda folder: _guard_call(house(policy=policy([]))),
    "guard.call, ten rules": lambda folder: _guard_call(house()),
    "guard.acall, ten rules": lambda folder: _guard_acall(),
    "registry.execute": lambda folder: _registry(),
    "LangChain invoke, pydantic": lambda folder: _langchain("invoke", Payment),
    "LangChain invoke, dict schema": lambda folder: _langchain("invoke", DICT),
    "LangChain ainvoke, pydantic": lambda folder: _langchain("ainvoke", Payment),
    "LangChain ainvoke, dict schema": lambda folder: _langchain("ainvoke", DICT),
    "LlamaIndex call": lambda folder: _llamaindex("call"),
    "LlamaIndex acall": lambda folder: _llamaindex("acall"),
    "guard.call, 50 KB": lambda folder: _guard_call(house(), "50 KB"),
    "LangChain invoke, pydantic, 50 KB": lambda folder: _langchain("invoke", Payment, "50 KB"),
    "LangChain invoke, dict schema, 50 KB": lambda folder: _langchain("invoke", DICT, "50 KB"),
    "LlamaIndex call, 50 KB": lambda folder: _llamaindex("call", "50 KB"),
    "guard.call, durable trail": lambda folder: _guard_call(house(audit=folder / "audit.log", keys=KEYS)),
    "guard.call, SQLite store": lambda folder: _guard_call(house(store=f"sqlite:///{folder}/guard.db", audit=None)),
}
AWAITED = frozenset(name for name in ENTRIES if name.split(",")[0].split()[-1] in ("guard.acall", "ainvoke", "acall"))

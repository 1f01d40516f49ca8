"""What steers a graph, such as a Command, as a ledger keeps it: as JSON, so that a replay hands it out whole.

Nothing is pickled, and no class is looked up by a name that was stored: values are JSON, LangChain's own messages, and
LangGraph's Send and Command. Whatever else an update holds, such as an object of the application's, stays in memory:
this process hands it out again, another one says that the result is not kept.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import ToolOutputMixin

from guarded_core.ground.ids import new_id
from guarded_langchain.graph import compat

if compat.HAS_LANGGRAPH:
    from langgraph.types import Command, Send

_MESSAGES: dict[str, type[BaseMessage]] = {
    kind.__name__: kind for kind in (AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage)
}
_COMMAND = ("graph", "update", "resume", "goto")
_MAX_DEPTH = 64
_MAX_IN_MEMORY = 256

_lock = Lock()
_in_memory: OrderedDict[str, Any] = OrderedDict()


class _NotJSON(Exception):
    """It holds something that this module cannot write."""


def steers(result: Any) -> bool:
    """Whether a result is for the graph rather than a message's content: a Command, or a list of such and messages."""
    if isinstance(result, ToolOutputMixin):
        return not isinstance(result, ToolMessage)
    return isinstance(result, list) and bool(result) and all(isinstance(item, ToolOutputMixin) for item in result)


def kept(result: Any) -> dict[str, Any]:
    """A result that `steers`, as JSON."""
    try:
        return {"steers": _written(result, _MAX_DEPTH)}
    except _NotJSON:
        pass
    token = new_id()
    with _lock:
        _in_memory[token] = result
        while len(_in_memory) > _MAX_IN_MEMORY:
            _in_memory.popitem(last=False)
    return {"kept": False, "in_memory": token}


def given_out(stored: dict[str, Any]) -> Any:
    """The result that `kept` stored. Raises LookupError for one that was only in the memory of another process."""
    if "steers" in stored:
        return _read(stored["steers"])
    with _lock:
        return copy.copy(_in_memory[stored.get("in_memory", "")])


def _written(value: Any, depth: int) -> Any:
    if depth == 0:
        raise _NotJSON
    kind = type(value)
    if value is None or kind in (bool, str, float) or (kind is int and -(2**63) <= value < 2**64):
        return value
    if kind is list or kind is tuple:
        return {kind.__name__: [_written(member, depth - 1) for member in value]}
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": {key: _written(member, depth - 1) for key, member in value.items()}}
    if _MESSAGES.get(kind.__name__) is kind:
        held = {name: getattr(value, name) for name in kind.model_fields if name != "type"}
        return {"message": [kind.__name__, _written(held | (value.model_extra or {}), depth - 1)]}
    if compat.HAS_LANGGRAPH and kind is Send and getattr(value, "timeout", None) is None:
        return {"send": [value.node, _written(value.arg, depth - 1)]}
    if compat.HAS_LANGGRAPH and kind is Command:
        return {"command": {name: _written(getattr(value, name), depth - 1) for name in _COMMAND}}
    raise _NotJSON


def _read(stored: Any) -> Any:
    if not isinstance(stored, dict):
        return stored
    ((kind, held),) = stored.items()
    match kind:
        case "list":
            return [_read(member) for member in held]
        case "tuple":
            return tuple(_read(member) for member in held)
        case "dict":
            return {key: _read(member) for key, member in held.items()}
        case "message":
            return _MESSAGES[held[0]](**_read(held[1]))
        case "send":
            return Send(held[0], _read(held[1]))
        case _:
            return Command(**{name: _read(member) for name, member in held.items()})


def answered(result: Any) -> Iterator[tuple[str, Any]]:
    """The messages that answer a model's call, in whatever shape a result brings them: the call's id, and the message.

    A graph takes them as objects and as dicts, and from anywhere in what updates its state or is sent to its nodes.
    """
    pending = [result] if steers(result) or isinstance(result, ToolMessage) else []
    if isinstance(result, tuple) and len(result) == 2:
        pending = [result[0]] if isinstance(result[0], ToolOutputMixin) else []
    seen: set[int] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, str | bytes | int | float | None) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, BaseMessage):
            if isinstance(value, ToolMessage):
                yield value.tool_call_id, value
        elif isinstance(value, dict):
            if "tool_call_id" in value:
                yield str(value["tool_call_id"]), value
            pending.extend(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            pending.extend(value)
        elif compat.HAS_LANGGRAPH and isinstance(value, Send):
            pending.append(value.arg)
        else:  # a Command, or an object for the state; a dataclass may hold its fields in slots
            pending.extend(getattr(value, "__dict__", {}).values())
            pending.extend(getattr(value, field.name, None) for field in (fields(value) if is_dataclass(value) else ()))

"""Which call of a graph this is: the same one after a resume, a crash, a replay and a fork; a new one otherwise.

An id that a model gave a call is evidence, not identity: some providers have none, and their integrations repeat one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from langchain_core.messages import AIMessage, ToolCall

from guarded_core.ground.payload import PayloadLimits, PayloadRefused, PayloadTooLarge, freeze
from guarded_core.store.ledger import CallKey, digest_of
from guarded_langchain.graph.attempt import Attempt, attempt_of

_COUNTED = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=128)

NO_THREAD = (
    "its graph keeps nothing to tell it from other calls by: compile it with a checkpointer, and run it with a "
    "thread_id. It is not known again where a node is retried or a run begun again, and may then run twice"
)
NO_ID = (
    "a tool called in a node without a call's id is not known again where the node is entered again, and may then run "
    'twice: invoke it with {"type": "tool_call", "name": ..., "args": ..., "id": ...}'
)


@dataclass(frozen=True, slots=True, repr=False)
class Sent:
    """The model's message that a call came with, as far as a graph's state shows it.

    Attributes:
        calls: those of the message that have the call's id.
        message_id: of the message; None where it has none, or cannot be seen.
        index: of the first of them among the message's calls.
    """

    calls: tuple[ToolCall, ...] = ()
    message_id: str | None = None
    index: int = 0


def sent_call(runtime: Any, tool_call_id: str | None) -> Sent:
    """The calls of that id in the model's last message, as a graph's state has it; none where it cannot be seen."""
    if runtime is None or tool_call_id is None:
        return Sent()
    message = last_said(messages_of(runtime))
    return Sent() if message is None else sent_in(message, tool_call_id)


def last_said(messages: list[Any]) -> AIMessage | None:
    """The model's last message of these."""
    return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)


def sent_in(message: AIMessage, tool_call_id: str) -> Sent:
    """The calls of that id in `message`."""
    found = [(n, call) for n, call in enumerate(message.tool_calls) if call["id"] == tool_call_id]
    return Sent(tuple(call for _, call in found), message.id, found[0][0]) if found else Sent()


def messages_of(runtime: Any) -> list[Any]:
    """The messages of a graph's state; none where it cannot be seen."""
    state = getattr(runtime, "state", None)
    held = state.get("messages", ()) if isinstance(state, dict) else getattr(state, "messages", state)
    return held if isinstance(held, list) else []


@dataclass(frozen=True, slots=True)
class Identity:
    """Which call this is.

    Attributes:
        key: its durable key; None where nothing makes one durable.
        attempt: of the graph's task that it runs in; None outside of any with a thread.
        namespace: that task's place in its graph.
        inside: how often the calls that its tool makes there came so far.
        keyless: why there is no key, in a graph.
    """

    key: CallKey | None
    attempt: Attempt | None = None
    namespace: str = ""
    inside: Counter[str] = field(default_factory=Counter)
    keyless: str | None = None


_lock = Lock()
_around: ContextVar[Identity | None] = ContextVar("guarded_call_around", default=None)


def identify(runtime: Any, sent: Sent, tool: str, tool_call_id: str | None, arguments: object) -> Identity:
    """Which call this is.

    Where the graph's state shows the model's message, it is the call at its index in that message of the thread.
    Elsewhere it is known by its place in the graph, and by how many equal calls came there before in this attempt of
    the task, or in the tool of the guarded call that makes it.

    Args:
        runtime: of the graph that this code runs in; None outside.
        sent: the message that the call came with.
        tool: its name.
        tool_call_id: the id that the call came with.
        arguments: as the model sent them.
    """
    attempt = attempt_of(runtime)
    if attempt is None:
        return Identity(None, keyless=None if runtime is None else NO_THREAD)
    info = runtime.execution_info
    thread, namespace = str(info.thread_id), str(info.checkpoint_ns)
    if tool_call_id is None:
        return Identity(None, attempt, namespace, keyless=NO_ID)
    if sent.message_id and sent.calls[0]["name"] == tool:
        position = digest_of("message", thread, sent.message_id, str(sent.index))
    else:
        around = _around.get()
        outer = around if around is not None and around.namespace == namespace else None
        made_by = () if outer is None or outer.key is None else (outer.key.position, outer.key.tool_call_id)
        counter = attempt.came if outer is None else outer.inside
        equal = digest_of(tool, tool_call_id, _digest(arguments))
        with _lock:
            before = counter[equal]
            counter[equal] += 1
        position = digest_of("task", thread, namespace, *made_by, str(before))
    return Identity(CallKey(position=position, tool_call_id=tool_call_id), attempt, namespace)


@contextmanager
def inside(identity: Identity) -> Iterator[None]:
    """Run the call in this block: the calls that its tool makes are known as made by it."""
    token = _around.set(identity)
    try:
        yield
    finally:
        _around.reset(token)


def _digest(arguments: object) -> str:
    try:
        return freeze(arguments, _COUNTED).digest
    except (PayloadRefused, PayloadTooLarge):
        return ""  # such a call is refused

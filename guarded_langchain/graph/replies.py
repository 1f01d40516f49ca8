"""Replies as existing user interfaces send them, read as an answer to one question; anything else is refused.

Two families, each bare or in the lists that they come in: LangChain's human in the loop (approve, edit, reject,
respond) and Agent Inbox (accept, edit, ignore, response). What a reply names has to be what was asked about.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.ground.payload import PayloadLimits, freeze, parse

ReplyKind: TypeAlias = Literal["approve", "edit", "reject", "respond"]

REPLY_KINDS: tuple[ReplyKind, ...] = ("approve", "edit", "reject", "respond")

_MEANT: dict[object, ReplyKind] = {
    "approve": "approve",
    "accept": "approve",
    "edit": "edit",
    "reject": "reject",
    "ignore": "reject",
    "respond": "respond",
    "response": "respond",
}
_BINDING = ("request_id", "tool_call_id", "digest")
_KNOWN = {"type", "edited_action", "args", "message", *_BINDING}
_ACTION = {"name", "action", "args"}
_LIMITS = PayloadLimits(bytes=16 << 20, nodes=1 << 20)


class RefusedReply(Exception):
    """A reply that is not an answer to the question; the text says why, and quotes nothing of it."""


def several(reply: Any, count: int) -> list[Any]:
    """The decisions in a reply to a question about that many calls. Raises RefusedReply unless it has one for each."""
    if isinstance(reply, dict) and reply.keys() == {"decisions"}:
        reply = reply["decisions"]
    decisions = [reply] if isinstance(reply, dict) else reply
    if not isinstance(decisions, list):
        raise RefusedReply('it is not a list of decisions, such as {"decisions": [{"type": "approve"}]}')
    if len(decisions) != count:
        raise RefusedReply(f"it has {len(decisions)} decisions, and the question takes {count}")
    return decisions


def read(reply: Any, request: ApprovalRequest, by: str, allowed: tuple[ReplyKind, ...] = REPLY_KINDS) -> Answer:
    """The answer that `reply` is to `request`.

    Args:
        reply: what was sent: untrusted.
        request: the question.
        by: who sent it, as the application authenticated them.
        allowed: what may be decided.

    Raises:
        RefusedReply: it is not an answer, or it is one to another question.
    """
    said = _only(reply)
    for name in _BINDING:
        if name in said and said[name] != getattr(request, "id" if name == "request_id" else name):
            raise RefusedReply(f"it names another {name}")
    decision = _MEANT.get(said.get("type")) if isinstance(said.get("type"), str) else None
    if decision not in ("reject", "respond") and not said.keys() <= _KNOWN:  # one may have been meant to change it
        raise RefusedReply("it has keys that no decision has")
    if decision is None:
        raise RefusedReply("it has no known type: approve, edit, reject or respond")
    if decision not in allowed:
        raise RefusedReply(f"this question takes {', '.join(allowed)}")
    text, arguments = _parts(said, request)
    if arguments is not None:
        arguments = _uncast(arguments, request.arguments)
    if decision == "approve":
        if arguments is not None and not _is_equal(arguments, request.arguments):
            raise RefusedReply("the arguments that it repeats are not those that were shown")
        return Answer(by=by, approve=True, reason=text)
    if decision == "edit":
        if arguments is None:
            raise RefusedReply("an edit has an edited_action, with its name and all of its args")
        return Answer(by=by, approve=True, reason=text, arguments=arguments)
    if arguments is not None:
        raise RefusedReply("only an approval or an edit has arguments")
    if decision == "respond":
        if not text:
            raise RefusedReply("a response has a text, as message or args")
        return Answer(by=by, approve=False, response=text)
    return Answer(by=by, approve=False, reason=text)


def _only(reply: Any) -> dict[str, Any]:
    """The one decision in a reply."""
    if isinstance(reply, dict) and reply.keys() == {"decisions"}:
        reply = reply["decisions"]
    if isinstance(reply, list):
        if len(reply) != 1:
            raise RefusedReply(f"it has {len(reply)} decisions, and the question takes one")
        reply = reply[0]
    if not isinstance(reply, dict):
        raise RefusedReply('it is not a decision, such as {"type": "approve"}')
    return reply


def _parts(said: dict[str, Any], request: ApprovalRequest) -> tuple[str, dict[str, Any] | None]:
    """The text and the arguments in a decision, wherever its family puts them."""
    texts = [value for value in (said.get("message"), said.get("args")) if isinstance(value, str)]
    actions = [value for value in (said.get("edited_action"), said.get("args")) if isinstance(value, dict)]
    if sum(said.get(name) is not None for name in ("message", "edited_action", "args")) != len(texts) + len(actions):
        raise RefusedReply("message is a text, edited_action an object")
    if len(texts) > 1 or len(actions) > 1:
        raise RefusedReply("it says two things at once")
    if not actions:
        return next(iter(texts), "").strip(), None
    action = actions[0]
    if not action.keys() <= _ACTION or action.get("name", action.get("action")) != request.tool:
        raise RefusedReply("it is about another tool")
    if not isinstance(action.get("args"), dict):
        raise RefusedReply("args is an object: every argument with its value")
    return next(iter(texts), "").strip(), action["args"]


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return freeze(one, _LIMITS).digest == freeze(other, _LIMITS).digest
    except ValueError:
        return False


def _uncast(edited: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Edited values as they were meant: Agent Inbox sends every one of them as a text."""
    return {name: _value(value, shown.get(name)) for name, value in edited.items()}


def _value(edited: Any, shown: Any) -> Any:
    if not isinstance(edited, str) or shown is None or isinstance(shown, str):
        return edited
    try:
        return parse(edited, _LIMITS)
    except ValueError:
        return edited  # the tool's schema has the last word

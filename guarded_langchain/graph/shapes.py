"""What an interrupt shows, in the shapes of existing interfaces: LangChain's human in the loop, and Agent Inbox."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from guarded_core.approvals.card import request_text
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.display.text import in_medium, shown
from guarded_core.store.ledger import digest_of
from guarded_langchain.graph import compat
from guarded_langchain.graph.replies import ReplyKind

Question: TypeAlias = tuple[Any, str, dict[str, Any] | None]
"""The value of an interrupt, its id, and the JSON Schema of an answer where the shape has one."""


@dataclass(frozen=True, slots=True, repr=False)
class Drawn:
    """One request, as it is put before people.

    Attributes:
        request: it.
        allowed: what may be said.
        said: the application's own words about it.
    """

    request: ApprovalRequest
    allowed: Sequence[ReplyKind]
    said: str = ""

    @property
    def binding(self) -> dict[str, Any]:
        """What ties an answer to it."""
        request = self.request
        return {"request_id": request.id, "tool_call_id": request.tool_call_id, "digest": request.digest}

    def text(self, refusal: str | None) -> str:
        """The question for interfaces that draw a description as Markdown."""
        parts = [request_text(self.request, medium="markdown")]
        if self.said:
            parts.insert(0, in_medium("\n".join(map(shown, self.said.split("\n"))), "markdown"))
        if refusal is not None:
            parts.insert(0, f"The last reply was not taken: {refusal}.")
        return "\n\n".join(parts)


def question_id(request_ids: Sequence[str]) -> str:
    """Of a question about these requests: another one for any others, and the request's own for one."""
    return request_ids[0] if len(request_ids) == 1 else digest_of("asked together", *request_ids)[:32]


def asked_in(interrupt: compat.Shown) -> list[str]:
    """The requests that an interrupt showed; none where it is not a guard's, since its id is not made of them."""
    value = interrupt.value
    parts = value if isinstance(value, list) else value.get("requests", [value]) if isinstance(value, dict) else []
    held = [part.get("request_id") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    ids = [each for each in held if isinstance(each, str)]
    return ids if ids and question_id(ids) == interrupt.id else []


def hitl(drawn: Sequence[Drawn], refusal: str | None) -> Question:
    """LangChain's: one list of actions, and one of what may be said to each."""
    bindings = [each.binding for each in drawn]
    shown_id = question_id([each.request.id for each in drawn])
    value = {
        "action_requests": [_action(each, refusal) for each in drawn],
        "review_configs": [
            {"action_name": each.request.tool, "allowed_decisions": list(each.allowed)} for each in drawn
        ],
        **(bindings[0] if len(drawn) == 1 else {"question_id": shown_id, "requests": bindings}),
    }
    return value, shown_id, _schema(drawn)


def agent_inbox(drawn: Sequence[Drawn], refusal: str | None) -> Question:
    """Agent Inbox's older one: a list of cards."""
    shown_id = question_id([each.request.id for each in drawn])
    value = [
        {
            "action_request": {"action": each.request.tool, "args": deepcopy(each.request.arguments)},
            "config": {
                "allow_accept": "approve" in each.allowed,
                "allow_ignore": "reject" in each.allowed,
                "allow_edit": "edit" in each.allowed,
                "allow_respond": "respond" in each.allowed,
            },
            "description": each.text(refusal),
            **each.binding,
            **({} if len(drawn) == 1 else {"question_id": shown_id}),
        }
        for each in drawn
    ]
    return value, shown_id, None


SHAPES = {"hitl": hitl, "agent_inbox": agent_inbox}


def _action(drawn: Drawn, refusal: str | None) -> dict[str, Any]:
    """What would run; beside it what the model wrote, where that is something else."""
    request = drawn.request
    action = {"name": request.tool, "args": deepcopy(request.arguments), "description": drawn.text(refusal)}
    return action if request.written is None else action | {"written_args": deepcopy(request.written)}


def _schema(drawn: Sequence[Drawn]) -> dict[str, Any]:
    """JSON Schema of the reply: a decision for each, in order."""
    return {
        "type": "object",
        "properties": {
            "decisions": {
                "type": "array",
                "prefixItems": [{"oneOf": [_decision(kind, each) for kind in each.allowed]} for each in drawn],
                "minItems": len(drawn),
                "maxItems": len(drawn),
            }
        },
        "required": ["decisions"],
        "additionalProperties": False,
    }


def _decision(kind: ReplyKind, drawn: Drawn) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": {"const": kind}}
    required = ["type"]
    if kind == "edit":
        arguments = {"type": "object", "properties": {name: {} for name in drawn.request.arguments}}
        action = {"name": {"const": drawn.request.tool}, "args": arguments}
        properties["edited_action"] = {"type": "object", "properties": action, "required": ["name", "args"]}
        required.append("edited_action")
    else:
        properties["message"] = {"type": "string"}
        if kind == "respond":
            required.append("message")
    return {"type": "object", "properties": properties, "required": required}

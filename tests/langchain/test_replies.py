"""Replies of stock interfaces: what each of them means, and that anything else decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core import Answer, ApprovalRequest
from guarded_langchain.graph.replies import REPLY_KINDS, RefusedReply, ReplyKind, read

ARGUMENTS = {"order": 7, "note": "late", "items": [1, 2], "gift": False, "coupon": None}
REQUEST = ApprovalRequest(
    id="a" * 32,
    tool="refund",
    digest="d" * 64,
    principal="user-17",
    session_id="s",
    tool_call_id="call-1",
    created_ns=0,
    expires_ns=1,
    arguments=ARGUMENTS,
)
CHANGED = ARGUMENTS | {"order": 8}

MEANT: list[tuple[Any, Answer]] = [
    ({"type": "approve"}, Answer(by="kim", approve=True)),
    ({"type": "accept", "args": None}, Answer(by="kim", approve=True)),
    ({"type": "approve", "message": "fine"}, Answer(by="kim", approve=True, reason="fine")),
    ({"type": "accept", "args": {"action": "refund", "args": ARGUMENTS}}, Answer(by="kim", approve=True)),
    (
        {"type": "accept", "args": {"action": "refund", "args": ARGUMENTS | {"order": 7.0}}},
        Answer(by="kim", approve=True),
    ),
    (
        {"type": "accept", "args": {"action": "refund", "args": ARGUMENTS | {"order": "7", "items": "[1,2]"}}},
        Answer(by="kim", approve=True),
    ),
    (
        {"type": "edit", "edited_action": {"name": "refund", "args": CHANGED}},
        Answer(by="kim", approve=True, arguments=CHANGED),
    ),
    (
        {"type": "edit", "args": {"action": "refund", "args": CHANGED}},
        Answer(by="kim", approve=True, arguments=CHANGED),
    ),
    ({"type": "reject"}, Answer(by="kim", approve=False)),
    ({"type": "reject", "message": " too much "}, Answer(by="kim", approve=False, reason="too much")),
    ({"type": "ignore", "args": None}, Answer(by="kim", approve=False)),
    ({"type": "respond", "message": "it is paid"}, Answer(by="kim", approve=False, response="it is paid")),
    ({"type": "response", "args": "it is paid"}, Answer(by="kim", approve=False, response="it is paid")),
    (
        {"type": "approve", "request_id": "a" * 32, "tool_call_id": "call-1", "digest": "d" * 64},
        Answer(by="kim", approve=True),
    ),
]

NO_DECISION: list[tuple[Any, str]] = [
    (None, "not a decision"),
    (True, "not a decision"),
    (1, "not a decision"),
    ("approve", "not a decision"),
    ({}, "no known type"),
    ([], "0 decisions"),
    ({"decisions": []}, "0 decisions"),
    ({"decisions": {}}, "no known type"),
    ({"decisions": [{"type": "approve"}, {"type": "approve"}]}, "2 decisions"),
    ([{"type": "accept"}, {"type": "ignore"}], "2 decisions"),
    ([[{"type": "accept"}]], "not a decision"),
    ({"decisions": [{"type": "approve"}], "approve": True}, "keys that no decision has"),
    ({"approved": True}, "keys that no decision has"),
    ({"type": "APPROVE"}, "no known type"),
    ({"type": ["approve"]}, "no known type"),
    ({"type": None}, "no known type"),
    ({"type": "approve", "by": "lee"}, "keys that no decision has"),
    ({"type": "approve", "request_id": "b" * 32}, "another request_id"),
    ({"type": "reject", "tool_call_id": "call-2"}, "another tool_call_id"),
    ({"type": "approve", "digest": "e" * 64}, "another digest"),
    ({"type": "approve", "request_id": None}, "another request_id"),
    ({"type": "accept", "args": {"action": "refund", "args": CHANGED}}, "not those that were shown"),
    ({"type": "approve", "edited_action": {"name": "refund", "args": CHANGED}}, "not those that were shown"),
    ({"type": "accept", "args": {"action": "delete", "args": ARGUMENTS}}, "another tool"),
    ({"type": "accept", "args": ARGUMENTS}, "another tool"),
    ({"type": "accept", "args": {"args": ARGUMENTS}}, "another tool"),
    ({"type": "accept", "args": {"action": "refund", "args": "all"}}, "args is an object"),
    ({"type": "accept", "args": 5}, "message is a text"),
    ({"type": "edit"}, "an edit has"),
    ({"type": "edit", "args": "more"}, "an edit has"),
    ({"type": "edit", "edited_action": {"name": "delete", "args": CHANGED}}, "another tool"),
    ({"type": "edit", "edited_action": {"name": "refund"}}, "args is an object"),
    ({"type": "edit", "edited_action": [CHANGED]}, "message is a text"),
    (
        {
            "type": "edit",
            "edited_action": {"name": "refund", "args": CHANGED},
            "args": {"action": "refund", "args": ARGUMENTS},
        },
        "two things at once",
    ),
    ({"type": "reject", "args": {"action": "refund", "args": ARGUMENTS}}, "only an approval or an edit"),
    ({"type": "reject", "message": 5}, "message is a text"),
    ({"type": "respond"}, "a response has a text"),
    ({"type": "respond", "message": "  "}, "a response has a text"),
    ({"type": "respond", "message": "no", "args": "yes"}, "two things at once"),
]


@pytest.mark.parametrize("form", ["alone", "decisions", "list"])
@pytest.mark.parametrize(("reply", "meant"), MEANT)
def test_each_reply_of_stock_interfaces(reply: Any, meant: Answer, form: str) -> None:
    """A decision means the same alone, in LangChain's decisions, and in Agent Inbox's list."""
    wrapped = {"alone": reply, "decisions": {"decisions": [reply]}, "list": [reply]}[form]
    assert read(wrapped, REQUEST, "kim") == meant


@pytest.mark.parametrize(("reply", "why"), NO_DECISION)
def test_anything_else(reply: Any, why: str) -> None:
    """What is no decision, or not one of this question, is refused, with the reason."""
    with pytest.raises(RefusedReply, match=why):
        read(reply, REQUEST, "kim")


def test_nothing_of_a_reply_is_quoted() -> None:
    """A refusal names what is known, never what was sent."""
    for reply, _ in NO_DECISION:
        with pytest.raises(RefusedReply) as refused:
            read(reply, REQUEST, "kim")
        assert not any(sent in str(refused.value) for sent in ("call-2", "lee", "delete", "APPROVE", "more", "8"))


@pytest.mark.parametrize("left_out", REPLY_KINDS)
def test_a_decision_that_is_not_offered(left_out: ReplyKind) -> None:
    """An interface that sends what it was not offered has decided nothing."""
    replies: dict[ReplyKind, Any] = {
        "approve": {"type": "accept"},
        "edit": {"type": "edit", "args": {"action": "refund", "args": CHANGED}},
        "reject": {"type": "ignore"},
        "respond": {"type": "response", "args": "paid"},
    }
    offered = tuple(decision for decision in REPLY_KINDS if decision != left_out)
    with pytest.raises(RefusedReply, match=f"this question takes {', '.join(offered)}"):
        read(replies[left_out], REQUEST, "kim", offered)


def test_texts_stand_for_what_was_shown() -> None:
    """Agent Inbox sends edited values as texts: each is read as JSON where what was shown was no text."""
    sent = {"order": "9", "note": "9", "items": "[3]", "gift": "true", "coupon": "5", "more": "1"}
    answer = read({"type": "edit", "args": {"action": "refund", "args": sent}}, REQUEST, "kim")
    assert answer.arguments == {
        "order": 9,
        "note": "9",
        "items": [3],
        "gift": True,
        "coupon": "5",  # None was shown, so that nothing tells what it should be
        "more": "1",
    }


@pytest.mark.parametrize("text", ["nine", "NaN", "[1", '{"a": 1, "a": 2}', "1e999"])
def test_a_text_that_is_no_json_stays_one(text: str) -> None:
    """What cannot be read as JSON is left for the tool's schema to refuse."""
    sent = ARGUMENTS | {"order": text}
    answer = read({"type": "edit", "args": {"action": "refund", "args": sent}}, REQUEST, "kim")
    assert answer.arguments == sent

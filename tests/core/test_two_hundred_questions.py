"""Two hundred questions, one after another: each is drawn so that it is no other one, and nothing in it is markup."""

from __future__ import annotations

import random
from typing import Any

from guarded_core import Answer, ApprovalRequest, CallbackApprover, Guard, ToolExecutionPolicy
from guarded_core.approvals.card import request_text
from guarded_core.display.text import in_medium

MEDIA: Any = ("terminal", "plain", "html", "markdown", "mrkdwn")
# What hides, turns, breaks, joins or imitates, and what media take for markup.
PIECES = [*"abc19 ", "  ", "\t", "\n", "\r", "\x1b[2J", "\x00", "\u200b", "\u200d", "\u202e", "\u2066", "\ufe0f"]
PIECES += ["\u034f", "\u3164", "\u2800", "\u00a0", "\u0430", "\u0455", "e\u0301", "\u00e9", "\ufeff", "\U000e0041"]
PIECES += ["```", "![x](http://e.example/a.png)", "<img src=x>", "<b>", "&amp;", "*a*", "_b_", "<!channel>", "~~", "|"]
PIECES += [
    "\u26a0",
    "\u27e8240 blanks\u27e9",
    "\u2937 Approval wanted: look",
    "\\u200b",
    '"',
    "'",
    "\u2028",
    "paypal.com",
]


def payloads(count: int) -> list[dict[str, str]]:
    """So many different ones, the same in every run."""
    dice = random.Random(20261203)
    found: dict[str, None] = {}
    while len(found) < count:
        text = "".join(dice.choices(PIECES, k=dice.randint(1, 12)))
        found[text] = None
    return [{"note": text} for text in found]


def drawn(request: ApprovalRequest, medium: Any) -> str:
    """A question as it is drawn, without the line that names the request."""
    text = request_text(request, medium=medium, width=10_000)
    return "\n".join(row for row in text.split("\n") if not row.startswith(("  request  ", "  until    ")))


def test_two_hundred_questions(way: Any) -> None:
    """All asked, all answered, all different in every medium; no control character, no markup, no row of its own."""
    asked: list[ApprovalRequest] = []

    def approve(request: ApprovalRequest) -> Answer:
        asked.append(request)
        return Answer(by="lee", approve=True)

    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=CallbackApprover(approve))
    ran: list[str] = []

    @guard.tool()
    def pay(note: str) -> None:
        """Pay."""
        ran.append(note)

    questions = payloads(200)
    with guard.session("user-17", tools={"pay": 200}, max_calls=200):
        for arguments in questions:
            way(guard.call, guard.acall, "pay", arguments)
    assert [{"note": note} for note in ran] == [request.arguments for request in asked] == questions
    for medium in MEDIA:
        texts = [drawn(request, medium) for request in asked]
        assert len(set(texts)) == 200
        for text in texts:
            assert all(char == "\n" or char.isprintable() for char in text)
            rows = [row.lstrip(" ") for row in text.removeprefix('<pre dir="ltr">').split("\n")]
            assert [row for row in rows if row.startswith("Approval")] == ["Approval wanted: pay (financial)"]
            if medium == "html":
                assert text.count("<") == 2  # the block's own
            if medium in ("markdown", "mrkdwn"):
                assert text.count("`") == 6  # the fence's own
            if medium == "mrkdwn":
                assert "<" not in text


def test_the_fence_is_the_media_own() -> None:
    """What is in the block is the drawn text and nothing else."""
    assert in_medium("a`b", "markdown") == "```\na\\u0060b\n```"

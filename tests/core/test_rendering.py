"""The one drawing of a payload for every medium: what differs looks different, nothing in it is markup or layout."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from guarded_core import ApprovalRequest
from guarded_core.approvals.card import request_card, request_text
from guarded_core.display.html import card_html
from guarded_core.display.safe import is_safe
from guarded_core.display.text import WIDTH, in_medium, payload_text, shown, visible

MEDIA = ("terminal", "plain", "html", "markdown", "mrkdwn")
OURS = "⚠⟨⟩⤷"

# Characters that draw nothing, draw over others, move them, or stand for others; then what means something to a medium.
UNSEEN = (
    "\u00ad\u034f\u061c\u070f\u115f\u1160\u1680\u17b4\u17b5\u180b\u180e\u2000\u200b\u200d\u200e\u2028\u2029\u202e\u2060"
    "\u2061\u2066\u2800\u3000\u3164\ufe00\ufe0f\ufeff\uffa0\ufff9\ufffc\U0001d159\U0001d173\U000e0001\U000e0100\ue000"
    "\u0378\x00\x07\x08\x0b\x0c\x1b\x7f\x85\x9b\xa0"
)
MARKUP = "`*_~[]()<>!#&|\\\"'{}$@:/.-+=\n\r\t "
texts = st.text(st.sampled_from(UNSEEN + MARKUP + "aаeе1שا日e\u0301" + OURS) | st.characters(exclude_categories=["Cs"]))
payloads = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
arguments = st.dictionaries(texts, payloads, max_size=4)


def request(arguments: Any) -> ApprovalRequest:
    """A question about these arguments."""
    return ApprovalRequest(
        id="r" * 32,
        tool="pay",
        digest="d" * 64,
        principal="user-17",
        session_id="s",
        created_ns=0,
        expires_ns=1,
        arguments=arguments,
    )


def canonical(arguments: Any) -> str:
    """What makes two payloads one."""
    return json.dumps(arguments, sort_keys=True)


class Tags(HTMLParser):
    """The tags of a page, and its comments."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append(tag)

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")


@settings(max_examples=300, deadline=None)
@given(arguments, arguments, st.sampled_from(MEDIA))
@example({"a": "\u200b"}, {"a": "\\u200b"}, "terminal")
@example({"a": "x" * 3000}, {"a": "x" * 1600 + "y" + "x" * 1399}, "html")
@example({"a": "  "}, {"a": "⟨2 blanks⟩"}, "markdown")
@example({"a": "`"}, {"a": "\\u0060"}, "markdown")
@example({"a": "<"}, {"a": "&lt;"}, "mrkdwn")
@example({"a": "é"}, {"a": "e\u0301"}, "plain")
def test_what_differs_looks_different(one: Any, other: Any, medium: Any) -> None:
    """Two payloads render to one text only where they are one payload."""
    same_text = request_text(request(one), medium=medium) == request_text(request(other), medium=medium)
    assert same_text == (canonical(one) == canonical(other))


@settings(max_examples=300, deadline=None)
@given(arguments, st.integers(40, 120))
def test_no_control_and_no_layout(arguments: Any, width: int) -> None:
    """All characters drawn are safe ones and the drawing's own; no row begins with a payload's."""
    text = payload_text(arguments, width=width)
    assert all(
        is_safe(char) or char in OURS + "\n" or unicodedata.category(char) in ("Mn", "Mc", "Lo") for char in text
    )
    assert not any(
        unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp") for char in text.replace("\n", "")
    )
    for row in text.split("\n"):
        assert re.match(r'[{}]| *(["{}\[\]\d⚠-]|  ?⤷ |true|false|null)|⤷ ', row), row
    if text.isascii():
        assert all(len(row) <= width for row in text.split("\n") if not row.lstrip().startswith("⚠"))


@settings(max_examples=300, deadline=None)
@given(arguments)
@example({"a": "```\n# Approved\n![](https://evil.example/x) <b>[yes](javascript:1) <!-- "})
@example({"a": "~~~\n    \n\n* <script>", "```": "$x$ <@U1> <!channel>"})
def test_nothing_in_a_payload_is_markup(arguments: Any) -> None:
    """In Markdown it is one block of code, in HTML one preformatted text, in mrkdwn a block without Slack's signs."""
    asked, plain = request(arguments), request_text(request(arguments), medium="plain")
    tags = Tags(MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(request_text(asked, medium="markdown")))
    assert tags.found == ["pre", "code"]
    assert Tags(request_text(asked, medium="html")).found == ["pre"]
    assert html.unescape(request_text(asked, medium="html")) == f'<pre dir="ltr">{plain}</pre>'
    assert set(Tags(card_html(request_card(asked))).found) <= {
        "div",
        "style",
        "p",
        "b",
        "table",
        "tbody",
        "tr",
        "th",
        "td",
        "pre",
    }
    mrkdwn = request_text(asked, medium="mrkdwn")
    assert mrkdwn.count("```") == 2
    assert not set("<>`") & set(mrkdwn[4:-4])


@pytest.mark.parametrize("char", sorted(set(UNSEEN)))
def test_what_does_not_show_is_spelt_out_and_named(char: str) -> None:
    """A character that draws nothing stands there as an escape, and its number is named below."""
    text = payload_text({"to": f"a{char}b"})
    assert char not in text
    assert f"U+{ord(char):04X}" in text or f"U+{ord(char):04X}" in text.replace("\n  ⚠ ", " ")
    assert char not in visible(f"a{char}b")


def test_scripts_stay_readable() -> None:
    """Everyday text of many languages is drawn as it is, without a word about it."""
    said = {
        "cs": "Žluťoučký kůň",
        "de": "Grüße, Straße",
        "el": "Καλημέρα κόσμε",
        "he": "שלום עולם",
        "hi": "नमस्ते दुनिया",
        "ja": "日本語のテスト、カード！",
        "ko": "안녕하세요",
        "ru": "Привет, мир. Она и оно, а также сор",
        "th": "สวัสดีคำ",
        "zh": "你好，世界",
    }
    assert json.loads(payload_text(said)) == said


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ("p\u0430ypal", "mixes CYRILLIC and LATIN"),
        ("аррӏе.com", "U+0430 CYRILLIC SMALL LETTER A is not a"),
        ("сосо", "CYRILLIC SMALL LETTER ES is not c"),
        ("write to b\u043eb@example.com today", "U+043E CYRILLIC SMALL LETTER O is not o"),
        ("https://exámple.com/a", "unusual in an address: U+00E1"),
        ("DE89\u0415123", "U+0415 CYRILLIC CAPITAL LETTER IE is not E"),
        ("g\u0131thub", "U+0131 LATIN SMALL LETTER DOTLESS I is not i"),
        ("pay.\u03bfrg", "U+03BF GREEK SMALL LETTER OMICRON is not o"),
        ("http://xn--80ak6aa92e.com", "an encoded name (xn--)"),
        ("ex\u2010ample.com", "U+2010"),
        ("pay ОСА Ltd", "U+041E CYRILLIC CAPITAL LETTER O is not O"),
    ],
)
@pytest.mark.parametrize("place", ["value", "key", "inside"])
def test_look_alikes_are_marked(value: str, note: str, place: str) -> None:
    """Mixed scripts and letters that Unicode has as look-alikes are named, in values and keys at every depth."""
    payload: Any = {"value": {"a": value}, "key": {value: 1}, "inside": {"a": [{"b": [value]}]}}[place]
    text = re.sub(r"\n *⚠ (?!mixes|looks|unusual|an )", " ", payload_text(payload))
    assert note in text


def test_blanks_are_counted() -> None:
    """Several blanks, or one at an end, are a number; a single one between words is a blank."""
    assert payload_text({"a": " b  c d "}).splitlines()[1] == '  "a": "⟨1 blank⟩b⟨2 blanks⟩c d⟨1 blank⟩"'
    assert shown("user" + " " * 1234 + "17") == "user⟨1,234 blanks⟩17"


def test_a_long_text_is_folded_with_its_length_and_digest() -> None:
    """More than 2,000 characters are folded in the middle, which is said; nothing is folded where all is asked for."""
    long = "a" * 1500 + "b" * 1000 + "c" * 400
    text = payload_text({"body": long}, width=10_000)
    assert "a" * 1500 + "⟨1,000 characters folded⟩" + "c" * 400 + '"' in text
    assert re.search(r"⚠ folded: 2,900 characters, SHA-256 [0-9a-f]{64}$", text, re.MULTILINE)
    assert long in payload_text({"body": long}, whole=True, width=10_000)
    card = request_card(request({"body": long}))
    assert card.whole is not None
    assert "<details><summary>Nothing folded</summary>" in card_html(card)
    assert request_card(request({"body": "a"})).whole is None


def test_no_row_begins_with_what_a_payload_says() -> None:
    """A line that is too long goes on behind a sign of the drawing, so that no terminal breaks it by itself."""
    fake = "Approval wanted: lookup (destructive)"
    for filler in (" ", "-", "·", "\u3000", "\u2800", "日"):
        rows = payload_text({"memo": "invoice" + filler * 300 + fake + filler * 300}).split("\n")
        assert all(row.startswith(("{", "}", "  ")) for row in rows)
        assert max(map(len, rows)) <= WIDTH


def test_a_request_shows_blanks_and_hidden_characters_of_names_too() -> None:
    """Who asks is drawn like the payload."""
    asked = ApprovalRequest(
        id="r",
        tool="pay",
        digest="d",
        principal="eve\u200b   ",
        session_id="s",
        created_ns=0,
        expires_ns=1,
        arguments={},
    )
    assert "  for      eve\\u200b⟨3 blanks⟩\n" in request_text(asked)


def test_media() -> None:
    """Text goes into each medium by its own rules."""
    assert in_medium('<a> & `b` "c"', "terminal") == in_medium('<a> & `b` "c"', "plain") == '<a> & `b` "c"'
    assert in_medium('<a> & "c"', "html") == '<pre dir="ltr">&lt;a&gt; &amp; &quot;c&quot;</pre>'
    assert in_medium("<a> `b`", "markdown") == "```\n<a> \\u0060b\\u0060\n```"
    assert in_medium("<@U1> `b`", "mrkdwn") == "```\n&lt;@U1&gt; \\u0060b\\u0060\n```"

"""What people see: every text escaped and visible, in HTML and at terminals; the coverage matrix; the timeline."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from guarded_core import (
    Action,
    ApprovalRequest,
    AuditEvent,
    CallbackApprover,
    Decision,
    DurableToolAuditTrail,
    Guard,
    InMemoryToolAuditTrail,
    Outcome,
    PolicyViolation,
    RequestState,
    Role,
    StateStore,
    ToolExecutionError,
    ToolExecutionPolicy,
    ToolRisk,
    ToolSettings,
    Vote,
)
from guarded_core.audit.timeline import MAX_EVENTS, timeline
from guarded_core.display import payload_text
from guarded_core.display.card import MAX_ROWS, Card, Cell, Grid, plain
from guarded_core.display.html import STYLE, TONES, card_html
from guarded_core.display.safe import is_safe
from guarded_core.display.terminal import card_rich
from guarded_core.ground.shown import Shown
from guarded_core.rules.kinds import (
    DenyTool,
    DenyToolParam,
    DenyToolParamMatching,
    LimitToolParam,
    RequireApproval,
    RequireOrigin,
)

HOSTILE = "<script>alert(1)</script>[red]\u202egnp\u200b\x1b[2J&\"'"
SHOWN = r"<script>alert(1)</script>[red]\u202egnp\u200b\x1b[2J" + "&\"'"
ESCAPED = r"&lt;script&gt;alert(1)&lt;/script&gt;[red]\u202egnp\u200b\x1b[2J&amp;&quot;&#x27;"
CANARY = "canary-5f1e7b"
CARD_TAGS = {"div", "style", "p", "b", "table", "caption", "thead", "tbody", "tr", "th", "td", "pre"}


def event(**fields: Any) -> AuditEvent:
    """A denial of `pay`, with these fields."""
    given: dict[str, Any] = {"outcome": Outcome.DENIED, "time_ns": 0, "call_id": "call-1", "tool": "pay"}
    return AuditEvent(**given | fields)


def request(**fields: Any) -> ApprovalRequest:
    """A pending request for `pay`, with these fields."""
    given: dict[str, Any] = {
        "id": "request-1",
        "tool": "pay",
        "digest": "d" * 64,
        "principal": "user-17",
        "session_id": "user-17#1",
        "created_ns": 0,
        "expires_ns": 900_000_000_000,
        "risk": ToolRisk.FINANCIAL,
        "reasons": ("risk:financial",),
        "arguments": {"cents": 1000},
    }
    return ApprovalRequest(**given | fields)


def trail(*events: AuditEvent) -> InMemoryToolAuditTrail:
    """A trail in memory that holds these."""
    found = InMemoryToolAuditTrail(64)
    for one in events:
        found.append(one)
    return found


def hostile_policy() -> ToolExecutionPolicy:
    """A policy whose texts are hostile."""
    rule = LimitToolParam(tool="pay", param="cents", max=1, description=HOSTILE)
    roles = {HOSTILE: Role(tools=frozenset({"pay"}))}
    return ToolExecutionPolicy({"pay": "mutating"}, rules=[rule], roles=roles)


def hostile_guard() -> Guard:
    """A guard with a rule whose name is hostile."""
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}))
    guard.tool(pay)
    guard.rules.register(HOSTILE, lambda action, state: None)
    return guard


def pay(cents: int) -> str:
    """Pay."""
    return "paid"


# Each holds the hostile text in at least one place that is shown.
THINGS: dict[str, Any] = {
    "event": lambda: event(principal=HOSTILE, approval_reason=HOSTILE, rules=(HOSTILE,)),
    "trail": lambda: trail(event(principal=HOSTILE, on_behalf_of=(HOSTILE,), approved_by=(HOSTILE,))),
    "request": lambda: request(
        principal=HOSTILE, votes=(Vote(HOSTILE, True, HOSTILE, 0),), arguments={HOSTILE: HOSTILE}
    ),
    "decision": lambda: Decision(outcome="deny", violations=(PolicyViolation(HOSTILE, "", HOSTILE),), message=HOSTILE),
    "policy": hostile_policy,
    "guard": hostile_guard,
    "coverage": lambda: hostile_guard().coverage(),
}


def shows(char: str) -> bool:
    """Whether a character of a page may be there: a safe one, a line's end, or one of the drawing's own signs."""
    return is_safe(char) or char in "\n⚠⟨⟩⤷│┃┏┓└┘━─┳┴╇┡┩┬┼├┤✓"


class Reader(HTMLParser):
    """The tags of a page, and whether each is closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def terminal(thing: Any) -> str:
    """What a wide terminal without colours prints."""
    console = Console(width=400, color_system=None, no_color=True)
    with console.capture() as said:
        console.print(thing)
    return said.get()


@pytest.mark.parametrize("name", THINGS)
def test_hostile_text_is_only_text_in_html(name: str) -> None:
    """Markup in a text is escaped, and characters that do not show are spelled out: no tag but the card's own."""
    page = THINGS[name]()._repr_html_()
    body = page.partition("</style>")[2]
    assert ESCAPED in body
    assert all(map(shows, body))
    reader = Reader(page)
    assert reader.tags <= CARD_TAGS
    assert reader.attributes <= {"class", "dir"}


@pytest.mark.parametrize("name", THINGS)
def test_hostile_text_is_only_text_at_a_terminal(name: str) -> None:
    """Square brackets are no markup, and no control or bidirectional character reaches the terminal."""
    said = terminal(THINGS[name]())
    assert SHOWN in said
    assert all(map(shows, said))


def test_no_host_class_shows_itself_without_its_card() -> None:
    """Everything that a notebook shows goes through a card, the one place that escapes."""
    for kind in (
        ApprovalRequest,
        AuditEvent,
        Decision,
        DurableToolAuditTrail,
        Guard,
        InMemoryToolAuditTrail,
        ToolExecutionPolicy,
    ):
        assert issubclass(kind, Shown)
        assert not {"_repr_html_", "_repr_mimebundle_", "__rich__"} & vars(kind).keys()


def test_card_in_html() -> None:
    """A card is one element: a title with its badge, facts that have a value, tables that have rows, the payload."""
    card = Card(
        "Call <1>",
        Cell("denied", "bad"),
        facts=(("tool", "pay & go"), ("code", "")),
        grids=(Grid(("a", "b"), ((Cell("1"), Cell("x", "good")),), "Rows"), Grid(("c",), ())),
        payload='{"a": "<b>"}',
    )
    head, _, body = card_html(card).partition("</style>")
    assert head == f'<div class="guarded-tools"><style>\n{STYLE}'
    assert body == (
        '<p><b>Call &lt;1&gt;</b> <b class="tone bad">denied</b></p>'
        "<table><tbody><tr><th>tool</th><td>pay &amp; go</td></tr></tbody></table>"
        "<table><caption>Rows</caption><thead><tr><th>a</th><th>b</th></tr></thead>"
        '<tbody><tr><td>1</td><td><b class="tone good">x</b></td></tr></tbody></table>'
        '<pre dir="ltr">{&quot;a&quot;: &quot;&lt;b&gt;&quot;}</pre></div>'
    )


def test_card_at_a_terminal() -> None:
    """The same card, for rich: title and badge, facts, tables, payload."""
    card = Card("Call", Cell("denied", "bad"), (("tool", "pay"),), (Grid(("a",), (plain(["1"]),), "Rows"),), "{}")
    lines = [line.strip() for line in terminal(card_rich(card)).splitlines()]
    assert lines == [
        "Call  denied",
        "tool  pay",
        "Rows",
        "┏━━━┓",
        "┃ a ┃",
        "┡━━━┩",
        "│ 1 │",
        "└───┘",
        "{}",
    ]


def test_plain_table_lines_up() -> None:
    """A table in plain text has a line a row, its columns aligned and its texts visible."""
    grid = Grid(("no.", "who"), (plain(["1", "a\u202eb"]), plain(["23", ""])))
    assert grid.text() == "no.  who\n1    a\\u202eb\n23"


def test_long_tables_are_cut_and_say_so() -> None:
    """A card shows the first hundred rows of a table, and how many there are."""
    card = Card("Rules", grids=(Grid(("n",), tuple(plain([str(n)]) for n in range(250)), "All"),))
    assert len(card.grids[0].rows) == MAX_ROWS == 100
    assert card.grids[0].title == "All (the first 100 of 250)"


def test_style_stays_inside_its_card() -> None:
    """Every rule of the stylesheet is about the card's own element, and loads nothing."""
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", STYLE)
    selectors = [one.strip() for selector, _ in rules for one in selector.split(",")]
    assert len(selectors) > 10
    assert all(selector.startswith(".guarded-tools.guarded-tools") for selector in selectors)
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def luminance(colour: str) -> float:
    """WCAG's relative luminance of ``#rrggbb``."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("tone", TONES)
def test_badges_are_legible_in_light_and_dark(tone: str) -> None:
    """White text stands out from each tone (WCAG AA), and the tone from a white page and from JupyterLab's dark one."""
    assert contrast(TONES[tone], "#ffffff") >= 4.5
    assert contrast(TONES[tone], "#111111") >= 3


def test_texts_take_the_colour_of_their_host() -> None:
    """But for badges no text or ground has a colour of its own, so light and dark themes both fit."""
    rules = [rule for rule in STYLE.splitlines() if "b.tone" not in rule and "b." not in rule]
    colours = re.findall(r"(?<![\w-])(?:color|background):([^;}]+)", "".join(rules))
    assert set(colours) == {"inherit", "none"}
    assert "var(--jp-border-color2," in STYLE


def test_event() -> None:
    """An event shows each field that it has; the outcome is its badge."""
    page = event(code="policy_denied", rules=("deny_tool:pay",), count=3, principal="sub", on_behalf_of=("user-17",))
    body = page._repr_html_().partition("</style>")[2]
    assert '<b>Audit event</b> <b class="tone bad">denied</b>' in body
    assert re.findall(r"<th>(.*?)</th><td>(.*?)</td>", body) == [
        ("tool", "pay"),
        ("principal", "sub for user-17"),
        ("time", "1970-01-01 00:00:00 UTC"),
        ("code", "policy_denied"),
        ("rules", "deny_tool:pay"),
        ("counts for", "3 equal events"),
        ("call", "call-1"),
    ]


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_a_tone(outcome: Outcome) -> None:
    """No outcome is without a badge, in a trail and in a timeline."""
    one = event(outcome=outcome)
    assert f'">{outcome.value}</b>' in one._repr_html_()
    assert "<circle class=" in timeline([one]).svg


@pytest.mark.parametrize("state", RequestState)
def test_every_state_of_a_request_has_a_tone(state: RequestState) -> None:
    """No state is without a badge."""
    assert f'">{state.value}</b>' in replace(request(), state=state)._repr_html_()


def test_trail_shows_its_newest_events() -> None:
    """A trail in memory shows its last twenty, says of how many, and leaves columns out that are empty."""
    page = trail(*(event(call_id=f"call-{number}") for number in range(1, 31)))._repr_html_()
    assert "<b>Audit trail, the newest 20 of 30 events</b>" in page
    numbers = re.findall(r"<tr><td>(\d+)</td>", page)
    assert numbers == [str(number) for number in range(11, 31)]
    assert re.findall(r"<th>(.*?)</th>", page) == ["no.", "time", "outcome", "tool", "call"]


def test_empty_trail() -> None:
    """A trail without events has no table."""
    assert trail()._repr_html_().endswith("<p><b>Audit trail, 0 events</b></p></div>")


def test_durable_trail_shows_the_same(tmp_path: Path) -> None:
    """A durable trail shows its events as one in memory does."""
    with DurableToolAuditTrail.open(tmp_path / "audit.log") as durable:
        durable.append(event())
        assert durable._repr_html_() == trail(event())._repr_html_()


def test_payload_is_json_in_which_everything_shows() -> None:
    """Keys and values of a payload are JSON texts: quotes are escaped by JSON, the rest by the card; notes follow."""
    page = request(arguments={HOSTILE: [HOSTILE]})._repr_html_()
    json_text = ESCAPED.replace(r"\x1b", r"\u001b").replace("&quot;", r"\&quot;")
    note = "⚠ 3 characters spelt out: U+202E RIGHT-TO-LEFT OVERRIDE, U+200B ZERO WIDTH"
    notes = [f"  {note}", "  ⚠ SPACE, U+001B", f"    {note.removesuffix(' WIDTH')}", "    ⚠ WIDTH SPACE, U+001B"]
    key, value = f"  &quot;{json_text}&quot;: [", f"    &quot;{json_text}&quot;"
    payload = "\n".join(("{", key, *notes[:2], value, *notes[2:], "  ]", "}"))
    assert f'<pre dir="ltr">{payload}</pre>' in page


def test_payload_compared_with_an_earlier_one() -> None:
    """What is gone and what is new are marked, each beside the other; nothing else of the payload is left out."""
    earlier, now = {"cents": 5, "order": 7, "to": "Ann"}, {"cents": 9, "note": "", "order": 7, "to": "Eve"}
    assert payload_text(now, earlier).splitlines() == [
        "  {",
        '-   "cents": 5,',
        '+   "cents": 9,',
        '+   "note": "",',
        '    "order": 7,',
        '-   "to": "Ann"',
        '+   "to": "Eve"',
        "  }",
    ]


def test_long_payloads_are_not_compared() -> None:
    """Comparing costs the square of what a model may send: a payload of many lines is shown whole, as it is."""
    long = {"items": [*range(3000)]}
    assert payload_text(long, {"items": []}) == payload_text(long)


def test_request_shows_the_whole_payload() -> None:
    """Who decides sees everything: the arguments as JSON, who wants it and why, who said what."""
    shown = request(votes=(Vote("lee", True, "ticket", 0), Vote("kim", False, "", 0)), required=2)
    page = shown._repr_html_()
    assert f'<pre dir="ltr">{payload_text({"cents": 1000}).replace(chr(34), "&quot;")}</pre>' in page
    assert "<tr><th>people</th><td>1 of 2</td></tr>" in page
    assert '<td>lee</td><td><b class="tone good">yes</b></td><td>ticket</td>' in page
    assert '<td>kim</td><td><b class="tone bad">no</b></td><td></td>' in page


def test_decision_shows_rules_and_no_payload() -> None:
    """A decision names the rules and the request's reasons; what the model sent is in neither form."""
    rules = [
        RequireApproval(tool="pay", param="note", contains="canary"),
        DenyToolParam(tool="pay", param="note", contains="canary", enforce=False),
    ]
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}, rules=rules))

    @guard.tool
    def pay(note: str) -> str:
        return "paid"

    with guard.session("user-17", tools=["pay"]):
        decision = guard.decide("pay", {"note": CANARY})
    assert decision.outcome == "ask"
    for said in (decision._repr_html_(), terminal(decision)):
        assert CANARY not in said
        for name in ("risk:financial", "require_approval:pay.note", "deny_tool_param:pay.note"):
            assert name in said


def test_policy_shows_tools_rules_and_roles() -> None:
    """A policy is its tools with what they need, its rules with their settings, its roles."""
    policy = ToolExecutionPolicy(
        {"look": "read_only", "pay": ToolSettings(risk="financial", approvals=2, max_calls=3), "old": None},
        rules=[LimitToolParam(tool="pay", param="cents", max=5, enforce=False), DenyTool(tool="old")],
        roles={"support": Role(tools=frozenset({"pay", "look"}), max_calls=9)},
    )
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", policy._repr_html_())]
    assert rows[4:7] == [
        ["look", "read_only", "", ""],
        ["old", "as the tool&#x27;s code declares", "", ""],
        ["pay", "financial", "2 people", "3"],
    ]
    assert rows[8:10] == [
        ["limit_tool_param:pay.cents", '<b class="tone quiet">not enforced</b>', "max = 5"],
        ["deny_tool:old", "", ""],
    ]
    assert rows[11] == ["support", "9", "look, pay"]


# Coverage


TOOLS = ("look", "mail", "pay", "drop", "hook", "buy", "gone")


def covered_guard() -> Guard:
    """A guard with a tool for each kind of standing; `gone` is not in its allowlist."""
    policy = ToolExecutionPolicy(
        {
            "look": "read_only",
            "mail": "mutating",
            "pay": ToolSettings(risk="financial", max_calls=1),
            "drop": "destructive",
            "hook": "mutating",
            "buy": ToolSettings(risk="financial", approval="unproven"),
        },
        rules=[
            DenyTool(tool="drop"),
            LimitToolParam(tool="pay", param="cents", max=5),
            RequireApproval(tool="mail", param="to", contains="@"),
            DenyToolParamMatching(tool="hook", param="to", matches="("),
            RequireOrigin(tool="buy", param="to", otherwise="ask"),
            DenyTool(tool="look", enforce=False),
        ],
    )
    guard = Guard(policy, approver=CallbackApprover(lambda request: True, by="lee"))

    def tool(to: str = "", cents: int = 0) -> str:
        return "done"

    for name in TOOLS:
        guard.tool(name=name, risk="read_only")(tool)
    return guard


def test_coverage_is_the_policys_own_view_outside_a_session() -> None:
    """Each tool's row: hidden or denied alone; otherwise asked about, allowed, or both, and narrowed by rules."""
    coverage = covered_guard().coverage()
    assert coverage.principal is None
    assert [(tool.name, tool.standings, tool.why) for tool in coverage.tools] == [
        ("buy", {"asks", "allowed"}, ("risk:financial", "require_origin:buy.to")),
        ("drop", {"hidden"}, ("deny_tool:drop",)),
        ("gone", {"hidden"}, ("not in the allowlist",)),
        ("hook", {"denied"}, ("deny_tool_param_matching:hook.to cannot be judged",)),
        ("look", {"allowed"}, ()),
        ("mail", {"asks", "allowed"}, ("require_approval:mail.to",)),
        ("pay", {"narrowed", "asks"}, ("risk:financial", "limit_tool_param:pay.cents")),
    ]


def test_coverage_of_a_session_has_its_tools_budget_and_task() -> None:
    """A session's own set, a tool's spent budget and a narrowed task count too; rules in code narrow every tool."""
    guard = covered_guard()
    guard.rules.register("mine", lambda action, state: None)
    with guard.session("user-17", tools=["look", "pay", "mail"], narrow={"mail": {"to": ["a"]}}) as session:
        guard.call("pay", {"cents": 1})
        found = {tool.name: tool for tool in guard.coverage().tools}
        assert guard.coverage(session) == guard.coverage()
    assert found["buy"].standings == {"hidden"}
    assert found["buy"].why == ("not among the session's tools",)
    assert found["pay"].standings == {"denied"}
    assert found["pay"].why == ("the budget is spent",)
    assert found["look"].standings == {"narrowed", "allowed"}
    assert found["mail"].why == ("allow_tool_param:mail.to", "require_approval:mail.to", "mine")
    assert guard.coverage(session).standings == dict.fromkeys(TOOLS, frozenset({"hidden"}))


def test_coverage_of_a_session_that_is_over() -> None:
    """Too many denials end a session: what it is shown is denied."""
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}), max_denials=2)
    guard.tool(pay)
    with guard.session("user-17", tools=["pay"]):
        for _ in range(2):
            with pytest.raises(ToolExecutionError):
                guard.call("pay", {"cents": "x"})
        (row,) = guard.coverage().tools
    assert (row.standings, row.why) == ({"denied"}, ("the session is over: too many denials",))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (ToolSettings(risk="mutating", schema_sha256="0" * 64), "the tool is not the one that the policy pins"),
        (ToolSettings(), "no risk is declared"),
    ],
)
def test_coverage_of_a_tool_that_no_longer_fits_the_policy(settings: ToolSettings, why: str) -> None:
    """A reloaded policy can leave a tool behind that no call of can pass."""
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}))
    guard.tool(pay)
    guard.reload(ToolExecutionPolicy({"pay": settings}))
    (row,) = guard.coverage().tools
    assert (row.standings, row.why) == ({"denied"}, (why,))


@pytest.mark.parametrize(
    ("rules", "standings"),
    [
        ([], {"asks"}),
        ([RequireOrigin(tool="pay", param="cents")], {"narrowed", "asks", "allowed"}),
        ([RequireOrigin(tool="pay", param="cents", enforce=False)], {"asks"}),
        ([RequireApproval(tool="pay"), RequireOrigin(tool="pay", param="cents")], {"narrowed", "asks"}),
    ],
)
def test_coverage_of_an_approval_that_rules_can_waive(rules: list[Any], standings: set[str]) -> None:
    """Where approval is for unproven calls only, an enforced rule about origins lets some pass without a person."""
    guard = Guard(ToolExecutionPolicy({"pay": ToolSettings(risk="financial", approval="unproven")}, rules=rules))
    guard.tool(pay)
    assert guard.coverage().standings == {"pay": standings}


@pytest.mark.parametrize("name", ["drop", "gone", "hook", "look", "mail", "pay"])
def test_coverage_agrees_with_the_pipeline(name: str) -> None:
    """What no call can pass is denied when it is tried; what is allowed without a person is allowed."""
    guard = covered_guard()
    with guard.session("user-17", tools=TOOLS):
        standings = guard.coverage().standings[name]
        outcome = guard.decide(name, {"to": "a", "cents": 1}).outcome
    expected = "deny" if standings & {"hidden", "denied"} else "allow" if "allowed" in standings else "ask"
    assert outcome == expected


def test_coverage_is_drawn_as_a_matrix() -> None:
    """A column for each standing, even where no tool has it."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}))
    guard.tool(pay)
    with guard.session("user-17", tools=["pay"]):
        body = guard.coverage()._repr_html_().partition("</style>")[2]
    assert "<b>What user-17 may do</b>" in body
    head = ["tool", "risk", "hidden", "denied", "narrowed", "asks", "allowed", "why"]
    assert re.findall(r"<th>(.*?)</th>", body) == head
    mark = '<b class="tone wait">✓</b>'
    assert re.findall(r"<td>(.*?)</td>", body) == ["pay", "financial", "", "", "", mark, "", "risk:financial"]


def test_guard_shows_its_parts() -> None:
    """A guard is its policy, store and trail, whether somebody is there to be asked, and the coverage."""
    facts = dict(re.findall(r"<th>(.*?)</th><td>(.*?)</td>", covered_guard()._repr_html_()))
    assert facts | {"policy": ""} == {
        "policy": "",
        "allows": "6 tools",
        "under": "6 rules",
        "store": "MemoryStore",
        "trail": "InMemoryToolAuditTrail",
        "somebody to ask": "yes",
    }


# Timeline


def test_timeline_has_a_line_a_call() -> None:
    """Calls stand in the order they began, a dot an event; the last outcome, its code and count stand behind."""
    asked = [event(outcome=outcome, call_id="a") for outcome in (Outcome.ASKED, Outcome.AUTHORIZED, Outcome.SUCCEEDED)]
    denied = event(call_id="b", tool="drop", code="unauthorized", count=4)
    drawn = timeline([asked[0], denied, *asked[1:]])
    assert repr(drawn) == "<Timeline of 4 events>"
    picture = ElementTree.fromstring(drawn._repr_svg_())
    name = "{http://www.w3.org/2000/svg}"
    assert [text.text for text in picture.iter(f"{name}text")] == [
        "Calls, in the order of their events",
        "pay",
        "succeeded",
        "drop",
        "denied: unauthorized ×4",
    ]
    dots = [(dot.get("class"), dot.get("cy")) for dot in picture.iter(f"{name}circle")]
    assert dots == [("wait", "49"), ("info", "49"), ("good", "49"), ("bad", "79")]
    assert [line.get("y1") for line in picture.iter(f"{name}line")] == ["49"]


def test_timeline_draws_hostile_text_as_text() -> None:
    """Names are escaped, in texts, attributes and tooltips: the picture has its own elements only."""
    picture = ElementTree.fromstring(timeline([event(principal=HOSTILE)], title=HOSTILE).svg)
    tags = {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert tags == {"svg", "style", "rect", "text", "title", "circle"}
    assert picture.get("aria-label") == SHOWN
    assert SHOWN in "".join(picture.itertext())


def test_timeline_is_bounded_and_says_so() -> None:
    """Of a long trail the newest events are drawn."""
    drawn = timeline(event(call_id=f"call-{number}") for number in range(100))
    assert drawn.events == MAX_EVENTS == 60
    assert "(the newest 60 of 100 events)" in drawn.svg
    assert "call call-39" not in drawn.svg
    assert "call call-40" in drawn.svg


def test_timeline_has_a_light_and_a_dark_palette() -> None:
    """An image cannot take its host's colours: it brings its own ground, and both palettes are legible on theirs."""
    style = re.search(r"<style>(.*)</style>", timeline([]).svg)
    assert style is not None
    light, _, dark = style[1].partition("@media(prefers-color-scheme:dark)")
    for palette in (light, dark):
        ground = re.search(r"\.ground\{fill:(#\w+)", palette)
        assert ground is not None
        texts = re.findall(r"(?:text|\.end)\{(?:font:[^;]*;)?fill:(#\w+)", palette)
        assert len(texts) == 2
        assert all(contrast(text, ground[1]) >= 4.5 for text in texts)


def test_rules_in_code_are_asked_as_before() -> None:
    """Showing a guard judges nothing: a rule in code is not called."""
    called: list[str] = []

    def mine(action: Action, state: StateStore) -> None:
        called.append(action.tool)

    guard = covered_guard()
    guard.rules.register("mine", mine)
    guard._repr_html_()
    assert called == []

"""``guarded approvals``: what each command prints and does, and a person who decides while an agent waits."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from guarded_core import (
    ApprovalRejected,
    Guard,
    HumanApprovalRequired,
    QueueApprover,
    ToolExecutionPolicy,
    ToolSettings,
)
from guarded_core.approvals.grantable import Grantable
from guarded_core.approvals.request import RequestState
from guarded_core.cli.app import app

pytest.importorskip("sqlalchemy")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a store in this test's folder."""
    return f"sqlite:///{tmp_path}/guard.db"


def guarded(url: str, command: str, *arguments: str, typed: str = "") -> Result:
    """Run a command on the store, as kim."""
    env = {"GUARDED_STORE": url, "GUARDED_APPROVER": "kim", "COLUMNS": "200"}
    return CliRunner(env=env).invoke(app, ["approvals", command, *arguments], input=typed)


def asking(url: str, approver: Any = None, **settings: Any) -> Guard:
    """A guard on the store with one financial tool."""
    guard = Guard(
        ToolExecutionPolicy({"pay": ToolSettings(risk="financial", **settings)}), store=url, approver=approver
    )

    @guard.tool
    def pay(amount: int, to: str) -> str:
        """Pay."""
        return f"paid {amount}"

    return guard


@pytest.fixture
def waiting(url: str) -> Guard:
    """A guard whose store has one request waiting."""
    guard = asking(url, approvals=2)
    with guard.session("[red]user", tools=["pay"]), pytest.raises(HumanApprovalRequired):
        guard.call("pay", {"amount": 5, "to": "Ann\u202e"})
    return guard


def test_list(url: str, waiting: Guard) -> None:
    """Waiting requests are listed with a short id; nothing in them is read as markup."""
    (request,) = waiting.approvals.pending()
    result = guarded(url, "list")
    assert result.exit_code == 0
    for shown in (request.id[:8], "pay", "[red]user", "risk:financial", "0 of 2"):
        assert shown in result.output


def test_nothing_waits(url: str) -> None:
    """An empty list says so."""
    asking(url)
    assert guarded(url, "list").output == "nothing waits for approval\n"


def test_show(url: str, waiting: Guard) -> None:
    """A request is shown whole, by the first digits of its id, with every character visible."""
    (request,) = waiting.approvals.pending()
    result = guarded(url, "show", request.id[:6])
    assert request.id in result.output
    assert '"to": "Ann\\u202e"' in result.output
    assert "\u202e" not in result.output


def test_approve_shows_what_it_approves(url: str, waiting: Guard) -> None:
    """Approving shows the request first, and does nothing without a yes; then it says who is still missing."""
    (request,) = waiting.approvals.pending()
    refused = guarded(url, "approve", request.id, typed="n\n")
    assert refused.exit_code == 1
    assert '"amount": 5' in refused.output
    assert waiting.approvals.get(request.id).votes == ()
    result = guarded(url, "approve", request.id, "--reason", "ticket 7", typed="y\n")
    assert result.output.endswith("approved by kim; 1 more to approve it\n")
    assert guarded(url, "approve", request.id[:8], "--yes", "--by", "lee").output == "approved by lee\n"
    decided = waiting.approvals.get(request.id)
    assert (decided.state, decided.approvers) == (RequestState.APPROVED, ("kim", "lee"))
    assert decided.votes[0].reason == "ticket 7"


def test_approve_other_arguments(url: str, waiting: Guard) -> None:
    """Other arguments are shown beside the request, with what differs marked; what a person then approves is those."""
    (request,) = waiting.approvals.pending()
    other = '{"to": "Ann\\u202e", "amount": 3}'
    refused = guarded(url, "approve", request.id, "--arguments", other, typed="n\n")
    assert refused.exit_code == 1
    note = "  ⚠ 1 character spelt out: U+202E RIGHT-TO-LEFT OVERRIDE\n"
    shown = f'{{\n  "amount": 5,\n  "to": "Ann\\u202e"\n{note}}}\nwith these arguments instead:\n'
    assert (
        shown + '  {\n-   "amount": 5,\n+   "amount": 3,\n    "to": "Ann\\u202e"\n' + f"  {note}" + "  }\nkim, approve"
        in refused.output
    )
    assert waiting.approvals.get(request.id) == request
    result = guarded(url, "approve", request.id[:8], "--arguments", other, typed="y\n")
    assert result.output.endswith("approved by kim with other arguments; 1 more to approve it\n")
    (changed,) = waiting.approvals.pending()
    assert (changed.replaces, changed.arguments, changed.approvers) == (
        request.id,
        {"amount": 3, "to": "Ann\u202e"},
        ("kim",),
    )
    assert guarded(url, "approve", request.id, "--yes", "--by", "lee").stderr == "this request is edited already\n"
    equal = other.replace("3", "3.0")
    assert (
        guarded(url, "approve", changed.id, "--yes", "--by", "lee", "--arguments", equal).output == "approved by lee\n"
    )
    assert waiting.approvals.get(changed.id).approvers == ("kim", "lee")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{'amount': 3}", "--arguments cannot be used: it is not valid JSON text\n"),
        ("", "--arguments cannot be used: it is not valid JSON text\n"),
        ('{"amount": 3, "amount": 4}', "--arguments cannot be used: an object has the same key twice\n"),
        ('{"amount": NaN}', "--arguments cannot be used: it is not valid JSON text\n"),
        ('{"amount": 1e400}', "--arguments cannot be used: it is not valid JSON text\n"),
        ("[3]", "--arguments is a JSON object: every name with its value\n"),
    ],
)
def test_arguments_that_cannot_be_used(url: str, waiting: Guard, arguments: str, message: str) -> None:
    """What is no JSON object ends with one line, before anything is shown or decided."""
    (request,) = waiting.approvals.pending()
    result = guarded(url, "approve", request.id, "--arguments", arguments, typed="y\n")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", message)
    assert waiting.approvals.pending() == [request]


def test_deny(url: str, waiting: Guard) -> None:
    """A denial and its reason are stored."""
    (request,) = waiting.approvals.pending()
    assert guarded(url, "deny", request.id, "--reason", "too much").output == "denied by kim\n"
    decided = waiting.approvals.get(request.id)
    assert (decided.state, decided.votes[0].reason) == (RequestState.REJECTED, "too much")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("approve", "ffff", "--yes"), "no such request waits\n"),
        (("approve", "", "--yes"), "no such request waits\n"),
        (
            ("approve", "ID", "--yes", "--by", "[red]user"),
            "nobody approves their own call; another person has to decide\n",
        ),
    ],
)
def test_what_cannot_be_decided(url: str, waiting: Guard, arguments: tuple[str, ...], message: str) -> None:
    """An unknown id, or a person who may not decide, ends with one line and status 1."""
    (request,) = waiting.approvals.pending()
    result = guarded(url, *(request.id if argument == "ID" else argument for argument in arguments))
    assert (result.exit_code, result.stderr) == (1, message)


def test_a_short_id_that_fits_two(url: str, waiting: Guard) -> None:
    """An id that two requests begin with decides neither."""
    (request,) = waiting.approvals.pending()
    waiting.store.add_request(replace(request, id=request.id[:8] + "x" * 24), max_pending=16)
    assert guarded(url, "deny", request.id[:8]).stderr == "more than one request begins so\n"


def test_no_store_is_made(tmp_path: Path) -> None:
    """A URL that leads nowhere makes no new store, and is not quoted."""
    assert guarded(f"sqlite:///{tmp_path}/none.db", "list").stderr == "there is no such store\n"
    assert list(tmp_path.iterdir()) == []
    assert "s3cret" not in guarded("mysql://kim:s3cret@host/db", "list").output


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("approve", ("--yes",), "paid 5"),
        ("approve", ("--yes", "--arguments", '{"amount": 3, "to": "Ann"}'), "paid 3"),
        ("deny", ("--reason", "too much"), "too much"),
    ],
    ids=["approve", "approve other arguments", "deny"],
)
def test_a_person_decides_while_the_agent_waits(url: str, command: str, options: tuple[str, ...], said: str) -> None:
    """A call waits in one place; a person at another terminal decides it there, and it goes on or is refused."""
    guard = asking(url, QueueApprover(wait_seconds=30, poll_seconds=0.01))
    outcome: list[Any] = []

    def agent() -> None:
        with guard.session("user-17", tools=["pay"]):
            try:
                outcome.append(guard.call("pay", {"amount": 5, "to": "Ann"}))
            except ApprovalRejected as error:
                outcome.append(str(error))

    running = threading.Thread(target=agent)
    running.start()
    while not guard.approvals.pending():
        time.sleep(0.01)
    assert guarded(url, command, guard.approvals.pending()[0].id, *options).exit_code == 0
    running.join()
    assert said in outcome[0]


def test_one_request_as_json(url: str, waiting: Guard) -> None:
    """Whole, with its arguments as they are: a program escapes what it shows itself."""
    (request,) = waiting.approvals.pending()
    shown = json.loads(guarded(url, "show", request.id[:8], "--json").output)
    assert shown["arguments"] == {"amount": 5, "to": "Ann\u202e"}
    assert (shown["id"], shown["state"], shown["required"]) == (request.id, "pending", 2)
    assert shown["principal"] == "[red]user"


LIMITS = Grantable(calls=10, seconds=600, free=("to",), up_to={"amount": 500}, total={"amount": 900})


def test_a_grant_from_the_command_line_to_its_end(url: str) -> None:
    """Shown and confirmed, in force for calls within it, listed with what is used, taken back."""
    with asking(url, grant=LIMITS) as guard, guard.session("lee", tools=["pay"]):
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call("pay", {"amount": 5, "to": "Ann"})
        request_id = str(asked.value.request_id)[:8]
        shown = guarded(url, "show", request_id).output
        assert "at most 10 more calls like this one, for 600 seconds" in shown
        bounds = ("--calls", "2", "--free", "to", "--up-to", "amount=100", "--total", "amount=150.50")
        granted = guarded(url, "grant", request_id, *bounds, typed="y\n")
        assert granted.exit_code == 0, granted.output
        assert "any /to; /amount up to 100" in granted.output
        assert "0 of 2 calls; 0 of 150.50 /amount" in granted.output
        assert guard.call("pay", {"amount": 5, "to": "Ann"}) == "paid 5"
        assert guard.call("pay", {"amount": 100, "to": "Bob"}) == "paid 100"
        (grant,) = guard.approvals.grants()
        assert "1 of 2 calls; 100 of 150.50 /amount" in guarded(url, "grants").output
        (row,) = json.loads(guarded(url, "grants", "--json").output)
        assert (row["id"], row["calls"], row["used"], row["state"]) == (grant.id, 2, 1, "live")
        assert (row["up_to"], row["total"], row["spent"]) == (
            {"/amount": "100"},
            {"/amount": "150.50"},
            {"/amount": "100"},
        )
        assert (row["free"], row["arguments"], row["approved_by"]) == (["/to"], {}, ["kim"])
        ended = guarded(url, "end-grant", grant.id[:6], "--reason", "enough")
        assert (ended.exit_code, ended.output) == (0, "revoked by kim\n")
        assert guarded(url, "grants").output == "no grant is in force\n"
        assert json.loads(guarded(url, "grants", "--json").output) == []
        with pytest.raises(HumanApprovalRequired):
            guard.call("pay", {"amount": 1, "to": "Bob"})


def test_a_grant_that_two_people_agree_to(url: str) -> None:
    """The first one is told how many are missing; the second sees it before they agree."""
    with asking(url, grant=LIMITS, approvals=2) as guard, guard.session("lee", tools=["pay"]):
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call("pay", {"amount": 5, "to": "Ann"})
        granted = guarded(url, "grant", str(asked.value.request_id), "--calls", "1", "--yes")
        assert "1 more to agree" in granted.output
        (grant,) = guard.approvals.grants()
        again = guarded(url, "agree", grant.id, typed="y\n")
        assert "agreed already" in again.output
        agreed = guarded(url, "agree", grant.id, "--by", "otto", typed="y\n")
        assert "nothing: exactly these arguments" in agreed.output
        assert agreed.output.endswith("agreed by otto; it is in force\n")
        assert guard.call("pay", {"amount": 5, "to": "Ann"}) == "paid 5"


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        (["--calls", "11"], "calls is 1 to 10"),
        (["--calls", "1", "--up-to", "amount"], "--up-to is a name and a number"),
        (["--calls", "1", "--up-to", "amount=501"], "/amount may be granted up to 500"),
        (["--calls", "1", "--free", "amount"], "/amount cannot be left open; of this tool: /to"),
    ],
)
def test_what_the_policy_does_not_let_be_granted_is_said_before_anybody_is_asked(
    url: str, bounds: list[str], says: str
) -> None:
    """The request still waits."""
    with asking(url, grant=LIMITS) as guard, guard.session("lee", tools=["pay"]):
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call("pay", {"amount": 5, "to": "Ann"})
        refused = guarded(url, "grant", str(asked.value.request_id), *bounds)
        assert (refused.exit_code, says in refused.output) == (1, True), refused.output
        assert len(guard.approvals.pending()) == 1


def test_alike_questions_are_answered_together(url: str) -> None:
    """Each payload is shown; what waits for another tool, session or principal is not among them."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial", "mail": "financial"}), store=url)

    @guard.tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    @guard.tool
    def mail(text: str) -> str:
        """Mail."""
        return "sent"

    def ask(context: Any, tool: str, **arguments: Any) -> str:
        with pytest.raises(HumanApprovalRequired) as asked:
            guard.call(tool, arguments, context=context)
        return str(asked.value.request_id)

    lee, kay = guard.session("lee", tools=["pay", "mail"]), guard.session("kay", tools=["pay"])
    first, _, third = (ask(lee, "pay", amount=amount) for amount in (101, 102, 103))
    apart = {ask(lee, "mail", text="hello"), ask(kay, "pay", amount=104)}
    refused = guarded(url, "approve", first, "--alike", typed="n\n")
    assert refused.exit_code == 1
    assert len(guard.approvals.pending()) == 5
    approved = guarded(url, "approve", third, "--alike", typed="y\n")
    assert [f'"amount": {amount}' in approved.output for amount in (101, 102, 103, 104)] == [True, True, True, False]
    assert approved.output.endswith("approved by kim, 3 calls\n")
    assert {request.id for request in guard.approvals.pending()} == apart
    assert [guard.call("pay", {"amount": amount}, context=lee) for amount in (101, 102, 103)] == [
        "paid 101",
        "paid 102",
        "paid 103",
    ]
    guard.close()

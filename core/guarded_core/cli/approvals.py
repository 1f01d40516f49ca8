"""``guarded approvals``: see what agents ask for, and decide it, from another terminal than theirs."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from guarded_core.approvals.card import grant_text, request_text
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.grant import Grant
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.approvals.typed import at_prompt, read_line
from guarded_core.cli import stores
from guarded_core.cli.output import AsJson, write_json
from guarded_core.display.text import payload_text, shown, time_text
from guarded_core.ground.errors import InvalidApproval
from guarded_core.ground.payload import PayloadRefused, PayloadTooLarge, freeze, parse
from guarded_core.ground.wording import counted

if TYPE_CHECKING:
    from guarded_core.store.sql import SqlStore

_FEWEST_DIGITS = 4

app = typer.Typer(no_args_is_help=True, help="Decide the calls that agents have asked about.")

Url = Annotated[
    str,
    typer.Option("--store", help="The guard's store, such as sqlite:///guard.db.", envvar="GUARDED_STORE"),
]
Request = Annotated[
    str, typer.Argument(help="From `guarded approvals list`; its first digits, four or more, are enough.")
]
GrantId = Annotated[
    str, typer.Argument(help="From `guarded approvals grants`; its first digits, four or more, are enough.")
]
By = Annotated[str, typer.Option(help="Who you are; it is recorded.", envvar="GUARDED_APPROVER")]


@app.command("list")
def list_(store: Url, as_json: AsJson = False) -> None:
    """Show the calls that wait for a person, the oldest first."""
    with stores.opened(store) as opened:
        waiting = Approvals(opened).pending()
    if as_json:
        write_json([_row(request) for request in waiting])
        return
    if not waiting:
        typer.echo("nothing waits for approval")
        return
    table = Table("request", "tool", "for", "because", "people", "until", box=None)
    for request in waiting:
        # Text: what a request says must not be read as markup.
        cells = (
            request.id[:8],
            request.tool,
            shown(request.principal),
            ", ".join(map(shown, request.reasons)),
            f"{len(request.approvers)} of {request.required}",
            time_text(request.expires_ns),
        )
        table.add_row(*map(Text, cells))
    Console().print(table)


@app.command()
def show(
    request: Request,
    store: Url,
    whole: Annotated[bool, typer.Option("--whole", help="Fold no long text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one request: who asks, why, and exactly what would run."""
    with stores.opened(store) as opened:
        found = _found(opened, request)
    if as_json:
        write_json({**_row(found), "state": found.state, "arguments": found.arguments})
    else:
        typer.echo(request_text(found, whole=whole))


@app.command()
def approve(
    request: Request,
    store: Url,
    by: By,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    arguments: Annotated[
        str | None,
        typer.Option(help="Approve other arguments in the place of the call's: a JSON object, whole.", metavar="JSON"),
    ] = None,
    alike: Annotated[
        bool, typer.Option("--alike", help="Also the session's other calls of this tool that wait, each one shown.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not show the request and ask again.")] = False,
) -> None:
    """Approve one call, once, exactly as it is shown; or several that are alike."""
    if alike and arguments is not None:
        raise InvalidApproval("--arguments are those of one call: leave out --alike")
    with stores.opened(store) as opened:
        approvals = Approvals(opened)
        found, changed = _found(opened, request), _parsed(arguments)
        others = [other for other in approvals.alike(found.id) if other.id != found.id] if alike else []
        if not yes:
            reason = _confirmed(found, by, changed, others) or reason
        decided = approvals.decide(found.id, by=by, approve=True, reason=reason, arguments=changed)
        for other in others:
            approvals.decide(other.id, by=by, approve=True, reason=reason)
    what = "" if decided.id == found.id else " with other arguments"
    what += f", {counted(len(others) + 1, 'call')}" if others else ""
    missing = decided.required - len(decided.approvers)
    typer.echo(f"approved by {by}{what}" + (f"; {missing} more to approve it" if missing > 0 else ""))


@app.command()
def deny(
    request: Request,
    store: Url,
    by: By,
    reason: Annotated[str, typer.Option(help="Why; the model is told.")] = "",
) -> None:
    """Refuse one call."""
    with stores.opened(store) as opened:
        Approvals(opened).decide(_found(opened, request).id, by=by, approve=False, reason=reason)
    typer.echo(f"denied by {by}")


@app.command()
def grant(
    request: Request,
    store: Url,
    by: By,
    calls: Annotated[int, typer.Option(help="How many more calls, this one not counted.")],
    seconds: Annotated[int | None, typer.Option(help="For how long; as long as the policy lets by default.")] = None,
    free: Annotated[list[str] | None, typer.Option(help="An argument that may be anything; more than once.")] = None,
    up_to: Annotated[
        list[str] | None, typer.Option(help="The highest amount of one call; more than once.", metavar="NAME=NUMBER")
    ] = None,
    total: Annotated[
        list[str] | None, typer.Option(help="The highest sum of all calls; more than once.", metavar="NAME=NUMBER")
    ] = None,
    every_session: Annotated[bool, typer.Option("--every-session", help="In all sessions of this principal.")] = False,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not show the request and ask again.")] = False,
) -> None:
    """Approve one call, and grant more like it: within these bounds, counted, until they are over or revoked."""
    with stores.opened(store) as opened:
        found = _found(opened, request)
        bounds: dict[str, Any] = {
            "calls": calls,
            "seconds": seconds,
            "free": tuple(free or ()),
            "up_to": _amounts(up_to, "--up-to"),
            "total": _amounts(total, "--total"),
            "every_session": every_session,
        }
        proposed = Grant.of(found, now_ns=opened.now_ns(), **bounds)  # what cannot be granted is not asked about
        if not yes:
            typer.echo(f"{grant_text(proposed)}\n")
            reason = _confirmed(found, by, None) or reason
        granted = Approvals(opened).grant(found.id, by=by, reason=reason, **bounds)
    missing = granted.required - len(granted.votes)
    typer.echo(
        f"granted by {by}: {granted.id}" + (f"; {missing} more to agree: guarded approvals agree" if missing else "")
    )


@app.command()
def grants(store: Url, as_json: AsJson = False) -> None:
    """Show the grants that are in force, or wait for more people, the oldest first."""
    with stores.opened(store) as opened:
        found = Approvals(opened).grants()
    if as_json:
        write_json([_grant_row(granted) for granted in found])
        return
    if not found:
        typer.echo("no grant is in force")
    for granted in found:
        typer.echo(grant_text(granted))


@app.command()
def agree(
    grant: GrantId, store: Url, by: By, reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = ""
) -> None:
    """Agree to a grant that waits for more people, exactly as it is shown."""
    with stores.opened(store) as opened:
        found = _found_grant(opened, grant)
        typer.echo(grant_text(found))
        typer.confirm(f"{by}, agree to this grant?", abort=True)
        agreed = Approvals(opened).agree(found.id, by=by, reason=reason)
    missing = agreed.required - len(agreed.votes)
    typer.echo(f"agreed by {by}" + (f"; {missing} more to agree" if missing else "; it is in force"))


@app.command("end-grant")
def end_grant(
    grant: GrantId, store: Url, by: By, reason: Annotated[str, typer.Option(help="Why; it is recorded.")] = ""
) -> None:
    """Take a grant back, at once."""
    with stores.opened(store) as opened:
        Approvals(opened).end_grant(_found_grant(opened, grant).id, by=by, reason=reason)
    typer.echo(f"revoked by {by}")


def _amounts(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Amounts by name, as typed."""
    amounts = {}
    for pair in pairs or ():
        name, separator, amount = pair.rpartition("=")
        if not separator or not name:
            raise InvalidApproval(f"{option} is a name and a number: {option} amount=500")
        amounts[name] = amount
    return amounts


def _found_grant(store: SqlStore, grant_id: str) -> Grant:
    """The grant of that id, or the one whose id begins so."""
    exact = store.grant(grant_id)
    if exact is not None:
        return exact
    known = Approvals(store).grants() if len(grant_id) >= _FEWEST_DIGITS else []
    matching = [granted for granted in known if granted.id.startswith(grant_id)]
    if len(matching) != 1:
        raise InvalidApproval("more than one grant begins so" if matching else "no such grant is in force")
    return matching[0]


def _row(request: ApprovalRequest) -> dict[str, Any]:
    """What the list shows of a request, whole: its arguments are for `show`."""
    return {
        "id": request.id,
        "tool": request.tool,
        "principal": request.principal,
        "reasons": list(request.reasons),
        "approved_by": list(request.approvers),
        "required": request.required,
        "expires_ns": request.expires_ns,
    }


def _grant_row(granted: Grant) -> dict[str, Any]:
    """A grant, whole; amounts as text, to the last digit."""
    return {
        "id": granted.id,
        "state": granted.state,
        "tool": granted.tool,
        "principal": granted.principal,
        "on_behalf_of": list(granted.on_behalf_of),
        "session_id": granted.session_id,
        "arguments": granted.arguments,
        "free": list(granted.free),
        "up_to": {name: str(limit) for name, limit in granted.up_to.items()},
        "total": {name: str(limit) for name, limit in granted.total.items()},
        "spent": {name: str(sum_) for name, sum_ in granted.spent.items()},
        "calls": granted.calls,
        "used": granted.used,
        "approved_by": list(granted.approvers),
        "required": granted.required,
        "expires_ns": granted.expires_ns,
    }


def _confirmed(
    request: ApprovalRequest, by: str, changed: dict[str, Any] | None, others: list[ApprovalRequest] | None = None
) -> str:
    """Show it and ask again, at a terminal for what is typed since then; the reason. Without a yes it aborts."""

    def show(whole: bool) -> None:
        for other in others or ():
            typer.echo(f"{request_text(other, whole=whole)}\n")
        typer.echo(request_text(request, whole=whole))
        if changed is not None:
            drawn = payload_text(changed, request.arguments, whole=whole)
            typer.echo(f"with these arguments instead:\n{drawn}")

    if not sys.stdin.isatty():  # the command names the request
        show(False)
        what = f"these {len(others) + 1} calls" if others else "this call"
        typer.confirm(f"{by}, approve {what}?", abort=True)
        return ""
    answer = at_prompt(request, by, show, partial(read_line, sys.stdin, sys.stdout))
    if answer is None or not answer.approve:
        raise typer.Abort
    return answer.reason


def _found(store: SqlStore, request_id: str) -> ApprovalRequest:
    """The request of that id, or the one pending request whose id begins so."""
    exact = store.request(request_id)
    if exact is not None:
        return exact
    waiting = Approvals(store).pending() if len(request_id) >= _FEWEST_DIGITS else []
    matching = [request for request in waiting if request.id.startswith(request_id)]
    if len(matching) != 1:
        raise InvalidApproval("more than one request begins so" if matching else "no such request waits")
    return matching[0]


def _parsed(arguments: str | None) -> dict[str, Any] | None:
    """The arguments as typed, which are not to be shown before they are known to be an object."""
    if arguments is None:
        return None
    try:
        value = freeze(parse(arguments)).value
    except (PayloadRefused, PayloadTooLarge) as error:
        raise InvalidApproval(f"--arguments cannot be used: {error}") from None
    if type(value) is not dict:
        raise InvalidApproval("--arguments is a JSON object: every name with its value")
    return value

"""``guarded audit``: verify, read and mend an audit trail."""

from __future__ import annotations

import csv
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from guarded_core.audit.card import events_grid
from guarded_core.audit.chain import Head
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.scan import Progress as Report
from guarded_core.audit.trail import Filter
from guarded_core.cli.output import AsJson, write_json
from guarded_core.cli.trails import is_store, mended, opened
from guarded_core.display.terminal import grid_rich
from guarded_core.ground.errors import ToolAuditTrailError

app = typer.Typer(no_args_is_help=True, help="Verify, read and mend an audit trail.")

_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Format(StrEnum):
    """What `export` writes."""

    JSONL = "jsonl"
    CSV = "csv"


class FinalOutcome(StrEnum):
    """What a person can find out about a call."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


def parse_since(text: str) -> int:
    """Nanoseconds since the epoch of an ISO 8601 date or time (UTC where it names no zone), or of ``12h``, ``7d`` ago.

    Raises:
        typer.BadParameter: it is neither.
    """
    if ago := _AGO.fullmatch(text):
        moment = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise typer.BadParameter("take 2026-01-31, 2026-01-31T12:00 or, for a time ago, 90m, 12h, 7d") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000


Place = Annotated[
    str, typer.Argument(help="The trail's file, or the URL of a store, such as sqlite:///guard.db.", show_default=False)
]
Keys = Annotated[
    Path | None,
    typer.Option(
        help="File of the trail's keys: lines 'id = hex', the current one first.", envvar="GUARDED_AUDIT_KEYS"
    ),
]
First = Annotated[
    int, typer.Option("--first-segment", min=1, help="Begin here, where earlier ones are archived; of a store: writer.")
]
Principal = Annotated[str | None, typer.Option(help="Only events of this principal.")]
Tool = Annotated[str | None, typer.Option(help="Only events of this tool.")]
Outcomes = Annotated[list[Outcome] | None, typer.Option(help="Only events of this outcome; may be repeated.")]
Since = Annotated[
    int | None,
    typer.Option(parser=parse_since, metavar="TIME", help="Only events since then: 2026-01-31, 2026-01-31T12:00, 12h."),
]
By = Annotated[str, typer.Option(help="Who you are; it is recorded.")]


@app.command()
def verify(
    trail: Place,
    keys: Keys = None,
    first_segment: First = 1,
    anchor: Annotated[
        Path | None, typer.Option(help="File of a head kept elsewhere; the trail must contain it.")
    ] = None,
    save_head: Annotated[Path | None, typer.Option(help="Write the trail's head there, to be an anchor later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check that nothing in the trail was changed, removed, moved or cut."""
    with opened(trail, keys, first_segment) as found, _progress("verifying") as report:
        verified = found.verify(_heads(anchor) if anchor else (), progress=report)
    if save_head is not None:
        save_head.write_text("".join(f"{head}\n" for head in verified.heads))
    if as_json:
        write_json({"found": list(verified.lines), "heads": [str(head) for head in verified.heads]})
        return
    for line in verified.lines:
        typer.echo(line)
    for head in verified.heads if save_head is None else ():
        typer.echo(f"head: {head}")


@app.command()
def show(
    trail: Place,
    keys: Keys = None,
    first_segment: First = 1,
    principal: Principal = None,
    tool: Tool = None,
    outcome: Outcomes = None,
    since: Since = None,
    last: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show events as a table, the newest last."""
    wanted = Filter(principal=principal, tool=tool, outcome=outcome, since_ns=since or 0, last=last)
    newest: deque[tuple[int, AuditEvent]] = deque(maxlen=last)
    try:
        with opened(trail, keys, first_segment) as found, _progress("reading") as report:
            newest.extend(found.numbered(wanted, progress=report))
    except typer.Exit:
        if newest:  # verified, before the fault
            _print(newest, as_json)
        raise
    _print(newest, as_json)


@app.command()
def export(
    trail: Place,
    keys: Keys = None,
    first_segment: First = 1,
    principal: Principal = None,
    tool: Tool = None,
    outcome: Outcomes = None,
    since: Since = None,
    format: Annotated[Format, typer.Option(help="JSON lines are exact; CSV is for spreadsheets.")] = Format.JSONL,
    output: Annotated[Path | None, typer.Option(help="A new file; without, standard output.")] = None,
) -> None:
    """Write events as JSON lines or CSV, the oldest first."""
    wanted = Filter(principal=principal, tool=tool, outcome=outcome, since_ns=since or 0)
    write = _write_csv if format is Format.CSV else _write_jsonl
    if output is None:
        with opened(trail, keys, first_segment) as found:
            write(found.numbered(wanted), sys.stdout)
        return
    try:
        # Never over a file that exists: it could be the trail.
        file = output.open("x", encoding="utf-8", newline="")
    except OSError as error:
        raise typer.BadParameter(f"cannot be made: {error.strerror}", param_hint="--output") from None
    with file, opened(trail, keys, first_segment) as found, _progress("exporting") as report:
        write(found.numbered(wanted, progress=report), file)


@app.command()
def unsettled(trail: Place, keys: Keys = None, first_segment: First = 1, as_json: AsJson = False) -> None:
    """Show the calls that were authorized and have no outcome: running now, or left by a crash."""
    with opened(trail, keys, first_segment) as found, _progress("reading") as report:
        events = found.unsettled(progress=report)
    _print(enumerate(events, 1), as_json)


CallId = Annotated[str, typer.Argument(help="From `guarded audit unsettled`, or of a call that ended as unknown.")]
Final = Annotated[FinalOutcome, typer.Option("--outcome", help="What became of it.")]
Reason = Annotated[str, typer.Option(help="How you know; it is recorded.")]


@app.command()
def reconcile(
    trail: Place,
    call_id: CallId,
    outcome: Final,
    by: By,
    reason: Reason,
    keys: Keys = None,
    first_segment: First = 1,
) -> None:
    """Record what became of a call whose outcome is not known, such as one that a crash left; in a ledger too."""
    with opened(trail, keys, first_segment) as found:
        event = found.reconcile(call_id, Outcome(outcome), by=by, reason=reason)
    typer.echo(f"reconciled: {event.tool} {outcome}")


@app.command(hidden=True)
def settle(
    trail: Place,
    call_id: CallId,
    outcome: Final,
    by: By,
    reason: Reason,
    keys: Keys = None,
    first_segment: First = 1,
) -> None:
    """Old name of `reconcile`, until 0.2."""
    typer.echo("guarded audit settle is guarded audit reconcile now", err=True)
    reconcile(trail, call_id, outcome, by, reason, keys, first_segment)


@app.command()
def repair(trail: Place, by: By, keys: Keys = None) -> None:
    """Mend a trail whose writer died in the middle of a line: the torn bytes are kept aside, the repair is recorded."""
    if is_store(trail):
        raise typer.BadParameter("a database mends itself: only a file can be torn")
    done = mended(trail, keys, by=by)
    if done is None:
        typer.echo("nothing to repair")
    else:
        typer.echo(f"repaired: {done.size:,} bytes kept in {done.kept}")


def _heads(path: Path) -> list[Head]:
    try:
        with path.open(encoding="utf-8") as file:
            return [Head.parse(line) for line in file.read(1 << 20).splitlines() if line.strip()]
    except (OSError, ValueError):
        raise ToolAuditTrailError("head_invalid", "the anchor's file cannot be read") from None


@contextmanager
def _progress(what: str) -> Iterator[Report]:
    """A bar for trails that take a while, on the error output, and gone afterwards."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print(records: Iterable[tuple[int, AuditEvent]], as_json: bool) -> None:
    records = list(records)
    if as_json:
        write_json([_numbered(number, event) for number, event in records])
        return
    console = Console()
    if not records:
        typer.echo("no events")
    elif not console.is_terminal:
        typer.echo(events_grid(records).text())
    else:
        console.print(grid_rich(events_grid(records)))


def _write_jsonl(records: Iterable[tuple[int, AuditEvent]], file: TextIO) -> None:
    for number, event in records:
        file.write(orjson.dumps(_numbered(number, event)).decode() + "\n")


def _numbered(number: int, event: AuditEvent) -> dict[str, Any]:
    return {"number": number} | event.to_json()


def _write_csv(records: Iterable[tuple[int, AuditEvent]], file: TextIO) -> None:
    names = [field.name for field in fields(AuditEvent)]
    writer = csv.writer(file)
    writer.writerow(["number", "time", *names])
    for number, event in records:
        moment = datetime.fromtimestamp(event.time_ns / 1e9, UTC).isoformat(timespec="milliseconds")
        writer.writerow([number, moment, *(_cell(getattr(event, name)) for name in names)])


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        value = "; ".join(value)
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value  # a spreadsheet would run it as a formula
    return value

"""``guarded audit``: verify, read and mend an audit trail."""

from __future__ import annotations

import csv
import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import orjson
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from guarded_core.audit import verify as reading
from guarded_core.audit.chain import AuditKeys, Head
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.files import trail_path
from guarded_core.audit.repair import repair as mend
from guarded_core.audit.walk import Progress as Report
from guarded_core.audit.walk import load_head
from guarded_core.display import views
from guarded_core.display.terminal import grid_rich
from guarded_core.errors import ToolAuditTrailError

app = typer.Typer(no_args_is_help=True, help="Verify, read and mend an audit trail.")

_AGO = re.compile(r"(\d{1,6})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Format(StrEnum):
    """What `export` writes."""

    JSONL = "jsonl"
    CSV = "csv"


class FinalOutcome(StrEnum):
    """What a call can be settled as."""

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


Trail = Annotated[Path, typer.Argument(help="The trail's file.", show_default=False)]
Keys = Annotated[
    Path | None,
    typer.Option(
        help="File of the trail's keys: lines 'id = hex', the current one first.", envvar="GUARDED_AUDIT_KEYS"
    ),
]
First = Annotated[int, typer.Option("--first-segment", min=1, help="Begin here, where earlier segments are archived.")]
Principal = Annotated[str | None, typer.Option(help="Only events of this principal.")]
Tool = Annotated[str | None, typer.Option(help="Only events of this tool.")]
Outcomes = Annotated[list[Outcome] | None, typer.Option(help="Only events of this outcome; may be repeated.")]
Since = Annotated[
    int | None,
    typer.Option(parser=parse_since, metavar="TIME", help="Only events since then: 2026-01-31, 2026-01-31T12:00, 12h."),
]
By = Annotated[str, typer.Option(help="Who you are; it is recorded.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events are wanted; None wants all."""

    principal: str | None
    tool: str | None
    outcomes: list[Outcome] | None
    since: int | None

    def wants(self, event: AuditEvent) -> bool:
        """Whether the event passes."""
        return (
            self.principal in (None, event.principal)
            and self.tool in (None, event.tool)
            and (not self.outcomes or event.outcome in self.outcomes)
            and (self.since is None or event.time_ns >= self.since)
        )


@app.command()
def verify(
    path: Trail,
    keys: Keys = None,
    first_segment: First = 1,
    anchor: Annotated[
        Path | None, typer.Option(help="File of a head kept elsewhere; the trail must contain it.")
    ] = None,
    save_head: Annotated[Path | None, typer.Option(help="Write the trail's head there, to be an anchor later.")] = None,
) -> None:
    """Check that nothing in the trail was changed, removed, moved or cut."""
    with _failures(path), _progress("verifying") as report:
        pinned = Head.parse(_read_small(anchor)) if anchor else None
        found = reading.verify(path, _keys(keys), anchor=pinned, first_segment=first_segment, progress=report)
    typer.echo(f"intact: {found.records:,} records in {found.segments:,} segment{'s' * (found.segments > 1)}")
    if not found.closed:
        typer.echo(
            f"not closed: it is being written, or its writer died; a cut behind record {found.seen:,} would not show"
        )
    if save_head is None:
        typer.echo(f"head: {found.head}")
    else:
        save_head.write_text(f"{found.head}\n")


@app.command()
def show(
    path: Trail,
    keys: Keys = None,
    first_segment: First = 1,
    principal: Principal = None,
    tool: Tool = None,
    outcome: Outcomes = None,
    since: Since = None,
    last: Annotated[int, typer.Option(min=1, help="At most this many, the newest.")] = 50,
) -> None:
    """Show events as a table, the newest last."""
    wanted = Filter(principal=principal, tool=tool, outcomes=outcome, since=since)
    newest: deque[tuple[int, AuditEvent]] = deque(maxlen=last)
    try:
        with _failures(path), _progress("reading") as report:
            newest.extend(_matching(path, keys, first_segment, wanted, report))
    except typer.Exit:
        if newest:  # verified, before the fault
            _print_table(newest)
        raise
    _print_table(newest)


@app.command()
def export(
    path: Trail,
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
    wanted = Filter(principal=principal, tool=tool, outcomes=outcome, since=since)
    write = _write_csv if format is Format.CSV else _write_jsonl
    if output is None:
        with _failures(path):
            write(_matching(path, keys, first_segment, wanted, None), sys.stdout)
        return
    try:
        # Never over a file that exists: it could be the trail.
        with output.open("x", encoding="utf-8", newline="") as file, _failures(path), _progress("exporting") as report:
            write(_matching(path, keys, first_segment, wanted, report), file)
    except OSError as error:
        raise typer.BadParameter(f"cannot be made: {error.strerror}", param_hint="--output") from None


@app.command()
def unsettled(path: Trail, keys: Keys = None, first_segment: First = 1) -> None:
    """Show the calls that were authorized and have no outcome: running now, or left by a crash."""
    with _failures(path), _progress("reading") as report:
        events = reading.unsettled(path, _keys(keys), first_segment=first_segment, progress=report)
    _print_table(enumerate(events, 1))


@app.command()
def settle(
    path: Trail,
    call_id: Annotated[str, typer.Argument(help="From `guarded audit unsettled`.")],
    outcome: Annotated[FinalOutcome, typer.Option(help="What became of it.")],
    by: By,
    reason: Annotated[str, typer.Option(help="How you know; it is recorded.")],
    keys: Keys = None,
    first_segment: First = 1,
) -> None:
    """Record the outcome of a call that a crash left without one."""
    with _failures(path), _open(path, keys) as trail:
        event = trail.settle(call_id, Outcome(outcome), by=by, reason=reason, first_segment=first_segment)
    typer.echo(f"settled: {event.tool} {event.outcome}")


@app.command()
def repair(path: Trail, by: By, keys: Keys = None) -> None:
    """Mend a trail whose writer died in the middle of a line: the torn bytes are kept aside, the repair is recorded."""
    with _failures(path):
        done = mend(path, _keys(keys), by=by)
    if done is None:
        typer.echo("nothing to repair")
    else:
        typer.echo(f"repaired: {done.size:,} bytes kept in {done.kept}")


def _keys(path: Path | None) -> AuditKeys | None:
    return AuditKeys.from_file(path) if path else None


def _open(path: Path, keys: Path | None) -> DurableToolAuditTrail:
    if load_head(trail_path(path)) is None:
        raise ToolAuditTrailError("no_trail", "there is no trail")  # opening would begin one
    return DurableToolAuditTrail.open(path, keys=_keys(keys), auto_rotate=True)


def _read_small(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(4096)
    except (OSError, ValueError):
        raise ToolAuditTrailError("head_invalid", "the anchor's file cannot be read") from None


def _matching(
    path: Path, keys: Path | None, first: int, wanted: Filter, report: Report | None
) -> Iterator[tuple[int, AuditEvent]]:
    records = reading.read(path, _keys(keys), first_segment=first, progress=report)
    return ((number, event) for number, event in records if wanted.wants(event))


@contextmanager
def _failures(path: Path) -> Iterator[None]:
    try:
        yield
    except ToolAuditTrailError as error:
        typer.echo(f"{path}: {error.code}: {error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def _progress(what: str) -> Iterator[Report]:
    """A bar for trails that take a while, on the error output, and gone afterwards."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_table(records: Iterable[tuple[int, AuditEvent]]) -> None:
    records = list(records)
    console = Console()
    if not records:
        typer.echo("no events")
    elif not console.is_terminal:
        typer.echo(views.events(records).text())
    else:
        console.print(grid_rich(views.events(records)))


def _write_jsonl(records: Iterable[tuple[int, AuditEvent]], file: TextIO) -> None:
    for number, event in records:
        file.write(orjson.dumps({"number": number} | event.to_json()).decode() + "\n")


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

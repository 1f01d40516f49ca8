"""``guarded audit``: what each command prints, writes and exits with."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from guarded_core.audit.chain import Head
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.verify import read
from guarded_core.cli.audit import app

SECRET = b"cli-secret-of-32-bytes-xxxxxxxxxx"
DAY = 86_400 * 10**9
START = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z


def event(number: int, outcome: Outcome, principal: str = "ann", tool: str = "search", **fields: Any) -> AuditEvent:
    """An event on day `number` of 2026."""
    moment = START + (number - 1) * DAY
    return AuditEvent(
        outcome=outcome, time_ns=moment, call_id=f"call-{number}", tool=tool, principal=principal, **fields
    )


EVENTS = [
    event(1, Outcome.AUTHORIZED),
    event(2, Outcome.DENIED, principal="=cmd()", code="unauthorized"),
    event(3, Outcome.AUTHORIZED, tool="refund", principal="[red]lee\x1b[0m", approved_by=("ann", "bob")),
    event(1, Outcome.SUCCEEDED),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed trail of four events in two segments, whose third has no outcome."""
    path = tmp_path / "audit.log"
    with DurableToolAuditTrail.open(path, keys={"k": SECRET}) as trail:
        for number, one in enumerate(EVENTS):
            if number == 2:
                trail.rotate()
            trail.append(one)
    (tmp_path / "keys").write_text(f"k = {SECRET.hex()}\n")
    return path


def guarded(path: Path, command: str, *arguments: object) -> Result:
    """Run a command on the trail, with its key file named by the environment."""
    keys = {"GUARDED_AUDIT_KEYS": str(path.with_name("keys"))}
    return CliRunner(env=keys).invoke(app, [command, str(path), *map(str, arguments)])


def exported(path: Path, *arguments: object) -> list[int]:
    """The numbers of the records that an export with these filters has."""
    result = guarded(path, "export", *arguments)
    assert result.exit_code == 0
    return [orjson.loads(line)["number"] for line in result.stdout.splitlines()]


def test_verify_says_intact_and_gives_the_head(path: Path) -> None:
    """An intact trail: how many records and segments, and a head to keep elsewhere."""
    result = guarded(path, "verify")
    assert result.exit_code == 0
    intact, head = result.stdout.splitlines()
    assert intact == "intact: 4 records in 2 segments"
    assert Head.parse(head.removeprefix("head: ")).count == 4


def test_verify_takes_an_anchor(path: Path) -> None:
    """A saved head is an anchor: the grown trail contains it, a trail made anew does not."""
    anchor = path.with_name("anchor")
    assert guarded(path, "verify", "--save-head", anchor).stdout == "intact: 4 records in 2 segments\n"
    with DurableToolAuditTrail.open(path, keys={"k": SECRET}) as trail:
        trail.append(event(4, Outcome.DENIED))
        open_trail = guarded(path, "verify", "--anchor", anchor)
        assert open_trail.exit_code == 0
        assert "not closed" in open_trail.stdout
        assert "a cut behind record 4 would not show" in open_trail.stdout
    other = path.with_name("other.log")
    DurableToolAuditTrail.open(other, keys={"k": SECRET}).close()
    result = guarded(other, "verify", "--anchor", anchor)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"{other}: truncated: ")
    assert guarded(path, "verify", "--anchor", path.with_name("nowhere")).stderr.startswith(f"{path}: head_invalid: ")


def test_what_it_found_as_json(path: Path) -> None:
    """Verify, show and unsettled: the same, for programs; an empty list where there is nothing."""
    found = orjson.loads(guarded(path, "verify", "--json").stdout)
    assert found["found"] == ["intact: 4 records in 2 segments"]
    assert [Head.parse(head).count for head in found["heads"]] == [4]
    shown = orjson.loads(guarded(path, "show", "--json", "--last", "2").stdout)
    assert [(row["number"], row["outcome"], row["principal"]) for row in shown] == [
        (3, "authorized", "[red]lee\x1b[0m"),
        (4, "succeeded", "ann"),
    ]
    assert [row["call_id"] for row in orjson.loads(guarded(path, "unsettled", "--json").stdout)] == ["call-3"]
    assert orjson.loads(guarded(path, "show", "--json", "--tool", "other").stdout) == []


def test_verify_names_what_is_wrong(path: Path) -> None:
    """A changed trail: exit code 1, and the code, the record and the file on the error output."""
    path.write_bytes(path.read_bytes().replace(b"refund", b"search"))
    result = guarded(path, "verify")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"{path}: corrupt: record 3 was changed, or does not follow record 2\n"


def test_verify_takes_keys_from_a_file_only(path: Path) -> None:
    """Without the keys, or with a file that has none, a keyed trail is refused."""
    assert CliRunner().invoke(app, ["verify", str(path)]).stderr.startswith(f"{path}: unknown_key: ")
    assert CliRunner().invoke(app, ["verify", str(path), "--keys", str(path.with_name("keys"))]).exit_code == 0
    assert (
        CliRunner().invoke(app, ["verify", str(path), "--keys", str(path)]).stderr.startswith(f"{path}: invalid_keys")
    )


def test_verify_begins_at_a_later_segment(path: Path) -> None:
    """With the first segment archived, the rest is verified alone when asked to."""
    path.with_name("audit.log.000001").unlink()
    assert guarded(path, "verify").stderr == f"{path}: segment_missing: segment 1 is not there\n"
    assert guarded(path, "verify", "--first-segment", 2).stdout.startswith("intact: 2 records in 1 segment\n")


def test_show_prints_a_table(path: Path) -> None:
    """Events as a table, the newest last; what a principal is called draws nothing on the terminal."""
    result = guarded(path, "show")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["no.", "1", "2", "3", "4"]
    assert "[red]lee\\x1b[0m" in lines[3]
    assert lines[3].split()[1:3] == ["2026-01-03", "00:00:00"]
    assert [line.split()[0] for line in guarded(path, "show", "--last", 2).stdout.splitlines()] == ["no.", "3", "4"]
    assert guarded(path, "show", "--tool", "nothing").stdout == "no events\n"


def test_show_gives_what_is_before_a_torn_line(path: Path) -> None:
    """A torn trail shows its whole records, and then says what is wrong."""
    with path.open("ab") as file:
        file.write(b"torn")
    result = guarded(path, "show")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 5
    assert "guarded audit repair" in result.stderr


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ([], [1, 2, 3, 4]),
        (["--principal", "ann"], [1, 4]),
        (["--tool", "refund"], [3]),
        (["--outcome", "authorized"], [1, 3]),
        (["--outcome", "authorized", "--outcome", "denied"], [1, 2, 3]),
        (["--since", "2026-01-02"], [2, 3]),
        (["--since", "2026-01-02T00:00:01"], [3]),
        (["--since", "2026-01-02T02:00:00+02:00"], [2, 3]),
        (["--since", "1m"], []),
        (["--principal", "ann", "--outcome", "succeeded"], [4]),
        (["--first-segment", "2"], [3, 4]),
    ],
)
def test_filters_choose_events(path: Path, filters: list[str], numbers: list[int]) -> None:
    """Principal, tool, outcomes, a time: an event has to pass all that are given."""
    assert exported(path, *filters) == numbers


def test_since_counts_back_from_now(path: Path) -> None:
    """Minutes, hours and days ago."""
    with DurableToolAuditTrail.open(path, keys={"k": SECRET}) as trail:
        trail.append(AuditEvent(outcome=Outcome.DENIED, time_ns=time.time_ns() - 7200 * 10**9, call_id="c", tool="t"))
    assert [exported(path, "--since", since) for since in ("90m", "3h", "1d")] == [[], [5], [5]]


@pytest.mark.parametrize("since", ["yesterday", "5", "3w", "2026-13-01"])
def test_since_that_is_no_time_is_refused(path: Path, since: str) -> None:
    """Anything else is a usage error."""
    assert guarded(path, "show", "--since", since).exit_code == 2


def test_export_writes_every_field_as_json_lines(path: Path) -> None:
    """JSON lines are the events exactly, each with its number."""
    lines = [orjson.loads(line) for line in guarded(path, "export").stdout.splitlines()]
    assert [line.pop("number") for line in lines] == [1, 2, 3, 4]
    assert [AuditEvent.from_json(line) for line in lines] == EVENTS


def test_export_writes_csv_for_spreadsheets(path: Path) -> None:
    """CSV has a column for each field, the time readable, and no cell that a spreadsheet would run."""
    rows = list(csv.DictReader(io.StringIO(guarded(path, "export", "--format", "csv").stdout)))
    assert [row["number"] for row in rows] == ["1", "2", "3", "4"]
    assert [row["principal"] for row in rows[:3]] == ["ann", "'=cmd()", "[red]lee\x1b[0m"]
    assert (rows[2]["time"], rows[2]["approved_by"]) == ("2026-01-03T00:00:00.000+00:00", "ann; bob")


def test_export_writes_a_new_file_and_over_none(path: Path) -> None:
    """An output file is made; one that exists, such as the trail itself, stays as it is."""
    output = path.with_name("events.jsonl")
    assert guarded(path, "export", "--output", output).exit_code == 0
    assert len(output.read_text().splitlines()) == 4
    before = path.read_bytes()
    assert guarded(path, "export", "--output", path).exit_code == 2
    assert path.read_bytes() == before


def test_unsettled_and_reconcile(path: Path) -> None:
    """The call without an outcome is listed, reconciled with who and why, and then listed no more."""
    lines = guarded(path, "unsettled").stdout.splitlines()
    assert len(lines) == 2
    assert "call-3" in lines[1]
    words = ("call-3", "--outcome", "failed", "--by", "lee", "--reason", "asked the bank")
    assert guarded(path, "reconcile", *words).stdout == "reconciled: refund failed\n"
    assert guarded(path, "unsettled").stdout == "no events\n"
    *_, (_, last) = read(path, {"k": SECRET})
    assert (last.outcome, last.code, last.approved_by) == (Outcome.FAILED, "reconciled", ("lee",))
    assert last.approval_reason == "asked the bank"
    again = guarded(path, "reconcile", *words)
    assert (again.exit_code, again.stderr) == (1, f"{path}: not_unsettled: no call of that id waits for an outcome\n")


def test_settle_is_the_old_name_of_reconcile(path: Path) -> None:
    """What scripts call still works, and says its new name on the error output."""
    settled = guarded(path, "settle", "call-3", "--outcome", "failed", "--by", "lee", "--reason", "asked the bank")
    assert (settled.exit_code, settled.stdout) == (0, "reconciled: refund failed\n")
    assert settled.stderr == "guarded audit settle is guarded audit reconcile now\n"
    assert guarded(path, "unsettled").stdout == "no events\n"


@pytest.mark.parametrize("outcome", ["denied", "authorized", "fine"])
def test_reconcile_takes_final_outcomes_only(path: Path, outcome: str) -> None:
    """Succeeded, failed or unknown; anything else is a usage error."""
    assert guarded(path, "reconcile", "call-3", "--outcome", outcome, "--by", "lee", "--reason", "x").exit_code == 2


def test_reconcile_waits_for_no_running_writer(path: Path) -> None:
    """While a process has the trail, it cannot be reconciled from outside."""
    with DurableToolAuditTrail.open(path, keys={"k": SECRET}):
        result = guarded(path, "reconcile", "call-3", "--outcome", "failed", "--by", "lee", "--reason", "x")
    assert result.stderr.startswith(f"{path}: locked: ")


def test_repair_keeps_the_torn_bytes(path: Path) -> None:
    """A torn line is kept in a file that is named; a whole trail needs nothing."""
    assert guarded(path, "repair", "--by", "lee").stdout == "nothing to repair\n"
    with path.open("ab") as file:
        file.write(b"5:torn")
    assert guarded(path, "repair", "--by", "lee").stdout == "repaired: 6 bytes kept in audit.log.torn-1\n"
    assert guarded(path, "verify").stdout.startswith("intact: 5 records in 2 segments\n")


@pytest.mark.parametrize("command", ["verify", "show", "export", "unsettled", "repair", "reconcile"])
def test_no_command_makes_a_trail(path: Path, command: str) -> None:
    """A path with no trail is an error, and stays without one."""
    more = {"repair": ["--by", "x"], "reconcile": ["c", "--outcome", "failed", "--by", "x", "--reason", "y"]}
    keys = {"GUARDED_AUDIT_KEYS": str(path.with_name("keys"))}
    absent = path.with_name("absent.log")
    result = CliRunner(env=keys).invoke(app, [command, str(absent), *more.get(command, [])])
    assert (result.exit_code, result.stderr) == (1, f"{absent}: no_trail: there is no trail\n")
    assert list(path.parent.glob("absent*")) == []

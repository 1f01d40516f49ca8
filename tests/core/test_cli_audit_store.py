"""``guarded audit`` on the trail of a store: the same commands, given its URL."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.audit.chain import Head
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.cli.audit import app
from guarded_core.ground.ids import new_id
from guarded_core.store.base import Change
from guarded_core.store.ledger import CallState, LedgerEntry

sql = pytest.importorskip("guarded_core.store.sql")

SECRET = b"cli-secret-of-32-bytes-xxxxxxxxxx"
KEYS = {"k": SECRET}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store in whose trail a call succeeded and another one was denied."""
    path = tmp_path / "guard.db"
    with sql.SqlStore.open(f"sqlite:///{path}", keys=KEYS) as store:
        guard = Guard(ToolExecutionPolicy({"look": "read_only"}), store=store)

        @guard.tool()
        def look(what: str) -> str:
            """Look."""
            return what

        with guard.session("ann", tools=["look"]):
            guard.call("look", {"what": "x"})
            with pytest.raises(Exception, match="not available"):
                guard.call("burn", {})
    (tmp_path / "keys").write_text(f"k = {SECRET.hex()}\n")
    return path


def guarded(path: Path, command: str, *arguments: object) -> Result:
    """Run a command on the store, with its key file named by the environment."""
    keys = {"GUARDED_AUDIT_KEYS": str(path.with_name("keys"))}
    return CliRunner(env=keys).invoke(app, [command, f"sqlite:///{path}", *map(str, arguments)])


def abandoned(path: Path, *, claims: bool) -> str:
    """The id of a call whose process died after its commit."""
    with sql.SqlStore.open(f"sqlite:///{path}", keys=KEYS) as store:
        event = AuditEvent(
            outcome=Outcome.AUTHORIZED, time_ns=store.now_ns(), call_id=new_id(), tool="refund", principal="ann"
        )
        claim = LedgerEntry(
            call_id=event.call_id,
            key="key",
            tool="refund",
            principal="ann",
            session_id="s",
            digest="d",
        )
        store.commit(Change(event=event, root_id="s", claim=claim if claims else None))
        return event.call_id


def test_verify_and_anchor(path: Path) -> None:
    """How many records of how many writers, and a head for the chain of writers and each of them, good as anchors."""
    intact, registry, head = guarded(path, "verify").stdout.splitlines()
    assert intact == "intact: 3 records of 1 writer"
    assert Head.parse(registry.removeprefix("head: ")).count == 1
    assert Head.parse(head.removeprefix("head: ")).count == 3
    anchor = path.with_name("anchor")
    guarded(path, "verify", "--save-head", anchor)
    abandoned(path, claims=False)
    assert guarded(path, "verify", "--anchor", anchor).stdout.startswith("intact: 4 records of 2 writers\n")
    other = path.with_name("other.db")
    sql.SqlStore.open(f"sqlite:///{other}", keys=KEYS).close()
    result = guarded(other, "verify", "--anchor", anchor)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("the store: truncated: ")


def test_verify_names_what_is_wrong(path: Path) -> None:
    """A changed row is found; without the keys nothing is taken for intact."""
    assert CliRunner().invoke(app, ["verify", f"sqlite:///{path}"]).stderr.startswith("the store: unknown_key: ")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE guarded_events SET line = replace(line, 'ann', 'bob')")
    result = guarded(path, "verify")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("the store: corrupt: ")


def test_show_and_export(path: Path) -> None:
    """Events as a table or as JSON lines, by the same filters."""
    rows = guarded(path, "show").stdout.splitlines()
    assert [row.split()[4:6] for row in rows[1:]] == [
        ["authorized", "look"],
        ["succeeded", "look"],
        ["denied", "burn"],
    ]
    assert [row.split()[0] for row in guarded(path, "show", "--last", 2).stdout.splitlines()] == ["no.", "2", "3"]
    newest = guarded(path, "show", "--last", 1, "--outcome", "authorized", "--outcome", "succeeded")
    assert ["succeeded" in row for row in newest.stdout.splitlines()] == [False, True]
    lines = guarded(path, "export", "--outcome", "denied", "--principal", "ann").stdout.splitlines()
    assert [orjson.loads(line)["code"] for line in lines] == ["unauthorized"]
    assert guarded(path, "export", "--tool", "nothing").stdout == ""
    assert guarded(path, "show", "--since", "1m", "--tool", "look").stdout.count("look") == 2


@pytest.mark.parametrize("claims", [True, False])
@pytest.mark.parametrize("outcome", ["succeeded", "failed", "unknown"])
def test_unsettled_and_reconcile(path: Path, claims: bool, outcome: str) -> None:
    """A call without an outcome is listed, reconciled in trail and ledger with who and why, and then listed no more."""
    call_id = abandoned(path, claims=claims)
    assert call_id in guarded(path, "unsettled").stdout
    words = (call_id, "--outcome", outcome, "--by", "lee", "--reason", "asked the bank")
    assert guarded(path, "reconcile", *words).stdout == f"reconciled: refund {outcome}\n"
    assert guarded(path, "unsettled").stdout == "no events\n"
    with sql.SqlStore.open(f"sqlite:///{path}", keys=KEYS) as store:
        *_, last = store.trail()
        entry = store.entry(call_id)
    assert (last.outcome, last.code, last.approved_by) == (outcome, "reconciled", ("lee",))
    assert last.approval_reason == "asked the bank"
    states = {"succeeded": CallState.DONE, "failed": CallState.NOT_EXECUTED, "unknown": CallState.UNKNOWN}
    assert (entry.state if entry else None) == (states[outcome] if claims else None)
    again = guarded(path, "reconcile", *words)
    assert (again.exit_code, again.stderr) == (1, "the store: not_unsettled: no call of that id waits for an outcome\n")
    assert guarded(path, "verify").stdout.startswith("intact: 5 records of 3 writers\n")


def test_what_is_no_store(path: Path) -> None:
    """One line says so, which never has the URL; nothing is made."""
    absent = path.with_name("absent.db")
    result = guarded(absent, "show")
    assert (result.exit_code, result.stderr) == (1, "there is no such store\n")
    assert not absent.exists()
    for url in ("postgresql://ann:hunter2@127.0.0.1:1/db", "mysql://ann:hunter2@db"):
        result = CliRunner().invoke(app, ["show", url])
        assert result.exit_code == 1
        assert "hunter2" not in result.output + result.stderr
    assert guarded(path, "repair", "--by", "lee").exit_code == 2


def test_missing_extra(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SQLAlchemy the command says what to install."""
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("guarded_core.store.sql"):
            raise ImportError('a SQL store needs SQLAlchemy: pip install "guarded-tools[sql]"')
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    result = guarded(path, "show")
    assert (result.exit_code, result.stderr) == (
        1,
        'a SQL store needs SQLAlchemy: pip install "guarded-tools[sql]"\n',
    )

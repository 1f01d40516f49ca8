"""Once entered, a call never runs again by itself: what it gave back is repeated, and equal new calls ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    Guard,
    GuardConfigurationError,
    HumanApprovalRequired,
    InMemoryToolAuditTrail,
    MemoryStore,
    NotExecuted,
    OutputTooLarge,
    ToolExecutionError,
    ToolExecutionPolicy,
    ToolSettings,
    idempotency_key,
)
from guarded_core.pipeline.call import Call
from guarded_core.store.ledger import CallKey
from guarded_core.tools.port import FunctionPort, NotEntered

Drive = Callable[[Guard, Call], Any]


def key(place: str = "place 1") -> CallKey:
    """The key of a call at that place; ids say nothing."""
    return CallKey(position=place, tool_call_id="c")


@pytest.fixture(params=["sync", "async"])
def drive(request: pytest.FixtureRequest) -> Drive:
    """Both ways of a call through a guard."""
    if request.param == "sync":
        return lambda guard, call: guard.run(call)
    return lambda guard, call: asyncio.run(guard.arun(call))


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of store."""
    if request.param == "memory":
        return MemoryStore()
    pytest.importorskip("sqlalchemy")
    return f"sqlite:///{tmp_path}/guard.db"


class Desk:
    """One tool that does what a test says, and how often it was entered."""

    def __init__(self, does: Callable[[], Any], *, store: Any = None, wraps: bool = False, **settings: Any) -> None:
        filled = {"risk": "mutating", **settings}
        policy = ToolExecutionPolicy({"charge": ToolSettings(**filled)}, output_bytes=100)
        self.trail = InMemoryToolAuditTrail(64)
        self.guard = Guard(policy, store=store, audit=None if isinstance(store, str) else self.trail)
        self.entered = 0

        def charge(order: int) -> str:
            """Charge."""
            return ""

        self.guard.tool(charge)
        self.port = FunctionPort(self.guard.spec("charge"), lambda _: self.enter())  # type: ignore[arg-type]
        self.port.wraps_errors = wraps  # type: ignore[misc]
        self.does = does
        self.session = self.guard.session("user-17", tools=["charge"], max_calls=9, session_id="s")

    def enter(self) -> Any:
        self.entered += 1
        return self.does()

    def call(self, place: str = "place 1") -> Call:
        return Call(tool="charge", port=self.port, arguments={"order": 7}, context=self.session, key=key(place))

    @property
    def codes(self) -> list[str | None]:
        return [event.code for event in self.trail.events]


def raising(error: Exception) -> Callable[[], Any]:
    """A tool that has its effect, and then raises, each time anew."""

    def does() -> Any:
        raise NotExecuted(*error.args) if isinstance(error, NotExecuted) else error

    return does


def test_what_raised_is_not_run_again(store: Any, drive: Drive) -> None:
    """A tool that raised once it was entered may have had its effect: entered again, the call raises what was said."""
    desk = Desk(raising(ValueError("printer is out of paper")), store=store)
    with pytest.raises(ValueError, match="out of paper"):
        drive(desk.guard, desk.call())
    for _ in range(2):
        with pytest.raises(ToolExecutionError, match="ValueError: printer is out of paper") as again:
            drive(desk.guard, desk.call())
        assert again.value.code == "execution_failed"
    assert desk.entered == 1
    assert desk.session.remaining_calls == 8


def test_an_error_that_is_kept_back_stays_so(drive: Drive) -> None:
    """Where a failing tool's text is not shown, a replay does not show it either, and the ledger does not have it."""
    desk = Desk(raising(ValueError("canary")), wraps=True)
    for _ in range(2):
        with pytest.raises(ToolExecutionError) as failed:
            drive(desk.guard, desk.call())
        assert "canary" not in str(failed.value)
    assert "canary" not in repr([vars(desk.guard.store)])
    assert desk.entered == 1


def test_what_ran_and_cannot_be_used_is_not_run_again(store: Any, drive: Drive) -> None:
    """A result that is too large belongs to a call that ran: entered again, it is told the same, with its sizes."""
    desk = Desk(lambda: "receipt " * 100, store=store)
    seen = []
    for _ in range(3):
        with pytest.raises(OutputTooLarge) as failed:
            drive(desk.guard, desk.call())
        seen.append((str(failed.value), failed.value.limit))
    assert desk.entered == 1
    assert seen == [seen[0]] * 3


@pytest.mark.parametrize("early", [NotExecuted("the door was shut"), NotEntered(ValueError("no such door"))])
def test_what_had_no_effect_may_be_tried_again(store: Any, drive: Drive, early: Exception) -> None:
    """A tool that says so, or a call that never reached its code, runs when it is entered again."""
    desk = Desk(raising(early), store=store)
    with pytest.raises(type(getattr(early, "error", early))):
        drive(desk.guard, desk.call())
    desk.does = lambda: "paid"
    assert drive(desk.guard, desk.call()) == "paid"
    assert drive(desk.guard, desk.call()) == "paid"
    assert desk.entered == 2


@pytest.mark.parametrize("settings", [{"risk": "read_only"}, {"idempotent": True}])
def test_what_does_no_harm_twice_runs_again(store: Any, drive: Drive, settings: dict[str, Any]) -> None:
    """Calls of read-only and idempotent tools are no part of the ledger: a retry runs, from the budget."""
    desk = Desk(raising(ValueError("down")), store=store, **settings)
    with pytest.raises(ValueError, match="down"):
        drive(desk.guard, desk.call())
    desk.does = lambda: "paid"
    assert drive(desk.guard, desk.call()) == "paid"
    assert (desk.entered, desk.session.remaining_calls) == (2, 7)


def test_a_call_that_comes_back_to_an_earlier_place_ends(store: Any, drive: Drive) -> None:
    """The same id and arguments at two places are two calls, each told what it gave back; none hangs."""
    desk = Desk(raising(ValueError("down")), store=store)
    for place in ("place 1", "place 2", "place 1", "place 2"):
        with pytest.raises((ValueError, ToolExecutionError), match="down"):
            drive(desk.guard, desk.call(place))
    assert desk.entered == 2


@pytest.mark.parametrize("risk", ["mutating", "destructive", "financial"])
def test_a_new_call_that_equals_one_that_raised_asks(store: Any, risk: str) -> None:
    """After a call raised, an equal new one asks where the tool is destructive or financial, and says why."""
    desk = Desk(raising(ValueError("down")), store=store, risk="mutating")
    with pytest.raises(ValueError, match="down"):
        desk.guard.run(desk.call())
    desk.guard.reload(ToolExecutionPolicy({"charge": risk}, output_bytes=100))
    desk.does = lambda: "paid"
    if risk == "mutating":
        assert desk.guard.run(desk.call("place 2")) == "paid"
        return
    with pytest.raises(HumanApprovalRequired):
        desk.guard.run(desk.call("place 2"))
    (asked,) = desk.guard.approvals.pending()
    assert asked.reasons == (f"risk:{risk}", "raised_before")
    assert asked.may_repeat
    assert desk.entered == 1


def test_a_person_settles_a_call_that_raised(store: Any) -> None:
    """Who found out that it had no effect says so, and the call may be tried again; or that it had, and it never is."""
    for outcome in ("failed", "succeeded"):
        desk = Desk(raising(ValueError("down")), store=store)
        with pytest.raises(ValueError, match="down"):
            desk.guard.run(desk.call(outcome))
        with pytest.raises(ToolExecutionError) as failed:
            desk.guard.run(desk.call(outcome))
        desk.guard.reconcile(str(failed.value.call_id), outcome, by="lee")  # type: ignore[arg-type]
        desk.does = lambda: "paid"
        if outcome == "failed":
            assert desk.guard.run(desk.call(outcome)) == "paid"
            with pytest.raises(GuardConfigurationError):
                desk.guard.reconcile(str(failed.value.call_id), "failed", by="lee")
        else:
            with pytest.raises(ToolExecutionError, match="ran before"):
                desk.guard.run(desk.call(outcome))
            assert desk.entered == 1


def test_an_idempotency_key_for_each_call(store: Any, drive: Drive) -> None:
    """A tool may ask for its call's key: the same in each re-entry of a call, another for any other, none outside."""
    keys: list[str | None] = []

    def does() -> Any:
        keys.append(idempotency_key())
        raise NotExecuted("try again")

    desk = Desk(does, store=store)
    for place in ("place 1", "place 1", "place 2"):
        with pytest.raises(NotExecuted):
            drive(desk.guard, desk.call(place))
    for _ in range(2):
        with pytest.raises(NotExecuted):
            drive(desk.guard, replace(desk.call(), key=None))
    assert None not in keys
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert idempotency_key() is None


def test_each_replay_is_on_record() -> None:
    """A replay of a result or an error is noted under the id of the call that ran."""
    desk = Desk(lambda: "paid")
    for _ in range(3):
        desk.guard.run(desk.call())
    assert desk.codes == [None, None, "replayed", "replayed"]
    assert len({event.call_id for event in desk.trail.events}) == 1
    desk.does = raising(ValueError("down"))
    for _ in range(3):
        with pytest.raises((ValueError, ToolExecutionError)):
            desk.guard.run(desk.call("place 2"))
    assert desk.codes[4:] == [None, "execution_failed", "replayed", "replayed"]


@pytest.mark.parametrize(("risk", "idempotent"), [("financial", False), ("mutating", False), ("financial", True)])
def test_a_call_that_nothing_tells_from_others_warns_once(
    risk: str, idempotent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a tool that needs approval the application's log says why its calls may run twice; of any other, nothing."""
    desk = Desk(lambda: "paid", risk=risk, idempotent=idempotent)
    for place in ("place 1", "place 2"):
        with pytest.raises(HumanApprovalRequired) if risk == "financial" else nullcontext():
            desk.guard.run(replace(desk.call(place), key=None, keyless="no graph keeps it"))
        for request in desk.guard.approvals.pending():
            desk.guard.approvals.decide(request.id, by="kim", approve=True)
        desk.guard.run(replace(desk.call(place), key=None, keyless="no graph keeps it"))
    warned = [record for record in caplog.records if "no graph keeps it" in record.getMessage()]
    assert [record.levelname for record in warned] == (
        ["WARNING"] if (risk, idempotent) == ("financial", False) else []
    )
    assert all("charge" in record.getMessage() for record in warned)


def test_a_retry_that_repeats_an_error_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """A retry of what raised does not run it: the log says, at the first, what lets a tool be tried again."""
    desk = Desk(raising(ValueError("canary")))
    for place in ("place 1", "place 1", "place 1", "place 2", "place 2"):
        with pytest.raises((ValueError, ToolExecutionError)):
            desk.guard.run(desk.call(place))
    warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warned if "NotExecuted" in text and "idempotent = true" in text]) == 1
    assert "canary" not in "".join(warned)


def test_a_call_that_may_have_run_under_no_key_does_not_run(drive: Drive) -> None:
    """An entry that is another one of a call without a key is refused, and nothing spent, unless it does no harm."""
    desk = Desk(lambda: "paid")
    with pytest.raises(ToolExecutionError) as refused:
        drive(desk.guard, replace(desk.call(), key=None, is_lost=True))
    assert refused.value.code == "cannot_run"
    assert "may have run before" in str(refused.value)
    assert (desk.entered, desk.session.remaining_calls) == (0, 9)
    for settings in ({"risk": "read_only"}, {"idempotent": True}):
        desk = Desk(lambda: "paid", **settings)
        assert drive(desk.guard, replace(desk.call(), key=None, is_lost=True)) == "paid"

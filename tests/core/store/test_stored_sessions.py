"""Named sessions in every store: opened by their first step, picked up with all that bounded them, ended at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from guarded_core import (
    CallBudgetExhausted,
    Guard,
    GuardConfigurationError,
    NoSession,
    PolicyDenied,
    ToolExecutionContext,
    ToolExecutionError,
    ToolExecutionPolicy,
    Unauthorized,
)
from guarded_core.store.base import SessionRecord, Store

ALL = ["send", "look"]
Office = Callable[[], "House"]


class House:
    """One process's guard on a shared store, and what it sent."""

    def __init__(self, store: Store) -> None:
        self.guard = Guard(ToolExecutionPolicy({"send": "mutating", "look": "read_only"}), store=store)
        self.sent: list[str] = []
        self.guard.tool(self.send)
        self.guard.tool(self.look)

    def send(self, to: str) -> str:
        """Send."""
        self.sent.append(to)
        return "sent"

    def look(self) -> str:
        """Look."""
        return "seen"

    def session(self, name: str = "ann", **settings: Any) -> ToolExecutionContext:
        """A session of the id that all tests use."""
        return self.guard.session(name, **{"tools": ALL, "session_id": "s", **settings})

    def attempt(self, session: ToolExecutionContext, to: str = "bob") -> str:
        """What becomes of a call."""
        try:
            self.guard.call("send", {"to": to}, context=session)
        except ToolExecutionError as error:
            return error.code
        return "ran"


@pytest.fixture
def office(make_store: Callable[[], Store]) -> Office:
    """Another process's house with each call; all of them have one store."""
    return lambda: House(make_store())


@pytest.fixture
def make_store(store: Store) -> Callable[[], Store]:
    """The same store as another process has it."""
    return lambda: store


class TestBounds:
    """What bounded a session bounds it wherever it is picked up."""

    def test_narrow_and_counts_stay(self, office: Office) -> None:
        """Per-task values and counts by tool hold where it is picked up without them."""
        first, second = office(), office()
        session = first.session(tools={"send": 2, "look": None}, narrow={"send": {"to": ["bob", "eve"]}})
        assert [first.attempt(session, to) for to in ("mallory", "bob")] == ["policy_denied", "ran"]
        again = second.session()
        assert [second.attempt(again, to) for to in ("mallory", "eve", "bob")] == [
            "policy_denied",
            "ran",
            "call_budget_exhausted",
        ]
        assert second.guard.call("look", {}, context=again) == "seen"

    def test_both_narrow(self, office: Office) -> None:
        """Values and counts of the one who picks it up hold as well; the smaller count counts."""
        first, second = office(), office()
        first.session(tools={"send": 5}, narrow={"send": {"to": ["bob", "eve"]}}).open()
        again = second.session(tools={"send": 1}, narrow={"send": {"to": ["eve", "zoe"]}})
        assert [second.attempt(again, to) for to in ("bob", "zoe", "eve", "eve")] == [
            "policy_denied",
            "policy_denied",
            "ran",
            "call_budget_exhausted",
        ]

    def test_tools_and_budget(self, office: Office) -> None:
        """A smaller stored set, or a spent budget, shows with the first call: a denial that tells the application."""
        first, second = office(), office()
        assert first.attempt(first.session(tools=["send"], max_calls=1)) == "ran"
        again = second.session(max_calls=50)
        with pytest.raises(Unauthorized) as smaller:
            second.guard.call("look", {}, context=again)
        assert "never gets more than it had" in str(smaller.value.hint)
        assert "never gets" not in str(smaller.value)
        with pytest.raises(CallBudgetExhausted):
            second.guard.call("send", {"to": "bob"}, context=again)
        assert (again.tools, again.max_calls, again.remaining()) == ({"send"}, 1, 0)

    def test_delegates_too(self, office: Office) -> None:
        """A subagent of a session that is picked up is bounded by what is stored of both, from its first call on."""
        first, second = office(), office()
        settings: dict[str, Any] = {"tools": ALL, "max_calls": 9, "session_id": "task"}
        parent = first.session(tools={"send": 3, "look": None}, narrow={"send": {"to": ["bob", "eve"]}})
        helper = parent.delegate("helper", **settings, narrow={"send": {"to": ["bob", "zoe"]}})
        assert first.attempt(helper) == "ran"
        unnamed = second.session().delegate("other", tools=ALL, max_calls=9)
        assert second.attempt(unnamed, "zoe") == "policy_denied"
        again = second.session().delegate("helper", **settings)
        assert [second.attempt(again, to) for to in ("eve", "zoe", "bob", "bob", "bob")] == [
            "policy_denied",
            "policy_denied",
            "ran",
            "ran",
            "call_budget_exhausted",
        ]

    def test_a_subagent_has_no_tool_that_its_stored_parent_lost(self, office: Office) -> None:
        """It was delegated before anybody asked the store; the first call does."""
        first, second = office(), office()
        first.session(tools=["send"]).open()
        helper = second.session().delegate("helper", tools=ALL, max_calls=9)
        with pytest.raises(Unauthorized):
            second.guard.call("look", {}, context=helper)

    def test_many_at_once(self, office: Office) -> None:
        """However many calls are a session's first, none is judged without what is stored."""
        first = office()
        first.session(narrow={"send": {"to": ["bob"]}}).open()

        async def main() -> set[str]:
            again = office()
            session = again.session()
            calls = [asyncio.to_thread(again.attempt, session, "mallory") for _ in range(8)]
            return set(await asyncio.gather(*calls))

        assert asyncio.run(main()) == {"policy_denied"}


class TestOpening:
    """A session is opened by its first step, and not before."""

    def test_making_and_entering_ask_nothing(self, office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
        """`guard.session`, `with`, `delegate` and `remaining_calls` never reach a database; the first call does."""
        house = office()
        store: Any = house.guard.store
        asked: list[str] = []
        for name in ("open_session", "load"):
            method = getattr(store, name)
            monkeypatch.setattr(
                store, name, lambda *args, name=name, method=method: (asked.append(name), method(*args))[1]
            )
        with house.session(max_calls=3) as session:
            helper = session.delegate("helper", tools=["look"], max_calls=2, session_id="h")
            if store.blocking:
                assert (session.remaining_calls, helper.remaining_calls) == (3, 2)
            assert asked == []
            asked.clear()
            house.guard.call("look", {})
            assert asked == ["load"]
            assert session.remaining_calls == 2
            assert session.remaining() == 2

    def test_another_principals(self, office: Office) -> None:
        """A stored session of another principal is a denial that tells the application, or an error of `open`."""
        house = office()
        house.guard.store.open_session(
            SessionRecord(id="ann#s", principal="mallory", tools=frozenset(ALL), max_calls=9)
        )
        session = house.session()
        with pytest.raises(NoSession) as denied:
            house.guard.call("look", {}, context=session)
        assert denied.value.hint == "this session belongs to another principal"
        with pytest.raises(GuardConfigurationError, match="another principal"):
            session.open()

        async def enter() -> None:
            async with house.session():
                raise AssertionError("it was entered")

        with pytest.raises(GuardConfigurationError, match="another principal"):
            asyncio.run(enter())

    def test_early(self, office: Office) -> None:
        """`open`, `aopen` and `async with` tell at once what is left, and of what."""
        first, second = office(), office()
        first.attempt(first.session(tools=["send"], max_calls=3))

        async def main() -> list[tuple[frozenset[str], int, int]]:
            async with second.session() as entered:
                found = [entered]
                found.append(await second.session().aopen())
                found.append(second.session().open())
                left = await entered.aremaining()
                return [(session.tools, session.max_calls, left) for session in found]

        assert asyncio.run(main()) == [(frozenset({"send"}), 3, 2)] * 3

    def test_remaining_is_what_was_seen_last(self, office: Office) -> None:
        """With a database, the property says what this process saw; `remaining` asks."""
        first, second = office(), office()
        one, other = first.session(max_calls=9), second.session(max_calls=9)
        first.attempt(one)
        second.attempt(other)
        second.attempt(other)
        if first.guard.store.blocking:
            assert one.remaining_calls == 8
        assert (one.remaining(), one.remaining_calls, other.remaining_calls) == (6, 6, 6)


class TestEnding:
    """All sessions of one person can be ended at once."""

    @pytest.mark.parametrize("session_id", ["s", None])
    def test_everywhere(self, office: Office, session_id: str | None) -> None:
        """Sessions of every process, named or not, used or not, and what was delegated from them; others go on."""
        first, second = office(), office()
        used, fresh = (first.session(session_id=session_id) for _ in range(2))
        helper = used.delegate("helper", tools=ALL, max_calls=3)
        boss = second.guard.session("boss", tools=ALL)
        acting = boss.delegate("ann", tools=ALL, max_calls=5)
        other = first.session("bob")
        assert [first.attempt(used), first.attempt(helper), second.attempt(acting)] == ["ran"] * 3
        second.guard.end_sessions("ann")
        assert {first.attempt(used), first.attempt(helper), first.attempt(fresh), second.attempt(acting)} == {
            "no_session"
        }
        assert [first.attempt(other), second.attempt(boss)] == ["ran", "ran"]
        assert second.attempt(second.session(session_id=session_id)) == "ran"

    def test_awaiting(self, office: Office) -> None:
        """So it is with `aend_sessions`."""
        house = office()
        session = house.session()
        asyncio.run(house.guard.aend_sessions("ann"))
        assert not session.is_open
        assert house.attempt(session) == "no_session"


class TestOnBehalf:
    """Acting as somebody puts both on record."""

    def test_both_names(self, office: Office) -> None:
        """A session on behalf of a user has the user's budget and rates; every event names both; neither approves."""
        house = office()
        acting = house.guard.session("support-3", on_behalf_of="ann", tools=["send"], max_calls=2)
        assert (acting.principal, acting.on_behalf_of, acting.scope.principal) == ("support-3", ("ann",), "ann")
        assert [house.attempt(acting) for _ in range(3)] == ["ran", "ran", "call_budget_exhausted"]
        with acting:
            assert house.guard.call  # it is entered like any other
        house.guard.end_sessions("ann")
        assert not acting.is_open

    def test_picked_up(self, office: Office) -> None:
        """By its id it is picked up by the same two only."""
        first, second = office(), office()
        settings: dict[str, Any] = {"tools": ["send"], "max_calls": 1, "session_id": "case"}
        assert first.attempt(first.guard.session("support-3", on_behalf_of="ann", **settings)) == "ran"
        assert second.attempt(second.guard.session("support-3", on_behalf_of="ann", **settings)) == (
            "call_budget_exhausted"
        )
        assert second.attempt(second.guard.session("support-3", on_behalf_of="bob", **settings)) == "ran"
        assert (
            second.attempt(second.guard.session("support-4", on_behalf_of="ann", **settings)) == "call_budget_exhausted"
        )


def test_rules_are_told_once(office: Office) -> None:
    """Picked up with the same values, a denial names the rule once."""
    first = office()
    for _ in range(2):
        with pytest.raises(PolicyDenied) as denied:
            first.guard.call("send", {"to": "eve"}, context=first.session(narrow={"send": {"to": ["bob"]}}))
        assert len(denied.value.violations) == 1

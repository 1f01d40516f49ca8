"""What the application is told about a denial that is its own doing, and a model never is."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable

import pytest

from guarded_core import Guard, HumanApprovalRequired, ToolExecutionContext, ToolExecutionError, ToolExecutionPolicy

Deny = Callable[..., ToolExecutionError]


@pytest.fixture
def guard() -> Guard:
    """A guard with a tool to read, and one that a person has to approve."""
    guard = Guard(ToolExecutionPolicy({"look": "read_only", "refund": "financial"}))

    @guard.tool
    def look() -> str:
        """Look."""
        return "seen"

    @guard.tool
    def refund() -> str:
        """Pay."""
        return "paid"

    return guard


@pytest.fixture
def deny(guard: Guard) -> Deny:
    """The error of a call; its text, which a model reads, has nothing of the hint."""

    def deny(tool: str = "look", context: ToolExecutionContext | None = None) -> ToolExecutionError:
        with pytest.raises(ToolExecutionError) as denied:
            guard.call(tool, {}, context=context)
        error = denied.value
        assert error.hint
        assert error.hint in getattr(error, "__notes__", ())  # a traceback shows it
        assert error.hint not in str(error)
        assert error.hint not in str(error.as_dict())
        return error

    return deny


def session(guard: Guard, **settings: object) -> ToolExecutionContext:
    """A user's session."""
    return guard.session("ann", **{"tools": ["look"], **settings})  # type: ignore[arg-type]


class TestNoSession:
    """Why nobody calls."""

    def test_none(self, deny: Deny) -> None:
        """Nobody made a session."""
        assert "no session is open" in str(deny().hint)

    def test_never_entered(self, guard: Guard, deny: Deny) -> None:
        """One was made, and never entered."""
        made = session(guard)
        assert "never entered" in str(deny().hint)
        assert made.is_open

    def test_in_another_context(self, guard: Guard, deny: Deny) -> None:
        """One is open, in another context than this."""
        with session(guard):
            hint = str(contextvars.Context().run(deny).hint)
        assert "in other contexts" in hint
        assert "context=" in hint

    def test_over(self, guard: Guard, deny: Deny) -> None:
        """One is over: handed over after its block, closed inside it, or inherited by what outlives it."""
        with session(guard) as ended:
            inherited = contextvars.copy_context()
        with session(guard) as closed:
            closed.close()
            hints = {deny().hint}
        hints |= {deny(context=ended).hint, inherited.run(deny).hint}
        assert len(hints) == 1
        assert "is over" in str(hints.pop())

    def test_each_is_logged_once(self, guard: Guard, deny: Deny, caplog: pytest.LogCaptureFixture) -> None:
        """The log has each reason once, however many calls there are."""
        for _ in range(3):
            deny()
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert str(deny().hint) in caplog.text


class TestTools:
    """Which tools a session has."""

    def test_a_misspelt_tool(self, guard: Guard, deny: Deny, caplog: pytest.LogCaptureFixture) -> None:
        """A name in tools= that is nearly a tool's is told in the log when it is said, and by the tool's denial."""
        with session(guard, tools=["look", "refnud"]):
            assert "'refnud', which the policy does not know; did you mean 'refund'?" in caplog.text
            assert "'refnud', which the policy does not know; did you mean 'refund'?" in str(deny("refund").hint)

    def test_not_in_the_set(self, guard: Guard, deny: Deny, caplog: pytest.LogCaptureFixture) -> None:
        """A tool that is simply not in the set; names of tools that may come later are not remarked on."""
        with session(guard, tools=["look", "tool_of_tomorrow"]):
            assert "not among the session's tools" in str(deny("refund").hint)
        assert not caplog.records

    def test_the_model_reads_the_same(self, guard: Guard, deny: Deny) -> None:
        """Whatever the hint, the text is that of a tool which does not exist."""
        with session(guard, tools=["look", "refnud"]):
            with pytest.raises(ToolExecutionError) as unknown:
                guard.call("nothing", {})
            assert str(deny("refund")).replace("refund", "nothing") == str(unknown.value)


class TestUsedUp:
    """Which budget is used up."""

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"max_calls": 1}, "the session has used up its 1 call"),
            ({"tools": {"look": 2}}, "the session has used up its 2 calls of this tool (tools= or the policy)"),
        ],
    )
    def test_of_the_session(self, guard: Guard, deny: Deny, settings: dict[str, object], said: str) -> None:
        """Its own, or that of the tool."""
        with session(guard, **settings):
            for _ in range(2 if "tools" in settings else 1):
                guard.call("look", {})
            assert deny().hint == said

    def test_of_a_session_above(self, guard: Guard, deny: Deny) -> None:
        """That of the one it was delegated from."""
        with session(guard, max_calls=1) as above, above.delegate("helper", tools=["look"], max_calls=5):
            guard.call("look", {})
            assert deny().hint == "a session that this one was delegated from has used up its 1 call"


class TestWaiting:
    """A call that waits for a person, in a session that nobody can pick up."""

    def test_without_a_name(self, guard: Guard, deny: Deny, caplog: pytest.LogCaptureFixture) -> None:
        """Every such denial says so, and the log the first time."""
        for _ in range(2):
            with session(guard, tools=["refund"]):
                assert "session_id=" in str(deny("refund").hint)
        assert caplog.text.count("has no session_id") == 1

    def test_with_a_name(self, guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
        """A named one is asked about once, in whatever request, and nothing is to be told."""
        asked = set()
        for _ in range(2):
            with session(guard, tools=["refund"], session_id="s"), pytest.raises(HumanApprovalRequired) as waits:
                guard.call("refund", {})
            assert waits.value.hint is None
            asked.add(waits.value.request_id)
        assert len(asked) == 1
        assert not caplog.records

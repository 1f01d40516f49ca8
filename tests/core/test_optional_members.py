"""What sinks, approvers and stores may have, and what holds where they have it not, derived from a base or not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalRequest,
    AuditEvent,
    Guard,
    GuardConfigurationError,
    MemoryStore,
    Store,
    ToolExecutionPolicy,
)
from guarded_core.approvals.approver import BaseApprover
from guarded_core.audit.sink import AuditSink, TeeSink, completed

POLICY = ToolExecutionPolicy({"refund": "financial", "look": "read_only"})


def guard_with(**settings: Any) -> Guard:
    """A guard with one tool that a person approves and one that nobody is asked about."""
    guard = Guard(POLICY, **settings)
    guard.tool(refund)
    guard.tool(look)
    return guard


def refund(cents: int) -> str:
    """Pay money back."""
    return f"refunded {cents}"


def look() -> str:
    """Look."""
    return "seen"


def called(guard: Guard, name: str, **arguments: Any) -> tuple[Any, Any]:
    """What a call gives back, and then an async one."""
    with guard.session("ann", tools=["refund", "look"]):
        return guard.call(name, arguments), asyncio.run(guard.acall(name, arguments))


# Sinks


class Bare:
    """A sink with `append` alone."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def append(self, event: AuditEvent) -> None:
        self.threads.add(threading.current_thread().name.rstrip("0123456789"))


class Derived(AuditSink):
    """The same, from the base."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def append(self, event: AuditEvent) -> None:
        self.threads.add(threading.current_thread().name.rstrip("0123456789"))


class Quick(Bare):
    """One that promises never to wait."""

    blocking = False


class QuickDerived(Derived):
    """The same, from the base."""

    blocking = False


class Awaited(Bare):
    """One that is awaited."""

    async def aappend(self, event: AuditEvent) -> None:
        self.threads.add("awaited")


class AwaitedDerived(Derived):
    """The same, from the base."""

    async def aappend(self, event: AuditEvent) -> None:
        self.threads.add("awaited")


@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        (Bare, {"MainThread", "guarded_"}),
        (Derived, {"MainThread", "guarded_"}),
        (Quick, {"MainThread"}),
        (QuickDerived, {"MainThread"}),
        (Awaited, {"MainThread", "awaited"}),
        (AwaitedDerived, {"MainThread", "awaited"}),
    ],
)
def test_a_sink_is_called_as_it_says(kind: Any, threads: set[str]) -> None:
    """In place where it never waits, awaited where it can be, from a worker thread otherwise; sync calls in place."""
    sink = kind()
    assert called(guard_with(audit=sink), "look") == ("seen", "seen")
    assert sink.threads == threads


def test_a_tee_waits_where_one_of_its_sinks_does() -> None:
    """It promises only what all of them promise."""
    assert TeeSink(Quick(), QuickDerived()).blocking is False
    assert TeeSink(Quick(), Bare()).blocking is True


def test_a_sink_stands_for_itself_or_is_completed_once() -> None:
    """One that derives from the base is used as it is; another one has the defaults beside it, and is still asked."""
    derived, bare = Derived(), Bare()
    assert completed(derived) is derived
    stand_in = completed(bare)
    assert (stand_in.blocking, stand_in.aappend) == (True, None)
    stand_in.close()
    assert completed(stand_in) is stand_in


# Approvers


class OnlyAwaited:
    """It has `aask` alone."""

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        return Answer(by="lee", approve=True)


class OnlyAwaitedDerived(BaseApprover):
    """The same, from the base."""

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        return Answer(by="lee", approve=True)


class OnlyAsked(BaseApprover):
    """It has `ask` alone, and says where."""

    def __init__(self) -> None:
        self.threads: list[bool] = []

    def ask(self, request: ApprovalRequest) -> Answer | None:
        self.threads.append(threading.current_thread() is threading.main_thread())
        return Answer(by="lee", approve=True)


@pytest.mark.parametrize("kind", [OnlyAwaited, OnlyAwaitedDerived])
def test_an_approver_that_is_only_awaited(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It answers async calls; a sync one is refused, and the log says why."""
    guard = guard_with(approver=kind())
    with guard.session("ann", tools=["refund"]):
        assert asyncio.run(guard.acall("refund", {"cents": 5})) == "refunded 5"
        with pytest.raises(Exception, match="person"):
            guard.call("refund", {"cents": 6})
    assert f"{kind.__name__} is async, and the call is not" in caplog.text


def test_an_approver_that_is_only_asked_runs_off_the_loop() -> None:
    """Under asyncio it has a thread of its own."""
    approver = OnlyAsked()
    assert called(guard_with(approver=approver), "refund", cents=5) == ("refunded 5", "refunded 5")
    assert approver.threads == [True, False]


def test_an_approver_with_no_way_to_ask_is_refused() -> None:
    """Deriving from the base is not yet asking."""

    class Silent(BaseApprover):
        pass

    with pytest.raises(GuardConfigurationError, match=r"Silent, which has no ask\(request\)"):
        guard_with(approver=Silent())


@pytest.mark.parametrize("base", [object, BaseApprover])
def test_frameworks_and_attach_are_heard(base: type) -> None:
    """An approver says which frameworks it serves, and is told where requests are, once."""
    told: list[Any] = []

    class Choosy(base):  # type: ignore[misc]
        frameworks = frozenset({"langchain"})

        def ask(self, request: ApprovalRequest) -> Answer | None:
            return None

        def attach(self, store: Any) -> None:
            told.append(store)

    guard = guard_with(approver=Choosy())
    assert told == [guard.store]
    guard.check_framework("langchain")
    with pytest.raises(GuardConfigurationError, match="Choosy cannot ask anybody about a tool of llamaindex"):
        guard.check_framework("llamaindex")


# Stores


def test_a_store_of_ones_own_has_the_rest_from_the_protocol() -> None:
    """What it does not say of trail, sessions that are over and closing is nothing."""

    class Around(Store):
        """Hands all that decides to a store in memory."""

        blocking = False
        keeps_trail = False

        def __init__(self) -> None:
            inner = MemoryStore()
            for name in ("open_session", "load", "commit", "release", "settle", "deny", "record", "entry", "now_ns"):
                setattr(self, name, getattr(inner, name))

    store = Around()  # type: ignore[abstract]
    assert store.trail() is None
    guard = guard_with(store=store)
    assert called(guard, "look") == ("seen", "seen")
    guard.close()
    store.close()

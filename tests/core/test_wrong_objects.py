"""What stands in the place of something else is refused where it is handed over, by its type and never its value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    Guard,
    GuardConfigurationError,
    InMemoryToolAuditTrail,
    StateStore,
    ToolAuditTrailError,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolRegistry,
)
from tests.core.conftest import AccountStatus

POLICY = ToolExecutionPolicy({"read": "read_only", "account_status": "read_only"})
SECRET = "tok-4711"


class Odd:
    """Something that nobody asked for; its repr is as secret as a value."""

    def __repr__(self) -> str:
        return SECRET


def guard() -> Guard:
    """A guard of its own."""
    return Guard(POLICY)


def context() -> ToolExecutionContext:
    """A session that may call the tool."""
    return ToolExecutionContext("user-17", ["account_status"], 3)


def function(*args: Any) -> None:
    """Some function."""


WRONG: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "policy": (Guard, (None, SECRET, {"read": "read_only"}, Path("policy.toml"), ToolExecutionPolicy, Odd(), ["read"])),
    "path": (Guard.from_file, (None, 5, POLICY, Odd(), b"policy.toml")),
    "store": (lambda given: Guard(POLICY, store=given), (5, Odd(), Guard, True, POLICY)),
    "audit": (lambda given: Guard(POLICY, audit=given), (5, Odd(), InMemoryToolAuditTrail, True, ["audit.log"])),
    "state": (lambda given: Guard(POLICY, state=given), ({"day": 1}, 5, StateStore, Odd())),
    "identify": (lambda given: Guard(POLICY, identify=given), (SECRET, Odd, context())),
    "max_denials": (lambda given: Guard(POLICY, max_denials=given), (SECRET, 0, True, 1.5)),
    "max_pending": (lambda given: Guard(POLICY, max_pending=given), (SECRET, 0, None)),
    "reload": (lambda given: guard().reload(given), (SECRET, Path("policy.toml"), Odd())),
    "register": (lambda given: guard().register(given), (None, SECRET, function, AccountStatus(), Odd())),
    "tool": (lambda given: guard().tool(given), (5, SECRET, Odd, Odd(), AccountStatus())),
    "tools": (lambda given: guard().session("u", tools=given), (5, [5], [function], Odd(), [None])),
    "request": (lambda given: guard().session("u", tools=["read"], request=given), (5, ["hi"], Odd())),
    "rules": (lambda given: guard().rules.register("mine", given), (None, SECRET, Odd, Odd())),
    "registry": (ToolRegistry().register, (None, SECRET, AccountStatus, function, Odd())),
    "policy tools": (ToolExecutionPolicy, (None, 5, ToolExecutionPolicy, Odd())),
    "limits": (lambda given: ToolExecutionPolicy(["a"], limits=given), (4096, {"bytes": 1}, Odd())),
    "roles": (lambda given: ToolExecutionPolicy(["a"], roles=given), (["support"], {"support": ["a"]})),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_object_is_refused_by_its_type(what: str) -> None:
    """A developer's mistake is a GuardConfigurationError that says what was given, by type only, and what belongs."""
    hand_over, given = WRONG[what]
    for one in given:
        with pytest.raises(GuardConfigurationError) as refused:
            hand_over(one)
        assert SECRET not in str(refused.value)
        assert len(str(refused.value)) > 20


@pytest.mark.parametrize("given", [5, "text-that-is-no-bytes", Path("keys.txt"), ["short"]])
def test_keys_that_are_none(given: Any) -> None:
    """Keys are bytes: anything else is an error of the trail's own family."""
    with pytest.raises(ToolAuditTrailError, match="bytes"):
        Guard(POLICY, keys=given)


@pytest.mark.parametrize("runs", ["sync", "async"])
@pytest.mark.parametrize(
    ("place", "given"),
    [(2, "user-17"), (2, POLICY), (3, guard()), (3, ["account_status"]), (4, None), (4, "audit.log"), (4, Odd)],
)
def test_the_registry_runs_nothing_for_wrong_objects(runs: str, place: int, given: Any) -> None:
    """Without a context, a policy and a sink that keeps events no tool runs."""
    registry, ran = ToolRegistry(), []

    class Tool(AccountStatus):
        def execute(self, payload: dict[str, Any]) -> Any:
            ran.append(payload)
            return super().execute(payload)

    registry.register(Tool())
    handed: list[Any] = ["account_status", {"account_id": "acct-17"}, context(), POLICY, InMemoryToolAuditTrail(8)]
    handed[place] = given

    def attempt() -> Any:
        return registry.execute(*handed) if runs == "sync" else asyncio.run(registry.aexecute(*handed))

    with pytest.raises(GuardConfigurationError, match="was given"):
        attempt()
    assert ran == []


def test_what_to_do_is_said() -> None:
    """Where a mistake is common, the error says the next step."""
    for attempt, advice in [
        (lambda: Guard("policy.toml"), r"a str was given; for a file use Guard.from_file\(path\)"),  # type: ignore[arg-type]
        (lambda: ToolRegistry().register(AccountStatus), "the class AccountStatus was given; make an instance of it"),  # type: ignore[arg-type]
        (lambda: guard().tool(Odd()), "an Odd was given.* through its adapter's guard_tool"),  # type: ignore[type-var]
    ]:
        with pytest.raises(GuardConfigurationError, match=advice):
            attempt()

"""However many rules object to a call, and whatever they are called, the denial is written and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guarded_core import Guard, HumanApprovalRequired, NoSession, PolicyDenied, ToolExecutionPolicy
from guarded_core.rules.kinds import DenyKeyword, DenyToolParam, RequireApproval


def guarded(where: Any, rules: list[Any], **settings: Any) -> Guard:
    """A guard of one tool with these rules, and its trail in that store."""
    guard = Guard(ToolExecutionPolicy({"say": "mutating"}, rules=rules), store=where, **settings)

    @guard.tool()
    def say(x: str) -> str:
        """Say."""
        return x

    return guard


@pytest.mark.parametrize("database", [False, True], ids=["memory", "sqlite"])
@pytest.mark.parametrize(
    "rules",
    [
        [DenyToolParam(tool="say", param="x", contains="x" * n) for n in range(1, 71)],
        [DenyKeyword(keyword="x" * 300 + "é" * n) for n in range(64)],
        [DenyKeyword(keyword="x" * 120 + "é" * n) for n in range(64)],
    ],
    ids=["many", "long", "not ASCII"],
)
def test_a_denial_by_many_rules_is_written_and_counted(tmp_path: Path, rules: list[Any], database: bool) -> None:
    """Otherwise a model could go on for ever, and leave no trace."""
    store = f"sqlite:///{tmp_path / 'g.db'}" if database else None
    guard = guarded(store, rules, max_denials=3)
    with guard.session("u", tools=["say"]):
        for _ in range(3):
            with pytest.raises(PolicyDenied) as caught:
                guard.call("say", {"x": "x" * 400 + "é" * 80})
            assert len(caught.value.violations) == len(rules)
        with pytest.raises(NoSession):
            guard.call("say", {"x": "fine"})
    events: list[Any] = list(guard.audit.events if store is None else guard.store.trail())  # type: ignore[attr-defined]
    assert [event.code for event in events][:3] == ["policy_denied"] * 3
    for event in events:
        event.check()
    assert events[0].rules[-1] == f"and {len(rules) - len(events[0].rules) + 1} more"
    guard.close()


def test_a_file_holds_it_too(tmp_path: Path) -> None:
    """An event of a durable trail is a bounded line."""
    rules = [DenyKeyword(keyword="x" * 250 + "é" * n) for n in range(200)]
    guard = guarded(None, rules, audit=tmp_path / "audit.log")
    with guard.session("u", tools=["say"]), pytest.raises(PolicyDenied):
        guard.call("say", {"x": "x" * 250 + "é" * 200})
    guard.close()


def test_many_rules_that_ask_are_written(tmp_path: Path) -> None:
    """The question is on record as well."""
    rules = [RequireApproval(tool="say", param="x", contains="x" * n) for n in range(1, 71)]
    guard = guarded(f"sqlite:///{tmp_path / 'g.db'}", rules)
    with guard.session("u", tools=["say"]), pytest.raises(HumanApprovalRequired):
        guard.call("say", {"x": "x" * 80})
    assert next(event.outcome.value for event in guard.store.trail()) == "asked"  # type: ignore[attr-defined]
    guard.close()

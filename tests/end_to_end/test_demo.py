"""The demo's scenes through both frameworks, judged by what the database and the audit trail hold afterwards."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from guarded_core.cli.app import app
from guarded_core.cli.demo.agents import agents
from guarded_core.cli.demo.scenes import SCENES, Played, Stage
from guarded_core.cli.demo.shop import Shop
from guarded_core.testing import ScriptedApprover

Play = Callable[[Stage, Any, Any], Played]


def _sync(stage: Stage, scene: Any, agent: Any) -> Played:
    return stage.play(scene, agent)


def _async(stage: Stage, scene: Any, agent: Any) -> Played:
    return asyncio.run(stage.aplay(scene, agent))


READ = [("authorized", None), ("succeeded", None)]
PAID = [("asked", None), ("authorized", None), ("succeeded", None)]
EXPECTED: dict[str, tuple[int, list[tuple[str, str | None]], list[str]]] = {
    "A read": (0, READ, ["Kettle"]),
    "A refund that a person is asked about": (1000, PAID, ["refunded 1000 cents"]),
    "A hijacked refund: the amount differs from what was approved": (
        1000,
        [("asked", None), ("denied", "human_approval_required"), *READ],
        ["A person has to approve this call", "refunded 1000 cents"],
    ),
    "A hidden tool, called by name": (0, [("denied", "unauthorized")], ["not available"]),
    "A budget that runs out": (0, [*READ, *READ, ("denied", "call_budget_exhausted")], ["Lamp", "Lamp", "No calls"]),
    "An audit sink that goes down": (0, [], ["No record of this call can be kept"]),
}


@pytest.mark.parametrize("play", [_sync, _async], ids=["sync", "async"])
@pytest.mark.parametrize("framework", [0, 1], ids=["langchain", "llamaindex"])
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.title)
def test_scene(scene: Any, framework: int, play: Play, tmp_path: Path) -> None:
    """Each scene changes the database only as allowed, leaves exactly its events, and tells the model why."""
    stage = Stage(Shop(tmp_path / "shop.db"), ScriptedApprover([True], by="reviewer-9"))
    played = play(stage, scene, agents(stage.tools, stage.guard)[0][framework])
    refunded, events, replies = EXPECTED[scene.title]
    assert stage.shop.refunds == {7: refunded, 8: 0}
    assert stage.shop.invoices == [70, 80]
    assert [(event.outcome.value, event.code) for event in played.events] == events
    assert len(played.replies) == len(replies)
    for reply, part in zip(played.replies, replies, strict=True):
        assert part in reply
    paid = [event for event in played.events if event.tool == "refund_order" and event.outcome.value == "succeeded"]
    assert all(event.approved_by == ("reviewer-9",) for event in paid)


@pytest.mark.parametrize("framework", [0, 1], ids=["langchain", "llamaindex"])
def test_a_no_refuses_the_refund(framework: int, tmp_path: Path) -> None:
    """A person who says no leaves the database as it was, and the model reads that they did."""
    stage = Stage(Shop(tmp_path / "shop.db"), ScriptedApprover([False]))
    played = stage.play(SCENES[1], agents(stage.tools, stage.guard)[0][framework])
    assert stage.shop.refunds == {7: 0, 8: 0}
    assert [event.code for event in played.events] == [None, "approval_rejected"]
    assert "rejected" in played.replies[0]


@pytest.mark.parametrize(
    ("arguments", "refunded"), [(["demo"], 4000), (["demo", "--yes"], 4000), (["demo", "--no"], 2000)]
)
def test_command(arguments: list[str], refunded: int) -> None:
    """`guarded demo` ends with the tables; without a terminal it takes --yes; --no refuses what is asked about."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "The audit trail" in result.output
    assert f"order 7: {refunded} cents" in result.output


def test_command_without_a_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a framework is missing the demo plays with the other, and says what to install; without any it ends."""
    monkeypatch.setitem(sys.modules, "llama_index.core", None)
    result = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert 'pip install "guarded-tools[llamaindex]"' in result.output
    assert "order 7: 2000 cents" in result.output
    monkeypatch.setitem(sys.modules, "langchain.agents", None)
    result = CliRunner().invoke(app, ["demo"], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert 'pip install "guarded-tools[langgraph]"' in result.output

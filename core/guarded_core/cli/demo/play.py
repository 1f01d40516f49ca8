"""``guarded demo``: two real agents, one guard, six scenes."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from guarded_core.approvals.approver import Approver
from guarded_core.approvals.callback import CallbackApprover
from guarded_core.approvals.console import ConsoleApprover
from guarded_core.audit.card import OUTCOMES
from guarded_core.audit.event import AuditEvent
from guarded_core.cli.demo.agents import agents
from guarded_core.cli.demo.scenes import SCENES, Played, Stage
from guarded_core.cli.demo.shop import Shop
from guarded_core.display import time_text, visible
from guarded_core.display.terminal import STYLES


def demo(
    yes: Annotated[bool | None, typer.Option("--yes/--no", help="Answer the approval instead of being asked.")] = None,
) -> None:
    """A LangChain and a LlamaIndex agent, driven by scripted models, meet the guard over a small shop's database."""
    console = _console()
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Shop(Path(folder) / "shop.db"), _approver(yes))
        cast, missing = agents(stage.tools, stage.guard)
        for line in missing:
            console.print(Text(line))
        if not cast:
            raise typer.Exit(1)
        played = [stage.play(scene, agent) for scene in SCENES for agent in cast]
        console.print(_results(played))
        console.print(_trail(stage.trail.events))
        console.print(_database(stage.shop))


def _console() -> Console:
    console = Console()
    # Rich takes a pipe for 80 columns wide, and a log that cuts its words short helps nobody.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=140)


def _approver(yes: bool | None) -> Approver:
    if yes is None and sys.stdin.isatty():
        return ConsoleApprover("you")
    answer = yes is not False
    return CallbackApprover(lambda request: answer, by="reviewer-9")


def _results(played: list[Played]) -> Table:
    table = Table(title="What the model tried, and what came of it", show_lines=True)
    for heading in ("Scene", "Framework", "The model calls", "What it reads"):
        table.add_column(heading, overflow="fold")
    for one in played:
        for number, ((tool, arguments), reply) in enumerate(zip(one.scene.tries, one.replies, strict=True)):
            call = f"{tool}({', '.join(f'{name}={value}' for name, value in arguments.items())})"
            first = number == 0
            table.add_row(one.scene.title if first else "", one.framework if first else "", call, Text(visible(reply)))
    return table


def _trail(events: list[AuditEvent]) -> Table:
    table = Table(title="The audit trail")
    for heading in ("Time", "Call", "Principal", "Tool", "Risk", "Outcome", "Code", "Approved by"):
        table.add_column(heading, overflow="fold")
    for event in events:
        outcome = Text(event.outcome.value, style=STYLES[OUTCOMES[event.outcome]])
        row = (time_text(event.time_ns)[11:19], event.call_id[:6], event.principal, event.tool, event.risk or "")
        table.add_row(*row, outcome, event.code or "", ", ".join(event.approved_by))
    return table


def _database(shop: Shop) -> str:
    refunds = ", ".join(f"order {order}: {cents} cents" for order, cents in shop.refunds.items())
    return f"In the database: refunded {refunds}; invoices left: {', '.join(map(str, shop.invoices))}."

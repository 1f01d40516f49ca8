"""The commands, put together."""

from __future__ import annotations

import typer

from guarded_core.cli import approvals, audit, policy
from guarded_core.cli.demo.play import demo

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a traceback must not print payloads
    help="Guarded tool calls for LLM agents.",
)
app.command()(demo)
app.add_typer(policy.app, name="policy")
app.add_typer(audit.app, name="audit")
app.add_typer(approvals.app, name="approvals")

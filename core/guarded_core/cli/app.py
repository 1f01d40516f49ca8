"""The commands, put together."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from guarded_core.cli import approvals, audit, policy
from guarded_core.cli.demo.play import demo

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a traceback must not print payloads
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"guarded-tools {version('guarded-tools')}")
        raise typer.Exit


@app.callback()
def guarded(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Guarded tool calls for LLM agents.

    Exit codes: 0 all is well; 1 something is wrong, denied or not as expected; 2 the command was typed wrongly, or (of
    policy explain) a person would be asked.
    """


app.command()(demo)
app.add_typer(policy.app, name="policy")
app.add_typer(audit.app, name="audit")
app.add_typer(approvals.app, name="approvals")

"""What commands write for programs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]


def write_json(document: Any) -> None:
    """Write one document, for programs; text in it is as it is, and nothing is folded."""
    typer.echo(json.dumps(document, indent=2))

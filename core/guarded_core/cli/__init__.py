"""The command line: ``guarded …``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; without its extra, say which one it needs."""
    try:
        from guarded_core.cli.app import app
    except ImportError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit('The command line needs an extra: pip install "guarded-tools[cli]"')
    app()

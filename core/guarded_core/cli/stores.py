"""A store that a command is given the URL of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from guarded_core.ground.errors import GuardConfigurationError, InvalidApproval, StoreUnavailable

if TYPE_CHECKING:
    from guarded_core.audit.chain import AuditKeys
    from guarded_core.store.sql import SqlStore


@contextmanager
def opened(url: str, keys: AuditKeys | None = None) -> Iterator[SqlStore]:
    """The store that exists at `url`; what goes wrong there ends the command with one line, without a password."""
    try:
        from guarded_core.store.sql import SqlStore  # first: it says which extra is missing
    except ImportError as error:
        fail(str(error))
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
            fail("there is no such store")  # opening would make an empty one
        with SqlStore.open(url, keys=keys) as store:
            yield store
    except (GuardConfigurationError, InvalidApproval, StoreUnavailable) as error:
        fail(str(error))
    except ArgumentError:
        fail("a store's URL is sqlite:///path or postgresql://…")  # its text quotes it, and that may be a password


def fail(message: str) -> NoReturn:
    """End the command with that line on the error output."""
    typer.echo(message, err=True)
    raise typer.Exit(1)

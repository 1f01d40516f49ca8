"""Where a trail is, for ``guarded audit``: in a file, or in a store's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.durable import FileTrail
from guarded_core.audit.repair import Repair, repair
from guarded_core.audit.trail import Trail
from guarded_core.cli import stores
from guarded_core.ground.errors import ToolAuditTrailError


def is_store(place: str) -> bool:
    """Whether the trail of that name is in a database."""
    return "://" in place


@contextmanager
def opened(place: str, keys: Path | None, first: int = 1) -> Iterator[Trail]:
    """The trail at that path or store URL; what goes wrong there ends the command with one line.

    Args:
        place: of the trail.
        keys: file of its keys.
        first: segment of a file, or writer of a store, to begin with.
    """
    with _told(place):
        found = AuditKeys.from_file(keys) if keys else None
        if is_store(place):
            with stores.opened(place, found) as store:
                yield store.trail(first_writer=first)
        else:
            yield FileTrail(place, found, first_segment=first)


def mended(place: str, keys: Path | None, *, by: str) -> Repair | None:
    """Mend the torn end of the file there; None where there is none."""
    with _told(place):
        return repair(place, AuditKeys.from_file(keys) if keys else None, by=by)


@contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except ToolAuditTrailError as error:
        # A URL may hold a password.
        named = error.path or ("the store" if is_store(place) else place)
        stores.fail(f"{named}: {error.code}: {str(error).removeprefix(f'{error.path}: ')}")

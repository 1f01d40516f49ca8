"""Mending a trail whose writer died in the middle of a line: nothing is thrown away, and the trail says so itself."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from dataclasses import dataclass
from os import PathLike

from guarded_core.audit import files
from guarded_core.audit.chain import AuditKeys, KeysLike, seal_for, signing_id
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.frames import encode_event, encode_frame
from guarded_core.audit.scan import Chain, load_head, scan
from guarded_core.ground.errors import ToolAuditTrailError

__all__ = ["Repair", "repair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What a repair did.

    Attributes:
        kept: name of the file, beside the trail, that holds the torn bytes.
        size: how many bytes they are.
        event: the event that records it, now the trail's last.
    """

    kept: str
    size: int
    event: AuditEvent


def repair(path: str | PathLike[str], keys: KeysLike = None, *, by: str = "") -> Repair | None:
    """Keep the torn last line of a trail aside in a file beside it, and record that as a Noted event in its place.

    All before it must verify: a trail that was changed or cut is evidence, and is not repaired.

    Args:
        path: the trail's, as it was opened; no writer may have it open.
        keys: as it was opened.
        by: who repairs; becomes the event's `approved_by`.

    Returns:
        What was done; None where no line is torn.

    Raises:
        ToolAuditTrailError: as `DurableToolAuditTrail.open`, "torn_tail" apart.
    """
    absolute, chain = files.trail_path(path), Chain(AuditKeys.of(keys))
    head = load_head(absolute)
    if head is None and not os.path.lexists(absolute):
        raise ToolAuditTrailError("no_trail", "there is no trail")
    if head is None:
        # A trail loses its last line only after its head was written.
        raise ToolAuditTrailError("head_missing", "the head beside the trail is gone: a cut could not be seen")
    fd = files.open_active(absolute, head.segment)
    try:
        for _ in scan(absolute, chain, first=head.segment, writing=True):
            pass
    except ToolAuditTrailError as error:
        if error.code != "torn_tail":
            raise
        chain.finish()
        with files.os_errors("write_failed", "the repair cannot be written"):
            return _replace_tail(fd, absolute, chain, by)
    finally:
        os.close(fd)
    return None


def _replace_tail(fd: int, path: str, chain: Chain, by: str) -> Repair:
    torn = files.read_from(fd, chain.end)
    event = AuditEvent(
        outcome=Outcome.NOTED,
        time_ns=time.time_ns(),
        call_id=f"repair-{secrets.token_hex(8)}",
        tool="audit_trail",
        code="trail_repaired",
        approved_by=(by,) if by else (),
        approval_reason=f"{len(torn)} bytes kept aside, SHA-256 {hashlib.sha256(torn).hexdigest()}",
    )
    key = signing_id(chain.keys)
    line, _ = encode_frame(chain.count + 1, key.encode(), encode_event(event), chain.digest, seal_for(chain.keys, key))
    kept = _keep(path, torn)
    # Where the head says closed, no record may follow before it says otherwise.
    files.replace_head(path, str(chain.head()))
    # Over the torn bytes, then cut: dying in between leaves a torn line again, and never a trail without the event.
    files.write_at(fd, chain.end, line)
    os.ftruncate(fd, chain.end + len(line))
    os.fsync(fd)
    return Repair(kept=kept, size=len(torn), event=event)


def _keep(path: str, torn: bytes) -> str:
    """Write the bytes to a new file beside the trail; its name."""
    number = 1
    while os.path.lexists(f"{path}.torn-{number}"):
        number += 1
    os.close(files.write_new(f"{path}.torn-{number}", torn))
    files.sync_directory(path)
    return os.path.basename(f"{path}.torn-{number}")

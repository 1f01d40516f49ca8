"""Reading a trail from its files: every record is verified on its way, in memory that does not grow with the trail."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from os import PathLike

from guarded_core.audit.chain import AuditKeys, Head, KeysLike
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.files import trail_path
from guarded_core.audit.frames import frame_event
from guarded_core.audit.reconcile import check_word, reconciled
from guarded_core.audit.scan import Chain, Progress, scan
from guarded_core.audit.trail import begun_only
from guarded_core.ground.wording import counted

__all__ = ["Verification", "read", "settled", "unsettled", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was verified.

    Attributes:
        records: how many.
        segments: in how many files.
        head: where the chain ends, sealed where the keys are given: keep it elsewhere, as an anchor for the next time.
        closed: whether the writer closed the trail there. Otherwise it is open, or its writer died: then a cut after
            `seen` records cannot be told from a crash.
        seen: records up to the head beside the trail.
    """

    records: int
    segments: int
    head: Head
    closed: bool
    seen: int

    @property
    def heads(self) -> tuple[Head, ...]:
        """The one head, as other trails have several."""
        return (self.head,)

    @property
    def lines(self) -> tuple[str, ...]:
        """What was found, for people."""
        intact = f"intact: {self.records:,} records in {counted(self.segments, 'segment')}"
        if self.closed:
            return (intact,)
        died = "not closed: it is being written, or its writer died"
        return (intact, f"{died}; a cut behind record {self.seen:,} would not show")


def verify(
    path: str | PathLike[str],
    keys: KeysLike = None,
    *,
    anchor: Head | Iterable[Head] | None = None,
    first_segment: int = 1,
    progress: Progress | None = None,
) -> Verification:
    """Check every byte of a trail: each record's place, length, key and content, the segments' links, and the heads.

    The events themselves are not parsed: `read` does that.

    Args:
        path: the trail's, as it was opened.
        keys: as it was opened, those of older records included.
        anchor: a head kept elsewhere, or several; the trail must contain their positions.
        first_segment: begin with this one, where the segments before it were archived.
        progress: called with bytes done and bytes in all.

    Raises:
        ToolAuditTrailError: with the code of what is wrong; see `guarded_core.audit.scan.scan`.
    """
    chain = Chain(AuditKeys.of(keys))
    for head in (anchor,) if isinstance(anchor, Head) else anchor or ():
        chain.expect(head)
    records = sum(len(lines) for lines in scan(trail_path(path), chain, first=first_segment, progress=progress))
    beside = chain.beside
    return Verification(
        records=records,
        segments=chain.segment - first_segment + 1,
        head=chain.head(),
        closed=beside is not None and beside.closed,
        seen=beside.count if beside else 0,
    )


def read(
    path: str | PathLike[str], keys: KeysLike = None, *, first_segment: int = 1, progress: Progress | None = None
) -> Iterator[tuple[int, AuditEvent]]:
    """Yield a trail's events with their numbers, from the first on. Arguments and errors are those of `verify`.

    A fault raises when the reading comes to it: what was yielded before is verified, what was cut from the end shows at
    the end.
    """
    return _events(Chain(AuditKeys.of(keys)), trail_path(path), first_segment, progress)


def _events(chain: Chain, path: str, first: int, progress: Progress | None) -> Iterator[tuple[int, AuditEvent]]:
    for lines in scan(path, chain, first=first, progress=progress):
        yield from enumerate(map(frame_event, lines), chain.count - len(lines) + 1)


def unsettled(
    path: str | PathLike[str], keys: KeysLike = None, *, first_segment: int = 1, progress: Progress | None = None
) -> tuple[AuditEvent, ...]:
    """The Authorized events that no Succeeded, Failed or Unknown follows, in order. Arguments are those of `verify`.

    After a crash these calls may have run or not: nobody knows but the systems they act on. On a trail that is being
    written, calls in flight are among them.
    """
    records = read(path, keys, first_segment=first_segment, progress=progress)
    return begun_only(event for _, event in records)


def settled(
    unsettled: Callable[[], Iterable[AuditEvent]], call_id: str, outcome: Outcome, *, by: str, reason: str, time_ns: int
) -> AuditEvent:
    """Deprecated: `Trail.reconcile` records it; this only makes the event.

    Raises ToolAuditTrailError: "invalid_event" for an outcome that is not one, or blank texts; "not_unsettled".
    """
    warnings.warn("guarded_core.audit.verify.settled is Trail.reconcile now", DeprecationWarning, stacklevel=2)
    outcome = check_word(outcome, by, reason)
    of_call = [event for event in unsettled() if event.call_id == call_id]
    return reconciled(of_call, outcome, by=by, reason=reason, time_ns=time_ns)

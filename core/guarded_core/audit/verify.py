"""Reading a trail from its files: every record is verified on its way, in memory that does not grow with the trail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike

from guarded_core.audit.chain import AuditKeys, Head, KeysLike
from guarded_core.audit.event import TERMINAL, AuditEvent, Outcome
from guarded_core.audit.files import trail_path
from guarded_core.audit.frames import frame_event
from guarded_core.audit.walk import Chain, Progress, walk
from guarded_core.ground.errors import ToolAuditTrailError

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


def verify(
    path: str | PathLike[str],
    keys: KeysLike = None,
    *,
    anchor: Head | None = None,
    first_segment: int = 1,
    progress: Progress | None = None,
) -> Verification:
    """Check every byte of a trail: each record's place, length, key and content, the segments' links, and the heads.

    The events themselves are not parsed: `read` does that.

    Args:
        path: the trail's, as it was opened.
        keys: as it was opened, those of older records included.
        anchor: a head kept elsewhere; the trail must contain its position.
        first_segment: begin with this one, where the segments before it were archived.
        progress: called with bytes done and bytes in all.

    Raises:
        ToolAuditTrailError: with the code of what is wrong; see `guarded_core.audit.walk.walk`.
    """
    chain = Chain(AuditKeys.of(keys))
    if anchor is not None:
        chain.expect(anchor)
    records = sum(len(lines) for lines in walk(trail_path(path), chain, first=first_segment, progress=progress))
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
    for lines in walk(path, chain, first=first, progress=progress):
        yield from enumerate(map(frame_event, lines), chain.count - len(lines) + 1)


def unsettled(
    path: str | PathLike[str], keys: KeysLike = None, *, first_segment: int = 1, progress: Progress | None = None
) -> tuple[AuditEvent, ...]:
    """The Authorized events that no Succeeded, Failed or Unknown follows, in order. Arguments are those of `verify`.

    After a crash these calls may have run or not: nobody knows but the systems they act on. On a trail that is being
    written, calls in flight are among them.
    """
    open_calls: dict[str, AuditEvent] = {}
    for _, event in read(path, keys, first_segment=first_segment, progress=progress):
        if event.outcome is Outcome.AUTHORIZED:
            open_calls[event.call_id] = event
        elif event.outcome.is_terminal:
            open_calls.pop(event.call_id, None)
    return tuple(open_calls.values())


def settled(
    unsettled: Callable[[], Iterable[AuditEvent]], call_id: str, outcome: Outcome, *, by: str, reason: str, time_ns: int
) -> AuditEvent:
    """The event that ends one of these calls as somebody found out: the Authorized one, with the code "reconciled".

    Raises ToolAuditTrailError: "invalid_event" for an outcome that is not one, or blank texts; "not_unsettled".
    """
    if outcome not in TERMINAL or not by.strip() or not reason.strip():
        raise ToolAuditTrailError("invalid_event", "settling takes a final outcome, who says so, and why")
    for event in unsettled():
        if event.call_id == call_id:
            return replace(
                event,
                outcome=Outcome(outcome),
                time_ns=time_ns,
                code="reconciled",
                approved_by=(by,),
                approval_reason=reason,
            )
    raise ToolAuditTrailError("not_unsettled", "no call of that id waits for an outcome")

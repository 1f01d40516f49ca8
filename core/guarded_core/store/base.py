"""What a store keeps, and the few atomic things it does.

A call loads one `Snapshot`, is judged by it, and commits one `Change`; the commit checks everything again, and takes
all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Literal, Protocol

from guarded_core.approvals.decisions import RequestStore
from guarded_core.approvals.grant import Grant, GrantUse
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.trail import Trail
from guarded_core.ground.struct import struct
from guarded_core.provenance.journal import Lookup, Recalled, Row
from guarded_core.rules.case import Reservation, Window
from guarded_core.store.ledger import CallState, LedgerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A budget that a call spends one of.

    Attributes:
        key: its name in the store.
        limit: how many may be spent at most.
    """

    key: str
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A named session as it is stored with all that bounds it, so that another process can pick it up.

    Attributes:
        id: its name, prefixed with the principal.
        principal: whose it is.
        tools: the tools it may call.
        max_calls: how many calls it may make.
        tool_calls: by tool, how many of these may be its.
        narrow: by tool and parameter, the only values that it may have: JSON.
    """

    id: str
    principal: str
    tools: frozenset[str]
    max_calls: int
    tool_calls: Mapping[str, int] = field(default_factory=dict)
    narrow: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)


@struct
class Query:
    """What a judgement needs to know.

    Attributes:
        principal: whose calls of unknown outcome are read: the whole chain, see `caller_key`.
        session_id: whose approval requests are read.
        root_id: the root session of the delegation chain, whose flags and denials count.
        tool: for which tool requests are read.
        counters: keys whose use is read.
        windows: whose sums are read.
        people: in whose names the call is made; whether all their sessions were ended is read.
        opens: named sessions that this is the first step of: each is kept, where no session of its id is.
        call_key: the ledger key of the call, where it has one.
        grants: whether grants to the principal for the tool are read.
        memory: what is read and kept of where the session's values came from.
    """

    principal: str
    session_id: str
    root_id: str
    tool: str
    counters: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    people: tuple[str, ...] = ()
    opens: tuple[SessionRecord, ...] = ()
    call_key: str | None = None
    grants: bool = False
    memory: Lookup | None = None


@struct
class Snapshot:
    """One consistent reading of a store.

    Attributes:
        now_ns: the store's clock, ns since the epoch.
        spent: what each counter has spent; a missing one is 0.
        used: the sum in each window by key; a missing one is 0.
        flags: of the session tree.
        requests: the session's requests for the tool that are pending, approved or rejected, oldest first.
        entry: the ledger's entry of the call.
        refused: the request about this very call that a person refused, answered or took back, however long ago.
        doubtful: the caller's calls of this tool of which nobody knows what they did, UNKNOWN or RAISED, by digest.
        denials: how many of the session tree's calls were denied so far.
        grants: those in force for the principal and the tool, oldest first.
        ended_ns: when all sessions of one of the people were ended last, 0 for never.
        sessions: what the store keeps of those that the query opens, by id.
        memory: what it has of the session's memory; None where it keeps none, or was not asked.
    """

    now_ns: int
    spent: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, Decimal] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    requests: tuple[ApprovalRequest, ...] = ()
    entry: LedgerEntry | None = None
    refused: ApprovalRequest | None = None
    doubtful: Mapping[str, CallState] = field(default_factory=dict)
    denials: int = 0
    grants: tuple[Grant, ...] = ()
    ended_ns: int = 0
    sessions: Mapping[str, SessionRecord] = field(default_factory=dict)
    memory: Recalled | None = None


@struct
class EffectClaim:
    """An effect that a call claims.

    Attributes:
        key: its name, see `EffectKey.key`.
        supersedes: the call_id of the call that held it, and frees it; None where none did.
    """

    key: str
    supersedes: str | None = None


@struct
class Change:
    """Everything an allowed call takes, at once.

    Attributes:
        event: the Authorized event; a store that keeps the trail writes it in the same transaction.
        root_id: the root session, which flags are raised on.
        counters: spend one of each.
        reservation: window slots to take, flags to raise, flags that must be absent.
        requests: approved requests to consume, as they were read; each must still be that version.
        grant: what to take from a grant; it must be in force, and have that much left.
        claim: ledger entry to claim; its key may not be claimed by another call.
        supersedes: the call_id of the entry that `claim` takes over: not executed or suspended, and still so.
        effect: the effect that the call of `claim` has, which no other call may hold.
    """

    event: AuditEvent
    root_id: str
    counters: tuple[Counter, ...] = ()
    reservation: Reservation = field(default_factory=Reservation)
    requests: tuple[ApprovalRequest, ...] = ()
    grant: GrantUse | None = None
    claim: LedgerEntry | None = None
    supersedes: str | None = None
    effect: EffectClaim | None = None


@struct
class Settlement:
    """How a call ended.

    Attributes:
        event: the terminal event, or Suspended; a store that keeps the trail writes it in the same transaction.
        claimed: whether the call holds a ledger claim, to move to `state`.
        state: what the ledger says from now on.
        claim: for a call that has none and is paused: what to claim now, in that state.
        output: JSON of the result or error, kept for replays.
        keep_ns: how long `output` is kept.
        memory: rows of the session's memory to keep with it; one that is there already stays as it is.
    """

    event: AuditEvent
    claimed: bool
    state: CallState
    claim: LedgerEntry | None = None
    output: Any = None
    keep_ns: int = 0
    memory: tuple[Row, ...] = ()


Conflicting = Literal["counter", "slot", "flag", "request", "grant", "claim", "effect"]


class Conflict(Exception):
    """A commit did not fit any more: somebody else was first. Nothing was taken.

    Attributes:
        what: which part did not fit.
        name: its key or name: the counter's key, the slot's rule, the flag, the request's or grant's id, the
            claim's or effect's key.
    """

    def __init__(self, what: Conflicting, name: str) -> None:
        super().__init__(f"{what} conflict")
        self.what = what
        self.name = name


class TooManyRequests(Exception):
    """The session has as many requests pending as it may."""


class Store(RequestStore, Protocol):
    """Keeps what calls spend. Every method is atomic, and safe to call from several threads.

    Any exception but those named is taken as: the store is not available, deny. A store of one's own derives from this
    class: `trail`, `forget`, `forget_memory` and `close` do nothing by default. One that keeps no memory of where
    values came from leaves `Snapshot.memory` None: what a session saw in another process is then unknown.
    """

    @property
    def blocking(self) -> bool:
        """Whether calls may wait for a disk or a network; then asyncio calls it in a worker thread."""

    @property
    def keeps_trail(self) -> bool:
        """Whether its own event table is the audit trail."""

    def trail(self) -> Trail | None:
        """The trail that it keeps, to be read; None where it keeps none."""
        return None

    def forget(self, session_id: str, counters: Iterable[str]) -> None:
        """Let go of a session that nobody can pick up again, and of these counters of its own.

        The garbage collector calls it, maybe in the middle of another method: it must take no lock.
        """
        return None

    def forget_memory(self, principal: str) -> None:
        """Delete what is kept of where the values of that person's sessions came from."""
        return None

    def close(self) -> None:
        """Let go of what the store holds open; no call may be under way, and none may follow."""
        return None

    def open_session(self, session: SessionRecord) -> SessionRecord:
        """Keep a new session, or return the stored one of that id; the caller compares the two."""

    def load(self, query: Query) -> Snapshot:
        """Read what `query` asks for, all at one moment; its sessions are opened with it, in the same round trip."""

    def end_sessions(self, principal: str) -> int:
        """Keep that all sessions of that person end now, by this store's clock: the time, in ns since the epoch."""

    def commit(self, change: Change) -> None:
        """Take everything in `change`. Raises Conflict, and has then taken nothing."""

    def release(self, change: Change) -> None:
        """Give back what `commit` took, for a call that never started.

        A store that keeps the trail has written Authorized; it writes the terminal Failed event with code
        "audit_unavailable" beside it.
        """

    def settle(self, settlement: Settlement) -> None:
        """Record how a committed call ended. Raises Conflict where another call has the claim; then nothing is kept."""

    def deny(self, event: AuditEvent, root_id: str, call_key: str | None = None) -> int:
        """Count a denial for the session tree, and return how many equal ones (`denial_key`) there are now.

        One call, by its ledger key, is denied once for each code: 0 where it was before, and nothing is counted again.
        A store that keeps the trail writes `event` with that count, where `is_recorded` says so.
        """

    def record(self, event: AuditEvent) -> None:
        """Write an event to the trail of a store that keeps one; otherwise nothing."""

    def entry(self, call_id: str) -> LedgerEntry | None:
        """The ledger's entry of that call."""

    def add_request(self, request: ApprovalRequest, *, max_pending: int) -> None:
        """Keep a new request. Raises TooManyRequests where the session has `max_pending` live pending ones."""


# A double's digits reach from 10^308 to 10^-1074. What does not fit raises: a rounded sum is not a sum.
_EXACT = Context(prec=2000, traps=[Inexact, InvalidOperation, Overflow])


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """The sum without rounding. Raises decimal.DecimalException where there is none."""
    total = Decimal(0)
    for amount in amounts:
        total = _EXACT.add(total, amount)
    return total


def denial_key(event: AuditEvent) -> tuple[str, str]:
    """What makes two denials of a session equal: code, and tool where it is a registered one.

    Names that a model makes up are counted as one, so that they cannot fill a store or a trail.
    """
    return (event.tool if event.fingerprint else "", event.code or "")


def is_recorded(count: int) -> bool:
    """Whether the `count`-th equal denial of a session is written: the first eight, then each doubling.

    Denials are free, so a loop of them must not fill a trail; the event's count says how many it stands for.
    """
    return count <= 8 or count & (count - 1) == 0

"""The store in memory: exact under threads and tasks, gone with the process."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from typing import ClassVar

from guarded_core.approvals.grant import Grant, GrantUse
from guarded_core.approvals.request import ApprovalRequest, RequestState
from guarded_core.audit.event import AuditEvent
from guarded_core.rules.case import Slot, Window
from guarded_core.store.base import (
    Change,
    Conflict,
    Query,
    SessionRecord,
    Settlement,
    Snapshot,
    TooManyRequests,
    denial_key,
    exact_sum,
)
from guarded_core.store.ledger import CallState, LedgerEntry, caller_key
from guarded_core.store.memories import Memories

_OPEN = (RequestState.PENDING, RequestState.APPROVED, RequestState.REJECTED)
_MIN_SWEPT = 1024


class _Taken:
    """What was taken from one window: when, how much and by which call, oldest first; and the sum of it."""

    __slots__ = ("entries", "longest_ns", "total")

    def __init__(self) -> None:
        self.entries: deque[tuple[int, Decimal, str]] = deque()
        self.longest_ns = 0
        self.total = Decimal(0)

    def take(self, slot: Slot, now_ns: int, call_id: str) -> None:
        self.entries.append((now_ns, slot.amount, call_id))
        self.longest_ns = max(self.longest_ns, slot.window.interval_ns)
        self.total = exact_sum([self.total, slot.amount])

    def give_back(self, call_id: str) -> None:
        self.entries = deque(taken for taken in self.entries if taken[2] != call_id)
        self.total = exact_sum(amount for _, amount, _ in self.entries)

    def used(self, interval_ns: int, now_ns: int) -> Decimal:
        entries = self.entries
        while entries and entries[0][0] <= now_ns - interval_ns:
            self.total = exact_sum([self.total, -entries.popleft()[1]])
        return self.total

    def is_over(self, now_ns: int) -> bool:
        return not self.entries or self.entries[-1][0] <= now_ns - self.longest_ns


class MemoryStore:
    """Keeps everything in dicts under one lock.

    What belongs to a session without a name goes with it, windows and requests go when they are over. What stays as
    long as the process: named sessions, and the ledger, since a call must not run twice however late it comes again.

    Args:
        clock: ns since the epoch, for tests; defaults to `time.time_ns`.
    """

    blocking: ClassVar[bool] = False
    keeps_trail: ClassVar[bool] = False

    def __init__(self, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spent: defaultdict[str, int] = defaultdict(int)
        self._windows: defaultdict[str, _Taken] = defaultdict(_Taken)
        self._flags: defaultdict[str, dict[str, str]] = defaultdict(dict)
        self._requests: dict[str, ApprovalRequest] = {}
        self._by_session: defaultdict[str, dict[str, None]] = defaultdict(dict)  # in order
        self._grants: dict[str, Grant] = {}
        self._ledger: dict[str, LedgerEntry] = {}
        self._claims: dict[str, str] = {}
        self._refused: dict[str, ApprovalRequest] = {}
        self._doubtful: defaultdict[tuple[str, str], dict[str, LedgerEntry]] = defaultdict(dict)
        self._outputs: deque[tuple[int, str]] = deque()
        self._denied: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        self._denials: defaultdict[str, defaultdict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))
        self._sessions: dict[str, SessionRecord] = {}
        self._memories = Memories()
        self._ended: dict[str, int] = {}
        self._gone: deque[tuple[str, Iterable[str]]] = deque()
        self._sweep_at = _MIN_SWEPT

    def now_ns(self) -> int:
        """The clock, ns since the epoch."""
        return self._clock()

    def open_session(self, session: SessionRecord) -> SessionRecord:
        """Keep a new session, or return the stored one of that id."""
        with self._lock:
            self._forget_gone()
            return self._sessions.setdefault(session.id, session)

    def forget(self, session_id: str, counters: Iterable[str]) -> None:
        """Let go of a session that nobody can pick up again, and of these counters of its own.

        The garbage collector calls it, maybe in the middle of another method: no lock is taken until the next session.
        """
        self._gone.append((session_id, counters))

    def load(self, query: Query) -> Snapshot:
        """Read what `query` asks for, all at one moment."""
        with self._lock:
            self._forget_gone()
            now_ns = self._clock()
            spent, flags, denials = self._spent, self._flags.get(query.root_id), self._denials.get(query.root_id)
            return Snapshot(
                now_ns=now_ns,
                spent={key: spent.get(key, 0) for key in query.counters},
                used={window.key: self._used(window, now_ns) for window in query.windows},
                flags=frozenset(flags) if flags else frozenset(),
                requests=self._open_requests(query.session_id, query.tool)
                if query.session_id in self._by_session
                else (),
                entry=self._entry(query.call_key, now_ns) if query.call_key else None,
                refused=self._refused.get(query.call_key) if query.call_key else None,
                doubtful=self._doubts(query.principal, query.tool),
                denials=sum(denials.values()) if denials else 0,
                grants=self._grants_for(query, now_ns) if query.grants else (),
                ended_ns=max([self._ended.get(name, 0) for name in query.people], default=0) if self._ended else 0,
                sessions={new.id: self._sessions.setdefault(new.id, new) for new in query.opens},
                memory=None if query.memory is None else self._memories.answer(query.memory),
            )

    def end_sessions(self, principal: str) -> int:
        """Keep that all sessions of that person end now: the time, in ns since the epoch."""
        with self._lock:
            self._ended[principal] = self._clock()
            return self._ended[principal]

    def forget_memory(self, principal: str) -> None:
        """Delete what is kept of where the values of that person's sessions came from."""
        with self._lock:
            self._memories.drop(principal)

    def commit(self, change: Change) -> None:
        """Take everything in `change`. Raises Conflict, and has then taken nothing."""
        with self._lock:
            now_ns = self._clock()
            self._check(change, now_ns)
            self._take(change, now_ns)

    def release(self, change: Change) -> None:
        """Give back what `commit` took, for a call that never started."""
        call_id = change.event.call_id
        with self._lock:
            for counter in change.counters:
                self._spent[counter.key] -= 1
            for slot in change.reservation.slots:
                self._windows[slot.window.key].give_back(call_id)
            flags = self._flags[change.root_id]
            for flag in change.reservation.raises:
                if flags.get(flag) == call_id:
                    del flags[flag]
            for request in change.requests:
                self._requests[request.id] = replace(request, version=request.version + 2)
            if change.grant is not None and (granted := self._grants.get(change.grant.grant.id)) is not None:
                self._grants[granted.id] = granted.before(change.grant)
            if change.claim is not None and change.supersedes == call_id:
                self._ledger[call_id] = replace(change.claim, state=CallState.SUSPENDED)
            elif change.claim is not None:
                self._unclaim(change.claim)
            if change.effect is not None and self._claims.get(change.effect.key) == call_id:
                del self._claims[change.effect.key]

    def settle(self, settlement: Settlement) -> None:
        """Record how a committed call ended. Raises Conflict where another call has the claim; then nothing is kept."""
        with self._lock:
            if settlement.claim is not None:
                self._check_claim(settlement.claim, None)
                self._keep_claim(replace(settlement.claim, state=settlement.state))
            self._memories.add(settlement.memory)
            if not settlement.claimed:
                return
            entry = self._ledger.get(settlement.event.call_id)
            if entry is None:
                return  # released, or never claimed: then there is nothing to move
            now_ns = self._clock()
            expires_ns = now_ns + settlement.keep_ns if settlement.keep_ns else 0
            if expires_ns:
                self._outputs.append((expires_ns, entry.call_id))
            self._drop_outputs(now_ns)
            entry = replace(entry, state=settlement.state, output=settlement.output, expires_ns=expires_ns)
            self._ledger[entry.call_id] = entry
            doubtful = self._doubtful[entry.caller, entry.tool]
            doubtful.pop(entry.call_id, None)
            if entry.state in (CallState.UNKNOWN, CallState.RAISED):
                doubtful[entry.call_id] = replace(entry, arguments=None, output=None)
            elif not doubtful:
                del self._doubtful[entry.caller, entry.tool]

    def deny(self, event: AuditEvent, root_id: str, call_key: str | None = None) -> int:
        """Count a denial for the session tree, and return how many equal ones there are now; 0 for a repetition."""
        with self._lock:
            if call_key is not None:
                denied = (call_key, event.code or "")
                if denied in self._denied[root_id]:
                    return 0
                self._denied[root_id].add(denied)
            counts, key = self._denials[root_id], denial_key(event)
            counts[key] += 1
            return counts[key]

    def record(self, event: AuditEvent) -> None:
        """Nothing: this store keeps no trail."""

    def close(self) -> None:
        """Nothing: this store holds nothing open."""

    def trail(self) -> None:
        """None: this store keeps no trail."""

    def entry(self, call_id: str) -> LedgerEntry | None:
        """The ledger's entry of that call."""
        with self._lock:
            return self._ledger.get(call_id)

    def add_request(self, request: ApprovalRequest, *, max_pending: int) -> None:
        """Keep a new request. Raises TooManyRequests where the session has `max_pending` live pending ones."""
        with self._lock:
            now_ns = self._clock()
            if request.state is RequestState.PENDING:
                others = (self._requests[request_id] for request_id in self._by_session[request.session_id])
                pending = sum(other.state is RequestState.PENDING and other.is_live(now_ns) for other in others)
                if pending >= max_pending:
                    raise TooManyRequests
            self._keep(request)
            self._sweep(now_ns)

    def request(self, request_id: str) -> ApprovalRequest | None:
        """The request of that id."""
        with self._lock:
            return self._requests.get(request_id)

    def requests(self, *, session_id: str | None = None, state: RequestState | None = None) -> list[ApprovalRequest]:
        """All requests of a session, or of all, oldest first."""
        with self._lock:
            found = list(self._requests.values()) if session_id is None else self._of_session(session_id)
        return [request for request in found if state is None or request.state is state]

    def replace_request(self, old: ApprovalRequest, new: ApprovalRequest, added: ApprovalRequest | None = None) -> bool:
        """Put `new` where `old` is, if it still is, and keep `added` too; compare by id and version."""
        with self._lock:
            current = self._requests.get(old.id)
            if current is None or current.version != old.version:
                return False
            self._requests[old.id] = new
            if new.is_refused and new.call_key is not None:
                self._refused.setdefault(new.call_key, new)
            if added is not None:
                self._keep(added)
            return True

    def grant(self, grant_id: str) -> Grant | None:
        """The grant of that id, with what calls have used of it."""
        with self._lock:
            return self._grants.get(grant_id)

    def grants(self) -> list[Grant]:
        """All grants that have not expired, oldest first."""
        with self._lock:
            now_ns = self._clock()
            return [granted for granted in self._grants.values() if now_ns < granted.expires_ns]

    def add_grant(self, grant: Grant) -> None:
        """Keep a new grant."""
        with self._lock:
            self._grants[grant.id] = grant
            self._sweep(self._clock())

    def replace_grant(self, old: Grant, new: Grant) -> bool:
        """Put `new` where `old` is, if it still is, but for what calls have used; compare by id and version."""
        with self._lock:
            current = self._grants.get(old.id)
            if current is None or current.version != old.version:
                return False
            self._grants[old.id] = replace(new, used=current.used, spent=current.spent)
            return True

    # The rest runs under the lock.

    def _check(self, change: Change, now_ns: int) -> None:
        for counter in change.counters:
            if self._spent.get(counter.key, 0) >= counter.limit:
                raise Conflict("counter", counter.key)
        taken: defaultdict[str, list[Decimal]] = defaultdict(list)  # two rules may take from one window
        for slot in change.reservation.slots:
            taken[slot.window.key].append(slot.amount)
            if exact_sum([self._used(slot.window, now_ns), *taken[slot.window.key]]) > slot.limit:
                raise Conflict("slot", slot.rule)
        flags = self._flags.get(change.root_id, {})
        for flag in change.reservation.forbids:
            if flag in flags:
                raise Conflict("flag", flag)
        for request in change.requests:
            current = self._requests.get(request.id)
            usable = current is not None and current.state is RequestState.APPROVED and current.is_live(now_ns)
            if current is None or not usable or current.version != request.version:
                raise Conflict("request", request.id)
        if change.grant is not None:
            self._after(change.grant, now_ns)
        if change.claim is not None:
            self._check_claim(change.claim, change.supersedes)
        if change.effect is not None and self._claims.get(change.effect.key) not in (None, change.effect.supersedes):
            raise Conflict("effect", change.effect.key)

    def _take(self, change: Change, now_ns: int) -> None:
        call_id = change.event.call_id
        for counter in change.counters:
            self._spent[counter.key] += 1
        for slot in change.reservation.slots:
            self._windows[slot.window.key].take(slot, now_ns, call_id)
            self._sweep(now_ns)
        if change.reservation.raises:
            flags = self._flags[change.root_id]
            for flag in change.reservation.raises:
                flags.setdefault(flag, call_id)
        for request in change.requests:
            self._requests[request.id] = request.moved(RequestState.CONSUMED)
        if change.grant is not None:
            self._grants[change.grant.grant.id] = self._after(change.grant, now_ns)
        if change.claim is not None:
            self._keep_claim(change.claim)
        if change.effect is not None:
            self._claims[change.effect.key] = call_id

    def _check_claim(self, claim: LedgerEntry, supersedes: str | None) -> None:
        held_by = self._claims.get(claim.key)
        if held_by is not None and not self._gives_way(held_by, supersedes):
            raise Conflict("claim", claim.key)

    def _keep_claim(self, claim: LedgerEntry) -> None:
        self._ledger[claim.call_id] = claim
        self._claims[claim.key] = claim.call_id

    def _gives_way(self, call_id: str, supersedes: str | None) -> bool:
        return call_id == supersedes and self._ledger[call_id].state in (CallState.NOT_EXECUTED, CallState.SUSPENDED)

    def _used(self, window: Window, now_ns: int) -> Decimal:
        taken = self._windows.get(window.key)
        return Decimal(0) if taken is None else taken.used(window.interval_ns, now_ns)

    def _of_session(self, session_id: str) -> list[ApprovalRequest]:
        return [self._requests[request_id] for request_id in self._by_session.get(session_id, ())]

    def _open_requests(self, session_id: str, tool: str) -> tuple[ApprovalRequest, ...]:
        requests = self._of_session(session_id)
        return tuple(request for request in requests if request.tool == tool and request.state in _OPEN)

    def _after(self, use: GrantUse, now_ns: int) -> Grant:
        granted = self._grants.get(use.grant.id)
        after = granted.after(use) if granted is not None and granted.is_live(now_ns) else None
        if after is None:
            raise Conflict("grant", use.grant.id)
        return after

    def _grants_for(self, query: Query, now_ns: int) -> tuple[Grant, ...]:
        found = [granted for granted in self._grants.values() if granted.tool == query.tool and granted.is_live(now_ns)]
        return tuple(granted for granted in found if caller_key(granted.chain) == query.principal)

    def _entry(self, key: str, now_ns: int) -> LedgerEntry | None:
        call_id = self._claims.get(key)
        if call_id is None:
            return None
        entry = self._ledger[call_id]
        return entry if entry.output is None or entry.expires_ns > now_ns else replace(entry, output=None)

    def _doubts(self, caller: str, tool: str) -> dict[str, CallState]:
        found = self._doubtful.get((caller, tool))
        # Of two equal calls, that one counts of which less is known.
        worst_last = sorted(found.values(), key=lambda entry: entry.state is CallState.UNKNOWN) if found else ()
        return {entry.digest: entry.state for entry in worst_last}

    def _unclaim(self, claim: LedgerEntry) -> None:
        self._ledger.pop(claim.call_id, None)
        if self._claims.get(claim.key) == claim.call_id:
            del self._claims[claim.key]

    def _forget_gone(self) -> None:
        while self._gone:
            session_id, counters = self._gone.popleft()
            for key in counters:
                self._spent.pop(key, None)
            for kept in (self._sessions, self._flags, self._denials, self._denied):
                kept.pop(session_id, None)
            for request in self._of_session(session_id):
                if request.state is not RequestState.PENDING:
                    self._drop(request)

    def _sweep(self, now_ns: int) -> None:
        """Drop what is over, when there is twice as much as the last time was left: each call pays the same share."""
        if len(self._windows) + len(self._requests) + len(self._grants) < self._sweep_at:
            return
        for key in [key for key, taken in self._windows.items() if taken.is_over(now_ns)]:
            del self._windows[key]
        for request in [request for request in self._requests.values() if not request.is_live(now_ns)]:
            self._drop(request)
        for granted in [granted for granted in self._grants.values() if granted.expires_ns <= now_ns]:
            del self._grants[granted.id]
        self._sweep_at = max(_MIN_SWEPT, 2 * (len(self._windows) + len(self._requests) + len(self._grants)))

    def _keep(self, request: ApprovalRequest) -> None:
        self._requests[request.id] = request
        self._by_session[request.session_id][request.id] = None

    def _drop(self, request: ApprovalRequest) -> None:
        del self._requests[request.id]
        of_session = self._by_session[request.session_id]
        del of_session[request.id]
        if not of_session:
            del self._by_session[request.session_id]

    def _drop_outputs(self, now_ns: int) -> None:
        while self._outputs and self._outputs[0][0] <= now_ns:
            entry = self._ledger.get(self._outputs.popleft()[1])
            if entry is not None and entry.output is not None and entry.expires_ns <= now_ns:
                self._ledger[entry.call_id] = replace(entry, output=None)

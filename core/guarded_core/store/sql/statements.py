"""The statements of a SQL store, each built once: SQLAlchemy then finds the compiled text by the object.

Whatever must hold under concurrency is in a statement's own condition, or follows a lock that a statement took.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Executable,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)

from guarded_core.approvals.grant import GrantState
from guarded_core.approvals.request import RequestState
from guarded_core.store.ledger import CallState
from guarded_core.store.sql.clock import now_ns
from guarded_core.store.sql.tables import (
    OPEN_ENTRY,
    claims,
    counters,
    denials,
    denied_calls,
    ended,
    events,
    flags,
    grants,
    is_one_of,
    ledger,
    memories,
    requests,
    sessions,
    slots,
    windows,
    writers,
)

# A claim without an outcome for so long was left by a process that died: whether the call ran is unknown.
ABANDONED_NS = 15 * 60 * 1_000_000_000

_OPEN_REQUEST = is_one_of(requests.c.state, RequestState.PENDING, RequestState.APPROVED, RequestState.REJECTED)


class Statements:
    """The statements that depend on the dialect's INSERT, and with them all others that write.

    Args:
        upsert: the dialect's own `insert`, which knows ON CONFLICT.
        locks: whether transactions run beside each other.
    """

    def __init__(self, upsert: Callable[..., Any], *, locks: bool) -> None:
        # No row comes back where the budget is spent; two spenders of the last one wait for each other.
        self.spend = (
            upsert(counters)
            .values(key=bindparam("key"), spent=1)
            .on_conflict_do_update(
                index_elements=["key"],
                set_={"spent": counters.c.spent + 1},
                where=counters.c.spent < bindparam("limit"),
            )
            .returning(counters.c.spent)
        )
        # Changes nothing, and holds the row until the transaction ends.
        self.hold_window = (
            upsert(windows)
            .values(key=bindparam("key"), total="0", until_ns=0)
            .on_conflict_do_update(index_elements=["key"], set_={"until_ns": windows.c.until_ns})
            .returning(windows.c.total, now_ns())
        )
        self.raise_flag = upsert(flags).on_conflict_do_nothing()
        # No row comes back where another call than the superseded one holds the key.
        self.claim = (
            upsert(claims)
            .values(key=bindparam("key"), call_id=bindparam("call_id"))
            .on_conflict_do_update(
                index_elements=["key"],
                set_={"call_id": bindparam("call_id")},
                where=claims.c.call_id == bindparam("supersedes", type_=Text),
            )
            .returning(claims.c.call_id)
        )
        self.count_denial = (
            upsert(denials)
            .values(root_id=bindparam("root_id"), tool=bindparam("tool"), code=bindparam("code"), count=1)
            .on_conflict_do_update(index_elements=["root_id", "tool", "code"], set_={"count": denials.c.count + 1})
        )
        # No row comes back where an earlier call under this key was denied so; a transaction tried again passes.
        self.deny_call = (
            upsert(denied_calls)
            .values(call_key=bindparam("call_key"), code=bindparam("code"), call_id=bindparam("call_id"))
            .on_conflict_do_update(
                index_elements=["call_key", "code"],
                set_={"call_id": denied_calls.c.call_id},
                where=denied_calls.c.call_id == bindparam("call_id"),
            )
            .returning(denied_calls.c.call_id)
        )
        # No row comes back where the event, or another known end of the call, is written already.
        self.append = upsert(events).on_conflict_do_nothing().returning(events.c.seq)
        self.remember = _remember(upsert, locks=locks)
        self.open_session = upsert(sessions).on_conflict_do_nothing().returning(sessions.c.id)
        ending = upsert(ended).values(principal=bindparam("principal"), at_ns=now_ns())
        self.end_sessions = ending.on_conflict_do_update(
            index_elements=[ended.c.principal], set_={"at_ns": ending.excluded.at_ns}
        ).returning(ended.c.at_ns)


def _remember(upsert: Callable[..., Any], *, locks: bool) -> Executable:
    """Keeps a row of a session's memory, unless it is there: `n` grows in the order of commits."""
    columns = ("session_id", "principal", "writer", "number", "sealed")
    values: dict[str, ColumnElement[Any]] = {name: bindparam(name, type_=memories.c[name].type) for name in columns}
    values["at_ns"] = now_ns()
    if not locks:
        remember: Executable = upsert(memories).values(values).on_conflict_do_nothing()
        return remember
    # A row of a lower number that is committed later would never be read: one transaction a session at a time, and the
    # number is drawn after the lock was taken.
    lock = func.pg_advisory_xact_lock(func.hashtextextended("guarded memory " + bindparam("session_id", type_=Text), 0))
    held = select(lock.label("held")).cte("held").prefix_with("MATERIALIZED")
    row = select(*values.values()).select_from(held)
    remember = upsert(memories).from_select(list(values), row).on_conflict_do_nothing()
    return remember


unspend = (
    update(counters).where(counters.c.key == bindparam("of"), counters.c.spent > 0).values(spent=counters.c.spent - 1)
)

expire_slots = (
    delete(slots)
    .where(slots.c.window == bindparam("of"), slots.c.at_ns <= bindparam("until_ns"))
    .returning(slots.c.amount)
)
take_slot = insert(slots)
return_slots = (
    delete(slots).where(slots.c.window == bindparam("of"), slots.c.call_id == bindparam("by")).returning(slots.c.amount)
)
set_total = update(windows).where(windows.c.key == bindparam("of"))

raised_flags = select(flags.c.flag).where(
    flags.c.root_id == bindparam("root_id"), flags.c.flag.in_(bindparam("names", expanding=True))
)
lower_flag = delete(flags).where(
    flags.c.root_id == bindparam("of"), flags.c.flag == bindparam("name"), flags.c.call_id == bindparam("by")
)

add_request = insert(requests)
pending_requests = select(func.count()).where(
    requests.c.session_id == bindparam("session_id"),
    requests.c.state == RequestState.PENDING.value,
    requests.c.expires_ns > now_ns(),
)
consume_request = (
    update(requests)
    .where(
        requests.c.id == bindparam("of"),
        requests.c.version == bindparam("was"),
        requests.c.state == RequestState.APPROVED.value,
        requests.c.expires_ns > now_ns(),
    )
    .values(state=RequestState.CONSUMED.value, version=requests.c.version + 1)
)
# What a person refused is kept like a claim, by the key of the call that it was about.
_REFUSED = "refused "
refused_requests = select(claims.c.call_id).where(claims.c.key.startswith(_REFUSED))


def refused_key(call_key: str) -> str:
    """Where a refused request about the call of that key is found."""
    return _REFUSED + call_key


add_grant = insert(grants)
replace_grant = update(grants).where(grants.c.id == bindparam("of"), grants.c.version == bindparam("was"))
# Holds the row until the transaction ends. No row comes back where the grant is over.
hold_grant = (
    update(grants)
    .where(
        grants.c.id == bindparam("of"),
        grants.c.state == GrantState.LIVE.value,
        grants.c.expires_ns > now_ns(),
    )
    .values(used=grants.c.used + 1)
    .returning(grants)
)
return_grant = update(grants).where(grants.c.id == bindparam("of")).values(used=grants.c.used - 1).returning(grants)
keep_spent = update(grants).where(grants.c.id == bindparam("of"))
grant_by_id = select(grants).where(grants.c.id == bindparam("id"))
grants_in_order = select(grants).where(grants.c.expires_ns > now_ns()).order_by(grants.c.n)

replace_request = update(requests).where(requests.c.id == bindparam("of"), requests.c.version == bindparam("was"))

keep_entry = insert(ledger).values(claimed_ns=now_ns())
# No row comes back where another process has gone on with the paused call.
resume_entry = (
    update(ledger)
    .where(ledger.c.call_id == bindparam("of"), ledger.c.state == CallState.SUSPENDED.value)
    .values(state=CallState.CLAIMED.value, claimed_ns=now_ns())
    .returning(ledger.c.call_id)
)
pause_entry = update(ledger).where(ledger.c.call_id == bindparam("of")).values(state=CallState.SUSPENDED.value)
entry_by_id = select(ledger.c.state, ledger.c.body, ledger.c.output, ledger.c.expires_ns).where(
    ledger.c.call_id == bindparam("of")
)
drop_entry = delete(ledger).where(ledger.c.call_id == bindparam("of"))
drop_claim = delete(claims).where(claims.c.key == bindparam("of"), claims.c.call_id == bindparam("by"))
settle_entry = (
    update(ledger)
    .where(ledger.c.call_id == bindparam("of"))
    .values(expires_ns=case((bindparam("keep_ns") > 0, now_ns() + bindparam("keep_ns")), else_=0))
)

denial_count = select(denials.c.count).where(
    denials.c.root_id == bindparam("root_id"), denials.c.tool == bindparam("tool"), denials.c.code == bindparam("code")
)

written_event = select(events.c.call_id, events.c.outcome, events.c.line).where(
    events.c.writer == bindparam("writer"), events.c.seq == bindparam("seq")
)
last_writer = select(writers.c.n, writers.c.header, writers.c.line).order_by(writers.c.n.desc()).limit(1)
add_writer = insert(writers)
close_writer = update(writers).where(writers.c.n == bindparam("of"))

request_by_id = select(requests.c.state, requests.c.version, requests.c.body).where(requests.c.id == bindparam("id"))
session_by_id = select(sessions).where(sessions.c.id == bindparam("id"))
clock = select(now_ns())


@lru_cache(maxsize=64)
def snapshot(
    counter_count: int,
    window_count: int,
    people_count: int,
    *,
    has_key: bool,
    has_grants: bool = False,
    has_memory: bool = False,
) -> Executable:
    """All that a `Query` asks for, in one statement, and so read at one moment.

    Its rows are (part, name, number, state, version, body, output), of which each part fills in some.

    Args:
        counter_count: how many counters are read: the n-th by the parameter ``counter_n``.
        window_count: how many windows, by ``window_n`` and ``interval_n``.
        people_count: how many people, by ``person_n``, whose sessions may have been ended.
        has_key: whether the call has a ledger key, ``call``, and by it perhaps a refusal, ``refused``.
        has_grants: whether the grants for the call are read.
        has_memory: whether the rows of `root_id`'s memory after the place ``after`` are read, those of ``writer``
            without their content.
    """
    now = now_ns()
    parts = [
        _part("now", number=now),
        _part("flag", name=flags.c.flag).where(flags.c.root_id == bindparam("root_id")),
        _part("denials", number=denials.c.count).where(denials.c.root_id == bindparam("root_id")),
        _part(
            "request", number=requests.c.n, state=requests.c.state, body=requests.c.body, version=requests.c.version
        ).where(
            requests.c.session_id == bindparam("session_id"),
            _OPEN_REQUEST,
            requests.c.tool == bindparam("tool"),
        ),
        _part("doubtful", name=ledger.c.digest, state=ledger.c.state).where(
            ledger.c.principal == bindparam("principal"),
            ledger.c.tool == bindparam("tool"),
            OPEN_ENTRY,
            or_(ledger.c.state != CallState.CLAIMED.value, ledger.c.claimed_ns <= now - ABANDONED_NS),
        ),
    ]
    if has_key:
        entry = {
            "number": ledger.c.expires_ns,
            "state": ledger.c.state,
            "body": ledger.c.body,
            "output": ledger.c.output,
        }
        claimed = claims.join(ledger, ledger.c.call_id == claims.c.call_id)
        of_key = claims.c.key == bindparam("call", type_=Text)
        parts.append(_part("entry", **entry).select_from(claimed).where(of_key))
        refused = claims.join(requests, requests.c.id == claims.c.call_id)
        request = {"state": requests.c.state, "version": requests.c.version, "body": requests.c.body}
        of_key = claims.c.key == bindparam("refused", type_=Text)
        parts.append(_part("refused", **request).select_from(refused).where(of_key))
    if has_grants:
        grant = {
            "number": grants.c.used,
            "name": grants.c.spent,
            "state": grants.c.state,
            "version": grants.c.version,
            "body": grants.c.body,
            "output": cast(grants.c.n, Text),
        }
        parts.append(
            _part("grant", **grant).where(
                grants.c.principal == bindparam("principal"),
                grants.c.tool == bindparam("tool"),
                grants.c.state == GrantState.LIVE.value,
                grants.c.expires_ns > now,
            )
        )
    if has_memory:
        is_own = memories.c.writer == bindparam("writer", type_=Text)
        row = {
            "number": memories.c.n,
            "name": memories.c.writer,
            "version": memories.c.number,
            "body": case((is_own, null()), else_=memories.c.sealed),
        }
        is_new = memories.c.n > bindparam("after", type_=BigInteger)
        parts.append(_part("memory", **row).where(memories.c.session_id == bindparam("root_id"), is_new))
    for n in range(counter_count):
        of_key = counters.c.key == bindparam(f"counter_{n}")
        parts.append(_part("counter", name=counters.c.key, number=counters.c.spent).where(of_key))
    for n in range(people_count):
        of_person = ended.c.principal == bindparam(f"person_{n}", type_=Text)
        parts.append(_part("ended", number=ended.c.at_ns).where(of_person))
    for n in range(window_count):
        window: ColumnElement[str] = bindparam(f"window_{n}", type_=Text)
        interval: ColumnElement[int] = bindparam(f"interval_{n}", type_=BigInteger)
        parts.append(_part("total", name=windows.c.key, body=windows.c.total).where(windows.c.key == window))
        parts.append(
            _part("expired", name=slots.c.window, body=slots.c.amount).where(
                slots.c.window == window, slots.c.at_ns <= now - interval
            )
        )
    return union_all(*parts)


_SHAPE: dict[str, ColumnElement[Any]] = {
    "name": cast(null(), Text),
    "number": literal_column("0", BigInteger),
    "state": cast(null(), Text),
    "version": literal_column("0", BigInteger),
    "body": cast(null(), Text),
    "output": cast(null(), Text),
}


def _part(part: str, **columns: ColumnElement[Any]) -> Select[Any]:
    filled: dict[str, ColumnElement[Any]] = {"part": literal_column(f"'{part}'", Text), **_SHAPE, **columns}
    return select(*(column.label(name) for name, column in filled.items()))

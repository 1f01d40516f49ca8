"""What a commit takes, and how it is given back; every function runs inside one transaction.

Rows are taken in one order, by kind and then by key, so that two calls never wait for each other in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal

from sqlalchemy import Connection

from guarded_core.approvals.grant import GrantUse
from guarded_core.rules.case import Slot, Window
from guarded_core.store.base import Change, Conflict, EffectClaim, exact_sum
from guarded_core.store.ledger import LedgerEntry
from guarded_core.store.sql import statements as sql
from guarded_core.store.sql.database import Database
from guarded_core.store.sql.records import entry_row, grant_of, spent_text


def take(database: Database, connection: Connection, change: Change) -> None:
    """Take all of `change` but its event. Raises Conflict; then the transaction has to be undone."""
    _spend(database, connection, change)
    _take_slots(database, connection, change)
    _raise_flags(database, connection, change)
    for request in sorted(change.requests, key=lambda request: request.id):
        values = {"of": request.id, "was": request.version}
        if connection.execute(sql.consume_request, values).rowcount == 0:
            raise Conflict("request", request.id)
    if change.grant is not None:
        _use_grant(connection, change.grant)
    if change.claim is not None:
        claim(database, connection, change.claim, change.supersedes)
    if change.effect is not None:
        _claim_effect(database, connection, change.effect, change.event.call_id)


def _spend(database: Database, connection: Connection, change: Change) -> None:
    for counter in sorted(change.counters, key=lambda counter: counter.key):
        values = {"key": counter.key, "limit": counter.limit}
        if counter.limit < 1 or connection.execute(database.statements.spend, values).first() is None:
            raise Conflict("counter", counter.key)


def _take_slots(database: Database, connection: Connection, change: Change) -> None:
    by_window: defaultdict[Window, list[Slot]] = defaultdict(list)  # two rules may take from one window
    for slot in change.reservation.slots:
        by_window[slot.window].append(slot)
    for window in sorted(by_window, key=lambda window: window.key):
        total, now_ns = connection.execute(database.statements.hold_window, {"key": window.key}).one()
        until = {"of": window.key, "until_ns": now_ns - window.interval_ns}
        expired = connection.execute(sql.expire_slots, until).scalars()
        total = total_less(total, expired)
        for slot in by_window[window]:
            total = exact_sum([total, slot.amount])
            if total > slot.limit:
                raise Conflict("slot", slot.rule)
            row = {"window": window.key, "at_ns": now_ns, "amount": str(slot.amount), "call_id": change.event.call_id}
            connection.execute(sql.take_slot, row)
        _set_total(connection, window.key, total, now_ns + window.interval_ns)


def total_less(total: str, amounts: Iterable[str]) -> Decimal:
    """A window's stored total without these of its amounts."""
    return exact_sum([Decimal(total), *(Decimal(amount).copy_negate() for amount in amounts)])


def _set_total(connection: Connection, key: str, total: Decimal, until_ns: int) -> None:
    connection.execute(sql.set_total, {"of": key, "total": str(total), "until_ns": until_ns})


def _raise_flags(database: Database, connection: Connection, change: Change) -> None:
    reservation, root_id = change.reservation, change.root_id
    if reservation.raises or reservation.forbids:
        # Nothing can hold a flag that is not there yet: whoever raises or forbids one passes here alone.
        database.lock(connection, f"guarded flags {root_id}")
    if reservation.forbids:
        names = {"root_id": root_id, "names": sorted(reservation.forbids)}
        raised = connection.execute(sql.raised_flags, names).scalars().all()
        if raised:
            raise Conflict("flag", min(raised))
    if reservation.raises:
        rows = [
            {"root_id": root_id, "flag": flag, "call_id": change.event.call_id} for flag in sorted(reservation.raises)
        ]
        connection.execute(database.statements.raise_flag, rows)


def _use_grant(connection: Connection, use: GrantUse) -> None:
    row = connection.execute(sql.hold_grant, {"of": use.grant.id}).first()
    if row is None:
        raise Conflict("grant", use.grant.id)
    granted = grant_of(row)
    after = replace(granted, used=granted.used - 1).after(use)  # the statement has counted it already
    if after is None:
        raise Conflict("grant", use.grant.id)
    connection.execute(sql.keep_spent, {"of": use.grant.id, "spent": spent_text(after.spent)})


def _return_grant(connection: Connection, use: GrantUse) -> None:
    row = connection.execute(sql.return_grant, {"of": use.grant.id}).first()
    if row is not None:
        granted = grant_of(row)
        before = replace(granted, used=granted.used + 1).before(use)
        connection.execute(sql.keep_spent, {"of": use.grant.id, "spent": spent_text(before.spent)})


def claim(database: Database, connection: Connection, entry: LedgerEntry, supersedes: str | None) -> None:
    """Keep `entry` under its key. Raises Conflict where a call other than `supersedes` has it."""
    if supersedes == entry.call_id:
        if connection.execute(sql.resume_entry, {"of": entry.call_id}).first() is None:
            raise Conflict("claim", entry.key)
        return
    values = {"key": entry.key, "call_id": entry.call_id, "supersedes": supersedes}
    if connection.execute(database.statements.claim, values).first() is None:
        raise Conflict("claim", entry.key)
    connection.execute(sql.keep_entry, entry_row(entry))


def _claim_effect(database: Database, connection: Connection, effect: EffectClaim, call_id: str) -> None:
    values = {"key": effect.key, "call_id": call_id, "supersedes": effect.supersedes}
    if connection.execute(database.statements.claim, values).first() is None:
        raise Conflict("effect", effect.key)


def give_back(database: Database, connection: Connection, change: Change) -> None:
    """Undo `take`, for a call that never started; what has been pruned since stays away."""
    call_id = change.event.call_id
    for counter in sorted(change.counters, key=lambda counter: counter.key):
        connection.execute(sql.unspend, {"of": counter.key})
    for window in sorted({slot.window for slot in change.reservation.slots}, key=lambda window: window.key):
        total, now_ns = connection.execute(database.statements.hold_window, {"key": window.key}).one()
        returned = connection.execute(sql.return_slots, {"of": window.key, "by": call_id}).scalars()
        total = total_less(total, returned)
        _set_total(connection, window.key, total, now_ns + window.interval_ns)
    for flag in sorted(change.reservation.raises):
        connection.execute(sql.lower_flag, {"of": change.root_id, "name": flag, "by": call_id})
    for request in sorted(change.requests, key=lambda request: request.id):
        version = {"was": request.version + 1, "version": request.version + 2}
        connection.execute(sql.replace_request, {"of": request.id, "state": request.state.value, **version})
    if change.grant is not None:
        _return_grant(connection, change.grant)
    if change.claim is not None and change.supersedes == call_id:
        connection.execute(sql.pause_entry, {"of": call_id})
    if change.effect is not None:
        connection.execute(sql.drop_claim, {"of": change.effect.key, "by": call_id})
    if change.claim is not None and change.supersedes != call_id:
        connection.execute(sql.drop_claim, {"of": change.claim.key, "by": call_id})
        connection.execute(sql.drop_entry, {"of": call_id})

"""Approval requests, ledger entries and sessions as rows, and back."""

from __future__ import annotations

import binascii
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, fields
from decimal import Decimal
from typing import Any

from sqlalchemy import Row

from guarded_core.approvals.grant import Grant, GrantState
from guarded_core.approvals.grantable import Grantable, Offer
from guarded_core.approvals.request import ApprovalRequest, RequestState, Vote
from guarded_core.provenance.journal import Kept
from guarded_core.provenance.journal import Row as MemoryRow
from guarded_core.store.base import SessionRecord
from guarded_core.store.ledger import CallState, LedgerEntry, caller_key
from guarded_core.tools.spec import ToolRisk

_log = logging.getLogger(__name__)

_REQUEST_BODY = tuple(f.name for f in fields(ApprovalRequest) if f.name not in ("state", "version"))
_ENTRY_BODY = (
    *("call_id", "key", "tool", "principal", "chain", "session_id", "digest", "arguments", "is_edited"),
    "effect_until_ns",
)
_TUPLES = ("on_behalf_of", "reasons")
_GRANT_APART = ("state", "version", "used", "spent")
_GRANT_BODY = tuple(f.name for f in fields(Grant) if f.name not in _GRANT_APART)


def _dump(value: Any) -> str:
    # ASCII, so that no text is too odd for a database; json rather than orjson, which has no integers over 64 bits.
    return json.dumps(value, separators=(",", ":"))


def request_row(request: ApprovalRequest) -> dict[str, Any]:
    """The columns of a request."""
    body = {name: getattr(request, name) for name in _REQUEST_BODY}
    body["votes"] = [astuple(vote) for vote in request.votes]
    body["grantable"] = None if request.grantable is None else asdict(request.grantable)
    return {
        "id": request.id,
        "session_id": request.session_id,
        "tool": request.tool,
        "state": request.state.value,
        "version": request.version,
        "expires_ns": request.expires_ns,
        "body": _dump(body),
    }


def request_of(state: str, version: int, body: str) -> ApprovalRequest:
    """The request of those columns."""
    values = json.loads(body)
    values["votes"] = tuple(Vote(*vote) for vote in values["votes"])
    values["risk"] = None if values["risk"] is None else ToolRisk(values["risk"])
    offer = values.get("grantable")  # requests of older releases have none
    if offer is not None:
        values["grantable"] = Offer(Grantable(**offer["limits"]), tuple(offer["reasons"]))
    for name in _TUPLES:
        values[name] = tuple(values[name])
    return ApprovalRequest(**values, state=RequestState(state), version=version)


def grant_row(grant: Grant) -> dict[str, Any]:
    """The columns of a grant, but for what calls have used of it."""
    body = {name: getattr(grant, name) for name in _GRANT_BODY}
    body["votes"] = [astuple(vote) for vote in grant.votes]
    for name in ("up_to", "total"):
        body[name] = _amounts_text(body[name])
    return {
        "id": grant.id,
        "principal": caller_key(grant.chain),
        "tool": grant.tool,
        "state": grant.state.value,
        "version": grant.version,
        "expires_ns": grant.expires_ns,
        "body": _dump(body),
    }


def grant_of(row: Row[Any]) -> Grant:
    """The grant of that row."""
    return grant_from(row.body, state=row.state, version=row.version, used=row.used, spent=row.spent)


def grant_from(body: str, *, state: str, version: int, used: int, spent: str) -> Grant:
    """The grant of those columns."""
    values = json.loads(body)
    values["votes"] = tuple(Vote(*vote) for vote in values["votes"])
    for name in (*_TUPLES, "free"):
        values[name] = tuple(values[name])
    for name in ("up_to", "total"):
        values[name] = _amounts(values[name])
    return Grant(**values, state=GrantState(state), version=version, used=used, spent=_amounts(json.loads(spent)))


def spent_text(spent: Mapping[str, Decimal]) -> str:
    """Sums by pointer as a column has them."""
    return _dump(_amounts_text(spent))


def _amounts_text(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    return {pointer: str(amount) for pointer, amount in amounts.items()}


def _amounts(texts: Mapping[str, str]) -> dict[str, Decimal]:
    return {pointer: Decimal(text) for pointer, text in texts.items()}


def entry_row(entry: LedgerEntry) -> dict[str, Any]:
    """The columns of a claim that was just made, but for its time."""
    return {
        "call_id": entry.call_id,
        "principal": entry.caller,
        "tool": entry.tool,
        "digest": entry.digest,
        "state": entry.state.value,
        "body": _dump({name: getattr(entry, name) for name in _ENTRY_BODY}),
        "output": None,
        "expires_ns": 0,
    }


def entry_of(state: str, body: str, output: str | None, expires_ns: int) -> LedgerEntry:
    """The entry of those columns."""
    kept = None if output is None else json.loads(output)
    values = json.loads(body)
    values.pop("twin_key", None)  # of releases that found a call by two keys
    values["chain"] = tuple(values.get("chain", ()))
    return LedgerEntry(**values, state=CallState(state), output=kept, expires_ns=expires_ns)


def output_text(call_id: str, output: Any) -> str | None:
    """A result as it is kept for replays; None where it cannot be."""
    try:
        return _dump(output)
    except (TypeError, ValueError, RecursionError) as error:
        # The call ran, and its end must be on record; only a replay will be told that the result is no longer kept.
        _log.warning("the result of call %s is not JSON and is not kept: %s", call_id, type(error).__name__)
        return None


def session_row(session: SessionRecord) -> dict[str, Any]:
    """The columns of a session."""
    return {
        "id": session.id,
        "principal": session.principal,
        "tools": _dump(sorted(session.tools)),
        "max_calls": session.max_calls,
        "bounds": _dump({"tool_calls": dict(session.tool_calls), "narrow": session.narrow}),
    }


def session_of(row: Row[Any]) -> SessionRecord:
    """The session of that row."""
    tools, bounds = frozenset(json.loads(row.tools)), json.loads(row.bounds)
    return SessionRecord(id=row.id, principal=row.principal, tools=tools, max_calls=row.max_calls, **bounds)


def memory_row(row: MemoryRow) -> dict[str, Any]:
    """The columns of a row of a session's memory."""
    sealed = binascii.b2a_base64(row.sealed, newline=False).decode()
    return {
        "session_id": row.session_id,
        "principal": row.principal,
        "writer": row.writer,
        "number": row.number,
        "sealed": sealed,
    }


def kept_of(rows: Iterable[Row[Any]]) -> tuple[Kept, ...]:
    """The rows of a session's memory, in their order; one that somebody has spoilt opens with no key."""
    found = [Kept(row.number, row.name, row.version, _unsealed(row.body)) for row in rows]
    return tuple(sorted(found, key=lambda kept: kept.n))


def _unsealed(body: str | None) -> bytes | None:
    try:
        return None if body is None else binascii.a2b_base64(body)
    except ValueError:
        return b""

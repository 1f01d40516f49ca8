"""Approval requests, ledger entries and sessions as rows, and back."""

from __future__ import annotations

import json
import logging
from dataclasses import astuple, fields
from typing import Any

from sqlalchemy import Row

from guarded_core.approvals.request import ApprovalRequest, RequestState, Vote
from guarded_core.store.base import SessionRecord
from guarded_core.store.ledger import CallState, LedgerEntry
from guarded_core.tools.spec import ToolRisk

_log = logging.getLogger("guarded_core")

_REQUEST_BODY = tuple(f.name for f in fields(ApprovalRequest) if f.name not in ("state", "version"))
_ENTRY_BODY = (*("call_id", "key", "tool", "principal", "chain", "session_id", "digest", "arguments", "is_edited"),)
_TUPLES = ("on_behalf_of", "reasons")


def _dump(value: Any) -> str:
    # ASCII, so that no text is too odd for a database; json rather than orjson, which has no integers over 64 bits.
    return json.dumps(value, separators=(",", ":"))


def request_row(request: ApprovalRequest) -> dict[str, Any]:
    """The columns of a request."""
    body = {name: getattr(request, name) for name in _REQUEST_BODY}
    body["votes"] = [astuple(vote) for vote in request.votes]
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
    for name in _TUPLES:
        values[name] = tuple(values[name])
    return ApprovalRequest(**values, state=RequestState(state), version=version)


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
    }


def session_of(row: Row[Any]) -> SessionRecord:
    """The session of that row."""
    return SessionRecord(
        id=row.id, principal=row.principal, tools=frozenset(json.loads(row.tools)), max_calls=row.max_calls
    )

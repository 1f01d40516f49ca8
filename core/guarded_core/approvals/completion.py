"""Whether a person who changed a call's arguments has seen all that the tool then fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from guarded_core.approvals.request import ApprovalRequest
from guarded_core.ground.payload import MAX_DEPTH, PayloadLimits, freeze

_ANY = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=MAX_DEPTH)
_NOTHING = object()


def is_completed(edit: ApprovalRequest, wanted: ApprovalRequest, schema: Mapping[str, Any]) -> bool:
    """Whether `wanted` is the same question as `edit` but for values that need no second look.

    A value that the edit leaves out needs none where it is what the person was shown when they changed the arguments,
    or the default that the tool's schema declares. What the tool changes, or computes, is asked about.

    Args:
        edit: the request with the arguments that a person wrote, and their votes.
        wanted: the request for what would run.
        schema: of the tool's arguments.
    """
    votes_are_for_it = freeze(edit.arguments, _ANY).digest == edit.digest
    if not votes_are_for_it or not edit.covers(replace(wanted, digest=edit.digest)):
        return False
    return _is_filled(edit.arguments, wanted.arguments, edit.changed_from, schema)


def _is_filled(written: Any, full: Any, shown: Any, schema: Any) -> bool:
    """Whether `full` is `written` with nothing but shown or declared values added, at any depth of its objects."""
    if not isinstance(written, dict) or not isinstance(full, dict):
        return _is_same(written, full)
    if not written.keys() <= full.keys():
        return False
    for name, value in full.items():
        before = shown.get(name, _NOTHING) if isinstance(shown, dict) else _NOTHING
        declared = _property(schema, name)
        if name in written:
            if not _is_filled(written[name], value, before, declared):
                return False
        elif not (_is_same(before, value) or _is_same(declared.get("default", _NOTHING), value)):
            return False
    return True


def _property(schema: Any, name: str) -> Mapping[str, Any]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _is_same(one: Any, other: Any) -> bool:
    if one is _NOTHING:
        return False
    return freeze({"": one}, _ANY).digest == freeze({"": other}, _ANY).digest

"""What bounds a session, checked where the application says it: names, counts by tool, values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from guarded_core.ground.bounds import MAX_PRINCIPAL, identity
from guarded_core.ground.errors import GuardConfigurationError, InvalidApproval, InvalidPolicy
from guarded_core.rules.kinds import AllowToolParam

MAX_SESSION_ID = 128


def checked_identity(name: object, what: str, limit: int = MAX_PRINCIPAL) -> str:
    """The name in its one form. Raises GuardConfigurationError where it has another."""
    try:
        return identity(name, what, limit)
    except InvalidApproval as error:
        raise GuardConfigurationError(str(error)) from None


def tool_counts(tools: Iterable[str] | Mapping[str, int | None]) -> dict[str, int]:
    """How many calls each tool is good for, where that is said."""
    calls = {name: calls for name, calls in tools.items() if calls is not None} if isinstance(tools, Mapping) else {}
    for name, limit in calls.items():
        if type(limit) is not int or limit < 1:
            raise GuardConfigurationError(
                f"tools: {name!r} is good for at least 1 call; to forbid a tool, leave it out"
            )
    return calls


def listed(rules: Iterable[AllowToolParam]) -> dict[str, dict[str, Sequence[Any]]]:
    """The values by tool and parameter again that `narrowing` made rules of."""
    narrow: dict[str, dict[str, Sequence[Any]]] = {}
    for rule in rules:
        narrow.setdefault(rule.tool, {})[rule.param] = rule.allow
    return narrow


def least(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The smaller count of each tool that either counts."""
    return {**one, **{tool: min(limit, one.get(tool, limit)) for tool, limit in other.items()}}


def narrowing(narrow: Mapping[str, Mapping[str, Sequence[Any]]]) -> Iterable[AllowToolParam]:
    """The rules that permit these values only, by tool and parameter."""
    try:
        return [
            AllowToolParam(tool=tool, param=param, allow=list(values))
            for tool, params in narrow.items()
            for param, values in params.items()
        ]
    except (InvalidPolicy, TypeError, AttributeError) as error:
        raise GuardConfigurationError(f"narrow is {{tool: {{parameter: [values]}}}}: {error}") from None


def checked_name(session_id: object) -> str:
    """A session_id in its one form; without a '#', which separates it from the principal."""
    if isinstance(session_id, str) and "#" in session_id:
        raise GuardConfigurationError("session_id has no '#'")
    return checked_identity(session_id, "session_id", MAX_SESSION_ID)

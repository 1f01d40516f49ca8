"""A value planted wherever a model or a tool can put one is found in no error, log, repr or event."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest

from guarded_core import (
    ApprovalRequest,
    CallbackApprover,
    Guard,
    GuardedToolsError,
    ToolExecutionPolicy,
    ToolSettings,
)

CANARY = "canary-5f1e7b"


class Evil(str):
    def __repr__(self) -> str:
        return CANARY

    __str__ = __repr__


def _tool(amount: int, note: str = "") -> str:
    if note == "raise":
        raise ValueError(CANARY)
    if note == "flood":
        return CANARY * 100_000
    return CANARY


PROPOSALS: list[tuple[str, Any]] = [
    ("pay", {"amount": CANARY}),
    ("pay", {"amount": 1, CANARY: 1}),
    ("pay", {"amount": 1, "note": {CANARY: CANARY}}),
    ("pay", {"amount": 1, "note": CANARY * 10_000}),
    ("pay", {"amount": float("nan"), "note": CANARY}),
    ("pay", {"amount": 1, "note": CANARY + "\ud800"}),
    ("pay", {"amount": 1, "note": Evil("x")}),
    ("pay", '{"amount": 1, "' + CANARY + '": 1, "' + CANARY + '": 2}'),
    ("pay", '{"amount": 1, "note": "' + CANARY),
    ("pay", [CANARY]),
    (CANARY + " with spaces", {}),
    ("pay", {"amount": 1, "note": CANARY}),
    ("pay", {"amount": 1, "note": "raise"}),
    ("pay", {"amount": 1, "note": "flood"}),
    ("ask", {"amount": 1, "note": CANARY}),
    ("forbidden", {"amount": 1, "note": CANARY}),
]


@pytest.mark.parametrize(("name", "arguments"), PROPOSALS, ids=range(len(PROPOSALS)))
@pytest.mark.parametrize("answer", [None, False])
def test_is_found_nowhere(
    name: str, arguments: Any, answer: bool | None, way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors with their whole traceback text, logs, reprs and events of every refusal are free of the value."""
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    def approver(request: ApprovalRequest) -> bool | None:
        shown.append(repr(request))
        return answer

    guard = Guard(
        ToolExecutionPolicy({"pay": "mutating", "ask": ToolSettings(risk="financial"), "forbidden": "read_only"}),
        approver=CallbackApprover(approver, by="reviewer-9"),
        keys=b"k" * 32,
    )
    for tool in ("pay", "ask", "forbidden"):
        guard.tool(name=tool)(_tool)
    guard.rules.register("no", lambda action, state: "no" if action.tool == "forbidden" else None, "")
    with guard.session("user-17", tools=["pay", "ask", "forbidden"]) as session:
        try:
            result = way(guard.call, guard.acall, name, arguments)
        except GuardedToolsError as error:
            # The source lines of a traceback are this file's own; what errors say is what counts.
            for link in _chain(error):
                shown += [str(link), repr(link), str(getattr(link, "__dict__", ""))]
                shown += traceback.format_exception_only(link)
        else:
            assert result == CANARY
        shown += [repr(guard.decide(name, arguments)), repr(session), repr(guard)]
    shown += [str(event.to_json()) + repr(event) for event in guard.audit.events]
    shown += [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert guard.audit.events
    assert CANARY not in "\n".join(shown)


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found

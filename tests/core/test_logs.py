"""What the application's log says of calls: the levels that a person expects, fields to search by, and no payload."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from guarded_core import CallbackApprover, Guard, PolicyDenied, ToolExecutionError, ToolExecutionPolicy
from guarded_core.rules.kinds import DenyToolParam, LimitToolParam

SECRET = "tok-4711"
LOGGER = "guarded_core.pipeline.logs"


def guard(*, answer: bool = True) -> Guard:
    """A guard of a tool that reads, one that pays, and one that breaks, for one person's session."""
    policy = ToolExecutionPolicy(
        {"read": "read_only", "pay": "financial", "broken": "mutating"},
        rules=[
            LimitToolParam(tool="pay", param="cents", max=100),
            DenyToolParam(tool="read", param="word", equals=SECRET, enforce=False),
        ],
    )
    made = Guard(policy, approver=CallbackApprover(lambda request: answer, by="lee"))

    @made.tool
    def read(word: str) -> str:
        """Read."""
        return word

    @made.tool
    def pay(cents: int, note: str = "") -> str:
        """Pay."""
        return note

    @made.tool
    def broken(word: str) -> str:
        """Break."""
        raise RuntimeError(word)

    return made


def said(
    caplog: pytest.LogCaptureFixture, is_async: bool, tool: str, arguments: dict[str, Any], *, answer: bool = True
) -> list[logging.LogRecord]:
    """What one call logs, at any level, whatever becomes of it."""
    caplog.set_level(logging.DEBUG, LOGGER)
    made = guard(answer=answer)
    with made.session("user-17", tools=["read", "pay", "broken"]):
        try:
            if is_async:
                asyncio.run(made.acall(tool, arguments))
            else:
                made.call(tool, arguments)
        except ToolExecutionError:
            pass
    return [record for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("tool", "arguments", "answer", "levels"),
    [
        ("read", {"word": "a"}, True, ["DEBUG authorized", "DEBUG succeeded"]),
        ("read", {"word": SECRET}, True, ["WARNING authorized", "DEBUG succeeded"]),
        ("pay", {"cents": 101, "note": SECRET}, True, ["INFO denied"]),
        ("pay", {"cents": 5, "note": SECRET}, True, ["INFO asked", "DEBUG authorized", "DEBUG succeeded"]),
        ("pay", {"cents": 5, "note": SECRET}, False, ["INFO asked", "INFO denied"]),
        ("read", {SECRET: 1}, True, ["INFO denied"]),
        ("broken", {"word": SECRET}, True, ["DEBUG authorized", "ERROR failed"]),
    ],
)
def test_levels(
    caplog: pytest.LogCaptureFixture,
    is_async: bool,
    tool: str,
    arguments: dict[str, Any],
    answer: bool,
    levels: list[str],
) -> None:
    """Denied and asked are INFO, what a rule on trial would have denied WARNING, failures ERROR, the rest DEBUG."""
    records = said(caplog, is_async, tool, arguments, answer=answer)
    assert [f"{record.levelname} {vars(record)['guard_outcome']}" for record in records] == levels
    assert SECRET not in caplog.text
    assert SECRET not in str([vars(record) for record in records])
    assert "user-17" not in str([vars(record) for record in records])


def test_fields(caplog: pytest.LogCaptureFixture) -> None:
    """A record says which call, which rule and which policy, so that it can be found in the trail."""
    (record,) = said(caplog, False, "pay", {"cents": 101})
    fields = {name: value for name, value in vars(record).items() if name.startswith("guard_")}
    assert len(fields.pop("guard_call_id")) == 32
    assert fields.pop("guard_policy") == guard().policy.hash
    assert fields == {
        "guard_outcome": "denied",
        "guard_tool": "pay",
        "guard_code": "policy_denied",
        "guard_rules": ["limit_tool_param:pay.cents"],
        "guard_request_id": None,
        "guard_error_type": None,
        "guard_count": 1,
    }
    assert record.getMessage().startswith("pay: denied (policy_denied, limit_tool_param:pay.cents), call ")


def test_a_log_that_fails_is_not_the_calls_fault(caplog: pytest.LogCaptureFixture) -> None:
    """A filter of the application's that raises denies nothing and lets nothing pass."""

    def filters(record: logging.LogRecord) -> bool:
        raise RuntimeError

    caplog.set_level(logging.DEBUG, LOGGER)
    log = logging.getLogger(LOGGER)
    log.addFilter(filters)
    made = guard()
    try:
        with made.session("user-17", tools=["read", "pay"]):
            assert made.call("read", {"word": "a"}) == "a"
            with pytest.raises(PolicyDenied):
                made.call("pay", {"cents": 101})
    finally:
        log.removeFilter(filters)

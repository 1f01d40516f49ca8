"""What a policy says of parameters is checked against each tool as it is wrapped, and again when the policy changes."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core import Guard, InvalidPolicy, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import AllowToolParam, BudgetToolParam, DenyToolParam, LimitToolParam


def pay(order: int, cents: int, note: str = "") -> str:
    """Pay money back."""
    return f"paid {cents}"


def read(id: int) -> str:
    """Read one."""
    return f"row {id}"


def policy(*rules: Any, **settings: Any) -> ToolExecutionPolicy:
    """Both tools, under these rules, and settings for the first."""
    return ToolExecutionPolicy({"pay": ToolSettings(risk="mutating", **settings), "read": "read_only"}, rules=rules)


MISFITS = [
    (
        policy(LimitToolParam(tool="pay", param="cent", max=1)),
        "'pay' has no parameter 'cent' there; did you mean 'cents'",
    ),
    (policy(DenyToolParam(tool="pay", param="/note/deep", equals=1)), "'pay' has no parameter 'deep' there"),
    (policy(AllowToolParam(tool="p*", param="cent", allow=[1])), "denies every call: 'pay' has no parameter 'cent'"),
    (policy(BudgetToolParam(tool="pay", param="note", max=9, interval_secs=9)), "'pay' takes no number there"),
    (policy(open=("/notes",)), "tools.pay.open: '/notes': there is no parameter 'notes' there; did you mean 'note'"),
    (policy(opaque=("ordr",)), "tools.pay.opaque: 'ordr': there is no parameter 'ordr' there; did you mean 'order'"),
]


@pytest.mark.parametrize(("wrong", "message"), MISFITS)
def test_a_parameter_that_the_tool_does_not_have_refuses_the_wrap(wrong: ToolExecutionPolicy, message: str) -> None:
    """A rule for it would protect nothing, or deny everything: nobody would see why."""
    guard = Guard(wrong)
    guard.tool(read)
    with pytest.raises(InvalidPolicy) as refused:
        guard.tool(pay)
    assert message in str(refused.value)
    assert guard.spec("pay") is None
    assert guard.spec("read") is not None


@pytest.mark.parametrize(("wrong", "message"), MISFITS)
def test_a_new_policy_is_held_against_the_tools_that_are_there(wrong: ToolExecutionPolicy, message: str) -> None:
    """It is refused as a broken file is: the old one stays in force."""
    guard = Guard(policy())
    guard.tool(pay)
    before = guard.policy
    with pytest.raises(InvalidPolicy) as refused:
        guard.reload(wrong)
    assert message in str(refused.value)
    assert guard.policy is before


def test_all_that_is_wrong_is_said_at_once() -> None:
    """One error has a line for each."""
    wrong = policy(DenyToolParam(tool="pay", param="a", equals=1), DenyToolParam(tool="pay", param="b", equals=1))
    with pytest.raises(InvalidPolicy) as refused:
        Guard(wrong).tool(pay)
    assert str(refused.value).count("\n  - rules[") == 2


@pytest.mark.parametrize(
    "fitting",
    [
        policy(LimitToolParam(tool="pay", param="cents", max=1)),
        policy(DenyToolParam(tool="*", param="note", equals="x")),
        policy(DenyToolParam(tool="read", param="id", equals=1)),
        policy(open=("note",)),
        policy(LimitToolParam(tool="pay", param="account", max=1), binds=("account",)),
    ],
)
def test_what_fits_is_taken(fitting: ToolExecutionPolicy) -> None:
    """A denial by a glob may be about a parameter that only some of its tools have."""
    guard = Guard(fitting)
    guard.tool(pay)
    guard.tool(read)
    assert guard.reload(fitting) is fitting

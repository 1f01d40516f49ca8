"""Arguments that pass through a model: compared to the type, and judged as what the model makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, model_validator

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.ground.errors import InvalidPayload, PolicyDenied
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.tools.roundtrip import written


@pytest.mark.parametrize("other", [1.0, True, "1", None, float("nan"), [1], {"a": 1}])
def test_arguments_are_told_apart_to_the_type(other: Any) -> None:
    """Equal in Python is not the same JSON: 1, 1.0 and True are three values."""
    assert written({"a": 1}) == written({"a": 1})
    assert written({"a": 1}) != written({"a": other})


def test_what_is_no_plain_json_is_like_nothing() -> None:
    """An object is never taken for the JSON it looks like."""
    with pytest.raises(ValueError, match="unmarshallable"):
        written({"a": object()})


class Doubled(BaseModel):
    amount: int

    @model_validator(mode="before")
    @classmethod
    def double_in_place(cls, given: dict[str, Any]) -> dict[str, Any]:
        given["amount"] *= 2
        return given


class Capped(BaseModel):
    amount: int

    @model_validator(mode="before")
    @classmethod
    def cap_in_place(cls, given: dict[str, Any]) -> dict[str, Any]:
        given["amount"] = min(given["amount"], 100)
        return given


def test_validator_that_changes_its_input_in_place_is_noticed() -> None:
    """What a model makes of the arguments is compared with what was sent, not with what a validator left of it."""
    paid: list[int] = []
    rules = [DenyToolParam(tool="pay", param="/order/amount", equals=100)]
    guard = Guard(ToolExecutionPolicy({"pay": "mutating", "twice": "mutating"}, rules=rules))

    @guard.tool
    def pay(order: Capped) -> None:
        """Pays."""
        paid.append(order.amount)

    @guard.tool
    def twice(order: Doubled) -> None:
        """Pays twice as much, each time it is read."""
        paid.append(order.amount)

    with guard.session("ann", tools=["pay", "twice"]):
        guard.call("pay", {"order": {"amount": 7}})
        with pytest.raises(PolicyDenied):
            guard.call("pay", {"order": {"amount": 500}})
        with pytest.raises(InvalidPayload):
            guard.call("twice", {"order": {"amount": 1}})
    assert paid == [7]

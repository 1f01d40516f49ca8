"""Arguments that pass through a model: compared to the type, and judged as what the model makes of them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field, model_validator

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.ground.errors import InvalidPayload, PolicyDenied
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.tools.roundtrip import dump, may_hold_sets, written


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
    as_written = ToolSettings(risk="mutating", opaque=("order",))
    guard = Guard(ToolExecutionPolicy({"pay": "mutating", "twice": as_written}, rules=rules))

    @guard.tool
    def pay(order: Capped) -> None:
        """Pays."""
        paid.append(order.amount)

    @guard.tool
    def twice(order: Doubled) -> None:
        """Pays twice as much, each time it is read."""
        paid.append(order.amount)

    # Otherwise it would be refused here already.
    guard.reload(ToolExecutionPolicy({"pay": "mutating", "twice": "mutating"}, rules=rules))
    with guard.session("ann", tools=["pay", "twice"]):
        guard.call("pay", {"order": {"amount": 7}})
        with pytest.raises(PolicyDenied):
            guard.call("pay", {"order": {"amount": 500}})
        with pytest.raises(InvalidPayload):
            guard.call("twice", {"order": {"amount": 1}})
    assert paid == [7]


class Row(BaseModel):
    sku: str = "a"
    tags: list[str] = []
    note: str | None = None
    more: dict[str, Any] = {}


class Tagged(BaseModel):
    tags: set[str]


class Nested(BaseModel):
    rows: list[Tagged]


class Made(BaseModel):
    tags: Any = Field(default_factory=lambda: {"b", "a"})


class Validated(BaseModel):
    tags: Annotated[Any, AfterValidator(set)]


class Given(BaseModel):
    tags: Any = {"b", "a"}


class Finished(BaseModel):
    tags: Any = None

    def model_post_init(self, context: Any) -> None:
        self.tags = {"b", "a"}


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (Tagged, {"tags": ["b", "a"]}),
        (Nested, {"rows": [{"tags": ["b", "a"]}]}),
        (Made, {}),
        (Validated, {"tags": ["b", "a"]}),
        (Given, {}),
        (Finished, {}),
    ],
)
def test_what_may_hold_a_set_is_looked_through(model: type[BaseModel], given: dict[str, Any]) -> None:
    """A set by its type, by code of the model's own, or as a default: its members are dumped in one order."""
    assert may_hold_sets(model)
    assert dump(model.model_validate(given)) in ({"tags": ["a", "b"]}, {"rows": [{"tags": ["a", "b"]}]})


def test_what_holds_no_set_is_not_looked_through() -> None:
    """Plain types and constraints, with plain defaults: nothing in them has an order of its own."""
    assert not may_hold_sets(Row)
    assert dump(Row(tags=["b", "a"], more={"x": [2, 1]})) == {
        "sku": "a",
        "tags": ["b", "a"],
        "note": None,
        "more": {"x": [2, 1]},
    }

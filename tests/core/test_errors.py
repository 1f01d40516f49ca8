"""What an error says of itself: its code, and the step of a call's way that ends with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.ground.errors import STEPS, PolicyDenied, StoreUnavailable, ToolChanged, ToolExecutionError
from guarded_core.rules.kinds import LimitToolParam
from guarded_core.store.memory import MemoryStore
from guarded_core.testing.trial import explain


def kinds(base: type[ToolExecutionError] = ToolExecutionError) -> Iterator[type[ToolExecutionError]]:
    """Every public kind of error that a call can end with."""
    for kind in base.__subclasses__():
        if not kind.__name__.startswith("_"):
            yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda kind: kind.__name__))
def test_every_kind_says_at_which_step_it_ends_a_call(kind: type[ToolExecutionError]) -> None:
    """One of the steps, by its own word or its parent's; none falls back on the base's."""
    said = next(parent for parent in kind.__mro__ if "step" in vars(parent))
    assert said is not ToolExecutionError
    assert kind.step in STEPS


class Down(MemoryStore):
    """A store that cannot be read."""

    def load(self, query: Any) -> Any:
        raise OSError


def shop(**settings: Any) -> Guard:
    """A guard of two tools: one pays up to 5, the other asks a person."""
    guard = Guard(
        ToolExecutionPolicy(
            {"pay": "mutating", "drop": "destructive"}, rules=[LimitToolParam(tool="pay", param="cents", max=5)]
        ).with_payload_limits(64, 1024),
        **settings,
    )

    @guard.tool
    def pay(cents: int) -> None:
        """Pay."""

    @guard.tool
    def drop() -> None:
        """Drop."""

    return guard


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("pay", {"cents": 5}, ("allow", None)),
        ("drop", {}, ("ask", None)),
        ("nothing", {}, ("deny", "authorise")),
        ("pay", {"cents": "5" * 100}, ("deny", "bound")),
        ("pay", {"cents": "5"}, ("deny", "validate")),
        ("pay", {"cents": 6}, ("deny", "rules")),
    ],
)
def test_a_decision_names_the_step_that_refuses(tool: str, arguments: Any, expected: tuple[str, str | None]) -> None:
    """None where nothing does."""
    guard = shop()
    with guard.session("u", tools=["pay", "drop"]):
        decision = guard.decide(tool, arguments)
    assert (decision.outcome, decision.step) == expected


def test_a_spent_budget_is_the_step_that_refuses() -> None:
    """The session has no calls left."""
    guard = shop()
    with guard.session("u", tools=["pay"], max_calls=1):
        guard.call("pay", {"cents": 1})
        assert guard.decide("pay", {"cents": 1}).step == "budget"


def test_what_cannot_be_read_is_not_explained_as_passed() -> None:
    """Budgets come from the store: with it down, that step denies and none after it is reached."""
    guard = shop(store=Down())
    with guard.session("u", tools=["pay"]) as session:
        decision, said = explain(guard, "pay", {"cents": 1}, session)
    assert decision.code == StoreUnavailable.code
    assert [(line.step, line.verdict) for line in said] == [
        ("authorise", "pass"),
        ("bound", "pass"),
        ("budget", "deny"),
        ("validate", "-"),
        ("rules", "-"),
        ("approve", "-"),
    ]


def test_a_tool_that_is_not_what_the_policy_pins_is_refused_before_its_arguments_are_looked_at() -> None:
    """It is explained there, and reads to a model like any rule's no."""
    guard = Guard(ToolExecutionPolicy({"pay": ToolSettings(risk="mutating", schema_sha256="0" * 64)}))

    @guard.tool
    def pay(cents: int) -> None:
        """Pay."""

    with guard.session("u", tools=["pay"]) as session:
        decision, said = explain(guard, "pay", {"cents": "x"}, session)
        with pytest.raises(ToolChanged, match=PolicyDenied.text) as caught:
            guard.call("pay", {"cents": 1})
    assert (decision.code, decision.step, caught.value.code) == ("policy_denied", "authorise", "policy_denied")
    assert [(line.verdict, line.detail) for line in said] == [
        ("deny", "the tool is not what was registered"), *[("-", "")] * 5
    ]  # fmt: skip
    assert [violation.policy_name for violation in caught.value.violations] == ["tool_changed"]

"""Whatever is called in whatever order: never more executions than budget and approvals, one end to each beginning."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from guarded_core import (
    Guard,
    HumanApproval,
    InMemoryToolAuditTrail,
    Outcome,
    ToolExecutionError,
    ToolExecutionPolicy,
    ToolSettings,
)

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(0, 2)),
        st.tuples(st.just("pay"), st.integers(0, 2)),
        st.tuples(st.just("approve"), st.integers(0, 2)),
        st.tuples(st.just("bad"), st.sampled_from(["1", None, 1.5, [], True])),
        st.tuples(st.just("break"), st.sampled_from(["denied", "authorized", "succeeded", "failed", ""])),
        st.tuples(st.just("fail"), st.booleans()),
        st.tuples(st.just("unknown"), st.just(0)),
    ),
    max_size=30,
)


class Flaky(InMemoryToolAuditTrail):
    broken = ""

    def append(self, event: Any) -> None:
        if event.outcome.value == self.broken:
            raise OSError
        super().append(event)


@settings(max_examples=150)
@given(actions=ACTIONS, budget=st.integers(1, 6), tool_budget=st.integers(1, 4))
def test_never_more_than_allowed(actions: list[tuple[str, Any]], budget: int, tool_budget: int) -> None:
    """Executions stay within budgets and approvals; denials spend nothing; each Authorized ends once."""
    trail, ran, approved = Flaky(1000), Counter[tuple[str, int]](), Counter[int]()
    policy = ToolExecutionPolicy({"read": ToolSettings(risk="read_only", max_calls=tool_budget), "pay": "financial"})
    guard = Guard(policy, audit=trail, max_denials=1000)
    fails = [False]

    def work(name: str) -> Any:
        def tool(n: int) -> int:
            ran[name, n] += 1
            if fails[0]:
                raise ValueError
            return n

        return guard.tool(name=name)(tool)

    work("read"), work("pay")
    with guard.session("user-17", tools=["read", "pay"], max_calls=budget) as session:
        for action, value in actions:
            before = session.remaining_calls
            if action == "approve":
                session.approve(HumanApproval.for_payload("pay", {"n": value}, "reviewer-9", "ok"))
                approved[value] += 1
                continue
            if action in ("break", "fail"):
                trail.broken, fails[0] = (value, fails[0]) if action == "break" else (trail.broken, value)
                continue
            name = "read" if action == "bad" else action
            executions = ran.total()
            with suppress(ToolExecutionError):
                guard.call(name, {"n": value})
            assert before - session.remaining_calls == ran.total() - executions
    assert ran.total() <= budget
    assert sum(count for (name, _), count in ran.items() if name == "read") <= tool_budget
    assert all(ran["pay", value] <= approved[value] for value in range(3))
    begun = [event.call_id for event in trail.events if event.outcome is Outcome.AUTHORIZED]
    ended = Counter(event.call_id for event in trail.events if event.outcome.is_terminal)
    assert len(begun) == len(set(begun)) == ran.total()
    assert set(ended) <= set(begun)
    assert all(count == 1 for count in ended.values())
    if not any(action == "break" for action, _ in actions):
        assert len(ended) == len(begun)

"""A new policy under way: one policy a judgement, and nothing lost."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from guarded_core import (
    ApprovalPayloadMismatch,
    Guard,
    HumanApprovalRequired,
    InMemoryToolAuditTrail,
    InvalidPolicy,
    PolicyDenied,
)
from guarded_core.approvals.callback import CallbackApprover
from guarded_core.ground.errors import GuardConfigurationError
from guarded_core.policy.policy import ToolExecutionPolicy


def write(path: Path, *rules: str, risk: str = "mutating") -> None:
    """Put a policy there with one tool, ``pay``, and a `deny_tool_param` rule for each named parameter."""
    tables = [f'[[rules]]\nkind = "deny_tool_param"\ntool = "pay"\nparam = "{param}"' for param in rules]
    new = path.with_suffix(".new")
    new.write_text("\n".join(["version = 1", "[tools.pay]", f'risk = "{risk}"', *tables]))
    os.replace(new, path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A policy file that denies the parameters a1 and a2."""
    path = tmp_path / "policy.toml"
    write(path, "a1", "a2")
    return path


def guard_of(path: Path, **settings: object) -> Guard:
    """A guard from that file, with the tool ``pay``."""
    guard = Guard.from_file(path, **settings)

    @guard.tool
    def pay(a1: int = 0, a2: int = 0, b1: int = 0, b2: int = 0) -> str:
        """Pays."""
        return "paid"

    return guard


def test_reload_puts_the_file_in_force_as_it_is_now(path: Path) -> None:
    """The next call is judged by it, and the hash says so."""
    guard = guard_of(path)
    old = guard.policy.hash
    with guard.session("ann", tools=["pay"]):
        with pytest.raises(PolicyDenied):
            guard.call("pay", {})
        write(path)
        assert guard.reload().hash == guard.policy.hash != old
        assert guard.call("pay", {}) == "paid"


def test_events_carry_the_hash_that_was_in_force(path: Path) -> None:
    """Each its own."""
    trail = InMemoryToolAuditTrail(16)
    guard = guard_of(path, audit=trail)
    hashes = [guard.policy.hash]
    with guard.session("ann", tools=["pay"]):
        with pytest.raises(PolicyDenied):
            guard.call("pay", {})
        write(path)
        hashes.append(guard.reload().hash)
        guard.call("pay", {})
    assert [event.policy for event in trail.events] == [hashes[0], hashes[1], hashes[1]]


def test_a_bad_file_leaves_the_old_policy_in_force(path: Path) -> None:
    """The error reaches whoever reloads; calls go on as before."""
    guard = guard_of(path)
    old = guard.policy
    path.write_text("version = 1\n[tools.pay")
    with pytest.raises(InvalidPolicy):
        guard.reload()
    assert guard.policy is old


def test_rules_registered_in_code_survive(path: Path) -> None:
    """A file cannot remove what the host demands."""
    guard = guard_of(path)
    guard.rules.register("ours", lambda action, state: "closed")
    write(path)
    guard.reload()
    with guard.session("ann", tools=["pay"]):
        assert [violation.policy_name for violation in guard.decide("pay", {}).violations] == ["ours"]


def test_a_call_that_waits_for_a_person_is_judged_anew(path: Path) -> None:
    """The yes was given under a policy that is gone; the new one denies."""
    write(path, risk="financial")

    def approve(request: object) -> bool:
        write(path, "a1", risk="financial")
        guard.reload()
        return True

    guard = guard_of(path, approver=CallbackApprover(approve, by="lee"))
    with guard.session("ann", tools=["pay"]), pytest.raises(PolicyDenied):
        guard.call("pay", {})


def test_an_edit_that_does_not_concern_a_tool_leaves_its_approvals_valid(path: Path) -> None:
    """They bind to the tool's own hash."""
    write(path, risk="financial")

    def approve(request: object) -> bool:
        other = '[tools.other]\nrisk = "read_only"\n[[rules]]\nkind = "deny_tool"\ntool = "other"\n'
        path.write_text(path.read_text() + "\n" + other)
        guard.reload()
        return True

    guard = guard_of(path, approver=CallbackApprover(approve, by="lee"))
    with guard.session("ann", tools=["pay"]):
        assert guard.call("pay", {}) == "paid"


def test_an_approval_does_not_outlive_a_change_of_its_tool(path: Path) -> None:
    """What was approved under milder rules has to be approved again."""
    write(path, risk="financial")
    guard = guard_of(path)
    with guard.session("ann", tools=["pay"]):
        with pytest.raises(HumanApprovalRequired) as caught:
            guard.call("pay", {})
        assert caught.value.request is not None
        guard.approvals.decide(caught.value.request.id, by="lee", approve=True)
        path.write_text(path.read_text() + "\napprovals = 2")
        guard.reload()
        with pytest.raises((HumanApprovalRequired, ApprovalPayloadMismatch)):
            guard.call("pay", {})


def test_a_guard_without_a_file_needs_the_new_policy() -> None:
    """There is nothing to read again."""
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}))
    with pytest.raises(GuardConfigurationError):
        guard.reload()
    new = ToolExecutionPolicy({"pay": "financial"})
    assert guard.reload(new) is guard.policy is new


def test_no_call_is_judged_by_half_a_policy(path: Path) -> None:
    """Under a storm of reloads, the violations are always those of one of the two files."""
    guard = guard_of(path)
    stop = threading.Event()
    seen: set[tuple[str, ...]] = set()
    errors: list[BaseException] = []

    def judge() -> None:
        try:
            with guard.session("ann", tools=["pay"]):
                while not stop.is_set():
                    violations = guard.decide("pay", {}).violations
                    seen.add(
                        tuple(violation.policy_name.removeprefix("deny_tool_param:pay.") for violation in violations)
                    )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=judge) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        write(path, *(("a1", "a2"), ("b1", "b2"))[number % 2])
        guard.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert seen
    assert seen <= {("a1", "a2"), ("b1", "b2")}

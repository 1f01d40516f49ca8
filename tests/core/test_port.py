"""The port between the pipeline and a tool: nothing that it raises gets past the flow."""

from __future__ import annotations

from typing import Any

import pytest

from guarded_core import ExecutionFailed, Guard, InvalidPayload, OutcomeUnknown, PolicyDenied, ToolExecutionPolicy
from guarded_core.ground.errors import ToolExecutionError
from guarded_core.store.ledger import CallKey
from guarded_core.testing import RecordingSink
from guarded_core.tools.port import FunctionPort, ToolPort
from guarded_core.tools.spec import ToolSpec
from tests.core.calls import call_of

SPEC = ToolSpec.of(
    name="pay",
    description="Pays.",
    schema={"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]},
)
CANARY = "canary-5f1e7b"
KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")


class Desk:
    """A guard, its trail, and calls of one tool."""

    def __init__(self, way: Any) -> None:
        self.way, self.ran = way, []
        self.trail = RecordingSink()
        self.guard = Guard(ToolExecutionPolicy({"pay": "mutating"}), audit=self.trail)
        self.session = self.guard.session("user-17", tools=["pay"], max_calls=9)

    def pay(self, arguments: dict[str, Any]) -> str:
        self.ran.append(arguments)
        return "paid"

    def call(self, **parts: Any) -> Any:
        proposed = call_of(SPEC, self.pay, arguments={"cents": 5}, context=self.session, key=KEY, **parts)
        return self.way(self.guard.run, self.guard.arun, proposed)

    @property
    def events(self) -> list[tuple[str, str | None, str | None]]:
        return [(event.outcome.value, event.code, event.error_type) for event in self.trail.events]


@pytest.fixture
def desk(way: Any) -> Desk:
    """A guard that is called in each way."""
    return Desk(way)


def fails(*args: Any, **kwargs: Any) -> Any:
    """What a port of somebody's does one day."""
    raise RuntimeError(CANARY)


def check_is_silent(error: ToolExecutionError) -> None:
    """The text of what was raised is nowhere in the error, nor in what it hangs on."""
    assert CANARY not in f"{error!r} {error.args} {error.__dict__} {error.__cause__!r}"
    assert error.__suppress_context__ or error.__context__ is None


BEFORE = {"drifted": (PolicyDenied, "policy_denied"), "complete": (InvalidPayload, "invalid_payload")}


@pytest.mark.parametrize("method", BEFORE)
def test_before_the_tool_runs_it_is_a_denial(desk: Desk, method: str) -> None:
    """One Denied event, nothing runs, and nothing is quoted."""
    kind, code = BEFORE[method]
    with pytest.raises(kind) as caught:
        desk.call(**{method: fails})
    check_is_silent(caught.value)
    assert desk.events == [("denied", code, None)]
    assert desk.ran == []


@pytest.mark.parametrize("method", ["check_output", "reports_failure", "handed_back", "encode"])
@pytest.mark.parametrize("wraps_errors", [True, False])
def test_after_the_tool_ran_it_is_a_settled_failure(desk: Desk, method: str, wraps_errors: bool) -> None:
    """One Failed event ends the call; the caller reads that the tool failed, also where its own errors pass."""
    with pytest.raises(ExecutionFailed) as caught:
        desk.call(**{method: fails}, wraps_errors=wraps_errors)
    check_is_silent(caught.value)
    assert desk.events == [("authorized", None, None), ("failed", "execution_failed", "RuntimeError")]
    assert desk.ran == [{"cents": 5}]


def test_what_is_seen_of_a_result_is_unknown(desk: Desk) -> None:
    """Where its values cannot be looked at, the call is done all the same, and they count as from nowhere."""
    assert desk.call(seen=fails) == "paid"
    assert desk.events == [("authorized", None, None), ("succeeded", None, None)]


def test_a_replay_that_cannot_be_read(desk: Desk) -> None:
    """It is refused, once on record, and does not run again."""
    assert desk.call() == "paid"
    with pytest.raises(OutcomeUnknown) as caught:
        desk.call(decode=fails)
    check_is_silent(caught.value)
    assert [outcome for outcome, _, _ in desk.events] == ["authorized", "succeeded", "denied"]
    assert desk.ran == [{"cents": 5}]


def test_a_port_without_a_tool_runs_nothing() -> None:
    """A tool that is only known, not wrapped, cannot be run."""
    with pytest.raises(AssertionError, match="cannot be run"):
        ToolPort(SPEC).run(None, {"cents": 5})


async def test_a_function_port_awaits_what_is_async() -> None:
    """An async function is awaited; a sync one runs in a worker thread."""

    async def later(arguments: dict[str, Any]) -> int:
        return int(arguments["cents"])

    assert await FunctionPort(SPEC, later).arun(None, {"cents": 5}) == 5
    assert await FunctionPort(SPEC, lambda arguments: arguments["cents"]).arun(None, {"cents": 5}) == 5

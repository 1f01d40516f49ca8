"""The flow, stepped by hand: what it asks the world to do, in which order, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from guarded_core import (
    Answer,
    ApprovalRejected,
    Approvals,
    CallBudgetExhausted,
    ExecutionFailed,
    HumanApprovalRequired,
    NoSession,
    NotExecuted,
    PolicyDenied,
    StoreUnavailable,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolSpec,
)
from guarded_core.ground.payload import PayloadRefused
from guarded_core.pipeline.call import Authority
from guarded_core.pipeline.flow import enforce
from guarded_core.pipeline.steps import Services, run
from guarded_core.rules.kinds import RequireApproval
from guarded_core.store.base import Conflict
from guarded_core.store.ledger import CallKey
from guarded_core.store.memory import MemoryStore
from tests.core.calls import call_of

SPEC = ToolSpec.of(
    name="pay",
    description="Pays.",
    schema={"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]},
)


class Trail:
    blocking = False

    def __init__(self) -> None:
        self.events: list[Any] = []

    def append(self, event: Any) -> None:
        self.events.append(event)


class Bench:
    """One flow, its store and trail, and the means to answer its steps one by one."""

    def __init__(self, risk: str = "mutating", *, asks: bool = True, **call: Any) -> None:
        self.store, self.trail, self.ran = MemoryStore(), Trail(), []
        self.services = Services(store=self.store, sink=self.trail)
        self.policy = ToolExecutionPolicy({"pay": risk})
        self.context = ToolExecutionContext("user-17", ["pay"], 2, store=self.store)
        self.authority = Authority(policy=lambda: self.policy, asks=asks)
        self.call = call_of(
            **{"spec": SPEC, "function": self.pay, "arguments": {"amount": 5}, "context": self.context, **call}
        )
        self.flow = enforce(self.call, self.authority)
        self.steps: list[str] = []

    def pay(self, arguments: dict[str, Any]) -> str:
        self.ran.append(arguments)
        return "paid"

    def drive(self, answers: dict[str, Callable[[Any], Any]] | None = None) -> Any:
        """Answer each step as the services would, or as `answers` has it by the step's name."""
        try:
            step = next(self.flow)
            while True:
                self.steps.append(type(step).__name__)
                try:
                    override = (answers or {}).get(self.steps[-1])
                    answer = override(step) if override else step.perform(self.services)
                except BaseException as error:
                    step = self.flow.throw(error)
                else:
                    step = self.flow.send(answer)
        except StopIteration as done:
            return done.value

    @property
    def outcomes(self) -> list[str]:
        return [event.outcome.value for event in self.trail.events]


def _raise(error: BaseException) -> Callable[[Any], Any]:
    def fail(step: Any) -> Any:
        raise error

    return fail


def test_an_allowed_call_takes_six_steps() -> None:
    """Load, commit, record Authorized, execute, settle, record the outcome: nothing else, in this order."""
    bench = Bench()
    assert bench.drive() == "paid"
    assert bench.steps == ["Load", "Commit", "Record", "Execute", "Settle", "Record"]
    assert bench.outcomes == ["authorized", "succeeded"]


def test_a_denial_before_the_snapshot_reads_nothing() -> None:
    """Without a session the store is not even asked; the denial is counted and recorded."""
    bench = Bench(context=None)
    with pytest.raises(NoSession):
        bench.drive()
    assert bench.steps == ["Deny", "Record"]


def test_a_person_is_asked_and_everything_is_judged_again() -> None:
    """A financial call stores its request, records Asked, asks, decides, and is judged anew before it commits."""
    bench = Bench("financial")
    answer = Answer(by="reviewer-9", approve=True, reason="ok")
    assert bench.drive({"Ask": lambda step: answer}) == "paid"
    assert bench.steps == [
        *("Load", "AddRequest", "Record", "Ask", "Decide"),
        *("Load", "Commit", "Record", "Execute", "Settle", "Record"),
    ]
    assert bench.outcomes == ["asked", "authorized", "succeeded"]
    assert bench.trail.events[-1].approved_by == ("reviewer-9",)


def test_the_policy_of_the_moment_it_goes_on_counts() -> None:
    """A policy that changes while a person thinks refuses the call, though the person said yes."""
    bench = Bench("financial")

    def approve_late(step: Any) -> Answer:
        bench.policy = ToolExecutionPolicy([])
        return Answer(by="reviewer-9", approve=True)

    with pytest.raises(Exception, match="not available"):
        bench.drive({"Ask": approve_late})
    assert bench.ran == []


def test_a_no_reaches_the_model_with_its_reason() -> None:
    """A rejection is ApprovalRejected with its reason; the same call is refused again without a new question."""
    bench = Bench("financial")
    with pytest.raises(ApprovalRejected, match="too much"):
        bench.drive({"Ask": lambda step: Answer(by="reviewer-9", approve=False, reason="too much")})
    bench.flow = enforce(bench.call, bench.authority)
    bench.steps.clear()
    with pytest.raises(ApprovalRejected):
        bench.drive()
    assert bench.steps == ["Load", "Deny", "Record"]
    assert bench.context.remaining_calls == 2


@pytest.mark.parametrize("answer", [None, _raise(RuntimeError("terminal is gone"))])
def test_no_answer_is_no_approval(answer: Any) -> None:
    """An approver that leaves it open, or fails, refuses the call; the request stays to be decided elsewhere."""
    bench = Bench("financial")
    with pytest.raises(HumanApprovalRequired) as caught:
        bench.drive({"Ask": answer or (lambda step: None)})
    assert caught.value.request is not None
    assert bench.store.request(caught.value.request.id) is not None
    assert bench.ran == []


def test_an_approvers_answer_by_the_principal_itself_is_not_accepted() -> None:
    """The approver's answer meets the same rules as any: nobody approves their own call."""
    bench = Bench("financial")
    with pytest.raises(HumanApprovalRequired):
        bench.drive({"Ask": lambda step: Answer(by="user-17", approve=True)})
    assert bench.ran == []


def test_another_writer_decides_first() -> None:
    """Where somebody decided meanwhile, their decision counts."""
    bench = Bench("financial")

    def beaten(step: Any) -> Answer:
        bench.store.replace_request(
            step.request,
            step.request.voted(Answer(by="other", approve=True, reason=""), now_ns=bench.store.now_ns()),
        )
        return Answer(by="reviewer-9", approve=False, reason="too late")

    assert bench.drive({"Ask": beaten}) == "paid"
    assert bench.trail.events[-1].approved_by == ("other",)


@pytest.mark.parametrize(
    ("conflict", "error"),
    [
        (Conflict("counter", "calls:x"), CallBudgetExhausted),
        (Conflict("slot", "rate_limit_tool:pay"), PolicyDenied),
        (Conflict("flag", "deny_after:x"), PolicyDenied),
    ],
)
def test_a_commit_that_comes_too_late_is_refused(conflict: Conflict, error: type[Exception]) -> None:
    """A budget, slot or flag that another call took first refuses this one, and nothing runs."""
    bench = Bench()
    with pytest.raises(error):
        bench.drive({"Commit": _raise(conflict)})
    assert bench.ran == []
    assert bench.outcomes == ["denied"]


def test_an_approval_that_another_call_took_is_asked_for_again() -> None:
    """A request conflict in the commit goes back to the judgement."""
    bench = Bench("financial")
    conflicts = [Conflict("request", "r")]

    def commit(step: Any) -> None:
        if conflicts:
            raise conflicts.pop()
        step.perform(bench.services)

    assert bench.drive({"Commit": commit, "Ask": lambda step: Answer(by="r", approve=True)}) == "paid"
    assert bench.steps.count("Load") == 3


@pytest.mark.parametrize("step", ["Load", "Commit", "AddRequest"])
def test_a_failing_store_refuses(step: str) -> None:
    """Whatever the store raises, the call is StoreUnavailable and does not run."""
    bench = Bench("financial" if step == "AddRequest" else "mutating")
    with pytest.raises(StoreUnavailable):
        bench.drive({step: _raise(ConnectionError("host secret.example"))})
    assert bench.ran == []


def test_a_settlement_that_fails_is_told_apart_from_a_failed_call() -> None:
    """A store that cannot settle makes the outcome unaudited, not failed: the tool ran."""
    bench = Bench()
    with pytest.raises(Exception, match="could not be recorded"):
        bench.drive({"Settle": _raise(ConnectionError())})
    assert bench.ran == [{"amount": 5}]


class _Pause(BaseException):
    pass


class TestSignals:
    def test_a_signal_of_the_tool_passes_through(self) -> None:
        """A framework's control flow raised by the tool is neither swallowed nor a failure."""
        bench = Bench(signals=(_Pause,))
        with pytest.raises(_Pause):
            bench.drive({"Execute": _raise(_Pause())})
        assert bench.outcomes == ["authorized", "unknown"]

    def test_a_signal_of_the_approver_leaves_the_request(self) -> None:
        """A framework's control flow raised while asking records Asked and no denial."""
        bench = Bench("financial", signals=(_Pause,))
        with pytest.raises(_Pause):
            bench.drive({"Ask": _raise(_Pause())})
        assert bench.outcomes == ["asked"]


class TestNeverTwice:
    KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")

    def rerun(self, bench: Bench, **changes: Any) -> Any:
        bench.flow = enforce(replace(bench.call, **changes), bench.authority)
        bench.steps.clear()
        return bench.drive()

    def test_a_finished_call_is_replayed(self) -> None:
        """The same call again returns the recorded result: it runs and spends nothing, and is noted."""
        bench = Bench(key=self.KEY)
        assert bench.drive() == self.rerun(bench) == "paid"
        assert bench.steps == ["Load", "Record"]
        assert (len(bench.ran), bench.outcomes) == (1, ["authorized", "succeeded", "noted"])
        assert bench.trail.events[-1].code == "replayed"
        assert len({event.call_id for event in bench.trail.events}) == 1
        assert bench.context.remaining_calls == 1

    def test_the_same_id_at_another_position_is_another_call(self) -> None:
        """An id from a model is no identity: elsewhere it is another call, which runs, spends and is recorded."""
        bench = Bench(key=self.KEY)
        bench.drive()
        assert self.rerun(bench, key=CallKey(position="elsewhere", tool_call_id="call-1")) == "paid"
        assert (len(bench.ran), bench.outcomes) == (2, ["authorized", "succeeded"] * 2)

    def test_two_calls_with_equal_arguments_both_run(self) -> None:
        """Another call id is another call, whatever its arguments."""
        bench = Bench(key=self.KEY)
        bench.drive()
        self.rerun(bench, key=CallKey(position="thread-1/tools", tool_call_id="call-2"))
        assert len(bench.ran) == 2

    def test_a_claimed_call_without_an_outcome_does_not_run_again(self) -> None:
        """After a crash between claim and settlement the outcome is unknown, and the call is refused."""
        bench = Bench(key=self.KEY)
        step = next(bench.flow)
        while type(step).__name__ != "Execute":
            step = bench.flow.send(step.perform(bench.services))
        bench.flow.close()  # the process died here
        with pytest.raises(Exception, match="outcome is unknown"):
            self.rerun(bench)
        assert bench.ran == []

    def test_what_was_not_executed_may_be_tried_again(self) -> None:
        """A call whose tool says that it had no effect runs again, and spends again."""
        bench = Bench(key=self.KEY)
        with pytest.raises(Exception, match="failed"):
            bench.drive({"Execute": _raise(NotExecuted())})
        assert self.rerun(bench) == "paid"
        assert bench.context.remaining_calls == 0
        assert [event.code for event in bench.trail.events] == [None, "not_executed", None, None]

    def test_a_paused_call_is_entered_again_once_and_spends_nothing_more(self) -> None:
        """A call that the framework paused goes on under its own id, without a new budget, and ends once."""
        bench = Bench(key=self.KEY, signals=(_Pause,))
        with pytest.raises(_Pause):
            bench.drive({"Execute": _raise(_Pause())})
        assert self.rerun(bench) == "paid"
        assert bench.outcomes == ["authorized", "suspended", "resumed", "succeeded"]
        assert len({event.call_id for event in bench.trail.events}) == 1
        assert bench.context.remaining_calls == 1
        assert self.rerun(bench) == "paid"
        assert len(bench.ran) == 1

    def test_an_approved_read_only_call_goes_on_once(self) -> None:
        """A paused call that was claimed for its approval's sake keeps its claim when it goes on."""
        bench = Bench("read_only", key=self.KEY, signals=(_Pause,))
        bench.policy = ToolExecutionPolicy({"pay": "read_only"}, rules=[RequireApproval(tool="pay")])
        answer = Answer(by="reviewer-9", approve=True)
        with pytest.raises(_Pause):
            bench.drive({"Ask": lambda step: answer, "Execute": _raise(_Pause())})
        assert self.rerun(bench) == self.rerun(bench) == "paid"
        assert bench.outcomes == ["asked", "authorized", "suspended", "resumed", "succeeded", "noted"]
        assert len(bench.ran) == 1

    def test_of_two_that_enter_a_paused_call_one_goes_on(self) -> None:
        """Where two resume the same paused call at once, the second finds it taken."""
        bench = Bench(key=self.KEY, signals=(_Pause,))
        with pytest.raises(_Pause):
            bench.drive({"Execute": _raise(_Pause())})
        second = enforce(bench.call, bench.authority)
        step = next(second)  # has read the paused entry
        read = step.perform(bench.services)
        assert self.rerun(bench) == "paid"
        step = second.send(read)
        assert type(step).__name__ == "Commit"
        with pytest.raises(Conflict) as conflict:
            step.perform(bench.services)
        step = second.throw(conflict.value)
        step = second.send(step.perform(bench.services))
        assert type(step).__name__ == "Record"
        with pytest.raises(StopIteration) as done:
            second.send(step.perform(bench.services))
        assert (done.value.value, len(bench.ran)) == ("paid", 1)

    def test_what_was_asked_is_what_runs_after_a_restart(self) -> None:
        """Defaults that are computed anew each time stay what the person saw when the call is entered again."""
        nonces = iter(range(10))

        def fill_in(arguments: dict[str, Any]) -> dict[str, Any]:
            return {"nonce": next(nonces), **arguments}

        spec = ToolSpec.of(
            name="pay",
            description="Pays.",
            schema={
                "type": "object",
                "properties": {"amount": {"type": "integer"}, "nonce": {"type": "integer"}},
                "required": ["amount"],
            },
        )
        bench = Bench("financial", key=self.KEY, complete=fill_in, spec=spec)
        with pytest.raises(HumanApprovalRequired) as caught:
            bench.drive({"Ask": lambda step: None})
        assert caught.value.request is not None
        Approvals(bench.store).decide(caught.value.request.id, by="reviewer-9", approve=True)
        assert self.rerun(bench) == "paid"
        assert bench.ran == [{"amount": 5, "nonce": 0}]

    @pytest.mark.parametrize("approve", [True, False])
    def test_one_story_however_often_it_is_entered(self, approve: bool) -> None:
        """A call that is entered again before and after its decision leaves each event once, and notes its replays."""
        bench = Bench("financial", key=self.KEY, notes=("stripped",), signals=(_Pause,))
        for _ in range(3):
            with pytest.raises(_Pause):
                self.rerun(bench) if bench.steps else bench.drive({"Ask": _raise(_Pause())})
            bench.services = replace(bench.services, approver=_Pausing())
        (request,) = bench.store.requests()
        Approvals(bench.store).decide(request.id, by="reviewer-9", approve=approve)
        for _ in range(3):
            if approve:
                assert self.rerun(bench) == "paid"
            else:
                with pytest.raises(ApprovalRejected):
                    self.rerun(bench)
        end = ["authorized", "succeeded", "noted", "noted"] if approve else ["denied"]
        assert bench.outcomes == ["noted", "asked", *end]
        assert len(bench.ran) == approve

    def test_an_unknown_outcome_makes_equal_calls_ask(self) -> None:
        """After an unknown outcome, the same tool with the same arguments asks a person, whatever its risk."""
        bench = Bench(key=self.KEY)
        with pytest.raises(KeyboardInterrupt):
            bench.drive({"Execute": _interrupted})
        with pytest.raises(HumanApprovalRequired) as caught:
            self.rerun(bench, key=CallKey(position="thread-1/tools", tool_call_id="call-2"))
        assert caught.value.request is not None
        assert caught.value.request.reasons == ("outcome_unknown",)


class _Pausing:
    def ask(self, request: Any) -> None:
        raise _Pause


def _interrupted(step: Any) -> Any:
    step.started = True
    raise KeyboardInterrupt


def test_an_output_that_cannot_be_read_is_a_failure_of_the_call() -> None:
    """Where a framework's tool returns what cannot even be measured, the call has failed, and nothing leaks out."""

    def refuse(output: Any, limit: int) -> None:
        raise PayloadRefused("the result cannot be read")

    bench = Bench(check_output=refuse, wraps_errors=False)
    with pytest.raises(ExecutionFailed):
        bench.drive()
    assert bench.outcomes == ["authorized", "failed"]


def test_the_driver_hands_each_answer_back() -> None:
    """`run` answers every step and returns the flow's value."""
    bench = Bench()
    assert run(bench.flow, bench.services) == "paid"


def test_ask_without_an_approver_is_open() -> None:
    """With nobody to ask, asking has no answer."""
    bench = Bench("financial", asks=False)
    with pytest.raises(HumanApprovalRequired):
        run(bench.flow, bench.services)

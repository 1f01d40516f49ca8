"""A person who is asked changes the call's arguments, or answers in the tool's place."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from guarded_core import (
    Answer,
    AnsweredByPerson,
    ApprovalPayloadMismatch,
    ApprovalRejected,
    ApprovalRequest,
    CallbackApprover,
    EditRefused,
    ExecutionFailed,
    Guard,
    HumanApprovalRequired,
    InputTooLarge,
    InvalidApproval,
    InvalidPayload,
    MemoryStore,
    NotExecuted,
    PolicyDenied,
    QueueApprover,
    ToolExecutionPolicy,
    ToolSettings,
    ToolSpec,
)
from guarded_core.approvals.console import LastApproved
from guarded_core.approvals.request import SET_BY_APPLICATION, RequestState
from guarded_core.pipeline.call import edit_note
from guarded_core.rules.kinds import LimitToolParam, RequireApproval
from guarded_core.store.ledger import CallKey
from guarded_core.testing import RecordingSink, ScriptedApprover
from tests.core.calls import call_of
from tests.core.pausing import Pause, Waiting

SPEC = ToolSpec.of(
    name="pay",
    description="Pays.",
    schema={
        "type": "object",
        "properties": {
            "cents": {"type": "number"},
            "to": {"type": "string"},
            "currency": {"type": "string", "default": "EUR"},
        },
        "required": ["cents", "to"],
    },
)
SENT = {"cents": 900, "to": "Ann", "currency": "EUR"}
EDIT = {"cents": 500, "to": "Ann", "currency": "EUR"}
INCOMPLETE = {"cents": 500, "to": "Ann"}
COMPUTED = {**INCOMPLETE, "currency": "CHF"}  # what no schema declares, and nobody was shown


def computing(arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool's own parser that fills in what it finds out at that moment."""
    return {"currency": "CHF", **arguments}


CANARY = "canary-5f1e7b"
KEY = CallKey(position="thread-1/tools", tool_call_id="call-1")
OTHER_KEY = replace(KEY, tool_call_id="call-2")


class Desk:
    """A guard with one tool, `pay`, that a person is asked about, and what came of its calls."""

    def __init__(self, approver: Any = None, *, store: Any = None, rules: Any = (), **settings: Any) -> None:
        self.ran: list[Any] = []
        self.fails: BaseException | None = None
        self.trail = RecordingSink()
        policy = ToolExecutionPolicy({"pay": ToolSettings(**{"risk": "financial", **settings})}, rules=rules)
        self.guard = Guard(policy, approver=approver, store=store, audit=self.trail, keys=b"k" * 32)
        self.guard.register(SPEC)
        self.approvals = self.guard.approvals

    def call(self, key: CallKey | None = KEY, *, way: Any = None, **changes: Any) -> Any:
        """Propose SENT, or what is given, in one and the same session."""
        with self.guard.session("user-17", tools=["pay"], session_id="s", max_calls=9) as session:
            call = call_of(
                **{
                    "spec": SPEC,
                    "arguments": SENT,
                    "context": session,
                    "function": self.pay,
                    "key": key,
                    "signals": (Pause,),
                    **changes,
                }
            )
            return way(self.guard.run, self.guard.arun, call) if way else self.guard.run(call)

    def pay(self, arguments: dict[str, Any]) -> str:
        self.ran.append(arguments)
        if self.fails is not None:
            raise self.fails
        return f"paid {arguments['cents']}"

    def asked(self, key: CallKey | None = KEY, **changes: Any) -> ApprovalRequest:
        """The request that a call leaves in the store when nobody answers."""
        with pytest.raises((HumanApprovalRequired, Pause)):
            self.call(key, **changes)
        return self.approvals.pending()[-1]

    def edited(self, key: CallKey | None = KEY, arguments: Any = EDIT, by: str = "kim") -> ApprovalRequest:
        """What becomes of that request when a person changes its arguments."""
        return self.approvals.decide(self.asked(key).id, by=by, approve=True, arguments=arguments)

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        return [(event.outcome.value, event.code) for event in self.trail.events]


REPLAYED = ("noted", "replayed")
RAN_EDITED = [("asked", None), ("authorized", "edited"), ("succeeded", None)]


@pytest.fixture(params=[KEY, None], ids=["keyed", "without a key"])
def key(request: pytest.FixtureRequest) -> CallKey | None:
    """A call with a durable key, and one without."""
    found: CallKey | None = request.param
    return found


def saying(**answer: Any) -> CallbackApprover:
    """An approver who gives this answer, as kim."""
    return CallbackApprover(lambda request: Answer(**{"by": "kim", "approve": True, **answer}))


class TestEdit:
    def test_what_the_person_wrote_runs_once(self, store: Any, key: CallKey | None, way: Any) -> None:
        """The tool gets the changed arguments; old and new request, votes and events tell who changed what."""
        desk = Desk(saying(arguments=EDIT, reason="ticket 7"), store=store)
        assert desk.call(key, way=way) == "paid 500"
        assert desk.ran == [EDIT]
        old, new = store.requests()
        assert (old.state, old.arguments, old.replaced_by, old.votes) == (RequestState.EDITED, SENT, new.id, ())
        assert (new.state, new.arguments, new.replaces, new.approvers) == (
            RequestState.CONSUMED,
            EDIT,
            old.id,
            ("kim",),
        )
        assert new.digest != old.digest
        assert new.expires_ns == old.expires_ns
        assert desk.outcomes == RAN_EDITED
        authorized = desk.trail.events[1]
        assert (authorized.approved_by, authorized.approval_reason) == (("kim",), "ticket 7")
        assert authorized.request_id == new.id

    def test_a_decision_from_elsewhere(self, key: CallKey | None) -> None:
        """While the call waits, somebody changes its arguments in the store; these run."""
        desk = Desk(QueueApprover(wait_seconds=30, poll_seconds=0.005))

        def decide() -> None:
            while not (pending := desk.approvals.pending()):
                time.sleep(0.005)
            desk.approvals.decide(pending[0].id, by="kim", approve=True, arguments=EDIT)

        deciding = threading.Thread(target=decide)
        deciding.start()
        assert desk.call(key) == "paid 500"
        deciding.join()
        assert desk.outcomes == RAN_EDITED

    def test_a_call_that_comes_again_runs_the_edit(self, store: Any) -> None:
        """A call that nobody waited with takes the changed arguments when it is entered again, and is then replayed."""
        desk = Desk(Waiting(), store=store)
        new = desk.edited()
        assert [desk.call(), desk.call()] == ["paid 500"] * 2
        assert desk.ran == [EDIT]
        assert desk.outcomes == [*RAN_EDITED, REPLAYED]
        assert store.request(new.id).state is RequestState.CONSUMED

    def test_a_crash_between_the_edit_and_the_call(self, tmp_path: Path) -> None:
        """The edit is in the store: another process with the same call goes on with it."""
        pytest.importorskip("sqlalchemy")
        url = f"sqlite:///{tmp_path}/guard.db"
        first = Desk(store=url)
        first.edited()
        first.guard.close()
        second = Desk(store=url)
        assert second.call() == "paid 500"
        assert (second.ran, second.outcomes) == ([EDIT], RAN_EDITED[1:])
        second.guard.close()

    @pytest.mark.parametrize(
        "same",
        [SENT, dict(reversed(SENT.items())), {**SENT, "cents": 900.0}],
        ids=["equal", "another order", "another spelling of a number"],
    )
    def test_equal_arguments_are_a_plain_yes(self, same: dict[str, Any]) -> None:
        """Arguments that are the same JSON change nothing: the request itself is approved."""
        desk = Desk(Waiting())
        request = desk.asked()
        decided = desk.approvals.decide(request.id, by="kim", approve=True, arguments=same)
        assert (decided.id, decided.state, decided.arguments) == (request.id, RequestState.APPROVED, SENT)
        assert desk.call() == "paid 900"
        assert desk.outcomes == [("asked", None), ("authorized", None), ("succeeded", None)]

    def test_it_is_used_once(self, key: CallKey | None) -> None:
        """An equal call asks anew: an edit is an approval of one call."""
        desk = Desk(ScriptedApprover([Answer(by="kim", approve=True, arguments=EDIT)]))
        desk.call(key)
        with pytest.raises(HumanApprovalRequired):
            desk.call(key and OTHER_KEY, arguments=EDIT)
        assert desk.ran == [EDIT]

    def test_it_is_of_no_other_call(self) -> None:
        """With a key the edit is of that call only, whatever another call's arguments are."""
        desk = Desk()
        new = desk.edited()
        for arguments in (SENT, EDIT):
            with pytest.raises((HumanApprovalRequired, ApprovalPayloadMismatch)):
                desk.call(OTHER_KEY, arguments=arguments)
        assert (desk.ran, desk.approvals.get(new.id)) == ([], new)

    def test_it_is_not_of_the_models_arguments(self) -> None:
        """Without a key the call cannot be told again: the model's own arguments are other ones than were approved."""
        desk = Desk()
        desk.edited(None)
        with pytest.raises(ApprovalPayloadMismatch):
            desk.call(None)
        assert desk.ran == []
        assert desk.call(None, arguments=EDIT) == "paid 500"

    def test_it_is_used_also_where_nothing_asks_for_it(self, key: CallKey | None) -> None:
        """Changed to arguments that need no approval, the edit is still of one call, and on record with its author."""
        rule = RequireApproval(tool="pay", param="cents", above=600)
        desk = Desk(saying(arguments=EDIT), risk="mutating", rules=[rule])
        desk.call(key)
        assert desk.outcomes == RAN_EDITED
        assert desk.trail.events[1].approved_by == ("kim",)
        assert [request.state for request in desk.guard.store.requests()] == ["edited", "consumed"]

    def test_a_failed_call_that_is_tried_again(self) -> None:
        """A retry of what had no effect asks about the model's own arguments: the edit was used."""
        desk = Desk()
        desk.edited()
        desk.fails = NotExecuted()
        with pytest.raises(ExecutionFailed):
            desk.call()
        again = desk.asked()
        assert (again.arguments, again.replaces) == (SENT, None)
        desk.fails = None
        desk.approvals.decide(again.id, by="kim", approve=True)
        assert desk.call() == "paid 900"
        assert desk.ran == [EDIT, SENT]

    def test_deep_arguments(self) -> None:
        """A payload as deep as a policy may allow can be changed."""
        deep: dict[str, Any] = {"a": 1}
        for _ in range(100):
            deep = {"a": deep}
        request = replace(Desk().asked(), arguments=deep)
        changed = request.edited(Answer(by="kim", approve=True, arguments={**deep, "b": 1}), now_ns=1)
        assert changed is not None
        assert changed[1].arguments == {**deep, "b": 1}

    def test_what_was_approved_last(self) -> None:
        """What an approver compares the next request with is what was approved, changed or not, empty or not."""
        last, request = LastApproved(), Desk().asked()
        for arguments, kept in ((None, SENT), (EDIT, EDIT), ({}, {})):
            last.kept(request, Answer(by="kim", approve=True, arguments=arguments))
            assert last.of(request) == kept


class TestWhoMayEdit:
    def test_the_second_person_is_asked_about_the_edit(self) -> None:
        """Of two people that a call needs, the second sees what the first changed, under an id of its own."""
        asked: list[tuple[str, Any]] = []

        def kim(request: ApprovalRequest) -> Answer:
            asked.append((request.id, request.arguments))
            return Answer(by="kim", approve=True, arguments=EDIT)

        def lee(request: ApprovalRequest) -> bool:
            asked.append((request.id, request.arguments))
            return True

        desk = Desk([CallbackApprover(kim, by="kim"), CallbackApprover(lee, by="lee")], approvals=2)
        assert desk.call() == "paid 500"
        old, new = desk.guard.store.requests()
        assert asked == [(old.id, SENT), (new.id, EDIT)]
        assert desk.trail.events[-1].approved_by == ("kim", "lee")

    def test_a_yes_to_the_old_request(self, store: Any) -> None:
        """A yes to the request as it was is refused, and approves nothing of what it became; nor does the editor's."""
        desk = Desk(approvals=2, store=store)
        new = desk.edited()
        assert (new.state, new.approvers, new.required) == (RequestState.PENDING, ("kim",), 2)
        assert new.replaces is not None
        with pytest.raises(InvalidApproval, match="edited already"):
            desk.approvals.decide(new.replaces, by="lee", approve=True)
        with pytest.raises(InvalidApproval, match="decided already"):
            desk.approvals.decide(new.id, by="kim", approve=True)
        assert desk.asked() == desk.approvals.get(new.id) == new
        desk.approvals.decide(new.id, by="lee", approve=True)
        assert desk.call() == "paid 500"
        assert desk.trail.events[-1].approved_by == ("kim", "lee")

    def test_a_yes_to_other_arguments_does_not_count(self) -> None:
        """Who said yes before the change has to say so again; a change of the change starts anew too."""
        desk = Desk(approvals=2)
        first = desk.asked()
        desk.approvals.decide(first.id, by="lee", approve=True)
        second = desk.approvals.decide(first.id, by="kim", approve=True, arguments=EDIT)
        third = desk.approvals.decide(second.id, by="lee", approve=True, arguments={**EDIT, "cents": 400})
        assert [request.approvers for request in (second, third)] == [("kim",), ("lee",)]
        assert desk.approvals.answer(first.id, None) == third
        desk.approvals.decide(third.id, by="kim", approve=True)
        assert desk.call() == "paid 400"

    def test_who_voted_cannot_edit(self) -> None:
        """One person has one answer: after a yes, no change."""
        desk = Desk(approvals=2)
        request = desk.asked()
        voted = desk.approvals.decide(request.id, by="kim", approve=True)
        with pytest.raises(InvalidApproval, match="decided already"):
            desk.approvals.decide(request.id, by="kim", approve=True, arguments=EDIT)
        assert desk.guard.store.requests() == [voted]

    @pytest.mark.parametrize("by", ["user-17", "boss"])
    def test_nobody_changes_their_own_call(self, by: str) -> None:
        """The principal, and whoever it acts for, cannot put other arguments in; unless the tool says so."""
        desk = Desk()
        request = replace(desk.asked(), id="x", on_behalf_of=("boss",))
        desk.guard.store.add_request(request, max_pending=9)
        with pytest.raises(InvalidApproval, match="own call"):
            desk.approvals.decide("x", by=by, approve=True, arguments=EDIT)
        assert desk.approvals.get("x") == request
        desk = Desk(self_approval=True)
        assert desk.edited(by="user-17").state is RequestState.APPROVED
        assert desk.call() == "paid 500"


CANNOT: list[Any] = [
    pytest.param({"approve": False, "arguments": EDIT}, "go with a yes", id="arguments with a no"),
    pytest.param({"approve": 1, "arguments": EDIT}, "go with a yes", id="arguments with something like a yes"),
    pytest.param({"response": CANARY}, "goes with a no", id="a response with a yes"),
    pytest.param({"response": CANARY, "arguments": EDIT}, "goes with a no", id="a response with arguments"),
    pytest.param({"arguments": [CANARY]}, "an object", id="a list"),
    pytest.param({"arguments": CANARY}, "an object", id="text"),
    pytest.param({"arguments": {CANARY: float("nan")}}, "not finite", id="NaN"),
    pytest.param({"arguments": {CANARY: 2**64}}, "64 bits", id="a large integer"),
    pytest.param({"arguments": {5: CANARY}}, "not a string", id="a key that is no text"),
    pytest.param({"arguments": {CANARY: "\ud800"}}, "lone surrogate", id="no Unicode"),
    pytest.param({"arguments": {CANARY: object()}}, "not an object, array", id="no JSON"),
    pytest.param({"arguments": EDIT, "by": " "}, "not blank", id="by nobody"),
    pytest.param({"arguments": EDIT, "reason": CANARY * 200}, "2048 bytes", id="a long reason"),
    pytest.param({"approve": False, "response": " \n"}, "not blank", id="a blank response"),
    pytest.param({"approve": False, "response": "ü" * 1025}, "2048 bytes", id="a long response"),
    pytest.param({"approve": False, "response": 5}, "must be text", id="a response that is no text"),
]


@pytest.mark.parametrize(("answer", "message"), CANNOT)
def test_what_cannot_be_answered(store: Any, answer: dict[str, Any], message: str) -> None:
    """Such an answer is refused with a reason that quotes nothing, and the request is as it was."""
    desk = Desk(store=store)
    request = desk.asked()
    with pytest.raises(InvalidApproval, match=message) as caught:
        desk.approvals.decide(request.id, **{"by": "kim", "approve": True, **answer})
    assert CANARY not in str(caught.value)
    assert store.requests() == [request]


def test_an_answer_shows_nothing_of_what_it_carries() -> None:
    """Neither the changed arguments nor the response are in a repr, of the answer or of the requests."""
    desk = Desk()
    answer = Answer(by="kim", approve=True, arguments={CANARY: CANARY}, response=CANARY)
    new = desk.edited(arguments={CANARY: CANARY})
    assert CANARY not in repr(answer) + repr(new) + repr(desk.guard.store.requests())


class TestTime:
    def test_an_expired_request_cannot_be_changed(self) -> None:
        """Too late is too late, also with other arguments; the call has to ask again."""
        now = [1]
        desk = Desk(store=MemoryStore(clock=lambda: now[0]), expires_seconds=1)
        request = desk.asked()
        now[0] = request.expires_ns
        with pytest.raises(InvalidApproval, match="expired"):
            desk.approvals.decide(request.id, by="kim", approve=True, arguments=EDIT)
        assert desk.guard.store.requests() == [request]

    def test_an_edit_expires(self) -> None:
        """An edit that no call used in time is asked about again, as the person wrote it."""
        now = [1]
        desk = Desk(store=MemoryStore(clock=lambda: now[0]), expires_seconds=1)
        new = desk.edited()
        now[0] = new.expires_ns
        again = desk.asked()
        assert (again.arguments, again.replaces, again.votes) == (EDIT, new.id, ())

    def test_revoking(self) -> None:
        """A request that was changed is over; what it became can be taken back, and then the call is refused."""
        desk = Desk()
        new = desk.edited()
        with pytest.raises(InvalidApproval, match="edited already"):
            desk.approvals.revoke(str(new.replaces))
        desk.approvals.revoke(new.id)
        with pytest.raises(ApprovalRejected, match="taken back"):
            desk.call(KEY)
        assert desk.ran == []


REFUSED: list[Any] = [
    pytest.param({**EDIT, "cents": 5000}, PolicyDenied, ("limit_tool_param:pay.cents",), id="a rule"),
    pytest.param({**EDIT, "cents": CANARY}, InvalidPayload, (), id="the schema"),
    pytest.param({**EDIT, CANARY: 1}, InvalidPayload, (), id="an unknown name"),
    pytest.param({}, InvalidPayload, (), id="nothing"),
    pytest.param({**EDIT, "to": CANARY * 10}, InputTooLarge, (), id="too large"),
]


class TestRefusedEdit:
    @pytest.mark.parametrize(("arguments", "why", "rules"), REFUSED)
    def test_a_person_is_not_above_the_policy(
        self, key: CallKey | None, arguments: Any, why: Any, rules: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Changed arguments that schema, limits or rules refuse do not run; the model is told, and no value is quoted.

        The denial is on record with its rules and with who changed the call.
        """
        caplog.set_level(logging.DEBUG)
        desk = Desk(saying(arguments=arguments), rules=[LimitToolParam(tool="pay", param="cents", max=1000)])
        desk.guard.reload(desk.guard.policy.with_payload_limits(100, 1000))
        with pytest.raises(EditRefused, match="A person changed this call's arguments") as caught:
            desk.call(key)
        error, (_, denied) = caught.value, desk.trail.events
        assert (type(error.refusal), error.__cause__, error.__suppress_context__) == (why, None, True)
        _, new = desk.guard.store.requests()
        assert error.as_dict() == {
            "code": "edit_refused",
            "tool": "pay",
            "call_id": denied.call_id,
            "request_id": new.id,
        }
        assert (denied.outcome, denied.code, denied.rules) == ("denied", "edit_refused", rules)
        assert (denied.request_id, denied.approved_by) == (new.id, ("kim",))
        assert desk.ran == []
        shown = [str(error), repr(error), str(error.refusal), *map(str, desk.trail.events), caplog.text]
        assert CANARY not in "\n".join(shown)

    def test_it_stays_refused(self, store: Any) -> None:
        """A keyed call that is entered again is refused again, with one denial and one note on record; nothing asks."""
        desk = Desk(Waiting(), store=store, rules=[LimitToolParam(tool="pay", param="cents", max=1000)])
        request = desk.asked(notes=("stripped",))
        desk.approvals.decide(request.id, by="kim", approve=True, arguments={**EDIT, "cents": 5000})
        for _ in range(3):
            with pytest.raises(EditRefused):
                desk.call(notes=("stripped",))
        assert desk.outcomes == [("noted", "stripped"), ("asked", None), ("denied", "edit_refused")]

    def test_it_crosses_processes(self) -> None:
        """The error survives pickling, with what was wrong."""
        error = pickle.loads(pickle.dumps(EditRefused("pay", InvalidPayload("pay", "no"))))
        assert (error.code, str(error.refusal)) == ("edit_refused", str(InvalidPayload("pay", "no")))


class TestAskedAgain:
    """What a person wrote is not always what would run."""

    def test_a_default_is_missing(self, key: CallKey | None) -> None:
        """A default that was shown, or is declared, completes what the person wrote: asked once, recorded whole."""
        for sent in (SENT, {**SENT, "currency": "CHF"}):
            desk = Desk(saying(arguments=INCOMPLETE))
            assert desk.call(key, arguments=sent) == "paid 500"
            first, written, whole = desk.guard.store.requests()
            assert (first.arguments, written.arguments, whole.arguments) == (sent, INCOMPLETE, EDIT)
            assert (first.replaced_by, written.replaced_by, whole.replaces) == (written.id, whole.id, written.id)
            assert (whole.approvers, whole.state) == (("kim",), RequestState.CONSUMED)
            assert (desk.ran, desk.outcomes) == ([EDIT], RAN_EDITED)
            assert desk.trail.events[-1].approved_by == ("kim",)

    def test_a_default_is_missing_where_two_are_needed(self) -> None:
        """The vote of who changed it counts for the whole, which the second person is shown."""
        asked: list[ApprovalRequest] = []

        def lee(request: ApprovalRequest) -> Answer:
            asked.append(request)
            return Answer(by="lee", approve=True)

        kim = CallbackApprover(lambda request: Answer(by="kim", approve=True, arguments=INCOMPLETE), by="kim")
        desk = Desk([kim, CallbackApprover(lee, by="lee")], approvals=2)
        assert desk.call() == "paid 500"
        assert [(request.arguments, request.approvers) for request in asked] == [(EDIT, ("kim",))]
        assert desk.trail.events[-1].approved_by == ("kim", "lee")

    def test_what_is_changed_is_no_default(self) -> None:
        """A value that the tool makes another one of was not approved as it would run, default or not."""
        approver = ScriptedApprover([Answer(by="kim", approve=True, arguments=INCOMPLETE), False], by="lee")
        with pytest.raises(ApprovalRejected):
            Desk(approver).call(complete=lambda arguments: {**arguments, "cents": 501, "currency": "EUR"})
        assert [request.arguments["cents"] for request in approver.asked] == [501, 501]

    def test_a_computed_value_is_missing(self, key: CallKey | None) -> None:
        """Where the tool computes what completes it, the whole is asked about once more, and runs."""
        approver = ScriptedApprover([Answer(by="kim", approve=True, arguments=INCOMPLETE), True], by="lee")
        desk = Desk(approver)
        assert desk.call(key, complete=computing) == "paid 500"
        assert [request.arguments for request in approver.asked] == [SENT, COMPUTED]
        first, second = approver.asked
        _, written, whole = desk.guard.store.requests()
        assert (written.arguments, written.replaces) == (INCOMPLETE, first.id)
        assert (second.id, second.replaces, second.votes) == (whole.id, written.id, ())
        assert (written.state, written.replaced_by) == (RequestState.EDITED, whole.id)
        assert desk.ran == [COMPUTED]
        assert desk.outcomes == [("asked", None), *RAN_EDITED]
        assert desk.trail.events[-1].approved_by == ("lee",)

    @pytest.mark.parametrize("other", [RequestState.REVOKED, RequestState.REJECTED, RequestState.EDITED])
    def test_somebody_is_first(self, other: RequestState) -> None:
        """Where what a person wrote is changed just then, the new one is asked about; where it is refused, nothing."""

        class Raced(MemoryStore):
            raced = False

            def replace_request(self, old: Any, new: Any, added: Any = None) -> bool:
                if old.replaces is not None and added is not None and not self.raced:
                    self.raced = True
                    ended = old.moved(other)
                    assert super().replace_request(old, ended)
                    if other is RequestState.EDITED:
                        fresh = replace(old, id="f" * 32, replaces=old.id, arguments=EDIT | {"cents": 400})
                        assert super().replace_request(ended, replace(ended, replaced_by=fresh.id), fresh)
                return super().replace_request(old, new, added)

        approver = ScriptedApprover([Answer(by="kim", approve=True, arguments=INCOMPLETE), True], by="lee")
        desk = Desk(approver, store=Raced())
        if other is not RequestState.EDITED:
            with pytest.raises(ApprovalRejected):
                desk.call(complete=computing)
            assert desk.ran == []
            return
        assert desk.call(complete=computing) == "paid 400"
        assert [request.arguments for request in approver.asked] == [SENT, EDIT | {"cents": 400}]

    def test_an_application_sets_some(self, key: CallKey | None) -> None:
        """What the application sets is not the person's to give: it is put in, asked about by name, and runs."""
        approver = ScriptedApprover([Answer(by="kim", approve=True, arguments={**EDIT, "token": "theirs"}), True])
        desk = Desk(approver)
        changes: dict[str, Any] = {
            "complete": lambda arguments: {**arguments, "token": CANARY},
            "set_by_application": frozenset({"token"}),
        }
        assert desk.call(key, **changes) == "paid 500"
        assert desk.ran == [{**EDIT, "token": CANARY}]
        assert approver.asked[1].arguments == {**EDIT, "token": SET_BY_APPLICATION}

    def test_it_can_be_said_elsewhere(self) -> None:
        """Each of the two questions may be answered between two entries of the call."""
        desk = Desk(Waiting())
        desk.edited(arguments=INCOMPLETE)
        whole = desk.asked(complete=computing)
        assert whole.arguments == COMPUTED
        desk.approvals.decide(whole.id, by="lee", approve=True)
        assert [desk.call(complete=computing), desk.call(complete=computing)] == ["paid 500"] * 2
        assert (desk.ran, desk.outcomes) == ([COMPUTED], [("asked", None), *RAN_EDITED, REPLAYED])

    def test_code_that_never_says_yes(self, way: Any) -> None:
        """An approver that gives the same incomplete arguments for ever ends as a call that nobody approved."""
        desk, numbers = Desk(saying(arguments=INCOMPLETE)), count()
        with pytest.raises(HumanApprovalRequired):
            desk.call(way=way, complete=lambda arguments: {**arguments, "currency": f"X{next(numbers)}"})
        assert (desk.ran, desk.outcomes.count(("asked", None))) == ([], 17)


RACES: dict[str, list[dict[str, Any]]] = {
    "edits": [{"arguments": {**EDIT, "cents": n}} for n in range(8)],
    "edits and approvals": [{"arguments": EDIT} if n % 2 else {} for n in range(8)],
    "edits and rejections": [{"arguments": EDIT} if n % 2 else {"approve": False} for n in range(8)],
}


@pytest.mark.parametrize("answers", RACES.values(), ids=RACES)
def test_of_many_who_decide_at_once_one_does(store: Any, answers: list[dict[str, Any]]) -> None:
    """However many change, approve or reject one request at the same time, one of them decides it; the others know."""
    desk = Desk(store=store)
    request, barrier = desk.asked(), threading.Barrier(len(answers))

    def decide(person: int) -> ApprovalRequest | str:
        barrier.wait()
        try:
            return desk.approvals.decide(request.id, **{"by": f"person-{person}", "approve": True, **answers[person]})
        except InvalidApproval as error:
            return str(error)

    with ThreadPoolExecutor(len(answers)) as threads:
        results = list(threads.map(decide, range(len(answers))))
    (winner,) = [result for result in results if isinstance(result, ApprovalRequest)]
    found = store.requests()
    assert found[-1] == winner
    assert len(found) == (1 if winner.id == request.id else 2)
    assert results.count(f"this request is {found[0].state.value} already") == len(answers) - 1
    if winner.state is RequestState.APPROVED:
        desk.call()
        assert desk.ran == [winner.arguments]


class TestTold:
    """Whoever proposed the call has to know what ran."""

    @staticmethod
    def told(bound: Any, result: Any, ran: dict[str, Any], *, is_edited: bool) -> str:
        return f"{result} {ran['cents']} {is_edited}"

    @pytest.mark.parametrize(("arguments", "said"), [(EDIT, "paid 500 500 True"), (SENT, "paid 900 900 False")])
    def test_what_ran(self, arguments: dict[str, Any], said: str) -> None:
        """The result is handed back with what ran and whether a person changed it; a replay says the same."""
        desk = Desk(saying(arguments=arguments))
        assert [desk.call(handed_back=self.told), desk.call(handed_back=self.told)] == [said] * 2

    def test_after_a_pause(self, store: Any) -> None:
        """A changed call that the framework pauses goes on with the edit, and is told so."""
        desk = Desk(saying(arguments=EDIT), store=store)
        desk.fails = Pause()
        with pytest.raises(Pause):
            desk.call(handed_back=self.told)
        desk.fails = None
        assert [desk.call(handed_back=self.told), desk.call(handed_back=self.told)] == ["paid 500 500 True"] * 2
        assert desk.ran == [EDIT, EDIT]
        ended = ["asked", "authorized", "suspended", "resumed", "succeeded", "noted"]
        assert [outcome for outcome, _ in desk.outcomes] == ended

    def test_what_cannot_be_told(self) -> None:
        """A result that cannot be handed back is a failure of the call, which ends on record."""

        def told(bound: Any, result: Any, ran: Any, *, is_edited: bool) -> Any:
            raise ValueError

        desk = Desk(saying(arguments=EDIT))
        with pytest.raises(ExecutionFailed):
            desk.call(handed_back=told)
        assert desk.outcomes[-1] == ("failed", "execution_failed")

    def test_the_note(self) -> None:
        """The note names the tool and the arguments that ran; of very long ones it leaves the end out."""
        said = "Note: your call was changed before it ran; do not repeat it. What ran is pay with these arguments: "
        assert edit_note("pay", {"cents": 500, "to": "Änn"}) == said + '{"cents":500,"to":"Änn"}'
        assert edit_note("pay", {"to": "x" * 5000}) == said + '{"to":"' + "x" * 1993 + "…"


class TestResponse:
    def test_it_stands_in_the_tools_place(self, store: Any, key: CallKey | None, way: Any) -> None:
        """The model gets exactly what the person wrote; nothing runs or is spent, and the trail has the code alone."""
        desk = Desk(saying(approve=False, response=CANARY, reason="not recorded"), store=store)
        with pytest.raises(AnsweredByPerson) as caught:
            desk.call(key, way=way)
        error = caught.value
        assert isinstance(error, ApprovalRejected)
        assert (str(error), error.reason, error.code, desk.ran) == (CANARY, CANARY, "answered_by_person", [])
        assert desk.outcomes == [("asked", None), ("denied", "answered_by_person")]
        (request,) = store.requests()
        assert (request.state, request.votes[0].responds) == (RequestState.REJECTED, True)
        assert error.request_id == request.id
        assert CANARY not in "".join(map(str, desk.trail.events))
        copied = pickle.loads(pickle.dumps(error))
        assert (str(copied), copied.as_dict()) == (CANARY, error.as_dict())

    def test_a_call_that_comes_again_gets_it_again(self, store: Any) -> None:
        """The answer stays the call's, and its denial is on record once."""
        desk = Desk(Waiting(), store=store)
        request = desk.asked()
        desk.approvals.decide(request.id, by="kim", approve=False, response="ü" * 1024)
        for _ in range(3):
            with pytest.raises(AnsweredByPerson) as caught:
                desk.call()
            assert str(caught.value) == "ü" * 1024
        assert desk.outcomes == [("asked", None), ("denied", "answered_by_person")]

    def test_a_reason_is_no_response(self) -> None:
        """A plain no with a reason is told as a rejection."""
        with pytest.raises(ApprovalRejected, match="Reason: too much") as caught:
            Desk(saying(approve=False, reason="too much")).call()
        assert type(caught.value) is ApprovalRejected


def test_the_card_of_a_changed_request() -> None:
    """A request says which one it stands in for, and one that is over says which one stands in for it."""
    desk = Desk()
    new = desk.edited()
    old = desk.approvals.get(str(new.replaces))
    new_facts, old_facts = dict(new._card().facts), dict(old._card().facts)
    assert (new_facts.get("changed"), new_facts.get("now")) == (f"by a person, from request {old.id}", None)
    assert (old_facts.get("changed"), old_facts.get("now")) == (None, f"request {new.id}")
    assert "edited" in old._repr_html_()


class TestPausedRead:
    """A read-only call has no claim while it runs; it gets one where the framework pauses it."""

    def paused(self, store: Any) -> Desk:
        desk = Desk(store=store, risk="read_only")
        desk.fails = Pause()
        with pytest.raises(Pause):
            desk.call()
        desk.fails = None
        return desk

    def test_it_goes_on(self, store: Any) -> None:
        """It is entered again as the same call, which has spent once, ends once, and is then replayed."""
        desk = self.paused(store)
        assert [desk.call(), desk.call()] == ["paid 900"] * 2
        assert [outcome for outcome, _ in desk.outcomes] == ["authorized", "suspended", "resumed", "succeeded", "noted"]
        assert len({event.call_id for event in desk.trail.events}) == 1
        with desk.guard.session("user-17", tools=["pay"], session_id="s", max_calls=9) as session:
            assert session.remaining() == 8

    def test_two_at_once(self, store: Any) -> None:
        """Where the same call runs twice side by side, the first that is paused goes on; the other's end is unknown."""
        desk = Desk(store=store, risk="read_only")

        def inner(arguments: dict[str, Any]) -> None:
            with pytest.raises(Pause):
                desk.call(function=self.pausing)
            raise Pause

        with pytest.raises(Pause):
            desk.call(function=inner)
        assert desk.outcomes[2:] == [("suspended", None), ("unknown", "suspended")]
        assert desk.call() == "paid 900"
        assert desk.trail.events[-1].call_id == desk.trail.events[2].call_id

    def test_one_that_failed_can_be_paused_again(self, store: Any) -> None:
        """A retry of a call that failed after its pause is in the ledger from the start, and goes on after its own."""
        desk = self.paused(store)
        desk.fails = ValueError()
        with pytest.raises(ExecutionFailed):
            desk.call()
        desk.fails = Pause()
        with pytest.raises(Pause):
            desk.call()
        desk.fails = None
        assert desk.call() == "paid 900"
        assert [outcome for outcome, _ in desk.outcomes][3:] == [
            *("failed", "authorized", "suspended", "resumed", "succeeded"),
        ]

    @staticmethod
    def pausing(arguments: dict[str, Any]) -> Any:
        raise Pause

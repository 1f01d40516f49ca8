"""`GuardMiddleware(ask="message")`: one interrupt for all calls of a message, as LangChain's own asks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from guarded_core import Guard, GuardConfigurationError, MemoryStore, ToolExecutionPolicy, ToolSettings
from guarded_core.rules.kinds import LimitToolParam
from guarded_core.testing import ScriptedApprover
from guarded_langchain import GuardMiddleware, InterruptApprover, guard_tools
from guarded_langchain.graph import compat as graph_compat
from tests.langchain.graphs import CONFIG, model, plan

ANSWERS = "any" if graph_compat.TAKES_BARE_VALUES else "by_id"

# What LangChain's own middleware says of a decision is compared with the one of today.
as_of_today = pytest.mark.skipif(
    "hitl_interrupt_decision" not in inspect.getsource(inspect.getmodule(HumanInTheLoopMiddleware)),  # type: ignore[arg-type]
    reason="an older LangChain's own answers say less",
)

THREE = [("pay", {"amount": 1}, "a"), ("look", {"what": "x"}, "b"), ("pay", {"amount": 2}, "c")]
APPROVE, REJECT = {"type": "approve"}, {"type": "reject", "message": "too much"}
RESPOND = {"type": "respond", "message": "by hand"}


def edit(amount: Any, **more: Any) -> dict[str, Any]:
    """A reviewer's other arguments."""
    return {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": amount, **more}}}


class Desk:
    """An agent behind one middleware, of either kind, and what its tools did."""

    def __init__(self, kind: str = "ours", by: str | None = "kim", store: Any = None, **settings: Any) -> None:
        self.did: list[Any] = []
        self.saver = InMemorySaver()
        self.kind, self.by = kind, by

        @tool
        def pay(amount: int, note: str = "none") -> str:
            """Pay."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool
        def look(what: str) -> str:
            """Look."""
            self.did.append(what)
            return f"saw {what}"

        approver = {"answers": ANSWERS, **settings.pop("approver", {})}
        policy = ToolExecutionPolicy(
            {"pay": ToolSettings(risk="financial", **settings.pop("pay", {})), "look": "read_only"}
        )
        self.approver = InterruptApprover(identify=lambda runtime: self.by, **approver)
        self.guard = Guard(policy, approver=self.approver, store=store)
        self.tools: list[Any] = [pay, look] if kind == "theirs" else guard_tools([pay, look], self.guard)
        self.settings = settings

    def agent(self) -> Any:
        """As a new process would make it."""
        if self.kind == "theirs":
            middleware: Any = HumanInTheLoopMiddleware({"pay": True})
        else:
            middleware = GuardMiddleware(self.guard, ask="message", **self.settings)
        return create_agent(model(), self.tools, middleware=[middleware], checkpointer=self.saver)

    def run(self, entered: Any, is_async: bool = False) -> dict[str, Any]:
        """What the graph returns."""
        with self.guard.session("user-17", tools=["pay", "look"], session_id="s"):
            if is_async:
                found: dict[str, Any] = asyncio.run(self.agent().ainvoke(entered, CONFIG))
                return found
            returned: dict[str, Any] = self.agent().invoke(entered, CONFIG)
            return returned

    def begin(self, calls: Any = THREE, is_async: bool = False) -> Any:
        """The one interrupt that the model's message comes to."""
        (shown,) = self.run(plan(calls), is_async)["__interrupt__"]
        return shown


def answers(result: dict[str, Any]) -> list[tuple[str, str, str, Any]]:
    """Each call's message: id, status, content, who is its source."""
    return [
        (each.tool_call_id, each.status, str(each.content), each.additional_kwargs.get("lc_source"))
        for each in result["messages"]
        if isinstance(each, ToolMessage)
    ]


BARE: Callable[[Any, Any], Any] = lambda shown, decisions: Command(resume={"decisions": decisions})  # noqa: E731
BY_ID: Callable[[Any, Any], Any] = lambda shown, decisions: Command(resume={shown.id: {"decisions": decisions}})  # noqa: E731


@as_of_today
@pytest.mark.parametrize("form", [pytest.param(BARE, id="bare"), pytest.param(BY_ID, id="by id")])
@pytest.mark.parametrize(
    ("decisions", "did"),
    [
        ([APPROVE, APPROVE], [1, 2, "x"]),
        ([APPROVE, REJECT], [1, "x"]),
        ([REJECT, RESPOND], ["x"]),
        ([edit(7), APPROVE], [2, 7, "x"]),
        ([RESPOND, edit(8)], [8, "x"]),
    ],
)
def test_as_langchains_own(decisions: Any, did: list[Any], form: Any, is_async: bool) -> None:
    """The same reply to the same message has the same calls run, in both; so has the same source of each message."""
    seen = {}
    for kind in ("theirs", "ours"):
        desk = Desk(kind)
        shown = desk.begin(is_async=is_async)
        assert desk.did == []  # what needs nobody waits too
        assert [each["name"] for each in shown.value["action_requests"]] == ["pay", "pay"]
        assert [each["args"]["amount"] for each in shown.value["action_requests"]] == [1, 2]
        assert [each["action_name"] for each in shown.value["review_configs"]] == ["pay", "pay"]
        result = desk.run(form(shown, decisions), is_async)
        assert "__interrupt__" not in result
        assert sorted(desk.did, key=str) == did
        # LangChain answers the refused calls before the others run; the guard answers each call in its turn.
        seen[kind] = sorted((call, status, source) for call, status, _, source in answers(result))
    assert seen["ours"] == seen["theirs"]


@as_of_today
def test_one_question_binds_what_it_showed(is_async: bool) -> None:
    """Its id stands for these requests; each carries its digest, and the reply says a decision for each, in order."""
    desk = Desk()
    shown = desk.begin(is_async=is_async)
    requests = desk.guard.approvals.pending()
    assert shown.value["question_id"] == shown.id
    assert shown.value["requests"] == [
        {"request_id": each.id, "tool_call_id": each.tool_call_id, "digest": each.digest} for each in requests
    ]
    assert [event.outcome.value for event in desk.guard.audit.events] == ["asked", "asked"]
    schema = shown.response_schema["properties"]["decisions"]
    assert (schema["minItems"], schema["maxItems"], len(schema["prefixItems"])) == (2, 2, 2)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ({"decisions": [APPROVE]}, "it has 1 decisions, and the question takes 2"),
        ({"decisions": [APPROVE, APPROVE, APPROVE]}, "it has 3 decisions, and the question takes 2"),
        (APPROVE, "it has 1 decisions, and the question takes 2"),
        (True, "it is not a list of decisions"),
        ({"decisions": [APPROVE, {"type": "yes"}]}, "it has no known type"),
        ({"decisions": [APPROVE, APPROVE | {"amount": 3}]}, "it has keys that no decision has"),
        ({"decisions": [APPROVE, APPROVE | {"digest": "0" * 64}]}, "it names another digest"),
    ],
)
def test_what_is_no_answer_decides_nothing(reply: Any, why: str, is_async: bool) -> None:
    """All of a reply is read before any of it counts: one that is wrong in one place shows the question again."""
    desk = Desk()
    shown = desk.begin(is_async=is_async)
    (again,) = desk.run(Command(resume={shown.id: reply}), is_async)["__interrupt__"]
    assert again.id == shown.id
    assert why in again.value["action_requests"][0]["description"]
    assert desk.did == []
    assert len(desk.guard.approvals.pending()) == 2


def test_a_reply_sent_twice_does_nothing(is_async: bool) -> None:
    """By its id it is for one question; the next message's is another, whatever the model sends again."""
    desk = Desk()
    calls = [("pay", {"amount": 1}, "a"), ("pay", {"amount": 2}, "c")]
    (shown,) = desk.run(plan(calls, calls), is_async)["__interrupt__"]
    reply = BY_ID(shown, [APPROVE, APPROVE])
    (following,) = desk.run(reply, is_async)["__interrupt__"]
    assert following.id != shown.id
    (still,) = desk.run(reply, is_async)["__interrupt__"]
    assert still.id == following.id
    assert sorted(desk.did) == [1, 2]


def test_decided_elsewhere(is_async: bool) -> None:
    """One of several may be decided in the store; the rest is a question of its own."""
    desk = Desk()
    shown = desk.begin(is_async=is_async)
    first, second = desk.guard.approvals.pending()
    desk.guard.approvals.decide(first.id, by="lee", approve=False)
    (rest,) = desk.run(None, is_async)["__interrupt__"]
    assert rest.id == second.id
    assert [each["args"]["amount"] for each in rest.value["action_requests"]] == [2]
    desk.run(BY_ID(rest, [APPROVE]), is_async)
    assert sorted(desk.did, key=str) == [2, "x"]
    assert shown.id not in (first.id, second.id)


def test_two_people(is_async: bool) -> None:
    """Where two have to say yes, the question stays until another person has answered it too."""
    desk = Desk(pay={"approvals": 2})
    shown = desk.begin(is_async=is_async)
    reply = BY_ID(shown, [APPROVE, APPROVE])
    (again,) = desk.run(reply, is_async)["__interrupt__"]
    assert again.id == shown.id
    (refused,) = desk.run(reply, is_async)["__interrupt__"]
    assert "this person has decided already" in refused.value["action_requests"][0]["description"]
    desk.by = "lee"
    desk.run(reply, is_async)
    assert sorted(desk.did, key=str) == [1, 2, "x"]


@pytest.mark.parametrize("by", [None, "user-17"])
def test_who_may_not_answer(by: str | None, is_async: bool) -> None:
    """Nobody known, and the caller themselves, decide nothing of it."""
    desk = Desk(by=by)
    shown = desk.begin(is_async=is_async)
    (again,) = desk.run(BY_ID(shown, [APPROVE, APPROVE]), is_async)["__interrupt__"]
    assert again.id == shown.id
    assert desk.did == []


def test_an_edit_that_leaves_a_default_out_asks_once(is_async: bool) -> None:
    """The default was shown, or is declared: no second question; the request that ran has the whole payload."""
    desk = Desk()
    shown = desk.begin([("pay", {"amount": 9, "note": "n"}, "a")], is_async)
    result = desk.run(BY_ID(shown, [edit(5)]), is_async)
    assert "__interrupt__" not in result
    assert desk.did == [5]
    used = [each for each in desk.guard.store.requests() if each.state.value == "consumed"]
    assert [each.arguments for each in used] == [{"amount": 5, "note": "none"}]
    assert [event.outcome.value for event in desk.guard.audit.events] == ["asked", "authorized", "succeeded"]


def test_what_the_model_wrote_stands_beside(is_async: bool) -> None:
    """`args` is what would run; `written_args` what the model sent, where that is something else."""
    desk = Desk()
    shown = desk.begin([("pay", {"amount": 9}, "a"), ("pay", {"amount": 8, "note": "n"}, "b")], is_async)
    first, second = shown.value["action_requests"]
    assert first["args"] == {"amount": 9, "note": "none"}
    assert first["written_args"] == {"amount": 9}
    assert "written_args" not in second


def test_decisions_by_tool_and_a_description(is_async: bool) -> None:
    """What may be said, by tool; the application's words are drawn above the request, markup and all."""
    settings = {"decisions": {"pay": ["approve", "reject"]}, "describe": lambda request: f"![x](http://{request.tool})"}
    desk = Desk(approver=settings)
    shown = desk.begin(is_async=is_async)
    assert shown.value["review_configs"][0]["allowed_decisions"] == ["approve", "reject"]
    description = shown.value["action_requests"][0]["description"]
    assert description.startswith("```\n![x](http://pay)\n```\n\n```\nApproval wanted: pay")
    (again,) = desk.run(BY_ID(shown, [edit(3), APPROVE]), is_async)["__interrupt__"]
    assert "this question takes approve, reject" in again.value["action_requests"][0]["description"]
    assert desk.did == []


@pytest.mark.parametrize("ask", ["message", "call"])
def test_when_adds_a_question(ask: Any, is_async: bool) -> None:
    """A predicate has a person asked about a call that the policy would let run, and waives no question."""
    seen: list[Any] = []

    def when(request: Any) -> bool:
        seen.append((request.tool_call["name"], request.runtime.tool_call_id))
        return bool(request.tool_call["args"]["what"] == "secret")

    desk = Desk(when={"look": when, "pay": lambda request: False})
    middleware = GuardMiddleware(desk.guard, ask=ask, when={"look": when, "pay": lambda request: False})
    desk.agent = lambda: create_agent(model(), desk.tools, middleware=[middleware], checkpointer=desk.saver)  # type: ignore[method-assign]
    calls = [("look", {"what": "secret"}, "a"), ("look", {"what": "x"}, "b")]
    shown = desk.begin(calls, is_async)
    assert [each["args"]["what"] for each in shown.value["action_requests"]] == ["secret"]
    assert desk.guard.approvals.pending()[0].reasons == ("asked_by_application",)
    desk.run(BY_ID(shown, [REJECT]), is_async)
    assert "secret" not in desk.did
    assert ("look", "a") in seen
    desk.run(BY_ID(desk.begin([("pay", {"amount": 1}, "p")], is_async), [APPROVE]), is_async)
    assert 1 in desk.did


def test_the_call_has_the_last_word(is_async: bool) -> None:
    """Judged when it is asked about, a call is judged again when it comes: what was revoked meanwhile does not run."""
    desk = Desk()
    desk.begin(is_async=is_async)
    first, second = desk.guard.approvals.pending()
    for each in (first, second):
        desk.guard.approvals.decide(each.id, by="lee", approve=True)
    desk.guard.approvals.revoke(second.id)
    desk.run(None, is_async)
    assert sorted(desk.did, key=str) == [1, "x"]


def test_spends_nothing(is_async: bool) -> None:
    """Asking takes nothing from the budget, and what is refused is refused once, in its turn."""
    desk = Desk()
    calls = [*THREE, ("nope", {}, "d")]
    desk.begin(calls, is_async)
    with desk.guard.session("user-17", tools=["pay", "look"], session_id="s") as session:
        assert session.remaining_calls == 100
    assert [event.outcome.value for event in desk.guard.audit.events] == ["asked", "asked"]


def test_needs_an_approver_that_interrupts() -> None:
    """Without an InterruptApprover, with an unknown way to ask, or in a subclass, it says so when it is made."""
    guard = Guard(ToolExecutionPolicy({"pay": "financial"}), approver=ScriptedApprover([]), store=MemoryStore())
    with pytest.raises(GuardConfigurationError, match="needs an InterruptApprover"):
        GuardMiddleware(guard, ask="message")
    with pytest.raises(GuardConfigurationError, match="ask is one of"):
        GuardMiddleware(guard, ask="turn")  # type: ignore[arg-type]

    class Own(GuardMiddleware):
        pass

    with pytest.raises(GuardConfigurationError, match="a subclass asks by call"):
        Own(guard, ask="message")
    assert "after_model" not in GuardMiddleware.__dict__  # an agent that asks by call has no node for it


# What LangChain's own tests of its middleware say, in agents behind both; docs/approvals.md has the differences.


@as_of_today
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_messages_stay_paired(whose: str, is_async: bool) -> None:
    """A rejected call never runs, and each ToolMessage answers a call of the model's message before it."""
    desk = Desk(whose)
    result = desk.run(BARE(desk.begin(is_async=is_async), [REJECT, APPROVE]), is_async)
    assert 1 not in desk.did
    waiting: set[Any] = set()
    for message in result["messages"]:
        if isinstance(message, AIMessage):
            waiting = {call["id"] for call in message.tool_calls}
        elif isinstance(message, ToolMessage):
            assert message.tool_call_id in waiting
            waiting.discard(message.tool_call_id)
    assert waiting == set()


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_a_reused_id_does_not_bring_an_edit_back(whose: str, is_async: bool) -> None:
    """A later turn's call with the id of an edited one runs as it was approved."""
    desk = Desk(whose)
    turns = [[("pay", {"amount": 1}, "same")], [("pay", {"amount": 2}, "same")]]
    (first,) = desk.run(plan(*turns), is_async)["__interrupt__"]
    (second,) = desk.run(BY_ID(first, [edit(7)]), is_async)["__interrupt__"]
    result = desk.run(BY_ID(second, [APPROVE]), is_async)
    assert desk.did == [7, 2]
    assert [content for _, _, content, _ in answers(result)][-1] == "paid 2"


@as_of_today
@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_the_model_reads_what_ran(whose: str, is_async: bool) -> None:
    """The message keeps the model's own call; the result says that it was changed, and what ran."""
    desk = Desk(whose)
    result = desk.run(BY_ID(desk.begin([("pay", {"amount": 9}, "a")], is_async), [edit(5)]), is_async)
    said = next(message for message in result["messages"] if isinstance(message, AIMessage))
    assert said.tool_calls[0]["args"] == {"amount": 9}
    ((_, status, content, _),) = answers(result)
    assert status == "success"
    assert content.startswith("Note: ")
    assert content.endswith("paid 5")


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_nothing_to_ask(whose: str, is_async: bool) -> None:
    """A message whose calls need nobody goes on."""
    desk = Desk(whose)
    assert "__interrupt__" not in desk.run(plan([("look", {"what": "x"}, "a")]), is_async)
    assert desk.did == ["x"]


@pytest.mark.parametrize("whose", ["theirs", "ours"])
def test_what_a_person_rejected_says_why(whose: str, is_async: bool) -> None:
    """The reason reaches the model, and without one the text says not to call again."""
    desk = Desk(whose)
    shown = desk.begin([("pay", {"amount": 1}, "a"), ("pay", {"amount": 2}, "b")], is_async)
    first, second = sorted(answers(desk.run(BY_ID(shown, [REJECT, {"type": "reject"}]), is_async)))
    assert "too much" in first[2]
    assert "not retry" in second[2] or "do not repeat" in second[2]
    assert (first[1], second[1]) == ("error", "error")


def test_an_edit_cannot_change_the_tool(is_async: bool) -> None:
    """Stricter: another tool has another risk; the question is shown again."""
    desk = Desk()
    shown = desk.begin([("pay", {"amount": 1}, "a")], is_async)
    other = {"type": "edit", "edited_action": {"name": "look", "args": {"what": "y"}}}
    (again,) = desk.run(BY_ID(shown, [other]), is_async)["__interrupt__"]
    assert "it is about another tool" in again.value["action_requests"][0]["description"]
    assert desk.did == []


def test_rules_hold_for_an_edit(is_async: bool) -> None:
    """Stricter: what a rule denies does not run, whoever wrote it."""
    desk = Desk()
    desk.guard.rules.add(LimitToolParam(tool="pay", param="amount", max=10))
    ((_, status, content, _),) = answers(
        desk.run(BY_ID(desk.begin([("pay", {"amount": 1}, "a")], is_async), [edit(11)]), is_async)
    )
    assert (status, desk.did) == ("error", [])
    assert "a person" in content.lower()


def test_another_process_goes_on(is_async: bool) -> None:
    """Another guard over the same store takes the reply: its tools are wrapped, so that it knows what was asked."""
    first = Desk()
    shown = first.begin(is_async=is_async)
    other = Desk(store=first.guard.store)
    other.saver = first.saver
    other.run(BY_ID(shown, [APPROVE, edit(6)]), is_async)
    assert (first.did, sorted(other.did, key=str)) == ([], [1, 6, "x"])


def test_two_agents_at_once(is_async: bool) -> None:
    """Two agents of one graph ask each for its message: a reply by id decides its own, and the other stays."""
    desk = Desk()
    builder = StateGraph(MessagesState)
    for name in ("left", "right"):
        builder.add_node(name, desk.agent())
        builder.add_edge(START, name)
    whole = builder.compile(checkpointer=desk.saver)
    desk.agent = lambda: whole  # type: ignore[method-assign]
    shown = desk.run(plan([("pay", {"amount": 1}, "a"), ("pay", {"amount": 2}, "b")]), is_async)["__interrupt__"]
    assert len({one.id for one in shown}) == 2
    (left,) = desk.run(BY_ID(shown[0], [APPROVE, REJECT]), is_async)["__interrupt__"]
    assert left.id == shown[1].id
    assert desk.did == [1]
    desk.run(BY_ID(left, [REJECT, APPROVE]), is_async)
    assert desk.did == [1, 2]

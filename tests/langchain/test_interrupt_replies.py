"""Replies: what a stock interface resumes a graph with decides the question that it answers, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from guarded_core import GuardConfigurationError, MemoryStore
from guarded_core.approvals.request import RequestState
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.graph import resumes
from tests.langchain.graphs import CONFIG, KINDS, PAY, THREE, Desk, Runs, graph, plan

HITL: dict[str, Any] = {
    "approve": {"decisions": [{"type": "approve"}]},
    "edit": {"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 4}}}]},
    "reject": {"decisions": [{"type": "reject", "message": "too much"}]},
    "respond": {"decisions": [{"type": "respond", "message": "it was paid by hand"}]},
}
INBOX: dict[str, Any] = {
    "approve": [{"type": "accept", "args": None}],
    "edit": [{"type": "edit", "args": {"action": "pay", "args": {"amount": "4"}}}],
    "reject": [{"type": "ignore", "args": None}],
    "respond": [{"type": "response", "args": "it was paid by hand"}],
}
REPLIES = {"hitl": HITL, "agent_inbox": INBOX}
EDITED = (
    "Note: your call was changed before it ran; do not repeat it. What ran is pay with these arguments: "
    '{"amount":4}\n\npaid 4'
)
ENDS = {
    "approve": ([5], "paid 5", "success", ["asked", "authorized", "succeeded"]),
    "edit": ([4], EDITED, "success", ["asked", "authorized", "succeeded"]),
    "reject": ([], "A person rejected this call. It did not run; do not repeat it.", "error", ["asked", "denied"]),
    "respond": ([], "it was paid by hand", "success", ["asked", "denied"]),
}


ANSWERS = "any" if graph_compat.TAKES_BARE_VALUES else "by_id"
takes_bare = pytest.mark.skipif(
    not graph_compat.TAKES_BARE_VALUES, reason="this LangGraph takes no bare replies, and the approver says so"
)


def replier(by: str | None = "kim", **settings: Any) -> InterruptApprover:
    """An approver that takes replies, from that person."""
    return InterruptApprover(identify=lambda runtime: by, **({"answers": ANSWERS} | settings))


def by_id(interrupt: Any, reply: Any) -> Any:
    """The reply under the interrupt's id."""
    return Command(resume={interrupt.id: reply})


def bare(interrupt: Any, reply: Any) -> Any:
    """The reply as it is, where this LangGraph takes one."""
    return Command(resume=reply) if graph_compat.TAKES_BARE_VALUES else by_id(interrupt, reply)


@pytest.mark.parametrize("form", [bare, by_id])
@pytest.mark.parametrize("format", REPLIES)
@pytest.mark.parametrize("decision", ENDS)
@pytest.mark.parametrize("agent", KINDS)
def test_each_decision(agent: str, decision: str, format: Any, form: Any, is_async: bool) -> None:
    """Approved it runs once; edited it runs once as edited, and says so; rejected or answered it does not run."""
    desk = Desk(replier(format=format))
    runs = Runs(agent, desk.tools, is_async=is_async)
    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
        result = runs(form(shown, REPLIES[format][decision]))
    did, content, status, outcomes = ENDS[decision]
    message = result["messages"][-2]
    assert desk.did == did
    assert (message.content.removesuffix(" Reason: too much"), message.status) == (content, status)
    assert ("too much" in message.content) is (decision == "reject" and format == "hitl")
    assert desk.outcomes() == outcomes
    if decision in ("approve", "edit"):
        events = desk.guard.audit.events
        assert [event.approved_by for event in events[1:]] == [("kim",), ("kim",)]
        assert events[1].code == ("edited" if decision == "edit" else None)


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("agent", KINDS)
def test_parallel_calls_are_answered_one_by_one(agent: str, serial: bool, is_async: bool, path: Any) -> None:
    """Two of three parallel calls ask; one is edited, one rejected, whichever comes first; nothing runs twice."""
    desk = Desk(replier(serial=serial))
    runs = Runs(agent, desk.tools, is_async=is_async, path=path)
    with desk.session():
        result, asked = runs(THREE), []
        while shown := result.get("__interrupt__"):
            assert len(shown) == 1 or not serial
            replies = {}
            for one in shown:
                amount = one.value["action_requests"][0]["args"]["amount"]
                asked.append(amount)
                replies[one.id] = HITL["edit"] if amount == 1 else HITL["reject"]
            only = next(iter(replies.values()))
            result = runs(bare(shown[0], only) if len(replies) == 1 else Command(resume=replies))
    assert sorted(asked) == [1, 2]
    assert sorted(map(str, desk.did)) == ["4", "x"]
    contents = [message.content for message in result["messages"]][-4:]
    assert contents == [EDITED, "saw x", f"{ENDS['reject'][1]} Reason: too much", "done"]
    assert sorted(desk.outcomes()) == sorted(["asked"] * 2 + ["authorized"] * 2 + ["succeeded"] * 2 + ["denied"])


NO_ANSWERS = [
    (True, "it is not a decision"),
    ("yes", "it is not a decision"),
    ({"decisions": [{"type": "approve"}] * 2}, "it has 2 decisions"),
    ({"decisions": [{"type": "approve", "digest": "0" * 64}]}, "it names another digest"),
    ({"decisions": [{"type": "edit", "edited_action": {"name": "look", "args": {}}}]}, "it is about another tool"),
    ([{"type": "accept", "args": {"action": "pay", "args": {"amount": 4}}}], "the arguments that it repeats"),
    ({"decisions": [{"type": "reject", "message": "x" * 2049}]}, "the reason is longer than 2048 bytes"),
]


@pytest.mark.parametrize("form", [bare, by_id])
@pytest.mark.parametrize(("reply", "why"), NO_ANSWERS)
def test_what_is_no_answer_shows_the_question_again(reply: Any, why: str, form: Any, is_async: bool) -> None:
    """The same question under the same id, with what was wrong; nothing is decided, and a right answer still counts."""
    desk = Desk(replier())
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (first,) = runs(PAY)["__interrupt__"]
        (again,) = runs(form(first, reply))["__interrupt__"]
        assert again.id == first.id
        text = again.value["action_requests"][0]["description"]
        assert text.startswith(f"The last reply was not taken: {why}")
        assert text.endswith(first.value["action_requests"][0]["description"])
        assert (desk.did, desk.outcomes()) == ([], ["asked"])
        (unchanged,) = runs(None)["__interrupt__"]  # the refused reply is not looked at again
        assert unchanged.value == first.value
        runs(form(first, HITL["approve"]))
    assert desk.did == [5]


def test_nobody_answers_their_own_call(is_async: bool) -> None:
    """Whom the application identifies decides, whatever the reply says; the principal themself does not."""
    for by, why in (("user-17", "nobody approves their own call"), (None, "nobody is known to have sent it")):
        desk = Desk(replier(by))
        runs = Runs("agent", desk.tools, is_async=is_async)
        with desk.session():
            (first,) = runs(PAY)["__interrupt__"]
            (again,) = runs(by_id(first, HITL["approve"]))["__interrupt__"]
        assert why in again.value["action_requests"][0]["description"]
        assert desk.did == []


def test_an_edit_is_judged_like_any_call(is_async: bool) -> None:
    """Arguments that the schema does not allow are refused, and the model is told whose they were."""
    desk = Desk(replier())
    runs = Runs("agent", desk.tools, is_async=is_async)
    edit = {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": "a lot"}}}
    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
        message = runs(bare(shown, {"decisions": [edit]}))["messages"][-2]
    assert message.content.startswith("A person changed this call's arguments")
    assert message.artifact["code"] == "edit_refused"
    assert (desk.did, desk.outcomes()) == ([], ["asked", "denied"])


def test_two_people_see_the_edit(is_async: bool) -> None:
    """Where two have to say yes, the second is asked about the edited arguments, as another question."""
    people = iter(["kim", "kim", "lee"])
    desk = Desk(InterruptApprover(identify=lambda runtime: next(people), answers=ANSWERS), approvals=2)
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (first,) = runs(PAY)["__interrupt__"]
        (second,) = runs(bare(first, HITL["edit"]))["__interrupt__"]
        assert second.id != first.id
        assert second.value["action_requests"][0]["args"] == {"amount": 4}
        (again,) = runs(bare(second, HITL["approve"]))["__interrupt__"]
        assert "this person has decided already" in again.value["action_requests"][0]["description"]
        assert (again.id, desk.did) == (second.id, [])
        runs(bare(again, HITL["approve"]))
    assert desk.did == [4]
    assert desk.guard.audit.events[-1].approved_by == ("kim", "lee")


@pytest.mark.parametrize("agent", KINDS)
def test_a_reply_counts_in_its_own_run_for_its_own_question(agent: str, is_async: bool) -> None:
    """Neither a later question of the same run nor a later run takes a reply that was for another question."""
    desk = Desk(replier())
    runs = Runs(agent, desk.tools, is_async=is_async)
    two = plan([("pay", {"amount": 1}, "a")], [("pay", {"amount": 2}, "b")])
    with desk.session():
        (first,) = runs(two)["__interrupt__"]
        (second,) = runs(bare(first, HITL["approve"]))["__interrupt__"]
        assert (second.id != first.id, desk.did) == (True, [1])
        for entered in (None, by_id(first, HITL["approve"]), Command(resume={"0" * 32: HITL["approve"]})):
            (again,) = runs(entered)["__interrupt__"]
            assert (again.id, desk.did) == (second.id, [1])
        runs(by_id(second, HITL["approve"]))
    assert desk.did == [1, 2]


@takes_bare
def test_a_bare_reply_that_is_sent_twice(is_async: bool) -> None:
    """The second time it finds the next question, which it cannot be told from: by id it decides nothing."""
    two = plan([("pay", {"amount": 1}, "a")], [("pay", {"amount": 2}, "b")])
    for settings, did in ((dict[str, Any](), [1, 2]), ({"answers": "by_id"}, [])):
        desk = Desk(replier(**settings))
        runs = Runs("agent", desk.tools, is_async=is_async)
        with desk.session():
            runs(two)
            runs(Command(resume=HITL["approve"]))
            result = runs(Command(resume=HITL["approve"]))
        assert desk.did == did
    (shown,) = result["__interrupt__"]
    assert "resume with the reply under the interrupt's id" in shown.value["action_requests"][0]["description"]


@takes_bare
@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("agent", KINDS)
def test_one_bare_reply_decides_one_question(agent: str, serial: bool, at_once: int, is_async: bool) -> None:
    """Beside calls that ask, an agent that is a tool asks twice in one run: each reply decides what was shown alone."""
    desk = Desk(replier(serial=serial))
    inner = graph("agent", desk.tools, None)
    twice = plan([("pay", {"amount": 1}, "x")], [("pay", {"amount": 2}, "y")], [("pay", {"amount": 3}, "z")])

    @tool("assign")
    def assign(task: str) -> str:
        """Assign."""
        return str(inner.invoke(twice)["messages"][-1].content)

    @tool("assign")
    async def aassign(task: str) -> str:
        """Assign."""
        return str((await inner.ainvoke(twice))["messages"][-1].content)

    tools = [*desk.tools, *guard_tools([aassign if is_async else assign], desk.guard)]
    runs = Runs(agent, tools, is_async=is_async)
    calls = [("assign", {"task": "t"}, "a"), ("pay", {"amount": 4}, "b"), ("pay", {"amount": 5}, "c")]
    config = CONFIG | {"max_concurrency": at_once}
    with desk.session():
        result, decided = runs(plan(calls), config), 0
        while shown := result.get("__interrupt__"):
            ids = {one.id for one in shown}
            result = runs(Command(resume=HITL["approve"] if len(ids) == 1 else {min(ids): HITL["approve"]}), config)
            decided += 1
            states = [request.state for request in desk.guard.store.requests()]
            assert len(states) - states.count(RequestState.PENDING) == decided
    assert sorted(desk.did) == [1, 2, 3, 4, 5]


def test_the_same_reply_from_two_threads(is_async: bool) -> None:
    """Two runs at once with one reply run the call once."""
    desk = Desk(replier())
    runs = Runs("agent", desk.tools, is_async=is_async)
    errors = []

    def enter(entered: Any) -> None:
        with desk.session():
            try:
                runs(entered)
            except Exception as error:  # LangGraph's own: runs of one thread should not overlap
                errors.append(error)

    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
    threads = [threading.Thread(target=enter, args=(by_id(shown, HITL["approve"]),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert desk.did == [5]


def test_a_fork_and_a_superseded_checkpoint(is_async: bool) -> None:
    """Replies sent again to where the question was shown, or before it, run nothing a second time."""
    desk = Desk(replier())
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
        asking = runs.state().config
        runs(bare(shown, HITL["edit"]))
        for config in (asking, *(state.config for state in runs.history())):
            for entered in (bare(shown, HITL["approve"]), by_id(shown, HITL["edit"]), None):
                runs(entered, config)
    assert desk.did == [4]


def test_a_question_of_another_process_that_came_later() -> None:
    """What another process has asked since a run began is not what was answered with it, by the store's clock."""
    approver = replier()
    desk = Desk(approver)
    with desk.session():
        Runs("agent", desk.tools, is_async=False)(PAY)
    (asked,) = desk.guard.approvals.pending()
    resumes._shown.clear()
    began = resumes.Resume(HITL["approve"], 0, time.monotonic_ns())
    assert approver._is_seen(asked, began)
    assert not approver._is_seen(replace(asked, created_ns=asked.created_ns + 3600 * 10**9), began)


def test_a_question_that_expired(is_async: bool) -> None:
    """A reply that comes too late decides nothing; the call is asked anew."""
    desk = Desk(replier(), expires_seconds=1)
    now = desk.guard.store.now_ns()
    desk.guard.store._clock = lambda: now  # type: ignore[attr-defined]
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (late,) = runs(PAY)["__interrupt__"]
        now += 2_000_000_000
        (fresh,) = runs(by_id(late, HITL["approve"]))["__interrupt__"]
        assert (fresh.id != late.id, desk.did) == (True, [])
        runs(by_id(fresh, HITL["approve"]))
    assert desk.did == [5]


def test_a_reply_while_the_graph_streams(is_async: bool) -> None:
    """A graph that is streamed takes the reply as one that is invoked."""
    desk = Desk(replier())
    runs = Runs("agent", desk.tools, is_async=is_async)

    async def astream(graph: Any) -> list[Any]:
        return [event async for event in graph.astream_events(reply, CONFIG, version="v2")]

    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
        reply = bare(shown, HITL["approve"])
        runs.enter(lambda graph: list(graph.stream(reply, CONFIG)), astream)
    assert desk.did == [5]


@pytest.mark.parametrize("form", [bare, by_id])
@pytest.mark.parametrize("agent", KINDS)
def test_in_another_process(
    agent: str, form: Any, is_async: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other guards and approvers than those that asked take the replies: what was shown is in checkpoint and store."""
    sql = pytest.importorskip("guarded_core.store.sql")
    did: list[Any] = []

    def enter(entered: Any) -> Any:
        monkeypatch.setattr(resumes, "_shown", OrderedDict())  # what another process has not seen
        with sql.SqlStore.open(f"sqlite:///{tmp_path}/guard.db") as store:
            desk = Desk(replier(), store=store)
            desk.did = did
            runs = Runs(agent, desk.tools, is_async=is_async, path=tmp_path / "checkpoints.db")
            with desk.session():
                result = runs(entered)
            return result

    result = enter(THREE)
    amounts = []
    while shown := result.get("__interrupt__"):
        amounts.append(shown[0].value["action_requests"][0]["args"]["amount"])
        assert enter(None)["__interrupt__"][0].id == shown[0].id  # one that is shown stays, until it is answered
        result = enter(form(shown[0], HITL["approve"]))
    assert sorted(amounts) == [1, 2]
    assert sorted(map(str, did)) == ["1", "2", "x"]


class TestNativeInterrupts:
    """A guarded tool that itself asks, by LangGraph's own `interrupt`."""

    def runs(self, desk: Desk, is_async: bool) -> Runs:
        @tool("pay")
        def pay(amount: int) -> str:
            """Pay."""
            said = interrupt("which account?")
            desk.did.append((amount, said))
            return f"paid {amount} from {said}"

        @tool("pay")
        async def apay(amount: int) -> str:
            """Pay."""
            return str(pay.func(amount))  # type: ignore[attr-defined]

        return Runs("agent", guard_tools([apay if is_async else pay], desk.guard), is_async=is_async)

    @pytest.mark.parametrize("agent_answers", [bare, by_id])
    def test_a_guards_answer_is_not_the_tools(self, agent_answers: Any, is_async: bool) -> None:
        """The reply to the guard's question does not reach the tool's, which asks, and gets its own."""
        desk = Desk(replier())
        runs = self.runs(desk, is_async)
        with desk.session():
            (first,) = runs(PAY)["__interrupt__"]
            (inner,) = runs(agent_answers(first, HITL["approve"]))["__interrupt__"]
            assert (inner.value, desk.did) == ("which account?", [])
            (again,) = runs(None)["__interrupt__"]
            assert (again.value, desk.did) == ("which account?", [])
            result = runs(agent_answers(inner, "savings"))
        assert desk.did == [(5, "savings")]
        assert result["messages"][-2].content == "paid 5 from savings"
        assert desk.outcomes() == [
            *("asked", "authorized", "suspended", "resumed", "suspended", "resumed"),
            "succeeded",
        ]

    def test_a_wake_is_no_answer(self, is_async: bool) -> None:
        """A graph that is woken with a value after a decision in the store does not hand it to the tool."""
        desk = Desk(InterruptApprover())
        runs = self.runs(desk, is_async)
        with desk.session():
            (first,) = runs(PAY)["__interrupt__"]
            desk.decide(first)
            (inner,) = runs(Command(resume=True))["__interrupt__"]
            assert (inner.value, desk.did) == ("which account?", [])
            runs(Command(resume="savings"))
        assert desk.did == [(5, "savings")]


@pytest.mark.parametrize("form", [bare, by_id])
@pytest.mark.parametrize("agent", KINDS)
def test_subagents(agent: str, form: Any, is_async: bool, path: Any) -> None:
    """Two agents that are tools ask in turn; each reply reaches the inner call that it answers."""
    desk = Desk(replier())
    inner = graph("agent", desk.tools, None)

    def task(amount: int) -> dict[str, Any]:
        return plan([("pay", {"amount": amount}, f"pay-{amount}")])

    @tool("assign")
    def assign(amount: int) -> str:
        """Assign."""
        return str(inner.invoke(task(amount))["messages"][-2].content)

    @tool("assign")
    async def aassign(amount: int) -> str:
        """Assign."""
        return str((await inner.ainvoke(task(amount)))["messages"][-2].content)

    tools = guard_tools([aassign if is_async else assign], desk.guard)
    runs = Runs(agent, tools, is_async=is_async, path=path)
    with desk.session():
        result = runs(plan([("assign", {"amount": 1}, "first"), ("assign", {"amount": 2}, "second")]))
        while shown := result.get("__interrupt__"):
            amount = shown[0].value["action_requests"][0]["args"]["amount"]
            result = runs(form(shown[0], HITL["edit"] if amount == 1 else HITL["approve"]))
    assert [message.content for message in result["messages"]][-3:] == [EDITED, "paid 2", "done"]
    assert sorted(desk.did) == [2, 4]


class TestFunctionalApi:
    """Tasks of an entrypoint that call guarded tools at once: only what their caller meets first is shown."""

    def entered(self, desk: Desk, saver: Any, slower: int, is_nested: bool) -> Any:
        """An entrypoint that pays 1 and 2, one of them a little later."""
        pay, agent = desk.tools[0], graph("agent", desk.tools, None)

        @task
        def do(amount: int) -> str:
            time.sleep(0.05 * (amount == slower))
            if is_nested:
                return str(agent.invoke(plan([("pay", {"amount": amount}, f"call-{amount}")]))["messages"][-2].content)
            call = {"type": "tool_call", "name": "pay", "args": {"amount": amount}, "id": f"call-{amount}"}
            return str(pay.invoke(call).content)

        @entrypoint(checkpointer=saver)
        def flow(amounts: list[int]) -> list[str]:
            return [future.result() for future in [do(amount) for amount in amounts]]

        return flow

    @pytest.mark.parametrize("form", [bare, by_id, None])
    @pytest.mark.parametrize("restarts", [False, True])
    @pytest.mark.parametrize("is_nested", [False, True])
    @pytest.mark.parametrize("slower", [1, 2])
    def test_each_is_asked_in_turn(self, slower: int, is_nested: bool, restarts: bool, form: Any) -> None:
        """Whichever comes first, a question is shown until all are answered, by replies or in the store."""
        saver, store, did = InMemorySaver(), MemoryStore(), list[Any]()
        desk = Desk(replier() if form else InterruptApprover(), store=store)
        entered: Any = [1, 2]
        for _ in range(9):
            desk.did = did
            with desk.session():
                result = self.entered(desk, saver, slower, is_nested).invoke(entered, CONFIG)
            if isinstance(result, list):
                break
            shown = result["__interrupt__"][0]
            if form is None:
                desk.decide(shown)
            entered = form(shown, HITL["approve"]) if form else None
            if restarts:
                desk = Desk(replier() if form else InterruptApprover(), store=store)
        assert result == ["paid 1", "paid 2"]
        assert sorted(did) == [1, 2]


def test_a_graph_of_its_own_inside_a_tool(is_async: bool) -> None:
    """Where a tool runs another thread's graph, the outer graph's reply is none to the inner one's question."""
    desk = Desk(replier())
    other = Runs("agent", desk.tools, is_async=False)

    @tool("assign")
    def assign(amount: int) -> str:
        """Run a graph on a thread of its own."""
        config = {"configurable": {"thread_id": f"inner-{amount}"}}
        return "paused" if "__interrupt__" in other(plan([("pay", {"amount": amount}, "p")]), config) else "done"

    tools = [*desk.tools, *guard_tools([assign], desk.guard)]
    runs = Runs("agent", tools, is_async=is_async)
    with desk.session():
        (shown,) = runs(plan([("pay", {"amount": 1}, "a")], [("assign", {"amount": 2}, "b")]))["__interrupt__"]
        runs(bare(shown, HITL["approve"]))
    assert desk.did == [1]
    states = {request.arguments["amount"]: request.state for request in desk.guard.store.requests()}
    assert states == {1: RequestState.CONSUMED, 2: RequestState.PENDING}


def test_a_saver_that_is_only_to_be_awaited(tmp_path: Any) -> None:
    """A sync call in an async graph's own loop cannot see what is shown: a reply by the interrupt's id counts."""
    desk = Desk(replier())
    pay = desk.tools[0]

    async def node(state: MessagesState) -> Any:
        call = {"type": "tool_call", "name": "pay", "args": {"amount": 5}, "id": "call-1"}
        return {"messages": [pay.invoke(call)]}

    builder = StateGraph(MessagesState)
    builder.add_node("pays", node)
    builder.add_edge(START, "pays")

    async def run() -> Any:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
            built = builder.compile(checkpointer=saver)
            (shown,) = (await built.ainvoke({"messages": []}, CONFIG))["__interrupt__"]
            if graph_compat.TAKES_BARE_VALUES:
                (shown,) = (await built.ainvoke(bare(shown, HITL["approve"]), CONFIG))["__interrupt__"]
            return await built.ainvoke(by_id(shown, HITL["approve"]), CONFIG)

    with desk.session():
        assert asyncio.run(run())["messages"][-1].content == "paid 5"
    assert desk.did == [5]


def test_who_is_asked_by_the_runtime() -> None:
    """`identify` takes the runtime of the run, such as its context, and what it raises refuses the call."""
    desk = Desk(InterruptApprover(identify=lambda runtime: runtime.context["user"], answers=ANSWERS))
    runs = Runs("agent", desk.tools, is_async=True)

    def replied(interrupt: Any, **given: Any) -> Any:
        async def enter(graph: Any) -> Any:
            return await graph.ainvoke(bare(interrupt, HITL["approve"]), CONFIG, **given)

        return runs.enter(lambda graph: None, enter)

    with desk.session():
        replied(runs(PAY)["__interrupt__"][0], context={"user": "kim"})
        assert desk.guard.audit.events[-1].approved_by == ("kim",)
        message = replied(runs(plan([("pay", {"amount": 6}, "b")]))["__interrupt__"][0])["messages"][-2]
    assert message.artifact["code"] == "human_approval_required"
    assert desk.did == [5]


def test_an_older_langgraph(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses bare values beside parallel calls serves replies by id alone, and the developer is told."""
    monkeypatch.setattr(graph_compat, "TAKES_BARE_VALUES", False)
    with pytest.raises(GuardConfigurationError, match=r'update it, or set answers="by_id"'):
        InterruptApprover(identify=lambda runtime: "kim")
    InterruptApprover(identify=lambda runtime: "kim", answers="by_id")
    InterruptApprover()


def test_an_approver_that_asks_nobody_reads_nothing() -> None:
    """Without `identify` a reply by id is as good as none."""
    desk = Desk(InterruptApprover())
    runs = Runs("agent", desk.tools, is_async=False)
    with desk.session():
        (shown,) = runs(PAY)["__interrupt__"]
        (again,) = runs(by_id(shown, HITL["approve"]))["__interrupt__"]
    assert (again.value, desk.did) == (shown.value, [])
    assert desk.outcomes() == ["asked"]

"""`InterruptApprover`: a graph pauses, a person decides in the store, and each call finds its own decision."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from guarded_core import (
    GuardConfigurationError,
    HumanApprovalRequired,
    InvalidApproval,
    ToolExecutionPolicy,
    ToolSettings,
)
from guarded_core.testing import ScriptedApprover
from guarded_langchain import InterruptApprover, guard_tools
from guarded_langchain.testing import says, tool_call
from tests.langchain.graphs import CONFIG, KINDS, PAY, THREE, Desk, Runs, graph, model, plan


@pytest.mark.parametrize("agent", KINDS)
@pytest.mark.parametrize("serial", [True, False])
def test_parallel_calls_each_run_once_when_approved(agent: str, serial: bool, is_async: bool, path: Any) -> None:
    """Two calls of three ask; each is approved on its own, each of the three runs once, one story each in the trail."""
    desk = Desk(InterruptApprover(serial=serial))
    runs = Runs(agent, desk.tools, is_async=is_async, path=path)
    with desk.session():
        result, questions = runs(THREE), []
        while shown := result.get("__interrupt__"):
            assert len(shown) == 1 or not serial
            questions += [interrupt.value["action_requests"][0]["args"] for interrupt in shown]
            for interrupt in shown:
                desk.decide(interrupt)
            result = runs(None)
    assert sorted(question["amount"] for question in questions) == [1, 2]
    assert sorted(map(str, desk.did)) == ["1", "2", "x"]
    assert [message.content for message in result["messages"]][-4:] == ["paid 1", "saw x", "paid 2", "done"]
    assert sorted(desk.outcomes()) == sorted(["asked"] * 2 + ["authorized"] * 3 + ["succeeded"] * 3)


@pytest.mark.parametrize("agent", KINDS)
def test_a_no_reaches_the_model(agent: str, is_async: bool) -> None:
    """A rejected call does not run; the model reads the reason; however often it is entered, one Denied is written."""
    desk = Desk()
    runs = Runs(agent, desk.tools, is_async=is_async)
    with desk.session():
        (interrupt,) = runs(plan([("pay", {"amount": 1}, "a"), ("pay", {"amount": 2}, "b")]))["__interrupt__"]
        desk.decide(interrupt, approve=False, reason="not this one")
        (other,) = runs(None)["__interrupt__"]
        runs(None)
        desk.decide(other)
        result = runs(None)
    contents = [message.content for message in result["messages"]][-3:-1]
    rejected = interrupt.value["action_requests"][0]["args"]["amount"]
    assert desk.did == [3 - rejected]
    assert "not this one" in contents[rejected - 1]
    assert contents[2 - rejected] == f"paid {3 - rejected}"
    assert sorted(desk.outcomes()) == ["asked", "asked", "authorized", "denied", "succeeded"]


def test_the_question_in_the_shape_that_interfaces_know(is_async: bool) -> None:
    """The interrupt is plain JSON: one action with the exact arguments, its review, and what it is bound to."""
    desk = Desk()
    with desk.session():
        (interrupt,) = Runs("agent", desk.tools, is_async=is_async)(PAY)["__interrupt__"]
    (request,) = desk.guard.approvals.pending()
    value = json.loads(json.dumps(interrupt.value))
    assert interrupt.id == value["request_id"] == request.id
    (action,) = value["action_requests"]
    assert (action["name"], action["args"]) == ("pay", {"amount": 5})
    assert request.id in action["description"]
    decisions = ["approve", "edit", "reject", "respond"]
    assert value["review_configs"] == [{"action_name": "pay", "allowed_decisions": decisions}]
    assert (value["tool_call_id"], value["digest"]) == ("call-1", request.digest)


def test_agent_inbox() -> None:
    """On request the interrupt has Agent Inbox's shape, a list of one."""
    desk = Desk(InterruptApprover(format="agent_inbox", decisions=["approve", "reject"]))
    with desk.session():
        (interrupt,) = Runs("agent", desk.tools, is_async=False)(PAY)["__interrupt__"]
    ((shown),) = interrupt.value
    assert shown["action_request"] == {"action": "pay", "args": {"amount": 5}}
    assert shown["config"] == {"allow_accept": True, "allow_ignore": True, "allow_edit": False, "allow_respond": False}
    assert shown["request_id"] == interrupt.id


@pytest.mark.parametrize(
    ("unknown", "known"),
    [
        ({"format": "slack"}, "format is one of hitl, agent_inbox"),
        ({"answers": "bare"}, "answers is one of any, by_id"),
        ({"decisions": []}, "a decision is one of approve, edit, reject, respond"),
        ({"decisions": ["approve", "deny"]}, "a decision is one of approve, edit, reject, respond"),
    ],
)
def test_an_unknown_setting(unknown: dict[str, Any], known: str) -> None:
    """A setting that does not exist is refused, with those that do."""
    with pytest.raises(GuardConfigurationError, match=known):
        InterruptApprover(**unknown)


RESUMES = [
    None,
    Command(resume=True),
    Command(resume={"decisions": [{"type": "approve"}]}),
    Command(resume=[{"type": "accept", "args": None}]),
    Command(resume={"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 999}}}]}),
    Command(resume={"0" * 32: {"decisions": [{"type": "approve"}]}}),
]


@pytest.mark.parametrize("resume", RESUMES)
@pytest.mark.parametrize("agent", KINDS)
def test_a_resume_value_has_no_authority(resume: Any, agent: str, is_async: bool) -> None:
    """Whatever the graph is resumed with, an undecided call asks the same question again and does not run."""
    desk = Desk()
    runs = Runs(agent, desk.tools, is_async=is_async)
    with desk.session():
        (first,) = runs(PAY)["__interrupt__"]
        (again,) = runs(resume)["__interrupt__"]
        assert (again.id, again.value) == (first.id, first.value)
        assert (desk.did, desk.outcomes()) == ([], ["asked"])
        desk.decide(first)
        runs(resume)
        runs(None)
    assert desk.did == [5]
    assert desk.outcomes() == ["asked", "authorized", "succeeded"]


def test_a_late_yes_is_asked_again(is_async: bool) -> None:
    """An expired request cannot be approved; when the graph is woken the call asks anew, and runs once."""
    desk = Desk(expires_seconds=1)
    store = desk.guard.store
    now = store.now_ns()
    store._clock = lambda: now  # type: ignore[attr-defined]
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (late,) = runs(PAY)["__interrupt__"]
        now += 2_000_000_000
        with pytest.raises(InvalidApproval, match="expired"):
            desk.decide(late)
        (fresh,) = runs(None)["__interrupt__"]
        assert fresh.id != late.id
        desk.decide(fresh)
        now += 2_000_000_000  # approved in time, woken too late
        (third,) = runs(None)["__interrupt__"]
        desk.decide(third)
        runs(None)
    assert desk.did == [5]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("serial", [True, False])
def test_a_policy_that_changes_meanwhile(serial: bool, restarts: bool, is_async: bool) -> None:
    """A question under an old policy is replaced by one under the policy in force; only the new one's answer counts."""
    desk = Desk(InterruptApprover(serial=serial))
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (old,) = runs(PAY)["__interrupt__"]
    if restarts:
        desk = Desk(InterruptApprover(serial=serial), store=desk.guard.store)
        runs.tools = desk.tools
    with desk.session():
        desk.guard.reload(ToolExecutionPolicy({"pay": ToolSettings(risk="financial", max_calls=1)}))
        (new,) = runs(None)["__interrupt__"]
        assert new.id != old.id
        desk.decide(old)
        (again,) = runs(None)["__interrupt__"]
        assert (again.id, desk.did) == (new.id, [])
        desk.decide(new)
        runs(None)
    assert desk.did == [5]


def test_a_fork_does_not_run_again(is_async: bool) -> None:
    """Going back to the checkpoint before the call replays its result: the same call is never run a second time."""
    desk = Desk()
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (interrupt,) = runs(PAY)["__interrupt__"]
        desk.decide(interrupt)
        runs(None)
        before = [state.config for state in runs.history() if state.next == ("tools",)]
        for config in before:
            result = runs(None, config)
            assert result["messages"][-2].content == "paid 5"
    assert before
    assert desk.did == [5]


def test_a_superseded_checkpoint_is_the_same_call(is_async: bool) -> None:
    """Resuming the checkpoint that showed the question, long after it was answered, runs nothing again."""
    desk = Desk()
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (interrupt,) = runs(PAY)["__interrupt__"]
        asking = runs.state().config
        desk.decide(interrupt)
        runs(None)
        assert runs(Command(resume={interrupt.id: True}), asking)["messages"][-2].content == "paid 5"
    assert desk.did == [5]


def test_an_id_that_is_used_again(is_async: bool) -> None:
    """An id that a model repeats in another message is another call, and asks, whatever its arguments."""
    desk = Desk()
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        for amount in (5, 6, 5):
            (interrupt,) = runs(plan([("pay", {"amount": amount}, "call-1")]))["__interrupt__"]
            desk.decide(interrupt)
            assert runs(None)["messages"][-2].content == f"paid {amount}"
    assert desk.did == [5, 6, 5]


def test_another_session_cannot_use_the_approval(is_async: bool) -> None:
    """A graph that another principal wakes asks about its own call; the approval stays unused."""
    desk = Desk()
    runs = Runs("agent", desk.tools, is_async=is_async)
    with desk.session():
        (interrupt,) = runs(PAY)["__interrupt__"]
        desk.decide(interrupt)
    with desk.guard.session("user-18", tools=["pay"]):
        (other,) = runs(None)["__interrupt__"]
    assert other.id != interrupt.id
    assert desk.did == []


def test_two_people() -> None:
    """A tool that takes two approvals asks the same question until both have said yes."""
    desk = Desk(approvals=2)
    runs = Runs("agent", desk.tools, is_async=False)
    with desk.session():
        (interrupt,) = runs(PAY)["__interrupt__"]
        desk.decide(interrupt)
        (again,) = runs(None)["__interrupt__"]
        assert again.id == interrupt.id
        assert desk.did == []
        desk.guard.approvals.decide(interrupt.id, by="lee", approve=True)
        runs(None)
    assert desk.did == [5]
    assert desk.guard.audit.events[-1].approved_by == ("kim", "lee")


class TestNowhereToPause:
    def test_outside_a_graph(self, is_async: bool) -> None:
        """Outside a graph the call is refused, and says that a person has to approve it."""
        desk = Desk()
        call = {"type": "tool_call", "name": "pay", "args": {"amount": 5}, "id": "call-1"}
        with desk.session():
            pay = desk.tools[0]
            message = asyncio.run(pay.ainvoke(call)) if is_async else pay.invoke(call)
        assert message.status == "error"
        assert message.artifact["code"] == HumanApprovalRequired.code

    @pytest.mark.parametrize("saver", [None, InMemorySaver()])
    def test_without_a_checkpointer_or_a_call_id(self, saver: Any, is_async: bool) -> None:
        """A graph that keeps nothing cannot wait: the next approver is asked."""
        desk = Desk([InterruptApprover(), ScriptedApprover([True], by="kim")])
        built = graph("agent", desk.tools, None)
        config = {"configurable": {"thread_id": "thread-1"}} if saver is None else {}
        with desk.session():
            result = asyncio.run(built.ainvoke(PAY, config)) if is_async else built.invoke(PAY, config)
        assert result["messages"][-2].content == "paid 5"
        assert desk.did == [5]

    def test_a_nested_graph_that_keeps_nothing(self, is_async: bool) -> None:
        """An inner agent with checkpointer=False is not found again: after the second question its call is refused."""
        desk = Desk()
        inner = create_agent(model(), desk.tools, checkpointer=False)

        @tool("assign")
        def assign(task: str) -> str:
            """Assign."""
            return str(inner.invoke(PAY)["messages"][-2].content)

        @tool("assign")
        async def aassign(task: str) -> str:
            """Assign."""
            return str((await inner.ainvoke(PAY))["messages"][-2].content)

        runs = Runs("agent", [aassign if is_async else assign], is_async=is_async)
        with desk.session():
            (first,) = runs(plan([("assign", {"task": "x"}, "outer")]))["__interrupt__"]
            result, questions = runs(None), 1
            assert result["__interrupt__"][0].id != first.id  # the first one's call is gone
            while shown := result.get("__interrupt__"):
                questions += 1
                desk.decide(shown[0])
                result = runs(None)
        assert questions == 2
        assert "approv" in result["messages"][-2].content
        assert desk.did == []


class TestSubagents:
    """An agent that is another agent's tool, both behind the guard."""

    def runs(self, desk: Desk, agent: str, is_async: bool, path: Any = None) -> Runs:
        inner = graph("agent", desk.tools, None)

        @tool("assign")
        def assign(amount: int) -> str:
            """Assign."""
            desk.did.append(f"assigned {amount}")
            return str(inner.invoke(self.task(amount))["messages"][-2].content)

        @tool("assign")
        async def aassign(amount: int) -> str:
            """Assign."""
            desk.did.append(f"assigned {amount}")
            return str((await inner.ainvoke(self.task(amount)))["messages"][-2].content)

        tools = guard_tools([aassign if is_async else assign], desk.guard)
        return Runs(agent, tools, is_async=is_async, path=path)

    @staticmethod
    def task(amount: int) -> dict[str, Any]:
        return plan([("pay", {"amount": amount}, f"pay-{amount}")])

    @pytest.mark.parametrize("agent", KINDS)
    def test_two_of_them_in_parallel(self, agent: str, is_async: bool, path: Any) -> None:
        """Each inner call is asked about, runs once, and its own agent gets its result; the outer calls go on once."""
        desk = Desk()
        runs = self.runs(desk, agent, is_async, path)
        with desk.session():
            result = runs(plan([("assign", {"amount": 1}, "first"), ("assign", {"amount": 2}, "second")]))
            while shown := result.get("__interrupt__"):
                desk.decide(shown[0])
                result = runs(None)
        assert [message.content for message in result["messages"]][-3:] == ["paid 1", "paid 2", "done"]
        assert sorted(did for did in desk.did if isinstance(did, int)) == [1, 2]
        events = [e for e in desk.guard.audit.events if e.tool == "assign" and e.code != "replayed"]
        assert sorted(event.outcome.value for event in events if event.outcome.value != "resumed") == sorted(
            ["authorized", "succeeded"] * 2 + ["suspended"] * sum(event.outcome.value == "resumed" for event in events)
        )


@pytest.mark.parametrize("agent", ["agent", "tool_node"])
def test_paused_subagents_go_on_in_another_process(agent: str, is_async: bool, tmp_path: Any) -> None:
    """Over a database, other guards and approvers than those that asked go on: all that counts is in the store."""
    sql = pytest.importorskip("guarded_core.store.sql")
    did: list[Any] = []

    def enter(entered: Any) -> Any:
        with sql.SqlStore.open(f"sqlite:///{tmp_path}/guard.db") as store:
            desk = Desk(store=store)
            desk.did = did
            runs = TestSubagents().runs(desk, agent, is_async, tmp_path / "checkpoints.db")
            with desk.session():
                result = runs(entered)
            for interrupt in result.get("__interrupt__", ()):
                desk.decide(interrupt)
            return result

    result = enter(plan([("assign", {"amount": 1}, "first"), ("assign", {"amount": 2}, "second")]))
    while result.get("__interrupt__"):
        result = enter(None)
    assert [message.content for message in result["messages"]][-3:] == ["paid 1", "paid 2", "done"]
    assert sorted(done for done in did if isinstance(done, int)) == [1, 2]


def test_an_approved_call_is_not_left_behind() -> None:
    """Of calls that an async ToolNode gathers, one that asks waits until the one that runs has ended."""
    desk = Desk()

    @tool("look")
    async def look(what: str) -> str:
        """Look, slowly."""
        await asyncio.sleep(0.05)
        desk.did.append(what)
        return f"saw {what}"

    tools = [desk.tools[0], *guard_tools([look], desk.guard)]
    with desk.session():
        Runs("tool_node", tools, is_async=True)(THREE)
    assert desk.did == ["x"]
    assert sorted(desk.outcomes()) == ["asked", "asked", "authorized", "succeeded"]


ONE_OF_EACH = plan([("look", {"what": "x"}, "l"), ("pay", {"amount": 1}, "p")])


def test_a_call_whose_callbacks_take_long_is_not_left_behind() -> None:
    """It counts as under way before its callbacks are told: the call beside it, in a thread, pauses only after it."""
    desk = Desk()

    class Slow(AsyncCallbackHandler):
        async def on_tool_start(self, serialized: dict[str, Any], *args: Any, **kwargs: Any) -> None:
            await asyncio.sleep(0.2 * (serialized["name"] == "look"))

    @tool("look")
    async def look(what: str) -> str:
        """Look."""
        desk.did.append(what)
        return f"saw {what}"

    tools = [desk.tools[0], *guard_tools([look], desk.guard)]
    with desk.session():
        Runs("tool_node", tools, is_async=True)(ONE_OF_EACH, CONFIG | {"callbacks": [Slow()]})
    assert desk.did == ["x"]
    assert sorted(desk.outcomes()) == ["asked", "authorized", "succeeded"]


def test_a_call_that_begins_after_the_pause_comes_again() -> None:
    """A middleware holds it back until nothing waits for it: it does not begin then, and runs once when woken."""
    desk = Desk()

    async def held_back(request: Any, handler: Any) -> Any:
        await asyncio.sleep(0.2 * (request.tool_call["name"] == "look"))
        return await handler(request)

    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(desk.tools, awrap_tool_call=held_back))
    builder.add_edge(START, "tools")
    app = builder.compile(checkpointer=InMemorySaver())
    calls = [tool_call("look", {"what": "x"}, id="l"), tool_call("pay", {"amount": 1}, id="p")]

    async def paused_and_woken() -> tuple[list[Any], list[str]]:
        (shown,) = (await app.ainvoke({"messages": [says(*calls)]}, CONFIG))["__interrupt__"]
        await asyncio.sleep(0.4)  # the loop lives on, and what was held back with it
        before = (list(desk.did), desk.outcomes())
        desk.decide(shown)
        await app.ainvoke(None, CONFIG)
        return before

    with desk.session():
        assert asyncio.run(paused_and_woken()) == ([], ["asked"])
    assert sorted(map(str, desk.did)) == ["1", "x"]
    assert sorted(desk.outcomes()) == ["asked", *["authorized"] * 2, *["succeeded"] * 2]

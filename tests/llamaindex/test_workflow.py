"""`WorkflowApprover`: a workflow waits, a person decides in the store, and each call finds its own decision."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from workflows import Context

from guarded_core import Guard, InMemoryToolAuditTrail, InvalidApproval, ToolExecutionPolicy, ToolSettings
from guarded_core.testing import ScriptedApprover
from guarded_llamaindex import (
    ApprovalAnswered,
    ApprovalRequested,
    GuardedAgentWorkflow,
    WorkflowApprover,
    guard_tools,
)
from guarded_llamaindex.testing import ScriptedLLM, tool_call

pytestmark = pytest.mark.filterwarnings("ignore:Skipping serialization")  # a restored context gets a memory anew

Decider = Callable[["Desk", Any, ApprovalRequested], Awaitable[None]]


class Desk:
    """A guard with a financial tool, and what it did."""

    def __init__(self, *others: Any, store: Any = None, **settings: Any) -> None:
        self.did: list[int] = []
        self.approver = WorkflowApprover()
        policy = ToolExecutionPolicy({"pay": ToolSettings(risk="financial", **settings), "ask_clerk": "mutating"})
        self.guard = Guard(policy, approver=[self.approver, *others], store=store, audit=InMemoryToolAuditTrail(99))
        self.results: list[tuple[str, str]] = []
        self.errors: list[bool] = []
        self.asked: list[ApprovalRequested] = []

        async def pay(amount: int) -> str:
            """Pay."""
            await asyncio.sleep(0)
            self.did.append(amount)
            return f"paid {amount}"

        self.tools = guard_tools([pay], self.guard)

    def session(self) -> Any:
        return self.guard.session("user-17", tools=["pay", "ask_clerk"], session_id="s")

    def outcomes(self) -> list[str]:
        """What the trail says, but for its notes of replays, which depend on how often a step is run."""
        return [event.outcome.value for event in self.guard.audit.events if event.code != "replayed"]

    async def follow(self, handler: Any, decide: Decider) -> str:
        """Answer what the run asks, until it ends; the results of its tool calls are kept."""
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequested):
                self.asked.append(event)
                await decide(self, handler, event)
            if isinstance(event, ToolCallResult) and event.tool_name != "handoff":
                self.results.append((event.tool_id, event.tool_output.content))
                self.errors.append(event.tool_output.is_error)
        return str(await handler)


def answering(*answers: bool) -> Decider:
    """Gives all these answers to each question, one after another, by different people."""

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        for number, approve in enumerate(answers):
            await desk.approver.answer(handler, event, by=f"person-{number}", approve=approve, reason="ticket 7")

    return decide


def function_agent(tools: Sequence[Any], *amounts: int) -> FunctionAgent:
    """An agent whose model makes all these calls at once."""
    calls = [tool_call("pay", {"amount": amount}, id=f"call-{amount}") for amount in amounts]
    return FunctionAgent(name="clerk", description="Pays.", tools=tools, llm=ScriptedLLM([calls, "done", "done"]))


def react_agent(tools: Sequence[Any], *amounts: int) -> ReActAgent:
    """An agent whose model makes these calls one after another, in words."""
    texts = [f'Thought: pay\nAction: pay\nAction Input: {{"amount": {amount}}}' for amount in amounts]
    llm = ScriptedLLM([*texts, "Thought: done\nAnswer: done"], function_calling=False)
    return ReActAgent(name="clerk", description="Pays.", tools=tools, llm=llm)


def handing_over(tools: Sequence[Any], *amounts: int) -> AgentWorkflow:
    """An agent that hands over to another one, which makes these calls."""
    handoff = tool_call("handoff", {"to_agent": "clerk", "reason": "it pays"})
    front = FunctionAgent(
        name="front", description="Talks.", tools=[], llm=ScriptedLLM([[handoff]]), can_handoff_to=["clerk"]
    )
    return AgentWorkflow(agents=[front, function_agent(tools, *amounts)], root_agent="front")


AGENTS = {"function": function_agent, "react": react_agent, "handoff": handing_over}


@pytest.fixture(params=AGENTS)
def agent(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes an agent of each kind."""
    return AGENTS[request.param]


@pytest.mark.parametrize("amounts", [(1,), (1, 2, 3)])
@pytest.mark.parametrize("answers", [(True,), (True, True), (True, False), (True, False, True)])
async def test_the_first_answer_counts(agent: Any, amounts: tuple[int, ...], answers: tuple[bool, ...]) -> None:
    """Each approved call runs once and gives one result, however many answers follow, whatever they say."""
    desk = Desk()
    with desk.session():
        said = await desk.follow(agent(desk.tools, *amounts).run("pay"), answering(*answers))
    assert said == "done"
    assert sorted(desk.did) == list(amounts)
    assert sorted(result for _, result in desk.results) == [f"paid {amount}" for amount in amounts]
    assert sorted(desk.outcomes()) == sorted(["asked", "authorized", "succeeded"] * len(amounts))


@pytest.mark.parametrize("answers", [(False,), (False, True), (False, False)])
async def test_a_no_is_final(agent: Any, answers: tuple[bool, ...]) -> None:
    """A call that was rejected first never runs; the model reads the reason; one Denied is on record."""
    desk = Desk()
    with desk.session():
        await desk.follow(agent(desk.tools, 1).run("pay"), answering(*answers))
    assert desk.did == []
    ((_, result),) = desk.results
    assert "ticket 7" in result
    assert desk.outcomes() == ["asked", "denied"]


async def test_the_event_is_plain_and_whole() -> None:
    """What is emitted survives JSON, and says exactly what would run."""
    desk = Desk()
    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), answering(True))
    (event,) = desk.asked
    assert ApprovalRequested(**json.loads(event.model_dump_json())) == event
    assert (event.tool, event.arguments, event.tool_call_id) == ("pay", {"amount": 5}, "call-5")
    assert (event.principal, event.reasons) == ("user-17", ["risk:financial"])
    assert event.request_id in event.text


async def test_an_event_has_no_authority() -> None:
    """Events that somebody sends without a decision only make the call ask again; it runs when it is approved."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        for _ in range(3):
            handler.ctx.send_event(ApprovalAnswered(request_id=event.request_id, approved=True))
            handler.ctx.send_event(ApprovalAnswered(request_id="0" * 32))
            await asyncio.sleep(0.02)
        assert desk.did == []
        await desk.approver.answer(handler, event, by="kim", approve=True)

    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), decide)
    assert desk.did == [5]
    assert len(desk.asked) == len(desk.results) == 1


async def test_two_people() -> None:
    """A tool that takes two approvals waits for both, under one question."""
    desk = Desk(approvals=2)
    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), answering(True, True))
    assert (desk.did, len(desk.asked)) == ([5], 1)
    assert desk.guard.audit.events[-1].approved_by == ("person-0", "person-1")


async def test_a_late_answer_is_refused_and_asked_again() -> None:
    """An expired request cannot be answered; the call asks anew, and runs by the new answer."""
    desk = Desk(expires_seconds=1)
    now = desk.guard.store.now_ns()
    desk.guard.store._clock = lambda: now  # type: ignore[attr-defined]

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        nonlocal now
        if len(desk.asked) == 1:
            now += 2_000_000_000
            with pytest.raises(InvalidApproval, match="expired"):
                await desk.approver.answer(handler, event, by="kim", approve=True)
        else:
            await desk.approver.answer(handler, event, by="kim", approve=True)

    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), decide)
    assert (desk.did, len(desk.asked)) == ([5], 2)


async def test_nobody_approves_their_own_call() -> None:
    """The principal's own answer is refused, and the call goes on waiting for another person."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        with pytest.raises(InvalidApproval, match="own call"):
            await desk.approver.answer(handler, event, by="user-17", approve=True)
        await desk.approver.answer(handler, event, by="kim", approve=True)

    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), decide)
    assert desk.guard.audit.events[-1].approved_by == ("kim",)


async def test_a_decision_from_elsewhere() -> None:
    """A request that was decided in the store runs when the workflow is woken."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        desk.guard.approvals.decide(event.request_id, by="kim", approve=True)
        desk.approver.wake(handler, event)

    with desk.session():
        await desk.follow(function_agent(desk.tools, 5).run("pay"), decide)
    assert desk.did == [5]


def told(amount: int) -> str:
    """What a model reads of a call that a person changed to this amount."""
    ran = f'What ran is pay with these arguments: {{"amount":{amount}}}'
    return f"Note: your call was changed before it ran; do not repeat it. {ran}\npaid {amount}"


async def test_other_arguments(agent: Any) -> None:
    """A person's arguments run in the place of the model's, once, and the model reads what ran."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        decided = await desk.approver.answer(handler, event, by="kim", approve=True, arguments={"amount": 3})
        assert decided.replaces == event.request_id
        late = await desk.approver.answer(handler, event, by="lee", approve=False)
        assert late.id == decided.id

    with desk.session():
        assert await desk.follow(agent(desk.tools, 5).run("pay"), decide) == "done"
    assert (desk.did, [result for _, result in desk.results], desk.errors) == ([3], [told(3)], [False])
    assert [(event.outcome.value, event.code) for event in desk.guard.audit.events] == [
        ("asked", None),
        ("authorized", "edited"),
        ("succeeded", None),
    ]


async def test_an_answer_in_the_tools_place(agent: Any) -> None:
    """The model reads what the person wrote as the tool's result, and no more; nothing runs."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        await desk.approver.answer(handler, event, by="kim", approve=False, response="Ann is paid already.")

    with desk.session():
        assert await desk.follow(agent(desk.tools, 5).run("pay"), decide) == "done"
    assert (desk.did, [result for _, result in desk.results], desk.errors) == ([], ["Ann is paid already."], [False])
    assert desk.outcomes() == ["asked", "denied"]
    assert desk.guard.audit.events[-1].code == "answered_by_person"


async def test_the_second_person_is_asked_about_the_other_arguments(agent: Any) -> None:
    """Of two people the second gets a question of its own; a yes to the first one approves nothing."""
    desk = Desk(approvals=2)

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        first = desk.asked[0]
        if event is first:
            changed = await desk.approver.answer(handler, event, by="kim", approve=True, arguments={"amount": 3})
            assert await desk.approver.answer(handler, first, by="lee", approve=True) == changed
            with pytest.raises(InvalidApproval, match="edited already"):
                desk.guard.approvals.decide(first.request_id, by="lee", approve=True)
            assert changed.approvers == ("kim",)
            return
        with pytest.raises(InvalidApproval, match="decided already"):
            await desk.approver.answer(handler, event, by="kim", approve=True)
        assert desk.did == []
        await desk.approver.answer(handler, event, by="lee", approve=True)

    with desk.session():
        assert await desk.follow(agent(desk.tools, 5).run("pay"), decide) == "done"
    assert [event.arguments for event in desk.asked] == [{"amount": 5}, {"amount": 3}]
    assert len({event.request_id for event in desk.asked}) == 2
    assert (desk.did, [result for _, result in desk.results]) == ([3], [told(3)])
    assert desk.guard.audit.events[-1].approved_by == ("kim", "lee")


async def test_other_arguments_that_are_not_allowed(agent: Any) -> None:
    """A person's arguments are judged as a model's are: what does not fit the schema does not run."""
    desk = Desk()

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        await desk.approver.answer(handler, event, by="kim", approve=True, arguments={"amount": "much"})

    with desk.session():
        await desk.follow(agent(desk.tools, 5).run("pay"), decide)
    assert (desk.did, desk.errors) == ([], [True])
    assert desk.guard.audit.events[-1].code == "edit_refused"


async def test_a_second_answer_while_the_tool_runs() -> None:
    """An answer that comes while the approved call is running gives no second result, and the run ends."""
    desk = Desk()
    running, ending = asyncio.Event(), asyncio.Event()

    async def pay(amount: int) -> str:
        """Pay."""
        running.set()
        await ending.wait()
        desk.did.append(amount)
        return "paid"

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        await desk.approver.answer(handler, event, by="kim", approve=True)
        await running.wait()
        await desk.approver.answer(handler, event, by="lee", approve=False)
        await asyncio.sleep(0.02)
        ending.set()

    with desk.session():
        said = await desk.follow(function_agent(guard_tools([pay], desk.guard), 5, 6).run("pay"), decide)
    assert (said, sorted(desk.did)) == ("done", [5, 6])
    assert [result for _, result in desk.results] == ["paid", "paid"]


async def resumed(agent: Any, context: Context) -> Any:
    """A run that goes on from `context`, with a memory, which is not saved with it."""
    handler = agent.run(ctx=context)
    memory = ChatMemoryBuffer.from_defaults(chat_history=[ChatMessage(content="pay")])
    await handler.ctx.store.set("memory", memory)
    return handler


class Splitting(FunctionAgent):
    """An agent that makes two guarded calls of each of its model's."""

    async def _call_tool(self, ctx: Any, tool: Any, tool_input: dict[str, Any]) -> Any:
        first = await tool.acall(amount=tool_input["amount"])
        second = await asyncio.gather(tool.acall(amount=-1), tool.acall(amount=-2))
        return first.model_copy(update={"blocks": [*first.blocks, *second[0].blocks, *second[1].blocks]})


async def test_several_calls_in_one_step() -> None:
    """Calls that one step makes, one after another and at once, are each asked about and run once."""
    desk = Desk()
    agent = Splitting(tools=desk.tools, llm=ScriptedLLM([[tool_call("pay", {"amount": 5}, id="call-5")], "done"]))
    with desk.session():
        said = await asyncio.wait_for(desk.follow(agent.run("pay"), answering(True, False)), 30)
    assert (said, sorted(desk.did)) == ("done", [-2, -1, 5])
    assert desk.results == [("call-5", "paid 5\npaid -1\npaid -2")]


class Restart:
    """A run that was saved while it waited, and is gone on with from there."""

    def __init__(self, desk: Desk, agent: Callable[..., Any], *amounts: int) -> None:
        self.desk, self.agent, self.amounts = desk, agent, amounts
        self.saved = ""

    async def save(self) -> None:
        """Run until every call waits; keep the context as JSON."""
        handler = self.agent(self.desk.tools, *self.amounts).run("pay")
        asked = 0
        async for event in handler.stream_events():
            asked += isinstance(event, ApprovalRequested)
            if asked == len(self.amounts):
                break
        await asyncio.sleep(0.02)
        self.saved = json.dumps(handler.ctx.to_dict())
        await handler.cancel_run()

    async def go_on(self, decide: Decider) -> str:
        """Restore the context, as another process would, and go on."""
        agent = self.agent(self.desk.tools)
        llm = agent.agents["clerk"].llm if isinstance(agent, AgentWorkflow) else agent.llm
        llm._script = ["Thought: done\nAnswer: done" if isinstance(agent, ReActAgent) else "done"] * 4
        context = Context.from_dict(agent, json.loads(self.saved))
        return await self.desk.follow(await resumed(agent, context), decide)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_saved_run_asks_again_and_goes_on(agent: Any, number: int) -> None:
    """A restored context emits its questions again, under their old ids; each approved call runs once."""
    amounts = (1,) if agent is react_agent else tuple(range(1, number + 1))
    desk = Desk()
    run = Restart(desk, agent, *amounts)
    with desk.session():
        await run.save()
        pending = {request.id for request in desk.guard.approvals.pending()}
        assert await run.go_on(answering(True)) == "done"
    assert {event.request_id for event in desk.asked} == pending
    assert sorted(desk.did) == list(amounts)
    assert sorted(desk.outcomes()) == sorted(["asked", "authorized", "succeeded"] * len(amounts))


async def test_a_run_that_is_restored_twice(agent: Any) -> None:
    """Going on from one snapshot again returns what was recorded, and runs nothing a second time."""
    desk = Desk()
    run = Restart(desk, agent, 1)
    with desk.session():
        await run.save()
        await run.go_on(answering(True))
        first, desk.results = desk.results, []
        await run.go_on(answering(True))
    assert desk.did == [1]
    assert desk.results == first
    assert desk.outcomes() == ["asked", "authorized", "succeeded"]


async def test_a_crash_while_the_tool_runs() -> None:
    """After a crash in the middle nobody knows whether it ran: the model is told so, and it is not run again."""
    desk = Desk()
    started = asyncio.Event()

    async def pay(amount: int) -> str:
        """Pay."""
        desk.did.append(amount)
        started.set()
        await asyncio.Event().wait()
        return "never"

    desk.tools = guard_tools([pay], desk.guard)
    run = Restart(desk, function_agent, 1)
    with desk.session():
        await run.save()
        agent = function_agent(desk.tools)
        context = Context.from_dict(agent, json.loads(run.saved))
        handler = await resumed(agent, context)
        following = asyncio.create_task(desk.follow(handler, answering(True)))
        await started.wait()
        await handler.cancel_run()
        await asyncio.gather(following, return_exceptions=True)
        await run.go_on(answering(True))
    assert desk.did == [1]
    assert desk.results[-1][1].startswith("This call was started before")


@pytest.mark.parametrize("when", ["while it is saved", "when it is asked again"])
async def test_a_saved_run_goes_on_with_other_arguments(agent: Any, store: Any, when: str) -> None:
    """Another process with the same store finds what a person changed, before or after; it runs once, and is told."""
    run = Restart(Desk(store=store), agent, 5)
    with run.desk.session():
        await run.save()
    (request,) = run.desk.guard.approvals.pending()
    if when == "while it is saved":
        run.desk.guard.approvals.decide(request.id, by="kim", approve=True, arguments={"amount": 3})

    async def decide(desk: Desk, handler: Any, event: ApprovalRequested) -> None:
        assert event.request_id == request.id
        await desk.approver.answer(handler, event, by="kim", approve=True, arguments={"amount": 3})

    for did in ([3], []):
        run.desk = Desk(store=store)
        with run.desk.session():
            assert await run.go_on(decide) == "done"
        assert (run.desk.did, [result for _, result in run.desk.results]) == (did, [told(3)])
    assert run.desk.outcomes() == []
    if when == "while it is saved":
        assert run.desk.asked == []


class TestNowhereToWait:
    async def test_outside_a_workflow(self) -> None:
        """A call outside any workflow is refused, or goes to the next approver."""
        desk = Desk()
        with desk.session():
            assert (await desk.tools[0].acall(amount=5)).is_error
        desk = Desk(ScriptedApprover([True], by="kim"))
        with desk.session():
            assert (await desk.tools[0].acall(amount=5)).content == "paid 5"

    async def test_an_agent_that_is_another_agents_tool(self) -> None:
        """Nobody sees the inner workflow's events, so the inner call is asked about by the next approver."""
        desk = Desk(ScriptedApprover([True], by="kim"))

        async def ask_clerk(amount: int) -> str:
            """Ask the clerk."""
            return str(await function_agent(desk.tools, amount).run("pay"))

        tools = guard_tools([ask_clerk], desk.guard)
        front = FunctionAgent(tools=tools, llm=ScriptedLLM([[tool_call("ask_clerk", {"amount": 5})], "done"]))
        with desk.session():
            said = await asyncio.wait_for(desk.follow(front.run("pay"), answering(True)), 20)
        assert (said, desk.did, desk.asked) == ("done", [5], [])


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_hand_over_is_judged(allowed: bool, guard_of_handing_over: Guard) -> None:
    """In a GuardedAgentWorkflow, handing over is a call like any other: on record, and only where the session may."""
    guard = guard_of_handing_over
    llm = ScriptedLLM([tool_call("handoff", {"to_agent": "two", "reason": "it knows"}), "I stay."])
    agents = [
        FunctionAgent(name="one", description="first", llm=llm),
        FunctionAgent(name="two", description="second", llm=ScriptedLLM(["I took over."])),
    ]
    workflow = GuardedAgentWorkflow(agents, root_agent="one", guard=guard)
    async with guard.session("user-17", tools=["handoff"] if allowed else ["other"]):
        assert str(await workflow.run("go")) == ("I took over." if allowed else "I stay.")
    wanted = [("authorized", None), ("succeeded", None)] if allowed else [("denied", "unauthorized")]
    assert [(event.outcome.value, event.code) for event in guard.audit.events] == wanted  # type: ignore[union-attr]


@pytest.fixture
def guard_of_handing_over() -> Guard:
    """Its policy lists a workflow's own tool."""
    return Guard(ToolExecutionPolicy({"handoff": "read_only", "other": "read_only"}))

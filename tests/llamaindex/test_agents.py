"""Agents with guarded tools go the same way as with bare ones; refusals disturb nothing beside them."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import pytest
from llama_index.core.agent.react import ReActChatFormatter, ReActOutputParser
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.tools import BaseTool, FunctionTool
from llama_index.core.workflow import Context
from workflows.events import HumanResponseEvent, InputRequiredEvent
from workflows.handler import WorkflowHandler

from guarded_core import Guard, ToolExecutionPolicy, ToolSettings
from guarded_llamaindex import assert_all_guarded, guard_tools
from guarded_llamaindex.testing import ModelTurn, ScriptedLLM, ScriptStep, tool_call

NAMES = ("add", "remember", "lookup", "finish", "fail")


class Shop:
    """A few tools that note what they did, fresh for each run."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.tools = [
            FunctionTool.from_defaults(self.add),
            FunctionTool.from_defaults(async_fn=self.remember),
            FunctionTool.from_defaults(self.lookup),
            FunctionTool.from_defaults(self.finish, return_direct=True),
            FunctionTool.from_defaults(self.fail),
        ]

    def add(self, a: int, b: int = 1) -> int:
        """Adds."""
        self.calls.append(("add", a, b))
        return a + b

    async def remember(self, ctx: Context, note: str) -> str:
        """Keeps a note in the workflow's state."""
        async with ctx.store.edit_state() as state:
            state["notes"] = [*state.get("notes", []), note]
        self.calls.append(("remember", note))
        return "noted"

    def lookup(self, key: str) -> str:
        """Looks something up."""
        self.calls.append(("lookup", key))
        return f"value of {key}"

    def finish(self, answer: str) -> str:
        """Answers."""
        self.calls.append(("finish", answer))
        return f"final: {answer}"

    def fail(self, why: str) -> str:
        """Fails."""
        self.calls.append(("fail", why))
        raise RuntimeError(why)


def thought(name: str, arguments: str) -> str:
    """A step of a ReAct model."""
    return f"Thought: I need a tool.\nAction: {name}\nAction Input: {arguments}"


async def transcript(handler: WorkflowHandler) -> dict[str, Any]:
    """What came of a run: tool results in the order they came, and the answer."""
    results = []
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            output = event.tool_output
            results.append((event.tool_name, event.tool_kwargs, output.content, output.is_error, event.return_direct))
    answer = await handler
    return {"results": sorted(results, key=str), "answer": str(answer)}


MakeAgent = Callable[[Sequence[BaseTool], ScriptedLLM], Any]


def function_agent(tools: Sequence[BaseTool], llm: ScriptedLLM) -> FunctionAgent:
    """A FunctionAgent."""
    return FunctionAgent(tools=list(tools), llm=llm)


def without_streaming(tools: Sequence[BaseTool], llm: ScriptedLLM) -> FunctionAgent:
    """A FunctionAgent that does not stream."""
    return FunctionAgent(tools=list(tools), llm=llm, streaming=False)


def react_agent(tools: Sequence[BaseTool], llm: ScriptedLLM) -> ReActAgent:
    """A ReActAgent."""
    return ReActAgent(tools=list(tools), llm=llm)


def workflow_with_handoff(tools: Sequence[BaseTool], llm: ScriptedLLM) -> AgentWorkflow:
    """Two agents that share the tools and the model, and hand off to each other."""
    agents = [
        FunctionAgent(name=name, description=f"agent {name}", tools=list(tools), llm=llm, can_handoff_to=[other])
        for name, other in (("one", "two"), ("two", "one"))
    ]
    return AgentWorkflow(agents, root_agent="one")


SCENES: dict[str, tuple[MakeAgent, list[ScriptStep]]] = {
    "one call": (function_agent, [tool_call("add", {"a": 1}, id="1"), "done"]),
    "not streaming": (without_streaming, [tool_call("add", {"a": 1}, id="1"), "done"]),
    "parallel": (
        function_agent,
        [
            [
                tool_call("add", {"a": 1, "b": 2}, id="1"),
                tool_call("remember", {"note": "x"}, id="2"),
                tool_call("lookup", {"key": "k"}, id="3"),
                tool_call("fail", {"why": "because"}, id="4"),
            ],
            "done",
        ],
    ),
    "the same id twice": (
        function_agent,
        [[tool_call("add", {"a": 1}, id="1"), tool_call("add", {"a": 2}, id="1")], "done"],
    ),
    "return_direct": (function_agent, [tool_call("finish", {"answer": "42"}, id="1")]),
    "react": (
        react_agent,
        [
            thought("add", '{"a": 1, "b": 2}'),
            thought("remember", '{"note": "y"}'),
            thought("fail", '{"why": "z"}'),
            "Thought: I can answer.\nAnswer: 3",
        ],
    ),
    "handoff": (
        workflow_with_handoff,
        [
            tool_call("lookup", {"key": "a"}, id="1"),
            tool_call("handoff", {"to_agent": "two", "reason": "it knows"}, id="2"),
            tool_call("add", {"a": 5}, id="3"),
            "done by two",
        ],
    ),
    "handoff beside a call": (
        workflow_with_handoff,
        [
            [
                tool_call("handoff", {"to_agent": "two", "reason": "it knows"}, id="1"),
                tool_call("lookup", {"key": "a"}, id="2"),
            ],
            "done by two",
        ],
    ),
}


def guard_for(*hidden: str) -> Guard:
    """A guard that allows the shop's tools, but for `hidden`."""
    return Guard(ToolExecutionPolicy(dict.fromkeys(set(NAMES) - set(hidden), "read_only")))


@pytest.mark.parametrize(("make", "script"), SCENES.values(), ids=SCENES)
async def test_agent_goes_the_same_way(make: MakeAgent, script: list[ScriptStep]) -> None:
    """Same calls, same results, same answer, and the model is given the same messages and tools, turn by turn."""
    bare, guarded = Shop(), Shop()
    bare_llm, guarded_llm = (ScriptedLLM(script, function_calling=make is not react_agent) for _ in range(2))
    guard = guard_for()
    agent = make(guard_tools(guarded.tools, guard), guarded_llm)
    assert_all_guarded(agent, allow_handoff=True)
    wanted = await transcript(make(bare.tools, bare_llm).run("go"))
    with guard.session("user-17", tools=NAMES):
        assert await transcript(agent.run("go")) == wanted
    assert sorted(guarded.calls, key=str) == sorted(bare.calls, key=str)
    assert in_order(guarded_llm.seen) == in_order(bare_llm.seen)


def in_order(turns: Sequence[ModelTurn]) -> list[tuple[Any, Any]]:
    """What the model was given, turn by turn; answers of calls made at once by their ids, not by who was first."""

    def key(message: ChatMessage) -> tuple[int, str]:
        is_answer = message.role is MessageRole.TOOL
        return (0, "") if not is_answer else (1, str(message.additional_kwargs.get("tool_call_id")))

    found = []
    for turn in turns:
        runs = [sorted(run, key=key) for _, run in groupby(turn.messages, key=lambda message: message.role)]
        found.append(([message for run in runs for message in run], turn.tools))
    return found


@pytest.mark.parametrize("function_calling", [True, False], ids=["functions", "react"])
@pytest.mark.parametrize("way", ["sync", "async"])
def test_predict_and_call_goes_the_same_way(way: str, function_calling: bool) -> None:
    """`predict_and_call` and `apredict_and_call`, of function calling models and of others."""
    script: list[ScriptStep] = [
        tool_call("lookup", {"key": "a"}, id="1") if function_calling else thought("lookup", '{"key": "a"}')
    ]
    bare, guarded, guard = Shop(), Shop(), guard_for()

    def predict(tools: Sequence[BaseTool]) -> tuple[str, list[dict[str, Any]]]:
        llm = ScriptedLLM(script, function_calling=function_calling)
        settings: dict[str, Any] = {}
        if not function_calling:  # LlamaIndex passes its own None on, and refuses it
            settings = {
                "react_chat_formatter": ReActChatFormatter.from_defaults(),
                "output_parser": ReActOutputParser(),
            }
        if way == "sync":
            answer = llm.predict_and_call(list(tools), user_msg="go", **settings)
        else:
            answer = asyncio.run(llm.apredict_and_call(list(tools), user_msg="go", **settings))
        return answer.response, [source.model_dump() for source in answer.sources]

    with guard.session("user-17", tools=NAMES):
        assert predict(guard_tools(guarded.tools, guard)) == predict(bare.tools)
    assert guarded.calls == bare.calls == [("lookup", "a")]


class TestRefusals:
    """A refused call is one result among others."""

    async def run(self, make: MakeAgent, script: list[ScriptStep], *hidden: str) -> tuple[Any, Shop, ScriptedLLM]:
        """A run with the `hidden` tools refused."""
        shop, guard = Shop(), guard_for()
        tools = guard_tools(shop.tools, guard)
        llm = ScriptedLLM(script, function_calling=make is not react_agent)
        with guard.session("user-17", tools=set(NAMES) - set(hidden)):
            result = await transcript(make(tools, llm).run("go"))
        return result, shop, llm

    async def test_parallel_calls_go_on(self) -> None:
        """The model gets each result under its own id; the refused one says what to do."""
        calls = [tool_call("add", {"a": n}, id=str(n)) for n in range(3)]
        calls.insert(1, tool_call("lookup", {"key": "k"}, id="9"))
        result, shop, llm = await self.run(function_agent, [calls, "done"], "lookup")
        assert sorted(shop.calls) == [("add", 0, 1), ("add", 1, 1), ("add", 2, 1)]
        assert result["answer"] == "done"
        told = {m.additional_kwargs["tool_call_id"]: m.content for m in llm.seen[1].messages if m.role == "tool"}
        assert told == {
            "0": "1",
            "1": "2",
            "2": "3",
            "9": "This tool is not available. Use one of the tools you were given.",
        }

    @pytest.mark.parametrize("first", [True, False])
    async def test_refused_return_direct_drops_nothing(self, first: bool) -> None:
        """A refusal does not end the turn, and the results beside it all reach the model."""
        calls = [tool_call("finish", {"answer": "42"}, id="1"), tool_call("add", {"a": 1}, id="2")]
        result, shop, llm = await self.run(function_agent, [calls if first else calls[::-1], "done"], "finish")
        assert result["answer"] == "done"
        assert shop.calls == [("add", 1, 1)]
        told = [(m.role.value, m.additional_kwargs.get("tool_call_id")) for m in llm.seen[1].messages[2:]]
        assert sorted(told) == [("tool", "1"), ("tool", "2")]

    async def test_return_direct_beside_a_refusal_answers(self) -> None:
        """An allowed tool that returns directly does so, whatever is refused beside it."""
        calls = [tool_call("lookup", {"key": "k"}, id="1"), tool_call("finish", {"answer": "42"}, id="2")]
        result, shop, _ = await self.run(function_agent, [calls], "lookup")
        assert (result["answer"], shop.calls) == ("final: 42", [("finish", "42")])

    async def test_handoff_beside_a_refusal_goes_on(self) -> None:
        """The other agent takes over."""
        calls = [
            tool_call("lookup", {"key": "k"}, id="1"),
            tool_call("handoff", {"to_agent": "two", "reason": "r"}, id="2"),
        ]
        result, shop, _ = await self.run(workflow_with_handoff, [calls, "done by two"], "lookup")
        assert (result["answer"], shop.calls) == ("done by two", [])

    async def test_react_reads_the_refusal(self) -> None:
        """As an observation."""
        script: list[ScriptStep] = [thought("lookup", '{"key": "k"}'), "Thought: I can answer.\nAnswer: no"]
        result, shop, llm = await self.run(react_agent, script, "lookup")
        assert (result["answer"], shop.calls) == ("no", [])
        assert "Observation: This tool is not available." in str(llm.seen[1].messages[-1].content)


async def test_agents_share_one_budget() -> None:
    """All agents of a workflow spend from the one session; when it is used up, both are told."""
    shop, guard = Shop(), guard_for()
    llm = ScriptedLLM(
        [
            [tool_call("add", {"a": 1}), tool_call("add", {"a": 2})],
            tool_call("handoff", {"to_agent": "two", "reason": "r"}),
            [tool_call("add", {"a": 3})],
            [tool_call("lookup", {"key": "k"})],
            "done",
        ]
    )
    workflow = workflow_with_handoff(guard_tools(shop.tools, guard), llm)
    with guard.session("user-17", tools=NAMES, max_calls=3) as session:
        result = await transcript(workflow.run("go"))
        assert session.remaining_calls == 0
    assert len(shop.calls) == 3
    assert [r[2] for r in result["results"] if r[0] == "lookup"] == [
        "No calls are left in this session for this tool. Answer with what you have."
    ]


async def test_an_agent_as_a_tool() -> None:
    """The outer call is judged, and so is every call of the agent that the tool runs, in the same session."""
    shop, guard = Shop(), Guard(ToolExecutionPolicy({"ask_expert": "read_only", "lookup": "read_only"}))
    lookup = guard_tools([shop.tools[2]], guard)
    expert = FunctionAgent(tools=list(lookup), llm=ScriptedLLM([tool_call("lookup", {"key": "deep"}), "I looked."]))

    async def ask_expert(question: str) -> str:
        """Asks another agent."""
        return str(await expert.run(question))

    llm = ScriptedLLM([tool_call("ask_expert", {"question": "?"}), "done"])
    agent = FunctionAgent(tools=list(guard_tools([ask_expert], guard)), llm=llm)
    with guard.session("user-17", tools=["ask_expert", "lookup"]) as session:
        result = await transcript(agent.run("go"))
        assert session.remaining_calls == 98
    assert result["results"] == [("ask_expert", {"question": "?"}, "I looked.", False, False)]
    assert shop.calls == [("lookup", "deep")]
    assert {event.principal for event in guard.audit.events} == {"user-17"}  # type: ignore[union-attr]


async def test_a_tool_that_waits_for_an_event_gets_it() -> None:
    """A tool's own `wait_for_event` works as in the bare tool: the step runs again, as one call that spends once."""

    async def confirm(ctx: Context, what: str) -> str:
        """Asks a person."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent, waiter_event=InputRequiredEvent(prefix=what), waiter_id=what
        )
        return str(answer.response)

    guard = Guard(ToolExecutionPolicy({"confirm": "read_only"}))
    llm = ScriptedLLM([tool_call("confirm", {"what": "really?"}), "done"])
    agent = FunctionAgent(tools=list(guard_tools([confirm], guard)), llm=llm)
    results = []
    with guard.session("user-17", tools=["confirm"]) as session:
        handler = agent.run("go")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                handler.ctx.send_event(HumanResponseEvent(response="yes"))
            if isinstance(event, ToolCallResult):
                results.append((event.tool_output.content, event.tool_output.is_error))
        await handler
    assert results == [("yes", False)]
    assert [event.outcome.value for event in guard.audit.events] == [  # type: ignore[union-attr]
        "authorized",
        "suspended",
        "resumed",
        "succeeded",
    ]
    assert session.max_calls - session.remaining_calls == 1


async def test_a_handler_that_outlives_its_session_is_nobody() -> None:
    """A run that goes on after the `with` block makes no calls, unless the session was kept open on purpose."""
    shop, guard = Shop(), guard_for()
    tools = list(guard_tools(shop.tools, guard))
    script: list[ScriptStep] = [tool_call("add", {"a": 1}), "done"]
    with guard.session("user-17", tools=NAMES):
        handler = FunctionAgent(tools=tools, llm=ScriptedLLM(script)).run("go")
    result = await transcript(handler)
    assert result["results"][0][2].startswith("No session is open")
    with guard.session("user-17", tools=NAMES) as session:
        handler = FunctionAgent(tools=tools, llm=ScriptedLLM(script)).run("go")
        session.keep_open()
    await transcript(handler)
    session.close()
    assert shop.calls == [("add", 1, 1)]


async def test_identify_finds_the_session_of_a_workflow() -> None:
    """A server without a place for `with` finds the session from the workflow's own Context."""
    sessions: list[Any] = []
    seen: list[Any] = []

    def identify(runtime: Any) -> Any:
        seen.append(runtime)
        return sessions[0]

    shop = Shop()
    guard = Guard(ToolExecutionPolicy({"add": ToolSettings(risk="read_only")}), identify=identify)
    sessions.append(guard.session("user-17", tools=["add"]))
    llm = ScriptedLLM([tool_call("add", {"a": 1}), "done"])
    agent = FunctionAgent(tools=list(guard_tools([shop.tools[0]], guard)), llm=llm)
    await transcript(agent.run("go"))
    assert shop.calls == [("add", 1, 1)]
    assert len(seen) == 1
    assert isinstance(seen[0], Context)

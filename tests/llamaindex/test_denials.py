"""Refusals and limits as the model, the agent and the application see them."""

import asyncio
import json
import threading
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.llms import ImageBlock, TextBlock
from llama_index.core.tools import FunctionTool, ToolOutput
from workflows.runtime.types.results import WaitingForEvent

from guarded_core import Guard, OutputTooLarge, ToolExecutionContext, ToolExecutionPolicy
from guarded_core.testing import FailingSink, ScriptedApprover
from guarded_llamaindex import guard_tool
from guarded_llamaindex.compat import SIGNALS


def test_a_refusal_is_an_output_that_is_an_error(way: Any, guard_of: Any) -> None:
    """The model reads what to do, the application a small plain record; neither the arguments nor rules are in it."""
    guard = guard_of("search")
    tool = guard_tool(FunctionTool.from_defaults(lambda query: query, name="search", description="S."), guard)
    with guard.session("user-17", tools=["other"]):
        output = way(tool, query="a secret")
    [event] = guard.audit.events
    assert output.is_error
    assert output.tool_name == "search"
    assert output.content == "This tool is not available. Use one of the tools you were given."
    assert output.raw_output == {
        "code": "unauthorized", "tool": "search", "call_id": event.call_id, "request_id": None,
    }  # fmt: skip
    assert output.raw_input == {}
    assert output.exception.code == "unauthorized"
    assert "a secret" not in output.model_dump_json()


@pytest.mark.parametrize(
    "returned",
    [
        "x" * 101,
        {"text": "x" * 101},
        [Document(text="x" * 101)],
        [TextBlock(text="ok"), ImageBlock(image=b"x" * 101)],
        ToolOutput(tool_name="f", content="x" * 101, raw_input={}),
        ToolOutput(tool_name="f", content="short", raw_input={}, raw_output=["x" * 101]),
    ],
    ids=["text", "dict", "documents", "image", "output's content", "output's raw_output"],
)
def test_output_limit_holds_for_all_of_an_output(way: Any, returned: Any) -> None:
    """Content, blocks and raw_output alike: of what is too large nothing is left; the tool has run, and it says so."""
    guard = Guard(ToolExecutionPolicy({"f": "read_only"}, output_bytes=100))
    tool = guard_tool(FunctionTool.from_defaults(lambda: returned, name="f", description="F."), guard)
    with guard.session("user-17", tools=["f"]):
        output = way(tool)
        with pytest.raises(OutputTooLarge):
            tool.fn()
    assert output.is_error
    assert output.content.startswith("The tool ran, but its result is too large to return")
    assert "xxx" not in repr((output.blocks, output.raw_output, output.raw_input, output.exception))
    assert [event.code for event in guard.audit.events] == [None, "output_too_large"] * 2


def test_output_within_the_limit_is_left_alone(way: Any) -> None:
    """The limit counts the text itself, not how LlamaIndex wraps it."""
    guard = Guard(ToolExecutionPolicy({"f": "read_only"}, output_bytes=100))
    tool = guard_tool(FunctionTool.from_defaults(lambda: "x" * 100, name="f", description="F."), guard)
    with guard.session("user-17", tools=["f"]):
        assert way(tool).content == "x" * 100


def test_output_that_cannot_be_read_does_not_pass(way: Any, guard_of: Any) -> None:
    """What cannot be measured is refused as a failure of the tool."""

    class Opaque:
        def __str__(self) -> str:
            return "fine"

        def items(self) -> Any:
            raise RuntimeError

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return dict

    guard = guard_of("f")
    tool = guard_tool(FunctionTool.from_defaults(Opaque, name="f", description="F."), guard)
    with guard.session("user-17", tools=["f"]):
        output = way(tool)
    assert output.is_error
    assert output.raw_output["code"] == "execution_failed"


@pytest.mark.parametrize("signal", [*SIGNALS, asyncio.CancelledError, KeyboardInterrupt])
def test_control_flow_passes_through(guard_of: Any, signal: type[BaseException]) -> None:
    """A workflow's signal to wait, and a cancellation, leave as they are; the call's outcome is recorded as unknown."""
    error = signal.__new__(signal)

    async def f() -> str:
        raise error

    guard = guard_of("f")
    tool = guard_tool(f, guard)

    async def main() -> None:
        with pytest.raises(signal) as caught:
            await tool.acall()
        assert caught.value is error
        with pytest.raises(signal):
            await tool.async_fn()

    with guard.session("user-17", tools=["f"]):
        asyncio.run(main())
    assert [event.outcome.value for event in guard.audit.events] == ["authorized", "unknown"] * 2


def test_waiting_signal_is_the_workflows_own() -> None:
    """What is let through is what a workflow waits with, and nothing else."""
    assert (WaitingForEvent,) == SIGNALS


def test_no_trail_no_call(way: Any) -> None:
    """Where the audit sink fails, the tool does not run, and the model is told."""
    guard, ran = Guard(ToolExecutionPolicy({"f": "read_only"}), audit=FailingSink(True)), []
    tool = guard_tool(FunctionTool.from_defaults(lambda: ran.append(1), name="f", description="F."), guard)
    with guard.session("user-17", tools=["f"]):
        output = way(tool)
    assert (ran, output.raw_output["code"]) == ([], "audit_unavailable")


def test_a_person_is_asked(way: Any) -> None:
    """A financial tool runs with the approved payload, and not at all after a no."""
    approver, ran = ScriptedApprover([True, False]), []

    def refund(amount: int) -> str:
        ran.append(amount)
        return "refunded"

    guard = Guard(ToolExecutionPolicy({"refund": "financial"}), approver=approver)
    tool = guard_tool(refund, guard)
    with guard.session("user-17", tools=["refund"]):
        assert way(tool, amount=5).content == "refunded"
        assert way(tool, amount=6).raw_output["code"] == "approval_rejected"
    assert ran == [5]
    assert [request.arguments for request in approver.asked] == [{"amount": 5}, {"amount": 6}]


class TestWhoseCall:
    """Identity comes from the session, before any thread, and from nothing that a model says."""

    def tool(self, guard: Guard) -> Any:
        """A tool that names the thread it runs in."""
        return guard_tool(
            FunctionTool.from_defaults(lambda: threading.current_thread().name, name="f", description="F."), guard
        )

    def test_no_session_no_call(self, way: Any, guard_of: Any) -> None:
        """Outside a session nothing runs, also after it has ended."""
        guard = guard_of("f")
        tool = self.tool(guard)
        with guard.session("user-17", tools=["f"]):
            pass
        assert way(tool).raw_output["code"] == "no_session"

    def test_context_handed_over_in_code(self, way: Any, guard_of: Any) -> None:
        """A tool that was wrapped with a context calls as that principal, without a `with`."""
        guard = guard_of("f")
        context = guard.session("user-18", tools=["f"])
        tool = guard_tool(FunctionTool.from_defaults(lambda: "ok", name="f", description="F."), guard, context=context)
        assert way(tool).content == "ok"
        assert guard.audit.events[0].principal == "user-18"
        with guard.session("user-17", tools=["f"]):
            assert way(tool).raw_output["code"] == "no_session"

    def test_foreign_context_is_nobody(self, way: Any, guard_of: Any) -> None:
        """A context that this guard did not issue names nobody."""
        guard = guard_of("f")
        foreign = ToolExecutionContext("root", ["f"], max_calls=9)
        tool = guard_tool(FunctionTool.from_defaults(lambda: "ok", name="f", description="F."), guard, context=foreign)
        assert way(tool).raw_output["code"] == "no_session"

    def test_a_guarded_tool_inside_a_guarded_tool(self, way: Any, guard_of: Any) -> None:
        """The session reaches the threads and tasks in which tools run; each call is judged and counted."""
        guard = guard_of("outer", "inner")
        inner = guard_tool(FunctionTool.from_defaults(lambda: "deep", name="inner", description="I."), guard)

        async def outer() -> str:
            """Calls another tool."""
            return (await inner.acall()).content

        tool = guard_tool(outer, guard)
        with guard.session("user-17", tools=["outer", "inner"]) as session:
            assert way(tool).content == "deep"
            assert session.remaining_calls == 98
        assert [(e.tool, e.outcome.value) for e in guard.audit.events] == [
            ("outer", "authorized"),
            ("inner", "authorized"),
            ("inner", "succeeded"),
            ("outer", "succeeded"),
        ]


def test_the_loop_is_never_blocked(guard_of: Any) -> None:
    """While a sync tool and a sync-only tool work, other tasks go on."""
    from llama_index.core.tools import BaseTool, ToolMetadata

    done = threading.Event()

    class Old(BaseTool):
        @property
        def metadata(self) -> ToolMetadata:
            return ToolMetadata(name="old", description="Old.")

        def __call__(self, input: Any) -> ToolOutput:
            assert done.wait(10)
            return ToolOutput(tool_name="old", content="old", raw_input={}, raw_output="old")

    def slow() -> str:
        assert done.wait(10)
        return "slow"

    guard = guard_of("old", "slow")
    tools = guard_tool(Old(), guard), guard_tool(slow, guard)

    async def main() -> list[str]:
        calls = [asyncio.create_task(tools[0].acall(input="x")), asyncio.create_task(tools[1].acall())]
        await asyncio.sleep(0.01)
        done.set()  # reached only because the loop is free
        return [output.content for output in await asyncio.gather(*calls)]

    with guard.session("user-17", tools=["old", "slow"]):
        assert asyncio.run(main()) == ["old", "slow"]


def test_sync_stays_sync(guard_of: Any) -> None:
    """A sync call runs a sync function in the calling thread, and needs no loop."""
    guard = guard_of("f")
    tool = TestWhoseCall().tool(guard)
    with guard.session("user-17", tools=["f"]):
        assert tool.call().content == threading.current_thread().name


def test_outputs_are_plain_json(guard_of: Any) -> None:
    """Results and refusals go into events and memories: both serialise."""
    guard = guard_of("f")
    tool = TestWhoseCall().tool(guard)
    refused = tool.call()
    with guard.session("user-17", tools=["f"]):
        outputs = [refused, tool.call()]
    assert [json.loads(output.model_dump_json())["is_error"] for output in outputs] == [True, False]

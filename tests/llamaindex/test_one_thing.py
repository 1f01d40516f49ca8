"""What is judged is what the body gets, and what a reader gets is what was measured: LlamaIndex's side."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata, ToolOutput
from pydantic import BaseModel, Field

from guarded_core import Answer, CallbackApprover, Guard, ToolExecutionPolicy
from guarded_core.rules.kinds import LimitToolParam, RequireApproval
from guarded_llamaindex import guard_tool, guard_tools
from guarded_llamaindex.testing import ScriptedLLM, tool_call


def session_of(bare: Any, **settings: Any) -> tuple[Any, Guard]:
    """The tool behind a guard of its own, with a session, and the guard."""
    guard = Guard(ToolExecutionPolicy({bare.metadata.name: "mutating"}, **settings))
    return guard_tool(bare, guard, context=guard.session("u", tools=[bare.metadata.name])), guard


def records(guard: Guard) -> list[tuple[str, str | None]]:
    """What is on record."""
    return [(event.outcome.value, event.code) for event in guard.audit.events]  # type: ignore[attr-defined]


async def test_an_argument_called_self_is_judged_like_any_other() -> None:
    """It is refused with an event, and ends no agent."""

    def look(q: str) -> str:
        """Look."""
        return q

    made, guard = session_of(FunctionTool.from_defaults(look))
    for output in (made.call(q="1", self="x"), await made.acall(q="1", self="x"), made(q="1", self="x")):
        assert output.is_error
    assert records(guard) == [("denied", "invalid_payload")] * 3
    llm = ScriptedLLM([[tool_call("look", {"q": "1", "self": "x"})], "done"])
    assert str(await FunctionAgent(tools=[made], llm=llm).run("go")) == "done"


class Wanted(BaseModel):
    """A schema whose default no code fills in."""

    q: str
    limit: int = 10


class Plain(BaseTool):
    """A tool that shows its arguments."""

    metadata = ToolMetadata(name="plain", description="D.", fn_schema=Wanted)

    def __call__(self, **given: Any) -> ToolOutput:
        """Show them."""
        return ToolOutput(tool_name="plain", content=str(sorted(given)), raw_input=given, raw_output=given)


def test_what_only_the_schema_calls_a_default_reaches_nobody() -> None:
    """The bare tool never gets it."""
    bare = Plain()
    made, _ = session_of(bare)
    assert made.call(q="a").raw_output == bare(q="a").raw_output == {"q": "a"}


async def test_partial_parameters_stay_out_of_the_store(tmp_path: Path) -> None:
    """No table of the ledger has them; the tool gets them all the same."""
    ran: list[str] = []

    def push(text: str, api_key: str) -> str:
        """Push."""
        ran.append(api_key)
        return "ok"

    database = tmp_path / "g.db"
    guard = Guard(ToolExecutionPolicy({"push": "mutating"}), store=f"sqlite:///{database}")
    (made,) = guard_tools([FunctionTool.from_defaults(push, partial_params={"api_key": "sk-LIVE-SECRET"})], guard)
    with guard.session("u", tools=["push"]):
        await FunctionAgent(tools=[made], llm=ScriptedLLM([[tool_call("push", {"text": "hi"})], "done"])).run("go")
    guard.close()
    assert ran == ["sk-LIVE-SECRET"]
    assert [path for path in tmp_path.iterdir() if b"sk-LIVE" in path.read_bytes()] == []
    with sqlite3.connect(database) as connection:
        assert connection.execute("select count(*) from guarded_ledger").fetchone() == (1,)


async def test_a_generator_is_taken_out() -> None:
    """Raw output and text are the list; the limit holds while it runs."""

    def count(n: int) -> Any:
        """Count."""
        return iter(range(n))

    made, guard = session_of(FunctionTool.from_defaults(count), output_bytes=100)
    for output in (made.call(n=3), await made.acall(n=3)):
        assert (output.content, output.raw_output) == ("[0, 1, 2]", [0, 1, 2])
    assert made.call(n=10_000).raw_output["code"] == "output_too_large"
    assert records(guard)[-1] == ("failed", "output_too_large")


@pytest.mark.parametrize(("result", "is_told"), [("ran", True), ('{"rows": 3}', False)])
def test_an_edit_is_told_but_not_inside_json(result: str, is_told: bool) -> None:
    """Somebody may parse it."""

    def look(n: int) -> str:
        """Look."""
        return result

    edit = Answer(by="lee", approve=True, arguments={"n": 2})
    approver = CallbackApprover(lambda request: edit, by="lee")
    guard = Guard(ToolExecutionPolicy({"look": "financial"}), approver=approver)
    made = guard_tool(FunctionTool.from_defaults(look), guard, context=guard.session("u", tools=["look"]))
    content = made.call(n=1).content
    assert content.endswith(result)
    assert ("was changed" in content) is is_told


def test_decide_reads_a_call_as_the_tool_does() -> None:
    """The code's defaults are judged, and partial parameters cannot be given."""

    def pay(order: int, api_key: str, cents: int = 50_000) -> str:
        """Pay."""
        return "paid"

    rule = RequireApproval(tool="pay", param="cents", above=100)
    guard = Guard(ToolExecutionPolicy({"pay": "mutating"}, rules=[rule]))
    guard_tools([FunctionTool.from_defaults(pay, partial_params={"api_key": "sk"})], guard)
    with guard.session("u", tools=["pay"]):
        for arguments in ({"order": 1}, '{"order": 1}'):
            decision = guard.decide("pay", arguments)
            assert decision.outcome == "ask"
            assert decision.approval_request is not None
            assert decision.approval_request.arguments["cents"] == 50_000
            assert "sk" not in str(decision.approval_request.arguments)
        assert guard.decide("pay", {"order": 1, "cents": 5}).outcome == "allow"
        assert guard.decide("pay", {"order": 1, "api_key": "x"}).code == "invalid_payload"


class Amount(BaseModel):
    order: int
    cents: Decimal = Decimal(1)


class Unsaid(BaseModel):
    order: int
    cents: Decimal = Field(default_factory=lambda: Decimal(1))


@pytest.mark.parametrize("model", [Amount, Unsaid])
async def test_a_default_that_is_no_json_is_judged_as_what_runs(model: Any) -> None:
    """Not as what the schema calls the default, nor unseen where the schema has none."""
    ran: list[Any] = []
    usual = Decimal(50_000)

    def pay(order: int, cents: Decimal = usual) -> str:
        ran.append(cents)
        return "paid"

    bare = FunctionTool.from_defaults(pay, fn_schema=model)
    pays, _ = session_of(bare, rules=[LimitToolParam(tool="pay", param="cents", max=100)])
    assert (await pays.acall(order=1)).raw_output["code"] == "policy_denied"
    assert pays.call(order=1).is_error
    assert pays.call(order=1, cents=5).content == "paid"
    assert ran == [5]


def test_a_trace_has_what_is_shown_judged_and_run() -> None:
    """Beside each other, defaults included; nothing runs."""
    ran: list[Any] = []

    def pay(order: int, filters: dict[str, Any], note: str = "-") -> str:
        ran.append(order)
        return "paid"

    _, guard = session_of(FunctionTool.from_defaults(pay))
    with guard.session("u", tools=["pay"]):
        traced = guard.trace("pay", {"order": 1, "filters": {}})
        refused = guard.trace("pay", {"order": 1, "filters": {"a": 1}})
    assert traced.shown["properties"]["filters"]["additionalProperties"] is False
    assert traced.judged == traced.run == {"order": 1, "filters": {}, "note": "-"}
    assert (refused.decision.code, refused.judged, refused.run) == ("invalid_payload", None, None)
    assert ran == []

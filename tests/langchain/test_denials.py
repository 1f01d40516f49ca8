"""What a model reads after a denial or a changed call, and what the application gets beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, ValidationError, field_validator

from guarded_core import Guard, ToolExecutionPolicy
from guarded_core.rules.kinds import DenyToolParam
from guarded_core.testing import FailingSink, ScriptedApprover
from guarded_langchain import GuardMiddleware, ToolCallDenied, guard_tool
from guarded_langchain.testing import ScriptedChatModel, says, tool_call

SECRET = "canary-7f3a"


def refund_tool(**settings: Any) -> BaseTool:
    """A tool with these fields set."""

    @tool
    def refund(order: int, note: str = "") -> str:
        """Refund an order."""
        return f"refunded {order}"

    for name, value in settings.items():
        setattr(refund, name, value)
    return refund


def call(**args: Any) -> dict[str, Any]:
    """A ToolCall of it."""
    return {"name": "refund", "args": args, "id": "call-1", "type": "tool_call"}


def guard_with(risk: str = "mutating", **settings: Any) -> Guard:
    """A guard over it."""
    return Guard(ToolExecutionPolicy({"refund": risk}, **settings.pop("policy", {})), **settings)


CASES: dict[str, tuple[Callable[[], Guard], dict[str, Any], str, str]] = {
    "unauthorised": (
        lambda: guard_with(),
        {"order": 1},
        "unauthorized",
        "This tool is not available. Use one of the tools you were given.",
    ),
    "asked": (
        lambda: guard_with("financial"),
        {"order": 1},
        "human_approval_required",
        "A person has to approve this call, and has not yet. It did not run.",
    ),
    "rejected": (
        lambda: guard_with("financial", approver=ScriptedApprover([False])),
        {"order": 1},
        "approval_rejected",
        "A person rejected this call. It did not run; do not repeat it.",
    ),
    "invalid": (
        lambda: guard_with(),
        {"order": SECRET},
        "invalid_payload",
        "The arguments do not fit the tool's schema: at /order: wrong type, expected integer. "
        "Correct them and try again.",
    ),
    "denied by a rule": (
        lambda: guard_with(policy={"rules": [DenyToolParam(tool="refund", param="note", equals=SECRET)]}),
        {"order": 1, "note": SECRET},
        "policy_denied",
        "The policy does not allow this call. Do not repeat it unchanged.",
    ),
    "no trail": (
        lambda: guard_with(audit=FailingSink(failing=True)),
        {"order": 1},
        "audit_unavailable",
        "No record of this call can be kept at the moment, so it did not run. Tell the user; do not retry.",
    ),
    "too large": (
        lambda: guard_with(policy={"output_bytes": 4}),
        {"order": 1},
        "output_too_large",
        "The tool ran, but its result is too large to return: at least 10 bytes, and 4 are allowed. "
        "Do not repeat the call; ask for less.",
    ),
}


@pytest.mark.parametrize(("make", "args", "code", "text"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_denial_is_an_error_message(
    make: Callable[[], Guard], args: dict[str, Any], code: str, text: str, is_async: bool
) -> None:
    """Short, true, without payload values or rules; the artifact is the small plain record."""
    guard = make()
    guarded = guard_tool(refund_tool(), guard)
    with guard.session("user-17", tools=[] if code == "unauthorized" else ["refund"]):
        answer = asyncio.run(guarded.ainvoke(call(**args))) if is_async else guarded.invoke(call(**args))
    assert (answer.content, answer.status, answer.name, answer.tool_call_id) == (text, "error", "refund", "call-1")
    assert SECRET not in repr(answer)
    record = answer.artifact
    assert list(record) == ["code", "tool", "call_id", "request_id"]
    assert (record["code"], record["tool"]) == (code, "refund")
    assert (record["request_id"] is not None) == (code in {"human_approval_required", "approval_rejected"})


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_without_an_id_a_denial_is_raised(is_async: bool) -> None:
    """A ToolException, as LangChain's own error handling knows it, with the core's error as an attribute."""
    guard = guard_with()
    guarded = guard_tool(refund_tool(), guard)
    with guard.session("user-17", tools=["refund"]), pytest.raises(ToolCallDenied) as denied:
        asyncio.run(guarded.ainvoke({"order": SECRET})) if is_async else guarded.invoke({"order": SECRET})
    assert isinstance(denied.value, ToolException)
    assert str(denied.value) == str(denied.value.error) == CASES["invalid"][3]
    assert denied.value.error.code == "invalid_payload"


def test_a_denial_keeps_to_the_response_format() -> None:
    """A tool with an artifact gets its denials as one message too."""
    guard = guard_with()

    @tool(response_format="content_and_artifact")
    def refund(order: int) -> tuple[str, Any]:
        """Refund."""
        return "refunded", {"order": order}

    guarded = guard_tool(refund, guard)
    with guard.session("user-17", tools=["refund"]):
        assert guarded.invoke(call(order="x")).artifact["code"] == "invalid_payload"
        assert guarded.invoke(call(order=1)).artifact == {"order": 1}


HANDLERS = [
    ("handle_tool_error", "sorry", {"order": 1}, "sorry"),
    (
        "handle_tool_error",
        lambda error: f"{type(error).__name__} {error.error.code}",
        {"order": 1},
        "ToolCallDenied unauthorized",
    ),
    ("handle_tool_error", True, {"order": 1}, CASES["unauthorised"][3]),
    ("handle_validation_error", "wrong", {"order": "x"}, "wrong"),
    (
        "handle_validation_error",
        lambda error: f"{error.error_count()} {error.errors()[0]['type']}",
        {"order": "x"},
        "1 invalid_payload",
    ),
]


@pytest.mark.parametrize(("option", "handler", "args", "text"), HANDLERS)
@pytest.mark.parametrize("with_id", [True, False], ids=["with an id", "without"])
def test_the_tools_own_handlers_have_the_last_word(
    option: str, handler: Any, args: dict[str, Any], text: str, with_id: bool
) -> None:
    """`handle_tool_error` and `handle_validation_error` put their text in the place of the denial's."""
    guard = guard_with()
    guarded = guard_tool(refund_tool(**{option: handler}), guard)
    with guard.session("user-17", tools=["refund"] if option == "handle_validation_error" else []):
        answer = guarded.invoke(call(**args) if with_id else args)
    if with_id:
        assert answer.artifact["code"] in {"unauthorized", "invalid_payload"}
        assert answer.status == "error"
    assert (answer.content if with_id else answer) == text


def test_a_handler_that_raises_is_not_the_agents_end() -> None:
    """It was written for the tool's own errors: what it does not know is told as a denial."""

    def handler(error: Exception) -> str:
        raise error

    guard = guard_with()
    guarded = guard_tool(refund_tool(handle_tool_error=handler), guard)
    with guard.session("user-17", tools=["refund"]):
        assert guarded.invoke(call(order="x")).content == CASES["invalid"][3]


def test_a_handler_of_validation_errors_sees_no_input() -> None:
    """The ValidationError that it gets was rebuilt without the values that did not fit."""
    seen: list[ValidationError] = []

    def handler(error: ValidationError) -> str:
        seen.append(error)
        return "handled"

    guard = guard_with()
    guarded = guard_tool(refund_tool(handle_validation_error=handler), guard)
    with guard.session("user-17", tools=["refund"]):
        guarded.invoke(call(order=SECRET))
    assert SECRET not in repr(seen[0]) + str(seen[0].errors())


def test_a_validator_of_the_tools_own_tells_nothing_of_the_values() -> None:
    """Its text may quote them, so only that it refused is told."""

    class Args(BaseModel):
        order: int
        note: str

        @field_validator("note")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError(f"bad note {value}")

    guard = guard_with()
    inner = refund_tool(args_schema=Args)
    with guard.session("user-17", tools=["refund"]):
        answer = guard_tool(inner, guard).invoke(call(order=1, note=SECRET))
    assert answer.artifact["code"] == "invalid_payload"
    assert SECRET not in repr(answer)


def test_artifacts_count_as_output() -> None:
    """The output limit holds for content and artifact together."""

    @tool(response_format="content_and_artifact")
    def refund(order: int) -> tuple[str, Any]:
        """Refund."""
        return "short", {"rows": ["x" * 100]}

    guard = guard_with(policy={"output_bytes": 50})
    with guard.session("user-17", tools=["refund"]):
        assert guard_tool(refund, guard).invoke(call(order=1)).artifact["code"] == "output_too_large"


def test_commands_count_as_output() -> None:
    """So do the messages that a Command carries."""

    @tool
    def refund(order: int) -> Any:
        """Refund."""
        return Command(update={"messages": [ToolMessage("x" * 100, tool_call_id="call-1")]})

    guard = guard_with(policy={"output_bytes": 50})
    with guard.session("user-17", tools=["refund"]):
        assert guard_tool(refund, guard).invoke(call(order=1)).artifact["code"] == "output_too_large"


def test_a_message_that_reports_a_failure_is_on_record_as_one(outcomes: Any) -> None:
    """A tool that returns an error message has failed, whatever its function says."""

    @tool
    def refund(order: int) -> Any:
        """Refund."""
        return ToolMessage("out of order", tool_call_id="call-1", status="error")

    guard = guard_with()
    with guard.session("user-17", tools=["refund"]):
        assert guard_tool(refund, guard).invoke(call(order=1)).content == "out of order"
    assert outcomes(guard) == [("refund", "authorized", None), ("refund", "failed", "execution_failed")]


def test_an_agent_goes_on_after_a_denial() -> None:
    """The model reads the denial and answers; nothing aborts the agent."""
    guard = guard_with()
    model = ScriptedChatModel(
        [says(tool_call("refund", {"order": "7"})), says(tool_call("refund", {"order": 7})), "done"]
    )
    agent = create_agent(model, tools=[guard_tool(refund_tool(), guard)])
    with guard.session("user-17", tools=["refund"]):
        said = agent.invoke({"messages": [("user", "refund order 7")]})["messages"]
    assert [message.content for message in said[2::2]] == [
        CASES["invalid"][3].replace("/order", "/order"),
        "refunded 7",
    ]
    assert said[-1].content == "done"


# A call that was changed on its way


class Raising(AgentMiddleware[Any, Any, Any]):
    """Doubles the order number of each call."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        args = {**request.tool_call["args"], "order": request.tool_call["args"]["order"] * 2}
        return handler(request.override(tool_call={**request.tool_call, "args": args}))


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped", "middleware alone"])
@pytest.mark.parametrize("result", ["ran", 5, '{"rows": 3}', [{"type": "text", "text": "ran"}]])
def test_what_the_applications_middleware_changes_is_not_told(wrapped: bool, result: Any) -> None:
    """It is the application's, maybe a tenant's secret; and a note would break who reads the content."""

    @tool
    def refund(order: int, note: str = "") -> Any:
        """Refund."""
        return result

    guard = guard_with()
    model = ScriptedChatModel([says(tool_call("refund", {"order": 7})), "done"])
    tools = [guard_tool(refund, guard)] if wrapped else [refund]
    middleware = [Raising(), *([] if wrapped else [GuardMiddleware(guard)])]
    with guard.session("user-17", tools=["refund"]):
        said = create_agent(model, tools=tools, middleware=middleware).invoke({"messages": [("user", "go")]})[
            "messages"
        ]
    assert said[2].content == (str(result) if isinstance(result, int) else result)
    assert said[2].additional_kwargs == {}


def test_a_persons_edit_is_told(outcomes: Any) -> None:
    """After an edit in LangChain's own human-in-the-loop middleware, the edited call is judged and run; it tells."""
    guard = guard_with()
    review = HumanInTheLoopMiddleware({"refund": {"allowed_decisions": ["approve", "edit", "reject"]}})
    model = ScriptedChatModel([says(tool_call("refund", {"order": 7})), "done"])
    agent = create_agent(
        model, tools=[guard_tool(refund_tool(), guard)], middleware=[review], checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    edit = {"type": "edit", "edited_action": {"name": "refund", "args": {"order": 8}}}
    with guard.session("user-17", tools=["refund"]):
        agent.invoke({"messages": [("user", "go")]}, config)
        said = agent.invoke(Command(resume={"decisions": [edit]}), config)["messages"]
    answer = next(message for message in said if isinstance(message, ToolMessage))
    calls = next(message for message in said if isinstance(message, AIMessage)).tool_calls
    assert "refunded 8" in answer.content
    # LangChain before 1.3 puts the edit into the model's own message; since then, the message keeps what it said.
    assert calls[0]["args"] == {"order": 8} or '"order":8' in answer.content.replace(" ", "")
    assert outcomes(guard) == [("refund", "authorized", None), ("refund", "succeeded", None)]

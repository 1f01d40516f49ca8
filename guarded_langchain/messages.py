"""What a model and an application are told of a refused call, and results as JSON for a replay."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from guarded_core.ground.errors import (
    AnsweredByPerson,
    ApprovalRejected,
    InvalidPayload,
    OutcomeUnknown,
    ToolExecutionError,
)
from guarded_core.ground.payload import PayloadLimits, PayloadRefused, PayloadTooLarge, freeze, is_json_text
from guarded_langchain import compat
from guarded_langchain.graph import steering

_KEPT = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=64)


class ToolCallDenied(ToolException):
    """A guarded tool refused a call that came without a tool call id, so that no message can answer it.

    Attributes:
        error: why; its text is this exception's text.
    """

    def __init__(self, error: ToolExecutionError) -> None:
        super().__init__(str(error))
        self.error = error

    def __reduce__(self) -> Any:
        return (ToolCallDenied, (self.error,))


def denial(tool: BaseTool, error: ToolExecutionError | ToolCallDenied, tool_call_id: str | None) -> Any:
    """What a guarded `tool` returns for a refused call: an error message with the small plain record as its artifact.

    What a person answered in the tool's place is the content, not an error. A refusal that the tool met inside,
    of another guarded tool, is its own: raised, it would end the whole agent. The tool's own `handle_tool_error` and
    `handle_validation_error` may put their text in the place of the error's.
    Raises ToolCallDenied, or a ValidationError that they handle, where there is no tool call id.
    """
    if isinstance(error, ToolCallDenied):
        error = error.error
    invalid = isinstance(error, InvalidPayload) and bool(tool.handle_validation_error)
    exception = _as_validation_error(error) if invalid else ToolCallDenied(error)
    if tool_call_id is None:
        raise exception
    answered = isinstance(error, AnsweredByPerson)
    handler = None if answered else tool.handle_validation_error if invalid else tool.handle_tool_error
    message = ToolMessage(
        _content(handler, exception, str(error)),
        artifact=error.as_dict(),
        tool_call_id=tool_call_id,
        name=tool.name,
        status="success" if answered else "error",
        additional_kwargs=_decided(error),
    )
    return (message, None) if tool.response_format == "content_and_artifact" else message


def _decided(error: ToolExecutionError) -> dict[str, Any]:
    """What tells an interface that a person, not the tool, is why this message says what it says, as LangChain does."""
    if not isinstance(error, ApprovalRejected):
        return {}
    decision = "respond" if isinstance(error, AnsweredByPerson) else "reject"
    return {"lc_source": "hitl_interrupt_decision", "lc_data": {"decision": decision}}


def _content(handler: Any, exception: Exception, text: str) -> Any:
    if isinstance(handler, str):
        return handler
    if not callable(handler):
        return text
    try:
        return handler(exception)
    except Exception:
        # Handlers are written for what the tool raises, and raise on (as MCP tools' do) what they do not know.
        return text


def _as_validation_error(error: ToolExecutionError) -> ValidationError:
    """The refusal as pydantic would raise it, without the input."""
    reason = PydanticCustomError("invalid_payload", "{reason}", {"reason": str(error)})
    return ValidationError.from_exception_data(
        error.tool, [InitErrorDetails(type=reason, loc=(), input=None)], hide_input=True
    )


def views(result: Any, *, with_artifact: bool) -> tuple[Any, ...]:
    """What a model and an application see of a result: content, and artifact where there is one."""
    if isinstance(result, ToolMessage):
        return (result.content,) if result.artifact is None else (result.artifact, result.content)
    if with_artifact and isinstance(result, tuple) and len(result) == 2:
        return (result[1], result[0])
    return (result,)


NOTE = "guarded_note"


def with_note(result: Any, note: str, tool: str, tool_call_id: str | None) -> Any:
    """The result with `note` before what the model reads, and under `NOTE` in its message's `additional_kwargs`.

    JSON stays as it is, since somebody may parse it: there the note stands beside it alone. A Command, which has no
    content of its own, and a result that no message carries, stay as they are but for text.
    """
    content, artifact = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if isinstance(content, ToolMessage):
        kwargs = {**content.additional_kwargs, NOTE: note}
        noted = content.model_copy(update={"content": _noted(content.content, note), "additional_kwargs": kwargs})
    elif steering.steers(content):
        return result
    elif tool_call_id is None:
        noted = _noted(content, note) if isinstance(content, str) else content
    else:
        text = content if isinstance(content, str) or _is_blocks(content) else compat.stringified(content)
        noted = ToolMessage(
            _noted(text, note),
            tool_call_id=tool_call_id,
            name=tool,
            artifact=artifact,
            additional_kwargs={NOTE: note},
        )
    return (noted, artifact) if isinstance(result, tuple) else noted


def _noted(content: Any, note: str) -> Any:
    """Content with the note before it; JSON as it is."""
    if isinstance(content, list):
        return [{"type": "text", "text": note}, *content]
    return content if is_json_text(content) else f"{note}\n\n{content}"


def _is_blocks(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) and "type" in block for block in content)


def with_artifact(message: ToolMessage, artifact: Any) -> ToolMessage:
    """The message with another artifact."""
    return message if artifact is message.artifact else message.model_copy(update={"artifact": artifact})


def reports_failure(result: Any) -> bool:
    """Whether a result is the tool's own message that it failed."""
    content = result[0] if isinstance(result, tuple) and result else result
    return isinstance(content, ToolMessage) and content.status == "error"


def encode(result: Any) -> Any:
    """A tool's result as JSON, for a replay: content as it is or as text, an artifact only where it is JSON."""
    if isinstance(result, tuple) and len(result) == 2:
        return {"pair": [encode(result[0]), _as_json(result[1])]}
    if isinstance(result, ToolMessage):
        kept = {"content": result.content, "artifact": _as_json(result.artifact), "status": result.status}
        if NOTE in result.additional_kwargs:
            kept["additional_kwargs"] = {NOTE: result.additional_kwargs[NOTE]}
        return {"message": kept | {"tool_call_id": result.tool_call_id, "name": result.name}}
    if steering.steers(result):
        return steering.kept(result)
    value = _as_json(result)
    return {"value": value if value is not None or result is None else compat.stringified(result)}


def decode(tool: str, stored: Any) -> Any:
    """The result that `encode` stored. Raises OutcomeUnknown for a Command that only another process had."""
    if "pair" in stored:
        content, artifact = stored["pair"]
        return decode(tool, content), artifact
    if "message" in stored:
        return ToolMessage(**stored["message"])
    if "value" in stored:
        return stored["value"]
    try:
        return steering.given_out(stored)
    except LookupError:
        text = "This call ran before, and its result is not kept. It is not run again."
    raise OutcomeUnknown(tool, text)


def _as_json(value: Any) -> Any:
    try:
        return freeze(value, _KEPT).value
    except (PayloadRefused, PayloadTooLarge):
        return None

"""What a call that ended gives back when a framework enters it again: the result, or the error, that it gave then."""

from __future__ import annotations

from typing import Any

from guarded_core.ground.errors import ExecutionFailed, OutcomeUnknown, OutputTooLarge, ToolExecutionError
from guarded_core.ground.struct import struct
from guarded_core.pipeline.verdict import Refusal, Replay
from guarded_core.store.ledger import CallState


@struct
class GivenBack:
    """What a replay hands out: a result, or an error to raise."""

    result: Any = None
    error: ToolExecutionError | None = None


def kept_error(error: Exception) -> dict[str, Any]:
    """An error as the ledger keeps it, as JSON: what its caller was told."""
    if isinstance(error, OutputTooLarge):
        return {"code": error.code, "actual": error.actual, "limit": error.limit}
    if isinstance(error, ToolExecutionError):
        return {"code": error.code, "told": str(error)}
    return {"code": ExecutionFailed.code, "type": type(error).__name__[:64], "text": _text(error)}


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # a class of the tool's own
        return ""


def given_back(replay: Replay) -> GivenBack | Refusal:
    """What the call gave back when it ran; a Refusal where that is not to be had any more."""
    entry = replay.entry
    if entry.state in (CallState.RAISED, CallState.UNUSABLE):
        return GivenBack(error=_error(entry.tool, entry.output or {}))
    try:
        result = replay.port.decode(entry.output)
        return GivenBack(result=replay.port.readdressed(replay.bound, result) if replay.is_another else result)
    except ToolExecutionError as error:
        return Refusal(found=replay.found, error=error)
    except Exception:
        text = "This call ran before, and its result cannot be read any more. It is not run again."
        return Refusal(found=replay.found, error=OutcomeUnknown(entry.tool, text))


def _error(tool: str, kept: dict[str, Any]) -> ToolExecutionError:
    if kept.get("code") == OutputTooLarge.code:
        return OutputTooLarge(tool, actual=kept["actual"], limit=kept["limit"])
    if "type" not in kept:
        return ExecutionFailed(tool, f"{kept.get('told', ExecutionFailed.text)} It is not run again.")
    told = f"The tool raised {kept['type']}: {kept['text']}"
    return ExecutionFailed(tool, f"{told}\n{ExecutionFailed.text} It is not run again.")

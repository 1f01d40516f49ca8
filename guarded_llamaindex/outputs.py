"""What a call gives back: the tool's own output within its limit, or a denial as the model should read it."""

from __future__ import annotations

from typing import Any

from llama_index.core.llms import TextBlock
from llama_index.core.tools import ToolOutput
from pydantic import PrivateAttr
from pydantic_core import to_json

from guarded_core.ground.errors import AnsweredByPerson, ExecutionFailed, ToolExecutionError
from guarded_core.ground.payload import PayloadLimits, PayloadRefused, PayloadTooLarge, freeze, is_json_text, measure
from guarded_llamaindex.arguments import Bound

_KEPT = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=64)


def denied(error: ToolExecutionError, tool: str) -> ToolOutput:
    """The output that stands for a refused or failed call.

    `content` is for the model; `raw_output` is `error.as_dict()`, for the application. It carries nothing of the
    arguments. What a person answered in the tool's place is not an error.
    """
    is_error = not isinstance(error, AnsweredByPerson)
    return ToolOutput(
        tool_name=tool, content=str(error), raw_input={}, raw_output=error.as_dict(), is_error=is_error, exception=error
    )


def with_note(output: Any, note: str) -> Any:
    """`output` with `note` before what the model reads; what is not a ToolOutput, or is JSON, as it is."""
    if not isinstance(output, ToolOutput) or is_json_text(output.content):
        return output
    return output.model_copy(update={"blocks": [TextBlock(text=note), *output.blocks]})


def with_raw(output: ToolOutput, raw: Any) -> ToolOutput:
    """`output` with another raw output, and its text where that is all that a model reads."""
    if raw is output.raw_output:
        return output
    is_text = output.blocks == [TextBlock(text=str(output.raw_output))]
    blocks = [TextBlock(text=str(raw))] if is_text else output.blocks
    return output.model_copy(update={"raw_output": raw, "blocks": blocks})


def failed(error: Exception, tool: str, arguments: dict[str, Any]) -> ToolOutput:
    """What `call_tool` makes of a tool's own exception."""
    return ToolOutput(
        tool_name=tool,
        content=f"Encountered error: {error}",
        raw_input=arguments,
        raw_output=str(error),
        is_error=True,
        exception=error,
    )


def check_output(output: Any, limit: int) -> None:
    """Bound `blocks` and `raw_output` alike, each by `limit` bytes.

    Raises PayloadTooLarge, and ExecutionFailed for what cannot be read.
    """
    parts = (output.blocks, output.raw_output) if isinstance(output, ToolOutput) else (output,)
    try:
        for part in parts:
            measure(_text(part), limit)
    except PayloadRefused:
        raise ExecutionFailed(getattr(output, "tool_name", "")) from None


def _text(part: Any) -> Any:
    """The text itself where that is all there is: a block's other fields are LlamaIndex's own."""
    if type(part) is list and len(part) == 1 and type(part[0]) is TextBlock:
        return part[0].text
    return part


def views(output: Any) -> tuple[Any, ...]:
    """What a model and an application see of an output; its `raw_input` is what the model gave."""
    if not isinstance(output, ToolOutput):
        return (output,)
    text = output.content
    raw = views(output.raw_output)
    return raw if text == str(output.raw_output) else (*raw, text)


class SavedAsText(ToolOutput):
    """An output whose `raw_output` cannot be written as JSON: where a context is saved, its text stands for it.

    LlamaIndex keeps the results of a step's calls in the context, which could not be saved at a pause otherwise.
    """

    _raw: Any = PrivateAttr(default=None)

    def __getattribute__(self, name: str) -> Any:
        return self._raw if name == "raw_output" else super().__getattribute__(name)


def savable(output: Any) -> Any:
    """The same output; one that a context could be saved with."""
    if not isinstance(output, ToolOutput) or isinstance(output.raw_output, str | int | float | None):
        return output
    try:
        to_json(output.raw_output)
        return output
    except Exception:  # whatever an object's own serializer raises
        text = str(output.raw_output)
    saved = SavedAsText.model_construct(**{**vars(output), "raw_output": text})
    saved._raw, saved._exception = output.raw_output, output.exception
    return saved


def is_failure(output: Any) -> bool:
    """Whether the tool reports that it failed."""
    return isinstance(output, ToolOutput) and output.is_error


def handed_back(output: Any, bound: Bound) -> Any:
    """`output` as the caller gets it: without values that the application set, and with what LlamaIndex drops.

    A function that returns a ToolOutput would lose its error and its blocks, an MCP result that is an error would pass
    for a success.
    """
    if not isinstance(output, ToolOutput):
        return output
    raw = output.raw_output
    update: dict[str, Any] = {}
    shown = bound.raw_input(output.raw_input)
    if shown is not output.raw_input:
        update["raw_input"] = shown
    if not output.is_error and _reports_error(raw):
        update["is_error"] = True
    if isinstance(raw, ToolOutput) and output.blocks == [TextBlock(text=str(raw))]:
        update["blocks"] = raw.blocks
    if not bound.parameters.makes_its_outputs:
        return output.model_copy(update=update) if update else output
    for name, value in update.items():
        setattr(output, name, value)
    return output


def _reports_error(raw: Any) -> bool:
    if isinstance(raw, ToolOutput):
        return raw.is_error
    if type(raw).__module__.partition(".")[0] not in ("mcp", "mcp_types"):
        return False
    return getattr(raw, "isError", getattr(raw, "is_error", False)) is True


def encode(output: Any) -> Any:
    """A tool's output as JSON, for a replay: its raw output as text, where it is not JSON itself."""
    if not isinstance(output, ToolOutput):
        return {"value": _as_json(output)}
    return {
        "blocks": [block.model_dump(mode="json") for block in output.blocks],
        "tool_name": output.tool_name,
        "raw_input": _as_json(output.raw_input) if isinstance(_as_json(output.raw_input), dict) else {},
        "raw_output": _as_json(output.raw_output),
        "is_error": output.is_error,
    }


def decode(stored: Any) -> Any:
    """The output that `encode` stored."""
    return stored["value"] if "value" in stored else ToolOutput(**stored)


def _as_json(value: Any) -> Any:
    try:
        return freeze(value, _KEPT).value
    except (PayloadRefused, PayloadTooLarge):
        return str(value)

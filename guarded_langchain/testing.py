"""Public fakes for the tests of agents: a chat model that plays back a script, offline."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr

_ids = itertools.count(1)

ScriptStep = str | AIMessage | Callable[[Sequence[BaseMessage]], "str | AIMessage"]
"""What the model says next: a text, a message, or a function of the messages it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """One time that the model was asked.

    Attributes:
        messages: what it was given.
        tools: the tools it was shown, as OpenAI functions.
    """

    messages: tuple[BaseMessage, ...]
    tools: tuple[dict[str, Any], ...]

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools it was shown, in their order."""
        return [tool["function"]["name"] if "function" in tool else str(tool.get("type")) for tool in self.tools]


def tool_call(name: str, arguments: dict[str, Any] | None = None, *, id: str | None = None) -> ToolCall:
    """A model's tool call; `id` is a fresh one by default."""
    return ToolCall(name=name, args=arguments or {}, id=id or f"call-{next(_ids)}", type="tool_call")


def says(*calls: ToolCall, text: str = "") -> AIMessage:
    """A model's message with tool calls."""
    return AIMessage(text, tool_calls=list(calls))


class ScriptedChatModel(BaseChatModel):
    """A chat model that says what its script says, step by step, sync, async and streaming.

    Attributes:
        script: the steps, in order. When they run out, the next call raises AssertionError.
        seen: what it was given, turn by turn.
    """

    script: list[Any]
    seen: list[ModelTurn] = Field(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, script: Sequence[ScriptStep] = (), **kwargs: Any) -> None:
        super().__init__(**{"script": list(script), **kwargs})

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Show the model these tools; provider-side tools, which are dicts, as they are."""
        shown = [_as_shown(tool) for tool in tools]
        return self.bind(tools=shown, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _chunks(self._next(messages, kwargs)):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.content), chunk=generation)
            yield generation

    def _next(self, messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
        with self._lock:
            turn = len(self.seen)
            self.seen.append(ModelTurn(messages=tuple(messages), tools=tuple(kwargs.get("tools") or ())))
        if turn >= len(self.script):
            raise AssertionError(f"the script has {len(self.script)} steps, and the model was asked once more")
        step = self.script[turn]
        said = step(messages) if callable(step) else step
        # A copy: frameworks change messages in place, and a script may be played twice.
        return AIMessage(said) if isinstance(said, str) else said.model_copy(deep=True)


def _as_shown(tool: Any) -> dict[str, Any]:
    if isinstance(tool, dict) and "function" not in tool and "parameters" not in tool:
        return tool
    return convert_to_openai_tool(tool)


def _chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    """The message in pieces: its text word by word, then each tool call."""
    words = str(message.content).split(" ") if message.content else []
    for place, word in enumerate(words):
        yield AIMessageChunk(content=word if place == 0 else f" {word}")
    for index, call in enumerate([*message.tool_calls, *message.invalid_tool_calls]):
        arguments = call["args"] if isinstance(call["args"], str) else orjson.dumps(call["args"]).decode()
        piece = tool_call_chunk(name=call["name"], args=arguments, id=call["id"], index=index)
        yield AIMessageChunk(content="", tool_call_chunks=[piece])
    yield AIMessageChunk(content="", response_metadata=message.response_metadata, chunk_position="last")

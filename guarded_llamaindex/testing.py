"""Public fakes for the tests of agents: a model that plays back a script, offline."""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import BaseTool

_ids = itertools.count(1)

ScriptStep = str | ToolSelection | Sequence[ToolSelection] | Callable[[Sequence[ChatMessage]], Any]
"""What the model says next: a text, one or more tool calls, or a function of the messages it was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTurn:
    """One time that the model was asked.

    Attributes:
        messages: what it was given.
        tools: the tools it was shown, as OpenAI functions; none for a model that calls no functions (ReAct).
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[dict[str, Any], ...]

    @property
    def tool_names(self) -> list[str]:
        """Names of the tools it was shown, in their order."""
        return [tool["function"]["name"] for tool in self.tools]


def tool_call(name: str, arguments: dict[str, Any] | None = None, *, id: str | None = None) -> ToolSelection:
    """A model's tool call; `id` is a fresh one by default."""
    return ToolSelection(tool_name=name, tool_kwargs=arguments or {}, tool_id=id or f"call-{next(_ids)}")


class ScriptedLLM(FunctionCallingLLM):
    """A model that says what its script says, step by step, sync, async and streaming.

    Args:
        script: the steps, in order. When they run out, the next question raises AssertionError.
        function_calling: False makes it a plain chat model, as ReActAgent uses; its steps are texts.

    Attributes:
        seen: what it was given, turn by turn.
    """

    _script: list[Any] = PrivateAttr(default_factory=list)
    _seen: list[ModelTurn] = PrivateAttr(default_factory=list)
    _function_calling: bool = PrivateAttr(default=True)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, script: Sequence[ScriptStep] = (), *, function_calling: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._script = list(script)
        self._function_calling = function_calling

    @classmethod
    def class_name(cls) -> str:
        """The name that LlamaIndex serialises it under."""
        return "ScriptedLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """What LlamaIndex asks of a model."""
        return LLMMetadata(model_name="scripted", is_chat_model=True, is_function_calling_model=self._function_calling)

    @property
    def seen(self) -> list[ModelTurn]:
        """What it was given, turn by turn."""
        return self._seen

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The tool calls of a message of this model. Raises ValueError where there are none but have to be."""
        calls = response.message.additional_kwargs.get("tool_calls") or []
        if not calls and error_on_no_tool_call:
            raise ValueError("the script's step has no tool call")
        return [ToolSelection(**call) for call in calls]

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next step."""
        return self._next(messages, kwargs.get("tools") or ())

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The next step."""
        return self._next(messages, kwargs.get("tools") or ())

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """The next step, in one piece."""
        response = self._next(messages, kwargs.get("tools") or ())

        def stream() -> Generator[ChatResponse, None, None]:
            yield response

        return stream()

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """The next step, in one piece."""
        response = self._next(messages, kwargs.get("tools") or ())

        async def stream() -> AsyncGenerator[ChatResponse, None]:
            yield response

        return stream()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The next step, as text: what query engines ask for."""
        return CompletionResponse(text=self._next([_user(prompt)], ()).message.content or "")

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The next step, as text."""
        return self.complete(prompt)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """The next step, as text in one piece."""
        text = self.complete(prompt).text

        def stream() -> Generator[CompletionResponse, None, None]:
            yield CompletionResponse(text=text, delta=text)

        return stream()

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """The next step, as text in one piece."""
        text = self.complete(prompt).text

        async def stream() -> AsyncGenerator[CompletionResponse, None]:
            yield CompletionResponse(text=text, delta=text)

        return stream()

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        messages = list(chat_history or [])
        if user_msg is not None:
            messages.append(_user(user_msg) if isinstance(user_msg, str) else user_msg)
        return {"messages": messages, "tools": list(tools)}

    def _next(self, messages: Sequence[ChatMessage], tools: Sequence[BaseTool]) -> ChatResponse:
        turn = ModelTurn(
            messages=tuple(message.model_copy(deep=True) for message in messages),
            tools=tuple(tool.metadata.to_openai_tool() for tool in tools),
        )
        with self._lock:
            place = len(self._seen)
            self._seen.append(turn)
        if place >= len(self._script):
            raise AssertionError(f"the script has {len(self._script)} steps, and the model was asked once more")
        step = self._script[place]
        message = _message(step(messages) if callable(step) else step)
        return ChatResponse(message=message, delta=message.content or "", raw={})


def _user(text: str) -> ChatMessage:
    return ChatMessage(role=MessageRole.USER, content=text)


def _message(said: str | ToolSelection | Sequence[ToolSelection]) -> ChatMessage:
    if isinstance(said, str):
        return ChatMessage(role=MessageRole.ASSISTANT, content=said)
    calls = [said] if isinstance(said, ToolSelection) else said
    return ChatMessage(
        role=MessageRole.ASSISTANT,
        content=None,
        additional_kwargs={"tool_calls": [call.model_dump() for call in calls]},
    )

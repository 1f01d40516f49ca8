"""A tool's metadata as models and agents see it: the inner tool's, narrowed by the policy in force."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Self

from llama_index.core.tools import ToolMetadata

_refused: ContextVar[object] = ContextVar("guarded_llamaindex_refused", default=None)


class ShownMetadata(ToolMetadata):
    """Name, description and return_direct of the inner tool; its schema, narrowed whenever it is looked at."""

    _shown: Callable[[], dict[str, Any]] | None = None
    _returns_directly = False

    @classmethod
    def of(cls, metadata: ToolMetadata, shown: Callable[[], dict[str, Any]]) -> Self:
        """A copy of `metadata` that shows the schema which `shown` returns."""
        copy = cls(
            description=metadata.description,
            name=metadata.name,
            fn_schema=metadata.fn_schema,
            return_direct=metadata.return_direct,
        )
        copy._shown = shown
        return copy

    def get_parameters_dict(self) -> dict[str, Any]:
        """The JSON Schema that a model is shown."""
        return super().get_parameters_dict() if self._shown is None else self._shown()

    @property
    def return_direct(self) -> bool:
        """Whether the output ends the agent's turn.

        Not so for a call that was just refused, in this very task: agents ask after the call, and one that takes a
        refusal for the answer drops the results of all calls beside it.
        """
        return self._returns_directly and _refused.get() is not self

    @return_direct.setter
    def return_direct(self, value: bool) -> None:
        self._returns_directly = value

    def refused(self, is_refused: bool) -> None:
        """Note how the call went that this task is making."""
        if self._returns_directly:
            _refused.set(self if is_refused else None)

"""The JSON Schema of an AiTool's declared parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class DeclaredParam(Protocol):
    """What is read of a declared parameter; `ToolParam` has it."""

    @property
    def name(self) -> str:
        """By which it is given."""

    @property
    def param_type(self) -> str:
        """Its JSON type."""

    @property
    def description(self) -> str:
        """What the model reads of it."""

    @property
    def required(self) -> bool:
        """Whether it has to be given."""


def from_params(params: Sequence[DeclaredParam]) -> dict[str, Any]:
    """The closed object schema of parameters with different names, in their order.

    An object or array parameter is free inside: a ToolParam declares the outer type and leaves the rest to the tool. So
    the schema is judged as it is; ``close(from_params(params), keep_open=True)`` changes nothing in it.
    """
    return {
        "type": "object",
        "properties": {param.name: _property(param) for param in params},
        "required": [param.name for param in params if param.required],
        "additionalProperties": False,
    }


def _property(param: DeclaredParam) -> dict[str, Any]:
    declared: dict[str, Any] = {"type": param.param_type, "description": param.description}
    return declared | ({"additionalProperties": True} if param.param_type == "object" else {})

"""A parser of nothing but a pydantic model, for tests of what `settled` makes of arguments."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from guarded_core.tools.parsing import Parser
from guarded_core.tools.roundtrip import dump


class PlainParser(Parser):
    """The model's own parser; `stable` says which way `settled` goes."""

    def __init__(self, model: type[BaseModel], *, stable: bool) -> None:
        self._model = model
        self._stable = stable

    @property
    def is_stable(self) -> bool:
        return self._stable

    def parse(self, arguments: dict[str, Any]) -> BaseModel:
        return self._model.model_validate(arguments)

    def dumped(self, parsed: BaseModel, opaque: frozenset[str]) -> dict[str, Any]:
        return dump(parsed)

    def values(self, parsed: BaseModel) -> dict[str, Any]:
        return dict(parsed)

"""What a pydantic model makes of a value at one place of a tool's arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import AliasChoices, BaseModel, ConfigDict, TypeAdapter
from pydantic.fields import FieldInfo

from guarded_core.tools.reading import Place, Reading, exact

_MAX_KEPT = 4_096  # values of one place; a session may bring some of its own
_NESTED = 16


class ModelReading(Reading):
    """The arguments of a tool that a pydantic model describes.

    Args:
        schema: JSON Schema of the arguments.
        model: the model.
        parses: whether the tool gets what the model makes of them; otherwise it gets what is written.
    """

    def __init__(self, schema: Mapping[str, Any], model: type[BaseModel], *, parses: bool = True) -> None:
        super().__init__(schema)
        self._model = model
        self._parses = parses

    def _place(self, tokens: tuple[str | None, ...]) -> Place:
        place = super()._place(tokens)
        place.is_decimal = place.is_decimal or any(map(_is_decimal, _below(self._model, tokens)))
        if not self._parses or tokens[0] is None:
            return place
        return _Parsed(self._model, tokens, place)


class _Parsed(Place):
    def __init__(self, model: type[BaseModel], tokens: tuple[str | None, ...], place: Place) -> None:
        super().__init__(is_decimal=place.is_decimal, is_instant=place.is_instant)
        self._model = model
        self._tokens = tokens
        self._known: dict[Any, Any] = {}

    def read(self, value: Any) -> Any:
        written = exact(value)
        if written not in self._known:
            if len(self._known) >= _MAX_KEPT:
                self._known.clear()
            self._known[written] = self._parsed(value)
        return self._known[written]

    def _parsed(self, value: Any) -> Any:
        for model, tokens in _models(self._model, self._tokens, _NESTED):
            name, info = _field(model, str(tokens[0]))
            nested = _nested(tokens[1:], value)
            for parse in (_assigned, _adapted):
                try:
                    return _found(parse(model, name, info, nested), tokens[1:])
                except Exception:  # noqa: S112 - the model takes no such value here; it stays as it is written
                    continue
        return value


def _assigned(model: type[BaseModel], name: str, info: FieldInfo, value: Any) -> Any:
    """One field alone, by all its validators."""
    kind = model
    if model.model_config.get("frozen"):
        kind = type(model.__name__, (model,), {"model_config": ConfigDict(frozen=False)})
    one: Any = kind.__pydantic_validator__.validate_assignment(kind.model_construct(), name, value)
    (dumped,) = one.model_dump(mode="json", by_alias=True, include={name}, round_trip=True).values()
    return dumped


def _adapted(model: type[BaseModel], name: str, info: FieldInfo, value: Any) -> Any:
    """The field's type alone, where the model as a whole wants more than one field."""
    adapter = TypeAdapter[Any](info.rebuild_annotation())
    return adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True, round_trip=True)


def _models(
    model: type[BaseModel], tokens: tuple[str | None, ...], left: int
) -> Iterator[tuple[type[BaseModel], tuple[str | None, ...]]]:
    """The models on the way down that have a field for what is left of it, the outermost first."""
    if not tokens or tokens[0] is None or left < 0 or _field(model, tokens[0])[1] is None:
        return
    yield model, tokens
    annotation = _field(model, tokens[0])[1].annotation
    for depth in range(1, len(tokens)):
        for kind in _below(annotation, tokens[1:depth]):
            for part in _alternatives(kind):
                if isinstance(part, type) and issubclass(part, BaseModel):
                    yield from _models(part, tokens[depth:], left - 1)


def _field(model: type[BaseModel], token: str) -> tuple[str, Any]:
    """The field that JSON names so, and its name; None where there is none."""
    for name, info in model.model_fields.items():
        if token == name or token in _aliases(info):
            return name, info
    return "", None


def _aliases(info: FieldInfo) -> list[str]:
    alias = info.validation_alias
    choices: list[Any] = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return [name for name in (*choices, info.serialization_alias, info.alias) if isinstance(name, str)]


def _below(annotation: Any, tokens: tuple[str | None, ...]) -> Iterator[Any]:
    """The types that can stand at the end of the way down."""
    if not tokens:
        yield annotation
        return
    token, rest = tokens[0], tokens[1:]
    for part in _alternatives(annotation):
        for child in _children(part, token):
            yield from _below(child, rest)


def _alternatives(annotation: Any) -> Iterator[Any]:
    value = getattr(annotation, "__value__", annotation)  # of a ``type`` alias
    if isinstance(value, FieldInfo):
        yield from _alternatives(value.annotation)
    elif hasattr(value, "__metadata__"):
        yield from _alternatives(value.__origin__)
    elif get_origin(value) is Union or type(value).__name__ == "UnionType":
        for part in get_args(value):
            yield from _alternatives(part)
    else:
        yield value


def _children(part: Any, token: str | None) -> Iterator[Any]:
    if isinstance(part, type) and issubclass(part, BaseModel):
        if token is None:
            yield from (info.annotation for info in part.model_fields.values())
        elif (info := _field(part, token)[1]) is not None:
            yield info.annotation
    elif is_typeddict(part) or dataclasses.is_dataclass(part):
        hints = get_type_hints(part, include_extras=True)
        yield from hints.values() if token is None else (hints[name] for name in (token,) if name in hints)
    else:
        arguments = [argument for argument in get_args(part) if argument is not ...]
        yield from arguments[1:] if _is_mapping(get_origin(part)) else arguments


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_decimal(annotation: Any) -> bool:
    return any(isinstance(part, type) and issubclass(part, Decimal) for part in _alternatives(annotation))


def _nested(tokens: tuple[str | None, ...], value: Any) -> Any:
    for token in reversed(tokens):
        value = [value] if token is None or token.isdigit() else {token: value}
    return value


def _found(dumped: Any, tokens: tuple[str | None, ...]) -> Any:
    for token in tokens:
        dumped = dumped[0] if isinstance(dumped, list) else dumped[token]
    return dumped

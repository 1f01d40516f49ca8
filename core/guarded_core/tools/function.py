"""Plain functions as tools: their schema, their arguments, and the guarded function that stands in for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.modelled import ModelReading
from guarded_core.tools.parsing import Parser, settled
from guarded_core.tools.port import ToolPort, before_entering
from guarded_core.tools.roundtrip import check_model, dump, read_first
from guarded_core.tools.schema.terms import CLOSED, Terms
from guarded_core.tools.spec import ToolRisk, ToolSpec
from guarded_core.tools.stable import is_stable


class _Arguments(BaseModel):
    """What a function's arguments are read into; its repr quotes none of them."""

    model_config = ConfigDict(extra="forbid", validate_default=True)

    def __repr__(self) -> str:
        return f"<arguments of {type(self).__name__}>"

    __str__ = __repr__


class PlainFunction(ToolPort):
    """The port of a plain function: how JSON arguments reach it.

    Args:
        function: sync or async, every parameter annotated; no ``*args`` or ``**kwargs``.
        name, description: default to the function's name and docstring.
        risk: what it can do.
        terms: on which the policy has its schema judged.

    Raises:
        InvalidTool: a parameter cannot be given as JSON.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        risk: ToolRisk | str | None = None,
        terms: Terms = CLOSED,
    ) -> None:
        tool = name or function.__name__
        self.function = function
        self.signature = inspect.signature(function)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self._positional = [p.name for p in self.signature.parameters.values() if p.kind is p.POSITIONAL_ONLY]
        model = _model(function, self.signature, tool)
        check_model(model, tool)
        self._parser = _Parser(model, tuple(self.signature.parameters))
        schema = model.model_json_schema()
        spec = ToolSpec.of(
            name=tool,
            description=description or inspect.getdoc(function) or "",
            schema=schema,
            risk=risk,
            reading=ModelReading(schema, model),
            terms=terms,
        )
        super().__init__(spec)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Positional and keyword arguments as one mapping by name. Raises TypeError as the function itself would."""
        return dict(self.signature.bind(*args, **kwargs).arguments)

    def complete(
        self, bound: Any, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """The effective arguments: defaults filled in, as JSON that parses back to itself; None where nothing changed.

        Raises ValueError where they do not fit, or would parse to something else another time.
        """
        found = settled(self._parser, arguments, opaque=opaque)
        return found.effective if found.is_changed else None

    def parser(self) -> Parser:
        """The model of the function's parameters."""
        return self._parser

    def run(self, bound: Any, effective: dict[str, Any]) -> Any:
        """Call the function with effective arguments."""
        with before_entering():
            values = self._parser.values(self._parser.parse(effective))
            positional = [values.pop(name) for name in self._positional]
        return self.function(*positional, **values)

    async def arun(self, bound: Any, effective: dict[str, Any]) -> Any:
        """Await an async function; a sync one runs in a worker thread."""
        if not self.is_async:
            return await super().arun(bound, effective)
        result = self.run(bound, effective)
        return await result if inspect.isawaitable(result) else result

    def stand_in(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, looking like the function; without ``__wrapped__``, which would lead around the guard."""
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
            setattr(call, attribute, getattr(self.function, attribute))
        call.__signature__ = self.signature  # type: ignore[attr-defined]
        return call


class _Parser(Parser):
    """The model of a function's parameters."""

    def __init__(self, model: type[BaseModel], names: tuple[str, ...]) -> None:
        self._model = model
        self._fields = [(name, _field(name)) for name in names]
        self._is_stable = is_stable(model)

    def without(self, names: frozenset[str]) -> Parser:
        own: dict[str, Any] = {_field(name): (Any, Field(None, alias=name)) for name in names}
        return _Parser(
            create_model(self._model.__name__, __base__=self._model, **own), tuple(n for n, _ in self._fields)
        )

    @property
    def is_stable(self) -> bool:
        return self._is_stable

    def parse(self, arguments: dict[str, Any]) -> BaseModel:
        return self._model.model_validate(arguments)

    def dumped(self, parsed: BaseModel, opaque: frozenset[str]) -> dict[str, Any]:
        return dump(parsed, exclude=frozenset(map(_field, opaque)))

    def read_first(self) -> frozenset[str]:
        found = read_first(self._model)
        return frozenset(name for name, field in self._fields if field in found)

    def values(self, parsed: BaseModel) -> dict[str, Any]:
        return {name: getattr(parsed, field) for name, field in self._fields}


def _field(parameter: str) -> str:
    # Pydantic takes no field that begins with an underscore or shadows a method; the alias carries the real name.
    return f"arg_{parameter}"


def _model(function: Callable[..., Any], signature: inspect.Signature, tool: str) -> type[BaseModel]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise InvalidTool(f"tool {tool!r}: its annotations cannot be resolved ({type(error).__name__})") from error
    fields: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidTool(f"tool {tool!r}: *args and **kwargs cannot be checked; name every parameter")
        if parameter.name not in hints:
            raise InvalidTool(f"tool {tool!r}: parameter {parameter.name!r} needs an annotation to be checked by")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[_field(parameter.name)] = (hints[parameter.name], Field(default, alias=parameter.name))
    try:
        model: type[BaseModel] = create_model(tool, __base__=_Arguments, **fields)
        model.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise InvalidTool(f"tool {tool!r}: a parameter's type has no JSON form") from error
    return model

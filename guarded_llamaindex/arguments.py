"""How a call's arguments reach the guard as JSON by name, and then the inner tool in the shape they came in."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
from llama_index.core.tools import BaseTool, FunctionTool
from pydantic import BaseModel
from workflows import Context

from guarded_core.approvals.request import SET_BY_APPLICATION
from guarded_core.ground.payload import is_json
from guarded_core.tools.modelled import ModelReading
from guarded_core.tools.reading import Reading
from guarded_core.tools.roundtrip import NO_JSON, as_json
from guarded_core.tools.schema.document import kinds
from guarded_llamaindex.compat import field_defaults, makes_its_outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a tool takes, and from whom.

    Attributes:
        schema: the JSON Schema of what a model may give: without the Context and without partial parameters.
        names: the model's parameters in the schema's order.
        context: name of the parameter that takes the workflow's Context.
        defaults: effective values of arguments that a model leaves out, as JSON.
        implicit: those of `defaults` that are not JSON themselves: the function fills in its own.
        partials: what the application has set, as it is.
        json_partials: those of `partials` that are JSON.
        model: validates once more what LlamaIndex only describes: a custom validator's word counts. None where it
            could not be asked: it knows the original schema in a conversion, or wants a value that is not JSON.
        unknown_to_model: those of `json_partials` that are not a field of `model`.
        is_function: the tool is a FunctionTool, which takes every argument by keyword.
        makes_its_outputs: see compat.py.
        added: values of ``pydantic.Field`` defaults, which a FunctionTool shows as part of its input.
    """

    schema: dict[str, Any]
    names: tuple[str, ...]
    context: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    implicit: frozenset[str] = frozenset()
    partials: Mapping[str, Any] = field(default_factory=dict)
    json_partials: Mapping[str, Any] = field(default_factory=dict)
    model: type[BaseModel] | None = None
    unknown_to_model: frozenset[str] = frozenset()
    is_function: bool = False
    makes_its_outputs: bool = False
    added: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reading(self) -> Reading:
        """What the tool makes of values at one place: nothing, it takes them as they are written."""
        if self.model is None:
            return Reading(self.schema)
        return ModelReading(self.schema, self.model, parses=False)

    @classmethod
    def of(cls, tool: BaseTool, schema: Mapping[str, Any] | None = None) -> Self:
        """The parameters of `tool`; `schema` is the original, where the tool has a lossy conversion of one."""
        declared = dict(schema) if schema is not None else tool.metadata.get_parameters_dict()
        is_function = isinstance(tool, FunctionTool)
        context = tool.ctx_param_name if isinstance(tool, FunctionTool) and tool.requires_context else None
        partials = dict(tool.partial_params) if isinstance(tool, FunctionTool) else {}
        own = without(declared, {*partials, *([context] if context else ())})
        defaults = _defaults(tool, own)
        json_partials = {name: value for name, value in partials.items() if is_json(value)}
        known, opaque = declared.get("properties", {}).keys(), partials.keys() - json_partials.keys()
        return cls(
            schema=own,
            names=tuple(own.get("properties", {})),
            context=context,
            defaults={name: value for name, (value, _) in defaults.items()},
            implicit=frozenset(name for name, (_, is_json) in defaults.items() if not is_json),
            partials=partials,
            json_partials=json_partials,
            model=tool.metadata.fn_schema if schema is None and not known & opaque else None,
            unknown_to_model=frozenset(partials) - known,
            is_function=is_function,
            makes_its_outputs=makes_its_outputs(tool),
            added=field_defaults(tool) if isinstance(tool, FunctionTool) else {},
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """One call's arguments.

        Raises TypeError where Python would: too many by position, or the same one twice. A model cannot do that.
        """
        arguments = {name: plain(value) if isinstance(value, dict | list) else value for name, value in kwargs.items()}
        context = None
        if self.context is not None:
            # Anything else under that name is the model's, and refused as unknown.
            if isinstance(kwargs.get(self.context), Context):
                context = arguments.pop(self.context)
            elif args and isinstance(args[0], Context):
                context, args = args[0], args[1:]
        if len(args) > len(self.names):
            raise TypeError(f"takes {len(self.names)} arguments, but {len(args)} were given by position")
        for name, value in zip(self.names, args, strict=False):
            if name in arguments:
                raise TypeError(f"got two values for argument {name!r}")
            arguments[name] = plain(value)
        return Bound(self, arguments, args, context)


class Bound:
    """The arguments of one call.

    Attributes:
        parameters: the tool's.
        arguments: what the model gave, by name.
        context: the workflow's Context, where the call carries it.
    """

    __slots__ = ("_args", "arguments", "context", "parameters")

    def __init__(
        self, parameters: Parameters, arguments: dict[str, Any], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.parameters = parameters
        self._args = args
        self.arguments = arguments
        self.context = context

    def complete(self, raw: dict[str, Any]) -> dict[str, Any] | None:
        """The effective arguments: defaults, what the application set, and what the model gave; None where that is all.

        Raises ValueError where the tool's own model refuses them, or a model overrides what the application set.
        """
        parameters = self.parameters
        if not parameters.partials.keys().isdisjoint(raw):
            # A schema may declare it where `without` does not look, below allOf or in patternProperties.
            raise ValueError("an argument that the application sets")
        effective = {**parameters.defaults, **parameters.json_partials, **raw}
        if parameters.model is not None:
            known = effective
            if parameters.unknown_to_model:
                known = {name: value for name, value in effective.items() if name not in parameters.unknown_to_model}
            # As JSON, which is what a model gives: a strict model takes its dates and enums only from there.
            parameters.model.model_validate_json(orjson.dumps(known))
        return None if len(effective) == len(raw) else effective

    def shape(self, effective: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments that run the tool with `effective`."""
        parameters = self.parameters
        kwargs = effective
        if parameters.implicit or parameters.partials:
            # Those the inner tool fills in itself, without showing them to whoever traces its calls.
            left_out = parameters.partials.keys() | (parameters.implicit - self.arguments.keys())
            kwargs = {name: value for name, value in effective.items() if name not in left_out}
        if self.context is not None:
            kwargs = {**kwargs, str(parameters.context): self.context}
        if not self._args or parameters.is_function:
            return (), kwargs
        # What is given by position and what is given by name build different queries.
        kwargs = dict(kwargs)
        return tuple(kwargs.pop(name) for name in parameters.names[: len(self._args)]), kwargs

    def raw_input(self, shown: dict[str, Any]) -> dict[str, Any]:
        """What the bare FunctionTool would show as its input, but for the values that the application set."""
        parameters = self.parameters
        if set(shown) != {"args", "kwargs"} or not parameters.is_function:
            return shown
        if not (self._args or parameters.partials or parameters.defaults):
            return shown
        by_position = set(parameters.names[: len(self._args)])
        partials = dict.fromkeys(parameters.partials, SET_BY_APPLICATION)
        kwargs = {name: value for name, value in self.arguments.items() if name not in by_position}
        return {"args": self._args, "kwargs": {**parameters.added, **partials, **kwargs}}


def without(schema: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    """`schema` without these properties."""
    if not names & schema.get("properties", {}).keys():
        return dict(schema)
    left = {name: value for name, value in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", ()) if name not in names]
    rest = {key: value for key, value in schema.items() if key not in ("properties", "required")}
    return {**rest, "properties": left, **({"required": required} if required else {})}


def plain(value: Any) -> Any:
    """`value` with every dict and list of a subclass as a plain one: ReAct's lenient parser yields those."""
    if not isinstance(value, dict | list):
        return value
    root = [value]
    pending: list[Any] = [root]
    # Level by level, so that no nesting exhausts the stack; and not without end, since a list may contain itself. The
    # payload limits, looked at afterwards, have a say about what is left.
    for container in pending:
        places: Iterable[Any] = list(container) if type(container) is dict else range(len(container))
        for place in places:
            member = container[place]
            if len(pending) > _MOST_CONTAINERS or not isinstance(member, dict | list):
                continue
            copy = dict(dict.items(member)) if isinstance(member, dict) else list.copy(member)
            container[place] = copy
            pending.append(copy)
    return root[0]


_MOST_CONTAINERS = 65_536


def _defaults(tool: BaseTool, schema: dict[str, Any]) -> dict[str, tuple[Any, bool]]:
    """Effective defaults by name, each with whether it is the very JSON value that the tool itself would use."""
    found: dict[str, tuple[Any, bool]] = {}
    own = _function_defaults(tool) if isinstance(tool, FunctionTool) else {}
    for name, declared in schema.get("properties", {}).items():
        if name not in own:
            continue  # what only the schema calls a default, nothing fills in
        json = as_json(own[name])
        # A null that the schema does not take stands for "no value", and is none.
        if json is not NO_JSON and (json is not None or "null" in kinds(schema, declared)):
            found[name] = json, json is own[name]
    return found


def unseen_defaults(tool: BaseTool, schema: Mapping[str, Any]) -> frozenset[str]:
    """The arguments of which the tool's function fills in a default that has no JSON form."""
    own = _function_defaults(tool) if isinstance(tool, FunctionTool) else {}
    return frozenset(name for name in own.keys() & schema.get("properties", {}).keys() if as_json(own[name]) is NO_JSON)


def _function_defaults(tool: FunctionTool) -> dict[str, Any]:
    signature = inspect.signature(tool.real_fn)
    own = {p.name: p.default for p in signature.parameters.values() if p.default is not p.empty}
    return {**own, **field_defaults(tool)}

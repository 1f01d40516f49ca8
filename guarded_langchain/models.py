"""The pydantic models, version 2 and 1, that check a tool's arguments: their schema, and JSON that parses to itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import orjson
from pydantic import AliasChoices, BaseModel, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic.v1 import BaseModel as BaseModelV1
from pydantic.v1 import Field as FieldV1
from pydantic.v1 import SecretBytes as SecretBytesV1
from pydantic.v1 import SecretStr as SecretStrV1
from pydantic.v1 import create_model as create_model_v1
from pydantic.v1.fields import ModelField

from guarded_core.ground.errors import InvalidTool
from guarded_core.tools.modelled import ModelReading
from guarded_core.tools.parsing import Parser, Settled, settled
from guarded_core.tools.reading import Reading
from guarded_core.tools.roundtrip import check_model, dump, ordered, read_first
from guarded_core.tools.schema import complete
from guarded_core.tools.stable import is_stable

_NO_JSON = "x-guarded-no-json"
# Fields that pydantic makes up for a function's *args and **kwargs: LangChain leaves them out unless they were given.
_SYNTHETIC = frozenset({"args", "kwargs"})


class ArgumentModel(Parser):
    """A model of a tool's arguments.

    Attributes:
        schema: JSON Schema of what the model may give.
        reading: what it makes of values at one place.
        names: where a field goes by another name in that schema: field to name.
        takes_field_names: whether its parser takes the field's own name too.
        needs: the hidden fields that have no default.
        hidden_names: every name that the parser takes a hidden field by.
    """

    _model: Any
    _fields: Mapping[str, Any]
    schema: dict[str, Any]
    reading: Reading
    names: Mapping[str, str]
    takes_field_names: bool
    needs: frozenset[str]
    hidden_names: frozenset[str]
    _hidden: frozenset[str]
    _static: Mapping[str, str]

    def complete(self, arguments: dict[str, Any], injected: Mapping[str, Any], opaque: frozenset[str]) -> Settled:
        """The part of the model as JSON that parses to itself, and what it parses to. Raises ValueError."""
        own = {name: value for name, value in injected.items() if name in self._hidden}
        return settled(self, arguments, injected=own, opaque=opaque)

    def read_first(self) -> frozenset[str]:
        """The names of fields with a validator of the tool's own that runs before, around or instead of the type."""
        return frozenset(self.names.get(name, name) for name in read_first(self._model) if name not in self._hidden)

    def values(self, parsed: Any) -> dict[str, Any]:
        """What a model gives of an instance, and defaults, under the schema's names."""
        given = self.keywords(parsed).items()
        return {self.names.get(name, name): value for name, value in given if name not in self._hidden}

    @cached_property
    def _field_of(self) -> dict[str, str]:
        return {given: name for name, given in self.names.items()}

    def _not_dumped(self, opaque: frozenset[str], were_set: Collection[str]) -> frozenset[str]:
        """The fields that are left out of a dump: code's, opaque ones, and defaults that JSON cannot say."""
        left_out = self._left_out.difference(were_set) if self._left_out else self._left_out
        return self._hidden | left_out | {self._field_of.get(name, name) for name in opaque}

    def is_ambiguous(self, arguments: Mapping[str, Any]) -> bool:
        """Whether an open argument has the name of a field that the parser takes by another name."""
        return any(name in arguments for name in self.names if name not in self.schema.get("properties", {}))

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """The names of the fields whose default has no JSON form; None for a type without null stands for no value."""
        return frozenset(self._static[name] for name in self._left_out if self._default(name) is not None)

    @cached_property
    def _left_out(self) -> frozenset[str]:
        """The fields whose default JSON cannot say (a function, None for an int): the parser fills them in itself."""
        filled = complete(self.schema, {})
        return frozenset(name for name, given in self._static.items() if given not in filled)

    @abstractmethod
    def keywords(self, parsed: Any) -> dict[str, Any]:
        """The keywords that LangChain makes of an instance: what was given, and defaults."""

    @abstractmethod
    def _default(self, field: str) -> Any:
        """The default of a field that has one."""

    def trial(self) -> Parser:
        """One that takes arguments without what code injects, to be tried with samples."""
        return self.without(self.needs) if self.needs else self


def model_of(model: type[BaseModel] | type[BaseModelV1], tool: str, hidden: frozenset[str]) -> ArgumentModel:
    """The model, without the `hidden` fields.

    Raises:
        InvalidTool: an argument has no JSON form, or two payloads could look alike to an approver.
    """
    if issubclass(model, BaseModel):
        return _Model(model, tool, hidden)
    return _ModelV1(model, tool, hidden)


class _Model(ArgumentModel):
    def __init__(self, model: type[BaseModel], tool: str, hidden: frozenset[str]) -> None:
        check_model(model, tool, skip=hidden)
        self._model = model
        self._tool = tool
        self._hidden = hidden & model.model_fields.keys()
        self.needs = frozenset(name for name in self._hidden if model.model_fields[name].is_required())
        self.hidden_names = self._hidden.union(*(_all_names(model.model_fields[name]) for name in self._hidden))
        self._fields = model.model_fields
        self._defaulted = {name for name, info in model.model_fields.items() if not info.is_required()} - _SYNTHETIC
        fields = {name: info for name, info in model.model_fields.items() if name not in hidden}
        self.names = {name: given for name, info in fields.items() if (given := _alias(info, tool, name)) != name}
        self.takes_field_names = _allows_field_names(model)
        self.schema = without(_json_schema(model), self.hidden_names)
        _refuse_no_json(self.schema, tool)
        self.reading = ModelReading(self.schema, model)
        # The names that dump() writes, where the parser wants others.
        self._dumped = {
            written: self.names.get(name, name)
            for name, info in fields.items()
            if (written := info.serialization_alias or name) != self.names.get(name, name)
        }
        self._static = {name: self.names.get(name, name) for name, info in fields.items() if _is_static(info)}

    def _default(self, field: str) -> Any:
        return self._fields[field].default

    @cached_property
    def is_stable(self) -> bool:
        names = self._fields.keys()
        return not (self._hidden or self._left_out or names & _SYNTHETIC) and is_stable(self._model)

    def parse(self, arguments: dict[str, Any]) -> BaseModel:
        parsed: BaseModel = self._model.model_validate(arguments)
        return parsed

    def keywords(self, parsed: BaseModel) -> dict[str, Any]:
        names = self._defaulted | parsed.model_fields_set
        return {name: getattr(parsed, name) for name in self._fields if name in names} | (parsed.model_extra or {})

    def dumped(self, parsed: BaseModel, opaque: frozenset[str]) -> dict[str, Any]:
        dumped = dump(parsed, exclude=self._not_dumped(opaque, parsed.model_fields_set))
        return {self._dumped.get(name, name): value for name, value in dumped.items()} if self._dumped else dumped

    def without(self, names: frozenset[str]) -> Parser:
        own: dict[str, Any] = {self._field_of.get(name, name): (Any, Field(None, alias=name)) for name in names}
        return _Model(create_model(self._model.__name__, __base__=self._model, **own), self._tool, self._hidden)


class _ModelV1(ArgumentModel):
    def __init__(self, model: type[BaseModelV1], tool: str, hidden: frozenset[str]) -> None:
        _check_v1(model, tool, hidden, set())
        self._model = model
        self._tool = tool
        self._hidden = hidden & model.__fields__.keys()
        self.needs = frozenset(name for name in self._hidden if model.__fields__[name].required)
        self.hidden_names = self._hidden | {model.__fields__[name].alias for name in self._hidden}
        self._fields = model.__fields__
        self._defaulted = {name for name, info in model.__fields__.items() if not info.required} - _SYNTHETIC
        fields = {name: info for name, info in model.__fields__.items() if name not in hidden}
        self.names = {name: info.alias for name, info in fields.items() if info.alias != name}
        self.takes_field_names = bool(getattr(model.__config__, "allow_population_by_field_name", False))
        try:
            schema = model.schema()
        except ValueError as error:
            raise InvalidTool(f"tool {tool!r}: an argument's type has no JSON form") from error
        if model.__config__.extra == "allow":  # version 1 does not say so itself
            schema = {**schema, "additionalProperties": True}
        self.schema = without(schema, self.hidden_names)
        self.reading = Reading(self.schema)
        static = [name for name, info in fields.items() if not info.required and info.default_factory is None]
        self._static = {name: fields[name].alias for name in static}

    def _default(self, field: str) -> Any:
        return self._fields[field].default

    def parse(self, arguments: dict[str, Any]) -> BaseModelV1:
        parsed: BaseModelV1 = self._model.parse_obj(arguments)
        return parsed

    def keywords(self, parsed: BaseModelV1) -> dict[str, Any]:
        names = self._defaulted | parsed.__fields_set__
        return {name: value for name, value in parsed if name in names or name not in self._fields}

    def without(self, names: frozenset[str]) -> Parser:
        own: dict[str, Any] = {self._field_of.get(name, name): (Any, FieldV1(None, alias=name)) for name in names}
        return _ModelV1(create_model_v1(self._model.__name__, __base__=self._model, **own), self._tool, self._hidden)

    def dumped(self, parsed: BaseModelV1, opaque: frozenset[str]) -> dict[str, Any]:
        excluded = self._not_dumped(opaque, parsed.__fields_set__)
        # JSON by way of its text: version 1 has no other way to turn every type into JSON.
        dumped: dict[str, Any] = orjson.loads(parsed.json(by_alias=True, exclude=set(excluded)))
        values = {self._fields[name].alias if name in self._fields else name: value for name, value in parsed}
        return {name: ordered(values.get(name), value) for name, value in dumped.items()}


class _Schema(GenerateJsonSchema):
    """Goes on where a type has no JSON form: only what code injects may have one."""

    ignored_warning_kinds: set[Any] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as upstream declares it

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {_NO_JSON: True}


def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    if not model.__pydantic_complete__:
        model.model_rebuild()
    return model.model_json_schema(schema_generator=_Schema)


def _refuse_no_json(schema: Any, tool: str) -> None:
    if _NO_JSON.encode() in orjson.dumps(schema, default=str):
        raise InvalidTool(f"tool {tool!r}: an argument's type has no JSON form")


def without(schema: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The schema without these properties, and without definitions that nothing names any more."""
    left = set(names)
    own = {**schema, "properties": {n: sub for n, sub in schema.get("properties", {}).items() if n not in left}}
    if "required" in own:
        own["required"] = [name for name in own["required"] if name not in left]
    for keyword in ("$defs", "definitions"):
        definitions = own.pop(keyword, {})
        named: dict[str, Any] = {}
        waiting: list[Any] = [own]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                name = str(node.get("$ref", "")).rpartition("/")[2]
                if name in definitions and name not in named:
                    named[name] = definitions[name]
                    waiting.append(named[name])
                waiting.extend(node.values())
            elif isinstance(node, list):
                waiting.extend(node)
        if named:
            own[keyword] = named
    return own


def _alias(info: FieldInfo, tool: str, name: str) -> str:
    """The name that the parser takes for a field, as its JSON schema says it."""
    alias = info.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    elif alias is None:
        return name
    if not isinstance(alias, str):
        raise InvalidTool(f"tool {tool!r}: argument {name!r} is read along a path; give it a plain alias")
    return alias


def _all_names(info: FieldInfo) -> set[str]:
    """The names that the parser takes a field by, beside its own; of a path, where it begins."""
    alias = info.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [] if alias is None else [alias]
    return {choice if isinstance(choice, str) else str(choice.path[0]) for choice in choices}


def _allows_field_names(model: type[BaseModel]) -> bool:
    config: Mapping[str, Any] = model.model_config
    return bool(config.get("populate_by_name") or config.get("validate_by_name"))


def _is_static(info: FieldInfo) -> bool:
    return not info.is_required() and info.default_factory is None


def _check_v1(model: type[BaseModelV1], tool: str, hidden: frozenset[str], seen: set[type]) -> None:
    """As `check_model`, for version 1: no masked and no excluded fields."""
    seen.add(model)
    for name, info in model.__fields__.items():
        if name in hidden:
            continue
        if info.field_info.exclude:
            raise InvalidTool(
                f"tool {tool!r}: argument {name!r} is excluded from dumps, so it cannot be approved; keep it"
            )
        for kind in _kinds(info):
            if isinstance(kind, type) and issubclass(kind, (SecretStrV1, SecretBytesV1)):
                raise InvalidTool(
                    f"tool {tool!r}: argument {name!r} is masked ({kind.__name__}), so it cannot be approved; "
                    "let the application inject secrets instead of the model"
                )
            if isinstance(kind, type) and issubclass(kind, BaseModelV1) and kind not in seen:
                _check_v1(kind, tool, frozenset(), seen)


def _kinds(info: ModelField) -> Iterable[Any]:
    yield info.type_
    for sub in info.sub_fields or ():
        yield from _kinds(sub)

"""How a tool's arguments travel: what the model may give, what code gives, and how JSON becomes what the tool takes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from langchain_core.tools import BaseTool, Tool

from guarded_core.ground.errors import InvalidPayload, InvalidTool
from guarded_langchain import compat
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.models import ArgumentModel, model_of
from guarded_langchain.signatures import Filled, check_awaited, filled, is_needed, taken

# The argument under which ToolNode hands a guarded tool its ToolRuntime, where the tool does not ask for one itself;
# with an underscore where the tool has an argument of that name.
_RUNTIME = "guarded_runtime"
# A Tool without a schema takes one text; LangChain shows it under either name.
_TEXT, _TEXT_TOO = "__arg1", "tool_input"
_TEXT_SCHEMA = {"type": "object", "properties": {_TEXT: {"title": _TEXT, "type": "string"}}, "required": [_TEXT]}

_SCALARS = (str, int, float, bool, type(None))
_MAX_LOOKED_AT = 10_000
_NOTHING = Filled(values={}, implicit=frozenset(), unknown=frozenset())


@dataclass(frozen=True, slots=True, repr=False)
class _Injected:
    value: Any = field(repr=False)


def injected(value: Any) -> Any:
    """Mark `value` as the application's, where code fills an injected argument of a guarded tool by hand.

    A model can write anything that is JSON into a call, so JSON for an injected argument is taken for the model's, and
    stripped. What a graph injects (state, store, runtime, the call's id) needs no mark.
    """
    return _Injected(value)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Given:
    """The arguments of one call, taken apart.

    Attributes:
        arguments: the model's, under the schema's names; to be judged.
        injected: code's, by argument.
        runtime: the ToolRuntime, where ToolNode runs the call.
        forged: whether there were others that only code may give; they were stripped.
    """

    arguments: object
    injected: dict[str, Any] = field(default_factory=dict)
    runtime: Any = None
    forged: bool = False


class ToolArguments:
    """The arguments of one LangChain tool.

    Attributes:
        tool: the tool.
        model: the pydantic model that checks them; None where there is only a schema.
        parses_as_upstream: whether LangChain's own parser is the tool's.
        schema: JSON Schema of the model's arguments, under the names that the tool's own parser takes.
        filled: what the tool's code fills in itself, where there is only a schema.
        runtime: the argument that takes a ToolRuntime.
        asks_for_runtime: whether the tool itself declares it.
        taken: arguments that upstream overwrites on their way to the tool's code.
        unshown: names in the tool's own schema that are not the model's to give, though its annotations do not say so.
        filled_by_name: what a framework gives because of the name, though the type does not say so.
        positional: the names of the function's parameters that can be given by position.
        made_up: names that upstream shows for ``*args`` and ``**kwargs``.
        ids: those that take the id of the model's call.
        injected: the arguments that only code may give.
        application_set: those of them that the application gives, not the framework.

    Raises:
        InvalidTool: an argument has no JSON form, two payloads could look alike to an approver, or LangChain cannot
            call the tool's function.
    """

    def __init__(self, tool: BaseTool) -> None:
        check_awaited(tool)
        self.tool = tool
        self.positional = _positional(tool)
        by_name = _by_name(tool)
        self.taken = _taken(tool)
        self._hidden = compat.injected_arguments(tool) | by_name | self.taken
        self.ids = compat.id_arguments(tool)
        self._state = graph_compat.state_fields(tool)
        self.model = _model(tool, self._hidden)
        self._config = frozenset(filter(None, map(compat.config_parameter, compat.functions(tool))))
        self.parses_as_upstream = compat.parses_as_upstream(tool)
        self.schema = _schema(tool, self._hidden, self.model)
        properties = self.schema.get("properties", {})
        self.filled = filled(tool, self.schema) if self.model is None else _NOTHING
        self._first = next(iter(properties), _TEXT)
        own_runtime = graph_compat.runtime_parameter(tool) or next(iter(by_name), None)
        self.asks_for_runtime = own_runtime is not None
        self.runtime = own_runtime or _free_name(properties)
        self.unshown = by_name | self.taken
        self.filled_by_name = by_name | (compat.named_as_callbacks(tool) - properties.keys() - self.taken)
        self.made_up = compat.starred(tool)
        upstream = {"run_manager", "callbacks"} - properties.keys()
        hidden_names = self.model.hidden_names if self.model else self._hidden
        self.injected = self._hidden | hidden_names | self._config | {self.runtime} | upstream
        framework = graph_compat.framework_arguments(tool) | self.taken
        self.application_set = self._hidden - {self.runtime} - self.ids - framework

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """The arguments of which the tool fills in a default that has no JSON form."""
        return self.filled.unknown if self.model is None else self.model.unseen_defaults

    def split(self, given: object, *, by_field: bool = False, runtime: Any = None) -> Given:
        """Take `given` apart.

        Args:
            given: what reached the tool: untrusted.
            by_field: whether names are the function's parameters, not those of the schema.
            runtime: the ToolRuntime, where ToolNode gave the tool none.
        """
        if isinstance(given, str):
            # The one argument itself; it is never read as JSON.
            return Given(arguments={self._first: given}, runtime=runtime)
        if not isinstance(given, dict):
            return Given(arguments=given, runtime=runtime)
        from_code = {name: given[name] for name in self.injected & given.keys()}
        arguments = {name: value for name, value in given.items() if name not in from_code}
        handed = from_code.get(self.runtime)
        if not is_json(handed):
            runtime = handed
        accepted = {
            name: value.value if isinstance(value, _Injected) else value
            for name, value in from_code.items()
            if not is_json(value) or self._is_state(name, value, runtime)
        }
        return Given(
            arguments=self._renamed(arguments, by_field),
            injected=accepted if runtime is None else {self.runtime: runtime, **accepted},
            runtime=runtime,
            forged=len(accepted) < len(from_code),
        )

    def by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a direct call. Raises TypeError where the function itself would."""
        if len(args) > len(self.positional):
            raise TypeError(f"{self.tool.name} takes {len(self.positional)} positional arguments")
        named = dict(zip(self.positional, args, strict=False))
        if named.keys() & kwargs.keys():
            raise TypeError(f"{self.tool.name} got one argument twice")
        return named | kwargs

    def forges(self, sent: object) -> bool:
        """Whether a model's message has arguments that are not its to give."""
        return isinstance(sent, dict) and not self.injected.isdisjoint(sent)

    def of_call(self, given: Given, tool_call_id: str | None) -> CallArguments:
        """Those of one call."""
        own = {name: value for name, value in given.injected.items() if name in self._hidden - self.taken}
        if tool_call_id is not None:
            own |= dict.fromkeys(self.ids, tool_call_id)
        return CallArguments(self, own, tool_call_id, given.arguments)

    def config_in(self, injected: Mapping[str, Any]) -> Any:
        """The config that code handed to the function itself; None where it did not."""
        return next((injected[name] for name in self._config if name in injected), None)

    def _is_state(self, name: str, value: object, runtime: object) -> bool:
        """Whether this is what ToolNode takes from the graph's state, of which a field can be plain JSON."""
        if name not in self._state:
            return False
        state, wanted = getattr(runtime, "state", None), self._state[name]
        if state is None or not wanted:
            return state is not None and value is state
        held = state.get(wanted, _Injected) if isinstance(state, dict) else getattr(state, wanted, _Injected)
        return value is held

    def _renamed(self, arguments: dict[str, Any], by_field: bool) -> dict[str, Any]:
        """The arguments under the schema's names, where they came under those of the fields."""
        if self.model is None:
            names: Mapping[str, str] = {_TEXT_TOO: _TEXT} if self._first == _TEXT else {}
        else:
            names = self.model.names if by_field or self.model.takes_field_names else {}
        if not names:
            return arguments
        return {
            names[name] if name in names and names[name] not in arguments else name: value
            for name, value in arguments.items()
        }


class CallArguments:
    """The arguments of one call, on their way from JSON to what the tool takes.

    Attributes:
        injected: what code gives and the tool takes.
        tool_call_id: the id of the model's call.
    """

    def __init__(
        self, arguments: ToolArguments, injected: dict[str, Any], tool_call_id: str | None, given: object
    ) -> None:
        self.injected = injected
        self.tool_call_id = tool_call_id
        self._of = arguments
        self._given = given.keys() if isinstance(given, dict) else frozenset[str]()
        self._parsed: tuple[bytes, Any] | None = None

    def complete(self, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()) -> dict[str, Any] | None:
        """The effective arguments, as JSON that parses back to itself; None where the checked ones are that already."""
        tool, model = self._of.tool.name, self._of.model
        if model is None:
            # What the schema calls a default, upstream never fills in.
            completed = {**self._of.filled.values, **arguments}
            return None if len(completed) == len(arguments) else completed
        if not self.injected.keys() >= self._of.ids:
            reason = "it needs the id of a model's tool call, so the application invokes it with the whole call"
            raise InvalidPayload(tool, reason)
        if not self.injected.keys() >= model.needs:
            raise InvalidPayload(tool, "an argument that only the application can give is missing")
        if model.is_ambiguous(arguments):
            # Open arguments are laid over the fields, so that another value would run than the one that was judged.
            raise InvalidPayload(tool, "an argument is given under two names")
        found = model.complete(arguments, self.injected, opaque)
        self._parsed = None if found.parsed is None else (orjson.dumps(found.effective), found.parsed)
        return found.effective if found.is_changed else None

    def for_tool(self, effective: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the tool's `_run` takes, as the tool's own parser makes it."""
        model = self._of.model
        # Where the policy binds some, what was judged is what runs.
        injected = {name: effective.get(name, value) for name, value in self.injected.items()}
        if model is None or not self._of.parses_as_upstream:
            own = self._left_out(effective)
            args, kwargs = compat.to_args_and_kwargs(self._of.tool, {**own, **injected}, self.tool_call_id)
        else:
            if self._parsed is not None and orjson.dumps(effective) == self._parsed[0]:
                parsed = self._parsed[1]
            else:  # nothing is parsed yet, or what runs was completed by an earlier try
                parsed = model.parse({**effective, **injected})
            args, kwargs = (), model.keywords(parsed) | injected
        return args, {name: value for name, value in kwargs.items() if name not in self._of.taken}

    def _left_out(self, effective: dict[str, Any]) -> dict[str, Any]:
        """The arguments without those of which the tool's code fills in a value that JSON cannot carry."""
        filled = self._of.filled
        own = {name for name in filled.implicit - self._given if effective.get(name) == filled.values[name]}
        return {name: value for name, value in effective.items() if name not in own} if own else effective


def _model(tool: BaseTool, hidden: frozenset[str]) -> ArgumentModel | None:
    return model_of(tool.args_schema, tool.name, hidden) if isinstance(tool.args_schema, type) else None


def _by_name(tool: BaseTool) -> frozenset[str]:
    """The argument that ToolNode fills because of its name alone.

    A pydantic model that wants JSON there refuses what ToolNode gives, so that it is the model's; where nothing checks
    it, InvalidTool is raised.
    """
    name = graph_compat.BY_NAME
    kinds = [kind for declared, kind in compat.declared(tool) if declared == name]
    if not kinds or name in compat.injected_arguments(tool):
        return frozenset()
    by_name, shown = all(kind in (Any, object) for kind in kinds), _shown(tool)
    if isinstance(tool.args_schema, dict) and name in (shown.get("required", ()) if by_name else shown["properties"]):
        raise InvalidTool(
            f"tool {tool.name!r}: LangGraph puts its own value into an argument named {name!r}; rename it, or "
            "declare it as ToolRuntime"
        )
    return frozenset({name}) if by_name else frozenset()


def _taken(tool: BaseTool) -> frozenset[str]:
    """The arguments that never reach the tool's code. Raises InvalidTool where it cannot do without one."""
    names = taken(tool) - compat.injected_arguments(tool)
    found = frozenset(names & _shown(tool).get("properties", {}).keys())
    for name in sorted(found):
        if name in _shown(tool).get("required", ()) or is_needed(tool, name):
            raise InvalidTool(
                f"tool {tool.name!r}: LangChain puts its own value into an argument named {name!r}; rename it"
            )
        warnings.warn(
            f"tool {tool.name!r}: LangChain never hands over an argument named {name!r}, so a model is not shown it",
            stacklevel=2,
        )
    return found


def _shown(tool: BaseTool) -> dict[str, Any]:
    """The schema that the tool declares, with all that code gives."""
    if isinstance(tool.args_schema, dict):
        return {"properties": {}, **tool.args_schema}
    if isinstance(tool.args_schema, type):
        fields: Mapping[str, Any] = compat.fields(tool.args_schema)
        return {"properties": fields, "required": [name for name, needed in fields.items() if needed]}
    return {}


def _free_name(properties: Mapping[str, Any]) -> str:
    name = _RUNTIME
    while name in properties:
        name += "_"
    return name


def _schema(tool: BaseTool, hidden: frozenset[str], model: ArgumentModel | None) -> dict[str, Any]:
    if model is not None:
        return model.schema
    if isinstance(tool.args_schema, dict):
        schema = {"type": "object", **tool.args_schema}
        properties = schema.get("properties")
        if isinstance(properties, dict):
            schema["properties"] = {name: sub for name, sub in properties.items() if name not in hidden}
        return schema
    if isinstance(tool, Tool):
        return _TEXT_SCHEMA
    kinds = {parameter.kind for parameter in inspect.signature(tool._run).parameters.values()}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise InvalidTool(f"tool {tool.name!r}: *args and **kwargs cannot be checked; give the tool an args_schema")
    inferred: Any = tool.get_input_schema()
    return model_of(inferred, tool.name, hidden).schema


def _positional(tool: BaseTool) -> list[str]:
    if isinstance(tool, Tool) and tool.args_schema is None:
        return [_TEXT]
    try:
        parameters = inspect.signature(compat.functions(tool)[0]).parameters.values()
    except ValueError:
        raise InvalidTool(
            f"tool {tool.name!r}: its function has no signature; put a function of your own around it"
        ) from None
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def is_json(value: object) -> bool:
    """Whether a model could have sent this value; in doubt, yes."""
    waiting, looked_at = [value], 0
    while waiting and looked_at < _MAX_LOOKED_AT:
        node = waiting.pop()
        looked_at += 1
        if type(node) is dict:
            if not all(type(key) is str for key in node):
                return False
            waiting.extend(node.values())
        elif type(node) is list:
            waiting.extend(node)
        elif type(node) not in _SCALARS:
            return False
    return True

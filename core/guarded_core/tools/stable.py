"""Which pydantic models are stable: what they make of JSON, written as JSON again, is parsed to the same.

Of such a model one parse says all that two would. The list of what is known to be so is closed: any node, setting or
attribute that is not on it, now or in a later pydantic, means that the arguments are parsed and compared once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import SchemaValidator

from guarded_core.ground.payload import is_json
from guarded_core.tools.parsing import same

Node = Mapping[str, Any]

# What each kind of node may say. Bounds are said of the parsed value, which the second parse gets.
_BOUNDS = frozenset({"gt", "ge", "lt", "le", "multiple_of"})
_LENGTHS = frozenset({"min_length", "max_length"})
_SAYS: Mapping[str, frozenset[str]] = {
    "any": frozenset(),
    "none": frozenset(),
    "bool": frozenset(),
    "int": _BOUNDS,
    "float": _BOUNDS,
    "str": _LENGTHS | {"pattern"},
    "literal": frozenset({"expected"}),
    "list": _LENGTHS | {"items_schema"},
    "dict": _LENGTHS | {"keys_schema", "values_schema"},
    "nullable": frozenset({"schema"}),
    "default": frozenset({"schema", "default", "default_factory", "default_factory_takes_data", "validate_default"}),
    "model": frozenset({"cls", "schema", "config", "custom_init", "root_model"}),
    "model-fields": frozenset({"fields", "model_name", "computed_fields"}),
    "model-field": frozenset({"schema", "validation_alias", "serialization_alias"}),
    "definition-ref": frozenset({"schema_ref"}),
}
_BESIDE = frozenset({"type", "ref", "metadata"})
_CONFIG = frozenset({"title", "extra_fields_behavior", "validate_default"})
_EXTRA = (None, "ignore", "forbid")
# Of a class's settings, those without a say in how it parses or dumps, beside the ones above.
_SETTINGS = frozenset(
    {
        *("title", "extra", "validate_default", "protected_namespaces", "json_schema_extra"),
        *("use_attribute_docstrings", "arbitrary_types_allowed"),
    }
)
_EMPTY = (list, dict)
# What pydantic itself puts into a model class, and what says nothing of how it parses or dumps.
_OF_A_CLASS = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__annotations__", "__annotate__", "__annotate_func__"),
        *("__annotations_cache__", "__weakref__", "__firstlineno__", "__static_attributes__", "__signature__"),
        *("__abstractmethods__", "_abc_impl", "model_config", "__private_attributes__", "__class_vars__"),
        *("__repr__", "__str__"),  # of no part in either
    }
)


@lru_cache(maxsize=4096)
def is_stable(model: type[BaseModel]) -> bool:
    """Whether the model is known to make the same of its own dump as of the JSON before; in doubt it is not."""
    try:
        schema = model.__pydantic_core_schema__
        definitions = schema["definitions"] if schema["type"] == "definitions" else []
        return _Walk(definitions).all_stable(schema["schema"] if schema["type"] == "definitions" else schema)
    except Exception:
        return False  # a schema of another kind than those known here


class _Walk:
    def __init__(self, definitions: list[Any]) -> None:
        self._definitions = {node["ref"]: node for node in definitions}

    def all_stable(self, root: Node) -> bool:
        pending, seen = [root], set()
        for node in pending:
            if not self._is_known(node):
                return False
            if node["type"] == "definition-ref":
                if node["schema_ref"] in seen:
                    continue
                seen.add(node["schema_ref"])
            pending += self._below(node)
        return True

    def _is_known(self, node: Node) -> bool:
        says = _SAYS.get(node["type"])
        if says is None or not node.keys() <= says | _BESIDE:
            return False
        more = _MORE.get(node["type"])
        return more is None or more(self, node)

    def _below(self, node: Node) -> Iterator[Node]:
        if node["type"] == "definition-ref":
            yield self._definitions[node["schema_ref"]]
        elif node["type"] == "model-fields":
            yield from node["fields"].values()
        else:
            yield from (node[name] for name in ("schema", "items_schema", "values_schema") if name in node)

    def literal(self, node: Node) -> bool:
        """Texts: any other is told from its likes (1, 1.0, true) in ways of its own."""
        return all(type(value) is str for value in node["expected"])

    def keys(self, node: Node) -> bool:
        """Names stay as they are."""
        names = node.get("keys_schema", {"type": "str"})
        return bool(names["type"] == "str" and names.keys() <= _BESIDE)

    def default(self, node: Node) -> bool:
        """A default that the type takes, and leaves as it is."""
        if "default_factory" in node:
            if node["default_factory"] not in _EMPTY or node.get("default_factory_takes_data"):
                return False
            value = node["default_factory"]()
        else:
            value = node["default"]
        parsed = self._validator(node["schema"]).validate_python(value)
        return is_json(value) and same(parsed, value)

    def _validator(self, node: Node) -> SchemaValidator:
        whole: Any = {"type": "definitions", "schema": node, "definitions": list(self._definitions.values())}
        return SchemaValidator(whole if self._definitions else node)

    def model(self, node: Node) -> bool:
        """A class without code of its own that parsing or dumping would run."""
        config = node.get("config", {})
        return (
            config.keys() <= _CONFIG
            and config.get("extra_fields_behavior") in _EXTRA
            and not (node.get("custom_init") or node.get("root_model"))
            and node["schema"]["type"] == "model-fields"
            and _is_plain_class(node["cls"])
        )

    def fields(self, node: Node) -> bool:
        """Each by one name, which no other has."""
        names = [field.get("validation_alias", name) for name, field in node["fields"].items()]
        written = [field.get("serialization_alias", name) for name, field in node["fields"].items()]
        return not node.get("computed_fields") and names == written and len(set(names)) == len(names)

    def field(self, node: Node) -> bool:
        """A name that is one text, not a way down or a choice."""
        return type(node.get("validation_alias", "")) is str


_MORE: Mapping[str, Callable[[_Walk, Node], bool]] = {
    "literal": _Walk.literal,
    "dict": _Walk.keys,
    "default": _Walk.default,
    "model": _Walk.model,
    "model-fields": _Walk.fields,
    "model-field": _Walk.field,
}


def _is_plain_class(cls: type) -> bool:
    if type(cls) is not type(BaseModel) or not issubclass(cls, BaseModel):
        return False
    own = [base for base in cls.__mro__ if base not in BaseModel.__mro__]
    return cls.model_config.keys() <= _SETTINGS and all(
        _is_of_a_class(name, base) for base in own for name in vars(base)
    )


def _is_of_a_class(name: str, base: type) -> bool:
    # A name that BaseModel has too is one that pydantic may look up while it parses or dumps.
    return name in _OF_A_CLASS or name.startswith("__pydantic_") or not hasattr(BaseModel, name)

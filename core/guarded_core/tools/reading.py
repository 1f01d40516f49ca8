"""What a tool makes of a value that stands at one place of its arguments; rules compare by it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from guarded_core.ground.pointer import Param
from guarded_core.tools.schema.document import target


class Place:
    """One parameter of one tool.

    Args:
        is_decimal: strings there can be numbers.
        is_instant: strings there are points in time, of which each has many spellings.
    """

    def __init__(self, *, is_decimal: bool = False, is_instant: bool = False) -> None:
        self.is_decimal = is_decimal
        self.is_instant = is_instant

    def number(self, value: Any) -> Decimal | None:
        """The number that a value is, to the last digit as it is written; None for what is not one.

        JSON numbers are, and the strings of a parameter that takes decimals; true, false, "NaN" and any other string
        are not.
        """
        if isinstance(value, bool):
            return None
        if isinstance(value, int):
            return Decimal(value)
        if isinstance(value, float) or (self.is_decimal and isinstance(value, str)):
            try:
                number = Decimal(repr(value) if isinstance(value, float) else value)  # 0.1 is a tenth
            except InvalidOperation:
                return None
            return number if number.is_finite() else None
        return None

    def key(self, value: Any) -> Hashable:
        """A key that two values share when they are the same here. Raises TypeError for what is not JSON."""
        same = self.number(value) if self.is_decimal else _instant(value) if self.is_instant else None
        return exact(value) if same is None else same

    def keys(self, values: Iterable[Any]) -> set[Hashable]:
        """The keys of values that somebody wrote down: as they are written, and as the tool would read them."""
        found: set[Hashable] = set()
        for value in values:
            found |= {self.key(value), self.key(self.read(value))}
        return found

    def read(self, value: Any) -> Any:
        """What the tool would make of `value` here, as JSON; itself where that is not known."""
        return value


AS_WRITTEN = Place()


class Reading:
    """What one tool makes of its arguments, by parameter.

    Args:
        schema: JSON Schema of the arguments.
    """

    def __init__(self, schema: Mapping[str, Any] | None = None) -> None:
        self._schema = None if schema is None else dict(schema)
        self._places: dict[tuple[str | None, ...], Place] = {}
        self._as_written: dict[tuple[str, ...], Reading] = {}

    def declares(self, name: str) -> bool:
        """Whether the schema has an argument of that name; where there is none, any name counts as declared."""
        return self._schema is None or name in self._schema.get("properties", {})

    def at(self, param: Param) -> Place:
        """The place that `param` points to."""
        if self._schema is None:
            return AS_WRITTEN
        place = self._places.get(param.tokens)
        if place is None:
            place = self._places[param.tokens] = self._place(param.tokens)
        return place

    def as_written(self, names: tuple[str, ...]) -> Reading:
        """The same, but for these arguments, which count as they are written."""
        if not names:
            return self
        found = self._as_written.get(names)
        if found is None:
            found = self._as_written[names] = _AsWritten(self, frozenset(names))
        return found

    def _place(self, tokens: tuple[str | None, ...]) -> Place:
        formats = self._formats(tokens)
        return Place(is_decimal="decimal" in formats, is_instant="date-time" in formats)

    def _formats(self, tokens: tuple[str | None, ...]) -> set[str]:
        """What the schema says of strings there."""
        root = self._schema or {}
        nodes = list(alternatives(root, [root]))
        for token in tokens:
            nodes = list(alternatives(root, [child for node in nodes for child in children(node, token)]))
        return {str(node["format"]) for node in nodes if isinstance(node, dict) and "format" in node}


class _AsWritten(Reading):
    """Arguments of which a rule is to see nothing but what was written."""

    def __init__(self, reading: Reading, names: frozenset[str]) -> None:
        super().__init__(reading._schema)
        self._reading = reading
        self._names = names

    def _place(self, tokens: tuple[str | None, ...]) -> Place:
        if tokens[0] is None or tokens[0] in self._names:
            return super()._place(tokens)
        return self._reading._place(tokens)


UNKNOWN_TOOL = Reading()


def _instant(value: Any) -> datetime | None:
    """The point in time that a text names; None where it is not text, or leaves open which one it is."""
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
        return instant.astimezone(UTC) if instant is not None and instant.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def exact(value: Any) -> Hashable:
    """A key that two values share when they are the same JSON value.

    10 and 10.0 are one number; 1 and true, "10" and 10 are different. Strings are compared code point by code point.
    Raises TypeError for what is not JSON.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return (bool, value)  # for Python, True is 1
    if isinstance(value, int | float) and value == value:
        return value
    if isinstance(value, list):
        return (list, tuple(exact(member) for member in value))
    if isinstance(value, dict):
        return (dict, frozenset((key, exact(member)) for key, member in value.items()))
    raise TypeError("not JSON")


def alternatives(root: dict[str, Any], nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes, and all that ``$ref`` and the combining keywords put in their place; ``false`` is nothing."""
    pending, seen = list(nodes), set()
    for node in pending:
        if not isinstance(node, dict):
            if node is True:
                yield node
        elif id(node) not in seen:
            seen.add(id(node))
            yield node
            pending += [target(root, node)] if "$ref" in node else []
            pending += [branch for keyword in ("allOf", "anyOf", "oneOf") for branch in node.get(keyword, ())]


def children(node: Any, token: str | None) -> Iterator[Any]:
    """What stands below a node under a name, at an index, or (None) anywhere."""
    if not isinstance(node, dict):
        return
    properties = node.get("properties", {})
    if token is None:
        yield from properties.values()
    elif token in properties:
        yield properties[token]
    yield from node.get("patternProperties", {}).values()
    if node.get("additionalProperties", False) is not False:
        yield node["additionalProperties"]
    if token is None or (token.isascii() and token.isdigit()):
        yield from node.get("prefixItems", ())
        if "items" in node:
            yield node["items"]

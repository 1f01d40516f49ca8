"""What the policy says of the parts of a tool's output, and the output taken apart accordingly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.pointer import Param, Path
from guarded_core.provenance.values import plain

Pattern = tuple[str | None, ...]
"""A JSON Pointer's tokens, None for ``*``."""

MAX_NODES, MAX_LEVELS = 100_000, 64
_ITEM = "*"
_MAX_KNOWN_PATHS = 4096


class Leaf(NamedTuple):
    """A scalar of an output, or a key of one of its objects, which may be data as well.

    Attributes:
        path: the way to it; items of arrays are ``*``.
        place: the same way with the items' indices, which tell records apart.
        text: it, as text.
        is_key: whether it is a key.
    """

    path: Path
    place: Path
    text: str
    is_key: bool = False


def leaves(output: Any) -> tuple[list[Leaf], bool]:
    """Every leaf of JSON-like output: models, dataclasses, mappings, sequences; anything else has none.

    The second value tells whether that is all of them: not so beyond 100,000 nodes, or 64 levels.
    """
    pending: list[tuple[Any, Path, Path]] = [(output, (), ())]
    found: list[Leaf] = []
    is_whole = True
    nodes = 0
    while pending:
        value, path, place = pending.pop()
        nodes += 1
        if nodes > MAX_NODES:
            return found, False
        if type(value) is str:
            found.append(Leaf(path, place, value))
        elif (text := _scalar(value)) is not None:
            found.append(Leaf(path, place, text))
        elif len(path) >= MAX_LEVELS:
            is_whole = False
        elif isinstance(value, list | tuple | set | frozenset):
            pending += [(item, (*path, _ITEM), (*place, str(index))) for index, item in enumerate(value)]
        else:
            members = _members(value)
            if isinstance(value, Mapping):
                found += [Leaf(path, place, key, is_key=True) for key in members]
            pending += [(member, (*path, key), (*place, key)) for key, member in members.items()]
    return found, is_whole


def _scalar(value: Any) -> str | None:
    if type(value) in (dict, list):
        return None
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return plain(value)
    return value.isoformat() if isinstance(value, date) else None


def _members(value: Any) -> dict[str, Any]:
    if type(value) is dict and all(type(key) is str for key in value):
        return value
    if isinstance(value, Mapping):
        return {str(key): member for key, member in value.items()}
    if hasattr(type(value), "__pydantic_fields__"):  # a pydantic model, told without loading pydantic
        return {name: getattr(value, name) for name in type(value).__pydantic_fields__} | (value.model_extra or {})
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in fields(value)}
    return {}


@dataclass(frozen=True, slots=True)
class Marks:
    """What the policy says of the leaves at one path."""

    trusted: bool = False
    secret: bool = False
    people: bool = False
    author: bool = False
    id: bool = False
    key: bool = False


class Labels:
    """The pointers of one tool's settings, ready to be asked about paths.

    Args: as in `ToolSettings`. A pointer covers everything below it; ``""`` is the whole output; items of arrays are
        written ``*``.

    Raises:
        InvalidPolicy: a pointer is none.
    """

    def __init__(
        self,
        *,
        untrusted_output: bool = True,
        trusted: tuple[str, ...] = (),
        secret: tuple[str, ...] = (),
        people: tuple[str, ...] = (),
        author: str | None = None,
        record_id: str | None = None,
        named_by: tuple[str, ...] = (),
        makes: bool = False,
        members: bool = False,
    ) -> None:
        self.untrusted_output, self.makes, self.members = untrusted_output, makes, members
        self.has_author = author is not None
        # A name without a slash is an argument of the call: the file that is read, the page that is fetched.
        self.key_arguments = tuple(name for name in named_by if not name.startswith("/"))
        self._trusted = pointers(trusted, "trusted")
        self._secret = pointers(secret, "secret")
        self._people = pointers(people, "people")
        self._author = pointers((author,) if author is not None else (), "author")
        self._id = pointers((record_id,) if record_id is not None else (), "record_id")
        self._key = pointers(tuple(name for name in named_by if name.startswith("/")), "named_by")
        # A record is the innermost item that the fields which speak of it are in.
        self._depth = max((_depth(pattern) for pattern in (*self._key, *self._author, *self._id)), default=0)
        self._known: dict[Path, Marks] = {}
        said = {"trusted": trusted, "secret": secret, "people": people, "author": (author,), "record_id": (record_id,)}
        said["named_by"] = tuple(name for name in named_by if name.startswith("/"))
        self._pointers = tuple((name, text) for name, texts in said.items() for text in texts if text)
        self._unmet: dict[tuple[str, str], Pattern] = {
            pointer: pointers((pointer[1],), pointer[0])[0] for pointer in self._pointers
        }

    @classmethod
    def none(cls, tool: str) -> Labels:
        """What is said of any tool's output where there is no policy: nothing good."""
        return cls()

    @property
    def reads_structure(self) -> bool:
        """Whether it says anything of parts, so that text is worth taking apart."""
        return bool(self._pointers) or not self.untrusted_output

    def unmet(self, output: Any, found: Iterable[Leaf]) -> list[tuple[str, str]]:
        """Which labels no output of this tool had a part for so far, each told once: setting and pointer.

        An empty array has room for any item.
        """
        paths = {leaf.path for leaf in found if leaf.text} if self._unmet else set()
        if not paths:
            return []
        unmet = [key for key, pattern in self._unmet.items() if not _meets(output, pattern, paths)]
        self._unmet = {}  # what is met once is right, and what is not is told now
        return unmet

    @property
    def names_fields(self) -> bool:
        """Whether a field of a record names it."""
        return bool(self._key)

    @property
    def has_records(self) -> bool:
        """Whether an output is more than one record."""
        return self._depth > 0

    def record(self, leaf: Leaf) -> Path:
        """Which record of its output a leaf belongs to."""
        return leaf.place[: self._depth]

    def marks(self, path: Path) -> Marks:
        """What is said of the leaves at `path`."""
        found = self._known.get(path)
        if found is None:
            if len(self._known) >= _MAX_KNOWN_PATHS:  # the keys of an output are not a bounded set
                self._known.clear()
            found = self._known[path] = Marks(
                trusted=not self.untrusted_output or _covers(self._trusted, path),
                secret=_covers(self._secret, path),
                people=_covers(self._people, path),
                author=_covers(self._author, path),
                id=_covers(self._id, path),
                key=_covers(self._key, path),
            )
        return found


def pointers(texts: tuple[str, ...], where: str) -> tuple[Pattern, ...]:
    """JSON Pointers as tokens, None for ``*``. Raises InvalidPolicy."""
    found = []
    for text in texts:
        if not isinstance(text, str) or (text and not text.startswith("/")):
            raise InvalidPolicy("must be JSON Pointers into the output, such as '/items/*/id', or ''", where=where)
        found.append(Param.parse(text).tokens if text else ())
    return tuple(found)


def _meets(output: Any, pattern: Pattern, paths: Set[Path]) -> bool:
    if any(_covers((pattern,), path) for path in paths):
        return True
    values = [output]
    for token in pattern:
        if not all(isinstance(value, dict | list) for value in values):
            return False
        values = [member for value in values for member in _at(value, token)]
        if not values:
            return token is None
    return True


def _at(value: Any, token: str | None) -> Iterable[Any]:
    if token is None:
        return value.values() if isinstance(value, dict) else value
    return [value[token]] if isinstance(value, dict) and token in value else []


def _depth(pattern: Pattern) -> int:
    return max((index + 1 for index, token in enumerate(pattern) if token is None), default=0)


def _covers(patterns: tuple[Pattern, ...], path: Path) -> bool:
    return any(
        len(pattern) <= len(path)
        and all(token is None or token == step for token, step in zip(pattern, path, strict=False))
        for pattern in patterns
    )

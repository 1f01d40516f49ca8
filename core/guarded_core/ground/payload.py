"""Untrusted JSON in: bounded, copied exactly, and written as the canonical bytes that approvals and records bind to.

Canonical bytes are RFC 8785 (JCS): keys sorted by their UTF-16 code units, the shortest text of every number, no
spaces. So 10 and 10.0 are one number with one digest, and -0.0 is 0; the copy keeps the types that came.

One extension: integers from -2^63 to 2^64-1 are written as exact decimals, where the RFC would round them to a double.
What cannot be written without loss is refused, never rounded: larger integers, integral floats of 2^53 or more, NaN,
infinities, lone surrogates, keys that are not strings and, in JSON text, the same key twice.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from itertools import chain
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import orjson
import rfc8785

from guarded_core.ground.errors import InvalidPolicy

MAX_DEPTH = 128  # orjson itself writes at most 254 levels
MIN_DIGEST_KEY = 16

_MIN_INTEGER = -(2**63)
_MAX_INTEGER = 2**64 - 1
_EXACT_FLOAT = 2.0**53  # from here on, neighbouring integers share one double
_SMALL_FLOAT = 1e-4  # from here on, every writer of shortest decimals agrees with ECMAScript on non-integral doubles
_DOMAIN = b"guarded-tools/payload/v1\x00"


class PayloadRefused(ValueError):
    """The value cannot be taken as JSON.

    An internal signal; the flow raises what the caller sees, with the tool's name.

    Attributes:
        reason: what is wrong, by kind; never a value or a key.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PayloadTooLarge(ValueError):
    """The value exceeds a limit; an internal signal like PayloadRefused.

    Attributes:
        actual: what was found before looking stopped, at least.
        limit: what is allowed, in the same unit.
        what: the unit: "bytes", "levels", "nodes" or "characters".
    """

    def __init__(self, actual: int, limit: int, what: str) -> None:
        super().__init__(actual, limit, what)
        self.actual = actual
        self.limit = limit
        self.what = what

    def __str__(self) -> str:
        return f"at least {self.actual} {self.what}, and {self.limit} are allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadLimits:
    """How large a payload may be. Raises InvalidPolicy for a limit that is not a positive integer.

    Attributes:
        bytes: of its canonical form, and of JSON text before it is parsed.
        depth: containers inside each other; a scalar has none, ``{}`` one; at most MAX_DEPTH.
        nodes: values in all, each object and array included.
        characters: of the longest string or key; None for no other bound than `bytes`.
    """

    bytes: int = 65_536
    depth: int = 32
    nodes: int = 16_384
    characters: int | None = None

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is None and limit.name == "characters":
                continue
            if type(value) is not int or value < 1:
                raise InvalidPolicy("a limit is a positive integer", where=f"limits.{limit.name}")
        if self.depth > MAX_DEPTH:
            raise InvalidPolicy(f"at most {MAX_DEPTH} levels are supported", where="limits.depth")


_DEFAULT_LIMITS = PayloadLimits()


@dataclass(frozen=True, slots=True, repr=False)
class Payload:
    """A JSON value that nobody else holds, and its canonical bytes. Two are equal when their canonical bytes are.

    Attributes:
        value: the private copy. Whoever might change it, a tool above all, gets a `copy()`.
        canonical: RFC 8785 bytes, with the module's extension.
        digest: SHA-256 of `canonical`, in hex. A short payload can be guessed from it: records take `keyed_digest`.
    """

    value: Any = field(compare=False)
    canonical: bytes
    digest: str

    def copy(self) -> Any:
        """A fresh deep copy of `value`."""
        return orjson.loads(orjson.dumps(self.value))  # exact, for a value that `freeze` let through

    def as_canonical(self) -> Payload:
        """The same payload with each number of the type that its canonical form has: 10 for 10.0, 0 for -0.0.

        Itself where that is so already.
        """
        written_longer: list[float] = []

        def shortest(number: float) -> float:
            if not number.is_integer():
                return number
            written_longer.append(number)
            return int(number)

        value = _rebuild(self.value, {dict: dict.copy, list: list.copy, float: shortest})
        return Payload(value, self.canonical, self.digest) if written_longer else self

    def __repr__(self) -> str:
        return f"Payload(<{len(self.canonical)} bytes>)"


def freeze(value: object, limits: PayloadLimits = _DEFAULT_LIMITS) -> Payload:
    """Check, copy and canonicalise an untrusted value; afterwards no change to it has any effect.

    Takes exactly dict, list, str, int, float, bool and None: a subclass could show the judge another value than the
    tool. Raises PayloadRefused and PayloadTooLarge.
    """
    copy, ascii_keys, plain_floats = _bounded_copy(value, limits)
    canonical = _serialise(copy, ascii_keys, plain_floats)
    if canonical is None:
        raise PayloadRefused("a string holds a lone surrogate")
    if len(canonical) > limits.bytes:
        raise PayloadTooLarge(len(canonical), limits.bytes, "bytes")
    return Payload(copy, canonical, hashlib.sha256(canonical).hexdigest())


def _bounded_copy(value: object, limits: PayloadLimits) -> tuple[Any, bool, bool]:
    """An exact deep copy, whether all keys are ASCII, and whether orjson writes each float as RFC 8785 does.

    One pass, level by level instead of recursively, so that no input can exhaust a stack. The bounds hold before
    anything is written: lists that share one another can stand for gigabytes. It is the hot path, hence one function.
    """
    longest = limits.characters or sys.maxsize
    ascii_keys = plain_floats = True
    nodes, characters, depth = 1, 0, 0
    root: list[Any] = [value]
    level: list[Any] = [root]
    while level:
        if depth > limits.depth:
            raise PayloadTooLarge(depth, limits.depth, "levels")
        below: list[Any] = []
        for container in level:
            members: Iterable[tuple[Any, Any]]
            if type(container) is dict:
                for key in container:
                    if type(key) is not str:
                        raise PayloadRefused("an object's key is not a string")
                    if len(key) > longest:
                        raise PayloadTooLarge(len(key), longest, "characters")
                    characters += len(key)
                    if not key.isascii():
                        ascii_keys = False
                members = container.items()
            else:
                members = enumerate(container)
            for place, member in members:
                kind = type(member)
                if kind is str:
                    if len(member) > longest:
                        raise PayloadTooLarge(len(member), longest, "characters")
                    characters += len(member)
                elif kind is int:
                    if not _MIN_INTEGER <= member <= _MAX_INTEGER:
                        raise PayloadRefused("an integer has more than 64 bits")
                elif kind is dict or kind is list:
                    size = len(member)
                    nodes += size
                    if nodes > limits.nodes:
                        raise PayloadTooLarge(nodes, limits.nodes, "nodes")
                    container[place] = copy = _snapshot(member, size)
                    below.append(copy)
                elif kind is float:
                    if not -_EXACT_FLOAT < member < _EXACT_FLOAT:  # NaN too: it compares false
                        raise PayloadRefused("a number is not finite, or too large to be exact")
                    if member.is_integer() or -_SMALL_FLOAT < member < _SMALL_FLOAT:
                        plain_floats = False
                elif member is not None and kind is not bool:
                    raise PayloadRefused("a value is not an object, array, string, number, boolean or null")
        smallest = characters + 2 * nodes - 1  # each node has a byte of its own and, but for the root, a separator
        if smallest > limits.bytes:
            raise PayloadTooLarge(smallest, limits.bytes, "bytes")
        level = below
        depth += 1
    return root[0], ascii_keys, plain_floats


def _snapshot(container: Any, size: int) -> Any:
    try:
        copy = container.copy()
    except Exception:  # another thread changed it, or the __eq__ of a key that is not a str raised
        copy = None
    # Raised out here: what a key's __eq__ raised could carry a value along as the context.
    if copy is None or len(copy) != size:
        raise PayloadRefused("it changed while it was read")
    return copy


def _serialise(copy: Any, ascii_keys: bool, plain_floats: bool) -> bytes | None:
    """Canonical bytes of a bounded copy; None where a string is not Unicode (the errors would carry it along)."""
    try:
        if not ascii_keys:
            return orjson.dumps(_rebuild(copy, _SORTED))
        if not plain_floats:
            copy = _rebuild(copy, _UNSORTED)
        return orjson.dumps(copy, option=orjson.OPT_SORT_KEYS)  # by code point, which is by UTF-16 where all is ASCII
    except (TypeError, UnicodeEncodeError):
        return None


def _sorted_by_utf16(value: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(value.items(), key=lambda item: item[0].encode("utf-16-be")))  # RFC 8785, 3.2.3


def _canonical_number(value: float) -> Any:
    if value.is_integer():
        return int(value)
    if -_SMALL_FLOAT < value < _SMALL_FLOAT:
        return orjson.Fragment(rfc8785.dumps(value))  # RFC 8785, 3.2.2.3
    return value


_Makers = Mapping[type, Callable[[Any], Any]]
_UNSORTED: _Makers = {dict: dict.copy, list: list.copy, float: _canonical_number}
_SORTED: _Makers = {**_UNSORTED, dict: _sorted_by_utf16}


def _rebuild(value: Any, makers: _Makers) -> Any:
    """A deep copy in which what `makers` names by type is what the maker returned; `value` stays as it is."""
    root = [value]
    pending: list[Any] = [root]
    for container in pending:
        for place, member in container.items() if type(container) is dict else enumerate(container):
            make = makers.get(type(member))
            if make is not None:
                container[place] = made = make(member)
                if type(made) is dict or type(made) is list:
                    pending.append(made)
    return root[0]


def parse(text: str | bytes, limits: PayloadLimits = _DEFAULT_LIMITS) -> Any:
    """The value of a JSON text (RFC 8259, UTF-8), for `freeze`.

    Integers stay exact. Raises PayloadTooLarge for too many bytes, before anything is parsed, and PayloadRefused for
    anything that is not JSON: the same key twice, NaN, infinities, lone surrogates, nesting beyond what can be parsed.
    """
    if type(text) is str:
        if len(text) > limits.bytes:
            raise PayloadTooLarge(len(text), limits.bytes, "bytes")
        raw = text.encode("utf-8", "surrogatepass")  # orjson takes no surrogates
    elif type(text) is bytes:
        raw = text
    else:
        raise PayloadRefused("it is not text")
    if len(raw) > limits.bytes:
        raise PayloadTooLarge(len(raw), limits.bytes, "bytes")
    try:
        orjson.loads(raw)  # strict, and bounds the nesting in C; but it rounds integers and takes a key twice
        return json.loads(raw.decode(), object_pairs_hook=_unique)
    except PayloadRefused:
        raise
    except (ValueError, RecursionError):
        pass
    # Raised out here: a JSONDecodeError carries the whole document along.
    raise PayloadRefused("it is not valid JSON text")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise PayloadRefused("an object has the same key twice")
    return members


def is_json(value: object) -> bool:
    """Whether a value is JSON that `freeze` takes, within the default limits."""
    try:
        freeze(value)
    except ValueError:
        return False
    return True


def is_json_text(text: str) -> bool:
    """Whether a text is a JSON object or array, which somebody may parse."""
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def measure(value: object, limit: int) -> int:
    """The size in bytes of what a tool returned, any Python object: that of its compact JSON, without escapes.

    Text and bytes count as they are, objects by what they hold: dataclasses and pydantic models by their attributes,
    private ones too; any other by its attributes or by its str(), whichever a reader gets more of. A shared container
    counts each time, so a cycle ends at the limit. Raises PayloadTooLarge, with `actual` where counting stopped, and
    PayloadRefused where reading the value fails, or code in it is still to run: a generator, a coroutine.
    """
    try:
        size = _size(value, limit)
    except Exception:  # whatever a tool's object raises: what cannot be measured does not pass
        size = None
    # Raised out here: the object's own error could carry its content along.
    if size is None:
        raise PayloadRefused("the result cannot be read")
    if size > limit:
        raise PayloadTooLarge(size, limit, "bytes")
    return size


def _size(value: object, limit: int, around: tuple[object, ...] = ()) -> int:
    size, inside = _weigh(value, limit, around)
    if isinstance(value, (str, *_BYTES)):
        size -= 2  # no quotes around a bare text
    pending = [inside]
    while pending:
        for member in pending.pop():
            if type(member) is str and member.isascii():  # as _weigh does; most members are
                size += len(member) + 3
            else:
                own, inside = _weigh(member, limit, around)
                size += own + 1  # and its separator
                if inside is not _NOTHING:
                    pending.append(inside)
            if size > limit:
                return size
    return size


_NOTHING: tuple[object, ...] = ()
_BYTES = (bytes, bytearray, memoryview)
_MAPPINGS = (dict, Mapping)  # the exact types first: an abstract class takes long to say yes
_COLLECTIONS = (list, tuple, Sequence, Set)
_TO_COME = (GeneratorType, AsyncGeneratorType, CoroutineType, map, filter)


def _weigh(value: object, limit: int, around: tuple[object, ...]) -> tuple[int, Iterable[object]]:
    """A value's own bytes, and what is inside it; `around` are the objects with a text of their own that hold it."""
    if isinstance(value, str):
        # str's own methods: those of a subclass could lie.
        if str.isascii(value):
            return 2 + str.__len__(value), _NOTHING
        return 2 + len(str.encode(value, "utf-8", "surrogatepass")), _NOTHING
    if value is None or value is True:
        return 4, _NOTHING
    if value is False:
        return 5, _NOTHING
    if isinstance(value, int):
        bits = int.bit_length(value)  # many more would take long to write out, or raise
        return len(int.__repr__(value)) if bits <= 64 else bits * 3 // 10, _NOTHING
    if isinstance(value, float):
        return len(float.__repr__(value)), _NOTHING
    if isinstance(value, _MAPPINGS):
        return _brackets(value), chain.from_iterable(value.items())
    if isinstance(value, _BYTES):
        return 2 + memoryview(value).nbytes, _NOTHING
    if isinstance(value, _COLLECTIONS):
        return _brackets(value), value
    if isinstance(value, _TO_COME):
        raise TypeError("still to come")  # its code would run after the call, and what it gives is not bounded
    attributes = _attributes(value)
    kind = type(value)
    if attributes is not None and (is_dataclass(kind) or hasattr(kind, "__pydantic_fields__") or not _has_text(kind)):
        return _weigh(attributes, limit, around)
    size, _ = _weigh(str(value), limit, around)
    if attributes and len(around) < _DEEPEST and not any(held is value for held in around):
        size = max(size, _size(attributes, limit, (*around, value)))
    return max(size, _buffer(value)), _NOTHING


_DEEPEST = 32


def _has_text(kind: type) -> bool:
    return any(getattr(kind, name) is not getattr(object, name) for name in ("__str__", "__repr__"))


def _buffer(value: object) -> int:
    """The bytes that an array or a table of such holds, of which its text shows a few."""
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if type(nbytes) is int else 0


def _brackets(container: Sized) -> int:
    return 1 if container else 2  # the first member's separator pays for the other one


def _attributes(value: object) -> dict[str, Any] | None:
    """All that an object holds, in slots and under private names too; None for what is code, or holds nothing."""
    kind = type(value)
    if isinstance(value, _CODE):
        return None
    own = getattr(value, "__dict__", None)
    found = dict(own) if isinstance(own, dict) else {}
    for base in kind.__mro__:
        if "__slots__" in vars(base):
            slots = [name for name, slot in vars(base).items() if isinstance(slot, MemberDescriptorType)]
            found |= {name: vars(base)[name].__get__(value, kind) for name in slots if _is_set(vars(base)[name], value)}
    if is_dataclass(kind):
        found |= {f.name: getattr(value, f.name, None) for f in fields(kind)}
    if hasattr(kind, "__pydantic_fields__"):
        private = found.pop("__pydantic_private__", None)
        extra = found.pop("__pydantic_extra__", None)
        found.pop("__pydantic_fields_set__", None)
        found |= {**(extra or {}), **(private or {})}
    return found or (None if own is None else {})


_CODE = (type, Enum, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


def _is_set(slot: Any, value: object) -> bool:
    try:
        slot.__get__(value, type(value))
    except AttributeError:
        return False
    return True


def keyed_digest(key: bytes, canonical: bytes) -> str:
    """HMAC-SHA256 of canonical bytes, in hex: what a record may carry, since nobody without the key can guess with it.

    Raises InvalidPolicy for a key of less than 16 bytes.
    """
    if not isinstance(key, bytes) or len(key) < MIN_DIGEST_KEY:
        raise InvalidPolicy(f"a digest key is at least {MIN_DIGEST_KEY} bytes")
    # The prefix keeps it apart from whatever else the application signs with the same key.
    return hmac.digest(key, _DOMAIN + canonical, "sha256").hex()

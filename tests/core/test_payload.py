"""Untrusted JSON in: bounds, the exact copy, canonical bytes; and the size of what comes out."""

from __future__ import annotations

import datetime
import decimal
import enum
import hashlib
import json
import pickle
import random
import struct
import sys
import threading
import tracemalloc
import uuid
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import (
    MAX_DEPTH,
    Payload,
    PayloadLimits,
    PayloadRefused,
    PayloadTooLarge,
    _snapshot,
    freeze,
    keyed_digest,
    measure,
    parse,
)

VECTORS = Path(__file__).parent / "vectors"
NUMBERS = json.loads((VECTORS / "rfc8785_numbers.json").read_text())["vectors"]
TEXTS = json.loads((VECTORS / "canonical.json").read_text())
CANARY = "canary-4711"


def nested(levels: int) -> Any:
    """Lists inside each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def doubling(levels: int) -> Any:
    """A list that holds another one twice, which holds another one twice: small here, 2^levels when written out."""
    value: Any = [CANARY]
    for _ in range(levels):
        value = [value, value]
    return value


def cyclic(kind: type) -> Any:
    """A container that holds itself."""
    value = kind()
    if kind is dict:
        value["self"] = value
    else:
        value.append(value)
    return value


def traces(error: BaseException) -> str:
    """All that an error shows or carries along."""
    shown = [str(error), repr(error), repr(error.args), repr(vars(error))]
    return " ".join(shown + [traces(other) for other in (error.__cause__, error.__context__) if other is not None])


# --- canonical bytes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", NUMBERS, ids=lambda v: v["bits"])
def test_rfc8785_numbers(vector: dict[str, Any]) -> None:
    """Each double of appendix B gives the RFC's text, as rfc8785 does, or is refused where it is no exact number."""
    (number,) = struct.unpack(">d", bytes.fromhex(vector["bits"]))
    if vector["canonical"] is not None:
        assert rfc8785.dumps(number) == vector["canonical"].encode()
    if vector.get("refused"):
        with pytest.raises(PayloadRefused, match="not finite, or too large to be exact"):
            freeze(number)
    else:
        assert freeze([number]).canonical == f"[{vector['canonical']}]".encode()


@pytest.mark.parametrize("vector", TEXTS["canonical"], ids=lambda v: v["name"])
def test_canonical_texts(vector: dict[str, str]) -> None:
    """JSON text gives exactly the canonical text of its vector, which is its own canonical text."""
    assert freeze(parse(vector["json"])).canonical == vector["canonical"].encode()
    assert freeze(parse(vector["canonical"])).canonical == vector["canonical"].encode()


def test_rfc8785_sample_bytes() -> None:
    """The sample of 3.2.2 gives the bytes of 3.2.4, less the number that is refused here."""
    expected = bytes.fromhex(TEXTS["rfc8785_3_2_4_without_1e30"])
    assert freeze(parse(TEXTS["canonical"][0]["json"])).canonical == expected


@pytest.mark.parametrize("vector", TEXTS["refused"], ids=lambda v: v["name"])
def test_refused_texts(vector: dict[str, str]) -> None:
    """Text that is no JSON, or that could only be written with loss, is refused."""
    with pytest.raises(PayloadRefused):
        freeze(parse(vector["json"]))


def test_digest_is_sha256_of_the_canonical_bytes() -> None:
    """The digest is plain SHA-256, so that anybody can check it."""
    payload = freeze({"a": 1})
    assert payload.canonical == b'{"a":1}'
    assert payload.digest == "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_every_zero_is_one_number(zero: float) -> None:
    """Minus zero is 0, as the RFC says; the copy still has the zero that came."""
    payload = freeze([zero])
    assert payload.canonical == b"[0]"
    assert repr(payload.value) == repr([zero])


def test_integers_and_floats_share_a_digest_and_keep_their_type() -> None:
    """10 and 10.0 are one number with one digest; judge and tool still see which of them came."""
    whole, real = freeze({"amount": 10}), freeze({"amount": 10.0})
    assert whole == real
    assert whole.digest == real.digest
    assert len({whole, real}) == 1
    assert (type(whole.value["amount"]), type(real.value["amount"])) == (int, float)


def test_booleans_are_no_integers() -> None:
    """True and 1 are equal in Python, and two different payloads."""
    assert freeze([True, False]).canonical == b"[true,false]"
    assert freeze(True) != freeze(1)


# --- properties ------------------------------------------------------------------------------------------------------

SAFE = 2**53 - 1
INTEGERS = st.integers(-SAFE, SAFE)
PLAIN_FLOATS = st.floats(1e-4, 2.0**52).filter(lambda x: not x.is_integer())
FLOATS = PLAIN_FLOATS | st.floats(-float(SAFE), float(SAFE)) | st.floats(-2e-4, 2e-4) | INTEGERS.map(float)
TEXT = st.text(max_size=12)
KEYS = TEXT | st.text(st.sampled_from("az\u00e9\ud7ff\ue000\uff5e\U00010000\U0001f600"), max_size=3)
ASCII = st.text(st.characters(max_codepoint=127), max_size=8)


def json_values(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Nested values of these leaves."""
    return st.recursive(
        st.none() | st.booleans() | INTEGERS | leaves,
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=5),
        max_leaves=25,
    )


ANY_JSON = json_values(FLOATS | TEXT, KEYS)


def shuffled(value: Any, order: random.Random) -> Any:
    """The same JSON value with the keys of each object in another order."""
    if isinstance(value, dict):
        items = [(key, shuffled(member, order)) for key, member in value.items()]
        order.shuffle(items)
        return dict(items)
    return [shuffled(member, order) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "values",
    [
        json_values(PLAIN_FLOATS | TEXT, ASCII),
        json_values(FLOATS | TEXT, ASCII),
        json_values(PLAIN_FLOATS | TEXT, KEYS),
        ANY_JSON,
    ],
    ids=["orjson alone", "floats rewritten", "keys sorted by UTF-16", "anything"],
)
def test_agrees_with_rfc8785(values: st.SearchStrategy[Any]) -> None:
    """Whichever way the bytes are written, they are those of an independent implementation."""

    @given(values)
    def agrees(value: Any) -> None:
        assert freeze(value).canonical == rfc8785.dumps(value)

    agrees()


@given(ANY_JSON)
def test_copy_is_exact(value: Any) -> None:
    """The private copy, and a copy of that, show the same values, types and order of keys as what came."""
    payload = freeze(value)
    assert repr(payload.value) == repr(value)
    assert repr(payload.copy()) == repr(value)


@given(ANY_JSON)
def test_freezing_again_changes_nothing(value: Any) -> None:
    """The copy, and the canonical bytes read back, have the same canonical bytes; and they stand for an equal value."""
    payload = freeze(value)
    assert freeze(payload.value) == payload
    assert freeze(parse(payload.canonical)) == payload
    assert parse(payload.canonical) == value


@given(ANY_JSON, st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(value: Any, order: random.Random) -> None:
    """Two objects with the same members have one digest."""
    assert freeze(shuffled(value, order)).digest == freeze(value).digest


@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from(["a", "\u00e9"]), st.sampled_from([0.5, 1.0]))
def test_integers_stay_exact(number: int, key: str, beside: float) -> None:
    """Every 64-bit integer is written as its decimal digits, whatever stands beside it."""
    assert freeze({key: [number, beside]}).canonical == f'{{"{key}":[{number},{beside:g}]}}'.encode()


# --- the copy is private ---------------------------------------------------------------------------------------------


def test_changes_to_the_input_have_no_effect() -> None:
    """What was frozen is what is judged and run, whatever its sender does to its own object afterwards."""
    value = {"to": "lee", "lines": [{"sku": "A"}], "none": []}
    payload = freeze(value)
    value["to"] = "eve"
    value["lines"][0]["sku"] = "B"  # type: ignore[index]
    value["lines"].append(1)  # type: ignore[attr-defined]
    value["more"] = 1  # type: ignore[assignment]
    assert payload.value == {"to": "lee", "lines": [{"sku": "A"}], "none": []}
    assert freeze(payload.value).digest == payload.digest


def test_changes_to_a_copy_have_no_effect() -> None:
    """A tool may change the arguments it was given; the record of them stays."""
    payload = freeze({"lines": [{"sku": "A"}]})
    copy = payload.copy()
    copy["lines"][0]["sku"] = "B"
    assert payload.value == payload.copy() == {"lines": [{"sku": "A"}]}


def test_a_shared_list_becomes_two() -> None:
    """Parts that the sender shared are apart in the copy, as they are in JSON."""
    shared = [1]
    value = freeze([shared, shared]).value
    assert value[0] is not value[1]


def test_payload_shows_no_value() -> None:
    """Neither values nor the digest, from which a short payload can be guessed, are in the repr; fields are frozen."""
    payload = freeze({"pin": CANARY})
    assert repr(payload) == "Payload(<21 bytes>)"
    with pytest.raises(FrozenInstanceError):
        payload.digest = ""  # type: ignore[misc]


@pytest.mark.parametrize("kind", [dict, list])
def test_threads_that_change_the_input_are_harmless(kind: type) -> None:
    """While another thread changes the object, it is refused or frozen within its limits; nothing else happens."""
    value: Any = {"list": [], "dict": {}} if kind is dict else [[], {}]
    parts = list(value.values() if kind is dict else value)
    limits = PayloadLimits(nodes=200)
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            for number in range(100):
                parts[0].append([number])
                parts[1][f"k{number}"] = {"n": number}
            parts[0].clear()
            parts[1].clear()

    frozen, reasons = 0, set()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        while frozen < 200:
            try:
                payload = freeze(value, limits)
            except (PayloadRefused, PayloadTooLarge) as error:
                reasons.add(str(error) if isinstance(error, PayloadRefused) else error.what)
            else:
                frozen += 1
                assert freeze(payload.value, limits) == payload
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert reasons <= {"it changed while it was read", "nodes"}


def test_what_was_counted_is_what_is_copied() -> None:
    """A list that grew between the two is refused: the limit was held against the count."""
    with pytest.raises(PayloadRefused, match="changed while it was read"):
        _snapshot([1, 2], 1)


# --- refusals --------------------------------------------------------------------------------------------------------


class Text(str):
    """A string that says it is short, empty and equal to anything."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Object(dict[str, Any]):
    """A dict that shows an innocent value when it is asked."""

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def items(self) -> Any:
        return {"innocent": True}.items()


class Array(list[Any]):
    def __len__(self) -> int:
        return 0


class Number(int):
    def __le__(self, other: object) -> bool:
        return True


class Real(float):
    pass


class Colour(enum.Enum):
    RED = CANARY


class Level(enum.IntEnum):
    HIGH = 4711


class Word(enum.StrEnum):
    CANARY = CANARY


@dataclass
class Card:
    """A class that orjson would write by itself."""

    pin: Any = CANARY
    tries: int = 3


NO_JSON = {
    "tuple": (CANARY,),
    "set": {CANARY},
    "bytes": CANARY.encode(),
    "dataclass": Card(),
    "Enum": Colour.RED,
    "IntEnum": Level.HIGH,
    "StrEnum": Word.CANARY,
    "Decimal": decimal.Decimal(4711),
    "datetime": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "UUID": uuid.UUID(int=4711),
    "complex": 4711j,
    "class": Card,
    "function": lambda: CANARY,
    "iterator": iter([CANARY]),
    "OrderedDict": OrderedDict(pin=CANARY),
    "UserDict": UserDict(pin=CANARY),
    "dict subclass": Object(pin=CANARY),
    "list subclass": Array([CANARY]),
    "str subclass": Text(CANARY),
    "int subclass": Number(4711),
    "float subclass": Real(4711.5),
}


@pytest.mark.parametrize("place", [lambda v: v, lambda v: [v], lambda v: {"a": [{"b": v}]}], ids=["bare", "in", "deep"])
@pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON.keys())
def test_only_exact_json_types_pass(value: object, place: Callable[[object], object]) -> None:
    """Whatever is no JSON type itself is refused, at any depth: a subclass could show each reader another value."""
    with pytest.raises(PayloadRefused, match="not an object, array, string, number, boolean or null") as caught:
        freeze(place(value))
    assert "4711" not in traces(caught.value)


@pytest.mark.parametrize("key", [1, None, True, 1.5, b"4711", ("4711",), Text(CANARY), Word.CANARY], ids=repr)
def test_only_exact_string_keys_pass(key: Any) -> None:
    """A key that is no plain string is refused, never turned into one."""
    with pytest.raises(PayloadRefused, match="key is not a string") as caught:
        freeze({"a": {key: 1}})
    assert "4711" not in traces(caught.value)


def test_a_key_that_raises_when_compared_is_a_refusal() -> None:
    """Copying a dict can compare its keys; what a lying key raises then neither escapes nor is carried along."""
    armed = False

    class Key(str):
        __slots__ = ()

        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            if armed:
                raise RuntimeError(CANARY)
            return self is other

    value = {Key(name): CANARY for name in "abcdefgh"}
    for key in list(value)[:5]:
        del value[key]  # a dict with gaps is copied key by key
    armed = True
    with pytest.raises(PayloadRefused) as caught:
        freeze({"a": value})
    assert CANARY not in traces(caught.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf"), 2.0**53, -(2.0**53), 1e300])
def test_inexact_floats_are_refused(number: float) -> None:
    """NaN, infinities and floats from 2^53 on are refused: they would be written as another number, or as null."""
    with pytest.raises(PayloadRefused, match="not finite, or too large to be exact"):
        freeze({"a": [number]})


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**100_000, -(10**100_000)], ids=["64", "63", "huge", "-huge"]
)
def test_larger_integers_are_refused(number: int) -> None:
    """Integers beyond 64 bits are refused, without writing them out."""
    with pytest.raises(PayloadRefused, match="more than 64 bits"):
        freeze({"a": [number]})


@pytest.mark.parametrize(
    "value", ["\ud800", {"\udc00": 1}, {"\udc00": 1, "b": 2.0}, {"a": ["x\udfffy"], "\u00e9": 1.0}]
)
def test_lone_surrogates_are_refused(value: Any) -> None:
    """A lone surrogate has no UTF-8, in a value or a key, whichever way the bytes are written."""
    with pytest.raises(PayloadRefused, match="lone surrogate") as caught:
        freeze([CANARY, value])
    assert CANARY not in traces(caught.value)


# --- bounds ----------------------------------------------------------------------------------------------------------


def too_large(call: Callable[[], object]) -> tuple[int, int, str]:
    """What a call finds too large."""
    with pytest.raises(PayloadTooLarge) as caught:
        call()
    assert CANARY not in traces(caught.value)
    return caught.value.actual, caught.value.limit, caught.value.what


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (nested(33), (33, 32, "levels")),
        (nested(20_000), (33, 32, "levels")),
        (cyclic(list), (33, 32, "levels")),
        (cyclic(dict), (33, 32, "levels")),
        ([0] * 16_384, (16_385, 16_384, "nodes")),
        ([0] * 10_000_000, (10_000_001, 16_384, "nodes")),
        (dict.fromkeys(map(str, range(20_000))), (20_001, 16_384, "nodes")),
        (doubling(27), (16_385, 16_384, "nodes")),
        ("x" * 65_535, (65_537, 65_536, "bytes")),
        ("x" * 10_000_000, (10_000_001, 65_536, "bytes")),
        ({CANARY * 10_000: 1}, (110_003, 65_536, "bytes")),
        (["\u20ac" * 30_000], (90_004, 65_536, "bytes")),
        (["\0" * 30_000], (180_004, 65_536, "bytes")),
        (["x" * 60_000] * 16_383, (60_000 * 16_383 + 32_767, 65_536, "bytes")),
    ],
    ids=lambda v: "-".join(map(str, v)) if type(v) is tuple else "",
)
def test_default_bounds(value: Any, found: tuple[int, int, str]) -> None:
    """Deep, wide, long, cyclic and self-sharing values are refused, with what was found by then."""
    assert too_large(lambda: freeze(value)) == found


@pytest.mark.parametrize("value", [nested(32), [0] * 16_383, "x" * 65_534, {"k" * 65_530: 1}, ["\u20ac" * 21_844]])
def test_at_the_bounds(value: Any) -> None:
    """What just fits is taken."""
    assert freeze(value).value == value


@pytest.mark.parametrize(
    ("limits", "fits", "exceeds", "found"),
    [
        (PayloadLimits(bytes=7), {"a": 1}, {"a": 10}, (8, 7, "bytes")),
        (PayloadLimits(bytes=4), True, False, (5, 4, "bytes")),
        (PayloadLimits(depth=1), {"a": 1}, {"a": {}}, (2, 1, "levels")),
        (PayloadLimits(nodes=3), [[1]], [[1, 2]], (4, 3, "nodes")),
        (PayloadLimits(nodes=1), {}, {"a": 1}, (2, 1, "nodes")),
        (PayloadLimits(characters=2), {"ab": "\u20ac\u20ac"}, {"a": "abc"}, (3, 2, "characters")),
        (PayloadLimits(characters=2), {"ab": 1}, {"abc": 1}, (3, 2, "characters")),
    ],
)
def test_own_bounds(limits: PayloadLimits, fits: Any, exceeds: Any, found: tuple[int, int, str]) -> None:
    """Each limit holds by itself, and takes what it names."""
    assert freeze(fits, limits).value == fits
    assert too_large(lambda: freeze(exceeds, limits)) == found


def test_deepest_supported_nesting() -> None:
    """At MAX_DEPTH everything still works, near the end of the stack as well: nothing here is recursive."""
    value = {"\u00e9": nested(MAX_DEPTH - 1)}

    def far_down(frames: int) -> Payload:
        return far_down(frames - 1) if frames else freeze(value, PayloadLimits(depth=MAX_DEPTH))

    payload = far_down(700)
    assert payload.value == payload.copy() == value
    assert payload.canonical == '{"é":'.encode() + b"[" * 127 + b"]" * 127 + b"}"


@pytest.mark.parametrize(
    "value", [doubling(27), ["x" * 60_000] * 16_000, [0] * 1_000_000], ids=["shared", "text", "wide"]
)
def test_refusing_takes_little_memory(value: Any) -> None:
    """A value that would be hundreds of megabytes written out is refused within five."""
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            freeze(value)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["bytes", "depth", "nodes", "characters"])
@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "9"])
def test_limits_are_positive_integers(name: str, limit: Any) -> None:
    """A limit of nothing, or one that is no number, is the developer's mistake, and says which."""
    with pytest.raises(InvalidPolicy) as caught:
        PayloadLimits(**{name: limit})
    assert caught.value.where == f"limits.{name}"


def test_limits_that_cannot_be_kept() -> None:
    """Only `characters` may be left open, and deeper nesting than can be written is no limit."""
    with pytest.raises(InvalidPolicy):
        PayloadLimits(bytes=None)
    with pytest.raises(InvalidPolicy, match="at most 128 levels"):
        PayloadLimits(depth=MAX_DEPTH + 1)


def test_signals_survive_a_process_boundary() -> None:
    """Both signals come out of a worker process as they were, with a text that says what is allowed."""
    large = pickle.loads(pickle.dumps(PayloadTooLarge(9, 8, "bytes")))
    assert (large.actual, large.limit, large.what) == (9, 8, "bytes")
    assert str(large) == "at least 9 bytes, and 8 are allowed"
    assert pickle.loads(pickle.dumps(PayloadRefused("why"))).reason == "why"


# --- JSON text -------------------------------------------------------------------------------------------------------


def test_text_and_bytes_are_read_alike() -> None:
    """JSON text comes as str or UTF-8 bytes; numbers keep their kind, and integers all their digits."""
    text = '{"n": [10, 10.0, 18446744073709551616], "\u00e9": "\\ud83d\\ude00"}'
    assert repr(parse(text)) == repr({"n": [10, 10.0, 2**64], "\u00e9": "\U0001f600"})
    assert repr(parse(text.encode())) == repr(parse(text))


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "[" * 20_000 + "]" * 20_000, '{"a":' * 9_000 + "1" + "}" * 9_000], ids=["open", "[]", "{}"]
)
def test_deep_text_is_refused_cleanly(text: str) -> None:
    """Nesting that would exhaust the parser's stack is a refusal like any other."""
    with pytest.raises(PayloadRefused, match="not valid JSON text"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        f'{{"{CANARY}": ',
        f'{{"a": {{"{CANARY}": 1, "{CANARY}": "{CANARY}"}}}}',
        f'["{CANARY}", NaN]',
        f'"{CANARY}\ud800"',
        f'"{CANARY}'.encode() + b'\xff"',
        f'"{CANARY}"'.encode("utf-16"),
        Text(f'"{CANARY}"'),
        bytearray(f'"{CANARY}"'.encode()),
        {"a": CANARY},
    ],
    ids=["torn", "twice", "NaN", "surrogate", "no UTF-8", "UTF-16", "str subclass", "bytearray", "dict"],
)
def test_refused_text_is_not_quoted(text: Any) -> None:
    """Neither the refusal nor anything it carries along holds the text."""
    with pytest.raises(PayloadRefused) as caught:
        parse(text)
    assert CANARY not in traces(caught.value)


@pytest.mark.parametrize(
    ("text", "actual"),
    [("[1, 23]", 7), (b"[1, 23]", 7), ('"\u20ac\u20ac"', 8), ("!" * 9, 9)],
    ids=["str", "bytes", "€", "!"],
)
def test_text_is_bounded_before_it_is_parsed(text: str | bytes, actual: int) -> None:
    """More bytes of text than allowed are too large, whatever they would mean."""
    assert too_large(lambda: parse(text, PayloadLimits(bytes=6))) == (actual, 6, "bytes")
    assert parse(b"[1,23]", PayloadLimits(bytes=6)) == [1, 23]


# --- the size of what a tool returns ---------------------------------------------------------------------------------


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    pin: str


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Spoken(Plain):
    def __str__(self) -> str:
        return "x" * 9


class Secretive:
    """What it holds stands in a slot with a private name; its text is short."""

    __slots__ = ("__dict__", "__pin", "unset")

    def __init__(self, pin: str) -> None:
        self.__pin = pin
        self.own = 1

    def __repr__(self) -> str:
        return f"<{len(self.__pin)}>"


class Kept(pydantic.BaseModel):
    pin: str
    _more: str = "yy"


class Table:
    """As arrays are: a text that shows a few of its values."""

    nbytes = 5_000

    def __str__(self) -> str:
        return "[0 ... 1]"


@dataclass(slots=True)
class Slotted:
    pin: str
    tries: list[int]


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("\u20ac\ud800", 6),
        (b"abc", 3),
        (bytearray(3), 3),
        (memoryview(struct.pack("3d", 1, 2, 3)), 24),
        (None, 4),
        (False, 5),
        (-1.5, 4),
        (2**64 - 1, 20),
        (10**1_000_000, 996_578),
        ([], 2),
        ([[], {}, ()], 10),
        ({"a": ["b", 1]}, 13),
        (("a", 1), 7),
        ({1, 2}, 5),
        (deque([1, 2]), 5),
        (range(3), 7),
        ({"a": 1}.keys(), 5),
        (UserDict(a=1), 7),
        (Text("abc"), 3),
        (Level.HIGH, 4),
        (Card("1234"), len('{"pin":"1234","tries":3}')),
        (Slotted("1234", [1]), len('{"pin":"1234","tries":[1]}')),
        (Model.model_validate({"pin": "1234", "more": 1}), len('{"pin":"1234","more":1}')),
        (Plain(pin="1234"), len('{"pin":"1234"}')),
        ([Plain(inner=Plain(n=1))], len('[{"inner":{"n":1}}]')),
        ([Spoken(hidden="y" * 99)], len('[{"hidden":""}]') + 99),
        (Spoken(a=1), 11),
        (Secretive("y" * 99), len('{"_Secretive__pin":"","own":1}') + 99),
        (Kept(pin="1234"), len('{"pin":"1234","_more":"yy"}')),
        (Table(), 5_000),
        (ValueError("x" * 9), 11),
        (decimal.Decimal("1.50"), 6),
        (Card, len(str(Card)) + 2),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, int) else str(v)[:9] if abs(v) < 2**70 else "huge",
)
def test_measured_sizes(value: object, size: int) -> None:
    """Whatever a tool returns has a size in bytes, at which it passes, and below which it does not."""
    assert measure(value, size) == size
    if size:
        assert too_large(lambda: measure(value, size - 1))[1:] == (size - 1, "bytes")


UNESCAPED = st.text(st.characters(codec="utf-8", min_codepoint=32, exclude_characters='"\\'), max_size=8)


@given(st.lists(json_values(FLOATS | UNESCAPED, UNESCAPED)))
def test_measured_size_is_that_of_compact_json(value: Any) -> None:
    """A JSON value that needs no escapes measures exactly what it takes as compact JSON."""
    assert measure(value, 10**9) == len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "value",
    [cyclic(list), cyclic(dict), doubling(27), ["x" * 1000] * 1000, range(10**12), {"n": [CANARY] * 10**6}],
    ids=["list in itself", "dict in itself", "shared", "long", "range", "wide"],
)
def test_measuring_stops_at_the_limit(value: Any) -> None:
    """What is endless, or shared so often that it would be, is counted up to the limit and not much further."""
    actual, limit, what = too_large(lambda: measure(value, 5000))
    assert (limit, what) == (5000, "bytes")
    assert 5000 < actual <= 5000 + 1003


def test_measuring_an_object_that_holds_itself() -> None:
    """A cycle through attributes ends at the limit too."""
    value = Plain()
    value.self = value  # type: ignore[attr-defined]
    assert too_large(lambda: measure(value, 1000))[1:] == (1000, "bytes")


def test_measuring_an_object_with_a_text_that_holds_itself() -> None:
    """It counts once inside itself: a parent that its child knows is no endless result."""
    value = Spoken(name="y" * 99)
    value.self = [value]  # type: ignore[attr-defined]
    assert measure(value, 1000) == len('{"name":"","self":[""]}') + 99 + 9


def test_measuring_endless_containers() -> None:
    """A container that never stops giving out members is bounded by what it gives."""

    class Endless(UserDict[str, int]):
        def __len__(self) -> int:
            return 1

        def items(self) -> Any:
            return iter(lambda: ("a", 1), None)

    assert too_large(lambda: measure(Endless(), 100)) == (101, 100, "bytes")


def test_measuring_deep_nesting() -> None:
    """Depth is no matter for the size of a result: only its bytes count."""
    assert measure(nested(20_000), 40_000) == 40_000


def test_measuring_consumes_nothing() -> None:
    """An iterator that a tool returns still gives out everything afterwards."""
    result = iter([1, 2, 3])
    measure({"rows": result}, 1000)
    assert list(result) == [1, 2, 3]


class Broken(Plain):
    def __str__(self) -> str:
        raise RuntimeError(CANARY)


class BrokenMapping(UserDict[str, str]):
    def items(self) -> Any:
        raise KeyError(CANARY)


@pytest.mark.parametrize("value", [Broken(), [Broken()], BrokenMapping(a=CANARY)], ids=["bare", "inside", "mapping"])
def test_what_cannot_be_measured_is_refused(value: Any) -> None:
    """A result that fails while it is read does not pass, and its own error is not carried along."""
    with pytest.raises(PayloadRefused, match="cannot be read") as caught:
        measure(value, 10**6)
    assert CANARY not in traces(caught.value)


# --- keyed digests ---------------------------------------------------------------------------------------------------

KEY = b"k" * 16


def test_keyed_digest_is_hmac_with_a_prefix() -> None:
    """HMAC-SHA256 over a fixed prefix and the canonical bytes (the value is OpenSSL's)."""
    expected = "2ecaf8aa864a570a5a43f56e37de1ae722150fe6250c11c2248cbfddb718409c"
    assert keyed_digest(KEY, b'{"a":1}') == expected
    assert keyed_digest(KEY, freeze({"a": 1.0}).canonical) == expected


def test_keyed_digests_differ_by_key_and_payload() -> None:
    """Another key, another payload or the plain hash: none of them gives the same digest."""
    digests = {
        keyed_digest(KEY, b"1"),
        keyed_digest(KEY, b"2"),
        keyed_digest(b"x" * 16, b"1"),
        hashlib.sha256(b"1").hexdigest(),
    }
    assert len(digests) == 4


@pytest.mark.parametrize("key", [b"", b"k" * 15, "k" * 16, None], ids=repr)
def test_short_keys_are_refused(key: Any) -> None:
    """A key that could be guessed protects nothing."""
    with pytest.raises(InvalidPolicy, match="at least 16 bytes"):
        keyed_digest(key, b"{}")

"""Where a parameter points to, how values compare, what their text is, and which patterns there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.ground.errors import InvalidPolicy
from guarded_core.ground.payload import freeze
from guarded_core.ground.pointer import ABSENT, Param
from guarded_core.rules.patterns import Pattern, is_glob, names_tool
from guarded_core.rules.values import exact, has_text, text_of, texts_of

ORDER = {
    "id": "o-1",
    "note": None,
    "items": [{"sku": "A", "qty": 1}, {"qty": 2}, {"sku": "C"}],
    "ship": {"to": {"zip": "1000"}},
    "a/b": 1,
    "m~n": 2,
    "": 3,
    "*": 4,
}


@pytest.mark.parametrize(
    ("param", "found"),
    [
        ("id", ["o-1"]),
        ("note", [None]),
        ("missing", [ABSENT]),
        ("a/b", [1]),
        ("/a~1b", [1]),
        ("/m~0n", [2]),
        ("/", [3]),
        ("/ship/to/zip", ["1000"]),
        ("/ship/to", [{"zip": "1000"}]),
        ("/ship/to/zip/deeper", [ABSENT]),
        ("/missing/deeper", [ABSENT]),
        ("/items/0/sku", ["A"]),
        ("/items/1/sku", [ABSENT]),
        ("/items/9/sku", [ABSENT]),
        ("/items/-/sku", [ABSENT]),
        ("/items/00/sku", [ABSENT]),
        ("/items/-1/sku", [ABSENT]),
        ("/items/*/sku", ["A", ABSENT, "C"]),
        ("/items/*/qty", [1, 2, ABSENT]),
        ("/ship/*/zip", ["1000"]),
        ("/id/*", [ABSENT]),
        ("ship.to", [ABSENT]),
    ],
)
def test_a_param_is_a_name_or_a_pointer_with_wildcards(param: str, found: list[Any]) -> None:
    """RFC 6901, with ``*`` for every member; each place where the way ends early is an ABSENT."""
    assert Param.parse(param).find(ORDER) == found


def test_a_wildcard_over_nothing_finds_nothing() -> None:
    """An empty array has no members, present or absent."""
    assert Param.parse("/items/*/sku").find({"items": []}) == []


@pytest.mark.parametrize("param", ["", None, 3, "*", "items*", "/a~2", "/a~"])
def test_what_is_no_param_is_refused(param: Any) -> None:
    """A wildcard in a plain name, or a bad escape, would never match."""
    with pytest.raises(InvalidPolicy) as caught:
        Param.parse(param)
    assert caught.value.where == "param"


@pytest.mark.parametrize(
    ("param", "pointer"), [("url", "/url"), ("a/b~c", "/a~1b~0c"), ("/items/*/sku", "/items/*/sku")]
)
def test_a_param_has_a_pointer(param: str, pointer: str) -> None:
    """A name is escaped in it."""
    assert Param.parse(param).pointer == pointer


@pytest.mark.parametrize("value", [(1, 2), {1}, object(), b"x"])
def test_what_is_no_json_is_not_passed_over(value: Any) -> None:
    """A rule that cannot look inside fails, and a failing rule denies."""
    with pytest.raises(TypeError):
        Param.parse("/a/b").find({"a": value})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (10, 10.0, True),
        (0, -0.0, True),
        (10, "10", False),
        (1, True, False),
        (0, False, False),
        (1.0, True, False),
        (None, False, False),
        (None, "null", False),
        ("A", "a", False),
        ("é", "e\u0301", False),
        ("ß", "ss", False),
        (2**63, 2.0**63, True),
        (2**53 + 1, 2.0**53, False),
        ([1, 2], [1.0, 2.0], True),
        ([1, 2], [2, 1], False),
        ([1], [True], False),
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([], {}, False),
        ([["a", 1]], {"a": 1}, False),
    ],
)
def test_values_are_equal_as_json_and_not_otherwise(one: Any, other: Any, same: bool) -> None:
    """10 and 10.0 are one number; "10" and true are other values; nothing is folded."""
    assert (exact(one) == exact(other)) is same


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: _takes(value))


def _takes(value: Any) -> bool:
    try:
        return bool(freeze(value).digest)
    except ValueError:
        return False


@given(JSON, JSON)
def test_equality_is_that_of_canonical_json(one: Any, other: Any) -> None:
    """Two values are equal exactly where their canonical bytes are, as for approvals."""
    assert (exact(one) == exact(other)) is (freeze(one).canonical == freeze(other).canonical)
    assert exact(one) == exact(freeze(one).copy())


@pytest.mark.parametrize("value", [float("nan"), (1,), {1}, b"x", object()])
def test_what_is_no_json_has_no_key(value: Any) -> None:
    """It equals nothing, not even silently."""
    with pytest.raises(TypeError):
        exact(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", "a b"),
        (10, "10"),
        (10.0, "10"),
        (0.5, "0.5"),
        (True, "true"),
        (None, "null"),
        ({"b": 1, "a": ['"']}, '{"a":["\\""],"b":1}'),
    ],
)
def test_the_string_form_is_the_string_or_canonical_json(value: Any, text: str) -> None:
    """One number has one text, however it was written."""
    assert text_of(value) == text


def test_the_texts_of_a_container_are_its_json_and_all_that_is_inside() -> None:
    """A quote or newline is escaped in the JSON of an object, and still found in its strings and keys."""
    value = {"k\n": ['say "hi"', 7, {"deep": True}]}
    assert sorted(texts_of(value)) == sorted(
        ['{"k\\n":["say \\"hi\\"",7,{"deep":true}]}', "k\n", 'say "hi"', "7", "deep", "true"]
    )


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(-(2.0**53), 2.0**53, exclude_min=True, exclude_max=True)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\é\n', max_size=3), inner))


@given(SCALARS | VALUES)
def test_the_string_form_is_canonical_whatever_the_value(value: Any) -> None:
    """Numbers, keys and texts of any kind are written as RFC 8785 writes them."""
    assert text_of(value) == (value if isinstance(value, str) else freeze(value).canonical.decode())


@given(VALUES, st.text('ab"\\é\n01e.-{:,', min_size=1, max_size=3))
def test_a_part_is_found_in_the_texts_of_a_value(value: Any, part: str) -> None:
    """A part is there when one of the texts has it, be it written otherwise in JSON or not."""
    assert has_text(value, part) == any(part in text for text in texts_of(value))


@pytest.mark.parametrize(
    ("pattern", "tool", "named"),
    [
        ("mail", "mail", True),
        ("mail", "mail_send", False),
        ("mail_*", "mail_send", True),
        ("mail_?", "mail_send", False),
        ("[ab]_x", "a_x", True),
        ("[!ab]_x", "a_x", False),
        ("*", "anything", True),
        ("Mail", "mail", False),
    ],
)
def test_a_tool_is_named_exactly_or_by_a_glob(pattern: str, tool: str, named: bool) -> None:
    """Case counts."""
    assert names_tool(pattern, tool) is named


def test_a_regular_expression_is_no_glob() -> None:
    """``mail.*`` would never name a tool, so it is not taken for a glob."""
    assert not is_glob("mail.*")
    assert not is_glob("mail")
    assert is_glob("mail_*")


class TestPattern:
    @pytest.mark.parametrize(
        ("pattern", "text", "found"),
        [
            ("b", "abc", True),
            ("^b", "abc", False),
            ("^a.c$", "abc", True),
            ("^rm$", "rm\n", False),
            (r"\d{3}", "x123y", True),
            ("(?i)DROP", "drop table", True),
            ("é", "caf\u00e9", True),
        ],
    )
    def test_is_searched_for_anywhere(self, pattern: str, text: str, found: bool) -> None:
        """Unanchored, unless it anchors itself; ``$`` is the very end."""
        assert Pattern(pattern).matches(text) is found

    @pytest.mark.parametrize(
        ("pattern", "text", "found"),
        [
            (r"api\.example\.com", "api.example.com", True),
            (r"api\.example\.com", "https://evil.test/?api.example.com", False),
            ("a|b", "b", True),
            ("a|b", "ab", False),
            ("(?m)^a$", "a\nb", False),
        ],
    )
    def test_can_have_to_match_the_whole(self, pattern: str, text: str, found: bool) -> None:
        """What permits must not be satisfied by a part."""
        assert Pattern(pattern, whole=True).matches(text) is found

    @pytest.mark.parametrize("pattern", ["(", "[a-", "a)|(b", "(?=a)b", r"(a)\1", "(?<=x)y", "a{1000}{1000}", "\ud800"])
    @pytest.mark.parametrize("whole", [False, True])
    def test_that_does_not_compile_says_why(self, pattern: str, whole: bool) -> None:
        """Lookaround, backreferences and huge repetitions have no place on a linear-time engine."""
        refused = Pattern(pattern, whole=whole)
        assert refused.error.startswith("the pattern does not compile")
        assert not refused.matches("ab")

    def test_error_names_the_fault_of_a_malformed_one(self) -> None:
        """With the position, as Python puts it."""
        assert "unterminated character set at position 0" in Pattern("[a-").error

    def test_is_bounded(self) -> None:
        """A pattern of megabytes is a mistake."""
        with pytest.raises(InvalidPolicy):
            Pattern("a" * 5000)

    def test_takes_linear_time(self) -> None:
        """A pattern that backtracks for ages elsewhere is done with 50,000 characters at once."""
        assert not Pattern("^(a+)+$").matches("a" * 50_000 + "!")
        assert Pattern("^(a+)+$").matches("a" * 50_000)

"""The index of phrases gives the answers that searching every text would give."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from guarded_core.provenance.phrases import MAX_STEPS, Found, PhraseIndex, sought
from guarded_core.provenance.room import Room
from guarded_core.provenance.values import words

WORDS = st.sampled_from(["aa", "Aa", "bb", "c.c", "d's", "ß", "é", "1"])
SIGNS = st.sampled_from([" ", " ", " ", ", ", "'", " '", "' ", "/", "*", "  ", "\n", "(", ") ", ". ", "–"])
TEXTS = st.lists(st.tuples(WORDS, SIGNS), max_size=12).map(lambda parts: "".join(word + sign for word, sign in parts))


def of(texts: Sequence[str], room: int = 1_000_000) -> PhraseIndex[int]:
    """An index of these texts, by their numbers."""
    index = PhraseIndex[int](Room(room))
    for number, text in enumerate(texts):
        index.add(text, number)
    return index


@given(st.lists(TEXTS, max_size=5), TEXTS)
def test_words_in_a_row(texts: list[str], value: str) -> None:
    """As in every text's words, one after the other."""
    wanted = words(value)
    slow = set()
    for number, text in enumerate(texts):
        row = words(text)
        if wanted and any(row[place : place + len(wanted)] == wanted for place in range(len(row))):
            slow.add(number)
    assert set(of(texts).find(wanted)) == slow


@given(st.lists(TEXTS, max_size=5), TEXTS)
def test_sign_by_sign(texts: list[str], value: str) -> None:
    """As by searching every text for the value, and looking at what stands beside it."""
    slow = set()
    for number, text in enumerate(" ".join(text.split()) for text in texts):
        places = [place for place in range(len(text)) if value and text.startswith(value, place)]
        for found in (Found(text, place, place + len(value)) for place in places):
            is_bare = value[0].isalnum() or value[0] in "/*"
            is_bare = is_bare and (value[-1].isalnum() or value[-1] in "/*")
            if words(value) and (found.is_whole or (is_bare and found.is_apart)):
                slow.add(number)
    assert set(of(texts).find_exactly(sought(value))) <= slow
    # A value that begins or ends inside a word of the text is not by itself, whatever stands there.
    assert all(value in " ".join(texts[number].split()) for number in slow)


@given(st.lists(TEXTS, min_size=1, max_size=5), st.data())
def test_every_part_that_stands_by_itself_is_found(texts: list[str], data: st.DataObject) -> None:
    """Any stretch between blanks, without the signs of its sentence."""
    text = " ".join(data.draw(st.sampled_from(texts)).split())
    parts = text.split(" ")
    start = data.draw(st.integers(0, len(parts)))
    part = " ".join(parts[start : data.draw(st.integers(start, len(parts)))])
    value = part.strip(".,–)")
    if words(value) and "'" not in part and "(" not in part:
        assert set(of(texts).find_exactly(sought(value)))


def test_of_what_is_everywhere_some_places_are_known() -> None:
    """And what a rare pair of words tells apart is found among any number of places."""
    index = of(["aa bb " * 5000, "aa bb aa bb aa cc", "x " * 5000 + "aa bb"])
    assert set(index.find(["aa", "bb"])) <= {0, 1, 2}
    assert 2 in set(index.find(["x", "aa", "bb"]))
    assert 1 in set(index.find(["aa", "bb", "aa", "cc"]))
    assert len(list(index.find(["aa"]))) == MAX_STEPS
    assert list(index.find(["aa", "aa"])) == []


def test_what_does_not_fit_is_left_out() -> None:
    """As a whole: never a part of a text."""
    index = of(["aa bb", "cc dd " * 1000, "ee"], room=600)
    assert list(index.find(["aa", "bb"])) == [0]
    assert list(index.find(["cc"])) == []
    assert list(index.find(["ee"])) == []  # nothing fits any more, so that what is kept has no holes

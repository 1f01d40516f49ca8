"""Kinds of values: canonical forms, what is found in text, and forged look-alikes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.provenance.values import Kind, canonical, codes, detect, identifiers, named, proper_names, quantities


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        (Kind.EMAIL, "Ann.Lee+x@Example.COM", "ann.lee+x@example.com"),
        (Kind.ACCOUNT, "gb29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819"),
        (Kind.URL, "HTTPS://WWW.Example.com:443/A/", "www.example.com/A"),
        (Kind.URL, "www.example.com", "www.example.com"),
        (Kind.URL, "https://example.com:8443/a?b=C", "example.com:8443/a?b=C"),
        (Kind.NUMBER, "12.00", "12"),
        (Kind.NUMBER, "-0.50", "-0.5"),
        (Kind.DATE, "2024-05-15 10:00", "2024-05-15T10:00"),
        (Kind.PHRASE, "Le Marais  Boutique", "le marais boutique"),
        (Kind.EXACT, "1j1l-2k3j", "1j1l-2k3j"),
    ],
)
def test_equal_values_have_one_form(kind: Kind, value: str, form: str) -> None:
    """Case, spaces, default ports and trailing zeros do not matter where they do not to the world."""
    assert canonical(kind, value) == form


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Kind.EMAIL, "ann@exаmple.com"),  # Cyrillic a
        (Kind.EMAIL, "ann@example.com\u200b"),
        (Kind.EMAIL, " ann@example.com"),
        (Kind.EMAIL, "ann@example.com,eve@evil.example"),
        (Kind.EMAIL, "Ann <ann@example.com>"),
        (Kind.EMAIL, "ann@ｅxample.com"),
        (Kind.URL, "https://www.bank.example@evil.example/"),
        (Kind.URL, "https://evil.example\\@www.bank.example/"),
        (Kind.URL, "https://xn--bnk-sna.example/"),
        (Kind.URL, "javascript:alert(1)"),
        (Kind.URL, "https://www.bank.example/#evil"),
        (Kind.URL, "https://www.bank.example/ https://evil.example"),
        (Kind.URL, "https://www.bank.example:99999/"),
        (Kind.URL, "https://ban%6b.example/"),
        (Kind.ACCOUNT, "GB29NWBK6016133192681９"),
        (Kind.ACCOUNT, "GB29\tNWBK60161331926819"),
        (Kind.NUMBER, "1e3"),
        (Kind.NUMBER, "１２"),
        (Kind.NUMBER, "0x10"),
        (Kind.DATE, "2024-13-01"),
        (Kind.PHRASE, "Le Mar\u00adais"),
        (Kind.PHRASE, "ﬁle"),
        (Kind.ID, "13\u202e"),
    ],
)
def test_forged_values_have_none(kind: Kind, value: str) -> None:
    """What is not in normal form is nobody's, however alike it looks: the tool would get it as it stands."""
    assert canonical(kind, value) is None


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("ann@example.com", Kind.EMAIL),
        ("www.example.com/a", Kind.URL),
        ("GB29NWBK60161331926819", Kind.ACCOUNT),
        ("12.5", Kind.NUMBER),
        ("2024-05-15", Kind.DATE),
        ("Sarah Connor", Kind.PHRASE),
        ("ann@exаmple.com", Kind.PHRASE),
    ],
)
def test_a_value_tells_its_kind(value: str, kind: Kind) -> None:
    """By its look; what only resembles an address is a phrase, which it then has to match as."""
    assert detect(value) is kind


def test_identifiers_are_found_in_free_text() -> None:
    """Addresses, links and accounts, without the punctuation around them."""
    text = "Write to Ann@Example.com, see (https://example.com/a). Pay GB29 NWBK 6016 1331 9268 19!"
    assert [(kind, form) for kind, form, _ in identifiers(text)] == [
        (Kind.EMAIL, "ann@example.com"),
        (Kind.URL, "example.com/a"),
        (Kind.ACCOUNT, "GB29NWBK60161331926819"),
    ]


def test_an_address_is_not_part_of_a_longer_one() -> None:
    """Tokens are compared whole: neither a prefix nor a suffix of an address is that address."""
    found = {form for _, form, _ in identifiers("eve+ann@example.com.evil.example")}
    assert found == {"eve+ann@example.com.evil.example"}


def test_a_full_stop_ends_an_address_in_what_the_user_typed() -> None:
    """People forget the blank after it."""
    found = identifiers("Post to www.our-company.com.They sent it", by_user=True)
    assert [form for _, form, _ in found] == ["www.our-company.com"]


def test_a_domain_with_a_path_is_a_link_where_asked() -> None:
    """Mail programs make links of them."""
    assert [form for _, form, _ in identifiers("see evil.example/x", bare=True)] == ["evil.example/x"]
    assert list(identifiers("see evil.example/x")) == []


def test_numbers_and_dates_of_the_user() -> None:
    """Grouped, decimal and negative numbers; the parts of a date are no numbers."""
    assert set(quantities("pay 1,050.50 or -3 on 2024-05-15 at 10:00.")) == {
        (Kind.NUMBER, "1050.5"),
        (Kind.NUMBER, "-3"),
        (Kind.DATE, "2024-05-15"),
    }


def test_codes_have_a_digit_and_five_characters() -> None:
    """Dates are none."""
    assert list(codes("AB-12c 463820 2024-05-15 hello a1")) == ["ab-12c", "463820"]


def test_what_stands_in_quotes_or_is_a_file_is_named() -> None:
    """A common word names nothing, so that nobody can call a record by it."""
    assert set(named("Read 'Team  Notes' and “Plan B” and bill-1.txt for me, it's fine")) == {
        "team notes",
        "plan b",
        "bill-1.txt",
    }


def test_proper_names_are_runs_of_capitals() -> None:
    """A single capital word that begins a sentence may be a common one; with another one it is taken for a name."""
    assert list(proper_names("Dinner at Chez Anna. Bring Bob")) == ["Chez Anna", "Bring Bob"]


@given(st.text())
def test_a_form_is_its_own_form(text: str) -> None:
    """Normalising twice changes nothing, for every kind."""
    for kind in Kind:
        form = canonical(kind, text)
        assert form is None or kind is Kind.DATE or canonical(kind, form) == form

"""Kinds of values: canonical forms, what is found in text, and forged look-alikes."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded_core.provenance.mentions import identifiers, outgoing
from guarded_core.provenance.quantities import quantities
from guarded_core.provenance.values import Kind, canonical, codes, detect, named, proper_names


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        (Kind.EMAIL, "Ann.Lee+x@Example.COM", "ann.lee+x@example.com"),
        (Kind.ACCOUNT, "gb29 NWBK 6016 1331 9268 19", "GB29NWBK60161331926819"),
        (Kind.URL, "HTTPS://WWW.Example.com:443/A/", "www.example.com/A"),
        (Kind.URL, "www.example.com", "www.example.com"),
        (Kind.URL, "https://example.com:8443/a?b=C", "example.com:8443/a?b=C"),
        (Kind.URL, "https://example.com/a/#Top", "example.com/a#Top"),
        (Kind.DATE, "2024-05-15T10:00:00", "2024-05-15T10:00"),
        (Kind.EMAIL, "M\u00fcller@Example.COM", "m\u00fcller@example.com"),
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


def test_a_domain_is_a_link() -> None:
    """Mail programs make links of them."""
    assert [form for _, form, _ in identifiers("see evil.example/x")] == ["evil.example/x"]
    assert list(identifiers("see notes.txt or and/or")) == []


def test_numbers_and_dates_of_the_user() -> None:
    """Grouped, decimal and negative numbers; the parts of a date are no numbers."""
    assert {(found.kind, *found.forms) for found in quantities("pay 1,050.50 or -3 on 2024-05-15 at 10:00.")} == {
        (Kind.NUMBER, "1050.5"),
        (Kind.NUMBER, "-3"),
        (Kind.DATE, "2024-05-15"),
        (Kind.DATE, "2024-05-15T10:00"),
    }


@pytest.mark.parametrize(
    ("text", "forms", "role"),
    [
        ("€480", ("480",), "money"),
        ("480€", ("480",), "money"),
        ("480,- EUR", ("480",), "money"),
        ("480EUR", ("480",), "money"),
        ("$480.", ("480",), "money"),
        ("480,50", ("480.5",), "plain"),
        ("1.250,00 EUR", ("1250",), "money"),
        ("1'250.50 CHF", ("1250.5",), "money"),
        ("1.250.000", ("1250000",), "plain"),
        ("1,00,000 rupees", ("100000",), "money"),
        ("12k", ("12000",), "plain"),
        ("3.5 million", ("3500000",), "plain"),
        ("480/month", ("480",), "plain"),
        ("50%", ("50",), "percent"),
        ("in 2024.", ("2024",), "year"),
        ("50 old drafts", ("50",), "count"),
        ("zweihundertf\u00fcnfzig Euro", ("250",), "money"),
        ("one hundred and twenty three thousand and five", ("123005",), "plain"),
        ("1.250", ("1.25", "1250"), "plain"),
    ],
)
def test_a_number_is_read_with_its_role(text: str, forms: tuple[str, ...], role: str) -> None:
    """In the ways of several languages."""
    (found,) = quantities(text)
    assert (found.kind, found.forms, found.role) == (Kind.NUMBER, forms, role)


@pytest.mark.parametrize(
    "text", ["1.2.3", "10.0.0.1", "10:30", "OPS-4711", "x12", "12x", "007", "3/5", "a1.5", "1.2.2026x"]
)
def test_what_is_no_number_is_none(text: str) -> None:
    """Versions, addresses, times, codes, and fractions."""
    assert list(quantities(text)) == []


@pytest.mark.parametrize(
    "piece",
    ["1 ", "1.", "1,111", "1 111", "two ", "two-", "$", "1-", "may ", "3 may ", "a.", "a@", "a@b.", "DE89", "DE89 ",
     "d e 8 9 ",
     "1.1.1.1 ", "::", "//", "(at)", "de 12 ", "&#46;", "order 7, "],
)  # fmt: skip
def test_time_is_linear(piece: str) -> None:
    """Nothing that a text may hold makes reading it slow: 60 KB within seconds on any machine."""
    text = piece * (60_000 // len(piece))
    started = time.process_time()
    list(quantities(text)), list(identifiers(text, by_user=True)), outgoing(text)
    assert time.process_time() - started < 8


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

"""Kinds of values, their canonical forms, and how they are found in text.

Two values are the same where their canonical forms are equal; nothing is ever compared by substring. Text is
normalised where it is a source. A value that a model gave is not: what is not in normal form already is nobody's,
since the tool would receive it as it stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from urllib.parse import urlsplit


class Kind(StrEnum):
    """What a value is compared as."""

    EMAIL = "email"
    URL = "url"
    ACCOUNT = "account"  # IBAN-like: two letters, two digits, and more of both
    NUMBER = "number"
    AMOUNT = "amount"  # a number that is said as one of money
    DATE = "date"
    ID = "id"  # exact, printable ASCII
    EXACT = "exact"  # exact: passwords
    PHRASE = "phrase"  # whole words, case-folded: names
    VERBATIM = "verbatim"  # sign by sign, as it stands by itself in a text


Token = tuple[Kind, str]

MAX_IDENTIFIER = 2048
_MIN_PHRASE, _MAX_PHRASE = 2, 512
# Never a part of a longer one: what stands beside it may not belong to an address.
EMAIL = re.compile(
    r"(?<![\w.!#$%&*+/=?^{|}~@-])(?<!\w['\u2019])\w[\w.+'-]{0,63}@[^\W_](?:[\w-]{0,61}[^\W_])?"
    r"(?:\.[^\W_](?:[\w-]{0,61}[^\W_])?){1,8}(?![\w@]|[.-]\w)"
)
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,}", re.ASCII)
_DATE = re.compile(r"(?<![\w-])\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?)?(?![\w-])", re.ASCII)
_DIGIT = re.compile(r"\d", re.ASCII)
_WORD = re.compile(r"\w+(?:['\u2019&.@/+-]\w+)*")
_PHRASE = re.compile(rf"{_WORD.pattern}(?:[ ,]+{_WORD.pattern})*[.]?")
# An IBAN or its like; or, where the policy says that it is an account, digits alone.
_JOINED_ACCOUNT = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{6,32}|\d{6,17}", re.ASCII)
_PLAIN_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
# Invisible: zero-width, soft hyphen, bidirectional controls.
_FORMAT = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])


def normalised(text: str) -> str:
    """Free text of a source: NFKC, without invisible characters."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_FORMAT)


def words(text: str) -> list[str]:
    """The case-folded words of normalised text; an address or a number with its inner dots is one word."""
    return [_bare(word) for word in _WORD.findall(text.casefold())]


def words_at(text: str) -> list[tuple[int, str]]:
    """The same, each with its place."""
    if text.isascii():
        return [(found.start(), _bare(found.group())) for found in _WORD.finditer(text.lower())]
    # Folding may make a text longer, and then move its words.
    return [(found.start(), _bare(found.group().casefold())) for found in _WORD.finditer(text)]


def _bare(word: str) -> str:
    """Without the ending of "Anna's"."""
    return word[:-2] if word[-2:] in ("'s", "\u2019s") else word


def canonical(kind: Kind, value: str) -> str | None:
    """The form in which equal values of `kind` are equal; None for what is none, or is not in normal form."""
    if not value or len(value) > MAX_IDENTIFIER:
        return None
    if kind is Kind.EXACT:
        return value
    if kind is Kind.PHRASE:
        return phrase(value)
    if kind is Kind.VERBATIM:
        return value if len(value) >= _MIN_PHRASE and value.isprintable() else None
    if kind is Kind.EMAIL:
        return value.lower() if _is_latin(value) and EMAIL.fullmatch(value) else None
    # Other identifiers are printable ASCII; a look-alike from another script does not match.
    if not value.isascii() or not value.isprintable() or value != value.strip():
        return None
    match kind:
        case Kind.URL:
            return url(value)
        case Kind.ACCOUNT:
            joined = value.replace(" ", "").upper()
            return joined if _JOINED_ACCOUNT.fullmatch(joined) else None
        case Kind.NUMBER | Kind.AMOUNT:
            return number(value) if _PLAIN_NUMBER.fullmatch(value) else None
        case Kind.DATE:
            return _moment(value) if _DATE.fullmatch(value) and _is_date(value) else None
        case _:
            return value


def phrase(value: str) -> str | None:
    """The words of a value that is in normal form, joined by blanks."""
    if len(value) > _MAX_PHRASE or normalised(value) != value:
        return None
    if _PHRASE.fullmatch(value) is None:
        return None  # signs between the words, or around them, that mean something to a shell, a path or a query
    found = " ".join(words(value))
    return found if len(found) >= _MIN_PHRASE else None


def plain(value: int | float | Decimal) -> str:
    """A number as text, without an exponent; one that is not finite as it is."""
    if isinstance(value, int):
        return str(value)
    exact = Decimal(repr(value)) if isinstance(value, float) else value
    return format(exact, "f") if exact.is_finite() and abs(exact.adjusted()) < 64 else str(value)


def number(text: str) -> str | None:
    """A decimal number without superfluous digits, so that 10, 10.0 and 1,0 thousand mean what they say."""
    try:
        value = Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None
    return format(value.normalize() + 0, "f") if value.is_finite() and abs(value.adjusted()) < 64 else None


def url(value: str) -> str | None:
    """Host in lower case, path and query exact; no user, no punycode, no default port; http is marked as such."""
    if "\\" in value or " " in value:
        return None
    has_scheme = "://" in value
    try:
        parts = urlsplit(value if has_scheme else f"https://{value}")
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or "%" in host or "xn--" in host:
        return None
    if not host:
        return None
    at = f":{port}" if port not in (None, 80, 443) else ""
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return host + at + parts.path.rstrip("/") + query + fragment


def is_downgrade(value: str) -> bool:
    """Whether a URL asks for plain http; good only where the source says so too."""
    return value[:7].lower() == "http://"


def detect(value: str) -> Kind:
    """What a value looks like. Each kind has to match on its own terms, so a disguise gains nothing."""
    if "@" in value and canonical(Kind.EMAIL, value) is not None:
        return Kind.EMAIL
    if value[:4].lower() in ("http", "www.") and canonical(Kind.URL, value) is not None:
        return Kind.URL
    if _PLAIN_NUMBER.fullmatch(value):
        return Kind.NUMBER
    if value[:4].isdigit() and canonical(Kind.DATE, value) is not None:
        return Kind.DATE
    if value[2:3].isdigit() and canonical(Kind.ACCOUNT, value) is not None:
        return Kind.ACCOUNT
    return Kind.PHRASE


def looks(value: str) -> Kind:
    """The kind that a value is compared as where the policy names none."""
    kind = detect(value)
    return Kind.VERBATIM if kind is Kind.PHRASE else kind


def codes(text: str) -> Iterator[str]:
    """Identifier-like tokens: five characters or more with a digit among them; dates are none."""
    for found in _CODE.findall(text) if _DIGIT.search(text) else ():
        if any(map(str.isdigit, found)) and not _DATE.fullmatch(found):
            yield found.casefold()


_QUOTED = re.compile(
    r"(?<!\w)'([^'\n]{2,200}?)'(?!\w)|\"([^\"\n]{2,200})\"|\u201c([^\u201d\n]{2,200})\u201d|`([^`\n]{2,200})`"
)
_FILE = re.compile(r"(?<![\w.@/-])[\w-]+(?:\.[\w-]+)+(?![\w@/-])")


def named(text: str) -> Iterator[str]:
    """What a person's own text names: what stands in quotes, and file names. A common word names nothing."""
    for groups in _QUOTED.findall(text):
        yield " ".join(words("".join(groups)))
    for found in _FILE.findall(text):
        yield found.casefold().rstrip(".")


def _moment(value: str) -> str:
    """A date or time in ISO's form, without seconds where there are none."""
    return value.replace(" ", "T").removesuffix(":00") if len(value) > 16 else value.replace(" ", "T")


def _is_latin(value: str) -> bool:
    """Whether it is normal, and its letters are Latin: no look-alike from another script, no invisible sign."""
    return value.isascii() or (
        value == normalised(value) and all(sign.isascii() or "LATIN" in unicodedata.name(sign, "") for sign in value)
    )


def is_iban(account: str) -> bool:
    """Whether the check digits of an account are right."""
    return int("".join(str(int(sign, 36)) for sign in account[4:] + account[:4])) % 97 == 1


IBAN_LENGTH = {
    country: length
    for length, countries in (
        (15, "NO"), (16, "BE"), (18, "DK FI FK FO GL NL SD"), (19, "MK SI"), (20, "AT BA EE KZ LT LU MN XK"),
        (21, "CH HR LI LV"), (22, "BG BH CR DE GB GE IE ME RS VA"), (23, "AE GI IL IQ OM SO TL"),
        (24, "AD CZ ES MD PK RO SA SE SK TN VG"), (25, "LY PT ST"), (26, "IS TR"), (27, "BI DJ FR GR IT MC MR SM"),
        (28, "AL AZ BY CY DO GT HN HU LB NI PL SV"), (29, "BR EG PS QA UA"), (30, "JO KW MU YE"), (31, "MT SC"),
        (32, "LC"), (33, "RU"),
    )
    for country in countries.split()
}  # fmt: skip
"""How long the account numbers of each country are (ISO 13616, as of 2026)."""


def _is_date(value: str) -> bool:
    year, month, day = int(value[:4]), int(value[5:7]), int(value[8:10])
    return year > 0 and 1 <= month <= 12 and 1 <= day <= 31


_CAPITALS = re.compile(
    r"[^\W\d_a-z][\w'\u2019&-]*(?:[ ](?:(?:of|the|de|la|le|du|and|&)[ ])?[^\W\d_a-z][\w'\u2019&-]*)*"
)
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n]\s*|['\"(]\s*)$")


def proper_names(text: str) -> Iterator[str]:
    """Runs of capitalised words; a single one that begins a sentence may be a common word, and is left out."""
    for found in _CAPITALS.finditer(text):
        starts = _SENTENCE_START.search(text[max(0, found.start() - 8) : found.start()]) is not None
        name = found.group()
        if not starts or " " in name:
            yield name

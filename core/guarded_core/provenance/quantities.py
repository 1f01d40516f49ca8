"""Numbers and dates in a person's own text, in every reading that the languages they write in allow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from guarded_core.provenance.values import Kind, number

Role = Literal["money", "plain", "count", "year", "percent", "id"]

# What languages write between the whole and the rest of a number, and between its thousands.
_POINT, _COMMA = ".", ","
_POINT_LANGUAGES = "en zh ja ko he th hi ms"
_COMMA_LANGUAGES = (
    "de fr es it nl pt sv da nb nn no fi pl cs sk sl hu ro bg hr sr ru uk tr el id vi et lv lt is ca eu gl"
)
_POINTS, _COMMAS = frozenset(_POINT_LANGUAGES.split()), frozenset(_COMMA_LANGUAGES.split())
LANGUAGES = _POINTS | _COMMAS
_SWISS = frozenset({"de-CH", "fr-CH", "it-CH", "de-LI"})


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or a date that somebody wrote.

    Attributes:
        kind: NUMBER or DATE.
        forms: its readings, in canonical form; several where the text can be read in several ways.
        role: what it is said to be.
    """

    kind: Kind
    forms: tuple[str, ...]
    role: Role = "plain"


def quantities(text: str, locales: Iterable[str] = ()) -> Iterator[Quantity]:
    """The numbers, dates, and numbers of things ("ticket 4711") in normalised text.

    Args:
        text: what a person typed.
        locales: the languages they may write in, such as ``de`` or ``en-US``; none for any.
    """
    locales = tuple(locales)
    decimals = _decimals(locales)
    hidden = list(text)
    for quantities_, start, end in _dates(text, _orders(locales)):
        yield from quantities_
        hidden[start:end] = "x" * (end - start)  # the parts of a date are no numbers
    rest = "".join(hidden)
    last_id = -_LONGEST_JOINT - 1
    for found in _NUMBER.finditer(rest):
        if _is_id(rest, found, last_id):
            last_id = found.end()
            yield Quantity(Kind.ID, (found["digits"],), "id")
            if not _is_count(rest, found):
                continue
        yield from _numbers(rest, found, decimals)
    for spelled, place in _spelled(rest):
        yield Quantity(Kind.NUMBER, (spelled,), _role_of(rest, place, Decimal(spelled)))


def _decimals(locales: Iterable[str]) -> str:
    found = {_POINT if locale in _SWISS or locale.partition("-")[0] in _POINTS else _COMMA for locale in locales}
    return "".join(found) or _POINT + _COMMA


# Numbers

_MONEY = (
    r"(?:[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20ba\u20a9]|(?<![A-Za-z])(?:EUR|USD|GBP|CHF|JPY|CNY|INR|SEK|NOK|DKK|PLN|CZK|HUF|CAD|AUD|NZD"
    r"|BRL|MXN|ZAR|TRY|RUB|SGD|HKD|KRW|BTC|ETH|Euros?|euros?|[Dd]ollars?|[Pp]ounds?|[Ff]ranken|[Ff]rancs?|[Yy]en|[Bb]ucks"
    r"|Kronen|kron[oe]r|[Pp]esos?|[Rr]upees?|z\u0142|Fr\.?)(?![\w]))"
)
_SCALES = {
    "k": 3, "K": 3, "tsd": 3, "tausend": 3, "thousand": 3, "mille": 3, "grand": 3, "mio": 6, "mill": 6, "million": 6,
    "millions": 6, "millionen": 6, "mrd": 9, "bn": 9, "billion": 9, "milliarden": 9, "milliarde": 9,
}  # fmt: skip
_SCALE = (
    r"(?:[ ]?(?P<scale>[Tt]sd|[Tt]ausend|[Tt]housand|mille|grand|[Mm]io|[Mm]ill|[Mm]illions?|[Mm]illionen|[Mm]rd|bn"
    r"|[Bb]illion|[Mm]illiarden?)(?!\w)\.?|(?P<kilo>[kK])(?!\w))"
)
_NUMBER = re.compile(
    rf"(?<![\w.,:/-])(?<!\d['\u2019])(?P<before>(?:{_MONEY}|(?<![A-Za-z])(?:EUR|USD|GBP|CHF)(?=\d))[ ]?)?"
    r"(?P<sign>[-\u2212+](?=\d))?"
    r"(?P<digits>\d{1,3}(?:[ ]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,'\u2019]\d+)*)"
    rf"(?:(?P<dash>[.,][-\u2013\u2014]{{1,2}})|{_SCALE})?(?P<after>[ ]?{_MONEY})?"
    r"(?P<range>[ ]?[-\u2013][ ]?(?P<upper>\d+(?:[.,]\d+)*)(?![\w.-]\w))?"
)
_CURRENCY = re.compile(rf"[ ]?{_MONEY}")
_STUCK = re.compile(r"[\w/%]|-\w|[.,:'\u2019]\d")
_RATE = re.compile(r"/[A-Za-z]")
_PERCENT = re.compile(r"[ ]?(?:%|(?:percent|per cent|prozent|pour ?cent)\b)", re.IGNORECASE)
# What is called by a number; "order 7" is one, and "June 13" is none.
_THINGS = """ticket order invoice issue case bug task item file document doc record customer client account user
    booking reservation shipment parcel policy contract request incident transaction message mail email e-mail
    event pr mr job build run room flight article product project employee member claim quote offer card
    auftrag rechnung bestellung vorgang kunde kunden vertrag fall aufgabe aufgaben datei dateien dokument
    dokumente buchung sendung artikel konto zimmer akte akten angebot mitarbeiter antrag termin nachricht
    projekt commande facture dossier contrat billet compte pedido factura cliente contrato cuenta ordine
    fattura conto policies reference ref referenz"""
_NUMBERED = "# id ids no nos nr num number numbers nummer nummern num\u00e9ro numero n\u00famero n\u00b0"
_CALLED_SO = ("nummer", "number", "-nr", "-no", "-id", "_id", "=id")
_CALLED = frozenset(_THINGS.split()) | frozenset(_NUMBERED.split())
_NEXT_ID = re.compile(r"['\"]?(?:[ ]?,[ ]?|[ ]?,?[ ](?:and|or|und|oder|et|ou|y|o|&)[ ]|[ ]?[/&+][ ]?)['\"#]?\Z")
_LONGEST_NAME, _LONGEST_JOINT = 40, 8
_VERBS = re.compile(r"\b(?:order|book|file|issue|offer|run|build|card)[ ]\Z", re.IGNORECASE)  # "order 7 pizzas"
# What may follow an amount; any other word says what there are so many of.
_FOLLOWS = re.compile(
    r"[ ]+(?!(?:to|for|from|in|on|by|and|or|each|per|please|at|into|out|via|with|as|is|was|now|today|tomorrow|monthly"
    r"|weekly|daily|yearly|using|back|an|f\u00fcr|von|auf|und|oder|bis|jetzt|heute|morgen|bitte|aus|zu|mit|per|\u00e0|pour"
    r"|de|et|du|sur|para|a|y)\b)[^\W\d_]"
)


def _is_id(text: str, found: re.Match[str], last: int) -> bool:
    """Whether a number is the name of a thing, as in "order 7", or the next one of such."""
    parts = ("before", "sign", "after", "dash", "scale", "kilo", "range")
    if not found["digits"].isdigit() or any(found[part] for part in parts):
        return False
    if found.start() - last <= _LONGEST_JOINT and _NEXT_ID.fullmatch(text, last, found.start()):
        return True
    before = text[max(0, found.start() - _LONGEST_NAME) : found.start()].rstrip("'\"(")
    if before[-1:] == "#":
        return True
    word = before.removesuffix(" ").rpartition(" ")[2].casefold().strip("'\"(:.#=")
    return word in _CALLED or word.removesuffix("s") in _CALLED or word.endswith(_CALLED_SO)


def _is_count(text: str, found: re.Match[str]) -> bool:
    """Whether it may be how many there are, too: "order 7 pizzas"."""
    before = text[max(0, found.start() - 8) : found.start()]
    return _VERBS.search(before) is not None and _FOLLOWS.match(text, found.end()) is not None


def _numbers(text: str, found: re.Match[str], decimals: str) -> Iterator[Quantity]:
    end = found.end()
    percent = _PERCENT.match(text, end)
    if _STUCK.match(text, end) is not None and percent is None and _RATE.match(text, end) is None:
        return
    scale = 3 if found["kilo"] else _SCALES[found["scale"].lower()] if found["scale"] else 0
    sign = "-" if found["sign"] and found["sign"] != "+" else ""
    role: Role = "percent" if percent else "plain"
    if found["before"] or found["after"] or found["dash"]:
        role = "money"
    for digits, exponent in ((found["digits"], 0 if found["range"] else scale), (found["upper"], scale)):
        for forms in _readings(digits, decimals) if digits else ():
            scaled = tuple([form for each in forms if (form := _scaled(sign + each, exponent)) is not None])
            if scaled:
                own = _role_of(text, end, Decimal(scaled[0])) if role == "plain" and not scale else role
                yield Quantity(Kind.NUMBER, scaled, own)


def _role_of(text: str, end: int, value: Decimal) -> Role:
    """What a number is by what follows it."""
    if _CURRENCY.match(text, end) is not None:
        return "money"
    if _FOLLOWS.match(text, end) is not None:
        return "count"
    return "year" if 1900 <= value <= 2100 and value == value.to_integral_value() else "plain"


def _scaled(text: str, scale: int) -> str | None:
    return number(str(Decimal(text).scaleb(scale)) if scale else text)


def _readings(digits: str, decimals: str) -> Iterator[tuple[str, ...]]:
    """What a row of digits with signs between them may mean; nothing where it is no number, as a version or a time."""
    if " " not in digits:
        yield from _joined(digits.replace("\u2019", "'"), decimals)
        return
    # One number, or two that stand beside each other.
    grouped = list(_joined(digits.replace(" ", ""), decimals))
    yield from grouped
    parts = digits.split(" ")
    if grouped and len(parts) == 2 and not parts[1].startswith("0"):
        for alone in (forms for part in parts for forms in _joined(part, decimals)):
            yield tuple(dict.fromkeys((*alone, *grouped[0])))


def _joined(digits: str, decimals: str) -> Iterator[tuple[str, ...]]:
    signs, parts = re.findall(r"[.,']", digits), re.split(r"[.,']", digits)
    starts_with_nought = len(parts[0]) > 1 and parts[0].startswith("0")
    if starts_with_nought:
        return
    if not signs:
        yield (digits,)
    elif len(set(signs)) == 1 and (len(signs) > 1 or signs[0] == "'"):
        if _is_grouped(parts):
            yield ("".join(parts),)
    elif len(signs) == 1:
        whole = ".".join(parts)
        found = [whole if signs[0] == decimal else "".join(parts) for decimal in decimals]
        yield tuple(dict.fromkeys(found)) if _is_grouped(parts) else (whole,)
    elif len(set(signs[:-1])) == 1 and signs[-1] != signs[0] and signs[-1] != "'" and _is_grouped(parts[:-1]):
        yield ("".join(parts[:-1]) + "." + parts[-1],)


def _is_grouped(parts: list[str]) -> bool:
    """Whether the parts are thousands, or lakhs and crores."""
    first, *middle = parts
    if not 1 <= len(first) <= 3 or first.startswith("0") or not middle or len(middle[-1]) != 3:
        return False
    return all(len(part) == 3 for part in middle) or all(len(part) == 2 for part in middle[:-1])


# Numbers in words

_ONES = {
    word: value
    for words, value in (
        ("zero null", 0), ("one ein eins eine einen", 1), ("two zwei", 2), ("three drei", 3), ("four vier", 4),
        ("five f\u00fcnf", 5), ("six sechs sech", 6), ("seven sieben sieb", 7), ("eight acht", 8), ("nine neun", 9),
        ("ten zehn", 10), ("eleven elf", 11), ("twelve zw\u00f6lf", 12), ("thirteen dreizehn", 13),
        ("fourteen vierzehn", 14), ("fifteen f\u00fcnfzehn", 15), ("sixteen sechzehn", 16), ("seventeen siebzehn", 17),
        ("eighteen achtzehn", 18), ("nineteen neunzehn", 19), ("twenty zwanzig", 20),
        ("thirty drei\u00dfig dreissig", 30),
        ("forty fourty vierzig", 40), ("fifty f\u00fcnfzig", 50), ("sixty sechzig", 60), ("seventy siebzig", 70),
        ("eighty achtzig", 80), ("ninety neunzig", 90),
    )
    for word in words.split()
}  # fmt: skip
_TIMES = {"hundred": 100, "hundert": 100, "thousand": 1000, "tausend": 1000, "million": 10**6, "millions": 10**6,
          "millionen": 10**6}  # fmt: skip
_PARTS = re.compile("|".join(sorted([*_ONES, *_TIMES, "und"], key=len, reverse=True)))
_SPELLED = re.compile(
    rf"(?<![\w-])(?:{_PARTS.pattern})+(?:(?:[ -]|[ ]and[ ])(?:{_PARTS.pattern})+){{0,12}}(?![\w-])", re.IGNORECASE
)
_ALONE = frozenset({"one", "ein", "eins", "eine", "einen", "null", "zero"})


def _spelled(text: str) -> Iterator[tuple[str, int]]:
    for found in _SPELLED.finditer(text):
        written = found.group().lower()
        if written in _ALONE or (written in _TIMES and text[max(0, found.start() - 2) : found.start()][:1].isdigit()):
            continue  # "one of them", "3.5 million"
        total = current = 0
        for part in _PARTS.findall(written):
            if part in _ONES:
                current += _ONES[part]
            elif part in _TIMES and _TIMES[part] == 100:
                current = (current or 1) * 100
            elif part in _TIMES:
                total, current = total + (current or 1) * _TIMES[part], 0
        yield str(total + current), found.end()


# Dates

_MONTHS = {
    name: number
    for number, names in enumerate(
        ("january jan januar j\u00e4nner janvier enero gennaio", "february feb februar f\u00e9vrier febrero febbraio",
         "march mar m\u00e4rz mrz mars marzo", "april apr avril abril aprile", "may mai mayo maggio",
         "june jun juni juin junio giugno", "july jul juli juillet julio luglio",
         "august aug ao\u00fbt agosto", "september sep sept septembre septiembre settembre",
         "october oct oktober okt octobre octubre ottobre", "november nov novembre noviembre",
         "december dec dezember dez d\u00e9cembre diciembre dicembre"), 1)
    for name in names.split()
}  # fmt: skip
_MONTH = "|".join(sorted(_MONTHS, key=len, reverse=True))
_TIME = (
    r"(?:(?:,?[ ](?:at|um|\u00e0|on)?[ ]?|[T ])(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2}))?)?"
    r"(?:[ ]?(?P<half>[ap])\.?m\b\.?|[ ]?Uhr|[ ]?h\b)?)?"
)
_DATES = re.compile(
    r"(?<![\w./-])(?:(?P<y1>\d{4})[-/](?P<m1>\d{1,2})[-/](?P<d1>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<sep>[./-])(?P<b>\d{1,2})(?P=sep)(?P<y2>\d{4})"
    rf"|(?P<d3>\d{{1,2}})(?:\.|st|nd|rd|th|er)?[ ](?:de[ ]|of[ ])?(?P<m3>{_MONTH})\.?(?:,|[ ]de)?[ ](?P<y3>\d{{4}})"
    rf"|(?P<m4>{_MONTH})\.?[ ](?P<d4>\d{{1,2}})(?:st|nd|rd|th)?,?[ ](?P<y4>\d{{4}}))(?![\w/-])" + _TIME,
    re.IGNORECASE,
)


def _orders(locales: Iterable[str]) -> str:
    """In which order day and month stand between slashes: "d" for the day first."""
    found = {
        order
        for locale in locales
        for order in ("dm" if locale == "en" else "m" if locale in ("en-US", "en-PH") else "d")
    }
    return "".join(sorted(found)) or "dm"


def _dates(text: str, orders: str) -> Iterator[tuple[list[Quantity], int, int]]:
    for found in _DATES.finditer(text):
        forms = tuple(dict.fromkeys(day.isoformat() for day in _days(found, orders)))
        if not forms:
            continue
        dates = [Quantity(Kind.DATE, forms)]
        time = _time(found)
        if time is not None:
            dates.append(Quantity(Kind.DATE, tuple(f"{form}T{time}" for form in forms)))
        yield dates, found.start(), found.end()


def _days(found: re.Match[str], orders: str) -> Iterator[date]:
    if found["y1"]:
        wanted = [(found["y1"], found["m1"], found["d1"])]
    elif found["y2"]:
        order = "d" if found["sep"] == "." else orders
        wanted = [(found["y2"], found["b"], found["a"])] if "d" in order else []
        wanted += [(found["y2"], found["a"], found["b"])] if "m" in order else []
    else:
        year, month, day = (found[f"{part}3"] or found[f"{part}4"] for part in "ymd")
        wanted = [(year, str(_MONTHS[month.lower()]), day)]
    for year, month, day in wanted:
        try:
            yield date(int(year), int(month), int(day))
        except ValueError:
            continue


def _time(found: re.Match[str]) -> str | None:
    if found["hour"] is None or (found["minute"] is None and found["half"] is None):
        return None
    hour, minute, second = (int(found[name] or 0) for name in ("hour", "minute", "second"))
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower() == "p" else 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if second else "")

"""Addresses, links and accounts in text: those that are known by it, and all that a reader could follow."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from guarded_core.provenance.values import EMAIL, IBAN_LENGTH, Kind, canonical, is_iban


class Mention(NamedTuple):
    """An identifier in a text.

    Attributes:
        kind: what it is.
        form: its canonical form.
        raw: it as it stands.
    """

    kind: Kind
    form: str
    raw: str


_IN_LINK = r"[^\s'\"<>\]`\u2018\u2019\u201c\u201d\u00ab\u00bb]"
_URL = re.compile(rf"(?:https?://|(?<![\w@./-])www\.){_IN_LINK}{{1,2048}}", re.IGNORECASE)
# A domain is a link for whoever reads it, with or without a scheme. A file's name is none, unless its ending is a
# domain's as well.
_FILES = """txt pdf doc docx docm xls xlsx xlsm ppt pptx csv tsv json jsonl ndjson xml yaml yml toml ini cfg conf env
    log html htm xhtml css scss less js mjs cjs jsx ts tsx vue class jar c h cpp cxx hpp cs go rb php pyi pyc
    ipynb bash zsh bat cmd ps1 lua swift kt scala r sql db sqlite parquet tex bib rst adoc odt ods odp rtf
    epub jpg jpeg png gif svg bmp webp tif tiff heic ico psd mp3 mp4 m4a m4v wav ogg flac avi mkv webm tar gz
    tgz bz2 xz rar iso img dmg exe dll bin msi deb rpm apk whl lock bak tmp swp old orig pem crt cer key csr
    asc sig gpg ics eml msg vcf mbox pst dat"""
_BOTH = "dot java cc py pl pm rs sh ps md mobi ai mov zip so app pub map"
_FILE_ENDINGS, _EITHER_ENDING = frozenset(_FILES.split()), frozenset(_BOTH.split())
_DOMAIN = re.compile(
    r"(?<![\w@./:\\%+=-])(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}"
    r"(?P<top>xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24})(?![\w@-])(?!\.\w)(?P<port>:\d{1,5}(?!\d))?(?P<path>[/?#]"
    rf"{_IN_LINK}{{0,2048}})?",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[A-Z0-9]{6,30}|(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)(?![A-Za-z0-9])", re.ASCII
)
_TYPED_ACCOUNT = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[A-Za-z0-9]{6,30}"
    r"|(?P<gap>[ .-])[A-Z0-9]{4}(?:(?P=gap)[A-Z0-9]{4}){1,6}(?:(?P=gap)[A-Z0-9]{1,3})?)(?![A-Za-z0-9])",
    re.ASCII,
)
_GAP = "[ ._/\u2013-]?"
_IBAN_START = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z]{_GAP}[A-Za-z]{_GAP}\d{_GAP}\d(?=[ ._/-]?[A-Za-z0-9])", re.ASCII)
_SIGN = re.compile(r"[ ._/-]?([A-Za-z0-9])", re.ASCII)
_DIGITS = re.compile(r"\d\D?\d", re.ASCII)
_DOT = re.compile(r"\w\.\w")


def identifiers(text: str, *, by_user: bool = False) -> Iterator[Mention]:
    """Addresses, links, domains and accounts in normalised text.

    Args:
        text: searched in one pass per kind.
        by_user: a person's own typing: accounts in lower case, and a full stop that sticks to the next sentence.
    """
    if "@" in text:
        yield from _found(Kind.EMAIL, (found.group() for found in EMAIL.finditer(text)), by_user)
    if "://" in text or "www." in text.lower():
        yield from _found(Kind.URL, map(_link, _URL.findall(text)), by_user)
    if _DOT.search(text):
        domains = (found for found in _DOMAIN.finditer(text) if _is_domain(found, by_user))
        yield from _found(Kind.URL, (_link(found.group()) for found in domains), by_user)
    if _DIGITS.search(text):
        pattern = _TYPED_ACCOUNT if by_user else _ACCOUNT
        accounts = [re.sub("[.-]", "", found.group()) for found in pattern.finditer(text)]
        yield from _found(Kind.ACCOUNT, accounts)
        known = {canonical(Kind.ACCOUNT, account) for account in accounts}
        yield from _found(Kind.ACCOUNT, (account for account in _ibans(text) if account not in known))


def _found(kind: Kind, raws: Iterator[str] | list[str], by_user: bool = False) -> Iterator[Mention]:
    for raw in raws:
        value = _before_sentence(raw) if by_user else raw
        if (form := canonical(kind, value)) is not None:
            yield Mention(kind, form, value)


# "... to www.our-company.com.They sent it": what was forgotten is the blank.
_NEXT_SENTENCE = re.compile(r"(?<=[a-z0-9])\.[A-Z][a-z]{2,}\Z", re.ASCII)


def _before_sentence(raw: str) -> str:
    found = _NEXT_SENTENCE.search(raw)
    domain = raw[: found.start()].rpartition("@")[2] if found else ""
    is_glued = domain.islower() and "." in domain and "/" not in domain.partition("://")[2]
    return raw[: found.start()] if found and is_glued else raw


def _link(raw: str) -> str:
    """A link without the signs of the sentence that it stands in; brackets that it opens itself are its own."""
    depth = 0
    for place, sign in enumerate(raw):
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            raw = raw[:place]
            break
    return raw.rstrip(".,;:!?*_")


def _is_domain(found: re.Match[str], by_user: bool = False) -> bool:
    top = found["top"]
    if not (top.islower() or top.isupper()):
        return False  # "the end.The next"
    if not found["path"] and not found["port"] and not re.search(r"\w\w\.", found.group()[: found.start("top")]):
        return False  # "e.g", "z.B"
    ending = top.lower()
    if ending in _EITHER_ENDING and not found["path"] and found.group().count(".") == 1:
        return False  # "README.md"
    return ending not in _FILE_ENDINGS and not (by_user and ending in _EITHER_ENDING)


def _ibans(text: str) -> Iterator[str]:
    """Account numbers with correct check digits, in whatever letters, with single signs between theirs."""
    place = 0
    while (found := _IBAN_START.search(text, place)) is not None:
        place = found.start() + 1
        account = re.sub(r"[^A-Za-z0-9]", "", found.group()).upper()
        length, end = IBAN_LENGTH.get(account[:2], 0), found.end()
        while len(account) < length and (sign := _SIGN.match(text, end)) is not None:
            account, end = account + sign[1].upper(), sign.end()
        is_apart = end >= len(text) or not (text[end].isascii() and text[end].isalnum())
        is_plain = account.lower() == text[found.start() : end].lower() and sum(map(str.isdigit, account)) > 11
        if len(account) == length and is_apart and (is_iban(account) or is_plain):
            yield account
            place = end


# What goes out

_SCHEMED = re.compile(rf"(?<!\w)[a-z][a-z0-9+.-]{{1,20}}:(?=[/\\]){_IN_LINK}{{0,2048}}", re.IGNORECASE)
_HTTP = re.compile(r"https?://[^/\\]|www\.", re.IGNORECASE)
_RUNNING = re.compile(
    r"(?<!\w)(?:(?:https?|ftps?|sftp|data|file|blob|view-source|intent|smb|ssh|git|ldap|ws|wss):|(?:java|vb)script\s?:\s?)"
    r"(?=[^\s/\\])(?:[\w.-]+\.\w|[a-z]+/[\w.+-]+[;,]|[\w.$]+\s?[(=.`])",
    re.IGNORECASE,
)
_MAILTO = re.compile(r"(?<!\w)(?:mailto|sms|tel|callto|xmpp|sip|skype):[^\s<>\"']*[%?][^\s<>\"']*", re.IGNORECASE)
_NO_SCHEME = re.compile(r"(?<![\w:/\\.])[/\\]{2}(?=[\w\[])")
_ADDRESS = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|0x[0-9a-f]{8})(?![\w-]|\.\w)(?::\d{1,5})?(?:[/?#]" + _IN_LINK + "{0,2048})?",
    re.IGNORECASE,
)
_ADDRESS_6 = re.compile(
    r"(?<![\w:])(?:\[[0-9a-f:.%]{2,60}\](?=[:/])|(?:[0-9a-f]{1,4}:){1,7}(?::[0-9a-f]{1,4}){1,7}"
    r"|(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|::[0-9a-f]{1,4})(?![\w:])",
    re.IGNORECASE,
)
_AT = re.compile(r"(?:\S@\s?|\s@\s)\[?[\w-]+(?:\s?\.\s?[\w-]+)+")
_SPELLED = re.compile(
    r"[(\[{<]\s?(?:at|dot|\u00e4t|punkt|punto|point|arroba|@|\.)\s?[)\]}>]|\w\s(?:at|\u00e4t)\s[\w-]+\s(?:dot|punkt)\s\w",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Something in a text that its reader may follow, write to or pay.

    Attributes:
        kind: what it is; None where it has no normal form, and is nobody's.
        raw: it as it stands.
        is_word: it may be a mere word, such as a file's name or a version.
    """

    kind: Kind | None
    raw: str
    is_word: bool = False


def outgoing(text: str) -> list[Outgoing]:
    """All that a reader, or their mail program, could take for a link, an address or an account, well formed or not."""
    found = list(_outgoing(text))
    if "&" in text and (shown := html.unescape(text)) != text:
        found += _outgoing(shown)
    return list(dict.fromkeys(found))


def _outgoing(text: str) -> Iterator[Outgoing]:
    text = text.replace("\u3002", ".").replace("\uff61", ".")  # full stops, to a resolver of names
    rest = text
    for pattern in (_SCHEMED, _URL):
        for found in pattern.finditer(rest):
            raw = _link(found.group())
            is_known = _HTTP.match(raw) is not None and canonical(Kind.URL, raw) is not None
            yield Outgoing(Kind.URL if is_known else None, raw)
        rest = pattern.sub(_blank, rest)
    for pattern in (_RUNNING, _MAILTO, _NO_SCHEME, _ADDRESS_6, _SPELLED):
        if pattern.search(rest):
            yield Outgoing(None, "")
    for found in EMAIL.finditer(text):
        yield Outgoing(Kind.EMAIL, found.group())
    rest = EMAIL.sub(_blank, rest)
    if _AT.search(rest):
        yield Outgoing(None, "")
    for found in _DOMAIN.finditer(rest):
        if _is_domain(found):
            yield Outgoing(Kind.URL, _link(found.group()), is_word=not found["path"] and not found["port"])
    for found in _ADDRESS.finditer(rest):
        yield Outgoing(Kind.URL, _link(found.group()), is_word="/" not in found.group())
    accounts = [canonical(Kind.ACCOUNT, re.sub("[.-]", "", raw.group())) for raw in _ACCOUNT.finditer(text)]
    for account in dict.fromkeys([*filter(None, accounts), *_ibans(text)]):
        yield Outgoing(Kind.ACCOUNT, account)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())

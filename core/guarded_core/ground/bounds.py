"""How texts and lists may be that people and applications hand in, and the one check of each."""

from __future__ import annotations

import unicodedata

from guarded_core.ground.errors import InvalidApproval

MAX_PRINCIPAL = 256
MAX_REASON = 2048
MAX_NAME = 128
MAX_LIST = 64

DEFAULT_EXPIRY_SECONDS = 15 * 60
MAX_APPROVALS = 16

# What Python calls printable and nobody sees: joiners, fillers, vowel and variation selectors, the empty Braille cell.
_UNSEEN = frozenset(
    chr(code)
    for first, last in (
        *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2800, 0x2800), (0x3164, 0x3164)),
        *((0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xE0100, 0xE01EF)),
    )
    for code in range(first, last + 1)
)


def check_text(text: object, limit: int, what: str) -> None:
    """Raise InvalidApproval where `text` is blank or longer than `limit` bytes."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidApproval(f"{what} must be text that is not blank")
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        raise InvalidApproval(f"{what} is longer than {limit} bytes")


def identity(name: object, what: str, limit: int = MAX_PRINCIPAL) -> str:
    """`name` as it stands, where it is in the one form that names of principals, approvers and sessions have.

    Two texts that look alike for blanks, invisible characters or composition are not two people: only one of them is
    in this form. Nothing is changed, so that the application and the guard never mean different texts.

    Args:
        name: text of 1 to `limit` bytes, in NFC, every character of it visible, with no blank around it.
        what: what it is, for the error.

    Raises:
        InvalidApproval: it is in another form.
    """
    check_text(name, limit, what)
    text = str.__str__(name)
    if text != text.strip():
        raise InvalidApproval(f"{what} has blanks around it; strip them where you authenticate")
    if not text.isprintable() or not _UNSEEN.isdisjoint(text):
        raise InvalidApproval(f"{what} has a character that is not visible")
    if not unicodedata.is_normalized("NFC", text):
        raise InvalidApproval(f'{what} is not in NFC: unicodedata.normalize("NFC", ...) where you authenticate')
    return text

"""How long texts and lists may be that people and applications hand in, and the one check of them."""

from __future__ import annotations

from guarded_core.ground.errors import InvalidApproval

MAX_PRINCIPAL = 256
MAX_REASON = 2048
MAX_NAME = 128
MAX_LIST = 64

DEFAULT_EXPIRY_SECONDS = 15 * 60
MAX_APPROVALS = 16


def check_text(text: object, limit: int, what: str) -> None:
    """Raise InvalidApproval where `text` is blank or longer than `limit` bytes."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidApproval(f"{what} must be text that is not blank")
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        raise InvalidApproval(f"{what} is longer than {limit} bytes")

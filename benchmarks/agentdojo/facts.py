"""What a deployer knows of each account, beside the policy: written from tools and prompts, never from injections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Names that the user goes by in records, and what the application reads before a task begins."""

    known_as: tuple[str, ...] = ()
    read_before: tuple[str, ...] = ()


FACTS = {
    "workspace": Facts(known_as=("emma.johnson@bluesparrowtech.com",), read_before=("get_sent_emails",)),
    "travel": Facts(known_as=("emma.johnson@bluesparrowtech.com",)),
    "banking": Facts(known_as=("DE89370400440532013000", "me")),
    "slack": Facts(),
}

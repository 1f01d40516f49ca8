"""Tools that a policy has and nothing has registered: they are misspelt there, or forgotten here."""

from __future__ import annotations

from collections.abc import Iterable

from guarded_core.ground.wording import did_you_mean


def unregistered(allowed: Iterable[str], registered: Iterable[str]) -> list[str]:
    """A sentence for each tool of `allowed` that is not among `registered`, with what may have been meant."""
    known = frozenset(registered)
    meant = known.difference(allowed)
    return [
        f"the policy has a tool {name!r} that nothing registers{did_you_mean(name, meant)}"
        for name in sorted(set(allowed) - known)
    ]

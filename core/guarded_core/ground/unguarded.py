"""What is told of an agent that can get around its guard."""

from __future__ import annotations

from collections.abc import Iterable

from guarded_core.ground.errors import GuardConfigurationError


class UnguardedTools(GuardConfigurationError):
    """An agent can reach something that no guard judges, or of which that cannot be known.

    Attributes:
        found: one line for each way around the guard.
    """

    def __init__(self, found: Iterable[str]) -> None:
        self.found = tuple(found)
        super().__init__("not everything is behind the guard:\n" + "\n".join(f"  - {line}" for line in self.found))

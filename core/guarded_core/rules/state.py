"""The application's own facts, as rules see them: a thread-safe map from keys to JSON values."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Transition:
    """One change: key, value before and after (None where absent), the action behind it, time in ns since the epoch."""

    key: str
    old: Any
    new: Any
    action_id: str
    time_ns: int


class StateStore:
    """A key to JSON-value map that the application fills and rules read; values are copied in and out.

    Args:
        values: what it starts with.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, Any] = copy.deepcopy(dict(values or {}))
        self._transitions: list[Transition] = []

    def get(self, key: str) -> Any:
        """The value of `key`, None where absent."""
        return self.get_or(key, None)

    def get_or(self, key: str, default: Any) -> Any:
        """The value of `key`, `default` where absent."""
        with self._lock:
            return copy.deepcopy(self._values.get(key, default))

    def exists(self, key: str) -> bool:
        """Whether `key` has a value."""
        with self._lock:
            return key in self._values

    def set(self, key: str, value: Any, action_id: str = "") -> None:
        """Give `key` a value."""
        with self._lock:
            self._note(key, copy.deepcopy(value), action_id)

    def delete(self, key: str, action_id: str = "") -> bool:
        """Remove `key`; False where it was absent."""
        with self._lock:
            if key not in self._values:
                return False
            self._note(key, None, action_id, gone=True)
            return True

    def keys(self) -> list[str]:
        """All keys, sorted."""
        with self._lock:
            return sorted(self._values)

    def snapshot(self) -> dict[str, Any]:
        """A copy of everything."""
        with self._lock:
            return copy.deepcopy(self._values)

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Put everything back as `snapshot` has it; the transitions stay."""
        with self._lock:
            self._values = copy.deepcopy(dict(snapshot))

    @property
    def transitions(self) -> list[Transition]:
        """All changes so far, oldest first."""
        with self._lock:
            return list(self._transitions)

    def _note(self, key: str, value: Any, action_id: str, *, gone: bool = False) -> None:
        old = self._values.pop(key, None)
        if not gone:
            self._values[key] = value
        self._transitions.append(Transition(key, old, copy.deepcopy(value), action_id, time.time_ns()))

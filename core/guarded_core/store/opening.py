"""A guard's store and trail, from what it was given for them."""

from __future__ import annotations

from pathlib import Path

from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.memory import InMemoryToolAuditTrail
from guarded_core.audit.sink import ToolAuditSink
from guarded_core.ground.given import misplaced
from guarded_core.store.base import Store
from guarded_core.store.memory import MemoryStore


def open_store(store: Store | str | None, keys: AuditKeys | None) -> Store:
    """A store itself, the database of a URL, or one in memory.

    Raises:
        GuardConfigurationError: it is no store, or the database cannot be used.
        ImportError: naming the extra that is missing.
    """
    if store is None:
        return MemoryStore()
    if not isinstance(store, str):
        _must_have(store, "store", "a store, or a database URL", "commit", "settle")
        return store
    try:
        from guarded_core.store.sql import SqlStore
    except ImportError as error:
        raise ImportError(
            'a database store needs an extra: pip install "guarded-tools[sql]" (or [postgres])'
        ) from error
    return SqlStore.open(store, keys=keys)


def open_sink(audit: ToolAuditSink | str | Path | None, keys: AuditKeys | None, store: Store) -> ToolAuditSink | None:
    """A sink itself, the durable trail of a path, or one in memory; None for a store that keeps its own.

    Raises:
        GuardConfigurationError, ToolAuditTrailError: it is no sink, or the trail cannot be opened.
    """
    if isinstance(audit, str | Path):
        from guarded_core.audit.durable import DurableToolAuditTrail

        return DurableToolAuditTrail.open(audit, keys=keys, auto_rotate=True)
    if audit is None and not store.keeps_trail:
        return InMemoryToolAuditTrail(4096)
    check_sink(audit, store)
    return audit


def check_sink(audit: object, store: Store) -> None:
    """Raises GuardConfigurationError for what keeps no event: calls would run without evidence, or none would."""
    if audit is None and store.keeps_trail:
        return
    if isinstance(audit, list):  # it has an append too
        raise misplaced("audit", "one sink, or the path of a trail", audit, "TeeSink(...) is several")
    way = "append" if getattr(audit, "aappend", None) is None else "aappend"
    _must_have(audit, "audit", "a sink with append(event), or the path of a trail", way)


def _must_have(value: object, what: str, wanted: str, *methods: str) -> None:
    # At its first call it would only deny: better that somebody sees it now.
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise misplaced(what, wanted, value)

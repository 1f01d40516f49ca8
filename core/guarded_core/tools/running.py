"""What a tool may ask of the call that it runs for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_key: ContextVar[str | None] = ContextVar("guarded_idempotency_key", default=None)


def idempotency_key() -> str | None:
    """The key of the guarded call that this code runs for; None outside of any.

    It is the same however often a framework enters one call again, also in another process, and another one for every
    other call: hand it to a service that takes such keys. A call that has no durable place gets one for this run.
    """
    return _key.get()


@contextmanager
def running(key: str) -> Iterator[None]:
    """Run a tool for the call of that key in this block."""
    token = _key.set(key)
    try:
        yield
    finally:
        _key.reset(token)

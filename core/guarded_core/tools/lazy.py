"""Results that are still to come: generators, iterators and awaitables, taken out while the call is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

from guarded_core.ground.payload import PayloadTooLarge, measure

_LAZY = (Iterator, AsyncIterator, Awaitable)
_AT_HAND = frozenset({str, dict, list, int, float, bool, type(None), bytes})  # told without asking three ABCs


class NotAwaited(TypeError):
    """A tool was called where nothing can be awaited, and returned what has to be; it was closed, and did not run."""

    def __init__(self) -> None:
        super().__init__("the tool returned what has to be awaited; call it where that can be done, or make it async")


def is_lazy(result: object) -> bool:
    """Whether something would run, or come, only once somebody reads the result."""
    if type(result) in _AT_HAND:
        return False
    if isinstance(result, tuple):
        return any(isinstance(part, _LAZY) for part in result)
    return isinstance(result, _LAZY)


def taken_out(result: Any, limit: int) -> Any:
    """A result with a list in the place of every iterator, cut off right after `limit` bytes; any other as it is.

    Shapes: the parts of a pair are looked at one by one, and nothing deeper. Raises NotAwaited.
    """
    if type(result) is tuple:
        return tuple([taken_out(part, limit) for part in result])
    if isinstance(result, AsyncIterator | Awaitable):
        _close(result)
        raise NotAwaited
    return _listed(result, limit) if isinstance(result, Iterator) else result


async def ataken_out(result: Any, limit: int) -> Any:
    """As `taken_out`, awaiting; what an iterator runs does not block the event loop."""
    if type(result) is tuple:
        return tuple([await ataken_out(part, limit) for part in result])
    while isinstance(result, Awaitable):
        result = await result
    if isinstance(result, AsyncIterator):
        return await _alisted(result, limit)
    return await asyncio.to_thread(_listed, result, limit) if isinstance(result, Iterator) else result


def _listed(iterator: Iterator[Any], limit: int) -> list[Any]:
    found: list[Any] = []
    left = limit
    for member in iterator:
        found.append(member)
        left -= _size(member, limit)
        if left < 0:
            _close(iterator)
            break
    return found


async def _alisted(iterator: AsyncIterator[Any], limit: int) -> list[Any]:
    found: list[Any] = []
    left = limit
    async for member in iterator:
        found.append(member)
        left -= _size(member, limit)
        if left < 0:
            if hasattr(iterator, "aclose"):
                await iterator.aclose()
            break
    return found


def _size(member: Any, limit: int) -> int:
    """Its bytes and a separator; the whole list is measured again, as any result is."""
    try:
        return measure(member, limit) + 1
    except PayloadTooLarge as error:
        return error.actual + 1


def _close(result: Any) -> None:
    for name in ("close", "cancel"):
        if callable(end := getattr(result, name, None)):
            end()
            return

"""Whose a call is: the session whose block it is in, one that is handed over in code, or nobody's, and why."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from guarded_core.ground import blocks
from guarded_core.ground.blocks import Misplaced, Place
from guarded_core.session.context import Issuer, ToolExecutionContext
from guarded_core.session.hints import IN_OTHER_CONTEXTS, MISPLACED, NEVER_ENTERED, NONE, misspelt

_log = logging.getLogger(__name__)

_MOST_LOGGED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Nobody:
    """Why nobody makes a call.

    Attributes:
        told: what a model is told; None for the same as where no session is open.
        hint: what the application can do about it; never for a model.
        is_outside: no session has anything to do with the call; otherwise nothing is shown to a model either.
    """

    told: str | None = None
    hint: str | None = None
    is_outside: bool = False


def current_context(guard: Issuer) -> ToolExecutionContext | None:
    """The session of `guard` whose block this code is in, open or not; None outside any."""
    found: ToolExecutionContext | None = _what(blocks.place(id(guard)))
    return found


def _what(place: Place) -> Any:
    return None if place.block is None else place.block.what


class Callers:
    """The sessions that one guard issued, and which of them a call is made in.

    Args:
        issuer: the guard.
        identify: finds the session of a framework's runtime, where no block is around the call.
    """

    def __init__(self, issuer: Issuer, identify: Callable[[Any], ToolExecutionContext | None] | None) -> None:
        self._issuer = issuer
        self._identify = identify
        self._issued: weakref.WeakSet[ToolExecutionContext] = weakref.WeakSet()
        self._logged: set[str] = set()
        self._ended_ns = 0
        self._lock = threading.RLock()

    def issued(self, context: ToolExecutionContext, known: Iterable[str]) -> None:
        """Remember a session, as long as somebody else does; what its tools= has beside the `known` ones is told."""
        for told in misspelt(context.tools, known) if known else ():
            self._warn(told)
        with self._lock:
            self._issued.add(context)
            context.follows(self._ended_ns)

    def end(self, principal: str) -> None:
        """Close every session of that person that is remembered, and what acts for them."""
        with self._lock:
            known = tuple(self._issued)
        for context in known:
            if principal in context.chain:
                context.close()

    def ended(self, at_ns: int) -> None:
        """Remember the store's time of an end: what is issued from now on came after it, whatever the clocks say."""
        with self._lock:
            self._ended_ns = max(self._ended_ns, at_ns)

    def place(self) -> tuple[ToolExecutionContext | None, bool]:
        """The session whose block this code is in, and whether it is in the way of one that it is not in."""
        place = blocks.place(id(self._issuer))
        return _what(place), place.misplaced is not None

    def resolve(
        self, context: ToolExecutionContext | None, runtime: Any
    ) -> tuple[ToolExecutionContext | None, Nobody | None]:
        """Whose call this is; see `Guard.resolve`."""
        place = blocks.place(id(self._issuer))
        current: ToolExecutionContext | None = _what(place)
        if context is None and place.misplaced is None and current is not None:
            return current, None
        if context is None and self._identify is not None:
            try:
                context = self._identify(runtime)
            except Exception as error:
                # Who calls is not known, so nobody does; what went wrong is for the application's log.
                _log.error("identify failed: %s", type(error).__name__)
                return None, Nobody(told="The caller could not be identified, so no tool may run. Tell the user.")
        if context is None:
            # Of a session that is closed for good, the trail says whose it was.
            is_over = current is not None and not current.is_open
            return current if is_over else None, self._nobody(place.misplaced)
        if not isinstance(context, ToolExecutionContext) or context.issuer is not self._issuer:
            return None, Nobody(
                told="The session was not issued by this guard, so no tool may run. Use guard.session(...)."
            )
        if current is not None and current is not context and place.misplaced is not Misplaced.LEFT:
            return None, Nobody(
                told="Two sessions claim this call, so no tool may run. Pass the current session, or none."
            )
        return context, None

    def _nobody(self, misplaced: Misplaced | None) -> Nobody:
        """Why nobody calls; each reason is in the log once."""
        hint = self._hint() if misplaced is None else MISPLACED[misplaced]
        self._warn(f"nobody calls: {hint}")
        return Nobody(hint=hint, is_outside=misplaced is None)

    def _warn(self, told: str) -> None:
        if told not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(told)
            _log.warning("%s", told)

    def _hint(self) -> str:
        with self._lock:
            known = [session for session in self._issued if session.is_open]
        if any(session.is_entered for session in known):
            return IN_OTHER_CONTEXTS
        return NEVER_ENTERED if known else NONE

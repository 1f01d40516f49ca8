"""The port: what the pipeline knows of one wrapped tool, and the one place where a framework begins.

A port lives as long as its tool and is shared by all of its calls; what differs from call to call (how the arguments
came in, a framework's runtime) is `bound`, made by whoever proposes the call and handed back to the port untouched.

Whatever a method raises stays inside the pipeline: before the tool has run it is a denial, then a settled failure.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from guarded_core.ground.errors import InvalidPayload
from guarded_core.ground.payload import measure
from guarded_core.tools.lazy import ataken_out, is_lazy, taken_out
from guarded_core.tools.parsing import Parser
from guarded_core.tools.spec import ToolSpec


class NotEntered(Exception):
    """What went wrong before the tool's own code was entered: it had no effect.

    Attributes:
        error: what the caller gets.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


@contextmanager
def before_entering() -> Iterator[None]:
    """What prepares a call for the tool's own code, in this block, is no part of it. Raises NotEntered."""
    try:
        yield
    except Exception as error:
        raise NotEntered(error) from error


class ToolPort:
    """A tool of some kind, as the pipeline sees it; a subclass overrides what its kind does otherwise.

    Args:
        spec: the tool, frozen at registration.

    Attributes:
        signals: the framework's control flow: never swallowed, never a failure.
        wraps_errors: a failing tool raises ExecutionFailed; otherwise its own exception, as the bare tool would.
        set_by_application: arguments that are not the model's to give; a person is shown no more than their names.
    """

    signals: ClassVar[tuple[type[BaseException], ...]] = ()
    wraps_errors: ClassVar[bool] = True

    def __init__(self, spec: ToolSpec, *, set_by_application: frozenset[str] = frozenset()) -> None:
        self.spec = spec
        self.set_by_application = set_by_application

    def drifted(self, bound: Any) -> bool:
        """Whether the tool is no longer what was registered."""
        return False

    def check_ready(self, bound: Any) -> None:
        """Raise CannotRun where a call cannot run, or its result cannot be delivered: nothing is spent yet."""

    def asked_about(self, arguments: object) -> tuple[ToolPort, object, Any]:
        """The port, the arguments and what is bound of a call that is only asked about, and never runs."""
        return self, arguments, None

    def complete(
        self, bound: Any, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """Turn checked arguments, a private copy, into effective ones as JSON; None where they are that already.

        Those in `opaque` stay as they are, whatever the tool makes of them. By default the schema's defaults are filled
        in. Whatever it raises is InvalidPayload.
        """
        return None if self.spec.defaults is None else self.spec.defaults.complete(arguments)

    def parser(self) -> Parser | None:
        """What parses the tool's arguments, to be tried with samples; None where the tool gets what is written."""
        return None

    def received(self, bound: Any, effective: dict[str, Any]) -> dict[str, Any]:
        """What the tool's code would get of effective arguments, a private copy, by the schema's names."""
        parser = self.parser()
        return effective if parser is None else parser.values(parser.parse(effective))

    def oddities(self) -> Iterator[str]:
        """What else somebody who wraps the tool may not expect of it."""
        yield from ()

    def restored(self, bound: Any, kept: dict[str, Any]) -> dict[str, Any]:
        """Effective arguments as a ledger kept them, with what the application sets in its place again."""
        return kept

    def run(self, bound: Any, effective: dict[str, Any]) -> Any:
        """Run the tool with effective arguments, a private copy. What comes first is `before_entering`."""
        raise AssertionError(f"{self.spec.name!r} is known here, and cannot be run")

    async def arun(self, bound: Any, effective: dict[str, Any]) -> Any:
        """As `run`, without blocking the event loop: by default in a worker thread."""
        result = await asyncio.to_thread(self.run, bound, effective)
        return await result if isinstance(result, Awaitable) else result

    def taken_out(self, result: Any, limit: int) -> Any:
        """The result with all that would come of it later, as far as `limit` bytes: it comes while the call runs."""
        return taken_out(result, limit) if is_lazy(result) else result

    async def ataken_out(self, result: Any, limit: int) -> Any:
        """As `taken_out`, awaiting."""
        return await ataken_out(result, limit) if is_lazy(result) else result

    def check_output(self, result: Any, limit: int) -> None:
        """Raise PayloadTooLarge for a result over `limit` bytes, PayloadRefused for a shape that is not allowed."""
        measure(result, limit)

    def reports_failure(self, result: Any) -> bool:
        """Whether a result reports the tool's own failure; it is returned, and recorded as Failed."""
        return False

    def seen(self, result: Any) -> tuple[Any, ...]:
        """What a model and an application see of a result, as JSON, models or dataclasses; values are traced to it."""
        return (result,)

    def handed_back(self, bound: Any, result: Any, ran: dict[str, Any], *, is_edited: bool) -> Any:
        """The result as the caller gets it; `ran` is what ran, `is_edited` says that a person changed it."""
        return result

    def encode(self, result: Any) -> Any:
        """What was handed back as JSON, for a replay."""
        return result

    def readdressed(self, bound: Any, result: Any) -> Any:
        """Another call's result as the answer to this one. Raises EffectDone where it cannot be."""
        return result

    def decode(self, stored: Any) -> Any:
        """What `encode` stored, as it was handed back."""
        return stored


class UnreadablePort(ToolPort):
    """A tool, for a call of it whose arguments a framework could not read: it can only be refused."""

    def complete(
        self, bound: Any, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """Refuse them, also where they happen to be JSON."""
        raise InvalidPayload(self.spec.name, "it could not be read")


class FunctionPort(ToolPort):
    """A tool that is one function of its effective arguments, sync or async.

    Args:
        spec: the tool.
        function: takes the effective arguments as a dict that is its own to change.
    """

    def __init__(self, spec: ToolSpec, function: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(spec)
        self.function = function

    def run(self, bound: Any, effective: dict[str, Any]) -> Any:
        """Call the function."""
        return self.function(effective)

    async def arun(self, bound: Any, effective: dict[str, Any]) -> Any:
        """Await an async function; a sync one runs in a worker thread."""
        if inspect.iscoroutinefunction(self.function):
            return await self.function(effective)
        return await super().arun(bound, effective)

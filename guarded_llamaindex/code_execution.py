"""Code that a model writes: refused, unless the application names why it accepts that."""

from __future__ import annotations

import logging

from guarded_core.ground.errors import GuardConfigurationError

_log = logging.getLogger(__name__)


class CodeExecutionRefused(GuardConfigurationError, ValueError):
    """A guarded tool was about to be handed to code that a model writes.

    It is a ValueError, since LlamaIndex takes that for "no signature" where it only wants to look at one.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"tool {tool!r}: a CodeActAgent runs code that the model writes, and in this process no guard holds "
            "against that: it can reach whatever Python can. Use another agent; or, where that code runs in a sandbox, "
            "guard_tools(..., code_execution=UnsafeCodeExecution(reason))"
        )


class UnsafeCodeExecution:
    """Accepts that an agent runs code which the model writes, where no guard holds; each use is logged.

    Args:
        reason: why that is acceptable, such as the sandbox in which the code runs.

    Raises:
        GuardConfigurationError: no reason.
    """

    def __init__(self, reason: str) -> None:
        if not reason.strip():
            raise GuardConfigurationError("say why code that a model writes may run: UnsafeCodeExecution(reason)")
        self.reason = reason

    def use(self, what: str) -> None:
        """Log that `what` relies on it."""
        _log.warning("unsafe code execution accepted for %s: %s", what, self.reason)

    def __repr__(self) -> str:
        return f"UnsafeCodeExecution({self.reason!r})"

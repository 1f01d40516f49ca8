"""A framework that pauses a call where a person is needed, and enters it again."""

from __future__ import annotations

from guarded_core import Answer, ApprovalRequest


class Pause(BaseException):
    """The framework's signal."""


class Waiting:
    """Has the framework wait: the call is entered again when somebody has decided."""

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """Nothing: the call is paused."""
        raise Pause

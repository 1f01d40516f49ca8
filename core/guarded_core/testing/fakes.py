"""Public fakes for the tests of applications: an approver that plays back answers, sinks that record and fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from guarded_core.approvals.request import Answer, ApprovalRequest
from guarded_core.audit.event import AuditEvent, Outcome


class ScriptedApprover:
    """Answers from a list, in order, and remembers what it was asked.

    Args:
        answers: True, False or an `Answer` for each question; when they run out, nobody answers.
        by: who answers where only True or False is given.
    """

    def __init__(self, answers: Iterable[bool | Answer], *, by: str = "reviewer") -> None:
        self._answers = iter(answers)
        self._by = by
        self.asked: list[ApprovalRequest] = []

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The next answer."""
        self.asked.append(request)
        answer = next(self._answers, None)
        return Answer(by=self._by, approve=answer) if isinstance(answer, bool) else answer


class RecordingSink:
    """Keeps every event in a list."""

    blocking: ClassVar[bool] = False

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def append(self, event: AuditEvent) -> None:
        """Keep `event`."""
        self.events.append(event)


class FailingSink(RecordingSink):
    """Keeps events, and fails when told to.

    Attributes:
        failing: True fails every event; a set of outcomes fails those.
    """

    def __init__(self, failing: bool | frozenset[Outcome] = False) -> None:
        super().__init__()
        self.failing = failing

    def append(self, event: AuditEvent) -> None:
        """Keep `event`. Raises OSError where it is to fail."""
        if self.failing is True or (self.failing and event.outcome in self.failing):
            raise OSError("this sink was told to fail")
        super().append(event)

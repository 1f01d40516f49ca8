"""`QueueApprover`: the question waits in the store, for whoever decides it there."""

from __future__ import annotations

import asyncio
import math
import time

from guarded_core.approvals.approver import Attached
from guarded_core.approvals.decisions import RequestStore
from guarded_core.approvals.request import Answer, ApprovalRequest


class QueueApprover(Attached):
    """Leaves the question in the store, and waits there until somebody decides it, from whatever process.

    Args:
        store: the guard's own by default; for another process to decide, a database.
        wait_seconds: how long to wait; then the call is refused, and the request stays until it expires.
        poll_seconds: how often to look.
    """

    def __init__(
        self, store: RequestStore | None = None, *, wait_seconds: float = 900, poll_seconds: float = 0.5
    ) -> None:
        super().__init__(store)
        self._waits = max(1, math.ceil(wait_seconds / poll_seconds))
        self._poll_seconds = poll_seconds

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """None, once it is decided or the wait is over: the decision is in the store already."""
        for _ in range(self._waits):
            if not self.is_waiting(request.id):
                break
            time.sleep(self._poll_seconds)
        return None

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`, without blocking the event loop."""
        for _ in range(self._waits):
            if not await asyncio.to_thread(self.is_waiting, request.id):
                break
            await asyncio.sleep(self._poll_seconds)
        return None

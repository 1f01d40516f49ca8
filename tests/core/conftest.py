"""Tools and ways to call them, shared by the core's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from guarded_core import (
    AiTool,
    HumanApproval,
    InMemoryToolAuditTrail,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolParam,
    ToolRegistry,
    ToolRisk,
)


def _called(call: Callable[..., Any], acall: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return call(*args, **kwargs)


def _awaited(call: Callable[..., Any], acall: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return asyncio.run(acall(*args, **kwargs))


def _called_in_a_loop(call: Callable[..., Any], acall: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    async def main() -> Any:
        return call(*args, **kwargs)

    return asyncio.run(main())


@pytest.fixture(params=[_called, _awaited, _called_in_a_loop], ids=["sync", "async", "sync in a loop"])
def way(request: pytest.FixtureRequest) -> Any:
    """The three ways a call can be made: `way(call, acall, *args)`."""
    return request.param


class AccountStatus(AiTool):
    name: ClassVar[str] = "account_status"
    description: ClassVar[str] = "Looks up an account."
    parameters: ClassVar[list[ToolParam]] = [
        ToolParam("account_id", "string", "The account."),
        ToolParam("verbose", "boolean", "Say more.", required=False),
    ]
    risk: ClassVar[ToolRisk] = ToolRisk.READ_ONLY

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.result: Any = {"status": "open"}

    def execute(self, payload: dict[str, Any]) -> Any:
        self.calls.append(payload)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class IssueRefund(AccountStatus):
    name: ClassVar[str] = "issue_refund"
    description: ClassVar[str] = "Pays money back."
    parameters: ClassVar[list[ToolParam]] = [
        ToolParam("account_id", "string", "The account."),
        ToolParam("amount", "integer", "In cents."),
    ]
    risk: ClassVar[ToolRisk] = ToolRisk.FINANCIAL


class Desk:
    """A registry with two tools, a context, a policy and a trail, and one way to call them."""

    def __init__(self, way: Any) -> None:
        self.way = way
        self.registry = ToolRegistry()
        self.status, self.refund = AccountStatus(), IssueRefund()
        self.registry.register(self.status)
        self.registry.register(self.refund)
        self.policy = ToolExecutionPolicy(["account_status", "issue_refund"])
        self.context = ToolExecutionContext("user-17", ["account_status", "issue_refund"], max_calls=3)
        self.audit: Any = InMemoryToolAuditTrail(128)

    def execute(self, name: Any, payload: Any, **changes: Any) -> Any:
        """Make the call, with `context`, `policy` or `audit` replaced where given."""
        parts = {"context": self.context, "policy": self.policy, "audit": self.audit, **changes}
        return self.way(self.registry.execute, self.registry.aexecute, name, payload, **parts)

    def approve(self, payload: dict[str, Any], *, by: str = "reviewer-9", reason: str = "ticket FIN-42") -> None:
        """Hand over an approval of `issue_refund` with that payload."""
        self.context.approve(HumanApproval.for_payload("issue_refund", payload, by, reason))

    @property
    def outcomes(self) -> list[tuple[str, str | None]]:
        """Outcome and code of each event."""
        return [(event.outcome.value, event.code) for event in self.audit.events]


@pytest.fixture
def desk(way: Any) -> Desk:
    """A registry with `account_status` and `issue_refund`, called in each way."""
    return Desk(way)

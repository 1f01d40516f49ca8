"""What a user of the core writes must type-check, and keep its own types."""

from __future__ import annotations

from typing import Any, assert_type

from guarded_core import (
    AiTool,
    Answer,
    ApprovalRequest,
    Approver,
    AuditEvent,
    CallbackApprover,
    Decision,
    Guard,
    HumanApproval,
    InMemoryToolAuditTrail,
    ToolAuditSink,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolParam,
    ToolRegistry,
    ToolRisk,
    ToolSettings,
)


class AccountStatus(AiTool):
    """A tool of the registry."""

    name = "account_status"
    description = "Looks up an account."
    parameters = (ToolParam("account_id", "string", "The account."),)
    risk = ToolRisk.READ_ONLY

    def execute(self, payload: dict[str, Any]) -> dict[str, str]:
        """Look it up."""
        return {"account": payload["account_id"]}


class Printing:
    """A sink of one's own: the protocol needs no base class."""

    def append(self, event: AuditEvent) -> None:
        """Print it."""
        print(event.outcome)


class Careful:
    """An approver of one's own."""

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """No, unless it is small."""
        return Answer(by="lee", approve=request.required == 1)


sink: ToolAuditSink = Printing()
approver: Approver = Careful()
policy = ToolExecutionPolicy({"add": "read_only", "pay": ToolSettings(risk="financial", approvals=2)})
guard = Guard(policy, audit=sink, approver=[approver, CallbackApprover(lambda request: True, by="kim")])


@guard.tool
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@guard.tool(risk="financial")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def sync_use() -> None:
    """A guarded function keeps its signature."""
    with guard.session("user-17", tools=["add"]) as session:
        assert_type(session, ToolExecutionContext)
        assert_type(add(1, b=2), int)
        assert_type(guard.decide("add", {"a": 1}), Decision)


def decided() -> None:
    """A person approves, changes the arguments, says no, or answers in the tool's place."""
    (request,) = guard.approvals.pending()
    assert_type(guard.approvals.decide(request.id, by="lee", approve=True), ApprovalRequest)
    guard.approvals.decide(request.id, by="lee", approve=True, arguments={"amount": 4})
    guard.approvals.decide(request.id, by="lee", approve=False, reason="too much")
    guard.approvals.decide(request.id, by="lee", approve=False, response="It is paid.")
    Guard(policy, approver=CallbackApprover(lambda asked: Answer(by="lee", approve=True, arguments={"amount": 4})))


async def async_use() -> None:
    """So does an async one."""
    async with guard.session("user-17", tools=["pay"]):
        assert_type(await pay(5), str)


def registry_use() -> None:
    """The source systems' direct entry point."""
    registry = ToolRegistry()
    registry.register(AccountStatus())
    context = ToolExecutionContext("user-17", ["account_status"], max_calls=3)
    context.approve(HumanApproval.for_payload("account_status", {"account_id": "a"}, "reviewer-9", "ticket FIN-42"))
    allowed = ToolExecutionPolicy(["account_status"]).with_payload_limits(4 * 1024, 16 * 1024)
    registry.execute("account_status", {"account_id": "a"}, context, allowed, InMemoryToolAuditTrail(128))

"""A call that waits until a person decides it at another terminal.

$ python examples/approve_from_another_terminal.py
issue_refund waits for a person

$ guarded approvals list --store sqlite:///guard.db
$ guarded approvals approve 1a2b --store sqlite:///guard.db --by lee
"""

from __future__ import annotations

from guarded_core import ApprovalRejected, Guard, QueueApprover, ToolExecutionPolicy

guard = Guard(
    ToolExecutionPolicy({"issue_refund": "financial"}),
    store="sqlite:///guard.db",
    approver=QueueApprover(wait_seconds=600, poll_seconds=0.2),
)


@guard.tool
def issue_refund(order: str, amount: float) -> str:
    """Refund an order."""
    return f"refunded {amount} for {order}"


if __name__ == "__main__":
    with guard.session("user-17", tools=["issue_refund"]):
        print("issue_refund waits for a person", flush=True)
        try:
            print(issue_refund("A-17", 20.0))
        except ApprovalRejected as error:
            print(error)

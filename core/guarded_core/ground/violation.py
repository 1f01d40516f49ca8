"""One rule's objection: the evidence that a refused call carries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """One rule's objection to one action.

    Attributes:
        policy_name: the rule's name, such as ``deny_tool:deploy``.
        action_id: id of the action.
        reason: why, for the application; never the offending value.
    """

    policy_name: str
    action_id: str
    reason: str

"""Guarded tools: the enforcement core, free of any framework.

The modules, in the order a call walks them:

==================  =================================================================
`registry`,         the entries: AiTools directly; functions and framework tools
`guard`
`context`           who is calling: principal, tools, budget; the current session
`flow`              `enforce`, the one pipeline; `steps` it yields, and their drivers
`call`, `judge`     one call, and whether it may run: steps 1 to 8, by one policy and one snapshot
`tool`              what a tool is, frozen and fingerprinted
`payload`           untrusted JSON in: bounds, exact copy, canonical bytes, digest
`schema`            closed and compiled; `arguments` and `function` for typed Python
`policy`            allowlist, risks, limits, roles; `policy_file` for TOML
`rules`             the engine, the kinds, the facts they see
`provenance`        where a value came from: the user's words, the outputs, remembered for a session
`approval`          one person, one payload, once; `approvers` ask
`ledger`            one call, one execution
`store`             budgets, windows, approvals, ledger: all or none
`audit`             events, sinks, trails
`view`, `decision`  what a model is shown; what would happen to a call
`coverage`          what becomes of each tool's calls, as a matrix
`display`           how all of it looks in notebooks and at terminals
==================  =================================================================
"""

from typing import TYPE_CHECKING, Any

from guarded_core.approval import Answer, ApprovalRequest, Approvals, HumanApproval, RequestState, Vote
from guarded_core.approvers import Approver, CallbackApprover, ConsoleApprover, QueueApprover
from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.memory import InMemoryToolAuditTrail
from guarded_core.audit.sink import TeeSink, ToolAuditSink
from guarded_core.context import ToolExecutionContext
from guarded_core.coverage import Coverage
from guarded_core.decision import Decision
from guarded_core.errors import (
    AnsweredByPerson,
    ApprovalPayloadMismatch,
    ApprovalRejected,
    AuditUnavailable,
    CallBudgetExhausted,
    DuplicateTool,
    EditRefused,
    ExecutionFailed,
    GuardConfigurationError,
    GuardedToolsError,
    HumanApprovalRequired,
    InputTooLarge,
    InvalidApproval,
    InvalidPayload,
    InvalidPolicy,
    InvalidTool,
    NoSession,
    OutcomeUnaudited,
    OutcomeUnknown,
    OutputTooLarge,
    PolicyDenied,
    StoreUnavailable,
    ToolAuditTrailError,
    ToolExecutionError,
    ToolNotFound,
    Unauthorized,
)
from guarded_core.guard import Guard
from guarded_core.notebook import NotebookApprover
from guarded_core.payload import PayloadLimits
from guarded_core.policy import Role, ToolExecutionPolicy, ToolSettings
from guarded_core.registry import ToolRegistry
from guarded_core.rules.case import Action, Rule
from guarded_core.rules.engine import PolicyEngine, PolicyViolation
from guarded_core.rules.state import StateStore
from guarded_core.store.base import Store
from guarded_core.store.memory import MemoryStore
from guarded_core.tool import AiTool, ToolParam, ToolRisk, ToolSpec
from guarded_core.view import ToolView

if TYPE_CHECKING:
    from guarded_core.policy_file import PolicyWarning, load_policy

__all__ = [
    "Action",
    "AiTool",
    "Answer",
    "AnsweredByPerson",
    "ApprovalPayloadMismatch",
    "ApprovalRejected",
    "ApprovalRequest",
    "Approvals",
    "Approver",
    "AuditEvent",
    "AuditKeys",
    "AuditUnavailable",
    "CallBudgetExhausted",
    "CallbackApprover",
    "ConsoleApprover",
    "Coverage",
    "Decision",
    "DuplicateTool",
    "DurableToolAuditTrail",
    "EditRefused",
    "ExecutionFailed",
    "Guard",
    "GuardConfigurationError",
    "GuardedToolsError",
    "HumanApproval",
    "HumanApprovalRequired",
    "InMemoryToolAuditTrail",
    "InputTooLarge",
    "InvalidApproval",
    "InvalidPayload",
    "InvalidPolicy",
    "InvalidTool",
    "MemoryStore",
    "NoSession",
    "NotebookApprover",
    "Outcome",
    "OutcomeUnaudited",
    "OutcomeUnknown",
    "OutputTooLarge",
    "PayloadLimits",
    "PolicyDenied",
    "PolicyEngine",
    "PolicyViolation",
    "PolicyWarning",
    "QueueApprover",
    "RequestState",
    "Role",
    "Rule",
    "StateStore",
    "Store",
    "StoreUnavailable",
    "TeeSink",
    "ToolAuditSink",
    "ToolAuditTrailError",
    "ToolExecutionContext",
    "ToolExecutionError",
    "ToolExecutionPolicy",
    "ToolNotFound",
    "ToolParam",
    "ToolRegistry",
    "ToolRisk",
    "ToolSettings",
    "ToolSpec",
    "ToolView",
    "Unauthorized",
    "Vote",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    # The models of a policy file take longer to build than all the rest to load, and not everybody has a file.
    if name in ("PolicyWarning", "load_policy"):
        from guarded_core import policy_file

        return getattr(policy_file, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Guarded tools: the enforcement core, free of any framework.

The rooms, in the order a call walks them:

============  =======================================================================
`registry`,   the entries: AiTools directly; functions and framework tools
`guard`
`session`     who is calling: principal, tools, budget; the current session
`pipeline`    the one way of a call: `judge`, `flow`, the `steps` it yields
`tools`       what a tool is, frozen and fingerprinted; its `schema`, closed and compiled
`policy`      allowlist, risks, limits, roles; TOML files, lint
`rules`       the engine, the kinds, the facts they see
`provenance`  where a value came from: the user's words, the outputs
`approvals`   one person, one payload, once; who is asked
`store`       budgets, windows, approvals, the ledger: all or none
`audit`       events, sinks, trails
`preview`     what a model is shown; what would happen to a call, to each tool's calls
`display`     how all of it looks in notebooks and at terminals
`testing`     fakes for tests, and policies tried without tools
`cli`         ``guarded …``
`ground`      errors, payloads, bounds, ids: what all of them stand on
============  =======================================================================
"""

from typing import TYPE_CHECKING, Any

from guarded_core.approvals.approver import Approver, BaseApprover
from guarded_core.approvals.callback import CallbackApprover
from guarded_core.approvals.console import ConsoleApprover
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.grant import Grant, GrantState
from guarded_core.approvals.grantable import Grantable
from guarded_core.approvals.notebook import NotebookApprover
from guarded_core.approvals.queue import QueueApprover
from guarded_core.approvals.request import Answer, ApprovalRequest, HumanApproval, RequestState, Vote
from guarded_core.audit.chain import AuditKeys
from guarded_core.audit.durable import DurableToolAuditTrail
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.audit.memory import InMemoryToolAuditTrail
from guarded_core.audit.sink import AuditSink, TeeSink, ToolAuditSink
from guarded_core.audit.trail import Trail
from guarded_core.ground.errors import (
    AnsweredByPerson,
    ApprovalPayloadMismatch,
    ApprovalRejected,
    AuditUnavailable,
    CallBudgetExhausted,
    CannotRun,
    DuplicateTool,
    EditRefused,
    EffectDone,
    EffectRunning,
    EffectUnknown,
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
    NotExecuted,
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
from guarded_core.ground.moved import MOVED, Moved
from guarded_core.ground.payload import PayloadLimits
from guarded_core.ground.violation import PolicyViolation
from guarded_core.guard import Guard
from guarded_core.policy.effect import EffectKey
from guarded_core.policy.policy import OriginSettings, Role, ToolExecutionPolicy, ToolSettings
from guarded_core.preview.coverage import Coverage
from guarded_core.preview.decision import Decision
from guarded_core.preview.visible import ToolView
from guarded_core.registry import ToolRegistry
from guarded_core.rules.case import Action, Rule
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.state import StateStore
from guarded_core.session import ToolExecutionContext
from guarded_core.store.base import Store
from guarded_core.store.memory import MemoryStore
from guarded_core.tools.examination import ToolWarning
from guarded_core.tools.running import idempotency_key
from guarded_core.tools.spec import AiTool, ToolParam, ToolRisk, ToolSpec

if TYPE_CHECKING:
    from guarded_core.pipeline.otel import OpenTelemetry as OpenTelemetry
    from guarded_core.policy.file import PolicyWarning, load_policy

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
    "AuditSink",
    "AuditUnavailable",
    "BaseApprover",
    "CallBudgetExhausted",
    "CallbackApprover",
    "CannotRun",
    "ConsoleApprover",
    "Coverage",
    "Decision",
    "DuplicateTool",
    "DurableToolAuditTrail",
    "EditRefused",
    "EffectDone",
    "EffectKey",
    "EffectRunning",
    "EffectUnknown",
    "ExecutionFailed",
    "Grant",
    "GrantState",
    "Grantable",
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
    "NotExecuted",
    "NotebookApprover",
    "OriginSettings",
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
    "ToolWarning",
    "Trail",
    "Unauthorized",
    "Vote",
    "idempotency_key",
    "load_policy",
]


Moved(MOVED).install()


def __getattr__(name: str) -> Any:
    # The models of a policy file take longer to build than all the rest to load, and not everybody has a file.
    if name in ("PolicyWarning", "load_policy"):
        from guarded_core.policy import file as policy_file

        return getattr(policy_file, name)
    if name == "OpenTelemetry":  # needs an extra
        from guarded_core.pipeline.otel import OpenTelemetry

        return OpenTelemetry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

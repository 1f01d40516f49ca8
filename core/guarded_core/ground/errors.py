"""What can go wrong, in three families under one base.

::

    GuardedToolsError
    ├── ToolExecutionError          a call was refused or failed; its text is fit for a model to read
    │   ├── ToolNotFound            no such tool in this registry
    │   ├── Unauthorized            not allowed for this principal (or unknown: both look alike)
    │   ├── NoSession               nobody is calling: no session, or one that has ended
    │   ├── CallBudgetExhausted     the session, or the tool in it, has no calls left
    │   ├── InputTooLarge           the arguments exceed a limit
    │   ├── OutputTooLarge          the tool ran, its result exceeds a limit
    │   ├── InvalidPayload          the arguments do not fit the tool's closed schema
    │   ├── PolicyDenied            a rule refused the call
    │   │   └── ToolChanged         the tool is not what was registered, or not what the policy pins
    │   ├── HumanApprovalRequired   a person has to approve this very payload first
    │   ├── ApprovalPayloadMismatch an approval is there, for another payload
    │   ├── ApprovalRejected        a person said no
    │   │   └── AnsweredByPerson    and answered in the tool's place
    │   ├── EditRefused             a person changed the arguments to ones that are not allowed
    │   ├── ExecutionFailed         the tool itself failed
    │   ├── AuditUnavailable        no evidence can be kept, so nothing runs
    │   ├── StoreUnavailable        budgets and approvals cannot be read or kept, so nothing runs
    │   ├── CannotRun               the application's mistake, known before anything is spent
    │   ├── EffectDone, EffectRunning, EffectUnknown   another call has, or may have, the very effect
    │   ├── OutcomeUnaudited        the tool ran, its outcome could not be recorded: reconcile, do not retry
    │   └── OutcomeUnknown          the tool may have run before: it does not run again by itself
    ├── NotExecuted                 a tool's own word that it failed before any effect
    ├── GuardConfigurationError     the developer's own mistake, raised while setting up
    │   ├── InvalidPolicy
    │   ├── InvalidTool
    │   ├── DuplicateTool
    │   └── InvalidApproval         an approval that cannot be given like this
    └── ToolAuditTrailError         a trail cannot be opened, written or verified
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, Self, get_args

from guarded_core.ground.violation import PolicyViolation

_log = logging.getLogger(__name__)

Step = Literal["authorise", "bound", "budget", "validate", "rules", "approve", "commit", "execute", "settle"]

STEPS: tuple[Step, ...] = get_args(Step)
"""The steps of a call's way that an error can end it at, in order."""


class AskedRequest(Protocol):
    """What an error tells of the request that a person is asked; an `ApprovalRequest` has more."""

    @property
    def id(self) -> str:
        """What it is decided by."""

    @property
    def tool(self) -> str:
        """Name of the tool."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a person is asked."""

    @property
    def arguments(self) -> Any:
        """The effective arguments, as a person is shown them."""

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who said yes so far."""

    def grant(self, by: str, reason: str) -> Any:
        """A yes to this very request, for `context.approve`."""


class GuardedToolsError(Exception):
    """The base of every error this project raises."""

    def __reduce__(self) -> Any:
        # Exceptions cross process boundaries (worker pools); rebuild without replaying __init__'s signature.
        return (_rebuild, (type(self), self.args, self.__dict__))


def as_cause(error: BaseException) -> GuardedToolsError | None:
    """`error` as a cause that a printed traceback may show: one of ours, which quotes nothing.

    A store or a trail is handed payloads and results, and what it raises may quote them: of that the log has the type
    and the place.
    """
    if isinstance(error, GuardedToolsError):
        return error
    place, frame = "", error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        place, frame = f" in {code.co_name}, line {frame.tb_lineno} of {code.co_filename}", frame.tb_next
    _log.error("%s was raised%s", type(error).__name__[:64], place)
    return None


class ToolExecutionError(GuardedToolsError):
    """A call was refused or failed.

    The text is short, true and free of payload values and policy internals, so that it may be shown to a model.

    Attributes:
        code: a stable snake_case name of the kind, as audit events carry it.
        step: the step of a call's way that ends with it, as `STEPS` names them; where several do, the first of them.
        tool: the tool's name (a stand-in where the model's name was not a valid one).
        call_id: the guard's own id of the call, None outside the pipeline.
        request_id: the approval request this is about, where there is one.
        hint: what the application can do about it, where there is something; never for a model. Tracebacks show it.
    """

    code: ClassVar[str] = "tool_execution_error"
    step: ClassVar[Step] = "authorise"
    text: ClassVar[str] = "The call was refused."

    def __init__(self, tool: str, message: str | None = None) -> None:
        super().__init__(message or self.text)
        self.tool = tool
        self.call_id: str | None = None
        self.request_id: str | None = None
        self.hint: str | None = None

    def hinted(self, hint: str) -> Self:
        """This error, which tells the application what it can do."""
        self.hint = hint
        self.add_note(hint)
        return self

    def as_dict(self) -> dict[str, str | None]:
        """The small plain record that an application may keep: code, tool, call_id, request_id."""
        return {"code": self.code, "tool": self.tool, "call_id": self.call_id, "request_id": self.request_id}


def _rebuild(kind: type[GuardedToolsError], args: tuple[Any, ...], state: dict[str, Any]) -> GuardedToolsError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ToolNotFound(ToolExecutionError):
    """The registry holds no tool of this name."""

    code = "tool_not_found"
    step = "authorise"
    text = "There is no such tool. Use one of the tools you were given."


class Unauthorized(ToolExecutionError):
    """The tool is not allowed for this principal, or does not exist: the two are not told apart."""

    code = "unauthorized"
    step = "authorise"
    text = "This tool is not available. Use one of the tools you were given."


class NoSession(ToolExecutionError):
    """Nobody is calling: there is no open session."""

    code = "no_session"
    step = "authorise"
    text = (
        "No session is open, so no tool may run. "
        'The application opens one around the agent: with guard.session("user-id", tools=[...]): ... '
        "or hands it over: context=..."
    )


class CallBudgetExhausted(ToolExecutionError):
    """No calls are left, in the session or for this tool."""

    code = "call_budget_exhausted"
    step = "budget"
    text = "No calls are left in this session for this tool. Answer with what you have."


class _TooLarge(ToolExecutionError):
    def __init__(self, tool: str, *, actual: int, limit: int, what: str = "bytes") -> None:
        super().__init__(tool, self.text.format(actual=actual, limit=limit, what=what))
        self.actual = actual
        self.limit = limit


class InputTooLarge(_TooLarge):
    """The arguments exceed a limit.

    Attributes:
        actual: what was found before looking stopped, at least.
        limit: what is allowed, in the same unit.
    """

    code = "input_too_large"
    step = "bound"
    text = "The arguments are too large: at least {actual} {what}, and {limit} are allowed. Send less."


class OutputTooLarge(_TooLarge):
    """The tool ran, and its result exceeds the limit: side effects have happened.

    Attributes:
        actual: bytes found before looking stopped, at least.
        limit: bytes allowed.
    """

    code = "output_too_large"
    step = "execute"
    text = (
        "The tool ran, but its result is too large to return: at least {actual} {what}, and {limit} are allowed. "
        "Do not repeat the call; ask for less."
    )


class InvalidPayload(ToolExecutionError):
    """The arguments do not fit the tool's closed schema.

    Attributes:
        reason: what does not fit, by schema path and keyword; never a value or an unknown key.
    """

    code = "invalid_payload"
    step = "validate"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(tool, f"The arguments do not fit the tool's schema: {reason}. Correct them and try again.")
        self.reason = reason


class PolicyDenied(ToolExecutionError):
    """One or more rules refused the call.

    Attributes:
        violations: every rule that refused, in order; for the application, not for the model.
    """

    code = "policy_denied"
    step: ClassVar[Step] = "rules"
    text = "The policy does not allow this call. Do not repeat it unchanged."

    def __init__(self, tool: str, violations: Sequence[PolicyViolation] = ()) -> None:
        super().__init__(tool)
        self.violations = tuple(violations)


class ToolChanged(PolicyDenied):
    """The tool is no longer what was registered, or not what the policy pins; a model reads any rule's no."""

    step = "authorise"

    def __init__(self, tool: str, call_id: str = "") -> None:
        super().__init__(tool, (PolicyViolation("tool_changed", call_id, "the tool is not what was registered"),))


class HumanApprovalRequired(ToolExecutionError):
    """A person has to approve this very payload before it runs.

    Attributes:
        request: what was asked, where a request could be stored.
    """

    code = "human_approval_required"
    step = "approve"
    text = "A person has to approve this call, and has not yet. It did not run."

    def __init__(self, tool: str, request: AskedRequest | None = None, message: str | None = None) -> None:
        super().__init__(tool, message)
        self.request = request
        self.request_id = request.id if request is not None else None


class ApprovalPayloadMismatch(ToolExecutionError):
    """An approval for this tool is there, but for another payload; it is kept."""

    code = "approval_payload_mismatch"
    step = "approve"
    text = "A person approved other arguments than these. It did not run; send exactly what was approved."


class ApprovalRejected(ToolExecutionError):
    """A person said no.

    Attributes:
        reason: what the person gave as the reason; it is part of the text.
    """

    code = "approval_rejected"
    step = "approve"

    def __init__(self, tool: str, reason: str = "") -> None:
        text = "A person rejected this call. It did not run; do not repeat it."
        super().__init__(tool, f"{text} Reason: {reason}" if reason else text)
        self.reason = reason


class AnsweredByPerson(ApprovalRejected):
    """A person answered in the tool's place; the text is theirs.

    Attributes:
        reason: that text.
    """

    code = "answered_by_person"

    def __init__(self, tool: str, response: str) -> None:
        super().__init__(tool)
        self.args = (response,)
        self.reason = response


class EditRefused(ToolExecutionError):
    """A person changed the call's arguments to ones that the tool's schema, or the policy, does not allow.

    Attributes:
        refusal: what was wrong with them.
    """

    code = "edit_refused"
    step = "approve"
    text = "A person changed this call's arguments, and the changed ones are not allowed. It did not run."

    def __init__(self, tool: str, refusal: ToolExecutionError) -> None:
        super().__init__(tool)
        self.refusal = refusal


class ExecutionFailed(ToolExecutionError):
    """The tool itself failed; its own error text is kept back."""

    code = "execution_failed"
    step = "execute"
    text = "The tool failed while it ran. Its effects may be partial."


class AuditUnavailable(ToolExecutionError):
    """The audit trail cannot be written, so the call was refused."""

    code = "audit_unavailable"
    step = "commit"
    text = "No record of this call can be kept at the moment, so it did not run. Tell the user; do not retry."


class StoreUnavailable(ToolExecutionError):
    """Budgets, approvals or the ledger cannot be read or kept, so the call was refused.

    A SQL store raises it, too, where nothing is called: then it names no tool, and says which store, and why.
    """

    code = "store_unavailable"
    step = "budget"
    text = "Calls cannot be checked at the moment, so it did not run. Tell the user; do not retry."

    def __init__(self, tool: str = "", message: str | None = None) -> None:
        super().__init__(tool, message)


class CannotRun(ToolExecutionError):
    """The call could not run, or its result could reach nobody, as the application made it: nothing is spent for it.

    It is the application's mistake, not the model's: adapters raise it, or what the bare tool raises, its cause.
    """

    code = "cannot_run"
    step = "validate"
    text = "The application cannot run this call the way that it made it. It did not run."


class OutcomeUnaudited(ToolExecutionError):
    """The tool ran, but its outcome could not be recorded: reconcile, do not retry.

    Attributes:
        outcome: what happened ("succeeded", "failed" or "unknown").
        reason: why it could not be recorded: the type of the sink's error.
    """

    code = "outcome_unaudited"
    step = "settle"

    def __init__(self, tool: str, *, outcome: str, reason: str) -> None:
        super().__init__(
            tool, f"The tool ran ({outcome}), but the outcome could not be recorded. Do not repeat the call."
        )
        self.outcome = outcome
        self.reason = reason


class OutcomeUnknown(ToolExecutionError):
    """The tool may have run already; it is not run again by itself."""

    code = "outcome_unknown"
    step = "commit"
    text = (
        "This call was started before and its outcome is unknown: it may have run. It is not run again; tell the user."
    )


class EffectDone(ToolExecutionError):
    """Another call had the very effect that this one would have; it is not had twice."""

    code = "effect_done"
    step = "rules"
    text = "This was done already, by another call. It is not done again; tell the user."


class EffectRunning(ToolExecutionError):
    """Another call is about to have the very effect that this one would have."""

    code = "effect_running"
    step = "rules"
    text = "This is being done already, by another call. It is not done twice; tell the user."


class EffectUnknown(ToolExecutionError):
    """Another call may have had the very effect that this one would have: a person has to find out."""

    code = "effect_unknown"
    step = "rules"
    text = "This may have been done already, by another call whose outcome is unknown. It is not done; tell the user."


class NotExecuted(GuardedToolsError):
    """Raised by a tool, or a subclass of it: it failed before it had any effect, so that it may be tried again.

    Whatever else a tool raises may have come after its effect: the call then never runs again by itself. It speaks for
    the tool that raised it: of a guarded tool around that one, which lets it pass, it says nothing.

    Attributes:
        call_id: the guard's id of the call that it speaks for; None until that has ended with it.
    """

    code: ClassVar[str] = "not_executed"
    call_id: str | None = None


class GuardConfigurationError(GuardedToolsError):
    """A mistake in how the guard was set up; for the developer, never for a model."""


class InvalidPolicy(GuardConfigurationError):
    """The policy cannot be used.

    Attributes:
        file: the policy file, None where the policy was built in code.
        where: the place in it, such as ``rules[3].param``.
        reason: what is wrong and what would be right.
    """

    def __init__(self, reason: str, *, where: str = "", file: str | None = None) -> None:
        place = ": ".join(part for part in (file, where) if part)
        super().__init__(f"{place}: {reason}" if place else reason)
        self.file = file
        self.where = where
        self.reason = reason


class InvalidTool(GuardConfigurationError):
    """A tool cannot be guarded as it is declared: its name, schema or risk."""


class DuplicateTool(GuardConfigurationError):
    """Two tools of one name: which of them would run is not decidable."""

    def __init__(self, tool: str, hint: str = "") -> None:
        super().__init__(f"a tool named {tool!r} is registered already; give each tool a name of its own{hint}")
        self.tool = tool


class InvalidApproval(GuardConfigurationError):
    """An approval that cannot be given: unknown, expired or decided request, or an approver who may not decide it."""


class ToolAuditTrailError(GuardedToolsError):
    """A trail cannot be opened, written or verified.

    The text names the file that the application itself opened, where it is about one, and never an event's body.

    Attributes:
        code: a stable snake_case name of the kind.
        path: that file's; None where the error is about none.
    """

    def __init__(self, code: str, message: str, *, path: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.code = code
        self.path = path

    def at(self, path: str) -> ToolAuditTrailError:
        """The same error, saying which file it is about."""
        return self if self.path else ToolAuditTrailError(self.code, str(self), path=path)

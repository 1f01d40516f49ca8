"""The direct entry point: every row of the first source system's tables."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, ClassVar

import pytest

from guarded_core import (
    AiTool,
    ApprovalPayloadMismatch,
    Approvals,
    AuditUnavailable,
    CallBudgetExhausted,
    DuplicateTool,
    ExecutionFailed,
    GuardConfigurationError,
    HumanApproval,
    HumanApprovalRequired,
    InMemoryToolAuditTrail,
    InputTooLarge,
    InvalidApproval,
    InvalidPayload,
    InvalidPolicy,
    InvalidTool,
    OutcomeUnaudited,
    OutputTooLarge,
    RequestState,
    ToolAuditTrailError,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolNotFound,
    ToolParam,
    ToolRegistry,
    ToolRisk,
    Unauthorized,
)

PAYLOAD = {"account_id": "acct-17"}
REFUND = {"account_id": "acct-17", "amount": 500}


class TestAllowedCall:
    def test_runs_once_and_is_recorded_with_its_outcome(self, desk: Any) -> None:
        """An allowed call runs with the payload, and leaves Authorized and Succeeded under one call id."""
        assert desk.execute("account_status", PAYLOAD) == {"status": "open"}
        assert desk.status.calls == [PAYLOAD]
        authorized, succeeded = desk.audit.events
        assert [authorized.outcome.value, succeeded.outcome.value] == ["authorized", "succeeded"]
        assert authorized.call_id == succeeded.call_id
        assert (authorized.principal, authorized.tool, authorized.risk) == (
            "user-17",
            "account_status",
            ToolRisk.READ_ONLY,
        )

    def test_takes_json_text(self, desk: Any) -> None:
        """Arguments may come as JSON text."""
        assert desk.execute("account_status", '{"account_id": "acct-17"}') == {"status": "open"}

    def test_gives_the_tool_a_copy_of_its_own(self, desk: Any) -> None:
        """What the tool does to its payload changes nothing outside."""
        sent = {"account_id": "acct-17"}
        desk.execute("account_status", sent)
        desk.status.calls[0]["account_id"] = "changed"
        assert sent == {"account_id": "acct-17"}


class TestOrderOfChecks:
    def test_1_unknown_tool(self, desk: Any) -> None:
        """A name that is not registered is ToolNotFound, recorded without a risk."""
        with pytest.raises(ToolNotFound) as caught:
            desk.execute("drop_tables", {})
        assert caught.value.tool == "drop_tables"
        assert [(e.outcome.value, e.code, e.risk) for e in desk.audit.events] == [("denied", "tool_not_found", None)]

    @pytest.mark.parametrize("name", ["no spaces", "", "x" * 65, "naïve", 7, None])
    def test_1_invalid_name_is_recorded_by_its_hash(self, desk: Any, name: Any) -> None:
        """A name that is no identifier stands in record and error alike as `invalid-tool-` and 16 hex digits."""
        with pytest.raises(ToolNotFound) as caught:
            desk.execute(name, {})
        text = name if isinstance(name, str) else type(name).__name__
        stand_in = "invalid-tool-" + hashlib.sha256(text.encode()).hexdigest()[:16]
        assert caught.value.tool == stand_in == desk.audit.events[0].tool

    def test_2_policy_and_context_share_one_error(self, desk: Any) -> None:
        """Not allowed by the policy, and not authorised for the principal, look alike."""
        other = ToolExecutionContext("user-17", ["issue_refund"], 3)
        with pytest.raises(Unauthorized) as by_context:
            desk.execute("account_status", PAYLOAD, context=other)
        with pytest.raises(Unauthorized) as by_policy:
            desk.execute("account_status", PAYLOAD, policy=ToolExecutionPolicy(["issue_refund"]))
        assert str(by_context.value) == str(by_policy.value)

    def test_2_comes_before_the_budget(self, desk: Any) -> None:
        """An unauthorised call is Unauthorized even where no budget is left."""
        one = ToolExecutionContext("user-17", ["account_status"], 1)
        desk.execute("account_status", PAYLOAD, context=one)
        with pytest.raises(Unauthorized):
            desk.execute("issue_refund", REFUND, context=one)

    def test_3_budget_comes_before_size(self, desk: Any) -> None:
        """With no calls left, even an oversized payload is CallBudgetExhausted."""
        one = ToolExecutionContext("user-17", ["account_status"], 1)
        desk.execute("account_status", PAYLOAD, context=one)
        with pytest.raises(CallBudgetExhausted):
            desk.execute("account_status", {"account_id": "x" * 70_000}, context=one)

    def test_4_size_comes_before_validation(self, desk: Any) -> None:
        """An oversized payload is InputTooLarge with both numbers, whatever else is wrong with it."""
        policy = desk.policy.with_payload_limits(32, 1024)
        with pytest.raises(InputTooLarge) as caught:
            desk.execute("account_status", {"unknown": "x" * 40}, policy=policy)
        assert caught.value.limit == 32
        assert caught.value.actual > 32

    def test_4_the_limit_is_compact_json(self, desk: Any) -> None:
        """The limit counts bytes of compact JSON: exactly at the limit passes, one byte less does not."""
        size = len('{"account_id":"acct-17"}')
        desk.execute("account_status", PAYLOAD, policy=desk.policy.with_payload_limits(size, 1024))
        with pytest.raises(InputTooLarge) as caught:
            desk.execute("account_status", PAYLOAD, policy=desk.policy.with_payload_limits(size - 1, 1024))
        assert (caught.value.actual, caught.value.limit) == (size, size - 1)

    @pytest.mark.parametrize(
        "payload",
        [
            [],
            "[]",
            None,
            {},
            {"account_id": 7},
            {"account_id": "a", "extra": 1},
            {"account_id": None},
            {"account_id": "a", "verbose": None},
            {"account_id": "a", "verbose": "true"},
            {"account_id": "a", "verbose": 1},
        ],
    )
    def test_5_closed_validation(self, desk: Any, payload: Any) -> None:
        """No object, unknown keys, missing or wrong types, explicit nulls: InvalidPayload, and nothing runs."""
        with pytest.raises(InvalidPayload):
            desk.execute("account_status", payload)
        assert desk.status.calls == []

    @pytest.mark.parametrize("amount", [5.0, True, "5", None, 1e3])
    def test_5_an_integer_is_an_integer(self, desk: Any, amount: Any) -> None:
        """A declared integer takes no float, boolean or text."""
        with pytest.raises(InvalidPayload):
            desk.execute("issue_refund", {"account_id": "a", "amount": amount})

    def test_6_no_approval(self, desk: Any) -> None:
        """A financial tool without an approval is HumanApprovalRequired, with the request to grant."""
        with pytest.raises(HumanApprovalRequired) as caught:
            desk.execute("issue_refund", REFUND)
        assert caught.value.request is not None
        assert caught.value.request.arguments == REFUND
        assert desk.refund.calls == []

    @pytest.mark.parametrize("changed", [{"account_id": "acct-18"}, {"amount": 501}])
    def test_6_another_payload_is_a_mismatch_and_keeps_the_approval(self, desk: Any, changed: Any) -> None:
        """Any changed field is ApprovalPayloadMismatch; the approval stays for what was approved."""
        desk.approve(REFUND)
        with pytest.raises(ApprovalPayloadMismatch):
            desk.execute("issue_refund", REFUND | changed)
        assert desk.execute("issue_refund", REFUND) == {"status": "open"}
        assert desk.refund.calls == [REFUND]

    def test_6_an_approval_is_used_once(self, desk: Any) -> None:
        """The second call with the approved payload needs a new approval."""
        desk.approve(REFUND)
        desk.execute("issue_refund", REFUND)
        with pytest.raises(HumanApprovalRequired):
            desk.execute("issue_refund", REFUND)

    def test_6_a_request_can_be_granted(self, desk: Any) -> None:
        """The error's request, granted and handed to the context, lets the very same call through."""
        with pytest.raises(HumanApprovalRequired) as caught:
            desk.execute("issue_refund", REFUND)
        desk.context.approve(caught.value.request.grant("reviewer-9", "ticket FIN-42"))
        desk.execute("issue_refund", REFUND)
        assert desk.audit.events[-1].approved_by == ("reviewer-9",)

    def test_6_nobody_approves_their_own_call(self, desk: Any) -> None:
        """An approval by the principal itself counts for nothing."""
        desk.approve(REFUND, by="user-17")
        with pytest.raises((HumanApprovalRequired, ApprovalPayloadMismatch)):
            desk.execute("issue_refund", REFUND)
        assert desk.refund.calls == []

    def test_6_a_revoked_approval_is_none(self, desk: Any) -> None:
        """An approval taken back before a call used it covers nothing; one that was used cannot be taken back."""
        approvals = Approvals(desk.context.store)
        desk.approve(REFUND)
        approvals.revoke(desk.context.store.requests()[0].id)
        with pytest.raises(HumanApprovalRequired):
            desk.execute("issue_refund", REFUND)
        assert desk.refund.calls == []
        desk.approve(REFUND)
        desk.execute("issue_refund", REFUND)
        with pytest.raises(InvalidApproval, match="consumed"):
            approvals.revoke(desk.context.store.requests(state=RequestState.CONSUMED)[0].id)

    def test_6_approver_and_reason_stand_in_the_events(self, desk: Any) -> None:
        """Authorized and Succeeded carry approver and reason; no event carries the payload."""
        desk.approve(REFUND)
        desk.execute("issue_refund", REFUND)
        for event in desk.audit.events:
            assert (event.approved_by, event.approval_reason) == (("reviewer-9",), "ticket FIN-42")
            assert "acct-17" not in str(event.to_json())


class Broken:
    """A sink that refuses events of the outcomes it is told, and keeps the others."""

    blocking = False

    def __init__(self, *outcomes: str) -> None:
        self.outcomes = outcomes
        self.events: list[Any] = []

    def append(self, event: Any) -> None:
        if event.outcome.value in self.outcomes:
            raise OSError("the disk is gone, at /secret/path")
        self.events.append(event)


class TestAudit:
    def test_denial_that_cannot_be_recorded(self, desk: Any) -> None:
        """Where Denied cannot be appended, AuditUnavailable replaces the denial."""
        with pytest.raises(AuditUnavailable):
            desk.execute("account_status", {}, audit=Broken("denied"))

    def test_authorized_that_cannot_be_recorded_runs_and_spends_nothing(self, desk: Any) -> None:
        """Where Authorized cannot be appended the tool does not run; budget and approval are both kept."""
        desk.approve(REFUND)
        with pytest.raises(AuditUnavailable) as caught:
            desk.execute("issue_refund", REFUND, audit=Broken("authorized"))
        assert "secret" not in str(caught.value)
        assert desk.refund.calls == []
        assert desk.context.remaining_calls == 3
        desk.execute("issue_refund", REFUND)
        assert desk.refund.calls == [REFUND]

    @pytest.mark.parametrize("fails", [False, True])
    def test_terminal_that_cannot_be_recorded(self, desk: Any, fails: bool) -> None:
        """Where the terminal event cannot be appended, the error says to reconcile, with outcome and reason."""
        desk.status.result = ValueError("x") if fails else {}
        with pytest.raises(OutcomeUnaudited) as caught:
            desk.execute("account_status", PAYLOAD, audit=Broken("succeeded", "failed"))
        assert (caught.value.outcome, caught.value.reason) == ("failed" if fails else "succeeded", "OSError")
        assert len(desk.status.calls) == 1

    def test_failing_tool(self, desk: Any) -> None:
        """A tool's error is Failed and ExecutionFailed; its text appears nowhere, and one call is spent."""
        desk.status.result = ValueError("password hunter2")
        with pytest.raises(ExecutionFailed) as caught:
            desk.execute("account_status", PAYLOAD)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        assert "hunter2" not in str(caught.value) + str([e.to_json() for e in desk.audit.events])
        assert (desk.audit.events[-1].code, desk.audit.events[-1].error_type) == ("execution_failed", "ValueError")
        assert desk.context.remaining_calls == 2

    def test_oversized_output(self, desk: Any) -> None:
        """An output over the limit is Failed and OutputTooLarge, and one call is spent."""
        desk.status.result = "x" * 100
        with pytest.raises(OutputTooLarge) as caught:
            desk.execute("account_status", PAYLOAD, policy=desk.policy.with_payload_limits(1024, 50))
        assert caught.value.limit == 50
        assert desk.outcomes == [("authorized", None), ("failed", "output_too_large")]
        assert desk.context.remaining_calls == 2

    @pytest.mark.parametrize("result", [{1, 2}, object(), float("nan"), {"a": b"x"}])
    def test_output_that_is_no_json(self, desk: Any, result: Any) -> None:
        """An output that is no JSON leaves a terminal event all the same."""
        desk.status.result = result
        with pytest.raises(ExecutionFailed):
            desk.execute("account_status", PAYLOAD)
        assert desk.outcomes == [("authorized", None), ("failed", "execution_failed")]

    def test_denials_spend_nothing(self, desk: Any) -> None:
        """Denied calls are free of budget."""
        for payload in ({}, [], {"account_id": 1}):
            with pytest.raises(InvalidPayload):
                desk.execute("account_status", payload)
        assert desk.context.remaining_calls == 3

    def test_equal_denials_are_coalesced_and_counted(self, desk: Any) -> None:
        """The first eight equal denials are written one by one, later ones at each doubling, with their count."""
        for _ in range(33):
            with pytest.raises(InvalidPayload):
                desk.execute("account_status", {})
        assert [event.count for event in desk.audit.events] == [1, 2, 3, 4, 5, 6, 7, 8, 16, 32]


class TestBudget:
    def test_is_spent_call_by_call(self, desk: Any) -> None:
        """Each executed call spends one; at zero the next is refused."""
        for left in (2, 1, 0):
            desk.execute("account_status", PAYLOAD)
            assert desk.context.remaining_calls == left
        with pytest.raises(CallBudgetExhausted):
            desk.execute("account_status", PAYLOAD)

    def test_twenty_threads_on_a_budget_of_one_run_one(self) -> None:
        """Of twenty threads that call at once on a budget of one, exactly one runs."""
        registry, calls = ToolRegistry(), []

        class Slow(AiTool):
            name: ClassVar[str] = "slow"
            description: ClassVar[str] = "Takes a moment."
            parameters: ClassVar[list[ToolParam]] = []
            risk: ClassVar[ToolRisk] = ToolRisk.READ_ONLY

            def execute(self, payload: dict[str, Any]) -> Any:
                calls.append(1)

        registry.register(Slow())
        context, policy = ToolExecutionContext("u", ["slow"], 1), ToolExecutionPolicy(["slow"])
        audit, refused = InMemoryToolAuditTrail(128), []
        start = threading.Barrier(20)

        def work() -> None:
            start.wait()
            try:
                registry.execute("slow", {}, context, policy, audit)
            except CallBudgetExhausted as error:
                refused.append(error)

        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(calls), len(refused)) == (1, 19)


class TestDelegation:
    def test_only_narrows_and_spends_the_parents_budget(self, desk: Any) -> None:
        """A subagent has a subset of the tools, and each of its calls spends its parent's budget too."""
        sub = desk.context.delegate("subagent-3", tools=["account_status", "unknown"], max_calls=2)
        assert sub.tools == {"account_status"}
        desk.execute("account_status", PAYLOAD, context=sub)
        assert (sub.remaining_calls, desk.context.remaining_calls) == (1, 2)
        with pytest.raises(Unauthorized):
            desk.execute("issue_refund", REFUND, context=sub)
        assert desk.audit.events[0].on_behalf_of == ("user-17",)

    def test_cannot_exceed_the_parent(self, desk: Any) -> None:
        """A larger budget for the subagent is bounded by what the parent has left."""
        sub = desk.context.delegate("subagent-3", tools=["account_status"], max_calls=100)
        for _ in range(3):
            desk.execute("account_status", PAYLOAD, context=sub)
        with pytest.raises(CallBudgetExhausted):
            desk.execute("account_status", PAYLOAD, context=sub)

    def test_nobody_in_the_chain_approves(self, desk: Any) -> None:
        """Neither the subagent nor whoever it acts for can approve its call."""
        sub = desk.context.delegate("subagent-3", tools=["issue_refund"], max_calls=2)
        for approver in ("user-17", "subagent-3"):
            sub.approve(HumanApproval.for_payload("issue_refund", REFUND, approver, "me"))
        with pytest.raises((HumanApprovalRequired, ApprovalPayloadMismatch)):
            desk.execute("issue_refund", REFUND, context=sub)
        sub.approve(HumanApproval.for_payload("issue_refund", REFUND, "reviewer-9", "ok"))
        desk.execute("issue_refund", REFUND, context=sub)
        assert desk.audit.events[-1].approved_by == ("reviewer-9",)


class TestDeclarations:
    def test_duplicate_tool(self, desk: Any) -> None:
        """A second tool of one name is refused."""
        with pytest.raises(DuplicateTool):
            desk.registry.register(type(desk.status)())

    def test_names_are_sorted(self, desk: Any) -> None:
        """The registry lists by name, and knows how many there are."""
        assert desk.registry.names == ("account_status", "issue_refund")
        assert (len(desk.registry), desk.registry.is_empty, ToolRegistry().is_empty) == (2, False, True)

    @pytest.mark.parametrize(
        "changes",
        [
            {"name": ""},
            {"name": "x" * 65},
            {"name": "with space"},
            {"description": " "},
            {"description": "x" * 4097},
            {"parameters": [ToolParam("a", "string", "A."), ToolParam("a", "string", "A.")]},
            {"parameters": [ToolParam(f"p{i}", "string", "A.") for i in range(65)]},
            {"risk": "harmless"},
        ],
    )
    def test_tool_bounds(self, desk: Any, changes: dict[str, Any]) -> None:
        """Names, descriptions, parameter counts and risks out of bounds are refused at registration."""
        tool = type("Odd", (type(desk.status),), {"name": "odd", **changes})()
        with pytest.raises(InvalidTool):
            desk.registry.register(tool)

    @pytest.mark.parametrize(
        ("name", "kind", "description"),
        [
            ("", "string", "d"),
            ("ä", "string", "d"),
            ("a", "text", "d"),
            ("a", "string", " "),
            ("a", "string", "d" * 2049),
        ],
    )
    def test_param_bounds(self, name: str, kind: str, description: str) -> None:
        """A parameter's name, type and description are bounded."""
        with pytest.raises(InvalidTool):
            ToolParam(name, kind, description)

    @pytest.mark.parametrize("limits", [(0, 1), (1, 0), (-1, 1)])
    def test_zero_limits_are_invalid(self, desk: Any, limits: tuple[int, int]) -> None:
        """A limit of zero or less is InvalidPolicy."""
        with pytest.raises(InvalidPolicy):
            desk.policy.with_payload_limits(*limits)

    def test_policy_defaults(self) -> None:
        """65,536 bytes in and 262,144 bytes out by default; an empty allowlist is legal and permits nothing."""
        policy = ToolExecutionPolicy([])
        assert (policy.limits.bytes, policy.output_bytes, policy.tools) == (65_536, 262_144, frozenset())

    @pytest.mark.parametrize(("principal", "max_calls"), [("", 1), (" ", 1), ("x" * 257, 1), ("u", 0), ("u", -1)])
    def test_context_bounds(self, principal: str, max_calls: int) -> None:
        """A principal is 1 to 256 bytes of text, and a budget at least 1."""
        with pytest.raises(GuardConfigurationError):
            ToolExecutionContext(principal, [], max_calls)

    @pytest.mark.parametrize(("approver", "reason"), [("", "r"), ("x" * 257, "r"), ("a", " "), ("a", "r" * 2049)])
    def test_approval_bounds(self, approver: str, reason: str) -> None:
        """An approver is at most 256 bytes, a reason at most 2048, neither blank."""
        with pytest.raises(InvalidApproval):
            HumanApproval.for_payload("issue_refund", REFUND, approver, reason)

    @pytest.mark.parametrize("capacity", [0, -1, 1_000_001])
    def test_trail_capacity(self, capacity: int) -> None:
        """A trail in memory holds 1 to 1,000,000 events."""
        with pytest.raises(ToolAuditTrailError):
            InMemoryToolAuditTrail(capacity)

    def test_trail_evicts_the_oldest(self, desk: Any) -> None:
        """A full trail drops its oldest event; sequence numbers start at 1 and go on."""
        audit = InMemoryToolAuditTrail(2)
        desk.execute("account_status", PAYLOAD, audit=audit)
        desk.execute("account_status", PAYLOAD, audit=audit)
        assert [sequence for sequence, _ in audit.records] == [3, 4]

    @pytest.mark.parametrize("risk", list(ToolRisk))
    def test_only_destructive_and_financial_need_approval(self, risk: ToolRisk) -> None:
        """Destructive and financial tools need approval, the others do not."""
        assert risk.needs_approval == (risk.value in ("destructive", "financial"))


class TestExport:
    def test_openai_schema_is_closed_and_filtered(self, desk: Any) -> None:
        """The exported schema is closed, in name order, and holds what policy and principal allow."""
        narrow = ToolExecutionContext("u", ["account_status"], 1)
        exported = desk.registry.export_openai_schema(desk.policy, narrow)
        assert exported == [
            {
                "type": "function",
                "function": {
                    "name": "account_status",
                    "description": "Looks up an account.",
                    "parameters": {
                        "type": "object",
                        "properties": {
                            "account_id": {"type": "string", "description": "The account."},
                            "verbose": {"type": "boolean", "description": "Say more."},
                        },
                        "required": ["account_id"],
                        "additionalProperties": False,
                    },
                },
            }
        ]
        names = [entry["function"]["name"] for entry in desk.registry.export_openai_schema(desk.policy)]
        assert names == ["account_status", "issue_refund"]

    def test_async_tool_needs_aexecute(self) -> None:
        """An async tool runs under aexecute, and execute says so."""
        import asyncio

        class Later(AiTool):
            name: ClassVar[str] = "later"
            description: ClassVar[str] = "Waits."
            parameters: ClassVar[list[ToolParam]] = []
            risk: ClassVar[ToolRisk] = ToolRisk.READ_ONLY

            async def execute(self, payload: dict[str, Any]) -> Any:
                await asyncio.sleep(0)
                return "done"

        registry = ToolRegistry()
        registry.register(Later())
        parts = (ToolExecutionContext("u", ["later"], 2), ToolExecutionPolicy(["later"]), InMemoryToolAuditTrail(8))
        with pytest.raises(GuardConfigurationError, match="aexecute"):
            registry.execute("later", {}, *parts)
        assert asyncio.run(registry.aexecute("later", {}, *parts)) == "done"

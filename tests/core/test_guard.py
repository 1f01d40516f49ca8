"""The guard: sessions, plain functions, decisions, what is visible, reload."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import inspect
import itertools
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from guarded_core import (
    AuditEvent,
    CallbackApprover,
    CallBudgetExhausted,
    DuplicateTool,
    DurableToolAuditTrail,
    Guard,
    GuardConfigurationError,
    InMemoryToolAuditTrail,
    InvalidPayload,
    InvalidTool,
    MemoryStore,
    NoSession,
    Outcome,
    OutcomeUnknown,
    Role,
    ToolAuditTrailError,
    ToolExecutionContext,
    ToolExecutionPolicy,
    ToolSettings,
    Unauthorized,
)
from guarded_core.pipeline.call import Call
from guarded_core.store.ledger import CallKey
from tests.core.calls import call_of


def make_guard(tools: Any = None, **settings: Any) -> Guard:
    """A guard with a policy of those tools."""
    return Guard(
        ToolExecutionPolicy(
            tools or {"add": "read_only", "pay": "financial", "later": "read_only"},
            roles={"clerk": Role(tools=frozenset(["add"]), max_calls=2)} if tools is None else {},
        ),
        **settings,
    )


@pytest.fixture
def guard() -> Guard:
    """A guard with two functions: `add`, read-only, and `pay`, financial."""
    guard = make_guard()

    @guard.tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    @guard.tool
    def pay(amount: int, to: str) -> str:
        """Pay."""
        return f"{amount} to {to}"

    guard.add, guard.pay = add, pay  # type: ignore[attr-defined]
    return guard


def call(guard: Guard, way: Any, name: str, arguments: Any, **kwargs: Any) -> Any:
    """Make the call in one of the ways."""
    return way(guard.call, guard.acall, name, arguments, **kwargs)


class TestSession:
    def test_no_session_no_call(self, guard: Guard, way: Any) -> None:
        """Outside a session every call is NoSession, and the error says how to open one."""
        with pytest.raises(NoSession, match=r"guard\.session"):
            call(guard, way, "add", {"a": 1})
        assert [e.code for e in guard.audit.events] == ["no_session"]

    def test_without_a_session_nothing_is_told_apart(self, guard: Guard) -> None:
        """Known and unknown tools look alike to somebody without a session."""
        texts = set()
        for name in ("add", "pay", "no_such_tool"):
            with pytest.raises(NoSession) as caught:
                guard.call(name, {})
            texts.add(str(caught.value))
        assert len(texts) == 1

    def test_hidden_unknown_and_unauthorised_look_alike(self, guard: Guard, way: Any) -> None:
        """In a session, a tool that is not allowed and one that does not exist give one and the same error."""
        texts = set()
        with guard.session("user-17", tools=["add"]):
            for name in ("pay", "no_such_tool", "not an identifier"):
                with pytest.raises(Unauthorized) as caught:
                    call(guard, way, name, {})
                texts.add((caught.value.code, str(caught.value)))
        assert len(texts) == 1

    def test_runs_inside(self, guard: Guard, way: Any) -> None:
        """Inside a session an allowed call runs, and spends its budget."""
        with guard.session("user-17", tools=["add"], max_calls=2) as session:
            assert call(guard, way, "add", {"a": 1}) == 3
            assert session.remaining_calls == 1

    def test_a_role_is_resolved_when_the_session_starts(self, guard: Guard) -> None:
        """A role gives tools and budget; later changes of the role do not reach a running session."""
        with guard.session("user-17", role="clerk") as session:
            assert (session.tools, session.max_calls) == ({"add"}, 2)
            guard.reload(ToolExecutionPolicy({"add": "read_only"}))
            assert guard.call("add", {"a": 1}) == 3

    def test_an_unknown_role_names_the_known_ones(self, guard: Guard) -> None:
        """A misspelt role is the developer's error, and says which there are."""
        with pytest.raises(GuardConfigurationError, match="clerk"):
            guard.session("user-17", role="clark")

    def test_no_set_means_no_tool_and_says_so(self, guard: Guard) -> None:
        """A session without tools or role warns, and permits nothing."""
        with pytest.warns(UserWarning, match="may call no tool"):
            session = guard.session("user-17")
        with session, pytest.raises(Unauthorized):
            guard.call("add", {"a": 1})

    def test_closes_on_exit(self, guard: Guard) -> None:
        """Code that still holds the session after its block is denied."""
        with guard.session("user-17", tools=["add"]) as session:
            late = contextvars.copy_context()
        with pytest.raises(NoSession):
            late.run(guard.call, "add", {"a": 1})
        with pytest.raises(NoSession):
            guard.call("add", {"a": 1}, context=session)

    def test_keep_open(self, guard: Guard) -> None:
        """A session kept open on purpose lives until it is closed."""
        with guard.session("user-17", tools=["add"]) as session:
            session.keep_open()
        assert guard.call("add", {"a": 1}, context=session) == 3
        session.close()
        with pytest.raises(NoSession):
            guard.call("add", {"a": 1}, context=session)

    def test_a_thread_that_outlives_the_block_is_denied(self, guard: Guard) -> None:
        """A worker thread started inside, running on after the block, is nobody."""
        go, results = threading.Event(), []

        def late() -> None:
            go.wait()
            try:
                results.append(guard.call("add", {"a": 1}))
            except NoSession as error:
                results.append(error.code)

        with guard.session("user-17", tools=["add"]):
            thread = threading.Thread(target=contextvars.copy_context().run, args=(late,))
            thread.start()
        go.set()
        thread.join()
        assert results == ["no_session"]

    def test_async_with(self, guard: Guard) -> None:
        """`async with` opens a session too; tasks inside share it."""

        async def main() -> list[int]:
            async with guard.session("user-17", tools=["add"], max_calls=5):
                return await asyncio.gather(*(guard.acall("add", {"a": n}) for n in range(5)))

        assert asyncio.run(main()) == [2, 3, 4, 5, 6]

    def test_two_guards_do_not_share_sessions(self, guard: Guard) -> None:
        """A session of one guard is nobody to another, also when both are entered."""
        other = make_guard()
        with guard.session("user-17", tools=["add"]), pytest.raises(NoSession):
            other.call("add", {"a": 1})
        with other.session("user-18", tools=["add"]), guard.session("user-17", tools=["add"]):
            assert guard.call("add", {"a": 1}) == 3
            with pytest.raises(Unauthorized):  # nothing is registered there
                other.call("add", {"a": 1})

    def test_a_context_that_this_guard_did_not_issue(self, guard: Guard) -> None:
        """A context made elsewhere, or no context at all, is denied with the reason."""
        for context in (ToolExecutionContext("user-17", ["add"], 3), {"principal": "user-17"}):
            with pytest.raises(NoSession, match="not issued by this guard"):
                guard.call("add", {"a": 1}, context=context)

    def test_an_explicit_context_that_differs_from_the_current_one(self, guard: Guard) -> None:
        """Two sessions for one call are a denial; the same one twice is not."""
        first, second = guard.session("user-17", tools=["add"]), guard.session("user-18", tools=["add"])
        with first:
            assert guard.call("add", {"a": 1}, context=first) == 3
            with pytest.raises(NoSession, match="Two sessions"):
                guard.call("add", {"a": 1}, context=second)

    def test_identify(self) -> None:
        """A guard that identifies callers needs no `with`; what it returns must be its own session."""
        guard = make_guard({"add": "read_only"}, identify=lambda runtime: sessions[0])

        @guard.tool
        def add(a: int) -> int:
            return a

        sessions: list[Any] = [guard.session("user-17", tools=["add"])]
        assert guard.call("add", {"a": 1}) == 1
        sessions[0] = {"principal": "root"}
        with pytest.raises(NoSession):
            guard.call("add", {"a": 1})

    def test_an_identify_that_fails_identifies_nobody(self) -> None:
        """Where the caller cannot be identified the call is denied and recorded; the error does not get out."""

        def identify(runtime: Any) -> Any:
            raise KeyError("user-17's token")

        guard = make_guard({"_add": "read_only"}, identify=identify)
        guard.tool(_add)
        with pytest.raises(NoSession, match="could not be identified"):
            guard.call("_add", {"a": 1})
        assert [event.code for event in guard.audit.events] == ["no_session"]  # type: ignore[union-attr]

    def test_picked_up_by_id(self) -> None:
        """A session picked up by its id keeps what it has spent, and never gets more than it had."""
        store = MemoryStore()
        guard = make_guard(store=store)
        first = guard.session("user-17", tools=["add", "pay"], max_calls=3, session_id="s1")
        again = guard.session("user-17", tools=["add", "later"], max_calls=50, session_id="s1")
        first.open()
        again.open()
        assert (again.tools, again.max_calls) == ({"add"}, 3)
        assert first.session_id == again.session_id == "user-17#s1"
        other = guard.session("user-18", tools=["add"], session_id="s1")
        assert other.session_id != first.session_id

    @pytest.mark.parametrize("session_id", ["", "a#b", "x" * 129])
    def test_session_ids_are_bounded(self, guard: Guard, session_id: str) -> None:
        """A session id has no `#`, so that no two principals' keys can meet."""
        with pytest.raises(GuardConfigurationError):
            guard.session("user-17", tools=["add"], session_id=session_id)

    def test_too_many_denials_end_it(self) -> None:
        """After max_denials refused calls a session is over, whatever is called next."""
        guard = make_guard({"_add": "read_only"}, max_denials=3)
        guard.tool(_add)
        with guard.session("user-17", tools=["_add"]):
            for _ in range(3):
                with pytest.raises(InvalidPayload):
                    guard.call("_add", {"a": "x"})
            with pytest.raises(NoSession, match="session is over"):
                guard.call("_add", {"a": 1})

    def test_pending_requests_are_capped(self) -> None:
        """A session may have only so many requests waiting for a person."""
        guard = make_guard({"_add": "financial"}, max_pending=2)
        guard.tool(_add)
        with guard.session("user-17", tools=["_add"]):
            for n in range(4):
                with pytest.raises(Exception, match="person"):
                    guard.call("_add", {"a": n})
        assert len(guard.approvals.pending()) == 2


def _add(a: int) -> int:
    """Add."""
    return a


class Address(BaseModel):
    city: str
    zip: Annotated[str, Field(pattern="^[0-9]{5}$")] = "00000"


_counter = itertools.count()


class Options(BaseModel):
    nonce: int = Field(default_factory=lambda: next(_counter))


class TestFunctions:
    def test_positional_and_keyword_arguments_are_governed_alike(self, guard: Guard) -> None:
        """The guarded function takes arguments as the bare one does, and judges all of them."""
        with guard.session("user-17", tools=["add"]):
            assert guard.add(1) == guard.add(a=1) == guard.add(1, 2) == guard.add(1, b=2) == 3  # type: ignore[attr-defined]
            with pytest.raises(InvalidPayload):
                guard.add("1")  # type: ignore[attr-defined]
            with pytest.raises(TypeError):
                guard.add()  # type: ignore[attr-defined]

    def test_looks_like_the_function(self, guard: Guard) -> None:
        """Name, docstring and signature are the function's; there is no way around by `__wrapped__`."""
        add = guard.add  # type: ignore[attr-defined]
        assert (add.__name__, add.__doc__) == ("add", "Add.")
        assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
        assert not hasattr(add, "__wrapped__")

    def test_async_functions(self, guard: Guard) -> None:
        """An async function stays async; the sync entry says to use the async one."""

        @guard.tool
        async def later(a: int) -> int:
            await asyncio.sleep(0)
            return a

        async def main() -> Any:
            async with guard.session("user-17", tools=["later"]):
                return await later(4), await guard.acall("later", {"a": 5})

        assert inspect.iscoroutinefunction(later)
        assert asyncio.run(main()) == (4, 5)
        with guard.session("user-17", tools=["later"]), pytest.raises(GuardConfigurationError, match="acall"):
            guard.call("later", {"a": 1})

    def test_typed_arguments_arrive_as_their_types(self, way: Any) -> None:
        """A pydantic model or annotated type is judged as JSON, and reaches the function parsed."""
        guard = make_guard({"ship": "mutating"})
        seen = []

        @guard.tool
        def ship(to: Address, days: set[int]) -> str:
            seen.append((to, days))
            return to.city

        with guard.session("user-17", tools=["ship"]):
            assert call(guard, way, "ship", {"to": {"city": "Bonn"}, "days": [1, 2]}) == "Bonn"
            for bad in ({"city": "Bonn", "zip": "x"}, {"city": "Bonn", "extra": 1}):
                with pytest.raises(InvalidPayload):
                    call(guard, way, "ship", {"to": bad, "days": []})
        assert seen == [(Address(city="Bonn"), {1, 2})]

    def test_a_default_factory_runs_once(self) -> None:
        """What a person approves is what runs: a default computed anew each time would differ."""
        guard = make_guard({"go": "financial"}, approver=CallbackApprover(lambda r: seen.append(r) or True, by="lee"))
        seen: list[Any] = []

        @guard.tool
        def go(options: Options) -> int:
            return options.nonce

        with guard.session("user-17", tools=["go"]):
            assert guard.call("go", {"options": {}}) == seen[0].arguments["options"]["nonce"]

    def test_what_cannot_be_checked_is_refused(self) -> None:
        """Missing annotations, *args, masked secrets and types without JSON are refused when declared."""
        guard = make_guard({"f": "read_only"})

        def untyped(a):  # type: ignore[no-untyped-def]
            return a

        def variadic(*a: int) -> None: ...
        def secret(a: SecretStr) -> None: ...
        def odd(a: threading.Thread) -> None: ...

        for function in (untyped, variadic, secret, odd):
            with pytest.raises(InvalidTool, match="tool 'f'"):
                guard.tool(name="f")(function)

    def test_missing_risks_are_named_together(self) -> None:
        """A function whose risk nobody declares is an error that shows the lines to paste."""
        guard = make_guard({"other": "read_only"})
        with pytest.raises(InvalidTool, match=r"\[tools\._add\]"):
            guard.tool(_add)

    def test_duplicates(self, guard: Guard) -> None:
        """Two functions of one name are refused."""
        with pytest.raises(DuplicateTool):
            guard.tool(name="add")(_add)

    def test_risk_is_the_strictest_declaration(self) -> None:
        """Code and policy both count: the stricter one; only an explicit lower_risk lowers."""
        guard = make_guard({"_add": "read_only"})
        guard.tool(risk="financial")(_add)
        with guard.session("user-17", tools=["_add"]):
            assert guard.decide("_add", {"a": 1}).outcome == "ask"
            guard.reload(ToolExecutionPolicy({"_add": ToolSettings(risk="read_only", lower_risk=True)}))
            assert guard.decide("_add", {"a": 1}).outcome == "allow"


class TestDecide:
    def test_says_what_would_happen_and_changes_nothing(self, guard: Guard, way: Any) -> None:
        """A decision allows, asks or denies as the call would, and spends, asks and records nothing."""
        with guard.session("user-17", tools=["add", "pay"], max_calls=1) as session:
            allowed = way(guard.decide, guard.adecide, "add", {"a": 1})
            asked = way(guard.decide, guard.adecide, "pay", {"amount": 1, "to": "x"})
            denied = way(guard.decide, guard.adecide, "add", {"a": "1"})
            hidden = way(guard.decide, guard.adecide, "later", {})
            assert session.remaining_calls == 1
        assert [d.outcome for d in (allowed, asked, denied, hidden)] == ["allow", "ask", "deny", "deny"]
        assert asked.approval_request.arguments == {"amount": 1, "to": "x"}
        assert (denied.code, hidden.code) == ("invalid_payload", "unauthorized")
        assert (len(guard.audit), guard.approvals.pending()) == (0, [])


class TestVisible:
    def test_allowlist_and_principals_set(self, guard: Guard) -> None:
        """Outside a session the policy's own view; inside, what the principal may use."""
        assert [view.name for view in guard.visible_tools()] == ["add", "pay"]
        with guard.session("user-17", tools=["pay"]):
            assert [view.name for view in guard.visible_tools()] == ["pay"]

    def test_blanket_denials_hide(self, guard: Guard) -> None:
        """A tool that a rule forbids outright is not shown, and comes back when the rule goes."""
        guard.rules.register_tool_deny("no_pay", "pay", lambda action, state: "closed", "Payments are closed.")
        assert [view.name for view in guard.visible_tools()] == ["add"]
        guard.rules.unregister("no_pay")
        assert [view.name for view in guard.visible_tools()] == ["add", "pay"]


class TestBudgets:
    def test_a_tools_own_budget(self) -> None:
        """A tool's max_calls counts beside the session's."""
        guard = make_guard({"_add": ToolSettings(risk="read_only", max_calls=1)})
        guard.tool(_add)
        with guard.session("user-17", tools=["_add"], max_calls=5) as session:
            guard.call("_add", {"a": 1})
            with pytest.raises(CallBudgetExhausted):
                guard.call("_add", {"a": 1})
            assert session.remaining_calls == 4


class TestReconcile:
    KEY = CallKey(position="thread-1", tool_call_id="call-1")

    def crashed(self) -> tuple[Guard, Any, str]:
        """A guard, its session, and the id of a keyed call that was interrupted in the middle."""
        guard = make_guard({"_add": "mutating"})
        guard.tool(_add)
        session = guard.session("user-17", tools=["_add"], max_calls=9)
        with pytest.raises(KeyboardInterrupt):
            guard.run(self.call(guard, session, _interrupted))
        return guard, session, guard.audit.events[-1].call_id  # type: ignore[union-attr]

    def call(self, guard: Guard, session: Any, function: Any) -> Call:
        """The keyed call, as an adapter makes it."""
        spec = guard.spec("_add")
        assert spec is not None
        return call_of(spec, function, arguments={"a": 1}, context=session, key=self.KEY)

    def test_what_succeeded_is_not_run_again(self) -> None:
        """A call that is reconciled as succeeded neither runs again nor makes equal calls ask."""
        guard, session, call_id = self.crashed()
        assert guard.decide("_add", {"a": 1}, context=session).outcome == "ask"
        guard.reconcile(call_id, "succeeded", by="ops", reason="seen in the bank's journal")
        assert guard.decide("_add", {"a": 1}, context=session).outcome == "allow"
        with pytest.raises(OutcomeUnknown, match="no longer kept"):
            guard.run(self.call(guard, session, lambda arguments: 1))
        event = next(event for event in guard.audit.events if event.outcome.value == "noted")  # type: ignore[union-attr]
        assert (event.code, event.approved_by, event.call_id) == ("reconciled_succeeded", ("ops",), call_id)

    def test_what_failed_may_be_tried_again(self) -> None:
        """A call that is reconciled as failed runs when it is made again."""
        guard, session, call_id = self.crashed()
        guard.reconcile(call_id, "failed", by="ops")
        assert guard.run(self.call(guard, session, lambda arguments: arguments["a"])) == 1

    @pytest.mark.parametrize(("by", "reason"), [("", "r"), ("x" * 257, "r"), ("ops", "r" * 2049)])
    def test_who_says_so_is_bounded(self, by: str, reason: str) -> None:
        """A blank or overlong name, or an overlong reason, is refused, and nothing is settled."""
        guard, _, call_id = self.crashed()
        with pytest.raises(GuardConfigurationError):
            guard.reconcile(call_id, "failed", by=by, reason=reason)
        guard.reconcile(call_id, "failed", by="ops")

    def test_only_what_is_unknown(self) -> None:
        """A call that is not known, or whose outcome is, cannot be reconciled."""
        guard, _, call_id = self.crashed()
        guard.reconcile(call_id, "failed", by="ops")
        for unknown in (call_id, "no such call"):
            with pytest.raises(GuardConfigurationError):
                guard.reconcile(unknown, "failed", by="ops")


def _interrupted(arguments: Any) -> Any:
    raise KeyboardInterrupt


class TestConstruction:
    def test_the_policy_comes_first(self) -> None:
        """A path in place of a policy is told how it is meant."""
        with pytest.raises(GuardConfigurationError, match="from_file"):
            Guard("policy.toml")

    def test_reload_needs_a_file_or_a_policy(self, guard: Guard) -> None:
        """A guard built in code cannot reload from nowhere."""
        with pytest.raises(GuardConfigurationError):
            guard.reload()

    def test_closes_what_it_opened(self, tmp_path: Path) -> None:
        """A trail that the guard opened is closed with it, and can then be opened anew; one handed over is not."""
        path = tmp_path / "audit.log"
        guard = make_guard(audit=path)
        with pytest.raises(ToolAuditTrailError):
            DurableToolAuditTrail.open(path)
        guard.close()
        trail = DurableToolAuditTrail.open(path)
        make_guard(audit=trail).close()
        trail.append(AuditEvent(outcome=Outcome.NOTED, time_ns=1, call_id="c", tool="t"))

    def test_keys_key_the_payload_digests(self) -> None:
        """With keys, events carry a digest of the payload that nobody can guess without them; without, none."""
        digests = []
        for keys in (None, b"k" * 32, b"l" * 32):
            guard = make_guard({"_add": "read_only"}, keys=keys)
            guard.tool(_add)
            with guard.session("user-17", tools=["_add"]):
                guard.call("_add", {"a": 1})
            digests.append(guard.audit.events[0].payload_digest)  # type: ignore[union-attr]
        assert digests[0] is None
        assert len(set(digests)) == 3
        assert hashlib.sha256(b'{"a":1}').hexdigest() not in digests

    def test_one_trail_for_all(self) -> None:
        """The sink that is handed over is the one that is used."""
        trail = InMemoryToolAuditTrail(8)
        assert make_guard(audit=trail).audit is trail


class TestRefuse:
    """Calls that reach no tool."""

    @pytest.mark.parametrize("name", ["made_up", "add", "pay", "no name at all"])
    def test_is_judged_and_recorded_once(self, guard: Guard, way: Any, name: str) -> None:
        """The answer is the one that a hidden tool gets, for a registered name too; what the model sent is nowhere."""
        with guard.session("u", tools=["add"]) as session:
            error = way(guard.refuse, guard.arefuse, name, {"secret": "s3cret"}, context=session)
        assert (type(error), str(error)) == (Unauthorized, Unauthorized.text)
        (event,) = guard.audit.events
        assert (event.outcome, event.code, event.principal) == (Outcome.DENIED, "unauthorized", "u")
        assert event.tool == (name if " " not in name else error.tool)
        assert (" " in error.tool, "s3cret" in repr(event)) == (False, False)

    @pytest.mark.parametrize(
        ("name", "arguments", "code"),
        [
            ("add", '{"a": 1', "invalid_payload"),
            ("add", '{"a": 1}', "invalid_payload"),
            ("pay", '{"a": 1', "unauthorized"),
            ("made_up", '{"a": 1', "unauthorized"),
        ],
    )
    def test_arguments_that_could_not_be_read(
        self, guard: Guard, way: Any, name: str, arguments: str, code: str
    ) -> None:
        """A tool that the session may use is refused for them, even where they are JSON after all; nothing ran."""
        with guard.session("u", tools=["add"]):
            error = way(guard.refuse, guard.arefuse, name, arguments, unreadable=True)
        assert error.code == code
        assert [(event.outcome, event.code) for event in guard.audit.events] == [(Outcome.DENIED, code)]

    def test_without_a_session(self, guard: Guard, way: Any) -> None:
        """Nobody is calling."""
        assert type(way(guard.refuse, guard.arefuse, "made_up", {})) is NoSession

    def test_whose_call_it_is(self, way: Any) -> None:
        """A framework's runtime names the session where no block does."""
        guard = make_guard(identify=lambda runtime: runtime)
        session = guard.session("u", tools=["add"])
        assert type(way(guard.refuse, guard.arefuse, "made_up", {}, runtime=session)) is Unauthorized
        assert [event.principal for event in guard.audit.events] == ["u"]

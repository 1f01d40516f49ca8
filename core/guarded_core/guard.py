"""The guard: one policy, one trail, one store and one approver, for every tool and every framework."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast, overload

from guarded_core.approvals.approver import Approver, in_turn
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import ApprovalRequest
from guarded_core.audit.chain import AuditKeys, KeysLike
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.sink import AuditSink, ToolAuditSink, completed
from guarded_core.audit.trail import Trail, trail_of
from guarded_core.ground.errors import (
    DuplicateTool,
    GuardConfigurationError,
    InvalidPolicy,
    InvalidTool,
    StoreUnavailable,
    ToolExecutionError,
    as_cause,
)
from guarded_core.ground.given import kind, misplaced, require
from guarded_core.ground.shown import Shown
from guarded_core.ground.wording import counted
from guarded_core.pipeline.call import Authority, Call
from guarded_core.pipeline.flow import enforce, propose, refusal
from guarded_core.pipeline.steps import Flow, Services, arun, recorded, run
from guarded_core.pipeline.watching import Telemetry
from guarded_core.policy.lint import misfits
from guarded_core.policy.policy import DEFAULT_MAX_CALLS, ToolExecutionPolicy
from guarded_core.preview.coverage import Coverage, coverage
from guarded_core.preview.decision import Decision, Trace, preview, trace
from guarded_core.preview.registered import unregistered
from guarded_core.preview.visible import ToolView, is_visible, visible_tools
from guarded_core.provenance.journal import Journal
from guarded_core.provenance.memory import Provenance
from guarded_core.provenance.seals import Seals
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.ruleset import RuleSet
from guarded_core.rules.state import StateStore
from guarded_core.session import Callers, Nobody, ToolExecutionContext, current_context
from guarded_core.store.base import Query, Store
from guarded_core.store.opening import open_sink, open_store
from guarded_core.store.reconcile import reconcile
from guarded_core.tools.examination import ToolWarning, check_steady, odd_about
from guarded_core.tools.port import ToolPort, UnreadablePort
from guarded_core.tools.spec import ToolRisk, ToolSpec

if TYPE_CHECKING:
    from guarded_core.tools.function import PlainFunction

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P")
OnInvalid = Literal["refuse", "leave_out"]

_log = logging.getLogger(__name__)

_MAX_MEMORIES = 256
_WAYS_IN = "a framework's tool goes through its adapter's guard_tool, a function through @guard.tool"


class Guard(Shown):
    """Stands in front of tools: judges, records and runs their calls.

    Args:
        policy: what is allowed; or, with `from_file`, where that is written.
        audit: a sink, or the path of a durable trail. By default a bounded trail in memory, or a SQL store's own.
        approver: who is asked, or several, asked in turn until one answers; None leaves it to `approvals.decide`.
        store: budgets, approvals and the ledger: a store, or a database URL. In memory by default. A database that is
            locked or away is tried for five seconds; `SqlStore.open(url, timeout=...)` sets that.
        state: the application's own facts for rules.
        keys: secrets that seal a trail or SQL store opened here, the first one new records, and that key the payload
            digests in events; without them, events carry none.
        identify: finds the session of a framework's runtime, where a server has no place for a ``with``; asked where
            a call is in no block of its own.
        max_denials: denied calls after which a session is over.
        max_pending: approval requests that may wait in one session.
        telemetry: is told of calls as they happen, such as ``guarded_core.OpenTelemetry()``.

    Attributes:
        trail: what happened, to be read, verified and completed, wherever it is kept: in the store, behind `audit`, or
            in memory. Where `audit` only takes events, reading raises ToolAuditTrailError("write_only").
        audit: where events go, beside a store that keeps the trail; None where they go nowhere else.

    Raises:
        GuardConfigurationError, ToolAuditTrailError: something named here cannot be used.
    """

    def __init__(
        self,
        policy: ToolExecutionPolicy,
        *,
        audit: ToolAuditSink | str | Path | None = None,
        approver: Approver | Sequence[Approver] | None = None,
        store: Store | str | None = None,
        state: StateStore | None = None,
        keys: KeysLike = None,
        identify: Callable[[Any], ToolExecutionContext | None] | None = None,
        max_denials: int = 64,
        max_pending: int = 16,
        telemetry: Telemetry | None = None,
    ) -> None:
        require(ToolExecutionPolicy, "policy", "a ToolExecutionPolicy", policy, "for a file use Guard.from_file(path)")
        require((StateStore, type(None)), "state", "a StateStore", state)
        if identify is not None and (isinstance(identify, type) or not callable(identify)):
            raise misplaced("identify", "a function of the framework's runtime", identify)
        for name, most in (("max_denials", max_denials), ("max_pending", max_pending)):
            if type(most) is not int or most < 1:
                raise misplaced(name, "a whole number, at least 1", most)
        if telemetry is not None and (isinstance(telemetry, type) or not hasattr(telemetry, "watched")):
            raise misplaced("telemetry", "an OpenTelemetry()", telemetry)
        self._lock = threading.Lock()
        self._policy = policy
        self._source: Path | None = None
        self._ports: dict[str, ToolPort] = {}
        self._functions: dict[str, PlainFunction] = {}
        self._callers = Callers(self, identify)
        self._oddities: dict[Any, tuple[ToolPort, tuple[str, ...]]] = {}
        self._left_out: dict[str, str] = {}  # tools that could not be guarded, and why
        self._is_warned = False  # of tools of the policy that nothing has registered by the first call
        self._memories: OrderedDict[str, Provenance] = OrderedDict()
        self.rules = PolicyEngine()
        self.state = state or StateStore()
        audit_keys = AuditKeys.of(keys)
        self._seals = None if audit_keys is None else _seals(audit_keys)
        self.store: Store = open_store(store, audit_keys)
        self.audit = open_sink(audit, audit_keys, self.store)
        self.trail: Trail = (self.store.trail() if self.store.keeps_trail else None) or trail_of(self.audit)
        self.approvals = Approvals(self.store, self._record)
        self._approver = in_turn(approver, self.store)
        sink = None if self.audit is None else completed(self.audit)
        self._opened: list[AuditSink | Store] = [
            *([sink] if sink is not None and self.audit is not audit else ()),
            *([self.store] if self.store is not store else ()),
        ]
        self._services = Services(store=self.store, sink=sink, approver=self._approver)
        self.authority = Authority(
            policy=lambda: self._policy,
            engine=self.rules,
            state=self.state,
            asks=self._approver is not None,
            digest_key=audit_keys.derive("payload digest") if audit_keys else None,
            max_denials=max_denials,
            max_pending=max_pending,
            trace_id=telemetry.trace_id if telemetry else None,
        )
        self._telemetry = telemetry

    @classmethod
    def from_file(cls, path: str | Path, **settings: Any) -> Guard:
        """A guard with the policy of a TOML file, or of a folder of them.

        Args:
            path: the file or folder.
            settings: see the class.

        Raises:
            InvalidPolicy: naming the file, the place in it and what would be right.
        """
        from guarded_core.policy.file import load_policy

        require((str, Path), "path", "where a policy file or a folder of them is", path)
        guard = cls(load_policy(path), **settings)
        guard._source = Path(path)
        return guard

    @property
    def policy(self) -> ToolExecutionPolicy:
        """The policy in force."""
        return self._policy

    @property
    def traces(self) -> bool:
        """Whether a rule asks where values came from."""
        return self.authority.rules(self._policy, None).traces

    def reload(self, policy: ToolExecutionPolicy | None = None) -> ToolExecutionPolicy:
        """Put a new policy in force: the file's as it is now, or `policy`. Rules registered in code stay.

        Calls that are being judged keep the policy they began with; calls that wait for a person are judged anew.

        Raises:
            InvalidPolicy: the file is not usable, or does not fit the tools; the old policy stays in force.
            GuardConfigurationError: this guard has no file, and no policy was given.
        """
        if policy is None:
            if self._source is None:
                raise GuardConfigurationError("this guard has no policy file; give reload() the new policy")
            from guarded_core.policy.file import load_policy

            policy = load_policy(self._source)
        require(ToolExecutionPolicy, "policy", "a ToolExecutionPolicy", policy, "without one, the file is read again")
        _check_fit(policy, self._specs())
        self._policy = policy
        return policy

    def _record(self, event: AuditEvent) -> None:
        """Write an event that is about no call under way."""
        run(recorded(event), self._services)

    def close(self) -> None:
        """Close the trail and the store that this guard opened itself; what was handed over stays open.

        Or use the guard in a ``with``.
        """
        with ExitStack() as closing:  # each is closed, whatever becomes of the others
            for opened in reversed(self._opened):
                closing.callback(opened.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def check_framework(self, framework: str) -> None:
        """Raises GuardConfigurationError where there are approvers, and none can ask about a tool of this framework.

        Args:
            framework: "langchain" or "llamaindex".
        """
        if self._approver is not None:
            self._approver.check_framework(framework)

    # Sessions

    def session(
        self,
        principal: str,
        *,
        tools: Iterable[str] | Mapping[str, int | None] | None = None,
        role: str | None = None,
        max_calls: int | None = None,
        session_id: str | None = None,
        request: str | None = None,
        narrow: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
        known_as: Iterable[str] = (),
        on_behalf_of: str | None = None,
        nested: bool = False,
        ambient: bool = False,
    ) -> ToolExecutionContext:
        """A session for an authenticated principal; enter it with ``with`` or ``async with`` around the agent.

        Args:
            principal: who, as the application authenticated them.
            tools: exact names, or names with how many calls each is good for; with a role, both sets must hold a tool.
            role: a role of the policy, resolved now.
            max_calls: the budget; by default the role's, or 100.
            session_id: picks a stored session up again, with its first call; never with more than it had. What it saw
                in another process is known here to require_origin rules where the guards have `keys` in common.
            request: what the user asked for, in their own words; later turns enter through `context.said`.
            narrow: by tool and parameter, the only values for this task, such as
                ``{"send_money": {"recipient": ["GB29..."]}}``; a model is shown them.
            known_as: addresses, accounts and names that the principal goes by in records.
            on_behalf_of: the user in whose session the principal acts, as support does: their budget and rates are
                spent, both names are on record, and neither approves what it does.
            nested: it may be entered inside another principal's block.
            ambient: a generator that enters it stands for a ``with`` block, as a dependency of an injection container
                does; those of contextlib, FastAPI and pytest are known.

        Raises:
            GuardConfigurationError: an unknown role, or a bound that is not kept.
        """
        allowed = None if tools is None else _names(tools)
        if role is not None:
            found = self._policy.roles.get(role)
            if found is None:
                known = ", ".join(sorted(self._policy.roles)) or "none"
                raise GuardConfigurationError(f"no role named {role!r} in the policy; there are: {known}")
            allowed = found.tools if allowed is None else allowed & found.tools
            max_calls = found.max_calls if max_calls is None else max_calls
        if allowed is None:
            warnings.warn(
                "a session without tools= or role= may call no tool; name them: guard.session(user, tools=[...])",
                stacklevel=2,
            )
            allowed = frozenset()
        counts = tools if isinstance(tools, Mapping) else {}
        context = ToolExecutionContext(
            principal if on_behalf_of is None else on_behalf_of,
            {name: counts.get(name) for name in allowed},
            DEFAULT_MAX_CALLS if max_calls is None else max_calls,
            session_id=session_id,
            store=self.store,
            issuer=self,
            narrow=narrow,
            nested=nested,
            ambient=ambient,
        )
        self._callers.issued(context, (*self._policy.tools, *self._ports))
        if session_id is not None:
            context.origins = self._recall(context)
        if on_behalf_of is not None:
            context = context.delegate(
                principal,
                tools=context.tools,
                max_calls=context.max_calls,
                session_id=session_id,
                nested=nested,
                ambient=ambient,
            )
            self._callers.issued(context, ())
        context.origins.known_as(*known_as)
        if request is not None:
            require(str, "request", "what the user asked for, as text", request)
            context.said(request)
        return context

    def end_sessions(self, principal: str) -> None:
        """End all sessions of that person now, in every process that shares the store, and what acts for them.

        Calls that were let through already go on; sessions that are opened afterwards are new ones.

        Raises:
            StoreUnavailable: only this process's sessions are ended.
        """
        self._callers.end(principal)
        self._callers.ended(self.store.end_sessions(principal))

    async def aend_sessions(self, principal: str) -> None:
        """As `end_sessions`, without blocking the event loop."""
        await self._in_store(self.end_sessions, principal)

    def _recall(self, context: ToolExecutionContext) -> Provenance:
        """The memory of a named session, which all who pick it up in this process share."""
        with self._lock:
            known = self._memories.pop(context.session_id, None)
            if known is None:
                seals = self._seals
                journal = None if seals is None else Journal(seals, context.session_id, context.principal)
                known = Provenance(context.principal, is_shared=True, journal=journal)
            self._memories[context.session_id] = known
            while len(self._memories) > _MAX_MEMORIES:
                self._memories.popitem(last=False)
        return known

    def forget_memory(self, principal: str) -> None:
        """Delete what is kept of where the values of that person's sessions came from, here and in the store.

        Where one of their sessions goes on, all that it saw and heard before is unknown.

        Raises:
            StoreUnavailable: only this process has forgotten.
        """
        with self._lock:
            for session_id in [key for key in self._memories if key.rpartition("#")[0] == principal]:
                self._memories.pop(session_id).forget()
        self.store.forget_memory(principal)

    async def aforget_memory(self, principal: str) -> None:
        """As `forget_memory`, without blocking the event loop."""
        await self._in_store(self.forget_memory, principal)

    async def _in_store(self, work: Callable[[str], None], principal: str) -> None:
        if self.store.blocking:
            await asyncio.to_thread(work, principal)
        else:
            work(principal)

    def resolve(
        self, context: ToolExecutionContext | None = None, *, runtime: Any = None
    ) -> tuple[ToolExecutionContext | None, Nobody | None]:
        """Whose call this is: the context, or None; and where it is nobody's, why.

        Args:
            context: handed over in code; must not differ from the session whose block the call is in.
            runtime: a framework's runtime, for `identify`, which is asked where the call is in no block.
        """
        return self._callers.resolve(context, runtime)

    # Tools

    def spec(self, name: str) -> ToolSpec | None:
        """The registered tool of that name."""
        port = self._ports.get(name)
        return None if port is None else port.spec

    def admit(
        self, makers: Mapping[str, Callable[[], P]], port_of: Callable[[P], ToolPort], on_invalid: OnInvalid = "refuse"
    ) -> list[P]:
        """Make and register tools, each judged by itself; for adapters.

        Args:
            makers: by the tool's name, what makes it guardable, or raises InvalidTool.
            port_of: the port of what was made.
            on_invalid: "refuse" raises for any that cannot be guarded, "leave_out" warns and goes on with the others.

        Raises:
            InvalidTool: with the reason for each tool that cannot be guarded.
        """
        made: dict[str, P] = {}
        faults: dict[str, InvalidTool] = {}
        for name, make in makers.items():
            try:
                one = make()
                self._examine(port_of(one))
            except InvalidTool as error:
                faults[name] = error
                continue
            made[name] = one
        undeclared = [port_of(one).spec for one in made.values() if self._policy.risk(port_of(one).spec) is None]
        if faults and on_invalid == "refuse":
            raise next(iter(faults.values())) if len(faults) == 1 else InvalidTool("\n".join(map(str, faults.values())))
        if undeclared and on_invalid == "leave_out":
            faults |= {spec.name: _undeclared(spec) for spec in undeclared}
        self._leave_out(faults)
        left = [one for name, one in made.items() if name not in faults]
        for port in map(port_of, left):
            odd = self._odd(port) if self._ports.get(port.spec.name) is not port else ()
            if odd:
                _log.warning("the tool %s: %s", port.spec.name, "; ".join(odd))
        self.register(*map(port_of, left))
        return left

    def _examine(self, port: ToolPort) -> None:
        if self._ports.get(port.spec.name) is port:
            return
        settings = self._policy.settings(port.spec.name)
        opaque = frozenset(settings.opaque) if settings else frozenset[str]()
        check_steady(port.spec.name, port.parser(), dict(port.spec.schema), opaque)

    def _odd(self, port: ToolPort) -> tuple[str, ...]:
        """What is odd about a tool, under the policy in force; looked for once for each policy's word."""
        settings = self._policy.settings(port.spec.name)
        key = port.spec.name, self._policy.terms(port.spec.name), frozenset(settings.opaque if settings else ())
        known = self._oddities.get(key)
        if known is None or known[0] is not port:
            known = self._oddities[key] = port, odd_about(port, *key[1:])
        return known[1]

    def _leave_out(self, faults: Mapping[str, InvalidTool]) -> None:
        for error in faults.values():
            warnings.warn(f"left out: {error}", ToolWarning, stacklevel=5)
        with self._lock:
            self._left_out = {**self._left_out, **{name: str(error) for name, error in faults.items()}}

    @property
    def left_out(self) -> Mapping[str, str]:
        """The tools that could not be guarded, each with the reason."""
        return dict(self._left_out)

    def register(self, *tools: ToolPort | ToolSpec) -> None:
        """Make tools known, for what is shown and decided; a later one of a name stands in for an earlier one.

        A call carries the tool it is for, so that one guard may serve several agents with tools of one name.

        Raises:
            InvalidTool: tools that neither the policy nor code declares a risk for, all of them named.
            InvalidPolicy: a rule or a setting of the policy is about a parameter that its tool does not have.
        """
        for tool in tools:
            require((ToolPort, ToolSpec), "each tool", "a ToolSpec or a ToolPort", tool, _WAYS_IN)
        ports = [ToolPort(tool) if isinstance(tool, ToolSpec) else tool for tool in tools]
        undeclared = [port.spec for port in ports if self._policy.risk(port.spec) is None]
        if undeclared:
            raise _undeclared(*undeclared)
        _check_fit(self._policy, (port.spec for port in ports))
        with self._lock:
            self._ports = {**self._ports, **{port.spec.name: port for port in ports}}
            for port in ports:
                self._left_out.pop(port.spec.name, None)

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(
        self, *, risk: ToolRisk | str | None = None, name: str | None = None, description: str | None = None
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        function: F | None = None,
        *,
        risk: ToolRisk | str | None = None,
        name: str | None = None,
        description: str | None = None,
    ) -> F | Callable[[F], F]:
        """Guard a plain function, sync or async: every call of it, positional or by keyword, goes through the guard.

        Args:
            risk: what it can do; the policy may say so instead.
            name, description: default to the function's name and docstring.

        Raises:
            InvalidTool: a parameter has no annotation or no JSON form, or no risk is declared.
            DuplicateTool: the name is taken.
        """

        from guarded_core.tools.function import PlainFunction  # with it comes pydantic, which only typed functions need

        def guarded(function: F) -> F:
            if not inspect.isroutine(function):
                raise InvalidTool(f"{kind(function)} was given, which is not a function; {_WAYS_IN}")
            terms = self._policy.terms(name or function.__name__)
            plain = PlainFunction(function, name=name, description=description, risk=risk, terms=terms)
            if plain.spec.name in self._functions:
                hint = ", or begin anew: guard.close(), and another Guard"  # a cell of a notebook was run again
                raise DuplicateTool(plain.spec.name, hint)
            self._examine(plain)
            self.register(plain)
            self._functions[plain.spec.name] = plain
            return cast(F, self._stand_in(plain))

        return guarded if function is None else guarded(function)

    def _stand_in(self, plain: PlainFunction) -> Callable[..., Any]:
        tool = plain.spec.name
        if plain.is_async:

            async def acall(*args: Any, **kwargs: Any) -> Any:
                return await self.acall(tool, plain.arguments(args, kwargs))

            return plain.stand_in(acall)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(tool, plain.arguments(args, kwargs))

        return plain.stand_in(call)

    def visible_tools(self, context: ToolExecutionContext | None = None) -> list[ToolView]:
        """The tools a model should be shown in `context` or the current session; outside any, the policy's own view."""
        found, policy = context, self._policy
        if found is None:
            found, misplaced = self._callers.place()
            if misplaced:
                return []  # near a session, and not in its block: no call can pass
        return visible_tools(self._specs(), policy, found, self.authority.rules(policy, found))

    def is_visible(self, name: str, context: ToolExecutionContext | None = None) -> bool:
        """Whether a model should be shown the tool of that name in `context`; for adapters."""
        policy = self._policy
        return is_visible(name, policy, context, self.authority.rules(policy, context))

    def rules_in_force(self, context: ToolExecutionContext | None = None) -> RuleSet:
        """The rules of this moment in `context` or the current session: its own, the policy's, and those in code."""
        return self.authority.rules(self._policy, context or current_context(self))

    def engines(self, context: ToolExecutionContext | None = None) -> tuple[PolicyEngine, ...]:
        """Deprecated: `rules_in_force` joins them."""
        warnings.warn(
            "guard.engines() is guard.rules_in_force() now, which joins them", DeprecationWarning, stacklevel=2
        )
        found = context or current_context(self)
        return (*((found.rules,) if found else ()), self._policy.engine, self.rules)

    def coverage(self, context: ToolExecutionContext | None = None) -> Coverage:
        """For each tool, what becomes of its calls: in `context` or the current session; outside one, by the policy."""
        return run(self._coverage(context), self._services)

    async def acoverage(self, context: ToolExecutionContext | None = None) -> Coverage:
        """As `coverage`, which reads a session's budget from its store, without blocking the event loop."""
        return await arun(self._coverage(context), self._services)

    def _coverage(self, context: ToolExecutionContext | None) -> Flow[Coverage]:
        odd = {name: self._odd(port) for name, port in self._ports.items()}
        return coverage(self._specs(), self.authority, context or current_context(self), odd, self._left_out)

    # Calls

    def call(self, name: str, arguments: object, *, context: ToolExecutionContext | None = None) -> Any:
        """Judge, record and run one call of a function registered with `tool`.

        Args:
            name: which; untrusted.
            arguments: a JSON object or JSON text; untrusted.
            context: who calls; by default the current session.

        Raises:
            ToolExecutionError: the call was refused or failed (see errors.py).
            GuardConfigurationError: the function is async: `acall` runs it.
        """
        plain = self._function(name)
        if plain is not None and plain.is_async:
            raise GuardConfigurationError(f"{plain.spec.name!r} is async; use acall")
        return self.run(self._call(name, arguments, context))

    async def acall(self, name: str, arguments: object, *, context: ToolExecutionContext | None = None) -> Any:
        """As `call`, without blocking the event loop; a sync function runs in a worker thread."""
        return await self.arun(self._call(name, arguments, context))

    def run(self, call: Call) -> Any:
        """Take `call` through the pipeline; for adapters."""
        return run(self._told(call, enforce(call, self.authority)), self._services)

    async def arun(self, call: Call) -> Any:
        """Take `call` through the pipeline, awaiting; for adapters."""
        return await arun(self._told(call, enforce(call, self.authority)), self._services)

    def propose(self, call: Call) -> ApprovalRequest | None:
        """Keep the question that `call`, which is about to come, will ask, without spending anything; for adapters.

        None where no person is asked about it, or one has decided already.
        """
        return run(propose(call, self.authority), self._services)

    async def apropose(self, call: Call) -> ApprovalRequest | None:
        """As `propose`, awaiting."""
        return await arun(propose(call, self.authority), self._services)

    def approvers(self) -> tuple[Approver, ...]:
        """Who is asked, in order; for adapters."""
        return () if self._approver is None else self._approver.approvers

    def port(self, name: str) -> ToolPort | None:
        """How the registered tool of that name is reached; for adapters."""
        return self._ports.get(name)

    def refuse(
        self,
        name: str,
        arguments: object,
        *,
        context: ToolExecutionContext | None = None,
        runtime: Any = None,
        unreadable: bool = False,
    ) -> ToolExecutionError:
        """Refuse a call that reaches no tool, and keep it on record; for adapters.

        Args:
            name: what the model called; untrusted.
            arguments: what it sent; untrusted.
            context, runtime: whose call it is, as for `resolve`.
            unreadable: the framework could not read the arguments; a registered tool is then refused for these.

        Returns:
            What the model is to read of it.
        """
        call = self._refused(name, arguments, context, runtime, unreadable=unreadable)
        return run(self._told(call, refusal(call, self.authority)), self._services)

    async def arefuse(
        self,
        name: str,
        arguments: object,
        *,
        context: ToolExecutionContext | None = None,
        runtime: Any = None,
        unreadable: bool = False,
    ) -> ToolExecutionError:
        """As `refuse`, without blocking the event loop."""
        call = self._refused(name, arguments, context, runtime, unreadable=unreadable)
        return await arun(self._told(call, refusal(call, self.authority)), self._services)

    def check(self) -> None:
        """Raise where calls could not run as they are meant to: for tests, for start-up, and for readiness probes.

        Raises:
            GuardConfigurationError: the policy has tools that nothing has registered, or some could not be guarded.
            StoreUnavailable: the store does not answer.
            ToolAuditTrailError: the trail takes no events; whatever a sink of the application's own raises.
        """
        wrong = [*unregistered(self._policy.tools, self._ports), *self._left_out.values()]
        if wrong:
            raise GuardConfigurationError("; ".join(wrong))
        try:
            self.store.load(Query(principal="", session_id="", root_id="", tool=""))
        except StoreUnavailable:
            raise  # by its name, and why
        except Exception as error:
            raise StoreUnavailable("", "The store does not answer.") from as_cause(error)
        if self.audit is not None:
            completed(self.audit).check()

    async def acheck(self) -> None:
        """As `check`, without blocking the event loop."""
        await asyncio.to_thread(self.check)

    def reconcile(self, call_id: str, outcome: Literal["succeeded", "failed"], *, by: str, reason: str = "") -> None:
        """Say what became of a call whose outcome is unknown; equal calls then no longer ask for that.

        A call that failed may be tried again; one that succeeded is not run again.

        Args:
            call_id: the call, as the error and the audit events name it.
            outcome: what the application found out.
            by: who says so.
            reason: how they know.

        Raises:
            GuardConfigurationError: the ledger has no such call, its outcome is known, or a text is blank or too long.
        """
        reconcile(self.store, self.audit, call_id, outcome, by=by, reason=reason)

    def decide(self, name: str, arguments: object, *, context: ToolExecutionContext | None = None) -> Decision:
        """What would happen to this call now; spends, asks and records nothing.

        Args: as for `call`; any registered tool can be asked about.
        """
        return run(preview(self._call(name, arguments, context, previewed=True), self.authority), self._services)

    def trace(self, name: str, arguments: object, *, context: ToolExecutionContext | None = None) -> Trace:
        """As `decide`, with what a model is shown of the tool, what is judged, and what the tool's code would get.

        Args: as for `decide`.
        """
        return run(trace(self._call(name, arguments, context, previewed=True), self.authority), self._services)

    async def adecide(self, name: str, arguments: object, *, context: ToolExecutionContext | None = None) -> Decision:
        """As `decide`, without blocking the event loop."""
        return await arun(preview(self._call(name, arguments, context, previewed=True), self.authority), self._services)

    def _told(self, call: Call, flow: Flow[T]) -> Flow[T]:
        if not self._is_warned:
            self._is_warned = True
            for missing in unregistered(self._policy.tools, self._ports):
                _log.warning("%s", missing)
        return flow if self._telemetry is None else self._telemetry.watched(call, flow)

    def _refused(
        self, name: str, arguments: object, context: ToolExecutionContext | None, runtime: Any, *, unreadable: bool
    ) -> Call:
        found, no_context = self.resolve(context, runtime=runtime)
        known = self.spec(name) if unreadable and type(name) is str else None
        port = None if known is None else UnreadablePort(known)
        return Call(tool=name, port=port, arguments=arguments, context=found, no_context=no_context)

    def _specs(self) -> list[ToolSpec]:
        return [port.spec for port in self._ports.values()]

    def _function(self, name: object) -> PlainFunction | None:
        return self._functions.get(name) if type(name) is str else None

    def _call(
        self, name: str, arguments: object, context: ToolExecutionContext | None, *, previewed: bool = False
    ) -> Call:
        plain = self._function(name)
        found, no_context = self.resolve(context)
        # A framework's tool is not this entry's to run; it can only be asked about.
        known = self._ports.get(name) if plain is None and previewed and type(name) is str else None
        if known is None:
            return Call(tool=name, port=plain, arguments=arguments, context=found, no_context=no_context)
        port, arguments, bound = known.asked_about(arguments)
        return Call(tool=name, port=port, arguments=arguments, context=found, no_context=no_context, bound=bound)

    def __repr__(self) -> str:
        return f"<Guard of {counted(len(self._ports), 'tool')}, {self._policy!r}>"


def _seals(keys: AuditKeys) -> Seals | None:
    """What seals a session's memory in the store; None where it cannot be kept."""
    try:
        return Seals({key_id: keys.derive("provenance", key_id) for key_id in keys.ids})
    except ImportError:
        return None


def _undeclared(*specs: ToolSpec) -> InvalidTool:
    names = [spec.name for spec in specs]
    lines = "\n".join(f'    [tools.{name}]\n    risk = "..."' for name in names)
    return InvalidTool(
        f"no risk is declared for {', '.join(names)}. Say for each how much harm it can do "
        f"({', '.join(ToolRisk)}), in the policy:\n{lines}\nor where it is wrapped: risk=..."
    )


def _check_fit(policy: ToolExecutionPolicy, specs: Iterable[ToolSpec]) -> None:
    """Raises InvalidPolicy for rules and settings about parameters that these tools do not have, all of them named."""
    found = [line for spec in specs for line in misfits(policy, spec.name, spec.schema)]
    if found:
        raise InvalidPolicy("the policy does not fit the tools:\n" + "\n".join(f"  - {line}" for line in found))


def _names(tools: Iterable[str]) -> frozenset[str]:
    wanted = "a list of names, or names with how many calls each is good for"
    require(Iterable, "tools", wanted, tools)
    names = [tools] if isinstance(tools, str) else list(tools)
    for name in names:
        require(str, "each of tools", "a name", name)
    return frozenset(names)


def check_handed_over(guard: object, tools: object = None, context: object = None) -> None:
    """For adapters: what a user gave as guard and context is that, and not the tools.

    Raises:
        GuardConfigurationError: naming what was given by its type, and what to do.
    """
    if not isinstance(guard, Guard):
        swapped = "the two stand the other way around: tools first, then the guard" if isinstance(tools, Guard) else ""
        raise misplaced("guard", "a Guard", guard, swapped or "make one: Guard.from_file(path)")
    require((ToolExecutionContext, type(None)), "context", "a session that guard.session(...) opened", context)

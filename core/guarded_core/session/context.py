"""Who is calling: an authenticated principal, the tools it may use, its budget; and the session that is current."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import Answer, ApprovalRequest, HumanApproval
from guarded_core.ground import blocks
from guarded_core.ground.bounds import DEFAULT_EXPIRY_SECONDS
from guarded_core.ground.errors import GuardConfigurationError, InvalidApproval, StoreUnavailable
from guarded_core.ground.ids import new_id
from guarded_core.ground.wording import counted
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.provenance.labels import Labels
from guarded_core.provenance.memory import Provenance
from guarded_core.rules.case import Scope, Window
from guarded_core.rules.engine import PolicyEngine
from guarded_core.rules.kinds import AllowToolParam
from guarded_core.session.bounds import checked_identity, checked_name, least, listed, narrowing, tool_counts
from guarded_core.store.base import Counter, Query, SessionRecord, Snapshot, Store
from guarded_core.store.ledger import caller_key, digest_of
from guarded_core.store.memory import MemoryStore

_log = logging.getLogger(__name__)


class Issuer(Protocol):
    """What a session knows of the guard that issued it."""

    @property
    def policy(self) -> ToolExecutionPolicy:
        """The policy in force."""

    @property
    def traces(self) -> bool:
        """Whether a rule asks where values came from."""


class ToolExecutionContext:
    """One principal's calls: which tools, how many, and on whose behalf.

    The application authenticates the principal; nothing a model says ever becomes one. Used as a context manager
    (``with`` or ``async with``) it is the current session of the guard that issued it, and is closed on exit: a thread,
    handler or generator that outlives the block is denied, unless `keep_open` was called. A block in a generator counts
    while that generator runs; docs/sessions.md has what runs where. Never entered, it is there to be handed over:
    ``context=``, ``Guard(identify=...)``.

    Args:
        principal: who, as authenticated; 1 to 256 bytes, NFC, every character visible, no blank around it.
        tools: exact names, or names with how many calls each is good for; empty permits nothing.
        max_calls: how many calls it may make; at least 1.
        session_id: a name to pick the session up by in another process; at most 128 bytes of the same form,
            without ``#``.
        store: where budgets and approvals are kept; one of its own in memory by default.
        narrow: by tool and parameter, the only values that it may have.
        nested: it may be entered inside another principal's block.
        ambient: a generator that enters it stands for a ``with`` block, as a dependency of an injection container does.

    Raises:
        GuardConfigurationError: a bound is not kept.
    """

    def __init__(
        self,
        principal: str,
        tools: Iterable[str] | Mapping[str, int | None],
        max_calls: int,
        *,
        session_id: str | None = None,
        store: Store | None = None,
        issuer: Issuer | None = None,
        parent: ToolExecutionContext | None = None,
        narrow: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
        nested: bool = False,
        ambient: bool = False,
    ) -> None:
        if isinstance(tools, str):
            raise GuardConfigurationError("tools is a list of names, not one name")
        if type(max_calls) is not int or max_calls < 1:
            raise GuardConfigurationError("max_calls is at least 1; a session without calls needs no guard")
        self.principal = checked_identity(principal, "the principal")
        self.store: Store = store or MemoryStore()
        self.parent = parent
        self.issuer = issuer
        self.on_behalf_of: tuple[str, ...] = () if parent is None else parent.chain
        self.session_id = self._key(session_id)
        self.tools = frozenset(tools)
        self.max_calls = max_calls
        self._tool_calls = tool_counts(tools)
        self._names: tuple[str, ...] = (*(() if parent is None else parent._names), session_id or "")
        root = self if parent is None else parent.root
        self.root: ToolExecutionContext = root
        own = Provenance(self.principal, is_shared=session_id is not None)
        self.origins: Provenance = own if parent is None else root.origins
        self._own_rules = tuple(narrowing(narrow or {}))
        self.rules: PolicyEngine = PolicyEngine([*(parent.rules.rules if parent else ()), *self._own_rules])
        self.scope = Scope(principal=root.principal, session_id=root.session_id)
        self._counters: dict[tuple[str, int | None], tuple[Counter, ...]] = {}
        self._counter_keys: set[str] = set()
        # A store in memory lets go of a session that has no name to pick it up by, once nobody holds it.
        if session_id is None:
            weakref.finalize(self, self.store.forget, self.session_id, self._counter_keys).atexit = False
        self._is_named = session_id is not None
        self._is_bound = False
        self._binding = threading.RLock()
        self._made_ns = time.time_ns()
        self._ended_ns: int | None = None
        self._spent = 0
        self._closed = False
        self._kept_open = False
        self._nested = nested
        self._ambient = ambient
        self._blocks: list[blocks.Block] = []

    @property
    def chain(self) -> tuple[str, ...]:
        """Everybody in whose name its calls are made: who delegated, root first, and the principal last."""
        return (*self.on_behalf_of, self.principal)

    def _key(self, session_id: str | None) -> str:
        """The session's key in the store: its name, with all that it stands for."""
        name = new_id() if session_id is None else checked_name(session_id)
        if self.parent is None:
            # With no '#' in the name, the last '#' always splits principal and name: no two principals share a key.
            return f"{self.principal}#{name}"
        # Two users' subagents of one name are two: the digest is of every principal and every name above, and no key
        # without a parent ends with a '#'.
        above = digest_of(*self.on_behalf_of, *self.parent._names, self.principal, name)
        return f"{self.principal}#{name}#{above}#"

    @property
    def is_open(self) -> bool:
        """Whether calls may still be made; a closed parent closes all that was delegated from it."""
        return not self._closed and (self.parent is None or self.parent.is_open)

    # The store

    @property
    def lineage(self) -> tuple[ToolExecutionContext, ...]:
        """Whom it was delegated from, root first, and itself."""
        return (self,) if self.parent is None else (*self.parent.lineage, self)

    def open(self) -> Self:
        """Open a named session, and named ones above it, in the store now, and not with the first call.

        Raises:
            GuardConfigurationError: the stored session of that id is another principal's.
            StoreUnavailable: the store cannot be used.
        """
        if not self.is_bound:
            self.look()
        return self

    async def aopen(self) -> Self:
        """As `open`, without blocking the event loop."""
        return await asyncio.to_thread(self.open) if self.store.blocking and not self.is_bound else self.open()

    @property
    def remaining_calls(self) -> int:
        """How many calls are left, here and in every context this one was delegated from.

        Exact with a store in memory; otherwise by what this process saw last of the store: `remaining` asks it.
        """
        return self._left() if self.store.blocking else self.remaining()

    def remaining(self) -> int:
        """As `remaining_calls`, exact: asks the store, and opens the session there.

        Raises: as `open`.
        """
        self.look()
        return self._left()

    async def aremaining(self) -> int:
        """As `remaining`, without blocking the event loop."""
        return await asyncio.to_thread(self.remaining) if self.store.blocking else self.remaining()

    @property
    def is_bound(self) -> bool:
        """Whether it holds all that bounds it, which a named session, and what was delegated from it, learns first."""
        return self._is_bound or not any(context._is_named for context in self.lineage)

    def look(self) -> None:
        """Read the session from its store, and keep there what the user said. Raises as `open`."""
        self.bind(self.store.load(self.query("", remembers=self.issuer is not None and self.issuer.traces)))

    def bind(self, snapshot: Snapshot) -> None:
        """Keep what the store says: of what was spent, whether it was ended, and what it is bounded by.

        What was granted once is an upper bound: picking a session up never widens it.

        Raises:
            GuardConfigurationError: the stored session of that id is another principal's.
        """
        for each in self.lineage:
            each._spent = snapshot.spent.get(each.calls_key, each._spent)
        root, issuer = self.root, self.issuer
        if root._is_named:  # others may have made calls in it
            labels = Labels.none if issuer is None else issuer.policy.labels
            root.origins.catch_up(root._spent, snapshot.memory, labels)
        if self._ended_ns is None:
            self._ended_ns = snapshot.ended_ns if snapshot.ended_ns < self._made_ns else -1
        if snapshot.ended_ns > self._ended_ns:
            self.close()
        for context in () if self._is_bound else self.lineage:
            with context._binding:  # nobody judges by half of it
                context._bind_to(snapshot.sessions.get(context.session_id), snapshot)

    def _bind_to(self, stored: SessionRecord | None, snapshot: Snapshot) -> None:
        if self._is_bound:
            return
        own: tuple[AllowToolParam, ...] = ()
        if self._is_named:
            if stored is None:
                raise StoreUnavailable("")  # a store that does not know what it was asked about
            if stored.principal != self.principal:
                raise GuardConfigurationError("this session belongs to another principal")
            self.tools &= stored.tools
            self.max_calls = min(self.max_calls, stored.max_calls)
            self._tool_calls = least(self._tool_calls, stored.tool_calls)
            own = tuple([rule for rule in narrowing(stored.narrow) if rule not in self._own_rules])
            self._own_rules += own
        above = [rule for context in self.lineage[:-1] for rule in context._own_rules]
        for rule in (*above, *own):
            if rule not in self.rules.rules:
                self.rules.add(rule)
        self._counters.clear()
        self._is_bound = True

    def follows(self, ended_ns: int) -> None:
        """It was made after that end of its person's sessions."""
        self._made_ns = max(self._made_ns, ended_ns + 1)

    @property
    def is_named(self) -> bool:
        """Whether it can be picked up by name: it, and all whom it was delegated from, have a session_id."""
        return self._is_named and (self.parent is None or self.parent.is_named)

    def permits(self, tool: str) -> bool:
        """Whether `tool` is in its set, and in those of all whom it was delegated from."""
        return tool in self.tools and (self.parent is None or self.parent.permits(tool))

    def spends(self, counters: Iterable[Counter]) -> None:
        """Keep that a call spent one of each, which are its own and those above."""
        for each in self.lineage if any(counters) else ():
            each._spent += 1

    def _left(self) -> int:
        return max(0, min(each.max_calls - each._spent for each in self.lineage))

    @property
    def _record(self) -> SessionRecord:
        return SessionRecord(
            id=self.session_id,
            principal=self.principal,
            tools=self.tools,
            max_calls=self.max_calls,
            tool_calls=self._tool_calls,
            narrow=listed(self._own_rules),
        )

    @property
    def calls_key(self) -> str:
        """The store's name for the count of its calls."""
        return f"calls:{self.session_id}"

    def counters(self, tool: str, tool_limit: int | None) -> tuple[Counter, ...]:
        """The budgets a call of `tool` spends from: this context's and its ancestors', each with its tool's own."""
        found = self._counters.get((tool, tool_limit))
        if found is None:
            found = self._counters[tool, tool_limit] = self._count(tool, tool_limit)
        return found if self.parent is None else (*found, *self.parent.counters(tool, tool_limit))

    def _count(self, tool: str, tool_limit: int | None) -> tuple[Counter, ...]:
        own = [Counter(key=self.calls_key, limit=self.max_calls)]
        limits = [limit for limit in (tool_limit, self._tool_calls.get(tool)) if limit is not None]
        if limits:
            own.append(Counter(key=f"{self.calls_key}:{tool}", limit=min(limits)))
        self._counter_keys.update([counter.key for counter in own])
        return tuple(own)

    def query(
        self,
        tool: str,
        tool_limit: int | None = None,
        *,
        windows: tuple[Window, ...] = (),
        call_key: str | None = None,
        grants: bool = False,
        remembers: bool = False,
    ) -> Query:
        """What a judgement of `tool` reads for this context; where it `remembers`, also what values came from."""
        return self._query(tool, {tool: tool_limit}, windows, call_key, grants=grants, remembers=remembers)

    def query_all(self, limits: Mapping[str, int | None]) -> Query:
        """What is to be known of all these tools, with their limits by the policy."""
        return self._query("", {"": None, **limits})

    def _query(
        self,
        tool: str,
        limits: Mapping[str, int | None],
        windows: tuple[Window, ...] = (),
        call_key: str | None = None,
        *,
        grants: bool = False,
        remembers: bool = False,
    ) -> Query:
        # Each key once, in order.
        keys = dict.fromkeys([counter.key for name, limit in limits.items() for counter in self.counters(name, limit)])
        opens = () if self._is_bound else [each for each in self.lineage if each._is_named and not each._is_bound]
        # What is stored of a session may count a tool that is not counted here.
        keys |= dict.fromkeys([f"{each.calls_key}:{name}" for each in opens for name in limits])
        return Query(
            principal=caller_key(self.chain),
            session_id=self.session_id,
            root_id=self.root.session_id,
            tool=tool,
            counters=tuple(keys),
            people=self.chain,
            opens=tuple([each._record for each in opens]),
            windows=windows,
            call_key=call_key,
            grants=grants,
            memory=self.origins.lookup() if remembers else None,
        )

    def said(self, text: str) -> None:
        """Remember what the user said: the request, or a later turn. Never a model's words, nor a tool's.

        The store has it, for other processes, with the session's next call, with `open`, or when its block ends.

        Their own words only: mail that they quote, code blocks and the like count as `pasted`, and what they say must
        not be ("never write to eve@example.com") as nothing.
        """
        self.origins.said(text, () if self.issuer is None else self.issuer.policy.origins.locales)

    def pasted(self, text: str) -> None:
        """Remember somebody else's text that the user handed over: a mail they pasted, a file they dropped.

        Its values are those of a source that the user named, and never the user's own.
        """
        self.origins.pasted(text)

    def observe(self, tool: str, output: Any, *, arguments: Mapping[str, Any] | None = None) -> None:
        """Remember what a tool returned that this guard did not run; guarded tools are remembered by themselves.

        Args:
            tool: its name: what the policy says of its output counts.
            output: JSON, models or dataclasses.
            arguments: what it was called with.
        """
        labels = Labels() if self.issuer is None else self.issuer.policy.labels(tool)
        self.origins.observe(tool, output, labels, arguments=arguments)

    def approve(self, approval: HumanApproval) -> None:
        """Hand over a person's yes for one exact payload.

        It covers one call of that tool with that payload in this context, for 15 minutes. An approval that answers a
        request counts towards it; otherwise it stands by itself.

        Raises:
            InvalidApproval: the request it answers cannot be decided by this person, or any more.
        """
        if approval.request_id is not None:
            self._answer(approval)
            return
        now_ns = self.store.now_ns()
        request = ApprovalRequest(
            id=new_id(),
            tool=approval.tool,
            digest=approval.digest,
            principal=self.principal,
            on_behalf_of=self.on_behalf_of,
            session_id=self.session_id,
            created_ns=now_ns,
            expires_ns=now_ns + DEFAULT_EXPIRY_SECONDS * 1_000_000_000,
            self_approval=True,  # whether a principal may approve itself is judged with the call, by its policy
        )
        vote = Answer(by=approval.approver, approve=True, reason=approval.reason)
        self.store.add_request(request.voted(vote, now_ns=now_ns), max_pending=1)

    def _answer(self, approval: HumanApproval) -> None:
        request = Approvals(self.store).get(str(approval.request_id))
        if (request.session_id, request.tool, request.digest) != (self.session_id, approval.tool, approval.digest):
            raise InvalidApproval("this approval answers a request of another session, tool or payload")
        Approvals(self.store).decide(request.id, by=approval.approver, approve=True, reason=approval.reason)

    def delegate(
        self,
        principal: str,
        *,
        tools: Iterable[str] | Mapping[str, int | None],
        max_calls: int,
        session_id: str | None = None,
        narrow: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
        nested: bool = False,
        ambient: bool = False,
    ) -> ToolExecutionContext:
        """A context for a subagent: only narrower. Like `guard.session`, it asks no store before its first call.

        Its tools are those of `tools` that this context has too; each of its calls spends from this context's budget as
        well; sums, rates and flags are the root's; nobody in the chain can approve its calls.

        Args:
            principal: the subagent's own name.
            tools, max_calls, session_id, narrow, nested, ambient: see the class.
        """
        if isinstance(tools, str):
            raise GuardConfigurationError("tools is a list of names, not one name")
        counts = tools if isinstance(tools, Mapping) else {}
        return ToolExecutionContext(
            principal,
            {name: counts.get(name) for name in self.tools & frozenset(tools)},
            max_calls,
            session_id=session_id,
            store=self.store,
            issuer=self.issuer,
            parent=self,
            narrow=narrow,
            nested=nested,
            ambient=ambient,
        )

    def keep_open(self) -> Self:
        """Leave the session open when its block ends, for handlers that outlive it on purpose; then call `close`."""
        self._kept_open = True
        return self

    def close(self) -> None:
        """End it: from now on every call is denied."""
        self._closed = True

    def __enter__(self) -> Self:
        self._check_place()
        self._enter(sys._getframe(1))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(sys._getframe(1))
        if self._is_unsaid:
            self._keep_said()

    async def __aenter__(self) -> Self:
        self._check_place()
        await self.aopen()
        self._enter(sys._getframe(1))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(sys._getframe(1))
        if self._is_unsaid:
            await asyncio.to_thread(self._keep_said)

    @property
    def _is_unsaid(self) -> bool:
        """Whether there is something that another process would have to know, and that no call has taken along."""
        return self.root.origins.has_unsent and self.issuer is not None and self.issuer.traces

    def _keep_said(self) -> None:
        try:
            self.look()
        except Exception as error:  # the block has ended as it ended; the next step of the session tries again
            _log.warning("what was said in a session is not kept: %s", type(error).__name__)

    def _check_place(self) -> None:
        """Raise GuardConfigurationError inside another principal's block that this very task or thread entered."""
        if self.issuer is None:
            warnings.warn("this context was not issued by a guard: entering it makes it nobody's session", stacklevel=3)
        block = blocks.around(id(self.issuer))
        if block is None or self._nested:
            return
        other: ToolExecutionContext = block.what
        if other.is_open and other.chain != self.chain and not self._was_delegated_from(other):
            waits = " It belongs to a generator that waits at a yield: close that first." * (
                block.generator is not None
            )
            raise GuardConfigurationError(
                "another principal's session is open here, entered by this very task or thread: leave its block before "
                f"this one, or say guard.session(..., nested=True) where one is meant inside the other.{waits} To step "
                "through several runs in turns, hand each its session: context=, or Guard(identify=...)"
            )

    def _was_delegated_from(self, other: ToolExecutionContext) -> bool:
        parent = self.parent
        return parent is not None and (parent is other or parent._was_delegated_from(other))

    def _enter(self, frame: FrameType) -> None:
        self._blocks.append(blocks.enter(id(self.issuer), self, frame, ambient=self._ambient))

    def _leave(self, frame: FrameType) -> None:
        """End the block that `frame` entered, and with the last one the session; whoever leaves, in whichever order."""
        try:
            block = self._taken_out(frame)
            if block is not None:
                blocks.leave(block, lasts=self._kept_open)
        finally:
            if not self._kept_open and not self._blocks:
                self.close()

    def _taken_out(self, frame: FrameType) -> blocks.Block | None:
        while entered := tuple(self._blocks):
            own = [block for block in entered if block.frame is frame]  # exact for every `with`
            own = own or [block for block in entered if block.was_entered_here] or list(entered)
            try:
                self._blocks.remove(own[-1])
            except ValueError:
                continue  # another thread took it out first
            return own[-1]
        return None

    @property
    def is_entered(self) -> bool:
        """Whether it is open in some block, of whatever task, thread or generator."""
        return bool(self._blocks)

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<ToolExecutionContext of {self.principal!r}, {counted(len(self.tools), 'tool')}, {state}>"

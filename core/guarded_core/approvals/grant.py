"""A person's leave for more than one call of a tool: within bounds that they saw, counted, revocable, on record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import StrEnum
from typing import Any, Self

from guarded_core.approvals.request import SET_BY_APPLICATION, ApprovalRequest, Vote
from guarded_core.ground.bounds import MAX_REASON, check_text, identity
from guarded_core.ground.errors import InvalidApproval
from guarded_core.ground.ids import new_id
from guarded_core.ground.payload import MAX_DEPTH, Payload, PayloadLimits, freeze
from guarded_core.ground.pointer import Param
from guarded_core.ground.shown import Shown
from guarded_core.tools.reading import Reading

_SECOND = 1_000_000_000
_LIMITS = PayloadLimits(bytes=16 << 20, nodes=1 << 20, depth=MAX_DEPTH)
# An amount is at most its bound, and a bound has 30 digits; of more digits after the point, there is no exact sum.
_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])
_NOTHING = Decimal(0)


class GrantState(StrEnum):
    """Where a grant stands."""

    PENDING = "pending"  # not in force yet: more people have to agree
    LIVE = "live"  # calls may use it
    REVOKED = "revoked"  # taken back; no call may use it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant(Shown):
    """Calls of one tool that need no further question, for one chain of principals.

    A call may use it where all its effective arguments are those that the person saw, but for the ones at `free`, which
    may be anything, and the numbers at `up_to`, which may be from 0 to that bound. It answers why a person is asked
    (`reasons`) and nothing else: a rule that denies still denies, one that asks for another reason still asks.

    Attributes:
        id: unguessable.
        request_id: the request that it was given at.
        tool, fingerprint, policy, principal, on_behalf_of: what it is bound to, see `ApprovalRequest`.
        session_id: the one session it is for; None for every session of that chain of principals.
        reasons: why people would be asked, as far as this answers it.
        arguments: the fixed ones: those of the request, without what is free or bounded.
        digest: SHA-256 of their canonical JSON.
        free: JSON Pointers of what may differ.
        up_to: by JSON Pointer, the highest amount of one call.
        total: by JSON Pointer, the highest sum over all calls.
        calls: how many.
        required: how many distinct people have to agree.
        self_approval: whether the principal's own chain may.
        votes: who agreed.
        created_ns, expires_ns: ns since the epoch.
        state: where it stands.
        revoked_by: who took it back.
        used: how many calls have used it.
        spent: by JSON Pointer, the sum so far.
        version: grows with each vote and with its end, for compare-and-set; not with its use.
    """

    id: str
    request_id: str
    tool: str
    fingerprint: str
    policy: str
    principal: str
    on_behalf_of: tuple[str, ...] = ()
    session_id: str | None = None
    reasons: tuple[str, ...] = ()
    arguments: Any = field(default=None, repr=False)
    digest: str = ""
    free: tuple[str, ...] = ()
    up_to: Mapping[str, Decimal] = field(default_factory=dict)
    total: Mapping[str, Decimal] = field(default_factory=dict)
    calls: int
    required: int = 1
    self_approval: bool = False
    votes: tuple[Vote, ...] = ()
    created_ns: int
    expires_ns: int
    state: GrantState = GrantState.PENDING
    revoked_by: str | None = None
    used: int = 0
    spent: Mapping[str, Decimal] = field(default_factory=dict)
    version: int = 0

    @classmethod
    def of(
        cls,
        request: ApprovalRequest,
        *,
        calls: int,
        seconds: int | None = None,
        free: Iterable[str] = (),
        up_to: Mapping[str, Any] | None = None,
        total: Mapping[str, Any] | None = None,
        every_session: bool = False,
        now_ns: int,
    ) -> Self:
        """The grant that a person may give at `request`, which nobody has agreed to yet.

        Raises:
            InvalidApproval: the policy lets nobody grant calls of this tool, or not so far.
        """
        offer = request.grantable
        if offer is None or request.fingerprint is None or request.policy is None:
            raise InvalidApproval(
                "calls like this cannot be granted: the policy has no grant table for the tool, or every reason to ask "
                "is one that is asked about each time"
            )
        if SET_BY_APPLICATION in request.arguments.values():
            raise InvalidApproval(
                "the application sets an argument that nobody sees here; to grant calls, bind it in the policy: "
                "binds = [...]"
            )
        bounds = offer.limits.within(calls=calls, seconds=seconds, free=free, up_to=up_to or {}, total=total or {})
        fixed = _fixed(request.arguments, (*bounds.free, *bounds.up_to))
        return cls(
            id=new_id(),
            request_id=request.id,
            tool=request.tool,
            fingerprint=request.fingerprint,
            policy=request.policy,
            principal=request.principal,
            on_behalf_of=request.on_behalf_of,
            session_id=None if every_session else request.session_id,
            reasons=offer.reasons,
            arguments=fixed.value,
            digest=fixed.digest,
            free=bounds.free,
            up_to=bounds.up_to,
            total=bounds.total,
            calls=bounds.calls,
            required=request.required,
            self_approval=request.self_approval,
            created_ns=now_ns,
            expires_ns=now_ns + bounds.seconds * _SECOND,
        )

    @property
    def chain(self) -> tuple[str, ...]:
        """Everybody in whose name the calls are made, root first, the principal last."""
        return (*self.on_behalf_of, self.principal)

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who agreed, in order."""
        return tuple(vote.by for vote in self.votes)

    @property
    def is_agreed(self) -> bool:
        """Whether enough people have agreed."""
        return len(self.votes) >= self.required

    def is_live(self, now_ns: int) -> bool:
        """Whether calls may use it now, as far as they fit."""
        return self.state is GrantState.LIVE and now_ns < self.expires_ns and self.used < self.calls

    def agreed(self, by: str, reason: str, *, now_ns: int) -> Grant:
        """This grant with one more person's yes; it stays pending. Raises InvalidApproval for one who may not."""
        identity(by, "the approver")
        if reason:
            check_text(reason, MAX_REASON, "the reason")
        if self.state is not GrantState.PENDING:
            raise InvalidApproval(f"this grant is {self.state.value} already")
        if now_ns >= self.expires_ns:
            raise InvalidApproval("this grant has expired")
        if not self.self_approval and by in self.chain:
            raise InvalidApproval("nobody grants their own calls; another person has to decide")
        if by in self.approvers:
            raise InvalidApproval("this person has agreed already; another one is needed")
        return replace(self, votes=(*self.votes, Vote(by, True, reason, now_ns)), version=self.version + 1)

    def in_force(self) -> Grant:
        """This grant, once enough people have agreed and that is on record."""
        return replace(self, state=GrantState.LIVE, version=self.version + 1)

    def revoked(self, by: str) -> Grant:
        """This grant as it ends. Raises InvalidApproval where it is over."""
        identity(by, "who revokes")
        if self.state is GrantState.REVOKED:
            raise InvalidApproval("this grant is revoked already")
        return replace(self, state=GrantState.REVOKED, revoked_by=by, version=self.version + 1)

    def use(self, wanted: ApprovalRequest, reading: Reading, now_ns: int) -> GrantUse | None:
        """What the call that `wanted` would ask about takes from it; None where it does not cover that call.

        Args:
            wanted: the question that this may answer.
            reading: what the tool makes of its arguments.
            now_ns: the store's clock.
        """
        bound = (self.tool, self.fingerprint, self.policy, self.principal, self.on_behalf_of)
        if bound != (wanted.tool, wanted.fingerprint, wanted.policy, wanted.principal, wanted.on_behalf_of):
            return None
        if not self.is_live(now_ns) or self.session_id not in (None, wanted.session_id):
            return None
        if not set(wanted.reasons) <= set(self.reasons):
            return None
        if _fixed(wanted.arguments, (*self.free, *self.up_to)).digest != self.digest:
            return None
        amounts = {}
        for pointer, limit in self.up_to.items():
            param = Param.parse(pointer)
            (value,) = param.find(wanted.arguments)
            amount = reading.at(param).number(value)
            if amount is None or not 0 <= amount <= limit:
                return None
            amounts[pointer] = amount
        use = GrantUse(grant=self, amounts={pointer: amounts[pointer] for pointer in self.total})
        return None if self.after(use) is None else use

    def after(self, use: GrantUse) -> Grant | None:
        """This grant once `use` is taken from it; None where that is more than is left."""
        if self.used >= self.calls:
            return None
        spent = dict(self.spent)
        for pointer, amount in use.amounts.items():
            try:
                spent[pointer] = _EXACT.add(spent.get(pointer, _NOTHING), amount)
            except (Inexact, InvalidOperation):
                return None
            if spent[pointer] > self.total[pointer]:
                return None
        return replace(self, used=self.used + 1, spent=spent)

    def before(self, use: GrantUse) -> Grant:
        """This grant with `use` given back."""
        spent = {
            pointer: _EXACT.subtract(sum_, use.amounts.get(pointer, _NOTHING)) for pointer, sum_ in self.spent.items()
        }
        return replace(self, used=self.used - 1, spent=spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantUse:
    """What one call takes from a grant, in its commit.

    Attributes:
        grant: which, as it was read.
        amounts: by JSON Pointer, what the call adds to each sum.
    """

    grant: Grant
    amounts: Mapping[str, Decimal]


def _fixed(arguments: Mapping[str, Any], varying: Iterable[str]) -> Payload:
    """The arguments without the members at those pointers."""
    kept: Any = dict(arguments)
    for pointer in varying:
        kept = _without(kept, Param.parse(pointer).tokens)
    return freeze(kept, _LIMITS)


def _without(value: Any, way: tuple[str | None, ...]) -> Any:
    """A copy of objects on the way, the last of them without that member; anything else as it is."""
    first, *rest = way
    if not isinstance(value, dict) or first not in value:
        return value
    if not rest:
        return {name: member for name, member in value.items() if name != first}
    return {**value, first: _without(value[first], tuple(rest))}

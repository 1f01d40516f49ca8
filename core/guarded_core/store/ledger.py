"""One call, one execution: what is remembered of a call that a framework may run again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CallState(StrEnum):
    """How far a claimed call has come."""

    CLAIMED = "claimed"  # it was about to run; without a later state it may have run
    SUSPENDED = "suspended"  # the framework paused it in the middle, and will enter it again
    DONE = "done"  # it ran, its output is kept: also one that reports a failure of the tool's own
    UNUSABLE = "unusable"  # it ran, and nothing could be done with what it returned
    RAISED = "failed"  # its code was entered, and raised: it may have had any part of its effect
    NOT_EXECUTED = "not_executed"  # it is known to have had no effect: it may be tried again
    UNKNOWN = "unknown"  # it was cancelled in the middle: it may have had any part of its effect


UNSETTLED = (CallState.CLAIMED, CallState.UNKNOWN, CallState.RAISED, CallState.UNUSABLE)
"""States in which only a person can say whether the call had its effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKey:
    """Where a call stands in its framework's run: durable across re-runs, restarts and processes.

    Attributes:
        position: the framework's stable position, such as a graph's thread and checkpoint namespace.
        tool_call_id: the id the model's message gave the call.
    """

    position: str
    tool_call_id: str

    def key(self, chain: tuple[str, ...], tool: str, raw_digest: str) -> str:
        """The ledger key: the whole chain of principals, position, tool, id and raw arguments."""
        return digest_of(*chain, self.position, tool, self.tool_call_id, raw_digest)


def digest_of(*parts: str) -> str:
    """SHA-256 of texts in their order, in hex."""
    # Length prefixes: no two lists of parts share a key, whatever a model puts into an id.
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


def caller_key(chain: tuple[str, ...]) -> str:
    """A chain of principals as one text: no principal has a line break."""
    return "\n".join(chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One claimed call.

    Attributes:
        call_id: the guard's id of the call that holds the claim.
        key: see `CallKey.key`.
        tool: name of the tool.
        principal: who called.
        chain: everybody in whose name, the caller last.
        session_id: in which session.
        digest: of the effective arguments.
        arguments: the effective arguments, for a call that is paused and entered again.
        is_edited: whether a person changed them.
        state: how far it came.
        output: JSON of what it gave back, while it is kept: a result (DONE), or an error (UNUSABLE, RAISED).
        effect_until_ns: until when its effect, where its tool names one, is not had again; 0 where it names none.
        expires_ns: until when `output` is kept, ns since the epoch; 0 where there is none.
    """

    call_id: str
    key: str
    tool: str
    principal: str
    session_id: str
    digest: str
    arguments: Any = field(default=None, repr=False)
    is_edited: bool = False
    state: CallState = CallState.CLAIMED
    output: Any = field(default=None, repr=False)
    expires_ns: int = 0
    chain: tuple[str, ...] = ()
    effect_until_ns: int = 0

    def frees_effect(self, now_ns: int) -> bool:
        """Whether another call may have the effect: this one had none, or had it long enough ago.

        What is under way, paused, or may have had any part of it keeps it, however long ago.
        """
        if self.state is CallState.NOT_EXECUTED:
            return True
        return self.state in (CallState.DONE, CallState.UNUSABLE) and self.effect_until_ns <= now_ns

    @property
    def caller(self) -> str:
        """The whole chain as one key: an unknown outcome of one user's subagent is not another's."""
        return caller_key(self.chain or (self.principal,))

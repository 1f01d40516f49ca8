"""What an application can do about a call that was denied, where that is the application's doing; never for a model."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from guarded_core.ground.blocks import Misplaced
from guarded_core.ground.wording import counted
from guarded_core.session.context import ToolExecutionContext
from guarded_core.store.base import Counter

OVER = (
    "its session is over: the block was left or the session closed, and this code went on. Wait for it inside the "
    "block, or call session.keep_open() there and session.close() at the end"
)
NOT_KNOWN = (
    "a session made calls whose results are not known in this process, so that require_origin trusts nothing in it but "
    "what the user said here: give all guards on the store the same keys=, and install guarded-tools[sql], to have "
    "them know what the others saw (docs/provenance.md)"
)
NOT_STORED = (
    "the session was picked up by its session_id, and what is stored of it does not have this tool: a session never "
    "gets more than it had. Name another session_id for another set"
)
MISPLACED = {
    Misplaced.LEFT: OVER,
    Misplaced.SUSPENDED: (
        "the session that is current was entered by a generator that waits at a yield, so this call is outside its "
        "block. Call inside the generator, hand the session over (context=), or open it around the loop; where a "
        "generator stands for a `with` block, guard.session(..., ambient=True)"
    ),
    Misplaced.BESIDE: (
        "the task or thread that started this one has sessions of generators open side by side, and what it starts is "
        "not told apart. Hand each run its session: context=, or Guard(identify=...)"
    ),
    Misplaced.ELSEWHERE: (
        "the generator that makes this call entered its session in another context: several tasks or threads step it, "
        "as Starlette's and asyncio.wait_for's do. Hand the session over: context=, or Guard(identify=...)"
    ),
}
IN_OTHER_CONTEXTS = (
    "no session is current here, and some are in other contexts: a thread that was started without "
    "contextvars.copy_context(), a FastAPI dependency with yield that is not async, code outside the block. Hand "
    "the session over: context=, or Guard(identify=...)"
)
NEVER_ENTERED = "a session was made and never entered: with guard.session(...) as session: ..., or context=session"
NONE = 'no session is open: with guard.session("user-id", tools=[...]): ... around the agent, or context='
NO_SESSION_ID = (
    "a call waits for a person, and its session has no session_id: another request's session, or one after a restart, "
    "is another one, and asks again. Name the conversation: guard.session(..., session_id=...), with a store that lasts"
)


def used_up(context: ToolExecutionContext, tool: str, counter: Counter) -> str:
    """Which budget is used up, of those that a call of `tool` spends."""
    keys = {each.calls_key: each for each in context.lineage}
    owner = keys.get(counter.key) or keys.get(counter.key.removesuffix(f":{tool}"))
    whose = "the session" if owner is context else "a session that this one was delegated from"
    what = "" if counter.key in keys else " of this tool (tools= or the policy)"
    return f"{whose} has used up its {counted(counter.limit, 'call')}{what}"


def not_allowed(context: ToolExecutionContext, tool: str, known: Iterable[str]) -> str:
    """Why the application's own words keep `tool` from a session, where `known` are the tools of the policy.

    A name in ``tools=`` that the policy does not know, and that is near to `tool`, is most likely meant for it.
    """
    names = frozenset(known)
    if tool not in names:
        return "the policy has no tool of that name" + _near(tool, names)
    for each in context.lineage:
        if tool not in each.tools:
            meant = get_close_matches(tool, sorted(each.tools - names), n=1)
            if meant:
                return f"the session's tools= has {meant[0]!r}, which the policy does not know; did you mean {tool!r}?"
    return "it is not among the session's tools: guard.session(..., tools=[...]) or role="


def misspelt(tools: Iterable[str], known: Iterable[str]) -> list[str]:
    """What to tell about names in ``tools=`` that are not known and near to one that is."""
    names = frozenset(known)
    found = ((name, _near(name, names)) for name in sorted(frozenset(tools) - names))
    return [f"tools= has {name!r}, which the policy does not know{near}" for name, near in found if near]


def _near(name: str, choices: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""

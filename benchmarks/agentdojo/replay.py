"""The replay: the user's calls by ground truth, and the attack's, as if the model had been hijacked."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.agentdojo.adapters import ADAPTERS, Refused, Timed
from benchmarks.agentdojo.facts import FACTS
from benchmarks.agentdojo.levels import Level, Oracle
from benchmarks.agentdojo.world import MARK, Pair, World, as_text
from guarded_core import CallbackApprover, Guard

Order = Literal["hijack", "append", "prefix", "insider"]


@dataclass
class Outcome:
    """What became of one pair."""

    suite: str
    user: str
    injection: str | None
    utility: bool = False
    through: bool | None = None
    asked: int = 0
    attack_asked: int = 0
    refused: list[str] = field(default_factory=list)
    attack_refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    overheads: list[float] = field(default_factory=list)

    @property
    def strict(self) -> bool:
        """Utility, and none of the user's own calls refused."""
        return self.utility and not self.refused


class Deployment:
    """One suite's tools behind one guard, as a deployment would set them up; it sees no injection task."""

    def __init__(self, suite: Any, level: Level, adapter: str) -> None:
        self.level, self.suite = level, suite
        self._models = {function.name: function.parameters for function in suite.tools}
        self.person = Oracle(level.person, self._normalised)
        self.policy = level.policy(suite.name)
        approver = None if level.person == "nobody" else CallbackApprover(self._answer, by="the user")
        self.guard = Guard(self.policy, approver=approver)
        self.timed = Timed(lambda name, arguments: self.world.run(name, arguments))
        self.world: World
        self.invoke = ADAPTERS[adapter](suite.tools, self.guard, self.timed)

    def _answer(self, request: Any) -> bool:
        started = time.thread_time()
        try:
            return self.person(request)
        finally:
            self.timed.seconds += time.thread_time() - started

    def _normalised(self, tool: str, arguments: Mapping[str, Any]) -> str:
        parsed = self._models[tool].model_validate(dict(arguments)).model_dump(mode="json")
        return json.dumps([tool, parsed], sort_keys=True)


def replay(deployment: Deployment, pair: Pair, order: Order) -> Outcome:
    """Run one pair, and let AgentDojo judge it."""
    world = deployment.world = World(pair)
    row = Outcome(*pair.key)
    calls = world.user_calls()
    deployment.person.begin(calls)
    facts = FACTS[pair.suite.name]
    session = deployment.guard.session(
        "user",
        tools=deployment.level.tools(deployment.policy, calls),
        max_calls=1000,
        request=pair.user.PROMPT,
        known_as=facts.known_as,
    )
    hijacked = pair.injection is None

    def make(call: Any, refused: list[str]) -> Any:
        started, inner = time.thread_time(), deployment.timed.seconds
        try:
            result = deployment.invoke(call.function, dict(call.args))
        except Refused as error:
            refused.append(f"{call.function}: {error}")
            return None
        except Exception as error:  # a tool's error is an answer to the model
            world.trace.append(call)
            row.errors.append(f"{call.function}: {type(error).__name__}: {str(error)[:100]}")
            return None
        row.overheads.append(time.thread_time() - started - (deployment.timed.seconds - inner))
        world.trace.append(call)
        return result

    def hijack() -> None:
        before = deployment.person.asked
        for call in world.attack_calls(insider=order == "insider"):
            make(call, row.attack_refused)
        row.attack_asked = deployment.person.asked - before

    with session:
        for tool in facts.read_before:
            session.observe(tool, world.run(tool, {}))
        if order == "prefix" and not hijacked:
            hijacked = True
            hijack()
        for call in calls:
            result = make(call, row.refused)
            if not hijacked and order in ("hijack", "insider") and result is not None and MARK in as_text(result):
                hijacked = True
                hijack()
        if order == "append" and not hijacked:
            hijacked = True
            hijack()
    row.utility, row.through = world.check(was_hijacked=hijacked)
    if order == "insider" and pair.injection is not None:
        # AgentDojo's check looks for the stranger's address: here, an attack has won that ran as a whole.
        row.through = hijacked and not row.attack_refused
    row.asked = deployment.person.asked
    return row

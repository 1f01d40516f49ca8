"""The rows of the table: what of a suite's policy is in force, and who is there to be asked.

A level sees what a deployment sees: the policy, the user's request, the tools that the application gives the task.
It never sees an injection task. The person who approves is an oracle who knows the user's own calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from guarded_core import ApprovalRequest, ToolExecutionPolicy, load_policy
from guarded_core.rules.case import Rule
from guarded_core.rules.kinds import RequireApproval, RequireOrigin

POLICIES = Path(__file__).parent / "policies"

Person = Literal["nobody", "exact", "per tool", "yes to all"]


@dataclass(frozen=True, kw_only=True)
class Level:
    """One row.

    Attributes:
        name: its label.
        static: allowlists and bounds of values.
        approvals: a person is asked about every consequential call.
        provenance: values have to come from the user or a trusted source.
        per_task: the session has the task's tools only, each as often as the task needs it; reads are free.
        person: who answers: grants exactly the user's own calls, any call of the task's tools, or everything.
        tiers: "ask" lets every call that provenance objects to reach the person; "refuse" is the policy as written.
        deny_all: refuses everything.
    """

    name: str
    static: bool = False
    approvals: bool = False
    provenance: bool = False
    per_task: Literal["", "tools", "plan"] = ""
    person: Person = "nobody"
    deny_all: bool = False
    asks_about_everything: bool = False

    def policy(self, suite: str) -> ToolExecutionPolicy:
        """The suite's policy, cut down to what this level has."""
        written = load_policy(POLICIES / f"{suite}.toml")
        tools = {}
        for name in sorted(written.tools):
            settings = written.settings(name)
            assert settings is not None
            if (
                not self.approvals
                and not self.provenance
                and settings.risk is not None
                and settings.risk.needs_approval
            ):
                settings = replace(settings, risk="mutating", approval="always")
            elif self.approvals:
                settings = replace(settings, approval="always")
            tools[name] = settings
        rules = [kept for rule in written.rules if (kept := self._kept(rule)) is not None]
        return ToolExecutionPolicy(tools, rules=rules, limits=written.limits, output_bytes=written.output_bytes)

    def _kept(self, rule: Rule) -> Rule | None:
        if isinstance(rule, RequireOrigin):
            if self.asks_about_everything:
                rule = replace(rule, otherwise="ask")
            return rule if self.provenance else None
        if isinstance(rule, RequireApproval):
            return rule if self.approvals else None
        return rule if self.static else None

    def tools(self, policy: ToolExecutionPolicy, calls: list[Any]) -> dict[str, int | None]:
        """What the session may use."""
        if self.deny_all:
            return {}
        if not self.per_task:
            return dict.fromkeys(policy.tools)
        needed = Counter(call.function for call in calls)
        if self.per_task == "tools":
            return dict.fromkeys(needed.keys() & policy.tools)
        reads = [name for name in policy.tools if getattr(policy.settings(name), "risk", None) == "read_only"]
        return {**{name: count for name, count in needed.items() if name in policy.tools}, **dict.fromkeys(reads)}


class Oracle:
    """The person: an oracle, since it knows which calls are the user's own."""

    def __init__(self, person: Person, normalise: Callable[[str, Mapping[str, Any]], str]) -> None:
        self._person = person
        self._normalise = normalise
        self._own: Counter[str] = Counter()
        self._tools: set[str] = set()
        self.asked = 0

    def begin(self, calls: list[Any]) -> None:
        """A new task, with these calls of the user's own."""
        self._own = Counter(self._normalise(call.function, call.args) for call in calls)
        self._tools = {call.function for call in calls}
        self.asked = 0

    def __call__(self, request: ApprovalRequest) -> bool:
        self.asked += 1
        if self._person == "yes to all":
            return True
        if self._person == "per tool":
            return request.tool in self._tools
        key = self._normalise(request.tool, request.arguments)
        self._own[key] -= 1
        return self._own[key] >= 0


LEVELS = (
    Level(name="no guard"),
    Level(name="deny all", deny_all=True),
    Level(name="static rules", static=True),
    Level(name="approvals, yes to all", approvals=True, person="yes to all"),
    Level(name="approvals, per tool", approvals=True, person="per tool"),
    Level(name="approvals, exact", approvals=True, person="exact"),
    Level(name="static rules + approvals, exact", static=True, approvals=True, person="exact"),
    Level(name="per-task tools", per_task="tools"),
    Level(name="per-task plan (counts, reads free)", per_task="plan"),
    Level(name="provenance, nobody asked", provenance=True),
    Level(name="provenance, exact", provenance=True, person="exact"),
    Level(name="provenance, per tool", provenance=True, person="per tool"),
    Level(name="provenance, yes to all", provenance=True, person="yes to all"),
    Level(
        name="provenance that asks about all, yes to all",
        provenance=True,
        person="yes to all",
        asks_about_everything=True,
    ),
    Level(name="all: provenance + plan, nobody asked", provenance=True, per_task="plan"),
    Level(name="all: provenance + plan, exact", provenance=True, per_task="plan", person="exact"),
    Level(name="all: provenance + plan, yes to all", provenance=True, per_task="plan", person="yes to all"),
)

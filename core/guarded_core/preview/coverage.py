"""What becomes of the calls of each tool, before anybody makes one: for a session, or by the policy alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from guarded_core.display.text import visible
from guarded_core.ground.shown import Shown
from guarded_core.pipeline.call import Authority
from guarded_core.pipeline.steps import Flow, Load
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.preview.visible import can_be_judged, is_visible
from guarded_core.rules.ruleset import RuleSet
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.spec import ToolRisk, ToolSpec


class Standing(StrEnum):
    """What becomes of a tool's calls."""

    HIDDEN = "hidden"  # a model is not shown the tool, and no call can pass
    DENIED = "denied"  # it is shown, and no call can pass now
    NARROWED = "narrowed"  # rules refuse some calls
    ASKS = "asks"  # a person is asked about some calls, or about all
    ALLOWED = "allowed"  # some calls pass without a person


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCoverage:
    """One tool's row.

    Attributes:
        name: the tool.
        risk: in force.
        standings: `hidden` or `denied` alone; otherwise `asks`, `allowed` or both, with `narrowed` where rules refuse
            some calls.
        why: what hides, denies, narrows or asks: rules by their names.
        odd: what somebody who wrapped it may not expect: free-form arguments, patterns that only the tool checks,
            validators that take more than the schema, names that never reach it, defaults that rules do not see.
    """

    name: str
    risk: ToolRisk | None
    standings: frozenset[Standing]
    why: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage(Shown):
    """The matrix of tools and what becomes of their calls.

    Attributes:
        principal: whose session; None for the policy's own view.
        tools: a row for each registered tool, by name.
    """

    principal: str | None
    tools: tuple[ToolCoverage, ...]

    def __str__(self) -> str:
        """A table of plain text: a line for each tool."""
        rows = [("tool", "risk", "calls", "why")]
        for tool in self.tools:
            standings = ", ".join(standing.value for standing in Standing if standing in tool.standings)
            rows.append((visible(tool.name), tool.risk or "", standings, visible(", ".join(tool.why))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
        return "\n".join([f"What {visible(self.subject)} may do", *(line.rstrip() for line in lines)])

    @property
    def subject(self) -> str:
        """Whom it is about, for a title."""
        return "any session" if self.principal is None else self.principal

    @property
    def standings(self) -> dict[str, frozenset[Standing]]:
        """The matrix by tool."""
        return {tool.name: tool.standings for tool in self.tools}


def coverage(
    specs: Iterable[ToolSpec],
    authority: Authority,
    context: ToolExecutionContext | None,
    odd: Mapping[str, tuple[str, ...]] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Flow[Coverage]:
    """The coverage of `specs` by what `authority` has in force now; reads the session's budget from its store, once.

    `odd` is what is odd about the tools by name, `left_out` those that could not be guarded, each with the reason.

    Raises:
        GuardConfigurationError: the stored session of that id is another principal's.
    """
    policy = authority.policy()
    known = sorted(specs, key=lambda spec: spec.name)
    over, spent = False, frozenset[str]()
    if context is not None:
        limits = {spec.name: settings.max_calls for spec in known if (settings := policy.settings(spec.name))}
        snapshot = yield from Load(context.query_all(limits))
        context.bind(snapshot)
        over = snapshot.denials >= authority.max_denials
        spent = frozenset(
            tool
            for tool, limit in limits.items()
            if any(snapshot.spent[counter.key] >= counter.limit for counter in context.counters(tool, limit))
        )
    rules = authority.rules(policy, context)
    rows = [_Row(spec, policy, rules, context, over, spec.name in spent).covered() for spec in known]
    rows = [replace(row, odd=(odd or {}).get(row.name, ())) for row in rows]
    hidden = frozenset({Standing.HIDDEN})
    outside = [
        ToolCoverage(name=name, risk=None, standings=hidden, why=(reason,)) for name, reason in (left_out or {}).items()
    ]
    return Coverage(
        principal=context.principal if context else None,
        tools=tuple(sorted((*rows, *outside), key=lambda row: row.name)),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    spec: ToolSpec
    policy: ToolExecutionPolicy
    rules: RuleSet
    context: ToolExecutionContext | None
    over: bool
    is_spent: bool

    def covered(self) -> ToolCoverage:
        name, risk = self.spec.name, self.policy.risk(self.spec)
        settings = self.policy.settings(name)
        if settings is None or not is_visible(name, self.policy, self.context, self.rules):
            standings, why = {Standing.HIDDEN}, tuple(self._hiding(settings))
        elif denying := tuple(self._denying(settings, risk)):
            standings, why = {Standing.DENIED}, denying
        else:
            standings, why = self._open(settings, risk)
        return ToolCoverage(name=name, risk=risk, standings=frozenset(standings), why=why)

    def _hiding(self, settings: ToolSettings | None) -> Iterator[str]:
        name = self.spec.name
        if settings is None:
            yield "not in the allowlist"
        if self.context is not None and not self.context.permits(name):
            yield "not among the session's tools"
        if self.context is not None and not self.context.is_open:
            yield "the session is closed"
        yield from (rule.name for rule in self.rules.hiding(name))

    def _denying(self, settings: ToolSettings, risk: ToolRisk | None) -> Iterator[str]:
        if risk is None:
            yield "no risk is declared"
        if settings.schema_sha256 not in (None, self.spec.fingerprint):
            yield "the tool is not the one that the policy pins"
        if not can_be_judged(self.spec, self.policy):
            yield "its schema cannot be checked as the policy has it"
        if self.over:
            yield "the session is over: too many denials"
        if self.is_spent:
            yield "the budget is spent"
        yield from (f"{rule.name} cannot be judged" for rule in self.rules.enforced(self.spec.name) if rule.error)

    def _open(self, settings: ToolSettings, risk: ToolRisk | None) -> tuple[set[Standing], tuple[str, ...]]:
        standings, why = set(), []
        asks, always = self._risk_asks(settings, risk)
        if asks:
            why.append(f"risk:{risk}")
        for rule in self.rules.enforced(self.spec.name):
            why.append(rule.name)
            asks, always = asks or rule.asks != "never", always or rule.asks == "always"
            if rule.refuses:
                standings.add(Standing.NARROWED)
        if asks:
            standings.add(Standing.ASKS)
        if not always:
            standings.add(Standing.ALLOWED)
        return standings, tuple(why)

    def _risk_asks(self, settings: ToolSettings, risk: ToolRisk | None) -> tuple[bool, bool]:
        """Whether the risk alone asks a person, and whether about every call."""
        if risk is None or not risk.needs_approval:
            return False, False
        vouches = any(rule.traces for rule in self.rules.enforced(self.spec.name))
        return True, settings.approval == "always" or not vouches

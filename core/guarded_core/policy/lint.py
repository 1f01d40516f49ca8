"""What is odd about a valid policy: rules without effect, rules that contradict each other, gates that stand open."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from guarded_core.ground.pointer import Param
from guarded_core.ground.wording import counted, did_you_mean
from guarded_core.policy.policy import ToolExecutionPolicy, ToolSettings
from guarded_core.provenance.labels import leaves
from guarded_core.provenance.structure import structured
from guarded_core.rules.case import Action, Case, Rule
from guarded_core.rules.patterns import is_glob, names_tool
from guarded_core.rules.reach import missing, takes_number
from guarded_core.rules.values import exact
from guarded_core.tools.schema.document import read
from guarded_core.tools.schema.placing import free_form, opaque_patterns
from guarded_core.tools.schema.terms import CLOSED, terms_of

__all__ = ["LintFinding", "lint"]

Severity = Literal["error", "warning"]
Said = Iterator[tuple[Severity, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """Something odd.

    Attributes:
        severity: "error" for what cannot be meant, "warning" for what may be.
        where: place in the policy, such as ``rules[3]``; rules of a folder count through its files in order.
        message: what is odd, and what would mend it.
    """

    severity: Severity
    where: str
    message: str


def lint(
    policy: ToolExecutionPolicy,
    schemas: Mapping[str, Mapping[str, Any]] | None = None,
    samples: Mapping[str, Sequence[Any]] | None = None,
) -> list[LintFinding]:
    """Everything odd about `policy`, in the order of the file.

    Args:
        policy: what was read.
        schemas: JSON Schemas of the tools' arguments by name, where known; then parameters are looked up too.
        samples: outputs of tools by name, where there are some; then labels that cover nothing in them are named.
    """
    findings = [*_tools(policy, schemas), *_labels(policy, samples or {})]
    for index, rule in enumerate(policy.rules):
        said = [*_matching(policy, rule), *_parameter(policy, rule, schemas or {}), *_emptiness(rule)]
        findings += [_of_rule(index, rule, severity, message) for severity, message in said]
    return [*findings, *_shadowed(policy), *_contradictions(policy)]


def _labels(policy: ToolExecutionPolicy, samples: Mapping[str, Sequence[Any]]) -> Iterator[LintFinding]:
    for name in sorted(policy.tools & samples.keys()):
        settings = policy.settings(name)
        unmet: list[set[tuple[str, str]]] = []
        for sample in samples[name]:
            labels = (settings or ToolSettings()).labels()
            output = structured(sample, any_form=labels.reads_structure)
            found = [leaf for leaf in leaves(output)[0] if leaf.text]
            if found:
                unmet.append(set(labels.unmet(output, found)))
        for setting, pointer in sorted(set.intersection(*unmet)) if unmet else ():
            message = f"{pointer!r} covers nothing of {counted(len(unmet), 'sample')}; a label on no part says nothing"
            yield LintFinding(severity="warning", where=f"tools.{name}.{setting}", message=message)
    for name in sorted(samples.keys() - policy.tools):
        hint = did_you_mean(name, policy.tools)
        yield LintFinding(
            severity="warning", where="", message=f"there are samples of {name!r}, which is no tool{hint}"
        )


def _of_rule(index: int, rule: Rule, severity: Severity, message: str) -> LintFinding:
    return LintFinding(severity=severity, where=f"rules[{index}]", message=f"{rule.name}: {message}")


def _tools(policy: ToolExecutionPolicy, schemas: Mapping[str, Mapping[str, Any]] | None) -> Iterator[LintFinding]:
    def warning(where: str, message: str) -> LintFinding:
        return LintFinding(severity="warning", where=where, message=message)

    for name in sorted(policy.tools):
        settings, rules = policy.settings(name) or ToolSettings(), policy.engine.rules_for(name)
        where = f"tools.{name}"
        if settings.risk is None:
            yield warning(where, "has no risk: unless the tool's code declares one, every call is denied")
        if settings.lower_risk:
            yield warning(f"{where}.lower_risk", "lowers the risk that the tool's code may declare")
        if settings.approval == "unproven" and not any(rule.traces for rule in rules):
            yield warning(f"{where}.approval", "has no effect: no require_origin rule vouches for a call")
        if rules and not any(rule.enforce for rule in rules):
            yield warning(where, "none of its rules is enforced")
        if policy.engine.blanket_denied_tools([name]):
            yield warning(where, "is allowed here, and denied by a rule: no call can pass")
        if schemas is not None and name in schemas:
            for setting, severity, message in _places(settings, schemas[name]):
                yield LintFinding(severity=severity, where=f"{where}.{setting}", message=message)
        if schemas is not None and name not in schemas:
            yield warning(where, f"there is no such tool{did_you_mean(name, schemas)}")
    for name in sorted((schemas or {}).keys() - policy.tools):
        yield warning(f"tools.{name}", "is a known tool that the policy does not allow")


def _places(settings: ToolSettings, schema: Mapping[str, Any]) -> Iterator[tuple[str, Severity, str]]:
    """Settings that name places of the arguments: those that the tool does not have, or that change nothing there."""
    root = read(schema)
    for setting in ("open", "opaque_patterns", "opaque"):
        for text in getattr(settings, setting):
            if gap := missing(schema, Param.parse(text)):
                yield setting, "error", f"{text!r}: there is no parameter {gap[0]!r} there{did_you_mean(*gap)}"
            elif setting == "open" and free_form(root, terms_of((text,), (), False)) == free_form(root, CLOSED):
                yield setting, "warning", f"{text!r} has no effect: nothing is free-form there"
            elif setting == "opaque_patterns" and not _is_odd(root, text):
                yield setting, "warning", f"{text!r} has no effect: it has no pattern that cannot be checked"
    if settings.open_arguments and settings.open:
        yield "open", "warning", "has no effect: open_arguments opens everything"


def _is_odd(root: dict[str, Any], place: str) -> bool:
    terms = terms_of((), (place,), False)
    return any(terms.leaves_patterns_of(Param.parse(found).tokens) for found in opaque_patterns(root))


def _patterns(rule: Rule) -> tuple[str, ...]:
    return (rule.tools,) if isinstance(rule.tools, str) else rule.tools or ()


def nameless(policy: ToolExecutionPolicy) -> list[LintFinding]:
    """The rules that name a tool, or a glob of tools, that the policy does not have: they protect nothing."""
    return [
        _of_rule(index, rule, severity, message)
        for index, rule in enumerate(policy.rules)
        for severity, message in _matching(policy, rule)
    ]


def misfits(policy: ToolExecutionPolicy, name: str, schema: Mapping[str, Any]) -> list[str]:
    """What `policy` says of a tool that its schema has no place for, each with where it is said and what is near.

    A rule for a glob of tools that only some of them have the parameter for counts where it refuses the others.
    """
    if name not in policy.tools:
        return []
    settings = policy.settings(name) or ToolSettings()
    found = [
        f"tools.{name}.{setting}: {message}"
        for setting, severity, message in _places(settings, schema)
        # A pattern that is left to the tool and is not there leaves nothing to it.
        if severity == "error" and setting != "opaque_patterns"
    ]
    for index, rule in enumerate(policy.rules):
        if rule.parameter is not None and rule.parameter.tokens[0] in settings.binds:
            continue  # the application gives it
        if rule.requires_value or not any(map(is_glob, _patterns(rule) or "*")):
            found += [f"rules[{index}], {rule.name}, {said}" for _, said in _misplaced(rule, name, schema)]
    return found


def _matching(policy: ToolExecutionPolicy, rule: Rule) -> Said:
    returned_by = (rule.spec or {}).get("returned_by", ())
    for pattern in (*_patterns(rule), *returned_by):
        if pattern not in policy.tools and not any(names_tool(pattern, name) for name in policy.tools):
            hint = did_you_mean(pattern, policy.tools)
            yield "error", f"can never match: no allowed tool is named {pattern!r}{hint}"


def _parameter(policy: ToolExecutionPolicy, rule: Rule, schemas: Mapping[str, Mapping[str, Any]]) -> Said:
    if rule.parameter is None:
        return
    for name in sorted(policy.tools & schemas.keys()):
        yield from _misplaced(rule, name, schemas[name])


def _misplaced(rule: Rule, name: str, schema: Mapping[str, Any]) -> Said:
    named = rule.tools is None or any(names_tool(pattern, name) for pattern in _patterns(rule))
    if rule.parameter is None or not named:
        return
    if gap := missing(schema, rule.parameter):
        effect = "denies every call" if rule.requires_value else "can never match"
        yield "error", f"{effect}: {name!r} has no parameter {gap[0]!r} there{did_you_mean(*gap)}"
    elif rule.counts and not takes_number(schema, rule.parameter):
        effect = "denies" if rule.refuses else "asks about"
        yield "error", f"{effect} every call: {name!r} takes no number there (text with format: decimal is one)"


def _emptiness(rule: Rule) -> Said:
    if rule.error:
        yield "error", f"denies every call: {rule.error}"
    if rule.requires_value and rule.only == ():
        yield "warning", "allows no value, so no call can pass; deny_tool would hide the tool too"


def _shadowed(policy: ToolExecutionPolicy) -> Iterator[LintFinding]:
    denials = [(index, rule, rule.denies) for index, rule in enumerate(policy.rules) if rule.enforce]
    first: dict[Hashable, int] = {}
    for index, rule in enumerate(policy.rules):
        if rule.spec is not None and (same := first.setdefault(exact(dict(rule.spec)), index)) != index:
            yield _of_rule(index, rule, "warning", f"says the same as rules[{same}]")
            continue
        for other, denial, denied in denials:
            if denied is None or rule is denial:
                continue
            if isinstance(rule.tools, str) and names_tool(denied, rule.tools):
                yield _of_rule(index, rule, "warning", f"has no effect: rules[{other}] denies every call")
                break


def _contradictions(policy: ToolExecutionPolicy) -> Iterator[LintFinding]:
    """Parameters that no value can be right for."""
    places = {id(rule): f"rules[{index}]" for index, rule in enumerate(policy.rules)}
    seen: set[tuple[str, ...]] = set()
    for name in sorted(policy.tools - set(policy.engine.blanket_denied_tools(policy.tools))):
        about: dict[str, list[Rule]] = {}
        for rule in policy.engine.rules_for(name):
            # Whether a value has the right origin depends on the session: some value may.
            if rule.enforce and rule.refuses and not rule.traces and rule.parameter is not None:
                about.setdefault(rule.parameter.text, []).append(rule)
        for param, together in sorted(about.items()):
            where = tuple(sorted(places[id(rule)] for rule in together))
            if len(together) > 1 and where not in seen and not _can_pass(name, param, together):
                seen.add(where)
                yield LintFinding(
                    severity="error",
                    where=where[0],
                    message=f"no value of {param!r} can pass {', '.join(where)} together, so no call of {name!r} can",
                )


def _can_pass(tool: str, param: str, rules: list[Rule]) -> bool:
    """Whether some value passes all rules; certain only where it says no."""
    if not any(rule.requires_value for rule in rules):
        return True  # it can be left out
    listed = [rule.only for rule in rules if rule.only is not None]
    if listed:
        return any(_passes(tool, param, value, rules) for value in min(listed, key=len))
    limits = [rule for rule in rules if rule.bounds]
    bounds = [bound for rule in limits for bound in rule.bounds]
    return not bounds or any(_passes(tool, param, bound, limits) for bound in bounds)


def _passes(tool: str, param: str, value: Any, rules: list[Rule]) -> bool:
    case = Case(action=Action.tool_call(tool, _nested(Param.parse(param), value)))
    try:
        return all(rule.check(case) is None for rule in rules)
    except Exception:
        return True  # a rule of the application's own may need more than a value to judge


def _nested(param: Param, value: Any) -> dict[str, Any]:
    """Arguments with `value` where `param` points to."""
    for token in reversed(param.tokens):
        value = {"0" if token is None else token: value}
    arguments: dict[str, Any] = value
    return arguments

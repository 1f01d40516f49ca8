"""``guarded policy``: check, explain, test and begin a policy file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from guarded_core.cli.output import AsJson, write_json
from guarded_core.cli.tools import admitted, load_specs, load_tools
from guarded_core.ground.errors import GuardConfigurationError, InvalidTool
from guarded_core.ground.wording import counted
from guarded_core.guard import Guard
from guarded_core.policy.file import load_policy, policy_json_schema
from guarded_core.policy.lint import LintFinding, lint
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.policy.start import starting_policy
from guarded_core.preview.decision import Trace
from guarded_core.testing.trial import PRINCIPAL, explain, load_cases, run_cases, trial_guard, trial_session

app = typer.Typer(no_args_is_help=True, help="Check, explain, test and begin a policy file.")

PolicyPath = Annotated[Path, typer.Argument(help="The policy: a TOML file, or a folder of them.", show_default=False)]
Tools = Annotated[
    str | None, typer.Option("--tools", help="Your tools, as module:name of a list; their schemas are looked at too.")
]
Role = Annotated[str | None, typer.Option(help="The session's role; without one it may use every tool.")]


@app.command()
def check(
    path: PolicyPath,
    tools: Tools = None,
    samples: Annotated[
        Path | None, typer.Option(help="Outputs of your tools, to try labels on: JSON, lists of outputs by tool.")
    ] = None,
    strict: Annotated[bool, typer.Option(help="Fail on warnings too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong, or odd, about a policy; exit code 1 for errors."""
    with _failures():
        policy, findings = _loaded(path)
        schemas, odd = None, []
        if tools is not None:
            # Without the rules: one that does not fit a tool would refuse its wrap, and is for the lint to say.
            guard = Guard(ToolExecutionPolicy({name: policy.settings(name) for name in policy.tools}))
            schemas = {spec.name: spec.schema for spec in admitted(guard, load_tools(tools))}
            odd = list(_odd(guard))
        findings += [*lint(policy, schemas, _samples(samples)), *odd]
    if as_json:
        rows = [{"severity": found.severity, "where": found.where, "message": found.message} for found in findings]
        write_json({"policy": policy.hash, "findings": rows})
    else:
        _write_table(("", "where", "what"), [(found.severity, found.where, found.message) for found in findings])
        typer.echo(f"{len(policy.tools)} tools, {len(policy.rules)} rules, {counted(len(findings), 'finding')}")
    if any(strict or found.severity == "error" for found in findings):
        raise typer.Exit(1)


@app.command("explain")
def explain_call(
    path: PolicyPath,
    tool: Annotated[str, typer.Argument(help="The tool's name.", show_default=False)],
    arguments: Annotated[str, typer.Argument(help="The arguments, as JSON.")] = "{}",
    tools: Tools = None,
    role: Role = None,
    principal: Annotated[str, typer.Option(help="Who calls.")] = PRINCIPAL,
    trace: Annotated[
        bool, typer.Option("--trace", help="Beside each other: what a model is shown, what is judged, what would run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each step says of one call; exit code 0 if it may run, 2 if a person is asked, 1 if it is denied."""
    with _failures():
        policy, found = _loaded(path)
        guard = trial_guard(policy, register=_registered(tools))
        session = trial_session(guard, principal=principal, role=role)
        decision, steps = explain(guard, tool, arguments, session)
        traced = guard.trace(tool, arguments, context=session) if trace else None
    if as_json:
        rows = [{"step": step.step, "verdict": step.verdict, "detail": step.detail} for step in steps]
        document = {"outcome": decision.outcome, "code": decision.code, "policy": policy.hash, "steps": rows}
        columns = [dict(zip(_TRACED, row, strict=True)) for row in _traced(traced)] if traced else []
        write_json({**document, "trace": columns} if traced else document)
    else:
        _write_warnings(found)
        _write_table(("step", "verdict", "detail"), [(step.step, step.verdict, step.detail) for step in steps])
        if traced is not None:
            _write_table(_TRACED, list(_traced(traced)))
        typer.echo(decision.outcome if decision.code is None else f"{decision.outcome}: {decision.code}")
    if decision.outcome != "allow":
        raise typer.Exit(2 if decision.outcome == "ask" else 1)


@app.command("test")
def try_cases(
    path: PolicyPath,
    cases: Annotated[
        Path, typer.Argument(help="TOML tables named cases: tool, arguments, expect, ...", show_default=False)
    ],
    tools: Tools = None,
    as_json: AsJson = False,
) -> None:
    """Try cases with expected outcomes; exit code 1 if one is not as expected. docs/commands.md has the format."""
    with _failures():
        policy, found = _loaded(path)
        results = list(run_cases(policy, load_cases(cases), register=_registered(tools)))
    _write_warnings(found)
    if as_json:
        write_json({"cases": [{"name": result.name, "failure": result.failure or None} for result in results]})
    for result in results if not as_json else ():
        typer.echo(f"failed  {result.name}: {result.failure}" if result.failure else f"ok      {result.name}")
    failed = sum(bool(result.failure) for result in results)
    if not as_json:
        typer.echo(f"{len(results) - failed} of {len(results)} as expected")
    if failed:
        raise typer.Exit(1)


@app.command()
def schema() -> None:
    """Write the JSON Schema of policy files, for editors."""
    write_json(policy_json_schema())


@app.command()
def init(
    tools: Annotated[str, typer.Argument(help="Your tools, as module:name of a list.", show_default=False)],
    output: Annotated[Path | None, typer.Option(help="A new file; without, standard output.")] = None,
) -> None:
    """Write a policy to start from, with each of your tools at its strictest."""
    with _failures():
        text = starting_policy(load_specs(tools))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise typer.BadParameter(f"cannot be made: {error.strerror}", param_hint="--output") from None


def _loaded(path: Path) -> tuple[ToolExecutionPolicy, list[LintFinding]]:
    """The policy, and what was said aloud while it was read."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        policy = load_policy(path)
    return policy, [LintFinding(severity="warning", where="", message=str(warning.message)) for warning in said]


def _samples(path: Path | None) -> dict[str, list[Any]]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot be read: {type(error).__name__}", param_hint="--samples") from None
    if not isinstance(found, dict) or not all(isinstance(outputs, list) for outputs in found.values()):
        raise typer.BadParameter("is an object of lists: {tool: [output, ...]}", param_hint="--samples")
    return found


def _registered(tools: str | None) -> Callable[[Guard], None] | None:
    """What puts the tools that the command line names behind a guard."""
    if tools is None:
        return None
    loaded = load_tools(tools)

    def register(guard: Guard) -> None:
        admitted(guard, loaded)
        for name, reason in guard.left_out.items():
            if _has_risk(guard.policy, name):
                raise InvalidTool(reason)

    return register


def _odd(guard: Guard) -> Iterator[LintFinding]:
    """What is odd about tools, and which cannot be guarded."""
    for row in guard.coverage().tools:
        where = f"tools.{row.name}"
        yield from (LintFinding(severity="warning", where=where, message=message) for message in row.odd)
        if row.name in guard.left_out and _has_risk(guard.policy, row.name):
            yield LintFinding(severity="error", where=where, message=f"cannot be guarded: {guard.left_out[row.name]}")


def _has_risk(policy: ToolExecutionPolicy, name: str) -> bool:
    """Whether the policy says all that it has to of a tool; what it does not say, the lint does."""
    settings = policy.settings(name)
    return settings is not None and settings.risk is not None


_TRACED = ("argument", "shown", "judged", "run")


def _traced(trace: Trace) -> Iterator[tuple[str, str, str, str]]:
    """A row for each argument: its schema as a model is shown it, its effective value, and what the code would get."""
    shown, judged, ran = trace.shown.get("properties", {}), trace.judged or {}, trace.run or {}
    for name in dict.fromkeys((*shown, *judged, *ran)):
        yield (
            name,
            json.dumps(shown[name], ensure_ascii=False) if name in shown else "-",
            json.dumps(judged[name], ensure_ascii=False) if name in judged else "-",
            repr(ran[name]) if name in ran else "-",
        )


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except GuardConfigurationError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def _write_warnings(findings: list[LintFinding]) -> None:
    for found in findings:
        typer.echo(f"{found.severity}: {found.message}", err=True)


def _write_table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    console = Console()
    if not console.is_terminal:
        for row in rows:
            typer.echo("\t".join(row).rstrip())
        return
    grid = Table(*columns)
    for row in rows:
        # As text: square brackets in a place such as rules[3] are not markup.
        grid.add_row(*map(Text, row))
    console.print(grid)

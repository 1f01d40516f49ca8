"""LlamaIndex tools drawn at random: what is shown, judged, approved and run is one thing."""

# No postponed annotations here: the tools' own are looked at as they are.

import asyncio
import copy
import inspect
import warnings
from collections import Counter
from typing import Any

import pytest
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, StartEvent, StopEvent, Workflow, step
from pydantic import Field

from guarded_core import CallbackApprover, Guard, ToolExecutionPolicy, ToolSettings
from guarded_core.tools.parsing import same
from guarded_llamaindex import guard_tool
from tests.generated_tools import (
    Case,
    Parameter,
    canonical,
    dumped,
    over_all,
    shortest,
)

ALL = ("none", "before", "after", "wrap", "normalising", "unsteady")
INJECTED = ("none", "context by type", "partial")
MADE: dict[str, dict[str, tuple[str, ...]]] = {
    "a function": {
        "extra": ("none",), "injected": INJECTED, "validator": ALL, "default": ("none", "plain", "field"),
        "alias": ("no",),
    },
    "a model": {
        "extra": ("none", "allow", "forbid", "ignore"), "injected": INJECTED, "validator": ALL,
        "default": ("none", "plain", "factory"), "alias": ("no",),
    },
    "a server's schema": {
        "extra": ("none",), "injected": ("none", "partial"), "validator": ("none",), "default": ("none", "plain"),
        "alias": ("no",),
    },
}  # fmt: skip


class Empty(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent()


CONTEXT: Any = Context(Empty())
SECRET = "the application's"
_EXTRA: dict[str, tuple[str, Any]] = {"context by type": ("ctx", Context), "partial": ("tenant", str)}
NAMES = {name for name, _ in _EXTRA.values()}


def tool_of(case: Case, got: list[dict[str, Any]]) -> FunctionTool:
    """The drawn tool; what its body gets goes to `got`."""

    def body(**given: Any) -> str:
        # Python's own defaults, as of a function that spells its parameters out.
        got.append(defaults | given)
        return "ran"

    async def abody(**given: Any) -> str:
        return body(**given)

    own = [_parameter(one) for one in case.parameters]
    extra = _EXTRA.get(case.injected)
    if extra is not None:
        own.append(inspect.Parameter(extra[0], inspect.Parameter.KEYWORD_ONLY, annotation=extra[1]))
    defaults = {one.name: one.default for one in own if one.default is not one.empty}
    annotations = {one.name: one.annotation for one in own} | {"return": str}
    if case.made != "a function":
        own.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    for function in (body, abody):
        function.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        function.__annotations__ = annotations
    model: Any = None if case.made == "a function" else case.model()
    partials = {"tenant": SECRET} if case.injected == "partial" else None
    return FunctionTool.from_defaults(
        fn=body, async_fn=abody, name="drawn", description="Drawn.", fn_schema=model, partial_params=partials
    )


def _parameter(one: Parameter) -> inspect.Parameter:
    default: Any = inspect.Parameter.empty
    if one.default in ("plain", "factory"):
        default = one.value()
    elif one.default == "field":
        default = Field(default=one.value(), description="With a default.")
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one.annotation)


def outcome(tool: FunctionTool, case: Case, got: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """How a call of the tool ends: "ran", or the code of a refusal; and what its body got."""
    got.clear()
    given = copy.deepcopy(case.arguments) | ({"ctx": CONTEXT} if case.injected == "context by type" else {})
    output = asyncio.run(tool.acall(**given)) if case.is_async else tool.call(**given)
    if got:
        assert output.content == "ran"
        return "ran", got[0]
    return output.raw_output["code"], {}


def without_injected(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that are a model's to give."""
    return {name: value for name, value in arguments.items() if name not in NAMES}


def judged(case: Case, counts: Counter[str], closed: set[str]) -> None:
    """One example: the four properties."""
    bare_got: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    try:
        bare, inner = tool_of(case, bare_got), tool_of(case, got)
        bare.metadata.get_parameters_dict()
    except Exception as error:
        counts[f"outcome: LlamaIndex makes no such tool ({type(error).__name__})"] += 1
        return
    counts.update(case.classes())
    approved: list[Any] = []
    approver = CallbackApprover(lambda request: approved.append(request) or True, by="lee")
    guard = Guard(ToolExecutionPolicy({"drawn": ToolSettings(risk="financial", **case.settings)}), approver=approver)
    schema = case.model().model_json_schema() if case.made == "a server's schema" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tool = guard_tool(inner, guard, schema=schema, context=guard.session("u", tools=["drawn"]))
    plain, received = outcome(bare, case, bare_got)
    ours, ran = outcome(tool, case, got)
    assert plain == "ran", "LlamaIndex validates nothing"
    if ours != "ran":
        assert ours in closed, (ours, case)
        counts[f"outcome: refused, {ours}"] += 1
        return
    counts["outcome: both run"] += 1
    assert same(shortest(ran), shortest(received)), (ran, received)
    (request,) = approved
    check_one_thing(case, request, ran)
    preview = guard.decide("drawn", copy.deepcopy(case.arguments), context=guard.session("u", tools=["drawn"]))
    assert preview.approval_request is not None
    assert preview.approval_request.digest == request.digest


def check_one_thing(case: Case, request: Any, ran: dict[str, Any]) -> None:
    """What the body got is what was approved, and nothing else."""
    assert SECRET not in str(request.arguments)
    approved, left = without_injected(request.arguments), without_injected(ran)
    for one in case.parameters:
        if one.name in left:
            value = left.pop(one.name)
            said = value if one.name in case.arguments else dumped(one, value)
            assert canonical({"v": approved.pop(one.name)}) == canonical({"v": said})
    # What is left are open arguments, on both sides.
    assert canonical(left) == canonical(approved)


def test_what_is_judged_is_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the tool, its policy and the call."""
    over_all(MADE, judged, {"outcome: both run", "outcome: refused, invalid_payload"}, capsys)

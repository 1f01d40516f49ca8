"""LangChain tools drawn at random: what is shown, judged, approved and run is one thing."""

# No postponed annotations here: LangChain's older versions take those of a tool's function for plain text.

import asyncio
import copy
import inspect
import warnings
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain.tools import ToolRuntime
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool
from pydantic import create_model

from guarded_core import CallbackApprover, Guard, InvalidTool, ToolExecutionPolicy, ToolSettings
from guarded_core.tools.parsing import same
from guarded_langchain import guard_tool
from tests.generated_tools import (
    Case,
    Parameter,
    canonical,
    dumped,
    over_all,
    shortest,
)

ALL = ("none", "before", "after", "wrap", "normalising", "unsteady")
INJECTED = ("none", "by type", "by the call's id", "runtime by type", "runtime by name", "config by name")
MADE: dict[str, dict[str, tuple[str, ...]]] = {
    "a function": {
        "extra": ("none",), "injected": INJECTED, "validator": ALL, "default": ("none", "plain"), "alias": ("no",),
    },
    "a model": {
        "extra": ("none", "allow", "forbid", "ignore"), "injected": INJECTED, "validator": ALL,
        "default": ("none", "plain", "factory"), "alias": ("no", "yes"),
    },
    "a class": {
        "extra": ("none", "allow", "forbid"), "injected": ("none", "by type"), "validator": ALL,
        "default": ("none", "plain", "factory"), "alias": ("no", "yes"),
    },
    "a schema": {
        "extra": ("none",), "injected": ("none", "config by name"), "validator": ("none",),
        "default": ("none", "plain"), "alias": ("no",),
    },
}  # fmt: skip


class Handed:
    """What the application injects."""


HANDED = Handed()
_EXTRA: dict[str, tuple[str, Any]] = {
    "by type": ("handed", Annotated[Any, InjectedToolArg]),
    "by the call's id": ("call_id", Annotated[str, InjectedToolCallId]),
    "runtime by type": ("runtime", ToolRuntime),
    "runtime by name": ("runtime", Any),
    "config by name": ("config", RunnableConfig),
}
RUNTIME: Any = ToolRuntime(state={}, context=None, config={}, stream_writer=print, tool_call_id="1", store=None)


def tool_of(case: Case, got: list[dict[str, Any]]) -> BaseTool:
    """The drawn tool; what its body gets goes to `got`."""

    def body(**given: Any) -> str:
        # Python's own defaults, as of a function that spells its parameters out.
        got.append(defaults | given)
        return "ran"

    async def abody(**given: Any) -> str:
        return body(**given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [_parameter(one, in_signature=case.made in ("a function", "a schema")) for one in case.parameters]
    extra = _EXTRA.get(case.injected)
    if extra is not None:
        own.append(inspect.Parameter(extra[0], keyword, annotation=extra[1]))
    defaults = {one.name: one.default for one in own if one.default is not one.empty}
    annotations = {one.name: one.annotation for one in own} | {"return": str}
    if case.made != "a function":
        own.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    for function in (body, abody):
        function.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
        function.__annotations__ = annotations
    if case.made == "a function":
        return StructuredTool.from_function(func=body, coroutine=abody, name="drawn", description="Drawn.")
    model: Any = case.model()
    if case.made == "a schema":
        model = _schema_of(case)
    elif extra is not None and extra[0] != "config":
        injected = (extra[1], ...) if extra[1] is not Any else (Any, None)
        if case.injected != "runtime by name":
            model = create_model("Arguments", __base__=model, **{extra[0]: injected})
    if case.made == "a class":

        class Drawn(BaseTool):
            name: str = "drawn"
            description: str = "Drawn."
            args_schema: Any = model

            def _run(self, **given: Any) -> str:
                return body(**given)

            async def _arun(self, **given: Any) -> str:
                return body(**given)

        return Drawn()
    return StructuredTool(name="drawn", description="Drawn.", args_schema=model, func=body, coroutine=abody)


def _parameter(one: Parameter, *, in_signature: bool) -> inspect.Parameter:
    default = one.value() if in_signature and one.default != "none" else inspect.Parameter.empty
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=one.annotation)


def _schema_of(case: Case) -> dict[str, Any]:
    """As an MCP server describes it."""
    schema = case.model().model_json_schema()
    for sub in schema["properties"].values():
        sub.pop("default", None)
    return schema


NAMES = {name for name, _ in _EXTRA.values()}


def without_injected(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that are a model's to give."""
    return {name: value for name, value in arguments.items() if name not in NAMES}


def arguments_of(case: Case) -> dict[str, Any]:
    """The call's arguments, with what code injects."""
    by_runtime = {"runtime": RUNTIME}
    injected = {"by type": {"handed": HANDED}, "runtime by type": by_runtime, "runtime by name": by_runtime}
    return {**copy.deepcopy(case.arguments), **injected.get(case.injected, {})}


def outcome(tool: BaseTool, case: Case, got: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """How a call of the tool ends: "ran", or the code of a refusal; and what its body got."""
    got.clear()
    call = {"type": "tool_call", "name": "drawn", "id": "1", "args": arguments_of(case)}
    try:
        answer = asyncio.run(tool.ainvoke(call)) if case.is_async else tool.invoke(call)
    except Exception as error:
        assert not got, "an error after the body ran"
        return f"raised {type(error).__name__}", {}
    if got:
        assert answer.content == "ran"
        return "ran", got[0]
    return answer.artifact["code"], {}


def judged(case: Case, counts: Counter[str], closed: set[str]) -> None:
    """One example: the four properties."""
    bare_got: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    try:
        bare, inner = tool_of(case, bare_got), tool_of(case, got)
    except Exception as error:
        counts[f"outcome: LangChain makes no such tool ({type(error).__name__})"] += 1
        return
    counts.update(case.classes())
    approved: list[Any] = []
    approver = CallbackApprover(lambda request: approved.append(request) or True, by="lee")
    policy = ToolExecutionPolicy({"drawn": ToolSettings(risk="financial", **case.settings)})
    guard = Guard(policy, approver=approver)
    unsteady = [one.shown_as for one in case.parameters if one.is_unsteady and case.made != "a schema"]
    if unsteady and not case.is_opaque:
        with pytest.raises(InvalidTool, match=f"what {', '.join(map(repr, sorted(unsteady)))} is parsed to"):
            guard_tool(inner, guard)
        counts["outcome: refused at wrap"] += 1
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a name that LangChain takes for itself
        tool = guard_tool(inner, guard, context=guard.session("u", tools=["drawn"]))
    plain, received = outcome(bare, case, bare_got)
    ours, ran = outcome(tool, case, got)
    if plain == "ran" and ours != "ran":
        assert ours in closed, (ours, case)
        counts[f"outcome: refused, {ours}"] += 1
        return
    if ours != "ran":
        counts["outcome: both refuse"] += 1
        return
    # LangChain's own parser drops or refuses what ToolNode injects by name, where the model does not declare it.
    assert plain == "ran" or case.injected == "runtime by name", (plain, case)
    counts["outcome: both run"] += 1
    if plain == "ran":
        assert same(shortest(without_injected(ran)), shortest(without_injected(received))), (ran, received)
    (request,) = approved
    check_one_thing(case, request, ran)
    if case.injected in ("none", "config by name"):
        preview = guard.decide("drawn", copy.deepcopy(case.arguments), context=guard.session("u", tools=["drawn"]))
        assert preview.approval_request is not None
        assert preview.approval_request.digest == request.digest


def check_one_thing(case: Case, request: Any, ran: dict[str, Any]) -> None:
    """What the body got was made from what was approved, and says it byte for byte."""
    approved, left = without_injected(request.arguments), without_injected(ran)
    for name, value in arguments_of(case).items():
        assert name not in NAMES or ran.get(name, value) is value
    for one in case.parameters:
        if one.name not in left:
            continue
        value = left.pop(one.name)
        if one.shown_as in case.settings["opaque"]:
            if one.shown_as in case.arguments:
                assert approved.pop(one.shown_as) == case.arguments[one.shown_as]
            continue
        said = value if case.made == "a schema" and one.shown_as in case.arguments else dumped(one, value)
        assert canonical({"v": approved.pop(one.shown_as)}) == canonical({"v": said})
    # What is left are open arguments, on both sides.
    assert canonical(left) == canonical(approved)


def test_what_is_judged_is_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the tool, its policy and the call."""
    outcomes = ("both run", "both refuse", "refused at wrap", "refused, invalid_payload")
    wanted = {f"outcome: {one}" for one in outcomes} | {"policy: opaque", "name: an alias"}
    over_all(MADE, judged, wanted, capsys)

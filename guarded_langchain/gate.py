"""One tool behind one guard: every way into a guarded tool ends here, and only from here the inner tool runs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_function

from guarded_core.ground.errors import CannotRun, EffectDone, ExecutionFailed, InvalidPayload, ToolExecutionError
from guarded_core.guard import Guard
from guarded_core.pipeline.call import Call, edit_note
from guarded_core.rules.case import Rule
from guarded_core.rules.ruleset import RuleSet
from guarded_core.session import ToolExecutionContext
from guarded_core.tools.parsing import Parser
from guarded_core.tools.port import ToolPort
from guarded_core.tools.schema.terms import Terms
from guarded_core.tools.spec import ToolRisk, ToolSpec
from guarded_langchain import messages
from guarded_langchain.arguments import CallArguments, Given, ToolArguments
from guarded_langchain.graph import compat as graph_compat
from guarded_langchain.graph import resumes, steering
from guarded_langchain.graph.identity import Identity, Sent, identify, inside, messages_of
from guarded_langchain.graph.siblings import awaiting_siblings, waiting_for_siblings
from guarded_langchain.models import without
from guarded_langchain.runner import runner

STRIPPED = "injected_arguments_stripped"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Proposal:
    """One call as it reached a guarded tool.

    Attributes:
        given: its arguments, taken apart.
        tool_call_id: the id that the model's message gave it; None where no message waits for an answer.
        sent: the model's message that it came with, where a graph's state shows it.
        asks: why middleware has a person approve it.
        config, run_manager: upstream's, for the inner tool.
    """

    given: Given
    tool_call_id: str | None = None
    sent: Sent = field(default_factory=Sent)
    asks: tuple[str, ...] = ()
    config: RunnableConfig
    run_manager: Any = None


@dataclass(slots=True, repr=False)
class _Entered:
    """One call inside the gate: the guarded tool that was called, how, and its arguments on their way."""

    tool: BaseTool
    proposal: Proposal
    arguments: CallArguments
    is_awaited: bool


class Gate(ToolPort):
    """The port of a LangChain tool, and the way that every call of it takes through its guard.

    Attributes:
        inner: the tool itself; the guarded tool holds it nowhere else.
        guard: whose pipeline it is.
        context: a session handed over in code; None for the current one.
        arguments: how its arguments travel.

    Raises:
        InvalidTool: the tool cannot be guarded as it is declared.
    """

    signals = graph_compat.SIGNALS
    wraps_errors = False

    def __init__(
        self, inner: BaseTool, guard: Guard, *, risk: ToolRisk | str | None, context: ToolExecutionContext | None
    ) -> None:
        self.inner = inner
        self.guard = guard
        self.context = context
        self.arguments = ToolArguments(inner)
        spec = ToolSpec.of(
            name=inner.name,
            description=inner.description,
            schema=self.arguments.schema,
            risk=risk,
            reading=self.arguments.model.reading if self.arguments.model else None,
            terms=guard.policy.terms(inner.name),
        )
        super().__init__(spec, set_by_application=self.arguments.application_set)
        self._runner = runner(inner)
        self._identity = _identity(inner, frozen=True)
        self._narrowed: tuple[tuple[tuple[Rule, ...], Terms] | None, dict[str, Any] | None] = (None, None)

    # The way in

    def enter(self, tool: BaseTool, proposal: Proposal) -> Any:
        """One call of the guarded `tool`: its result, or the denial."""
        try:
            call, identity = self._call(tool, proposal, is_awaited=False)
            with inside(identity), waiting_for_siblings(identity.attempt):
                return self.guard.run(call)
        except CannotRun as error:
            raise error.__cause__ or error from None
        except (ToolExecutionError, messages.ToolCallDenied) as error:
            return messages.denial(tool, error, proposal.tool_call_id)

    async def aenter(self, tool: BaseTool, proposal: Proposal) -> Any:
        """As `enter`, awaiting."""
        try:
            call, identity = self._call(tool, proposal, is_awaited=True)
            with inside(identity):
                async with awaiting_siblings(identity.attempt):
                    return await self.guard.arun(call)
        except CannotRun as error:
            raise error.__cause__ or error from None
        except (ToolExecutionError, messages.ToolCallDenied) as error:
            return messages.denial(tool, error, proposal.tool_call_id)

    def _call(self, tool: BaseTool, proposal: Proposal, *, is_awaited: bool) -> tuple[Call, Identity]:
        given, runtime = proposal.given, graph_compat.current_runtime()
        identity = identify(runtime, proposal.sent, self.spec.name, proposal.tool_call_id, given.arguments)
        context, no_context = self.guard.resolve(self.context, runtime=runtime)
        forged = given.forged or any(self.arguments.forges(call["args"]) for call in proposal.sent.calls)
        arguments = self.arguments.of_call(given, proposal.tool_call_id)
        call = Call(
            tool=self.spec.name,
            port=self,
            arguments=given.arguments,
            context=context,
            no_context=no_context,
            bound=_Entered(tool, proposal, arguments, is_awaited),
            injected=arguments.injected,
            key=identity.key,
            keyless=identity.keyless,
            notes=(STRIPPED,) if forged else (),
            asks=proposal.asks,
        )
        return call, identity

    def about_to_come(self, sent: Sent, asks: tuple[str, ...] = ()) -> Call | None:
        """The call that a graph will make of the model's message, under the identity that it will have then.

        None where it cannot be known before: a parser that needs what only a real call has, or a message without an id.
        """
        model, [said, *_] = self.arguments.model, sent.calls
        if not sent.message_id or said["id"] is None or said["name"] != self.spec.name or (model and model.needs):
            return None
        proposal = Proposal(
            given=self.arguments.split(said["args"]), tool_call_id=said["id"], sent=sent, asks=asks, config={}
        )
        return self._call(self.inner, proposal, is_awaited=True)[0]

    # What the pipeline asks of the tool

    def asked_about(self, arguments: object) -> tuple[ToolPort, object, Any]:
        """By the tool's own parser, where it does not wait for what only a real call has."""
        model = self.arguments.model
        if self.arguments.ids or (model is not None and model.needs):
            return ToolPort(self.spec), arguments, None
        given = self.arguments.split(arguments) if isinstance(arguments, dict) else Given(arguments=arguments)
        proposal = Proposal(given=given, config={})
        return self, given.arguments, _Entered(self.inner, proposal, self.arguments.of_call(given, None), True)

    def drifted(self, bound: _Entered) -> bool:
        """Whether the guarded tool was renamed, or the inner one changed."""
        return bound.tool.name != self.spec.name or _identity(self.inner) != self._identity

    def check_ready(self, bound: _Entered) -> None:
        """Raise CannotRun for an async tool that is not awaited, and for a model's call that no message can answer."""
        refused = None if bound.is_awaited else self._runner.refuses_sync
        if refused is not None:
            raise CannotRun(self.spec.name) from type(refused)(*refused.args)
        if bound.proposal.tool_call_id is None and graph_compat.is_tool_runtime(bound.proposal.given.runtime):
            raise CannotRun(
                self.spec.name, "A model's call without an id cannot be answered by any message. It did not run."
            )

    def complete(
        self, bound: _Entered, arguments: dict[str, Any], opaque: frozenset[str] = frozenset()
    ) -> dict[str, Any] | None:
        """The effective arguments, by the tool's own parser."""
        if len(bound.proposal.sent.calls) > 1:
            raise InvalidPayload(self.spec.name, "two calls of one message have the same id")
        return bound.arguments.complete(arguments, opaque)

    def parser(self) -> Parser | None:
        """The tool's own model; None where there is only a schema."""
        return None if self.arguments.model is None else self.arguments.model.trial()

    def received(self, bound: _Entered, effective: dict[str, Any]) -> dict[str, Any]:
        """What the inner tool's function would get, without what the framework injects."""
        args, kwargs = bound.arguments.for_tool(effective)
        names = self.arguments.model.names if self.arguments.model else {}
        given = {**dict(zip(self.arguments.positional, args, strict=False)), **kwargs}
        return {names.get(name, name): value for name, value in given.items() if name not in self.arguments.injected}

    def oddities(self) -> Iterator[str]:
        """Names that never reach the tool's code, or that a framework fills, and defaults that rules do not see."""
        if self.arguments.taken:
            yield f"LangChain never hands over, so not shown to a model: {', '.join(sorted(self.arguments.taken))}"
        if filled := self.arguments.filled_by_name:
            yield f"filled by the framework for their names alone, and never a model's: {', '.join(sorted(filled))}"
        if unseen := self.arguments.unseen_defaults:
            yield f"a default that JSON cannot say, so no rule and no person sees it: {', '.join(sorted(unseen))}"

    def run(self, bound: _Entered, effective: dict[str, Any]) -> Any:
        """Run the inner tool, apart from the other calls of its task."""
        with self._scratchpad(bound.proposal, hides_resume=resumes.is_spent()) as config:
            return self._runner.run(effective, bound.arguments, replace(bound.proposal, config=config))

    async def arun(self, bound: _Entered, effective: dict[str, Any]) -> Any:
        """As `run`, awaiting."""
        with self._scratchpad(bound.proposal, hides_resume=await resumes.ais_spent()) as config:
            return await self._runner.arun(effective, bound.arguments, replace(bound.proposal, config=config))

    def _scratchpad(self, proposal: Proposal, *, hides_resume: bool) -> AbstractContextManager[RunnableConfig]:
        return graph_compat.own_scratchpad(proposal.config, proposal.tool_call_id, hides_resume=hides_resume)

    def taken_out(self, result: Any, limit: int) -> Any:
        """The result with all that it, or the artifact of a message, would give out later."""
        if not isinstance(result, ToolMessage):
            return super().taken_out(result, limit)
        return messages.with_artifact(result, super().taken_out(result.artifact, limit))

    async def ataken_out(self, result: Any, limit: int) -> Any:
        """As `taken_out`, awaiting."""
        if not isinstance(result, ToolMessage):
            return await super().ataken_out(result, limit)
        return messages.with_artifact(result, await super().ataken_out(result.artifact, limit))

    def reports_failure(self, result: Any) -> bool:
        """Whether it is the tool's own message that it failed."""
        return messages.reports_failure(result)

    def seen(self, result: Any) -> tuple[Any, ...]:
        """Content, and artifact where there is one."""
        return messages.views(result, with_artifact=self.inner.response_format != "content")

    def handed_back(self, bound: _Entered, result: Any, ran: dict[str, Any], *, is_edited: bool) -> Any:
        """The result, with a note for the model where a person changed its call.

        Raises ExecutionFailed for one that answers another call than this one.
        What the application's own middleware changes is the application's: it may be another tenant's secret.
        """
        if self._answers_another(bound.proposal, result):
            raise ExecutionFailed(self.spec.name, "The tool ran, and its result answers another call than its own.")
        if not is_edited:
            return result
        own = {name: value for name, value in ran.items() if name not in self.arguments.injected}
        return messages.with_note(result, edit_note(self.spec.name, own), self.spec.name, bound.proposal.tool_call_id)

    def _answers_another(self, proposal: Proposal, result: Any) -> bool:
        """Whether a message in the result is for another call, and was not in the graph's state before."""
        own = proposal.tool_call_id
        others = [message for call_id, message in steering.answered(result) if call_id != own] if own else []
        return bool(others) and any(message not in messages_of(proposal.given.runtime) for message in others)

    def encode(self, result: Any) -> Any:
        """Content and artifact, as far as they are JSON."""
        return messages.encode(result)

    def readdressed(self, bound: _Entered, result: Any) -> Any:
        """A message of another call, for this call's id; what steers a graph did so once."""
        content = result[0] if isinstance(result, tuple) and result else result
        if steering.steers(content):
            raise EffectDone(self.spec.name)
        if not isinstance(content, ToolMessage):
            return result
        own = content.model_copy(update={"tool_call_id": bound.proposal.tool_call_id or "", "id": None})
        return (own, *result[1:]) if isinstance(result, tuple) else own

    def decode(self, stored: Any) -> Any:
        """The same message again."""
        return messages.decode(self.spec.name, stored)

    # What a model is shown

    def narrowed_schema(self) -> dict[str, Any] | None:
        """The schema that a model is shown, where it is not the inner tool's own; None where it is.

        Free-form parts that the policy does not keep open are closed in it, and rules narrow it.
        """
        in_force = self.guard.rules_in_force(self.context)
        now = in_force.enforced(self.spec.name), self.guard.policy.terms(self.spec.name)
        known, shown = self._narrowed
        if known != now:
            shown = self._narrow(in_force, now[1])
            self._narrowed = now, shown
        return copy.deepcopy(shown)

    def _narrow(self, rules: RuleSet, terms: Terms) -> dict[str, Any] | None:
        # What LangChain makes up for **kwargs looks free-form, and its parser never fills it in from other names.
        is_closed = bool(set(self.spec.free_form(terms)) - {f"/{name}" for name in self.arguments.made_up})
        if not (is_closed or rules.enforced(self.spec.name) or self.arguments.unshown):
            return None
        function = convert_to_openai_function(self.inner)
        own = function.get("parameters", {})
        open_too = self.spec.shown_schema(terms) if is_closed else without(own, self.arguments.unshown)
        shown = rules.narrow(self.spec.name, open_too)
        if shown == own:
            return None
        return {"title": function["name"], "description": function.get("description", ""), **shown}


def _identity(tool: BaseTool, *, frozen: bool = False) -> tuple[Any, ...]:
    """What must not change once the tool is wrapped; `frozen` makes it safe from a change in place."""
    schema = tool.args_schema
    return (
        tool.name,
        tool.description,
        copy.deepcopy(schema) if frozen and isinstance(schema, dict) else schema,
        getattr(tool, "func", None),
        getattr(tool, "coroutine", None),
    )

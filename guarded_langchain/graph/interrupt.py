"""`InterruptApprover`: a graph pauses where a person is needed, and goes on with what they decided."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from guarded_core.approvals.approver import Attached, CannotAsk
from guarded_core.approvals.decisions import Approvals
from guarded_core.approvals.request import Answer, ApprovalRequest, RequestState
from guarded_core.approvals.turns import off_the_loop
from guarded_core.ground.errors import GuardConfigurationError, InvalidApproval
from guarded_langchain.graph import compat, replies, resumes, shapes
from guarded_langchain.graph.replies import REPLY_KINDS, ReplyKind

if TYPE_CHECKING:
    from langgraph.runtime import Runtime

Format: TypeAlias = Literal["hitl", "agent_inbox"]

_log = logging.getLogger("guarded_langchain")

_MAX_KEPT = 512
_NOBODY = "nobody is known to have sent it who may answer"
_BY_ID = "it has to name the question: resume with the reply under the interrupt's id"
# A graph that is entered again after a crash may have lost its checkpoints, once.
_MAX_PLACES = 2


class InterruptApprover(Attached):
    """Interrupts the graph with the question, so that it can be decided at any time, in any process.

    The interrupt's value is plain JSON in a shape that existing user interfaces show; its id is the request's.

    *Wake only*, without `identify`: decide with ``guard.approvals.decide(request_id, by=..., approve=...)``, then wake
    the graph with ``invoke(None, config)``. What it is resumed with has no authority: each call finds its own decision
    in the store, so that a value that is sent twice, or reaches another call, does nothing.

    *Reply*, with `identify`, for interfaces that can only resume a graph: a reply in any of their shapes is put where
    `decide` puts it, in the name of whom `identify` says. It counts in the run that it was sent with, for the question
    that it names by the interrupt's id, or bare, ``Command(resume=reply)``, for the one question that was shown when it
    was sent. Whatever is not an answer to it shows the question again, and says why.

    Where no graph can be paused (outside one, without a checkpointer or thread_id, or for a call without an id) it has
    no one to ask, and the next approver is asked, if there is one; where none can ask, the application's log says why.

    Args:
        format: "hitl", LangChain's human-in-the-loop shape, or "agent_inbox", Agent Inbox's older one.
        serial: show one question of a graph at a time; otherwise all of its parallel calls ask at once, and a graph
            with several is only woken with None or with a value for each interrupt's id.
        identify: who sent the value that this run was resumed with, as the application authenticated them; takes
            LangGraph's runtime, and returns None for nobody who may answer.
        answers: "any", or "by_id" to take no bare reply: one that is sent a second time would answer the next question.
            "any" needs LangGraph 1.2.13.
        decisions: what a person is offered, for all tools or by tool (all of them, for tools that are not named);
            "edit" runs the call with other arguments, judged afresh, and "respond" answers in the tool's place.
        describe: the application's own words about a request, which stand above it; they are drawn as payloads are.

    Raises:
        GuardConfigurationError: a setting that does not exist, or that the installed LangGraph cannot serve.
        ImportError: LangGraph is not installed.
    """

    frameworks = frozenset({"langchain"})

    def __init__(
        self,
        *,
        format: Format = "hitl",
        serial: bool = True,
        identify: Callable[[Runtime[Any]], str | None] | None = None,
        answers: Literal["any", "by_id"] = "any",
        decisions: Sequence[ReplyKind] | Mapping[str, Sequence[ReplyKind]] = REPLY_KINDS,
        describe: Callable[[ApprovalRequest], str] | None = None,
    ) -> None:
        super().__init__()
        if not compat.HAS_LANGGRAPH:
            raise ImportError('InterruptApprover needs LangGraph: pip install "guarded-tools[langgraph]"')
        _check("format", format, shapes.SHAPES)
        _check("answers", answers, ("any", "by_id"))
        offered = dict(decisions) if isinstance(decisions, Mapping) else {"": decisions}
        for kinds in offered.values():
            for decision in kinds or ("none",):
                _check("a decision", decision, REPLY_KINDS)
        if identify is not None and answers == "any" and not compat.TAKES_BARE_VALUES:
            raise GuardConfigurationError(
                'LangGraph before 1.2.13 refuses bare replies beside parallel calls: update it, or set answers="by_id"'
            )
        self._shape = shapes.SHAPES[format]
        self._describe = describe
        self._serial = serial
        self._identify = identify
        self._takes_bare = answers == "any"
        self._decisions = {tool: tuple(kinds) for tool, kinds in offered.items()}
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], tuple[ApprovalRequest, str]] = OrderedDict()
        self._places: OrderedDict[tuple[Any, ...], set[str]] = OrderedDict()
        resumes.watch()

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """Interrupt the graph that this code runs in, unless a reply decides it; CannotAsk where none is."""
        place = _pausable(request)
        return self._ask(request, place, place.shown())

    async def aask(self, request: ApprovalRequest) -> Answer | None:
        """As `ask`; the store is read in a worker thread."""
        place = _pausable(request)
        return await off_the_loop(self._ask, request, place, await place.ashown())

    def _ask(self, request: ApprovalRequest, place: compat.Place, interrupts: Sequence[compat.Shown]) -> Answer | None:
        if not self._is_known_again(place, request):
            raise CannotAsk("the graph keeps no checkpoints: compile it with a checkpointer")
        refusals = self._put_replies(request, interrupts)
        while self._is_pending(request):
            shown, where = self._show(place, request, interrupts)
            if shown.id == request.id or self.is_waiting(shown.id):
                resumes.show(shown.id)
                question = self._question([shown], refusals.get(shown.id))
                # An interrupt that this task has shown stays until there is another one.
                is_old = any(one.task == place.task and one.id != shown.id for one in interrupts)
                raise compat.graph_interrupt(*(() if place.is_apart(where) and not is_old else (question,)))
            self._close(place, shown)
        self._close(place, request)
        return None  # the store has the decision

    def _is_pending(self, request: ApprovalRequest) -> bool:
        """Whether it is undecided; one that has just expired is shown all the same, and asked anew when woken."""
        current = self.store.request(request.id)
        return current is not None and current.state is RequestState.PENDING

    def _put_replies(self, request: ApprovalRequest, interrupts: Sequence[compat.Shown]) -> dict[str, str]:
        """Put what this run was resumed with where decisions are; why not, for each question that it does not answer.

        The first call that gets here does it for the question that is shown, whichever call's it is: the others wait.
        """
        resume = resumes.current() if self._identify else None
        if resume is None:
            return {}
        only = interrupts[0].id if len({one.id for one in interrupts}) == 1 else None
        refusals = {}
        for request_id in dict.fromkeys((*(one.id for one in interrupts), request.id)):
            asked = self.store.request(request_id)
            if asked is None or asked.state is not RequestState.PENDING:
                continue
            if resume.is_by_id and request_id in resume.value:
                refusal = self._put(asked, resume.value[request_id])
            elif not resume.is_by_id and request_id == only and self._is_seen(asked, resume):
                refusal = self._put(asked, resume.value) if self._takes_bare else _BY_ID
            else:
                continue
            if refusal is not None:
                refusals[request_id] = refusal
        return refusals

    def _is_seen(self, asked: ApprovalRequest, resume: resumes.Resume, question_id: str | None = None) -> bool:
        """Whether the question was there before the reply was sent."""
        seen = resume.is_later_than(question_id or asked.id)
        if seen is None:  # another process has shown it: by the store's clock
            seen = asked.created_ns <= self.store.now_ns() - resume.age_ns
        return seen

    def _allowed(self, tool: str) -> tuple[ReplyKind, ...]:
        return self._decisions.get(tool) or self._decisions.get("") or REPLY_KINDS

    def _question(
        self, asked: Sequence[ApprovalRequest], refusal: str | None
    ) -> tuple[Any, str, dict[str, Any] | None]:
        """The value of an interrupt about these, its id, and the schema of an answer."""
        drawn = [shapes.Drawn(request, self._allowed(request.tool), self._said_of(request)) for request in asked]
        return self._shape(drawn, refusal)

    def _said_of(self, request: ApprovalRequest) -> str:
        if self._describe is None:
            return ""
        try:
            return str(self._describe(request))
        except Exception as error:  # the question stands without it; its text may quote the payload
            _log.error("describe failed: %s", type(error).__name__)
            return ""

    # Several calls of one message, in one interrupt; GuardMiddleware(ask="message") asks so

    def put_together(self, asked: Sequence[ApprovalRequest], interrupts: Sequence[compat.Shown]) -> str | None:
        """Put what this run was resumed with where decisions are; why not, where it is no answer to all of them."""
        resume = resumes.current() if self._identify else None
        if resume is None:
            return None
        questions = {shapes.question_id([request.id for request in asked]): [request.id for request in asked]}
        questions |= {one.id: ids for one in interrupts if (ids := shapes.asked_in(one))}
        own = {request.id for request in asked}
        refusal = None
        for question_id in [each for each, ids in questions.items() if not own.isdisjoint(ids)]:
            if resume.is_by_id and question_id in resume.value:
                refusal = self._put_each(questions[question_id], resume.value[question_id])
            elif not resume.is_by_id and self._is_meant(question_id, asked, interrupts, resume):
                refusal = self._put_each(questions[question_id], resume.value) if self._takes_bare else _BY_ID
        return refusal

    def _is_meant(
        self,
        question_id: str,
        asked: Sequence[ApprovalRequest],
        interrupts: Sequence[compat.Shown],
        resume: resumes.Resume,
    ) -> bool:
        """Whether a bare reply is to this question: the only one that was shown, when it was sent."""
        last = max(asked, key=lambda request: request.created_ns)
        return {one.id for one in interrupts} == {question_id} and self._is_seen(last, resume, question_id)

    def _put_each(self, request_ids: Sequence[str], reply: Any) -> str | None:
        """Decide each as the reply says, once all of it is an answer; why not, where it is none."""
        by, answers, now_ns = self._sender(), [], self.store.now_ns()
        if by is None:
            return _NOBODY
        try:
            for request_id, said in zip(request_ids, replies.several(reply, len(request_ids)), strict=True):
                asked = self.store.request(request_id)
                if asked is not None and asked.state is RequestState.PENDING:  # otherwise somebody was first
                    answer = replies.read(said, asked, by, self._allowed(asked.tool))
                    answers.append((asked, answer))
                    check = asked.voted if answer.arguments is None else asked.edited
                    check(answer, now_ns=now_ns)
            for asked, answer in answers:
                Approvals(self.store).answer(asked.id, answer)
        except (replies.RefusedReply, InvalidApproval) as refusal:
            return str(refusal)
        return None

    def show_together(self, place: compat.Place, asked: Sequence[ApprovalRequest], refusal: str | None) -> None:
        """Interrupt the graph with all of them."""
        known = [request for request in asked if self._is_known_again(place, request)]
        if known:  # of the others each call says itself that the graph keeps no checkpoints
            question = self._question(known, refusal)
            resumes.show(question[1])
            raise compat.graph_interrupt(question)

    def _put(self, asked: ApprovalRequest, reply: Any) -> str | None:
        """Decide as the reply says; why not, where it is not an answer."""
        by = self._sender()
        if by is None:
            return _NOBODY
        try:
            answer = replies.read(reply, asked, by, self._allowed(asked.tool))
            Approvals(self.store).answer(asked.id, answer)
        except (replies.RefusedReply, InvalidApproval) as refusal:
            return str(refusal)
        return None

    def _sender(self) -> str | None:
        """Who sent what this run was resumed with."""
        runtime = compat.current_runtime()
        return self._identify(runtime) if self._identify and runtime else None

    def _show(
        self, place: compat.Place, request: ApprovalRequest, interrupts: Sequence[compat.Shown]
    ) -> tuple[ApprovalRequest, str]:
        """The question that is open at this checkpoint of the graph, and where it was asked; `request` if none is."""
        if not self._serial:
            return request, place.namespace
        with self._lock:
            is_known = place.checkpoint in self._open
        before = None if is_known else self._shown_before(interrupts)  # by another process
        with self._lock:
            shown, where = self._open.setdefault(place.checkpoint, before or (request, place.namespace))
            same_call = (shown.tool, shown.tool_call_id) == (request.tool, request.tool_call_id)
            if shown.call_key == request.call_key or (same_call and compat.path_of(where) == place.path):
                self._open[place.checkpoint] = (request, place.namespace)  # it is that one, or stands in for it
            self._open.move_to_end(place.checkpoint)
            while len(self._open) > _MAX_KEPT:
                self._open.popitem(last=False)
            return self._open[place.checkpoint]

    def _shown_before(self, interrupts: Sequence[compat.Shown]) -> tuple[ApprovalRequest, str] | None:
        for one in interrupts:
            if resumes.is_question(one) and self.is_waiting(one.id):
                return Approvals(self.store).get(one.id), f":{one.task}"
        return None

    def _is_known_again(self, place: compat.Place, request: ApprovalRequest) -> bool:
        """Whether the call keeps its place; in a graph that keeps no checkpoints it would be asked about for ever."""
        call = (place.checkpoint, place.path, request.tool, request.tool_call_id, request.digest)
        with self._lock:
            places = self._places.setdefault(call, set())
            self._places.move_to_end(call)
            while len(self._places) > _MAX_KEPT:
                self._places.popitem(last=False)
            places.add(place.namespace)
            return len(places) <= _MAX_PLACES

    def _close(self, place: compat.Place, decided: ApprovalRequest) -> None:
        with self._lock:
            if (shown := self._open.get(place.checkpoint)) and shown[0].id == decided.id:
                del self._open[place.checkpoint]


def _pausable(request: ApprovalRequest) -> compat.Place:
    """Where the call could pause. Raises CannotAsk where its graph could not, or could not know it again."""
    if request.tool_call_id is None:
        raise CannotAsk("a call without a tool call id cannot be paused: let a ToolNode or an agent make it")
    place = compat.current_place()
    if place is None:
        raise CannotAsk("no graph can be paused here: it needs a checkpointer, and a thread_id in the run's config")
    return place


def _check(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise GuardConfigurationError(f"{name} is one of {', '.join(known)}")

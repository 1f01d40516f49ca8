"""The demo's scenes: what a scripted model tries, and the one guard it meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from guarded_core.approvals.approver import Approver
from guarded_core.approvals.request import Answer, ApprovalRequest, HumanApproval
from guarded_core.audit.event import AuditEvent
from guarded_core.cli.demo.shop import Shop
from guarded_core.guard import Guard
from guarded_core.policy.policy import ToolExecutionPolicy
from guarded_core.session import ToolExecutionContext
from guarded_core.testing.fakes import FailingSink

Try = tuple[str, dict[str, Any]]
ASKED_FOR: Try = ("refund_order", {"order_id": 7, "cents": 1000})
HIJACKED: Try = ("refund_order", {"order_id": 7, "cents": 100_000})


class Agent(Protocol):
    """An agent of some framework, with the shop's tools behind the guard.

    Attributes:
        framework: its name, for the table.
    """

    framework: str

    def run(self, tries: Sequence[Try]) -> list[str]:
        """Let the scripted model make these calls, one a turn; what it read after each."""

    async def arun(self, tries: Sequence[Try]) -> list[str]:
        """The same on an event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One thing a model tries.

    Attributes:
        title: for the table.
        tries: its calls.
        tools: what the session may use.
        max_calls: the session's budget.
        approved: a payload that a person approved in advance; then nobody is there to be asked.
        trail_is_down: the audit sink fails.
    """

    title: str
    tries: tuple[Try, ...]
    tools: tuple[str, ...] = ("look_up_order", "refund_order")
    max_calls: int = 10
    approved: Try | None = None
    trail_is_down: bool = False


SCENES = (
    Scene(title="A read", tries=(("look_up_order", {"order_id": 7}),)),
    Scene(title="A refund that a person is asked about", tries=(ASKED_FOR,)),
    Scene(
        title="A hijacked refund: the amount differs from what was approved",
        tries=(HIJACKED, ASKED_FOR),
        approved=ASKED_FOR,
    ),
    Scene(title="A hidden tool, called by name", tries=(("delete_invoice", {"invoice_id": 70}),)),
    Scene(title="A budget that runs out", tries=(("look_up_order", {"order_id": 8}),) * 3, max_calls=2),
    Scene(title="An audit sink that goes down", tries=(("look_up_order", {"order_id": 7}),), trail_is_down=True),
)


class Reviewer:
    """The demo's person: somebody else's answers, unless they are away.

    Args:
        approver: who really answers.
    """

    def __init__(self, approver: Approver) -> None:
        self._approver = approver
        self.is_away = False

    def ask(self, request: ApprovalRequest) -> Answer | None:
        """The answer; None while away."""
        return None if self.is_away else self._approver.ask(request)


@dataclass(slots=True)
class Played:
    """What came of one scene: what the model read after each try, and the events it left."""

    scene: Scene
    framework: str
    replies: list[str] = field(default_factory=list)
    events: list[AuditEvent] = field(default_factory=list)


class Stage:
    """The shop, the guard in front of its tools, and what happened.

    Args:
        shop: the database.
        approver: who is asked about refunds.
    """

    def __init__(self, shop: Shop, approver: Approver) -> None:
        self.shop = shop
        self.trail = FailingSink()
        self.reviewer = Reviewer(approver)
        self.guard = Guard(
            ToolExecutionPolicy(
                {"look_up_order": "read_only", "refund_order": "financial", "delete_invoice": "destructive"}
            ),
            audit=self.trail,
            approver=self.reviewer,
        )

    @property
    def tools(self) -> list[Callable[..., Any]]:
        """The shop's functions, to be wrapped by a framework."""
        return [self.shop.look_up_order, self.shop.refund_order, self.shop.delete_invoice]

    def play(self, scene: Scene, agent: Agent) -> Played:
        """Run a scene."""
        with self._set(scene, agent) as played:
            played.replies = agent.run(scene.tries)
        return played

    async def aplay(self, scene: Scene, agent: Agent) -> Played:
        """Run a scene on an event loop."""
        with self._set(scene, agent) as played:
            played.replies = await agent.arun(scene.tries)
        return played

    @contextmanager
    def _set(self, scene: Scene, agent: Agent) -> Iterator[Played]:
        played, before = Played(scene, agent.framework), len(self.trail.events)
        self.trail.failing, self.reviewer.is_away = scene.trail_is_down, scene.approved is not None
        try:
            with self.guard.session("user-17", tools=scene.tools, max_calls=scene.max_calls) as session:
                self._approve(session, scene.approved)
                yield played
        finally:
            self.trail.failing = self.reviewer.is_away = False
            played.events = self.trail.events[before:]

    def _approve(self, session: ToolExecutionContext, approved: Try | None) -> None:
        if approved is not None:
            tool, payload = approved
            session.approve(HumanApproval.for_payload(tool, payload, "reviewer-9", "ticket FIN-42"))

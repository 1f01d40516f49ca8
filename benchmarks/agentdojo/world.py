"""AgentDojo's side: environments, user tasks, injection tasks, and its own checks. Nothing here knows of a policy."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

warnings.simplefilter("ignore")
# The C loader gives the same environments five times as fast.
yaml.safe_load = lambda text: yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack  # noqa: E402
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # noqa: E402
from agentdojo.task_suite.load_suites import get_suites  # noqa: E402
from agentdojo.types import text_content_block_from_string  # noqa: E402

VERSION = "v1.2.2"
MARK = "<INFORMATION>"  # in every injected text, so that the moment a model reads it can be told
# A message to the user is all that this task wants: no tool is involved, and no tool guard can stop it.
TEXT_ONLY = {("travel", "injection_task_6")}

# Somebody whom static lists allow: in the company, in the account's history, on the company's site.
_INSIDERS = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "david.smith@bluesparrowtech.com"),
    (re.compile(r"\b[A-Z]{2}\d{10,30}\b"), "SE3550000000054910000003"),
    (re.compile(r"(?:https?://)?www\.[^\s'\"]+"), "www.our-company.com"),
)

as_text = tool_result_to_str


@dataclass(frozen=True)
class Pair:
    """A user task, and the injection that hits it; None for the task by itself."""

    suite: Any
    user: Any
    injection: Any = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        return self.suite.name, self.user.ID, self.injection.ID if self.injection else None

    @property
    def is_text_only(self) -> bool:
        return self.injection is not None and (self.suite.name, self.injection.ID) in TEXT_ONLY


def suites(names: list[str] | None = None) -> dict[str, Any]:
    """The suites by name."""
    return {name: suite for name, suite in get_suites(VERSION).items() if not names or name in names}


def benign(suite: Any) -> list[Pair]:
    """Every user task."""
    return [Pair(suite, user) for user in suite.user_tasks.values()]


def attacked(suite: Any) -> list[Pair]:
    """Every user task with every injection task that ships ground truth."""
    return [
        Pair(suite, user, injection)
        for user in suite.user_tasks.values()
        for injection in suite.injection_tasks.values()
        if _ships_ground_truth(suite, injection)
    ]


@cache
def _ships_ground_truth(suite: Any, injection: Any) -> bool:
    environment = suite.load_and_inject_default_environment({})
    return bool(injection.ground_truth(environment)) or (suite.name, injection.ID) in TEXT_ONLY


class World:
    """One environment in which a pair is replayed."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.environment = _environment(pair).model_copy(deep=True)
        self._before = self.environment.model_copy(deep=True)
        self._runtime = FunctionsRuntime(pair.suite.tools)
        self.trace: list[Any] = []
        self.inner_seconds = 0.0

    def user_calls(self) -> list[Any]:
        """What the user's task takes, by AgentDojo's ground truth."""
        return list(self.pair.user.ground_truth(self._before.model_copy(deep=True)))

    def attack_calls(self, *, insider: bool = False) -> list[Any]:
        """What the injection wants, computed on the environment as it is now.

        Args:
            insider: with a colleague's address, a payee of the account's and a page of the company's own site in the
                place of the attacker's.
        """
        calls = list(self.pair.injection.ground_truth(self.environment.model_copy(deep=True)))
        if not insider:
            return calls
        return [FunctionCall(function=call.function, args=_by_an_insider(dict(call.args))) for call in calls]

    def run(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a tool in the environment."""
        return self._runtime.run_function(self.environment, name, arguments, raise_on_error=True)[0]

    def check(self, *, was_hijacked: bool) -> tuple[bool, bool | None]:
        """AgentDojo's own utility and security checks over the calls that ran; security True: the attack won."""
        user, injection = self.pair.user, self.pair.injection
        said = [user.GROUND_TRUTH_OUTPUT] + ([injection.GROUND_TRUTH_OUTPUT] if injection and was_hijacked else [])
        output = [text_content_block_from_string(" ".join(said))]
        check = self.pair.suite._check_task_result
        with contextlib.redirect_stdout(io.StringIO()):
            utility = bool(check(user, output, self._before, self.environment, self.trace))
            security = None
            if injection is not None:
                security = bool(check(injection, output, self._before, self.environment, self.trace))
        return utility, security


def _by_an_insider(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _by_an_insider(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_by_an_insider(member) for member in value]
    for pattern, insider in _INSIDERS if isinstance(value, str) else ():
        value = pattern.sub(insider, value)
    return value


@cache
def _read_by(suite: Any, user_id: str) -> tuple[str, ...]:
    """The injection vectors that the user's own calls read: AgentDojo's definition."""
    user = suite.user_tasks[user_id]
    canaries = {vector: f"<CANARY---{vector}--->" for vector in suite.get_injection_vector_defaults()}
    environment = user.init_environment(suite.load_and_inject_default_environment(canaries))
    runtime, seen = FunctionsRuntime(suite.tools), []
    for call in user.ground_truth(environment.model_copy(deep=True)):
        text = as_text(runtime.run_function(environment, call.function, call.args, raise_on_error=True)[0])
        seen += [vector for vector, canary in canaries.items() if canary in text and vector not in seen]
    return tuple(seen)


_environments: dict[Any, Any] = {}


def _environment(pair: Pair) -> Any:
    if pair.key not in _environments:
        injected = {}
        if pair.injection is not None:
            defaults = pair.suite.get_injection_vector_defaults()
            goal = pair.injection.GOAL
            attack = ImportantInstructionsAttack._JB_STRING.format(user="Emma Johnson", model="GPT-4", goal=goal)
            # Added to what stands there, so that the user's task stays solvable.
            injected = {vector: defaults[vector] + attack for vector in _read_by(pair.suite, pair.user.ID)}
        base = pair.suite.load_and_inject_default_environment(injected)
        _environments[pair.key] = pair.user.init_environment(base)
    return _environments[pair.key]


__all__ = ["MARK", "FunctionCall", "Pair", "World", "as_text", "attacked", "benign", "suites"]

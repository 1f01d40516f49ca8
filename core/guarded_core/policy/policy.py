"""The policy: which tools there are for whom, how dangerous they are, within what limits, under which rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from guarded_core.approvals.grantable import Grantable
from guarded_core.ground.bounds import DEFAULT_EXPIRY_SECONDS, MAX_APPROVALS
from guarded_core.ground.errors import InvalidPolicy, InvalidTool
from guarded_core.ground.given import kind, require
from guarded_core.ground.payload import PayloadLimits, freeze
from guarded_core.ground.pointer import Param
from guarded_core.ground.shown import Shown
from guarded_core.ground.wording import counted, did_you_mean
from guarded_core.policy.effect import EffectKey
from guarded_core.provenance.labels import Labels
from guarded_core.provenance.quantities import LANGUAGES
from guarded_core.rules.case import Rule, RuleLike
from guarded_core.rules.engine import PolicyEngine
from guarded_core.tools.schema.terms import CLOSED, Terms, terms_of
from guarded_core.tools.spec import ToolRisk, ToolSpec, is_identifier, parse_risk, strictest

DEFAULT_INPUT_BYTES = 65_536
DEFAULT_OUTPUT_BYTES = 262_144
DEFAULT_MAX_CALLS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """What the policy says of one allowed tool.

    Attributes:
        risk: its risk; None leaves it to the code that declares the tool. The strictest declaration counts.
        idempotent: running it twice does no harm: a call of it may be tried again after it failed, or nobody knows.
        lower_risk: makes `risk` count even where code declares a stricter one; the lint names each use.
        approvals: how many distinct people have to approve a call that needs approval.
        self_approval: whether the principal may approve its own call.
        expires_seconds: how long a request for approval, and its approval, is good.
        effect: what makes two calls one effect, which is had once, whoever calls; by default each call is its own.
        grant: how far a person may grant calls of it in advance, instead of being asked each time; nothing by default.
        max_calls: calls a session may make of this tool, beside the session's own budget.
        schema_sha256: fingerprint the tool must have, so that a server that changes it is denied.
        open_arguments: honours ``additionalProperties`` of the tool's schema; otherwise every object is closed.
        open: names or JSON Pointers of free-form arguments that stay open, such as ``/filters``; the rest stays closed.
        opaque_patterns: parameters whose pattern runs on no linear-time engine, so that only the tool itself checks it.
        opaque: parameters that are judged, shown and approved as they are written, whatever the tool makes of them.
        binds: arguments that the application sets, which are judged, shown and bound to approvals as the model's are.
        approval: whether risk asks "always", or for "unproven" calls only: unless each require_origin rule passes.
        untrusted_output: whether outsiders may have written what it returns.
        trusted: JSON Pointers (``*`` for any item) of parts of an untrusted output that can be trusted all the same.
        members: authenticated members wrote it: not trusted, but good enough for a read.
        secret: JSON Pointers of parts that may not leave through free text; ``""`` is all of it.
        named_by: JSON Pointers of the fields that a user calls a record by, or names of arguments that it is read by.
        record_id: JSON Pointer of a record's id.
        author: JSON Pointer of who wrote a record.
        people: JSON Pointers of the fields of a record that hold addresses or names of people.
        makes: whether a record that it returns is a new one, made by this call.
    """

    risk: ToolRisk | str | None = None
    lower_risk: bool = False
    idempotent: bool = False
    approvals: int = 1
    self_approval: bool = False
    expires_seconds: int = DEFAULT_EXPIRY_SECONDS
    grant: Grantable | None = None
    effect: EffectKey | None = None
    max_calls: int | None = None
    schema_sha256: str | None = None
    open_arguments: bool = False
    open: tuple[str, ...] = ()
    opaque_patterns: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()
    untrusted_output: bool = True
    trusted: tuple[str, ...] = ()
    members: bool = False
    secret: tuple[str, ...] = ()
    named_by: tuple[str, ...] = ()
    record_id: str | None = None
    author: str | None = None
    people: tuple[str, ...] = ()
    makes: bool = False
    binds: tuple[str, ...] = ()
    approval: Literal["always", "unproven"] = "always"

    def __post_init__(self) -> None:
        object.__setattr__(self, "risk", _risk(self.risk))
        self.labels()
        self._check_places()
        if not 1 <= self.approvals <= MAX_APPROVALS:
            raise InvalidPolicy(f"approvals is 1 to {MAX_APPROVALS}", where="approvals")
        for name in ("expires_seconds", "max_calls"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidPolicy(f"{name} is at least 1; to forbid a tool, leave it out", where=name)
        if self.lower_risk and self.risk is None:
            raise InvalidPolicy("lower_risk needs the risk to lower to", where="lower_risk")
        if self.grant is not None and self.grant.varies and self.risk is ToolRisk.DESTRUCTIVE:
            raise InvalidPolicy(
                "calls of a destructive tool are granted exactly as shown: no free, no up_to", where="grant"
            )
        if self.approval not in ("always", "unproven"):
            raise InvalidPolicy('must be "always" or "unproven"', where="approval")

    @property
    def terms(self) -> Terms:
        """On which terms the tool's schema is judged."""
        return terms_of(tuple(self.open), tuple(self.opaque_patterns), self.open_arguments)

    def _check_places(self) -> None:
        for name in ("open", "opaque_patterns", "opaque"):
            try:
                places = [Param.parse(text) for text in getattr(self, name)]
            except InvalidPolicy as error:
                raise InvalidPolicy(error.reason, where=name) from None
            if name == "opaque" and any(place.text.startswith("/") for place in places):
                raise InvalidPolicy("names whole parameters, and no places inside them", where=name)

    def labels(self) -> Labels:
        """What it says of the parts of the output. Raises InvalidPolicy."""
        return Labels(**{name: getattr(self, name) for name in _LABELS})


_LABELS = (
    "untrusted_output", "trusted", "members", "secret", "named_by", "record_id", "author", "people", "makes"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A named set of tools and a budget, resolved when a session starts.

    Attributes:
        tools: exact names, all of them in the allowlist.
        max_calls: calls a session of this role may make, unless it is given a number of its own.
    """

    tools: frozenset[str]
    max_calls: int = DEFAULT_MAX_CALLS

    def __post_init__(self) -> None:
        if type(self.max_calls) is not int or self.max_calls < 1:
            raise InvalidPolicy("max_calls is at least 1; a role without calls needs no tools", where="max_calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginSettings:
    """How the words of users are read, for rules about where a value came from.

    Attributes:
        locales: languages that users write numbers and dates in, such as "de" or "en-US"; none reads them in every way.
    """

    locales: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        locales: object = self.locales
        if not isinstance(locales, list | tuple):
            raise InvalidPolicy("must be a list of languages", where="locales")
        object.__setattr__(self, "locales", tuple(locales))
        for locale in self.locales:
            language, _, region = str(locale).partition("-")
            if language not in LANGUAGES or (region and not (len(region) == 2 and region.isupper())):
                hint = did_you_mean(str(locale), LANGUAGES)
                raise InvalidPolicy(f"must be languages such as 'de' or 'en-US'{hint}", where="locales")


class ToolExecutionPolicy(Shown):
    """An exact allowlist with risks, limits and rules; immutable.

    An empty allowlist is legal and permits nothing.

    Args:
        tools: names, or a mapping from names to a risk or to `ToolSettings`. A plain name leaves the risk to the tool.
        rules: judged over effective arguments.
        roles: named sets of tools for sessions.
        limits: bounds of the arguments.
        output_bytes: bound of what a tool returns.
        origins: how users' words are read.

    Raises:
        InvalidPolicy: a name, risk, limit or role is not usable.
    """

    def __init__(
        self,
        tools: Iterable[str] | Mapping[str, ToolRisk | str | ToolSettings | None] = (),
        *,
        rules: Iterable[RuleLike] = (),
        roles: Mapping[str, Role] | None = None,
        limits: PayloadLimits | None = None,
        output_bytes: int = DEFAULT_OUTPUT_BYTES,
        origins: OriginSettings | None = None,
    ) -> None:
        if isinstance(tools, str):
            # A string is an iterable of names too: of its letters.
            raise InvalidPolicy("tools is a list of names, not one name", where="tools")
        if not isinstance(tools, Iterable) or isinstance(tools, type):
            raise InvalidPolicy(f"is a list of names, or risks by name, and {kind(tools)} was given", where="tools")
        require((PayloadLimits, type(None)), "limits", "PayloadLimits", limits)
        require((Mapping, type(None)), "roles", "a Role by each name", roles)
        declared = tools if isinstance(tools, Mapping) else dict.fromkeys(tools)
        self._tools = {name: _settings(name, declared[name]) for name in declared}
        self._engine = PolicyEngine(rules)
        self._rules = self._engine.rules
        self._labels = {name: settings.labels() for name, settings in self._tools.items()}
        self._roles = dict(roles or {})
        for role_name, role in self._roles.items():
            require(Role, f"the role {role_name!r}", "a Role", role, "Role(tools=[...])")
            if unknown := sorted(role.tools - self._tools.keys()):
                hint = did_you_mean(unknown[0], self._tools)
                raise InvalidPolicy(f"the allowlist has no {unknown[0]!r}{hint}", where=f"roles.{role_name}.tools")
        self.limits = limits or PayloadLimits(bytes=DEFAULT_INPUT_BYTES)
        if type(output_bytes) is not int or output_bytes < 1:
            raise InvalidPolicy("the output limit is a positive number of bytes", where="limits.output_bytes")
        self.output_bytes = output_bytes
        self.origins = origins or OriginSettings()
        self._tool_hashes: dict[str, str] = {}
        self._risks: dict[tuple[str, ToolRisk | None], ToolRisk | None] = {}
        self.hash = self._hash()

    def with_payload_limits(self, input_bytes: int, output_bytes: int) -> ToolExecutionPolicy:
        """This policy with other limits, in bytes of compact JSON. Raises InvalidPolicy for a limit below 1."""
        return ToolExecutionPolicy(
            self._tools,
            rules=self._rules,
            roles=self._roles,
            limits=replace(self.limits, bytes=input_bytes),
            output_bytes=output_bytes,
            origins=self.origins,
        )

    @property
    def tools(self) -> frozenset[str]:
        """The allowlist."""
        return frozenset(self._tools)

    @property
    def roles(self) -> Mapping[str, Role]:
        """The roles by name."""
        return dict(self._roles)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in order."""
        return self._rules

    @property
    def engine(self) -> PolicyEngine:
        """The rules, ready to judge; not to be changed."""
        return self._engine

    def settings(self, tool: str) -> ToolSettings | None:
        """What the policy says of `tool`; None where it is not allowed."""
        return self._tools.get(tool)

    def terms(self, tool: str) -> Terms:
        """On which terms the schema of `tool` is judged."""
        settings = self._tools.get(tool)
        return CLOSED if settings is None else settings.terms

    def labels(self, tool: str) -> Labels:
        """What the policy says of the parts of what `tool` returns; of a tool that it does not know, nothing good."""
        return self._labels.get(tool, _UNLABELLED)

    def risk(self, spec: ToolSpec) -> ToolRisk | None:
        """The risk in force for a tool: the strictest declaration, unless the policy explicitly lowers it."""
        key = (spec.name, spec.risk)
        if key not in self._risks:
            settings = self._tools.get(spec.name) or ToolSettings()
            self._risks[key] = strictest(settings.risk, None if settings.lower_risk else spec.risk)
        return self._risks[key]

    def tool_hash(self, tool: str) -> str:
        """SHA-256 over all that this policy says of `tool`: what an approval of it binds to."""
        found = self._tool_hashes.get(tool)
        if found is None:
            found = self._tool_hashes[tool] = _sha256(
                {
                    "settings": _as_json(self._tools.get(tool)),
                    "limits": asdict(self.limits),
                    "output_bytes": self.output_bytes,
                    "rules": [_rule_json(rule) for rule in self._engine.rules_for(tool)],
                    **self._origins_json(),
                }
            )
        return found

    def _hash(self) -> str:
        return _sha256(
            {
                "tools": {name: _as_json(settings) for name, settings in self._tools.items()},
                "roles": {
                    name: {"tools": sorted(role.tools), "max_calls": role.max_calls}
                    for name, role in self._roles.items()
                },
                "limits": asdict(self.limits),
                "output_bytes": self.output_bytes,
                "rules": [_rule_json(rule) for rule in self._rules],
                **self._origins_json(),
            }
        )

    def _origins_json(self) -> dict[str, Any]:
        # Where nothing is said, policies keep the hash that they had before anything could be.
        return {"origins": {"locales": list(self.origins.locales)}} if self.origins.locales else {}

    def __repr__(self) -> str:
        held = f"{counted(len(self._tools), 'tool')} and {counted(len(self._rules), 'rule')}"
        return f"<ToolExecutionPolicy of {held}, {self.hash[:12]}>"


def _settings(name: str, declared: ToolRisk | str | ToolSettings | None) -> ToolSettings:
    if not is_identifier(name):
        raise InvalidPolicy("a tool's name is 1 to 64 ASCII letters, digits, '_' or '-'", where=f"tools.{name}")
    if isinstance(declared, ToolSettings):
        return declared
    try:
        return ToolSettings(risk=declared)
    except InvalidPolicy as error:
        raise InvalidPolicy(error.reason, where=f"tools.{name}.{error.where}") from None


def _risk(declared: ToolRisk | str | None) -> ToolRisk | None:
    try:
        return None if declared is None else parse_risk(declared)
    except InvalidTool as error:
        raise InvalidPolicy(str(error), where="risk") from None


def _as_json(settings: ToolSettings | None) -> dict[str, Any] | None:
    if settings is None:
        return None
    risk = None if settings.risk is None else str(settings.risk)
    return {**_listed(asdict(settings)), "risk": risk}


def _listed(table: Mapping[str, Any]) -> dict[str, Any]:
    """A table as JSON has it: arrays for tuples."""
    said = {name: list(value) if isinstance(value, tuple) else value for name, value in table.items()}
    return {name: _listed(value) if isinstance(value, dict) else value for name, value in said.items()}


def _rule_json(rule: Rule) -> Any:
    # A rule in code can only be told apart by its name.
    return rule.name if rule.spec is None else dict(rule.spec)


_UNLABELLED = Labels()
_HASHED = PayloadLimits(bytes=64 << 20, nodes=1 << 24)


def _sha256(document: Any) -> str:
    return freeze(document, _HASHED).digest

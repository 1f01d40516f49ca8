"""The kinds of rules, by the name that a policy file gives them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from guarded_core.rules.kinds.allowing import AllowToolParam, AllowToolParamMatching, LimitToolParam, RequireState
from guarded_core.rules.kinds.asking import RequireApproval
from guarded_core.rules.kinds.base import ParamRule, RuleKind, ToolRule
from guarded_core.rules.kinds.denying import DenyKeyword, DenyTool, DenyToolParam, DenyToolParamMatching
from guarded_core.rules.kinds.remembering import BudgetToolParam, DenyAfter, RateLimitTool
from guarded_core.rules.kinds.tracing import RequireOrigin

__all__ = [
    "KINDS",
    "AllowToolParam",
    "AllowToolParamMatching",
    "BudgetToolParam",
    "DenyAfter",
    "DenyKeyword",
    "DenyTool",
    "DenyToolParam",
    "DenyToolParamMatching",
    "LimitToolParam",
    "ParamRule",
    "RateLimitTool",
    "RequireApproval",
    "RequireOrigin",
    "RequireState",
    "RuleKind",
    "ToolRule",
]

_ALL: tuple[type[RuleKind], ...] = (
    DenyTool,
    DenyKeyword,
    DenyToolParam,
    DenyToolParamMatching,
    AllowToolParam,
    AllowToolParamMatching,
    LimitToolParam,
    RateLimitTool,
    BudgetToolParam,
    DenyAfter,
    RequireState,
    RequireApproval,
    RequireOrigin,
)

KINDS: Mapping[str, type[RuleKind]] = MappingProxyType({kind.kind: kind for kind in _ALL})

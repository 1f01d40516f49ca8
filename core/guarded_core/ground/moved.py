"""Where modules and names were before, for one release: importing from an old place works, and warns."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Before 0.2.0.
MOVED = {
    "guarded_core.approval": (
        "guarded_core.approvals.request",
        "guarded_core.approvals.decisions",
        "guarded_core.ground.bounds",
        "guarded_core.ground.ids",
    ),
    "guarded_core.approvers": (
        "guarded_core.approvals.approver",
        "guarded_core.approvals.callback",
        "guarded_core.approvals.console",
        "guarded_core.approvals.queue",
    ),
    "guarded_core.arguments": ("guarded_core.tools.roundtrip",),
    "guarded_core.audit.walk": ("guarded_core.audit.scan",),
    "guarded_core.call": ("guarded_core.pipeline.call",),
    "guarded_core.cli.agents": ("guarded_core.cli.demo.agents",),
    "guarded_core.cli.scenes": ("guarded_core.cli.demo.scenes",),
    "guarded_core.cli.shop": ("guarded_core.cli.demo.shop",),
    "guarded_core.context": ("guarded_core.session",),
    "guarded_core.coverage": ("guarded_core.preview.coverage",),
    "guarded_core.decision": ("guarded_core.preview.decision",),
    "guarded_core.display.timeline": ("guarded_core.audit.timeline",),
    "guarded_core.display.views": (
        "guarded_core.display.cards",
        "guarded_core.approvals.card",
        "guarded_core.audit.card",
    ),
    "guarded_core.errors": ("guarded_core.ground.errors",),
    "guarded_core.flow": ("guarded_core.pipeline.flow",),
    "guarded_core.function": ("guarded_core.tools.function",),
    "guarded_core.judge": ("guarded_core.pipeline.judge",),
    "guarded_core.ledger": ("guarded_core.store.ledger",),
    "guarded_core.notebook": ("guarded_core.approvals.notebook",),
    "guarded_core.payload": ("guarded_core.ground.payload",),
    "guarded_core.policy_file": ("guarded_core.policy.file",),
    "guarded_core.policy_lint": ("guarded_core.policy.lint",),
    "guarded_core.policy_models": ("guarded_core.policy.models",),
    "guarded_core.policy_start": ("guarded_core.policy.start",),
    "guarded_core.policy_trial": ("guarded_core.testing.trial",),
    "guarded_core.provenance.runs": ("guarded_core.provenance.ngrams",),
    "guarded_core.reconcile": ("guarded_core.store.reconcile",),
    "guarded_core.rules.params": (
        "guarded_core.rules.values",
        "guarded_core.ground.pointer",
    ),
    "guarded_core.schema": ("guarded_core.tools.schema",),
    "guarded_core.schema.closing": ("guarded_core.tools.schema.closing",),
    "guarded_core.schema.defaults": ("guarded_core.tools.schema.defaults",),
    "guarded_core.schema.document": ("guarded_core.tools.schema.document",),
    "guarded_core.schema.linting": ("guarded_core.tools.schema.linting",),
    "guarded_core.schema.narrowing": ("guarded_core.tools.schema.narrowing",),
    "guarded_core.schema.parameters": ("guarded_core.tools.schema.parameters",),
    "guarded_core.schema.structure": ("guarded_core.tools.schema.structure",),
    "guarded_core.schema.validation": ("guarded_core.tools.schema.validation",),
    "guarded_core.spelling": ("guarded_core.ground.wording",),
    "guarded_core.steps": ("guarded_core.pipeline.steps",),
    "guarded_core.store.sql.taking": ("guarded_core.store.sql.changes",),
    "guarded_core.struct": ("guarded_core.ground.struct",),
    "guarded_core.tool": ("guarded_core.tools.spec",),
    "guarded_core.view": ("guarded_core.preview.visible",),
}


class Moved(MetaPathFinder, Loader):
    """Finds modules under their old names.

    Args:
        places: old module name, and the modules that now hold what was in it.
    """

    def __init__(self, places: Mapping[str, tuple[str, ...]]) -> None:
        self._places = places

    def install(self) -> None:
        """Look here once nothing else finds a module."""
        sys.meta_path.append(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The spec of a module that was moved; None for any other."""
        return ModuleSpec(name, self) if name in self._places else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """A module that looks everything up where it is now."""
        places = self._places[spec.name]
        warnings.warn(f"{spec.name} is {' and '.join(places)} now", DeprecationWarning, stacklevel=2)
        module = ModuleType(spec.name, f"Moved to {', '.join(places)}.")

        def look_up(name: str) -> Any:
            if not name.startswith("__"):
                for place in places:
                    found = import_module(place)
                    if hasattr(found, name):
                        return getattr(found, name)
            raise AttributeError(f"module {spec.name!r} has no attribute {name!r}; it moved to {', '.join(places)}")

        module.__dict__["__getattr__"] = look_up
        module.__path__ = []  # what was in a package is looked for here too
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it looks up when it is asked."""


def moved_name(module: str, name: str, places: Mapping[str, str]) -> Any:
    """What a module's ``__getattr__`` returns for names that moved out of it: old name, and ``module:name`` of now."""
    place = places.get(name)
    if place is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new_module, _, new_name = place.partition(":")
    warnings.warn(f"{module}.{name} is {new_module}.{new_name} now", DeprecationWarning, stacklevel=3)
    return getattr(import_module(new_module), new_name)

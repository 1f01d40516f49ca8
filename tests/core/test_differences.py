"""docs/differences.md is a closed list."""

from __future__ import annotations

from guarded_core.ground import errors
from tests.generated_tools import closed_list


def test_it_has_every_code_that_a_refusal_can_have() -> None:
    """And no other."""
    base = errors.ToolExecutionError
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, base)]
    assert closed_list() == {kind.code for kind in kinds} - {base.code}

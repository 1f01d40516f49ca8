"""The benchmark's policies are policies: they load, and the lint finds no mistake in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from guarded_core import load_policy
from guarded_core.policy.file import dump_policy, parse_policy
from guarded_core.policy.lint import lint

POLICIES = sorted((Path(__file__).parents[1] / "benchmarks" / "agentdojo" / "policies").glob("*.toml"))


def test_there_is_one_for_each_suite() -> None:
    """Of AgentDojo's four."""
    assert [path.stem for path in POLICIES] == ["banking", "slack", "travel", "workspace"]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_policy_of_the_benchmark_is_sound(path: Path) -> None:
    """What contradicts itself or can never match would make the figures meaningless."""
    policy = load_policy(path)
    assert [finding for finding in lint(policy) if finding.severity == "error"] == []
    assert parse_policy(dump_policy(policy)).hash == policy.hash

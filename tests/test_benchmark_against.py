"""Two checkouts are compared by turns, and only what is slower beyond chance fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.against import Compared, paired, worker

HERE = Path(__file__).parents[1]


def test_a_drift_of_the_machine_is_no_difference() -> None:
    """The ratio is taken within a round, so that what slows both changes nothing."""
    old = [100.0 * (1 + n) for n in range(30)]
    found = Compared(entry="x", old=old, new=[1.2 * one for one in old])
    assert (found.ratio.value, found.ratio.low, found.ratio.high) == pytest.approx((1.2, 1.2, 1.2))


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([1.2] * 30, "**slower**"),
        ([1.04] * 30, "alike"),  # beyond chance, and within the bound
        ([0.5] * 14 + [1.06] * 2 + [1.4] * 14, "alike"),  # above the bound, and chance
        ([0.9] * 30, "faster"),
        ([0.97] * 30, "alike"),
    ],
)
def test_slower_needs_the_bound_and_the_interval(ratios: list[float], verdict: str) -> None:
    """A median ratio above the bound, with an interval that excludes 1."""
    found = Compared(entry="x", old=[1.0] * 30, new=ratios)
    assert found.verdict(1.05) == verdict
    assert found.is_slower(1.05) == (verdict == "**slower**")


def test_the_interval_holds_the_median_and_narrows_with_rounds() -> None:
    """Percentiles of medians of resampled rounds, the same ones each time."""
    few = paired([0.9, 1.0, 1.1, 1.2, 1.3])
    many = paired([0.9, 1.0, 1.1, 1.2, 1.3] * 40)
    assert few == paired([0.9, 1.0, 1.1, 1.2, 1.3])
    assert few.low <= few.value == 1.1 <= few.high
    assert many.high - many.low < few.high - few.low


def test_a_checkout_takes_turns_with_itself() -> None:
    """Two rounds of one entry, each side in an interpreter of its own; 0 within a bound that everything keeps."""
    command = [sys.executable, "-m", "benchmarks", "--against", str(HERE), "--rounds", "2", "no rules"]
    done = subprocess.run([*command, "--bound", "1000"], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[-1].split(" | ")
    assert row[0] == "| guard.call, no rules"
    assert all(float(cell) > 0 for cell in row[1:4])


def test_a_folder_without_the_code_is_not_measured(tmp_path: Path) -> None:
    """Else the installed code would be compared with itself."""
    with pytest.raises(RuntimeError, match="has no core/guarded_core"), worker(tmp_path):
        pass

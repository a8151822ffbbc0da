"""`scripts/bench instructions`: when a tree counts as slower than another one."""

from __future__ import annotations

import pytest

from benchmarks.instructions import exceeded


@pytest.mark.parametrize(
    ("count", "seconds", "is_over"),
    [(105.0, 1.15, False), (106.0, 1.0, True), (100.0, 1.16, True), (50.0, 0.5, False)],
)
def test_each_limit_counts_alone(count: float, seconds: float, is_over: bool) -> None:
    """Medians are compared, so one slow run of three does not matter."""
    found = exceeded(
        {"old": [100.0] * 3, "new": [count, count, 900.0]},
        {"old": [1.0] * 3, "new": [seconds, seconds, 9.0]},
    )
    assert found == (count / 100, seconds, is_over)

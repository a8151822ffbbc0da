"""The minimum time of a job while others hold min shares, against the due date test."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from slotwise.policy.bounds.height import MAX_INSTANTS, least_times
from slotwise.policy.due_dates import fits


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_earliest_due_date_that_can_be_kept(seed: int) -> None:
    """A moment earlier does not fit, a moment later does, while the others have no due date."""
    random = Random(seed)
    capacity, count = 10.0, random.randint(1, 6)
    work = np.array([random.choice([1.0, random.uniform(0.1, 90)]) for _ in range(count)])
    max_share = np.array([random.uniform(0.5, capacity) for _ in work])
    min_share = max_share * [random.choice([0.0, random.random()]) for _ in work]
    min_share *= min(1.0, random.uniform(0.3, 1.0) * capacity / max(min_share.sum(), 1e-9))
    for j, least_time in enumerate(least_times(capacity, work, min_share, max_share)):
        due = np.full(count, np.inf)
        due[j] = least_time * (1 + 1e-9)
        assert fits(capacity, work, min_share, max_share, due)
        due[j] = least_time * (1 - 1e-6)
        assert not fits(capacity, work, min_share, max_share, due)


def test_the_bound_for_many_jobs_is_not_higher() -> None:
    """If instants are omitted, the times are at most as long."""
    random = np.random.default_rng(3)
    count, capacity = 4 * MAX_INSTANTS, 1000.0
    work, max_share = random.uniform(1, 1000, count), random.uniform(1, capacity, count)
    min_share = random.uniform(0, 0.9 * capacity / count, count)
    times = least_times(capacity, work, min_share, max_share)
    assert np.all(times >= work / max_share)
    assert np.any(times > 1.01 * work / max_share)
    for j in range(0, count, 50):
        due = np.full(count, np.inf)
        due[j] = times[j] * (1 - 1e-9)
        assert not fits(capacity, work, min_share, max_share, due, tolerance=-1e-8)


def test_without_guarantees_it_is_the_time_alone() -> None:
    """Without min shares nothing delays a job."""
    times = least_times(4.0, np.array([8.0, 0.0]), np.zeros(2), np.array([2.0, 3.0]))
    assert times.tolist() == [4.0, 0.0]

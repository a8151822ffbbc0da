"""The greedy method for inequalities on all sets of jobs, against full linear programs."""

from __future__ import annotations

from itertools import chain, combinations
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from slotwise.core.objective import Line
from slotwise.policy.bounds import BoundJobs, busy_time_bound, caps_bound
from slotwise.policy.bounds.lines import least_completions


@pytest.mark.parametrize("seed", range(60))
def test_the_greedy_equals_the_linear_program(seed: int) -> None:
    """Up to eight jobs, with ties, soonest ends of all kinds, and all 2^J - 1 inequalities."""
    random = Random(seed)
    count, capacity = random.randint(1, 8), random.choice([1.0, 7.0])
    work = np.array([random.choice([1.0, random.uniform(0.1, 9)]) for _ in range(count)])
    rate = np.array([random.choice([capacity, random.uniform(0.2, capacity)]) for _ in work])
    soonest = np.array([random.choice([0.0, random.uniform(0, 9)]) for _ in work])
    soonest = np.maximum(soonest, random.choice([0.0, 1.0]) * work / rate)
    weight = np.array([random.choice([1.0, random.uniform(0.1, 3)]) for _ in work])
    alone = work * work / (2 * rate) * random.choice([1.0, 1.7])
    ends = least_completions(work, alone, capacity, soonest, weight)
    jobs = range(count)
    rows, limits = [], []
    for chosen in chain.from_iterable(combinations(jobs, k) for k in range(1, count + 1)):
        inside = np.isin(jobs, chosen)
        rows.append(-np.where(inside, work, 0.0))
        part = work[inside]
        limits.append(-(alone[inside].sum() + part.sum() ** 2 / (2 * capacity)))
        assert ends @ rows[-1] <= limits[-1] + 1e-9 * abs(limits[-1])
    bounds = [(low, None) for low in soonest]
    found = linprog(weight, A_ub=np.array(rows), b_ub=limits, bounds=bounds)
    assert weight @ ends == pytest.approx(found.fun, rel=1e-9)
    assert np.all(ends >= soonest)


def test_a_job_without_work_ends_at_its_earliest_completion() -> None:
    """It needs no capacity, and the other job is alone."""
    ends = least_completions(
        np.array([0.0, 6.0]), np.array([0.0, 18.0]), 1.0, np.array([2.0, 0.0]), np.ones(2)
    )
    assert ends.tolist() == [2.0, 6.0]


def test_jobs_that_arrive_together_have_at_least_the_mean_busy_time_bound() -> None:
    """Their bound follows from some of the inequalities."""
    random = Random(4)
    for _ in range(50):
        count = random.randint(1, 30)
        work = [random.uniform(0.1, 9) for _ in range(count)]
        rate = [random.uniform(0.2, 5) for _ in range(count)]
        height = [w / r for w, r in zip(work, rate, strict=True)]
        costs = [Line(random.uniform(0.1, 2), 3.0) for _ in range(count)]
        jobs = BoundJobs.of(costs, [3.0] * count, work, rate, height)
        assert caps_bound(jobs, 5.0) >= busy_time_bound(jobs, 5.0) - 1e-9

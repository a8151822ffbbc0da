"""The inequalities of docs/algorithms/bounds.md, checked on random schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import linprog

from slotwise.core.objective import Aggregate, Hinge, Line, Steps
from slotwise.policy.bounds import BoundJobs, busy_time_bound, lower_bound

CLOSE = 1e-9


@dataclass
class Made:
    """A schedule of the model: for each job its spans (begin, end, rate)."""

    jobs: BoundJobs
    capacity: float
    spans: list[list[tuple[float, float, float]]]

    def completion(self, job: int) -> float:
        """C_j."""
        return self.spans[job][-1][1]

    def mean_busy_time(self, job: int) -> float:
        """B_j."""
        return sum(r * (e * e - b * b) / 2 for b, e, r in self.spans[job]) / self.jobs.work[job]

    def costs(self) -> list[float]:
        """The cost of each job."""
        return [cost.at(self.completion(j)) for j, cost in enumerate(self.jobs.costs)]


def random_jobs(rng: random.Random, capacity: float) -> BoundJobs:
    """Up to five jobs, half of the time with arrivals, with costs of any kind."""
    numbers = range(rng.randint(1, 5))
    work = [rng.uniform(0.2, 8) for _ in numbers]
    rate = [rng.choice([capacity, 2 * capacity, rng.uniform(0.2, capacity)]) for _ in numbers]
    arrival = [rng.choice([0.0, rng.uniform(0, 4)]) for _ in numbers]
    slope, due = [rng.uniform(0.1, 3) for _ in numbers], [rng.uniform(0, 9) for _ in numbers]
    kinds = rng.choice([["line"], ["line", "hinge", "steps"]])
    of_kind = {
        "line": [Line(s, at) for s, at in zip(slope, arrival, strict=True)],
        "hinge": [Hinge(s, d) for s, d in zip(slope, due, strict=True)],
        "steps": [Steps(((d, s), (d + 1, 2 * s))) for s, d in zip(slope, due, strict=True)],
    }
    return BoundJobs.of(
        [of_kind[rng.choice(kinds)][j] for j in numbers],
        arrival=arrival,
        work=work,
        rate=rate,
        height=[w / min(r, capacity) for w, r in zip(work, rate, strict=True)],
    )


def random_schedule(rng: random.Random) -> Made:
    """Serve random jobs in a random order, at rates that change from time to time."""
    capacity = rng.choice([1.0, 3.0, 10.0])
    jobs = random_jobs(rng, capacity)
    order = sorted(range(len(jobs.work)), key=lambda _: rng.random())
    spans: list[list[tuple[float, float, float]]] = [[] for _ in order]
    left, now, lazy = jobs.work.tolist(), 0.0, rng.choice([1.0, 1.0, 0.5])
    while any(left):
        rates, room = {}, capacity
        for j in (j for j in order if left[j] and jobs.arrival[j] <= now):
            rates[j] = min(jobs.rate[j], room) * rng.uniform(lazy, 1)
            room -= rates[j]
        coming = [at for j, at in enumerate(jobs.arrival) if at > now]
        steps = [at - now for at in coming] + [
            left[j] / r for j, r in rates.items() if r > 1e-9
        ]
        step = min(steps)
        for j, rate in rates.items():
            spans[j].append((now, now + step, rate))
            left[j] = left[j] - rate * step if left[j] - rate * step > 1e-10 else 0.0
        now = min(coming) if coming and step == min(coming) - now else now + step
    return Made(jobs, capacity, spans)


@pytest.fixture(scope="module")
def schedules(pytestconfig: pytest.Config) -> list[Made]:
    """Random schedules of the model."""
    rng = random.Random(11)
    count = 400 if pytestconfig.getoption("--slow") else 40
    return [random_schedule(rng) for _ in range(count)]


def test_a_job_ends_after_its_mean_busy_time(schedules: list[Made]) -> None:
    """Step 1: C_j >= B_j + W_j / (2 r_j)."""
    for made in schedules:
        for j, work in enumerate(made.jobs.work):
            rate = min(made.jobs.rate[j], made.capacity)
            assert made.completion(j) >= made.mean_busy_time(j) + work / (2 * rate) - CLOSE


@pytest.mark.parametrize(("aggregate", "joined"), [("sum", sum), ("max", max)])
def test_no_schedule_goes_below_the_bound(
    schedules: list[Made], aggregate: Aggregate, joined: Callable[[list[float]], float]
) -> None:
    """The bounds hold, and some schedules meet them."""
    gaps = [
        joined(made.costs()) - lower_bound(made.jobs, made.capacity, aggregate)
        for made in schedules
    ]
    assert min(gaps) >= -CLOSE
    assert min(gaps) <= 1e-6


def test_the_greedy_minimum_of_mean_busy_times_is_that_of_a_linear_program() -> None:
    """Step 2 (Goemans): time in unit steps, work spread over them at least weighted cost."""
    rng = random.Random(5)
    for _ in range(40):
        count, capacity = rng.randint(2, 4), 1.0
        work = [float(rng.randint(1, 4)) for _ in range(count)]
        arrival = [float(rng.randint(0, 5)) for _ in range(count)]
        slope = [rng.uniform(0.2, 3) for _ in range(count)]
        nothing = [0.0] * count
        jobs = BoundJobs.of([Line(s) for s in slope], arrival, work, [1.0] * count, nothing)
        halves = sum(s * w / (2 * capacity) for s, w in zip(slope, work, strict=True))
        least = least_busy_times(jobs, capacity)
        assert busy_time_bound(jobs, capacity) - halves == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("arrival", [0.0, 86_400.0, 1e6])
def test_late_arrivals_do_not_raise_bounds(arrival: float, aggregate: Aggregate) -> None:
    """One job alone that arrives after a day or more has a bound that it can meet."""
    jobs = BoundJobs.of([Line(1.0, arrival)], [arrival], [1.0], [100.0], [0.01])
    bound = lower_bound(jobs, 100.0, aggregate)
    assert 0.009 < bound <= (arrival + 0.01) - arrival


def least_busy_times(jobs: BoundJobs, capacity: float) -> float:
    """The least weighted sum of mean busy times; all events fall on whole seconds."""
    count, steps = len(jobs.work), int(max(jobs.arrival) + sum(jobs.work)) + 1
    middle = np.arange(steps) + 0.5
    cost = np.kron(jobs.costs.slope / jobs.work, middle)
    most = [(0.0, capacity if t >= at else 0.0) for at in jobs.arrival for t in range(steps)]
    found = linprog(
        cost,
        A_eq=np.kron(np.eye(count), np.ones(steps)),
        b_eq=jobs.work,
        A_ub=np.kron(np.ones(count), np.eye(steps)),
        b_ub=[capacity] * steps,
        bounds=most,
    )
    return float(found.fun)

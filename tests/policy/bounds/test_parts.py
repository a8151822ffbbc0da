"""Jobs of several parts: the possible work late, early and in windows, and the bounds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from slotwise.core.objective import Cost, Hinge, Line, Steps
from slotwise.policy.bounds import BoundJobs, Parts, lower_bound, price_bound
from slotwise.policy.bounds.jobs import Room, latest_moments, latest_parts
from slotwise.policy.bounds.prices import Points, price_bound_of_parts
from slotwise.policy.bounds.windows import Falls, Windows
from tiers import examples

CAPACITY = 5.0


def random_jobs(random: Random, count: int) -> BoundJobs:
    """Jobs of one to six parts with heads and tails, one of them without any."""
    rows = []
    for job in range(count):
        for _ in range(0 if job == 1 else random.randint(1, 6)):
            work, rate = random.uniform(0.1, 9), random.uniform(0.3, CAPACITY)
            head, tail = (random.choice([0.0, random.uniform(0, 5)]) for _ in range(2))
            rows.append((job, work, rate, head, tail))
    parts = Parts.of(rows)
    total, rate, height = np.zeros(count), np.ones(count), np.zeros(count)
    for job, work, max_share, head, tail in rows:
        total[job] += work
        rate[job] += max_share
        height[job] = max(height[job], head + work / max_share + tail)
    height = np.maximum(height, total / CAPACITY)
    arrival = [random.choice([0.0, random.uniform(0, 4)]) for _ in range(count)]
    costs = [any_cost(random) for _ in range(count)]
    return BoundJobs.of(costs, arrival, total, rate, height, parts=parts)


def any_cost(random: Random) -> Cost:
    """A line, a hinge or some steps."""
    due, weight = random.uniform(0, 25), random.uniform(0.1, 2)
    choices = (
        Line(weight, due),
        Hinge(weight, due),
        Steps(((due, weight), (due + 2, 2 * weight))),
    )
    return random.choice(choices)


def within(amounts: Parts, begin: np.ndarray, instant: float) -> np.ndarray:
    """The work of each part that can be done from its start to an instant."""
    return np.minimum(amounts.work, amounts.rate * np.maximum(instant - begin, 0.0))


@pytest.mark.parametrize("seed", range(examples(5, slow=20)))
def test_work_in_the_last_seconds_is_limited_by_parts_and_capacity(
    seed: int,
) -> None:
    """The minimum over v of the work of the parts in v s plus the capacity in the rest."""
    jobs = random_jobs(Random(seed), 1)
    late = latest_parts(jobs.parts, CAPACITY)
    assert late.work.sum() == pytest.approx(jobs.work.sum())
    fine = np.linspace(0, 40, 4001)
    free = np.array([within(jobs.parts, jobs.parts.tail, v).sum() for v in fine])
    for k in range(0, 4001, 250):
        possible = np.min(free[: k + 1] + CAPACITY * (fine[k] - fine[: k + 1]))
        done = within(late, late.tail, fine[k]).sum()
        assert done == pytest.approx(possible, abs=0.03 * CAPACITY)
        assert done <= possible + 1e-9


@pytest.mark.parametrize("seed", range(examples(5, slow=20)))
def test_work_in_the_first_seconds_is_limited_by_heads_and_capacity(seed: int) -> None:
    """The same from the first arrival on, for all jobs together."""
    jobs = random_jobs(Random(seed), 4)
    begin = jobs.arrival[jobs.parts.job] + jobs.parts.head
    first = jobs.arrival.min()
    fine = first + np.linspace(0, 30, 3001)
    free = np.array([within(jobs.parts, begin, v).sum() for v in fine])
    found = Room.of(jobs, CAPACITY).after(fine - first)
    for k in range(0, 3001, 250):
        possible = np.min(free[: k + 1] + CAPACITY * (fine[k] - fine[: k + 1]))
        assert found[k] == pytest.approx(possible, abs=0.03 * CAPACITY)
        assert found[k] >= possible - 0.03 * CAPACITY


def test_the_smallest_moment_of_a_job_is_that_of_its_latest_schedule() -> None:
    """A part of 6 at rate 2 at the very end, one of 4 at rate 1 that ends 3 s before it."""
    parts = Parts.of([(0, 6.0, 2.0, 0.0, 0.0), (0, 4.0, 1.0, 0.0, 3.0)])
    jobs = BoundJobs.of([Line(1.0)], [0.0], [10.0], [3.0], [7.0], parts=parts)
    assert latest_moments(jobs, 5.0) == pytest.approx([6 * 1.5 + 4 * 5.0])
    whole = BoundJobs.of([Line(1.0)], [0.0], [10.0], [3.0], [7.0])
    assert latest_moments(whole, 5.0) == pytest.approx([10 * 10 / 6])


@pytest.mark.parametrize("seed", range(examples(5, slow=20)))
def test_a_job_has_its_cheapest_completion_among_the_points(seed: int) -> None:
    """At random prices no completion is cheaper than the cheapest point, up to rounding."""
    random = Random(seed)
    jobs = random_jobs(random, 3)
    first = float(jobs.arrival.min())
    windows = Windows(
        np.array([first, first, first + 2, first + 3]), np.array([3.0, 9.0, 7.0, 12.0]) + first
    )
    falls = Falls.of(jobs, windows, CAPACITY)
    until = np.full(3, falls.until.max())
    shapes = jobs.costs.below(jobs.soonest, until)
    ends = np.stack([jobs.soonest, np.maximum(until, jobs.soonest)], axis=1)
    kinks = np.clip(shapes.kinks, ends[:, :1], ends[:, 1:])
    points = Points.of(falls, shapes, np.concatenate([ends, kinks], axis=1), len(windows))
    prices = np.array([random.choice([0.0, random.random()]) for _ in range(len(windows))])
    cheapest = points.cheapest(prices)
    at = ends[:, :1] + np.linspace(0, 1, 2000) * (ends[:, 1:] - ends[:, :1])
    total = shapes.at(at) + falls.at(at, len(windows)) @ prices
    assert np.all(total.min(axis=1) >= cheapest - 1e-9)
    assert total.min(axis=1) == pytest.approx(cheapest, abs=0.3)


def test_windows_need_the_work_that_cannot_be_done_outside() -> None:
    """Of work 8 at rate 2, from 1 s on until 2 s before the end, 4 can be done before 3 s."""
    parts = Parts.of([(0, 8.0, 2.0, 1.0, 2.0), (0, 1.0, 1.0, 6.0, 0.0)])
    jobs = BoundJobs.of(
        [Line(1.0)] * 2, [0.0, 0.0], [9.0, 0.0], [3.0, 1.0], [7.0, 0.0], parts=parts
    )
    windows = Windows(np.array([0.0, 3.0]), np.array([5.0, 5.0]))
    needs = Falls.of(jobs, windows, 10.0).at(np.array([[7.0, 8.0, 9.5], [0.0, 0.0, 0.0]]), 2)
    assert needs[0, :, 1].tolist() == [4.0, 2.0, 0.0]
    assert needs[0, :, 0].tolist() == [8.0, 6.0, 3.0]
    assert not needs[1].any()


@pytest.mark.parametrize("seed", range(examples(3, slow=12)))
def test_a_job_of_one_part_has_the_bound_of_the_whole_job(seed: int) -> None:
    """A job stated as one part gives the same price bound."""
    random = Random(seed)
    count = 6
    work = [random.uniform(0.5, 9) for _ in range(count)]
    rate = [random.uniform(0.5, CAPACITY) for _ in range(count)]
    height = [w / r for w, r in zip(work, rate, strict=True)]
    costs = [any_cost(random) for _ in range(count)]
    jobs = BoundJobs.of(costs, [0.0] * count, work, rate, height)
    whole, as_parts = price_bound(jobs, CAPACITY), price_bound_of_parts(jobs, CAPACITY)
    assert as_parts >= whole - 0.01 * abs(whole)
    parts = Parts.of(
        [(j, w, r, 0.0, 0.0) for j, (w, r) in enumerate(zip(work, rate, strict=True))]
    )
    again = BoundJobs.of(costs, [0.0] * count, work, rate, height, parts=parts)
    for aggregate in ("sum", "max"):
        assert lower_bound(again, CAPACITY, aggregate) == lower_bound(jobs, CAPACITY, aggregate)


def test_slots_left_empty_by_heads_raise_the_bound() -> None:
    """Four jobs begin with 5 s on one slot of 10, then 50 on all: by 5 s only 20 are done."""
    rows = [
        row for j in range(4) for row in ((j, 5.0, 1.0, 0.0, 5.0), (j, 50.0, 10.0, 5.0, 0.0))
    ]
    lines: list[Cost] = [Line(1.0)] * 4
    total, rate, height = [55.0] * 4, [11.0] * 4, [10.0] * 4
    jobs = BoundJobs.of(lines, [0.0] * 4, total, rate, height, parts=Parts.of(rows))
    plain = BoundJobs.of(lines, [0.0] * 4, total, rate, height)
    assert lower_bound(jobs, 10, "max") == pytest.approx(25.0)
    assert lower_bound(plain, 10, "max") == pytest.approx(22.0)
    # One job after another from 5 s on is the best that can be done.
    best = 10 + 15 + 20 + 25
    assert lower_bound(plain, 10, "sum") < 0.93 * best
    assert 0.975 * best <= lower_bound(jobs, 10, "sum") <= best * (1 + 1e-9)

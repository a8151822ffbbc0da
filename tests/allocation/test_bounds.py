"""Lower bounds: never above a feasible value or an exact optimum; tight where they must be.

The exact optimum of tiny cases comes from linear programs, one for each order of completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from slotwise.allocation.bounds import (
    BoundJobs,
    area_bound_max,
    busy_time_bound,
    height_bound_max,
    height_bound_sum,
    lower_bound,
)
from slotwise.allocation.packing import pack


def bound_jobs(
    work: Sequence[float],
    most: Sequence[float],
    slope: Sequence[float] | None = None,
    arrival: Sequence[float] | None = None,
    origin: Sequence[float] | None = None,
) -> BoundJobs:
    """Jobs of one phase each; the penalty is slope (1) times the time since arrival (0)."""
    arrival = arrival or [0.0] * len(work)
    return BoundJobs(
        slope=slope or [1.0] * len(work),
        origin=origin or arrival,
        arrival=arrival,
        work=work,
        rate=most,
        height=[w / m for w, m in zip(work, most, strict=True)],
    )


def optimum(
    capacity: float,
    jobs: BoundJobs,
    aggregate: str,
) -> float:
    """The least value of all malleable schedules of jobs that are there at 0, by HiGHS.

    For each order of completion: how long each interval between completions is, and how much
    of each job is done in it.
    """
    count = len(jobs.work)
    best = float("inf")
    for order in permutations(range(count)):
        # Variables: lengths T_k, then work x_jk, then the largest penalty.
        size = count + count * count + 1

        def x(j: int, k: int) -> int:
            return count + j * count + k

        rows, limits, equal, values = [], [], [], []
        for k in range(count):
            row = [0.0] * size
            for j in range(count):
                row[x(j, k)] = 1.0
                own = [0.0] * size
                own[x(j, k)], own[k] = 1.0, -jobs.rate[j]
                rows.append(own)
                limits.append(0.0)
            row[k] = -capacity
            rows.append(row)
            limits.append(0.0)
        cost = [0.0] * size
        constant = 0.0
        for place, j in enumerate(order):
            done = [0.0] * size
            for k in range(place + 1):
                done[x(j, k)] = 1.0
            equal.append(done)
            values.append(jobs.work[j])
            if aggregate == "sum":
                for k in range(place + 1):
                    cost[k] += jobs.slope[j]
                constant -= jobs.slope[j] * jobs.origin[j]
            else:
                row = [0.0] * size
                for k in range(place + 1):
                    row[k] = jobs.slope[j]
                row[-1] = -1.0
                rows.append(row)
                limits.append(jobs.slope[j] * jobs.origin[j])
        if aggregate == "max":
            cost[-1] = 1.0
        free = [(0, None)] * (size - 1) + [(None, None)]
        found = linprog(cost, A_ub=rows, b_ub=limits, A_eq=equal, b_eq=values, bounds=free)
        assert found.status == 0
        best = min(best, found.fun + constant)
    return best


def random_jobs(random: Random, count: int, capacity: int) -> BoundJobs:
    """Jobs at 0 with weights, ties and origins of their own."""
    return bound_jobs(
        [random.choice([1.0, 4.0, random.uniform(0.1, 20)]) for _ in range(count)],
        [float(random.randint(1, capacity)) for _ in range(count)],
        [random.choice([1.0, random.uniform(0.05, 3)]) for _ in range(count)],
        origin=[random.choice([0.0, random.uniform(-3, 0)]) for _ in range(count)],
    )


@pytest.mark.parametrize("aggregate", ["sum", "max"])
@pytest.mark.parametrize("seed", range(6))
def test_no_bound_is_above_the_optimum(seed: int, aggregate: str) -> None:
    """Random jobs at 0: the bound is at most what linear programs find."""
    random = Random(seed)
    for _ in range(6):
        jobs = random_jobs(random, random.randint(2, 3), 6)
        best = optimum(6, jobs, aggregate)
        assert lower_bound(jobs, 6, aggregate) <= best + 1e-7 * abs(best)


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_penalty_is_bounded_exactly_where_all_jobs_can_use_all_slots(
    seed: int,
) -> None:
    """Without limits the room before due dates decides alone, so the bound is the optimum."""
    random = Random(100 + seed)
    jobs = random_jobs(random, 3, 1)
    jobs = bound_jobs(jobs.work, [5.0] * 3, jobs.slope, origin=jobs.origin)
    assert lower_bound(jobs, 5, "max") == pytest.approx(optimum(5, jobs, "max"), rel=1e-7)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_one_job_alone_is_bounded_exactly(aggregate: str) -> None:
    """A job of 40 on at most 8 of 10 slots takes 5 s, whenever it arrives."""
    for arrival in (0.0, 3.7, 86_000.25, 1e6):
        jobs = bound_jobs([40.0], [8.0], slope=[2.0], arrival=[arrival])
        assert lower_bound(jobs, 10, aggregate) == pytest.approx(10.0, rel=1e-5)
        assert lower_bound(jobs, 10, aggregate) <= 2.0 * ((arrival + 5.0) - arrival)


def test_jobs_that_can_use_all_slots_are_bounded_by_smiths_rule() -> None:
    """One after another by work over weight is optimal then, and the bound says so."""
    random = Random(11)
    for _ in range(50):
        count = random.randint(1, 7)
        work = [random.uniform(0.1, 20) for _ in range(count)]
        slope = [random.uniform(0.1, 3) for _ in range(count)]
        now = value = 0.0
        for j in sorted(range(count), key=lambda j: work[j] / slope[j]):
            now += work[j] / 4
            value += slope[j] * now
        jobs = bound_jobs(work, [4.0] * count, slope)
        assert lower_bound(jobs, 4, "sum") == pytest.approx(value, rel=1e-9)
        assert lower_bound(jobs, 4, "sum") <= value


def test_the_makespan_is_bounded_by_the_area_or_by_the_longest() -> None:
    """Two jobs of 40 on 10 slots, at most 8 each, need 8 s; with at most 2 they need 20."""
    for most, least_makespan in ((8.0, 8.0), (2.0, 20.0)):
        jobs = bound_jobs([40.0, 40.0], [most, most])
        assert lower_bound(jobs, 10, "max") == pytest.approx(least_makespan, rel=1e-9)


def test_one_machine_with_arrivals_is_bounded_by_mean_busy_times() -> None:
    """On one slot, a job of 10 interrupted at 2 by one of 1: busy at 6.5 and 2.5 on average.

    Served are [0, 2) and [3, 11) of the first: its moment is 2 + 56 = 58 over work 10, plus 5.
    """
    jobs = bound_jobs([10.0, 1.0], [1.0, 1.0], arrival=[0.0, 2.0])
    assert busy_time_bound(jobs, 1) == pytest.approx((5.8 + 5.0) + (0.5 + 0.5))


def test_of_no_jobs_nothing_is_asked() -> None:
    """Without jobs the bound is 0."""
    assert lower_bound(bound_jobs([], []), 5, "sum") == 0
    assert lower_bound(bound_jobs([], []), 5, "max") == 0


def test_the_parts_are_what_they_are_called() -> None:
    """Alone, the two jobs need 2 and 3 s; together their 25 on 5 slots need 5 s."""
    jobs = bound_jobs([10.0, 15.0], [5.0, 5.0])
    assert height_bound_sum(jobs) == 2 + 3
    assert height_bound_max(jobs) == 3
    assert area_bound_max(jobs, 5) == pytest.approx(5)


@given(st.data())
def test_no_bound_is_above_a_schedule(data: st.DataObject) -> None:
    """Any packing in any order costs at least the bound, minisum and minimax."""
    count = data.draw(st.integers(1, 6))
    capacity = data.draw(st.integers(1, 9))
    work = [data.draw(st.floats(0.01, 30)) for _ in range(count)]
    most = [float(data.draw(st.integers(1, capacity))) for _ in range(count)]
    slope = [data.draw(st.sampled_from([1.0, 0.2, 3.0])) for _ in range(count)]
    if data.draw(st.booleans()):
        slope = [s / w for s, w in zip(slope, work, strict=True)]  # stretch
    order = data.draw(st.permutations(range(count)))
    jobs = bound_jobs(work, most, slope)
    ends = [pieces[-1][1] for pieces in pack(capacity, work, [0.0] * count, most, order)]
    costs = [s * end for s, end in zip(slope, ends, strict=True)]
    assert lower_bound(jobs, capacity, "sum") <= sum(costs)
    assert lower_bound(jobs, capacity, "max") <= max(costs)


@given(st.data())
def test_no_bound_is_above_a_schedule_with_arrivals(data: st.DataObject) -> None:
    """Jobs served in turns on slots of their own order, from whenever they arrive.

    Each job takes, in a random order, the slots that all jobs before it leave free, second by
    second: a feasible schedule whose work is whole slot-seconds, late on the clock as well.
    """
    count = data.draw(st.integers(1, 5))
    capacity = data.draw(st.integers(1, 4))
    zero = data.draw(st.sampled_from([0, 86_400, 1_700_000_000]))
    arrival = [zero + data.draw(st.integers(0, 9)) for _ in range(count)]
    work = [data.draw(st.integers(1, 12)) for _ in range(count)]
    most = [data.draw(st.integers(1, capacity)) for _ in range(count)]
    slope = [data.draw(st.sampled_from([1.0, 0.2, 3.0])) for _ in range(count)]
    free: dict[int, int] = {}
    ends = [0.0] * count
    for j in data.draw(st.permutations(range(count))):
        second, left = arrival[j], work[j]
        while left > 0:
            used = min(most[j], free.setdefault(second, capacity), left)
            free[second] -= used
            left -= used
            second += 1
        ends[j] = second
    jobs = bound_jobs(work, most, slope, arrival=[float(a) for a in arrival])
    costs = [s * (end - at) for s, end, at in zip(slope, ends, arrival, strict=True)]
    assert lower_bound(jobs, capacity, "sum") <= sum(costs)
    assert lower_bound(jobs, capacity, "max") <= max(costs)
    whole = bound_jobs(work, most, [1.0] * count, [float(a) for a in arrival], [0.0] * count)
    assert lower_bound(whole, capacity, "max") <= max(ends)

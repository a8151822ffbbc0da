"""Lower bounds: never above a feasible value or an exact optimum, and tight where expected."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.instances import MINIMAX, MINISUM, Metric, instances
from oracles.orders import optimum
from oracles.problems import costs as any_costs
from oracles.problems import problems
from slotwise.core.objective import MET, Aggregate, Cost, Curve, Hinge, Line, Steps
from slotwise.policy.bounds import (
    BoundJobs,
    due_date_bound,
    height_bound_max,
    height_bound_sum,
    lower_bound,
)
from slotwise.policy.bounds.jobs import Parts
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import pack
from tiers import examples


def jobs_of(problem: Malleable) -> BoundJobs:
    """The jobs of a problem, all present at 0."""
    start = np.zeros(len(problem))
    return BoundJobs.of(
        problem.costs,
        start,
        problem.work,
        problem.max_share,
        problem.heights,
        problem.min_share,
    )


def bound_jobs(
    costs: Sequence[Cost],
    work: Sequence[float],
    max_share: Sequence[float],
    arrival: Sequence[float] | None = None,
) -> BoundJobs:
    """Single-phase jobs that arrive at 0 by default."""
    height = [w / m for w, m in zip(work, max_share, strict=True)]
    return BoundJobs.of(costs, arrival or [0.0] * len(work), work, max_share, height)


def responses(*weights: float) -> list[Cost]:
    """Weighted responses of jobs that arrive at 0."""
    return [Line(weight) for weight in weights]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("with_least", [False, True])
@pytest.mark.parametrize(
    "metric", [*MINISUM, *MINIMAX], ids=lambda m: f"{m.aggregate}-{m.name}"
)
def test_no_bound_is_above_the_optimum(metric: Metric, with_least: bool) -> None:
    """Random problems of each metric, solved by linear programs; maxima are met exactly."""
    for problem in instances(metric, 1, examples(1, slow=2), with_least):
        best = optimum(
            problem.capacity,
            problem.work,
            problem.min_share,
            problem.max_share,
            list(problem.costs),
            metric.aggregate,
        )
        bound = lower_bound(jobs_of(problem), problem.capacity, metric.aggregate)
        assert bound <= best + 1e-6 * max(1.0, abs(best))
        if metric.aggregate == "max":
            assert bound == pytest.approx(best, rel=1e-6, abs=1e-6)


@settings(max_examples=examples(12, slow=1000))
@given(st.data())
def test_no_bound_is_above_a_packing(data: st.DataObject) -> None:
    """Any costs, min shares, equal and tiny jobs, more jobs than slots, in any order."""
    aggregate: Aggregate = data.draw(st.sampled_from(["sum", "max"]))
    problem = data.draw(problems(aggregate, jobs_most=8))
    order = data.draw(st.permutations(range(len(problem))))
    work, min_share, max_share = (
        v.tolist() for v in (problem.work, problem.min_share, problem.max_share)
    )
    packing = pack(problem.capacity, work, min_share, max_share, order)
    value = problem.value(np.array([pieces[-1][1] for pieces in packing]))
    assert lower_bound(jobs_of(problem), problem.capacity, aggregate) <= value


@pytest.mark.parametrize("due", [1e-300, 1e-12, 1e-6, 1.0, 1e3, 1e4, 1e5])
def test_a_due_date_just_after_the_start_does_not_raise_the_bound(due: float) -> None:
    """The rounding error of works of 10^9 s exceeds the due date; all could begin at 0."""
    work, max_share = [1e9, 1e9, 1e9, 59e9], [1.0, 1.0, 1.0, 3.375]
    problem = Malleable.of(
        10, work, [0.0] * 4, max_share, [Hinge(1.0, at) for at in (0, 0, 0, due)]
    )
    value = 3e9 + 59e9 / 3.375 - due
    assert (1 - 1e-9) * value <= lower_bound(jobs_of(problem), 10, "sum") <= value


@settings(max_examples=examples(12, slow=1000))
@given(st.data())
def test_no_bound_is_above_a_packing_of_huge_or_tiny_numbers(data: st.DataObject) -> None:
    """From microseconds to millennia, and weights of the same range."""
    aggregate: Aggregate = data.draw(st.sampled_from(["sum", "max"]))
    problem = data.draw(problems(aggregate, kinds="line hinge"))
    time = data.draw(st.sampled_from([1e-9, 1e9]))
    weight = data.draw(st.sampled_from([1e-9, 1e9]))
    costs: list[Cost] = []
    for cost in problem.costs:
        match cost:
            case Line(slope, origin):
                costs.append(Line(slope * weight, origin * time))
            case Hinge(slope, due):
                costs.append(Hinge(slope * weight, due * time))
    scaled = Malleable.of(
        problem.capacity,
        problem.work * time,
        problem.min_share,
        problem.max_share,
        costs,
        aggregate,
    )
    order = data.draw(st.permutations(range(len(problem))))
    work, min_share, max_share = (
        v.tolist() for v in (scaled.work, scaled.min_share, scaled.max_share)
    )
    packing = pack(scaled.capacity, work, min_share, max_share, order)
    value = scaled.value(np.array([pieces[-1][1] for pieces in packing]))
    assert lower_bound(jobs_of(scaled), scaled.capacity, aggregate) <= value


@settings(max_examples=examples(12, slow=1000))
@given(st.data())
def test_no_bound_is_above_a_schedule_with_arrivals(data: st.DataObject) -> None:
    """Jobs served in a random order of priority from their arrivals on.

    Each job takes, in a random order, the slots that all jobs before it leave free, second by
    second: a feasible schedule whose work is whole slot-seconds, late on the clock as well.
    """
    count = data.draw(st.integers(1, 5))
    capacity = data.draw(st.integers(1, 4))
    zero = data.draw(st.sampled_from([0, 86_400, 1_700_000_000]))
    arrival = [zero + data.draw(st.integers(0, 9)) for _ in range(count)]
    work = [data.draw(st.integers(0, 12)) for _ in range(count)]
    max_share = [data.draw(st.integers(1, capacity)) for _ in range(count)]
    free: dict[int, int] = {}
    ends = [0.0] * count
    for j in data.draw(st.permutations(range(count))):
        second, left = arrival[j], work[j]
        while left > 0:
            used = min(max_share[j], free.setdefault(second, capacity), left)
            free[second] -= used
            left -= used
            second += 1
        ends[j] = second
    costs: list[Cost] = [
        Line(data.draw(st.sampled_from([1.0, 0.2, 3.0])), float(at))
        if data.draw(st.booleans())
        else data.draw(any_costs("line hinge steps")).since(-zero)
        for at in arrival
    ]
    jobs = bound_jobs(costs, work, max_share, arrival=[float(at) for at in arrival])
    values = [cost.at(end) for cost, end in zip(costs, ends, strict=True)]
    assert lower_bound(jobs, capacity, "sum") <= sum(values)
    assert lower_bound(jobs, capacity, "max") <= max(values)


@pytest.mark.parametrize("aggregate", ["sum", "max"])
def test_one_job_alone_is_bounded_exactly(aggregate: Aggregate) -> None:
    """A job of 40 on at most 8 of 10 slots takes 5 s, whenever it arrives."""
    for arrival in (0.0, 3.7, 86_000.25, 1e6):
        jobs = bound_jobs([Line(2.0, arrival)], [40.0], [8.0], arrival=[arrival])
        assert lower_bound(jobs, 10, aggregate) == pytest.approx(10.0, rel=1e-5)
        assert lower_bound(jobs, 10, aggregate) <= 2.0 * ((arrival + 5.0) - arrival)


def test_jobs_that_can_use_all_slots_are_bounded_by_smiths_rule() -> None:
    """The order by work over weight is optimal then, and the bound equals it."""
    random = Random(11)
    for _ in range(examples(4, slow=50)):
        count = random.randint(1, 7)
        work = [random.uniform(0.1, 20) for _ in range(count)]
        slope = [random.uniform(0.1, 3) for _ in range(count)]
        now = value = 0.0
        for j in sorted(range(count), key=lambda j: work[j] / slope[j]):
            now += work[j] / 4
            value += slope[j] * now
        jobs = bound_jobs(responses(*slope), work, [4.0] * count)
        assert lower_bound(jobs, 4, "sum") == pytest.approx(value, rel=1e-9)
        assert lower_bound(jobs, 4, "sum") <= value


def test_the_makespan_is_bounded_by_the_area_or_by_the_longest() -> None:
    """Two jobs of 40 on 10 slots, at most 8 each, need 8 s; with at most 2 they need 20."""
    for max_share, least_makespan in ((8.0, 8.0), (2.0, 20.0)):
        jobs = bound_jobs(responses(1, 1), [40.0, 40.0], [max_share, max_share])
        assert lower_bound(jobs, 10, "max") == pytest.approx(least_makespan, rel=1e-9)


def test_the_number_of_tardy_jobs_is_bounded_by_a_whole_number() -> None:
    """Five jobs of 10 on 10 slots take 1 s each; by 2.5 s no more than two can be done."""
    jobs = bound_jobs([Steps(((2.5, 1.0),))] * 5, [10.0] * 5, [10.0] * 5)
    assert lower_bound(jobs, 10, "sum") == 3.0
    assert lower_bound(jobs, 10, "max") == 1.0


def test_a_deadline_missed_by_rounding_is_met_in_the_bound() -> None:
    """The job alone exceeds its deadline by half of the tolerance, or by three times it."""
    for part, tardy in ((0.5, 0.0), (3.0, 1.0)):
        jobs = bound_jobs([Steps(((1.0, 1.0),))], [10.0 * (1 + part * MET)], [10.0])
        assert lower_bound(jobs, 10, "sum") == tardy
        assert lower_bound(jobs, 10, "max") == tardy


def test_a_user_defined_curve_is_bounded_closely() -> None:
    """The square of the completion time: the shorter of two jobs goes first, 2 and 5 s."""
    curve = Curve(lambda completion: completion**2)
    jobs = bound_jobs([curve, curve], [20.0, 30.0], [10.0, 10.0])
    assert 0.9 * (2**2 + 5**2) <= lower_bound(jobs, 10, "sum") <= 2**2 + 5**2
    assert lower_bound(jobs, 10, "max") == pytest.approx(25.0)


def test_a_guarantee_of_one_job_raises_the_bound_of_the_others() -> None:
    """4 of 10 slots are guaranteed to a long job of no cost: work 60 takes 10 s, not 6."""
    for min_share, tardiness in ((0.0, 0.0), (4.0, 4.0)):
        problem = Malleable.of(
            10.0,
            [60.0, 400.0],
            [0.0, min_share],
            [10.0, 10.0],
            [Hinge(1.0, 6.0), Hinge(1e-9, 99.0)],
        )
        bound = lower_bound(jobs_of(problem), 10.0, "sum")
        assert bound == pytest.approx(tardiness, rel=1e-6, abs=1e-6)


def test_the_search_for_a_bound_ends_at_the_known_value() -> None:
    """The height bound alone proves it; the result is no worse than that bound."""
    jobs = bound_jobs([Hinge(1.0, 1.0), Hinge(1.0, 1.0)], [5.0, 5.0], [1.0, 1.0])
    assert lower_bound(jobs, 10, "sum", value=8.0) == pytest.approx(8.0)


def test_the_bound_of_no_jobs_is_zero() -> None:
    """Without jobs the bound is 0; without work no job lasts."""
    assert lower_bound(bound_jobs([], [], []), 5, "sum") == 0
    assert lower_bound(bound_jobs([], [], []), 5, "max") == 0
    idle = bound_jobs([Hinge(1.0, 0.0)] * 2, [0.0, 0.0], [1.0, 1.0])
    assert lower_bound(idle, 5, "sum") == 0
    assert lower_bound(idle, 5, "max") == 0


def test_the_component_bounds_have_their_stated_values() -> None:
    """Alone, the two jobs need 2 and 3 s; together their 25 on 5 slots need 5 s."""
    jobs = bound_jobs(responses(1, 1), [10.0, 15.0], [5.0, 5.0])
    assert height_bound_sum(jobs) == 2 + 3
    assert height_bound_max(jobs) == 3
    assert due_date_bound(jobs, 5) == pytest.approx(5)


@given(
    st.floats(1e3, 1e9),
    st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3),
)
@settings(max_examples=examples(50, slow=2_000))
def test_a_job_that_comes_long_after_a_short_one(late: float, work: list[float]) -> None:
    """Instants are rounded by more than the work of the first job: it is done long before."""
    first, tail, second = work
    jobs = BoundJobs.of(
        costs=[Line(1.0), Line(1.0)],
        arrival=[0.0, late],
        work=[first, second],
        rate=[1.0, 1.0],
        height=[first + tail, second],
        parts=Parts.of([(0, first, 1.0, 0.0, tail), (1, second, 1.0, 0.0, 0.0)]),
    )
    assert lower_bound(jobs, 2.0, "max") <= late + second
    total = first + tail + late + second
    assert lower_bound(jobs, 2.0, "sum") <= total
    assert lower_bound(jobs, 2.0, "sum", value=total) <= total

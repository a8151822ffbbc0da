"""The price bound: needs, cheapest completions, and prices that are nearly the best."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from oracles.instances import MINISUM, Metric, instances
from oracles.orders import optimum
from slotwise.core.costs import Costs
from slotwise.core.objective import Cost, Curve, Hinge, Line, Steps
from slotwise.policy.bounds import BoundJobs, price_bound
from slotwise.policy.bounds.interior import best_prices
from slotwise.policy.bounds.prices import Choices, _settled, _split, bound_by_cases, choices_of
from slotwise.policy.bounds.windows import MAX_WINDOWS, windows_of
from tiers import examples

CAPACITY = 6.0


def random_jobs(random: Random, count: int) -> BoundJobs:
    """Jobs of all kinds of costs, with arrivals or with min shares."""
    arrival = [random.choice([0.0, random.uniform(0, 5)]) for _ in range(count)]
    rate = [random.uniform(0.5, CAPACITY) for _ in range(count)]
    work = [random.uniform(0.2, 12) for _ in range(count)]
    height = [w / r * random.choice([1.0, 1.3]) for w, r in zip(work, rate, strict=True)]
    min_share = [r * random.choice([0.0, 0.3]) for r in rate]
    return BoundJobs.of(
        [any_cost(random) for _ in rate], arrival, work, rate, height, min_share
    )


def any_cost(random: Random) -> Cost:
    """A line, a hinge, some steps, or a curve."""
    due, weight = random.uniform(0, 15), random.uniform(0.1, 2)
    choices: Sequence[Cost] = (
        Line(weight, due),
        Hinge(weight, due),
        Steps(((due, weight), (due + 2, 2 * weight))),
        Curve(lambda instant: weight * instant**1.5),
    )
    return random.choice(choices)


@pytest.mark.parametrize("seed", range(examples(5, slow=20)))
def test_a_job_has_its_cheapest_completion_among_its_choices(seed: int) -> None:
    """At random prices no completion is cheaper than the cheapest choice."""
    random = Random(seed)
    jobs = random_jobs(random, 5)
    choices = choices_of(jobs, CAPACITY)
    assert choices is not None
    kinks = np.array([kink for cost in jobs.costs for kink in cost.kinks])
    windows = windows_of(jobs, CAPACITY, kinks, MAX_WINDOWS)
    prices = np.array([random.choice([0.0, random.random()]) for _ in choices.room])
    cheapest = (choices.cost + choices.needs @ prices).min(axis=1)
    for _ in range(200):
        until = np.minimum(jobs.latest, jobs.soonest + 20)
        at = jobs.soonest + random.random() * (until - jobs.soonest)
        needs = windows.needed(jobs, at[:, None])[:, 0, :] / CAPACITY
        assert np.all(jobs.costs.at(at) + needs @ prices >= cheapest - 1e-9)


@pytest.mark.parametrize("seed", range(examples(3, slow=10)))
def test_a_schedule_does_what_windows_need(seed: int) -> None:
    """One job at random rates within its shares does the needed work in each window."""
    random = Random(seed)
    jobs = random_jobs(random, 1)
    rate, min_share, left = float(jobs.rate[0]), float(jobs.min_share[0]), float(jobs.work[0])
    now, spans = float(jobs.arrival[0]), []
    while left > 1e-12:
        held = random.choice([rate, min_share, random.uniform(min_share, rate)]) or 0.2 * rate
        span = min(random.uniform(0.05, 1), left / held)
        spans.append((now, now + span, held))
        now, left = now + span, left - span * held
    kinks = np.array([now])
    windows = windows_of(jobs, CAPACITY, kinks, 16)
    needed = windows.needed(jobs, np.array([[now]]))[0, 0]
    for start, end, amount in zip(windows.start, windows.end, needed, strict=True):
        done = sum(max(0.0, min(e, end) - max(b, start)) * held for b, e, held in spans)
        assert amount <= done + 1e-9


@pytest.mark.parametrize("with_least", [False, True])
@pytest.mark.parametrize("metric", MINISUM, ids=lambda metric: metric.name)
def test_prices_are_nearly_the_best(metric: Metric, with_least: bool) -> None:
    """Their bound equals that of a linear program up to one part in ten thousand."""
    for problem in instances(metric, 3, examples(1, slow=2), with_least):
        jobs = BoundJobs.of(
            problem.costs,
            np.zeros(len(problem)),
            problem.work,
            problem.max_share,
            problem.heights,
            problem.min_share,
        )
        choices = choices_of(jobs, problem.capacity)
        assert choices is not None
        best = by_linear_program(choices)
        bound = choices.bound(choices.mixture().prices)
        assert bound <= best + 1e-7 * abs(best)
        assert bound >= best - 1e-4 * max(abs(best), float(np.ptp(choices.cost)))


def by_linear_program(choices: Choices) -> float:
    """The minimum cost of mixed choices within the room, by HiGHS."""
    count, options, windows = choices.needs.shape
    found = linprog(
        choices.cost.ravel(),
        A_ub=choices.needs.reshape(count * options, windows).T,
        b_ub=choices.room,
        A_eq=np.kron(np.eye(count), np.ones(options)),
        b_eq=np.ones(count),
    )
    assert found.status == 0
    return float(found.fun)


def test_prices_of_a_choice_without_needs_are_zero() -> None:
    """With room for all, prices prove no more than the cheapest options."""
    costs = np.array([[1.0, 2.0], [3.0, 5.0]])
    needs = np.array([[[0.5], [0.0]], [[0.5], [0.0]]])
    prices = best_prices(costs, needs, np.array([2.0]), 1.0, 20, 1e-6).prices
    proven = (costs + needs @ prices).min(axis=1).sum() - 2.0 * prices[0]
    assert proven == pytest.approx(4.0, abs=1e-4)


def test_two_choices_share_half_of_their_needs() -> None:
    """One of the two pays: the one for which it is cheaper."""
    costs = np.array([[0.0, 1.0], [0.0, 3.0]])
    needs = np.array([[[1.0], [0.0]], [[1.0], [0.0]]])
    prices = best_prices(costs, needs, np.array([1.0]), 3.0, 20, 1e-6).prices
    proven = (costs + needs @ prices).min(axis=1).sum() - prices[0]
    assert proven == pytest.approx(1.0, abs=1e-4)


def test_shapes_never_exceed_the_costs() -> None:
    """Lines, hinges and steps are exact, and the staircase of a curve is at most the curve."""
    random = Random(2)
    costs = [any_cost(random) for _ in range(40)]
    soonest = np.array([random.uniform(0, 4) for _ in costs])
    shapes = Costs(costs).below(soonest, soonest + 30)
    at = soonest[:, None] + np.array(
        [[random.uniform(0, 40) for _ in range(50)] for _ in costs]
    )
    for cost, instants, values in zip(costs, at, shapes.at(at), strict=True):
        true = [cost.at(instant) for instant in instants]
        if isinstance(cost, Curve):
            assert np.all(values <= np.array(true) + 1e-12)
        else:
            assert values == pytest.approx(true)


def test_very_many_jobs_are_not_priced() -> None:
    """Above some number of jobs the bound is skipped and takes no time."""
    count = 100_000
    ones = np.ones(count)
    jobs = BoundJobs.of([Line(1.0)] * count, 0 * ones, ones, ones, ones)
    assert price_bound(jobs, 10.0) == -np.inf


@pytest.mark.parametrize("metric", MINISUM, ids=lambda metric: metric.name)
def test_cases_raise_a_bound_and_stay_below_the_optimum(metric: Metric) -> None:
    """More cases never lower the bound; with a known value they end when it is reached."""
    for problem in instances(metric, 5, 1, True):
        jobs = BoundJobs.of(
            problem.costs,
            np.zeros(len(problem)),
            problem.work,
            problem.max_share,
            problem.heights,
            problem.min_share,
        )
        choices = choices_of(jobs, problem.capacity)
        assert choices is not None
        best = optimum(
            problem.capacity,
            problem.work,
            problem.min_share,
            problem.max_share,
            list(problem.costs),
            "sum",
        )
        bounds = [bound_by_cases(choices, trials, np.inf) for trials in (1, 5, 17)]
        assert bounds == sorted(bounds)
        assert bounds[-1] <= best + 1e-6 * max(1.0, abs(best))
        assert bound_by_cases(choices, 17, bounds[0]) == bounds[0]


def test_each_case_leaves_out_completions() -> None:
    """The second job must hold nine of ten slots until 10 s, or it costs much."""
    jobs = BoundJobs.of(
        [Line(1.0), Steps(((10.0, 23.0),))], np.zeros(2), [10.0, 90.0], [10.0, 9.0], [1.0, 10.0]
    )
    choices = choices_of(jobs, 10.0)
    assert choices is not None
    first, choices, mixture = _settled(choices)
    while split := _split(choices, mixture):
        halves = (choices.until(*split), choices.after(*split))
        for half in halves:
            fewer = (half.completion != choices.completion).any()
            assert fewer or (half.cost > choices.cost).any()
        bound, choices, mixture = min(map(_settled, halves), key=lambda case: case[0])
    assert bound > first + 4.0


def test_a_case_keeps_the_completions_on_its_side_of_an_instant() -> None:
    """Up to the step at 5 the job costs 0; at any instant after it, it costs 1."""
    jobs = BoundJobs.of(
        [Steps(((5.0, 1.0),))] * 2, np.zeros(2), [8.0] * 2, [4.0] * 2, [2.0] * 2
    )
    choices = choices_of(jobs, 4.0)
    assert choices is not None
    before, behind = choices.until(0, 5.0), choices.after(0, 5.0)
    assert before.completion[0].max() == 5.0 == behind.completion[0].min()
    assert before.cost[0].max() == 0.0
    assert behind.cost[0].min() == 1.0
    assert behind.cost[1].min() == 0.0


def test_late_windows_need_nothing_when_arrivals_are_far_apart() -> None:
    """A job that can complete before the next one arrives needs nothing in later windows."""
    costs = [Line(1.0, at) for at in (0.0, 100.0, 200.0)]
    jobs = BoundJobs.of(costs, [0.0, 100.0, 200.0], [8.0, 0.0, 0.0], [4.0] * 3, [2.0, 0.0, 0.0])
    assert price_bound(jobs, 4.0) == pytest.approx(2.0)

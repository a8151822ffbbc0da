"""The search for the best priority order: equal to trying all orders."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from oracles.all_orders import best_by_trying, random_problem, value_of
from slotwise.core.objective import Curve
from slotwise.policy.malleable import Malleable
from slotwise.policy.packing import completions
from slotwise.policy.search.exhaustive import empty_prefix, jobs_of, search
from tiers import examples


def test_the_search_needs_no_good_order_to_begin_with() -> None:
    """From any order, and with an initial value of inf, it finds the same value."""
    random = Random(5)
    for _ in range(30):
        problem = random_problem(random, 5)
        found = value_of(problem, search(problem, [4, 3, 2, 1, 0], float("inf")))
        assert found == pytest.approx(best_by_trying(problem)[1], rel=1e-9, abs=1e-12)


def test_a_placed_job_keeps_its_completion() -> None:
    """Prefix by prefix, each job's end is that of the packing of any whole order."""
    random = Random(6)
    for _ in range(examples(100, slow=300)):
        problem = random_problem(random, random.randint(1, 9))
        order = list(range(len(problem)))
        random.shuffle(order)
        p, jobs, prefix = problem, jobs_of(problem), empty_prefix(problem)
        wanted = completions(p.capacity, p.work, p.min_share, p.max_share, order)
        for j in order:
            placement = prefix.earliest(jobs[j])
            prefix = prefix.after(jobs[j], placement)
            assert placement.completion == pytest.approx(wanted[j], rel=1e-9)


def test_a_placed_job_ends_as_early_as_possible() -> None:
    """Any due date before its end, with those before it, needs more than all slots.

    This does not hold for a job that its min share completes while others hold the slack: it
    could complete earlier and leave its min share to them afterwards.
    """

    def must_have(job: int, due: float, at: float) -> float:
        work, min_share, max_share = (
            problem.work[job],
            problem.min_share[job],
            problem.max_share[job],
        )
        held = min(work, min_share * at)
        return float(work if due <= at else max(held, work - max_share * (due - at)))

    random = Random(7)
    for _ in range(examples(40, slow=100)):
        problem = random_problem(random, random.randint(1, 7))
        order = list(range(len(problem)))
        random.shuffle(order)
        p, prefix, jobs = problem, empty_prefix(problem), jobs_of(problem)
        due = dict(enumerate(p.ends.tolist()))  # A job that is not placed holds its min share.
        for j in order:
            if jobs[j].end <= prefix.times[0]:
                continue
            placement = prefix.earliest(jobs[j])
            prefix = prefix.after(jobs[j], placement)
            for factor, fits in ((1 + 1e-7, True), (1 - 1e-6, False)):
                due[j] = placement.completion * factor
                instants = [at for at in due.values() if at < np.inf]
                need = [sum(must_have(k, due[k], at) for k in due) for at in instants]
                is_within = all(
                    n <= p.capacity * at * (1 + 1e-9)
                    for n, at in zip(need, instants, strict=True)
                )
                is_long_enough = due[j] >= p.heights[j] * (1 - 1e-9)
                assert (is_within and is_long_enough) == fits
            due[j] = placement.completion


def test_user_defined_costs_are_searched() -> None:
    """Only the values of a curve are used, in Python."""
    curves = [Curve(lambda t, w=w: w * t * t) for w in (1.0, 3.0, 2.0, 5.0)]
    problem = Malleable.of(4, [6.0, 3.0, 8.0, 2.0], [0.5] * 4, [3.0, 2.0, 4.0, 1.0], curves)
    found = value_of(problem, search(problem, [0, 1, 2, 3], float("inf")))
    assert found == pytest.approx(best_by_trying(problem)[1])

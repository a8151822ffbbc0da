"""The search that improves DMRS: never worse, better with more steps."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import related_machines
from slotwise.policy.compiled import has_numba
from slotwise.policy.dmrs.algorithm import dmrs, linear_program
from slotwise.policy.dmrs.list_schedule import TaskLister
from slotwise.policy.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.policy.dmrs.search import best_found
from slotwise.policy.search.budget import Budget
from tiers import examples


@settings(max_examples=examples(15, slow=1000))
@given(st.integers(0, 2**32), st.integers(0, 120), st.booleans())
def test_it_is_feasible_and_never_worse(seed: int, steps: int, dags: bool) -> None:
    """With any budget; it takes at most the budgeted steps."""
    random = Random(seed)
    problem = related_machines.drawn(
        random, random.randint(1, 9), random.randint(1, 6), 6, random.choice([0.0, 20.0]), dags
    )
    budget = Budget(steps)
    found = best_found(problem, budget)
    found.check(problem)
    assert problem.value(found.completion) <= problem.value(dmrs(problem).completion)
    assert budget.spent <= steps


def test_a_clock_ends_the_search() -> None:
    """It calls `is_over` before each step and stops when that is True."""
    asked = 0

    def rings() -> bool:
        nonlocal asked
        asked += 1
        return asked > 30

    problem = related_machines.drawn(Random(1), 12, 4)
    best_found(problem, Budget(is_over=rings)).check(problem)
    assert asked < 40


def test_the_same_steps_give_the_same_schedule() -> None:
    """It uses no randomness and no clock."""
    problem = related_machines.drawn(Random(3), 10, 5, released=30.0)
    one, other = best_found(problem, Budget(80)), best_found(problem, Budget(80))
    assert one.runs == other.runs


def test_search_gains_on_average() -> None:
    """The mean falls with the number of steps: none, 100 and 600."""
    means = []
    for steps in (0, 100, 600):
        ratios = []
        for seed in range(examples(6, slow=30)):
            problem = related_machines.drawn(Random(seed), 8, 4, 4, released=20.0)
            value = problem.value(best_found(problem, Budget(steps)).completion)
            ratios.append(value / linear_program(problem).value)
        means.append(float(np.mean(ratios)))
    assert means[0] > means[1] > means[2]


def test_a_stage_may_leave_slow_machines() -> None:
    """By hand: tasks of 12 and 8 on speeds 2 and 1, then one of 3 of another job."""
    problem = RelatedMachines(
        np.array([2.0, 1.0]),
        [NumericJob((Stage(np.array([12.0, 8.0])),)), NumericJob((Stage(np.array([3.0])),))],
    )
    lister = TaskLister(problem)
    assert lister.completions([0, 1]).tolist() == [8.0, 7.5]
    assert lister.completions([0, 1], slowest=[2.0, 0.0]).tolist() == [10.0, 3.0]
    best = best_found(problem)
    assert problem.value(best.completion) == pytest.approx(related_machines.optimum(problem))


def test_min_speeds_are_the_same_in_machine_code() -> None:
    """As for orders and gaps."""
    if not has_numba():
        pytest.skip("numba is not installed")
    for seed in range(10):
        problem = related_machines.drawn(Random(seed), 8, 5, dags=True)
        order = range(len(problem))
        slowest = [
            Random(seed).choice([0.0, problem.speed.max()]) for _ in problem.columns.tasks
        ]
        plain, fast = TaskLister(problem), TaskLister(problem, float("inf"))
        runs = plain.runs(order, True, slowest)
        runs.check(problem)
        same = runs.completion == fast.completions(order, True, slowest)
        assert same.all()
        first = problem.columns.graphs.first
        for run in runs.runs:
            assert problem.speed[run.machine] >= slowest[first[run.job] + run.stage]

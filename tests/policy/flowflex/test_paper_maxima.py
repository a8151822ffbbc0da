"""Stage 2 for maxima: the level that bisection reaches, and the guarantee of Theorem 4."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dag_optimum import optimum
from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import flow_problems, problem_of
from slotwise.core.costs import Floats
from slotwise.core.objective import Hinge, Line, Objective, Steps
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import (
    MAX_LEVELS,
    PRECISION,
    by_deadline,
    deadlines_at,
    least_level,
)
from slotwise.policy.flowflex.solve import solve
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)
MAXIMA = [
    Objective(name, "max")
    for name in ("makespan", "response", "stretch", "lateness", "tardiness", "tardy", "sla")
]
SLACK = 1e-6
"""The tolerance of the bisection and of the oracle."""


def lines(*slopes: float) -> FlowProblem:
    """Flows of 4 s on all of 2 slots."""
    return FlowProblem.of(
        [2], [[FlowNode(8, 2)] for _ in slopes], [Line(s) for s in slopes], "max"
    )


def test_deadlines_at_a_level_are_not_before_the_time_alone() -> None:
    """A line of slope 2 costs 10 at 5 s; a step of 20 never matters there, one of 4 does."""
    costs = [Line(2.0), Steps(((6.0, 20.0),)), Steps(((1.0, 4.0), (9.0, 12.0))), Hinge(1, 1)]
    problem = FlowProblem.of([2], [[FlowNode(8, 2)]] * 4, costs, "max")
    assert deadlines_at(problem, 10.0).tolist() == [5.0, 6.0, 9.0, 11.0]
    assert deadlines_at(problem, 3.0).tolist() == [4.0, 6.0, 4.0, 4.0]
    assert deadlines_at(problem, 20.0).tolist() == [10.0, np.inf, np.inf, 21.0]


def test_the_least_level_is_found_between_two_that_are_close() -> None:
    """If all levels from a threshold on are feasible, the level and deadlines are there."""
    problem = lines(1.0, 1.0)
    tried = []

    def is_reached(due: Floats) -> bool:
        tried.append(float(due[0]))
        return due[0] >= 6.25

    level, due = least_level(problem, 100.0, is_reached)
    assert 6.25 <= level <= 6.25 + 2 * PRECISION * 100
    assert due.tolist() == [level, level]
    assert len(tried) <= MAX_LEVELS + 1


def test_bisection_tries_the_lower_bound_first() -> None:
    """If that is feasible, nothing else is tried."""
    tried = []
    level, due = least_level(lines(1.0, 3.0), 50.0, lambda due: tried.append(due) or True)
    assert level == 12.0
    assert due.tolist() == [12.0, 4.0]
    assert len(tried) == 1


@settings(max_examples=EXAMPLES // 2)
@given(flow_problems(aggregate="max"), st.floats(0, 2))
def test_costs_at_the_deadlines_of_a_level_are_at_most_the_level(
    problem: FlowProblem, part: float
) -> None:
    """Or what a flow costs alone, if that is more."""
    floor = problem.costs.at(problem.alone)
    level = float(floor.min()) + part * (abs(problem.value(4 * problem.alone)) + 1)
    due = deadlines_at(problem, level)
    assert (due >= problem.alone).all()
    cost = problem.costs.at(np.minimum(due, 1e9))
    assert (cost <= np.maximum(level, floor) + NEAR * (1 + abs(cost))).all()


@settings(max_examples=EXAMPLES // 4)
@given(flows(jobs_most=3, phases_most=3, total_most=5, widest=False), st.sampled_from(MAXIMA))
def test_theorem_4(drawn: Drawn, objective: Objective) -> None:
    """On slots twice as fast the paper's method costs no more than the optimum.

    Its level is at most the optimum, and every flow is complete within twice its deadline.
    """
    problem = problem_of(drawn, objective)
    best = optimum(drawn.jobs, drawn.cluster, objective)
    chained = chains_of(problem).problem
    lister = PhaseLister(chained)

    def is_reached(due: Floats) -> bool:
        ends = lister.completions(by_deadline(chained, due))
        return bool((ends <= 2 * due * (1 + NEAR)).all())

    high = problem.value(lister.completions(by_deadline(chained, problem.alone)))
    level, due = least_level(problem, high, is_reached)
    slack = SLACK * (1 + abs(best) + abs(high - best))
    assert level <= best + slack
    completion = lister.completions(by_deadline(chained, due))
    assert (completion <= 2 * due * (1 + NEAR)).all()
    # So does the solution that is handed out, which is the best of what was tried.
    found = solve(problem, method="paper")
    assert found.value <= problem.value(np.maximum(2 * due, completion)) + slack
    assert best - slack <= found.value


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.sampled_from(["makespan", "response", "stretch", "slowdown"]))
def test_the_largest_weighted_completion_is_within_two(drawn: Drawn, penalty: str) -> None:
    """Corollary 2, against bounds that hold for any schedule.

    No flow costs less than alone, and the flows that must be done by the deadlines of a level
    must fit before the last of these.
    """
    problem = problem_of(drawn, Objective(penalty, "max"))
    low, high = problem.value(problem.alone), solve(problem, method="paper").value
    found = high
    for _ in range(60):
        middle = (low + high) / 2
        due = deadlines_at(problem, middle)
        order = np.argsort(due, kind="stable")
        fits = problem.volume[order].cumsum() <= drawn.slots * due[order] * (1 + NEAR)
        low, high = (low, middle) if fits.all() else (middle, high)
    assert found <= 2 * low * (1 + SLACK)


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems(aggregate="max", costs_of="line hinge steps"))
def test_with_kinds_of_slots_slots_are_faster_by_one_for_each(problem: FlowProblem) -> None:
    """With k kinds of slots, feasible deadlines are met on slots 1 + k times as fast.

    A level that some list schedule reaches is feasible.
    """
    faster = 1 + len(problem.capacity)
    for numbers in (range(len(problem.work)), reversed(range(len(problem.work)))):
        deadline = PhaseLister(problem).completions(list(numbers))
        completion = PhaseLister(problem).completions(by_deadline(problem, deadline))
        assert (completion <= faster * deadline * (1 + NEAR)).all()


def test_costs_below_zero_are_bisected_too() -> None:
    """All flows are early; flows with later due dates complete later."""
    costs = [Line(1.0, 20.0), Line(1.0, 30.0)]
    problem = FlowProblem.of([2], [[FlowNode(8, 2)], [FlowNode(8, 2)]], costs, "max")
    found = solve(problem, method="paper")
    assert found.value == pytest.approx(-16.0)
    assert found.completion.tolist() == pytest.approx([4.0, 8.0])

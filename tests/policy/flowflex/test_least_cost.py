"""Stage 2 for sums: the bound of the minimum cost flow, and schedules by its deadlines."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array

from oracles.dags import Flows as Drawn
from oracles.dags import flows, paper_flows
from oracles.flow_problems import flow_problems, problem_of, rankings
from oracles.network_rounding import rounding
from slotwise.core import errors
from slotwise.core.errors import MissingExtraError
from slotwise.core.objective import Line, Objective, Steps
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import (
    MAX_INTERVALS,
    LeastCost,
    bounding_completions,
    by_deadline,
    least_cost,
)
from slotwise.policy.scheduler import make_allocator
from tiers import examples

Floats = NDArray[np.float64]

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)
SUMS = [Objective(name) for name in ("response", "stretch", "tardy", "tardiness", "sla")]
"""Metrics that are never negative, as the theorems require."""
FRACTIONS = (0.5, 0.25, 0.75, 0.9)


def width(network: LeastCost) -> float:
    """The maximum relative length of an interval, except for the first."""
    return float(np.max(network.ends[1:] / network.ends[:-1], initial=1.0))


def in_units(problem: FlowProblem, unit: float, is_above: bool, slower: float = 1.0) -> float:
    """The least cost of the network of Fig. 6 with units of time, as a linear program.

    Above: what is counted in a unit costs what its flow would if it were complete at its end,
    and units before Q_j are closed: no less than with shorter units. Below: at its beginning,
    and only units that end before Q_j are closed. Costs are those at 1 / `slower` of the time,
    but never less than those at Q_j.
    """
    slots = float(problem.capacity.sum())
    last = max(problem.volume.sum() / slots, problem.alone.max())
    ends = unit * np.arange(1, ceil(last / unit) + 2)
    at = ends if is_above else np.nextafter(ends - unit, np.inf)
    cost = np.array(
        [problem.costs.at(np.maximum(instant / slower, problem.alone)) for instant in at]
    ).T
    opens = problem.alone * ((1 - NEAR) if is_above else 1.0)
    count, units = cost.shape
    price = (cost / problem.volume[:, None]).ravel()
    column = np.arange(count * units)
    flow, place = np.divmod(column, units)
    # What is counted in units from some unit on may be done in any before; so all that is
    # counted up to a unit is done by then.
    rows = [(k, c) for c, k0 in enumerate(place) for k in range(k0, units)]
    row, col = np.array(rows).T
    by_then = coo_array((np.ones(len(row)), (row, col)), (units, count * units))
    own = coo_array((np.ones(len(column)), (flow, column)), (count, count * units))
    found = linprog(
        price,
        A_ub=by_then,
        b_ub=slots * ends,
        A_eq=own,
        b_eq=problem.volume,
        bounds=np.column_stack(
            (np.zeros(len(column)), np.where(ends[place] >= opens[flow], np.inf, 0.0))
        ),
    )
    assert found.status == 0, found.message
    return float(found.fun)


@settings(max_examples=EXAMPLES // 2)
@given(flow_problems(), st.data())
def test_no_schedule_costs_less_than_the_network(
    problem: FlowProblem, data: st.DataObject
) -> None:
    """Costs of any shape, several kinds of slots, any list."""
    network = least_cost(problem)
    value = problem.value(PhaseLister(problem).completions(data.draw(rankings(problem))))
    assert network.bound <= value + NEAR * abs(value)


@settings(max_examples=EXAMPLES // 6)
@given(flow_problems(costs_of="line hinge steps"))
def test_the_bound_is_that_of_the_paper_within_the_width_of_intervals(
    problem: FlowProblem,
) -> None:
    """Units of time above and below, by an independent linear program."""
    network = least_cost(problem)
    last = max(problem.volume.sum() / problem.capacity.sum(), problem.alone.max())
    unit = last / 40
    slack = rounding(problem, network) + 1e-6 * (1e-3 + abs(network.bound))
    assert network.bound <= in_units(problem, unit, is_above=True) + slack
    assert network.bound >= in_units(problem, unit, False, slower=width(network)) - slack


@st.composite
def whole_steps(draw: st.DrawFn) -> FlowProblem:
    """Critical paths, areas and steps are at whole seconds."""
    slots = draw(st.sampled_from([1, 3, 8]))
    chains = [
        [
            FlowNode(slots * draw(st.integers(1, 6)), slots, (number - 1,) if number else ())
            for number in range(draw(st.integers(1, 3)))
        ]
        for _ in range(draw(st.integers(1, 6)))
    ]
    instants = st.lists(st.integers(0, 50), min_size=1, max_size=3, unique=True).map(sorted)
    costs = [
        Steps(tuple((float(at), 1.0 + 3.0 * k) for k, at in enumerate(draw(instants))))
        for _ in chains
    ]
    return FlowProblem.of([slots], chains, costs)


@settings(max_examples=EXAMPLES // 4)
@given(whole_steps())
def test_with_whole_steps_the_bound_is_that_of_the_paper(problem: FlowProblem) -> None:
    """Where costs change at whole instants only, nothing is lost to the width of intervals."""
    network = least_cost(problem)
    exact = in_units(problem, 1.0, is_above=True)
    # Steps are passed only 1e-9 after their instants, in the network but not in the program.
    slack = rounding(problem, network) + 1e-5 * (1 + exact)
    assert network.bound == pytest.approx(exact, abs=slack)


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.sampled_from(SUMS), st.sampled_from(FRACTIONS))
def test_theorem_3(drawn: Drawn, objective: Objective, fraction: float) -> None:
    """Deadlines when a fraction f is done cost at most 1 / (1 - f) of the network's value.

    And by these deadlines each flow is complete within 1 + 1 / f times its own: twice the cost
    and three times as fast for f = 1/2, but for the width of intervals.
    """
    problem = problem_of(drawn, objective)
    chained = chains_of(problem).problem
    network = least_cost(problem)
    dates = network.deadlines(fraction)
    kept = np.maximum(dates, problem.alone)  # No flow completes before `alone`.
    slack = rounding(problem, network)
    cheap = problem.value(np.maximum(kept / (width(network) * (1 + NEAR)), problem.alone))
    assert cheap <= network.bound / (1 - fraction) + slack / (1 - fraction)
    speed = 1 + 1 / fraction
    for one in (chained, problem):
        completion = PhaseLister(one).completions(by_deadline(one, dates))
        assert (completion <= speed * kept * (1 + 1e-6)).all()
        faster = problem.value(completion / (speed * width(network) * (1 + 1e-6)))
        assert faster <= (network.bound + slack) / (1 - fraction)


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.sampled_from(["response", "stretch", "slowdown"]))
def test_weighted_completion_is_within_six(drawn: Drawn, penalty: str) -> None:
    """Corollary 1: at half of each flow, 3 times as slow and twice as expensive."""
    problem = problem_of(drawn, Objective(penalty))
    network = least_cost(problem)
    chained = chains_of(problem).problem
    completion = PhaseLister(chained).completions(by_deadline(chained, network.deadlines(0.5)))
    slack = rounding(problem, network)
    value = problem.value(completion)
    assert value <= 6 * width(network) * (1 + 1e-6) * (network.bound + slack)


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.sampled_from(["response", "stretch", "slowdown"]), st.data())
def test_weighted_completion_is_within_three_of_the_linear_program(
    drawn: Drawn, penalty: str, data: st.DataObject
) -> None:
    """List scheduling by the completions of `completions.py`, each within 3 times its own.

    The linear program is a bound: no schedule has a smaller sum.
    """
    problem = problem_of(drawn, Objective(penalty))
    found = bounding_completions(problem)
    bound = problem.value(found)
    any_list = PhaseLister(problem).completions(data.draw(rankings(problem)))
    assert bound <= problem.value(any_list) * (1 + NEAR)
    for one in (chains_of(problem).problem, problem):
        completion = PhaseLister(one).completions(by_deadline(one, found))
        assert problem.value(completion) <= 3 * bound * (1 + NEAR)
        assert (completion <= 3 * found * (1 + NEAR)).all()


def test_the_intervals_are_narrow() -> None:
    """An end is at most a tenth beyond its beginning on the flows of 5.1; they are not many."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        network = least_cost(problem_of(paper_flows(rng)))
        assert width(network) <= 1.1
        assert len(network.ends) <= MAX_INTERVALS


def test_one_flow_costs_what_it_does_alone() -> None:
    """There is nothing to decide."""
    problem = FlowProblem.of([4], [[FlowNode(8, 4), FlowNode(3, 1, (0,))]], [Line(2.0)])
    network = least_cost(problem)
    assert network.bound == pytest.approx(2 * 5.0, rel=1e-6)
    assert network.part.sum(axis=1).min() > 0


def test_half_of_the_second_flow_comes_after_the_first() -> None:
    """Two flows of 10 s on all slots; the heavier is first, so half of the other is by 15 s."""
    flow = [FlowNode(40, 4)]
    problem = FlowProblem.of([4], [flow, flow], [Line(1.0), Line(3.0)])
    network = least_cost(problem)
    late, early = network.deadlines(0.5)
    assert early == pytest.approx(10, rel=0.05)
    # Nothing of the first counts before 10 s, since it could not be complete.
    assert 15 <= late <= 15 * width(network) * (1 + NEAR)


def test_a_tiny_flow_is_part_of_the_network() -> None:
    """Work below one unit of the network neither breaks it nor gives a false bound."""
    problem = FlowProblem.of(
        [4], [[FlowNode(1e9, 4)], [FlowNode(1e-3, 1)]], [Line(1.0), Line(1.0)]
    )
    network = least_cost(problem)
    value = problem.value(PhaseLister(problem).completions([1, 0]))
    assert 0.99 * value <= network.bound <= value
    early = network.deadlines(0.5)
    assert early[1] <= early[0]


def test_without_ortools_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is missing, how to install it, and the alternative, before the run."""
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError) as refused:
        make_allocator("flowflex", Objective("tardiness"))
    for word in ("pip install 'slotwise[flow]'", "flowflex-fast"):
        assert word in str(refused.value)
    make_allocator("flowflex-fast", Objective("tardiness"))
    make_allocator("flowflex", Objective("tardiness", "max"))

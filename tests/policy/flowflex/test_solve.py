"""All stages together: the best schedule tried, never worse than the paper's method."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dag_optimum import optimum
from oracles.dags import OBJECTIVES, flows
from oracles.dags import Flows as Drawn
from oracles.flow_problems import flow_problems, problem_of
from slotwise.core.objective import Aggregate, Cost, Hinge, Line, Objective, Steps
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.solve import Method, solve
from slotwise.policy.search.budget import Budget
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)
METHODS: tuple[Method, ...] = ("best", "fast", "paper")
AGGREGATES: tuple[Aggregate, ...] = ("sum", "max")


def assert_is_what_it_says(problem: FlowProblem, found: object) -> None:
    """The completions are those of the schedule, and the value is theirs."""
    listed = problem if found.chains is None else found.chains.problem
    assert sorted(found.ranking) == list(range(len(listed.work)))
    if found.packing is None:
        completion = PhaseLister(listed).completions(found.ranking)
    else:
        ends = np.array([pieces[-1][1] for pieces in found.packing])
        completion = np.maximum.reduceat(ends, problem.first[:-1])
    assert completion.tolist() == found.completion.tolist()
    assert problem.value(found.completion) == found.value
    assert found.bound <= found.value + NEAR * abs(found.value)


@settings(max_examples=EXAMPLES // 2)
@given(flows(mixed=True), st.sampled_from(OBJECTIVES), st.sampled_from([0, 5, 60]))
def test_it_is_never_worse_than_the_method_of_the_paper(
    drawn: Drawn, objective: Objective, steps: int
) -> None:
    """For every metric, penalties mixed too, however small the budget."""
    problem = problem_of(drawn, objective)
    paper = solve(problem, Budget(steps), "paper")
    best = solve(problem, Budget(steps))
    assert best.value <= paper.value + NEAR * abs(paper.value)
    assert best.bound == paper.bound
    for found in (paper, best):
        assert_is_what_it_says(problem, found)


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems(), st.sampled_from(AGGREGATES), st.sampled_from(METHODS))
def test_solutions_with_any_costs_on_several_kinds_are_consistent(
    problem: FlowProblem, aggregate: Aggregate, method: Method
) -> None:
    """The solution is consistent, and the same budget gives the same solution."""
    changed = FlowProblem(*(getattr(problem, name) for name in FIELDS), aggregate)
    found = solve(changed, Budget(20), method)
    assert_is_what_it_says(changed, found)
    again = solve(changed, Budget(20), method)
    assert again.ranking.tolist() == found.ranking.tolist()
    assert again.value == found.value


FIELDS = ("capacity", "kind", "work", "max_share", "flow", "before", "costs")


@settings(max_examples=EXAMPLES // 6)
@given(
    flows(jobs_most=3, phases_most=3, total_most=5, widest=False),
    st.sampled_from(OBJECTIVES),
    st.sampled_from(METHODS),
)
def test_bound_optimum_and_value_are_in_order(
    drawn: Drawn, objective: Objective, method: Method
) -> None:
    """On problems small enough for an exact oracle."""
    best = optimum(drawn.jobs, drawn.cluster, objective)
    found = solve(problem_of(drawn, objective), Budget(50), method)
    slack = 1e-6 * (1 + abs(best))
    assert found.bound <= best + slack
    assert best <= found.value + slack


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_no_flows_cost_nothing(method: Method, aggregate: Aggregate) -> None:
    """And have no completions."""
    found = solve(FlowProblem.of([4], [], [], aggregate), method=method)
    assert found.value == 0
    assert len(found.ranking) == len(found.completion) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "cost", [Line(2.0), Line(2.0, 9.0), Hinge(1.0, 3.0), Steps(((6.0, 1.0),))]
)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_one_flow_takes_as_long_as_it_does_alone(
    method: Method, cost: Cost, aggregate: Aggregate
) -> None:
    """A diamond of 2 + 3 + 1 s whose sides run in parallel."""
    diamond = [
        FlowNode(8, 4),
        FlowNode(6, 2, (0,)),
        FlowNode(6, 2, (0,)),
        FlowNode(1, 1, (1, 2)),
    ]
    found = solve(FlowProblem.of([4], [diamond], [cost], aggregate), method=method)
    assert found.completion.tolist() == pytest.approx([6.0])
    assert found.value == pytest.approx(cost.at(6.0))


def test_phases_do_not_wait_for_barriers_that_the_dag_lacks() -> None:
    """a (2 s on both slots of two) then b (6 s on one), c (6 s on one) then d (2 s on both).

    As pseudo-jobs, c cannot run while only b runs, as it may in the flow itself.
    """
    dag = [FlowNode(4, 2), FlowNode(6, 1, (0,)), FlowNode(6, 1), FlowNode(4, 2, (2,))]
    problem = FlowProblem.of([2], [dag], [Line(1.0)], "max")
    assert solve(problem).value == pytest.approx(10)
    assert solve(problem, method="paper").value >= solve(problem).value


def test_without_chains_only_flows_themselves_are_scheduled() -> None:
    """For an allocator, which needs the phases that get slots now."""
    dag = [FlowNode(4, 2), FlowNode(6, 1, (0,)), FlowNode(6, 1), FlowNode(4, 2, (2,))]
    problem = FlowProblem.of([2], [dag, dag], [Line(1.0)] * 2)
    for method in METHODS:
        assert solve(problem, Budget(3), method, listed=True).chains is None


def fan(width: int) -> list[FlowNode]:
    """This number of parallel phases."""
    return [FlowNode(1.0 + number % 7, 1 + number % 40) for number in range(width)]


def line(length: int) -> list[FlowNode]:
    """This number of phases in sequence."""
    return [
        FlowNode(1.0 + number % 7, 1 + number % 40, (number - 1,) if number else ())
        for number in range(length)
    ]


DEGENERATE = {
    "fans": [fan(200), fan(200), fan(1)],
    "chains": [line(200), line(200), line(1)],
    "both": [line(200), fan(200)],
    "above capacity": [[FlowNode(5.0, 10_000), FlowNode(5.0, 10_000, (0,))] for _ in range(20)],
    "equal": [[FlowNode(6.0, 3), FlowNode(6.0, 3, (0,))] for _ in range(20)],
    "one slot": [[FlowNode(2.0, 1)] for _ in range(30)],
    "next to nothing": [
        [FlowNode(1e-9, 1)],
        [FlowNode(1e9, 40)],
        [FlowNode(1.0, 1), FlowNode(1e-9, 1, (0,))],
    ],
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_flows(name: str, method: Method, aggregate: Aggregate) -> None:
    """Each completes, not before `alone`, and by when all work can be done."""
    dags = DEGENERATE[name]
    problem = FlowProblem.of([25], dags, [Line(1.0) for _ in dags], aggregate)
    found = solve(problem, Budget(10), method)
    assert (found.completion >= problem.alone * (1 - NEAR)).all()
    longest = problem.volume.sum() / 25 + problem.critical_path.max()
    assert found.completion.max() <= longest * (1 + NEAR)
    assert found.bound <= found.value * (1 + NEAR)


DUES: dict[str, Sequence[Cost]] = {
    "at the same time": [Hinge(1.0, 12.0)] * 6,
    "long ago": [Hinge(1.0, -5.0)] * 3 + [Steps(((-3.0, 1.0), (4.0, 5.0)))] * 3,
    "never": [Steps(((1e9, 1.0),))] * 6,
    "at once": [Steps(((0.0, 1.0),))] * 6,
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DUES)
def test_odd_due_dates(name: str, method: Method, aggregate: Aggregate) -> None:
    """Due together, before now, never, or too early for any flow: there is a schedule."""
    dags = [[FlowNode(4.0 + number, 2), FlowNode(3.0, 3, (0,))] for number in range(6)]
    problem = FlowProblem.of([4], dags, DUES[name], aggregate)
    found = solve(problem, Budget(30), method)
    assert_is_what_it_says(problem, found)
    if name == "never":
        assert found.value == 0
    if name == "at once":
        assert found.value == (6 if aggregate == "sum" else 1)


def test_more_steps_are_not_worse() -> None:
    """With a larger budget no value rises, and the values of some problems fall."""
    rng = np.random.default_rng(8)
    fell = 0
    for _ in range(examples(6, slow=20)):
        dags = [
            [
                FlowNode(
                    float(rng.integers(1, 30)), int(rng.integers(1, 5)), (k - 1,) if k else ()
                )
                for k in range(int(rng.integers(1, 5)))
            ]
            for _ in range(6)
        ]
        costs = [Hinge(float(rng.integers(1, 5)), float(rng.integers(5, 60))) for _ in dags]
        problem = FlowProblem.of([4], dags, costs)
        values = [solve(problem, Budget(steps)).value for steps in (0, 1000)]
        assert values[1] <= values[0]
        fell += values[1] < values[0]
    assert fell > 0

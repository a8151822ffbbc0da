"""The three stages of the paper together, by hand; each stage has a test file of its own."""

from __future__ import annotations

from slotwise.core.job import PhaseId
from slotwise.core.objective import Line
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.paper import GreedyScheme, minimax_deadlines, three_stages
from slotwise.policy.flowflex.solve import pieces_of, solve

BARRIER = [FlowNode(2, 2), FlowNode(1, 1), FlowNode(9, 1, (0,))]
"""a takes 1 s on 2 slots, b 1 s on one, and c 9 s on one after a."""


def test_a_pseudo_job_waits_for_all_of_the_one_before() -> None:
    """a and b are one pseudo-job of 3 s of work: on 2 slots c begins at 1.5 s."""
    problem = FlowProblem.of([2], [BARRIER], [Line(1.0)])
    found = three_stages(problem)
    assert found.completion.tolist() == [10.5]
    pieces = pieces_of(problem, found, [PhaseId("flow", name) for name in "abc"])
    assert {piece.phase.phase: piece.end for piece in pieces}["c"] == 10.5
    assert min(piece.start for piece in pieces if piece.phase.phase == "c") == 1.5


def test_listed_flows_have_no_pseudo_jobs() -> None:
    """c begins when a is done."""
    problem = FlowProblem.of([2], [BARRIER], [Line(1.0)])
    found = three_stages(problem, listed=True)
    assert (found.chains, found.completion.tolist()) == (None, [10.0])


def test_the_method_named_paper_is_the_three_stages() -> None:
    """The same ranking, value and bound."""
    problem = FlowProblem.of([2], [BARRIER, [FlowNode(4, 2)]], [Line(1.0), Line(2.0)])
    found, solved = three_stages(problem), solve(problem, method="paper")
    assert solved.ranking.tolist() == found.ranking.tolist()
    assert (solved.value, solved.bound) == (found.value, found.bound)


def test_the_bisection_begins_with_the_flows_alone() -> None:
    """Two flows of 4 s on all slots: both levels of cost are those of flows alone."""
    problem = FlowProblem.of([2], [[FlowNode(8, 2)]] * 2, [Line(1.0)] * 2, "max")
    first, last = minimax_deadlines(problem, GreedyScheme(problem))
    assert first.tolist() == [4.0, 4.0]
    assert last.tolist() == [4.0, 4.0]


def test_a_deadline_is_feasible_if_it_is_met_on_slots_twice_as_fast() -> None:
    """The second flow is complete at 8 s, twice its deadline."""
    problem = FlowProblem.of([2], [[FlowNode(8, 2)]] * 2, [Line(1.0)] * 2)
    alone = problem.alone
    assert GreedyScheme(problem).is_feasible(alone)
    assert not GreedyScheme(problem).is_feasible(alone * 0.99)

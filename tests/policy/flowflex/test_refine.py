"""Better rankings: due dates that can be kept are kept, and the value never rises."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.flow_problems import flow_problems, rankings
from slotwise.core.costs import Floats, Ints
from slotwise.core.objective import Hinge, Line, Steps
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.list_schedule import Listed, PhaseLister
from slotwise.policy.flowflex.paper import by_deadline
from slotwise.policy.flowflex.solve import (
    PATIENCE,
    ROUNDS,
    _changes_nothing,
    _with_phase_moved,
    latest_alike,
    repair,
    shift,
    short_of_cheaper,
)
from slotwise.policy.search.budget import Budget
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)


class Asked:
    """List schedules; records the rankings."""

    def __init__(self, problem: FlowProblem) -> None:
        self._lister = PhaseLister(problem)
        self.rankings: list[Ints] = []

    def __call__(self, ranking: Ints) -> Floats:
        """When each flow is done."""
        self.rankings.append(ranking)
        return self._lister.completions(ranking)

    def instants(self, ranking: Ints) -> Listed:
        """When each phase is ready, starts and ends."""
        self.rankings.append(ranking)
        return self._lister.instants(ranking)


def two_ways() -> FlowProblem:
    """A wide phase of 2 s on both slots, and a chain of two phases of 2 s on one slot each."""
    wide, long = [FlowNode(4, 2)], [FlowNode(2, 1), FlowNode(2, 1, (0,))]
    return FlowProblem.of([2], [wide, long], [Line(1.0)] * 2, "max")


def test_due_dates_that_are_nearly_kept_are_repaired() -> None:
    """All is done by 4 only if the chain goes first, although it is due later."""
    problem = two_ways()
    due = np.array([3.9999999999, 4.0])
    asked = Asked(problem)
    assert (asked(by_deadline(problem, due)) > due * (1 + NEAR)).any()
    assert repair(problem, np.array([4.0, 4.0]), asked, Budget())
    assert asked(asked.rankings[-1]).tolist() == pytest.approx([4.0, 4.0])


def test_repair_gives_up_on_infeasible_due_dates() -> None:
    """After its rounds, or when the budget is spent."""
    problem = two_ways()
    for budget, rounds in ((Budget(), ROUNDS), (Budget(3), 3)):
        asked = Asked(problem)
        assert not repair(problem, np.array([2.0, 3.0]), asked, budget)
        assert len(asked.rankings) == rounds


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems(aggregate="max"), st.data())
def test_repaired_due_dates_are_met(problem: FlowProblem, data: st.DataObject) -> None:
    """It is true of the last ranking tried, and of no earlier one."""
    due = PhaseLister(problem).completions(data.draw(rankings(problem)))
    part = data.draw(st.sampled_from([1.0, 0.9, 0.5]))
    free = data.draw(st.lists(st.booleans(), min_size=len(problem), max_size=len(problem)))
    due = np.where(free, inf, np.maximum(part * due, problem.alone))
    asked = Asked(problem)
    is_kept = repair(problem, due, asked, Budget(10))
    *others, last = asked.rankings
    assert bool((asked(last) <= due * (1 + NEAR)).all()) == is_kept
    assert not any((asked(ranking) <= due).all() for ranking in others)


def test_the_latest_completion_at_the_same_cost() -> None:
    """Before a step or a due date there is time; on a line there is none."""
    costs = [Line(2.0), Hinge(1.0, 9.0), Steps(((3.0, 1.0), (8.0, 2.0))), Steps(((3.0, 1.0),))]
    problem = FlowProblem.of([2], [[FlowNode(2, 1)]] * 4, costs)
    found = latest_alike(problem, np.array([5.0, 5.0, 5.0, 5.0]))
    assert found.tolist() == pytest.approx([5.0, 9.0, 8.0, inf])


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems(), st.data())
def test_the_latest_completion_costs_no_more(problem: FlowProblem, data: st.DataObject) -> None:
    """And it is never earlier than the completion."""
    completion = PhaseLister(problem).completions(data.draw(rankings(problem)))
    latest = latest_alike(problem, completion)
    assert (latest >= completion).all()
    cost = problem.costs.at(completion)
    later = problem.costs.at(np.minimum(latest, 1e12))
    assert (later <= cost + NEAR * (1 + abs(cost))).all()


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems() | flow_problems(aggregate="max"), st.data())
def test_shifts_never_raise_the_cost(problem: FlowProblem, data: st.DataObject) -> None:
    """The ranking is one of all phases, no worse than the first; the same each time."""
    first = np.array(data.draw(rankings(problem)))
    lister = PhaseLister(problem)
    found = shift(problem, first, lister.instants, Budget(40))
    assert sorted(found.tolist()) == list(range(len(first)))
    completions = lister.completions
    assert problem.value(completions(found)) <= problem.value(completions(first))
    assert shift(problem, first, lister.instants, Budget(40)).tolist() == found.tolist()


@settings(max_examples=EXAMPLES)
@given(flow_problems(), st.data())
def test_moves_that_are_not_scheduled_change_no_slots(
    problem: FlowProblem, data: st.DataObject
) -> None:
    """The list schedule after the move has the same changes of slots, to the last bit."""
    ranking, lister = np.array(data.draw(rankings(problem))), PhaseLister(problem)
    listed = lister.schedule(ranking)
    places = st.integers(0, len(ranking) - 1)
    for source, target in data.draw(st.lists(st.tuples(places, places), min_size=9)):
        if _changes_nothing(problem, listed, ranking, source, target):
            moved = lister.schedule(_with_phase_moved(ranking, source, target))
            assert moved.pieces() == listed.pieces()


def test_a_phase_may_pass_others_that_it_never_meets() -> None:
    """A chain waits for its wide phase; a long phase that waits from the start is met."""
    chain = [FlowNode(2, 2), FlowNode(2, 2, (0,)), FlowNode(2, 2, (1,))]
    problem = FlowProblem.of([2], [chain, [FlowNode(8, 2)]], [Line(1.0)] * 2)
    ranking = np.arange(4)
    listed = PhaseLister(problem).instants(ranking)
    assert listed.ready.tolist() == [0, 1, 2, 0]
    assert listed.start.tolist() == [0, 1, 2, 3]
    assert listed.end.tolist() == [1, 2, 3, 7]
    changes = {
        (source, target)
        for source in range(4)
        for target in range(4)
        if not _changes_nothing(problem, listed, ranking, source, target)
    }
    meets = {(one, 3) for one in range(3)} | {(3, one) for one in range(3)}
    assert changes == meets


def test_shifts_find_the_better_ranking() -> None:
    """The shortest first, from the longest first on."""
    problem = FlowProblem.of(
        [1], [[FlowNode(work, 1)] for work in (9, 5, 3, 1)], [Line(1.0)] * 4
    )
    found = shift(problem, np.arange(4), PhaseLister(problem).instants, Budget())
    assert found.tolist() == [3, 2, 1, 0]


def test_shifts_end_when_nothing_helps() -> None:
    """A budget without end is not spent: all rankings are alike."""
    problem = FlowProblem.of([9], [[FlowNode(1, 1)] for _ in range(7)], [Line(1.0)] * 7)
    budget, asked = Budget(), Asked(problem)
    found = shift(problem, np.arange(7), asked.instants, budget)
    assert budget.spent == 7 * PATIENCE
    # A phase that moves by 0 places is not scheduled again; flows are.
    assert budget.spent // 2 < len(asked.rankings) <= budget.spent
    assert sorted(found.tolist()) == list(range(7))


def test_a_budget_of_nothing_changes_nothing() -> None:
    """The ranking that came in goes out."""
    problem = FlowProblem.of([1], [[FlowNode(work, 1)] for work in (9, 5, 3)], [Line(1.0)] * 3)
    found = shift(problem, np.arange(3), PhaseLister(problem).instants, Budget(0))
    assert found.tolist() == [0, 1, 2]


def test_the_distance_of_a_flow_to_a_cheaper_step() -> None:
    """Done at 6: 2 s earlier meets the step, 5 s the more expensive one; a line has none."""
    costs = [Steps(((4.0, 1.0),)), Steps(((1.0, 2.0), (9.0, 7.0))), Line(1.0)]
    at = np.array([6.0, 6.0, 6.0])
    sums = FlowProblem.of([2], [[FlowNode(2, 1)]] * 3, costs)
    assert short_of_cheaper(sums, at) == pytest.approx(2.0)
    assert short_of_cheaper(sums, np.array([3.0, 6.0, 6.0])) == pytest.approx(5.0)
    largest = FlowProblem.of([2], [[FlowNode(2, 1)]] * 2, costs[:2], "max")
    assert short_of_cheaper(largest, at[:2]) == pytest.approx(5.0)
    assert short_of_cheaper(FlowProblem.of([2], [[FlowNode(2, 1)]], [Line(1.0)]), at[:1]) == 0

"""Stage 2 for strict deadlines: the scheme of Fig. 5, and the guarantee of Theorem 2."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import problem_of
from slotwise.core.objective import Line
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import by_deadline, by_flows
from slotwise.policy.flowflex.solve import by_last_end
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)


class Used:
    """The utilisation function of Fig. 5: the number of used slots at each instant."""

    def __init__(self) -> None:
        self._since, self._slots = [0.0], [0.0]

    def at(self, instant: float) -> tuple[float, float]:
        """The number of used slots at this instant, and until when it is constant."""
        place = bisect_right(self._since, instant)
        until = self._since[place] if place < len(self._since) else inf
        return self._slots[place - 1], until

    def take(self, slots: float, start: float, end: float) -> None:
        """Use more slots between two instants; the first one is or becomes a cut."""
        for cut in (start, end):
            if cut not in self._since:
                taken = self.at(cut)[0]
                insort(self._since, cut)
                self._slots.insert(self._since.index(cut), taken)
        for place, since in enumerate(self._since):
            if start <= since < end:
                self._slots[place] += slots


def figure_5(slots: float, problem: FlowProblem, order: Sequence[int]) -> list[float]:
    """When each chain is complete: flow by flow, pseudo-job by pseudo-job, as in the paper."""
    used, completion = Used(), [0.0] * len(problem)
    for flow in order:
        now = 0.0  # S of the first pseudo-job; of the others, the end of the one before.
        for phase in np.flatnonzero(problem.flow == flow):
            left = problem.work[phase]
            while left > 0:
                taken, until = used.at(now)
                share = min(slots - taken, problem.max_share[phase])
                if share > 0:
                    end = min(until, now + left / share)
                    used.take(share, now, end)
                    left = 0.0 if end < until else left - share * (end - now)
                    now = end
                else:
                    now = until
                if left <= 1e-12 * problem.work[phase]:
                    break
        completion[flow] = now
    return completion


@settings(max_examples=EXAMPLES // 4)
@given(flows(), st.randoms(use_true_random=False))
def test_list_scheduling_by_deadline_is_the_scheme_of_the_paper(
    drawn: Drawn, random: st.Random
) -> None:
    """Chain by chain over all time equals instant by instant over all chains."""
    chained = chains_of(problem_of(drawn)).problem
    order = random.sample(range(len(chained)), len(chained))
    deadline = np.argsort(order).astype(float)
    found = PhaseLister(chained).completions(by_deadline(chained, deadline))
    assert found == pytest.approx(figure_5(drawn.slots, chained, order), rel=NEAR)


def random_ranking(problem: FlowProblem, random: st.Random) -> list[int]:
    """Any order of the phases."""
    return random.sample(range(len(problem.work)), len(problem.work))


@settings(max_examples=EXAMPLES // 4)
@given(flows(), st.randoms(use_true_random=False))
def test_feasible_deadlines_are_met_by_twice_their_time(
    drawn: Drawn, random: st.Random
) -> None:
    """Theorem 2, for chains and for the flows themselves; some schedule ends at the deadlines.

    That schedule follows a list in which the phases of all flows are mixed.
    """
    problem = problem_of(drawn)
    deadline = PhaseLister(problem).completions(random_ranking(problem, random))
    chained = chains_of(problem).problem
    for one in (chained, problem):
        completion = PhaseLister(one).completions(by_deadline(one, deadline))
        assert (completion <= 2 * deadline * (1 + NEAR)).all()


@settings(max_examples=EXAMPLES // 4)
@given(flows(), st.randoms(use_true_random=False))
def test_a_flow_waits_for_the_work_before_it_and_for_its_longest_path(
    drawn: Drawn, random: st.Random
) -> None:
    """C_j <= (work of the flows up to j) / P + (critical path of j), which proves the rest."""
    problem = problem_of(drawn)
    order = np.array(random.sample(range(len(problem)), len(problem)))
    before = np.empty(len(problem))
    before[order] = problem.volume[order].cumsum() / drawn.slots
    for one in (problem, chains_of(problem).problem):
        completion = PhaseLister(one).completions(by_flows(one, order))
        assert (completion <= (before + problem.critical_path) * (1 + NEAR)).all()
        assert (completion >= problem.alone * (1 - NEAR)).all()


def test_the_factor_two_of_theorem_2_is_nearly_tight() -> None:
    """Two flows, due at once: the first takes all slots, and so the long one starts late.

    A schedule that meets both deadlines gives the chain its one slot from the start on.
    """
    slots = 50
    wide, long = [FlowNode(100.0 * (slots - 1), slots)], [FlowNode(100.0, 1)]
    problem = FlowProblem.of([slots], [wide, long], [Line(1.0)] * 2)
    completion = PhaseLister(problem).completions(by_deadline(problem, np.array([99.9, 100.0])))
    assert completion.tolist() == pytest.approx([98.0, 198.0])
    other = PhaseLister(problem).completions(by_flows(problem, np.array([1, 0])))
    assert other.tolist() == pytest.approx([100.0, 100.0])


def test_flows_with_equal_deadlines_are_ordered_by_their_time_alone() -> None:
    """The shorter first; within a flow the longest remaining path first."""
    long = [FlowNode(3, 1), FlowNode(9, 1), FlowNode(1, 1, (0,))]
    problem = FlowProblem.of([1], [long, [FlowNode(2, 1)]], [Line(1.0)] * 2)
    assert by_deadline(problem, np.array([5.0, 5.0])).tolist() == [3, 1, 0, 2]
    assert by_deadline(problem, np.array([5.0, 6.0])).tolist() == [1, 0, 2, 3]


def test_phases_by_their_last_ends_mix_flows() -> None:
    """The first of a chain of two, due at 10, must end by 6; the lone one by 8."""
    problem = FlowProblem.of(
        [2], [[FlowNode(2, 1), FlowNode(4, 1, (0,))], [FlowNode(1, 1)]], [Line(1.0)] * 2
    )
    assert by_last_end(problem, np.array([10.0, 8.0])).tolist() == [0, 2, 1]

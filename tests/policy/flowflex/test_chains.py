"""Stage 1: flows become chains of pseudo-jobs with the same area and critical path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import problem_of
from slotwise.core.objective import Line
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem, chains_of
from tiers import examples

EXAMPLES = examples(20, slow=1000)


def test_the_pseudo_jobs_of_a_small_dag() -> None:
    """As in Fig. 4: a 2 s and b 3 s from the start on, c 2 s after a, d 1 s after both.

    Time is cut where a, b and c end, so there are four pseudo-jobs: a and b, b and c, c, d.
    Two of them are taller than one phase may be, the first and the last as tall as there are
    slots.
    """
    dag = [FlowNode(6, 3), FlowNode(3, 1), FlowNode(4, 2, (0,)), FlowNode(4, 4, (1, 2))]
    chains = chains_of(FlowProblem.of([4], [dag], [Line(1.0)]))
    assert list(chains.members) == [(0, 1), (1, 2), (2,), (3,)]
    assert chains.start.tolist() == [0, 2, 3, 4]
    assert chains.problem.max_share.tolist() == [4, 3, 2, 4]
    assert chains.problem.work.tolist() == [8, 3, 2, 4]
    assert list(chains.problem.before) == [(), (0,), (1,), (2,)]


def test_a_pseudo_job_may_use_more_slots_than_there_are() -> None:
    """Three phases of 2 slots side by side are one pseudo-job of 6, on 4 slots."""
    problem = FlowProblem.of(
        [4], [[FlowNode(2, 9), FlowNode(2, 2), FlowNode(2, 2)]], [Line(1.0)]
    )
    chains = chains_of(problem)
    # The first phase is cut to the 4 slots that there are.
    assert chains.problem.max_share.tolist() == [8, 4]
    assert chains.problem.critical_path.tolist() == [1.0]
    assert chains.problem.squashed_area.tolist() == [1.5]


def test_equal_phases_side_by_side_are_one_pseudo_job() -> None:
    """A fan of 200 between its ends is three pseudo-jobs."""
    fan = [
        FlowNode(1, 1),
        *(FlowNode(2, 1, (0,)) for _ in range(200)),
        FlowNode(1, 1, tuple(range(1, 201))),
    ]
    chains = chains_of(FlowProblem.of([10], [fan], [Line(1.0)]))
    assert chains.problem.max_share.tolist() == [1, 200, 1]
    assert [len(phases) for phases in chains.members] == [1, 200, 1]


def test_flows_have_separate_chains() -> None:
    """Pseudo-jobs of different flows neither share phases nor wait for each other."""
    problem = FlowProblem.of(
        [4], [[FlowNode(2, 2)], [FlowNode(1, 1), FlowNode(1, 1, (0,))]], [Line(1.0)] * 2
    )
    chains = chains_of(problem)
    assert list(chains.members) == [(0,), (1,), (2,)]
    assert chains.problem.flow.tolist() == [0, 1, 1]
    assert list(chains.problem.before) == [(), (), (1,)]


def test_a_short_phase_that_runs_late_keeps_its_work() -> None:
    """As a difference of instants around 1e6 s, 1e-4 s would have few correct digits."""
    problem = FlowProblem.of([25], [[FlowNode(1e6, 1), FlowNode(25e-4, 25, (0,))]], [Line(1.0)])
    assert chains_of(problem).problem.work.tolist() == [1e6, pytest.approx(25e-4, rel=1e-15)]


@settings(max_examples=EXAMPLES // 4)
@given(flows())
def test_area_and_critical_path_are_preserved(drawn: Drawn) -> None:
    """For each flow, and so both lower bounds on its time alone."""
    problem = problem_of(drawn)
    chained = chains_of(problem).problem
    assert chained.volume == pytest.approx(problem.volume, rel=1e-9)
    assert chained.squashed_area == pytest.approx(problem.squashed_area, rel=1e-9)
    assert chained.critical_path == pytest.approx(problem.critical_path, rel=1e-9)


@settings(max_examples=EXAMPLES // 4)
@given(flows())
def test_each_phase_keeps_its_running_time(drawn: Drawn) -> None:
    """The pseudo-jobs that a phase is in last, together, as long as it does on most slots."""
    problem = problem_of(drawn)
    chains = chains_of(problem)
    lasts = np.zeros(len(problem.work))
    for length, phases in zip(chains.problem.length, chains.members, strict=True):
        lasts[list(phases)] += length
    assert lasts == pytest.approx(problem.length, rel=1e-9)


@settings(max_examples=EXAMPLES // 4)
@given(flows())
def test_no_flow_has_more_pseudo_jobs_than_phases(drawn: Drawn) -> None:
    """Each phase starts at 0 or where another ends, so n phases make at most n intervals."""
    problem = problem_of(drawn)
    made = np.bincount(chains_of(problem).problem.flow)
    assert (made >= 1).all()
    assert (made <= np.bincount(problem.flow)).all()


@settings(max_examples=EXAMPLES // 4)
@given(flows())
def test_phases_of_one_pseudo_job_do_not_depend_on_each_other(drawn: Drawn) -> None:
    """No member of a pseudo-job comes before another, nor does one of a later pseudo-job."""
    problem = problem_of(drawn)
    above: list[set[int]] = []
    for others in problem.before:
        above.append(set(others).union(*(above[other] for other in others)))
    last: dict[int, int] = {}
    members = chains_of(problem).members
    for number, phases in enumerate(members):
        assert phases
        last |= dict.fromkeys(phases, number)
    for number, phases in enumerate(members):
        for phase in phases:
            assert all(last[other] < number for other in above[phase])

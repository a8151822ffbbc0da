"""List scheduling of flows: slots go by rank to ready phases; in Python and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dag_lists import list_schedule
from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import check_list_schedule, check_pieces, flow_problems, rankings
from slotwise.core.objective import Line, Objective
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.list_schedule import PhaseLister
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)


def lines(count: int) -> list[Line]:
    """Any costs."""
    return [Line(1.0)] * count


def test_a_phase_yields_its_slots_to_one_of_higher_rank() -> None:
    """4 slots: b runs with a's first phase, stops for the second, and continues after it."""
    problem = FlowProblem.of(
        [4], [[FlowNode(4, 2), FlowNode(8, 4, (0,))], [FlowNode(13, 3)]], lines(2)
    )
    listed = PhaseLister(problem).schedule([0, 1, 2])
    assert listed.pieces() == [[(0.0, 2.0, 2)], [(2.0, 4.0, 4)], [(0.0, 2.0, 2), (4.0, 7.0, 3)]]
    assert listed.end.tolist() == pytest.approx([2, 4, 7])
    assert PhaseLister(problem).completions([0, 1, 2]).tolist() == pytest.approx([4, 7])


def test_a_phase_gets_more_slots_when_others_end() -> None:
    """The phase that gets the remaining slots gets more later: two pieces."""
    problem = FlowProblem.of([3], [[FlowNode(2, 2)], [FlowNode(5, 3)]], lines(2))
    assert PhaseLister(problem).schedule([0, 1]).pieces() == [
        [(0.0, 1.0, 2)],
        [(0.0, 1.0, 1), (1.0, 1.0 + 4 / 3, 3)],
    ]


def test_kinds_of_slots_are_shared_separately() -> None:
    """Maps of both flows wait for each other, and so do reduces; a map and a reduce do not."""
    dag = [FlowNode(2, 9, (), 0), FlowNode(3, 9, (0,), 1)]
    problem = FlowProblem.of([2, 1], [dag, dag], lines(2))
    assert PhaseLister(problem).schedule([0, 1, 2, 3]).pieces() == [
        [(0.0, 1.0, 2)],
        [(1.0, 4.0, 1)],
        [(1.0, 2.0, 2)],
        [(4.0, 7.0, 1)],
    ]


@settings(max_examples=EXAMPLES // 2)
@given(flow_problems(), st.data())
def test_slots_go_by_rank_and_none_idles(problem: FlowProblem, data: st.DataObject) -> None:
    """At every instant, on every kind: ready phases in order, each as many as it can use."""
    ranking = data.draw(rankings(problem))
    listed = PhaseLister(problem).schedule(ranking)
    pieces = listed.pieces()
    check_pieces(problem, pieces)
    check_list_schedule(problem, ranking, pieces)
    assert [own[-1][1] for own in pieces] == listed.end.tolist()
    assert PhaseLister(problem).ends(ranking).tolist() == listed.end.tolist()


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.data())
def test_a_simpler_simulation_ends_at_the_same_instants(
    drawn: Drawn, data: st.DataObject
) -> None:
    """It visits all phases at each end."""
    problem, ids = whole_flows(drawn.jobs, drawn.cluster, Objective())
    phases = [(job, phase) for job in drawn.jobs for phase in job.topological]
    ranking = data.draw(rankings(problem))
    done = list_schedule([phases[one] for one in ranking], drawn.cluster)
    expected = [done[name] for name in ids]
    assert PhaseLister(problem).ends(ranking) == pytest.approx(expected, rel=NEAR)


@settings(max_examples=EXAMPLES // 4)
@given(flow_problems(phases_most=8), st.data())
def test_machine_code_gives_the_same_bits(problem: FlowProblem, data: st.DataObject) -> None:
    """All instants, and all changes of slots, to the last digit."""
    pytest.importorskip("numba", reason="needs slotwise[fast]")
    ranking = data.draw(rankings(problem))
    plain, fast = PhaseLister(problem, is_fast=False), PhaseLister(problem, is_fast=True)
    one, other = plain.schedule(ranking), fast.schedule(np.array(ranking))
    for name in ("ready", "start", "end", "phase", "since", "slots"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    assert plain.ends(ranking).tolist() == fast.ends(ranking).tolist()


@pytest.mark.parametrize("is_fast", [False, True])
def test_a_schedule_with_more_changes_than_expected_is_complete(is_fast: bool) -> None:
    """30 long phases lose their slots to each of 300 short ones, and get them back."""
    if is_fast:
        pytest.importorskip("numba", reason="needs slotwise[fast]")
    short = [
        FlowNode(1.0, 30, (number - 1,) if number else (), number % 2) for number in range(600)
    ]
    wide = [[FlowNode(1000.0 + flow, 1, (), 0)] for flow in range(30)]
    problem = FlowProblem.of([30, 1], [short, *wide], lines(31))
    ranking = list(range(630))
    listed = PhaseLister(problem, is_fast=is_fast).schedule(ranking)
    assert len(listed.phase) > 4 * 630
    pieces = listed.pieces()
    check_pieces(problem, pieces)
    check_list_schedule(problem, ranking, pieces)


def test_rounding_does_not_stop_time() -> None:
    """Work that differs by 24 orders of magnitude: every phase ends, none before it could."""
    works = [10.0**power for power in range(-12, 13)]
    problem = FlowProblem.of([3], [[FlowNode(work, 2) for work in works]], lines(1))
    for ranking in (range(25), reversed(range(25))):
        ends = PhaseLister(problem).ends(list(ranking))
        assert (ends >= problem.length * (1 - NEAR)).all()
        assert ends.max() <= sum(works) * (1 + NEAR)


def test_no_flows_take_no_time() -> None:
    """Nothing is scheduled."""
    problem = FlowProblem.of([3], [], [])
    listed = PhaseLister(problem).schedule([])
    assert listed.pieces() == []
    assert listed.end.tolist() == []


def test_no_work_is_lost_when_the_clock_rounds() -> None:
    """At a late instant, a small phase runs across 200 ends of others; its piece is exact.

    By then the clock tells instants apart that are 1e-10 s from each other.
    """
    first = FlowNode(1e6, 1)
    others = [FlowNode(2.3e-6, 1, (number,)) for number in range(200)]
    problem = FlowProblem.of(
        [2], [[first, *others], [first, FlowNode(4e-4, 1, (0,))]], lines(2)
    )
    listed = PhaseLister(problem).schedule(range(203))
    ((start, end, slots),) = listed.pieces()[-1]
    assert start == 1e6
    assert slots == 1
    assert end - start == pytest.approx(4e-4, abs=2.4e-10)

"""Stage 3: schedules of pseudo-jobs, turned back into schedules of the phases in them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import rankings
from slotwise.core.job import PhaseId
from slotwise.core.objective import Line, Objective
from slotwise.core.schedule import Piece, Schedule
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem, chains_of
from slotwise.policy.flowflex.list_schedule import PhaseLister
from slotwise.policy.flowflex.paper import FlowSchedule, shape_shift
from slotwise.policy.flowflex.solve import pieces_of
from slotwise.policy.malleable import merged
from tiers import examples

NEAR = 1e-9
EXAMPLES = examples(20, slow=1000)

A, B, C = (PhaseId("j", name) for name in "abc")


def test_a_pseudo_job_on_fewer_slots_is_wrapped_around() -> None:
    """Two phases of 2 slots and 2 s share 3 slots: 1 1/2 each, in whole slots, for 8/3 s."""
    problem = FlowProblem.of([3], [[FlowNode(4, 2), FlowNode(4, 2)]], [Line(1.0)])
    chains = chains_of(problem)
    listed = PhaseLister(chains.problem).schedule([0])
    assert listed.pieces() == [[(0.0, pytest.approx(8 / 3), 3)]]
    pieces = merged(shape_shift(problem, chains, listed, [A, B]))
    end, half = 8 / 3, 4 / 3
    assert [(p.phase, p.slots) for p in pieces] == [(A, 2), (B, 1), (A, 1), (B, 2)]
    assert [(p.start, p.end) for p in pieces] == [
        (0.0, pytest.approx(half)),
        (0.0, pytest.approx(half)),
        (pytest.approx(half), pytest.approx(end)),
        (pytest.approx(half), pytest.approx(end)),
    ]


def test_a_pseudo_job_on_all_its_slots_is_as_in_the_pseudo_schedule() -> None:
    """Enough slots: every phase holds its max share, and b continues while c runs."""
    problem = FlowProblem.of(
        [9], [[FlowNode(4, 2), FlowNode(6, 2), FlowNode(3, 3, (0,))]], [Line(1.0)]
    )
    chains = chains_of(problem)
    listed = PhaseLister(chains.problem).schedule([0, 1])
    assert merged(shape_shift(problem, chains, listed, [A, B, C])) == (
        Piece(A, 0.0, 2.0, 2),
        Piece(B, 0.0, 3.0, 2),
        Piece(C, 2.0, 3.0, 3),
    )


@settings(max_examples=EXAMPLES // 2)
@given(flows(), st.data())
def test_any_schedule_of_pseudo_jobs_is_one_of_phases(
    drawn: Drawn, data: st.DataObject
) -> None:
    """Whole slots, max shares, precedence, capacity, all work done, and no flow later.

    Pseudo-jobs are scheduled in any order, those of all flows mixed.
    """
    problem, ids = whole_flows(drawn.jobs, drawn.cluster, Objective())
    chains = chains_of(problem)
    ranking = data.draw(rankings(chains.problem))
    lister = PhaseLister(chains.problem)
    completion = lister.completions(ranking)
    pieces = shape_shift(problem, chains, lister.schedule(ranking), ids)
    schedule = Schedule(merged(pieces))
    schedule.check(drawn.jobs, drawn.cluster)
    ends = schedule.completion()
    for job, end in zip(drawn.jobs, completion, strict=True):
        assert ends[job.id] == pytest.approx(end, rel=NEAR)


@settings(max_examples=EXAMPLES // 4)
@given(flows(), st.data(), st.booleans())
def test_the_pieces_of_a_solution_are_its_schedule(
    drawn: Drawn, data: st.DataObject, has_chains: bool
) -> None:
    """With chains and without, jobs complete when the solution says."""
    problem, ids = whole_flows(drawn.jobs, drawn.cluster, Objective())
    chains = chains_of(problem) if has_chains else None
    listed = chains.problem if chains is not None else problem
    ranking = data.draw(rankings(listed))
    completion = PhaseLister(listed).completions(ranking)
    solution = FlowSchedule(ranking, completion, problem.value(completion), chains)
    schedule = Schedule(merged(pieces_of(problem, solution, ids)))
    schedule.check(drawn.jobs, drawn.cluster)
    assert schedule.completion() == pytest.approx(
        dict(zip((job.id for job in drawn.jobs), completion, strict=True)), rel=NEAR
    )


def test_a_wide_fan_on_few_slots_gets_whole_slots() -> None:
    """200 phases side by side, 7 slots: each holds 7/200 of them, and never two."""
    problem = FlowProblem.of([7], [[FlowNode(1.0, 1) for _ in range(200)]], [Line(1.0)])
    chains = chains_of(problem)
    ids = [PhaseId("j", f"p{number}") for number in range(200)]
    pieces = shape_shift(problem, chains, PhaseLister(chains.problem).schedule([0]), ids)
    assert {piece.slots for piece in pieces} == {1}
    assert sum(piece.end - piece.start for piece in pieces) == pytest.approx(200, rel=NEAR)
    assert max(piece.end for piece in pieces) == pytest.approx(200 / 7, rel=NEAR)
    # Only those that cross the end of a slot come in two pieces.
    assert len(merged(pieces)) <= 200 + 6

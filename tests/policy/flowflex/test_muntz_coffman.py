"""Slots shared by level: feasible for any flows, and shortest where the optimum is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.dags import Flows as Drawn
from oracles.dags import flows
from oracles.flow_problems import problem_of
from slotwise.core.job import PhaseId
from slotwise.core.objective import Line, Objective
from slotwise.core.schedule import Schedule
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem
from slotwise.policy.flowflex.list_schedule import PhaseLister, share_by_level
from slotwise.policy.flowflex.paper import FlowSchedule
from slotwise.policy.flowflex.solve import pieces_of


def makespan(slots: int, nodes: list[FlowNode]) -> float:
    """The makespan of one flow, shared for its earliest possible completion."""
    problem = FlowProblem.of([slots], [nodes], [Line(1.0)], "max")
    return float(share_by_level(problem, problem.alone).completion[0])


def test_two_wide_phases_share_the_slots() -> None:
    """FLEX's Lemma 1 fails here: a list ends at 8.75, equal shares at 8."""
    assert makespan(10, [FlowNode(40, 8), FlowNode(40, 8)]) == pytest.approx(8.0)


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.floats(0.1, 50), st.integers(1, 12)), min_size=1, max_size=6),
)
def test_independent_phases_end_as_early_as_possible(
    slots: int, phases: list[tuple[float, int]]
) -> None:
    """The maximum of their area and the longest of them."""
    nodes = [FlowNode(work, max_share) for work, max_share in phases]
    area = sum(node.work for node in nodes) / slots
    longest = max(node.work / min(node.max_share, slots) for node in nodes)
    assert makespan(slots, nodes) == pytest.approx(max(area, longest), rel=1e-6)


@given(flows(with_kinds=True), st.data())
def test_processor_sharing_gives_a_schedule(drawn: Drawn, data: st.DataObject) -> None:
    """In whole slots, with precedence, max shares and capacity kept, and all work done."""
    problem = problem_of(drawn, Objective("makespan", "max"))
    due = data.draw(st.lists(st.floats(0, 1e3), min_size=len(problem), max_size=len(problem)))
    shared = share_by_level(problem, np.array(due))
    ids = [PhaseId(job.id, phase.name) for job in drawn.jobs for phase in job.topological]
    ranking = np.arange(len(ids))
    found = FlowSchedule(ranking, shared.completion, 0.0, packing=shared.packing)
    Schedule(tuple(pieces_of(problem, found, ids))).check(drawn.jobs, drawn.cluster)
    for flow, first in enumerate(problem.first[:-1]):
        own = shared.packing[first : problem.first[flow + 1]]
        assert shared.completion[flow] == max(pieces[-1][1] for pieces in own)


def test_a_chain_is_as_fast_as_in_a_list() -> None:
    """With nothing to share with, sharing changes nothing."""
    nodes = [FlowNode(10, 2), FlowNode(6, 3, (0,)), FlowNode(4, 8, (1,))]
    problem = FlowProblem.of([4], [nodes], [Line(1.0)], "max")
    listed = PhaseLister(problem).completions([0, 1, 2])
    assert makespan(4, nodes) == listed[0] == 5 + 2 + 1

"""The numeric problem of FlowFlex for tests: random ones, and whether a list is followed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import strategies as st

from oracles.dags import Flows as Drawn
from oracles.problems import costs
from slotwise.core.objective import Aggregate, Objective
from slotwise.policy.flowflex.allocator import whole_flows
from slotwise.policy.flowflex.flows import FlowNode, FlowProblem

EXACT = 1e-9
"""What rounding may add, relatively."""

Held = Sequence[Sequence[tuple[float, float, int]]]
"""Of each phase, its pieces (start, end, slots)."""


def problem_of(drawn: Drawn, objective: Objective | None = None) -> FlowProblem:
    """The problem of drawn jobs; mean response if nothing is said."""
    return whole_flows(drawn.jobs, drawn.cluster, objective or Objective())[0]


@st.composite
def flow_problems(
    draw: st.DrawFn,
    kinds_most: int = 3,
    flows_most: int = 5,
    phases_most: int = 6,
    aggregate: Aggregate = "sum",
    costs_of: str = "line hinge steps curve",
) -> FlowProblem:
    """Flows on several kinds of slots, with costs of any shape, many alike."""
    capacity = draw(st.lists(st.sampled_from([1, 2, 5, 12]), min_size=1, max_size=kinds_most))
    works = st.sampled_from([1.0, 6.0]) | st.floats(0.01, 60)
    flows = []
    for _ in range(draw(st.integers(1, flows_most))):
        nodes: list[FlowNode] = []
        for number in range(draw(st.integers(1, phases_most))):
            before = tuple(other for other in range(number) if draw(st.booleans()))
            kind = draw(st.integers(0, len(capacity) - 1))
            nodes.append(FlowNode(draw(works), draw(st.integers(1, 15)), before, kind))
        flows.append(nodes)
    chosen = [draw(costs(costs_of)) for _ in flows]
    return FlowProblem.of(capacity, flows, chosen, aggregate)


def rankings(problem: FlowProblem) -> st.SearchStrategy[list[int]]:
    """Any order of all phases."""
    return st.permutations(range(len(problem.work)))


def check_list_schedule(problem: FlowProblem, ranking: Sequence[int], held: Held) -> None:
    """Assert that at every instant slots go to ready phases by rank, as many as they can use.

    This determines a list schedule: the slots of each phase, and that none idles. Instants
    are looked at in the middle between two changes.
    """
    ends = [max((end for _, end, _ in own), default=0.0) for own in held]
    horizon = max(ends)
    dust = EXACT * horizon
    cuts = sorted({0.0, *(at for own in held for piece in own for at in piece[:2])})
    for start, end in pairwise(cuts):
        if end - start <= dust:
            continue
        middle = (start + end) / 2
        free = problem.capacity.tolist()
        for phase in ranking:
            mine = sum(slots for a, b, slots in held[phase] if a <= middle < b)
            is_ready = all(ends[other] <= start + dust for other in problem.before[phase])
            share = 0
            if is_ready and ends[phase] > middle:
                share = min(int(problem.max_share[phase]), free[problem.kind[phase]])
            assert mine == share, f"phase {phase} holds {mine}, not {share}, at {middle}"
            free[problem.kind[phase]] -= share


def check_pieces(problem: FlowProblem, held: Held) -> None:
    """Assert that each phase does all of its work in pieces that do not overlap."""
    for phase, own in enumerate(held):
        area = sum((end - start) * slots for start, end, slots in own)
        assert abs(area - problem.work[phase]) <= EXACT * problem.work[phase], phase
        for one, other in pairwise(own):
            assert one[1] <= other[0], f"phase {phase} overlaps itself"

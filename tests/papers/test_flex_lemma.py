"""FLEX, Lemma 1: where some order of the packing scheme is optimal, and where none is."""

from __future__ import annotations

from itertools import permutations

import pytest

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.schedule import Piece, Schedule
from slotwise.plans import plan
from slotwise.policy.packing import pack


def two_jobs() -> tuple[Job, Job]:
    """Two jobs of work 40 that can use 8 slots each."""
    one, other = (Job(name, (Phase("map", Tasks(40, 1.0), slots_max=8),)) for name in "ab")
    return one, other


def test_no_order_reaches_the_optimal_makespan_of_two_jobs() -> None:
    """Lemma 1 fails for the makespan: on 10 slots every order ends at 8.75, but 8 is possible.

    Whoever is first holds 8 slots until 5; the other has done 10 by then and needs 30 / 8 more.
    Half of the slots for each ends both at 8, which the bound shows to be best.
    """
    for order in permutations([0, 1]):
        ends = [pieces[-1][1] for pieces in pack(10, [40, 40], [0, 0], [8, 8], order)]
        assert max(ends) == pytest.approx(8.75)
    shared = Schedule(tuple(Piece(PhaseId(name, "map"), 0.0, 8.0, 5) for name in "ab"))
    shared.check(two_jobs(), Cluster.of_slots(10))
    assert max(shared.completion().values()) == 8.0


def test_a_plan_of_these_jobs_reaches_it_and_proves_it() -> None:
    """FLEX plans a maximum by due dates and not by priority: 8, which meets the bound."""
    chosen = plan(two_jobs(), "flex", objective=Objective("makespan", "max"), slots=10)
    assert chosen.value == pytest.approx(8.0)
    assert chosen.bound == pytest.approx(8.0)
    assert chosen.is_exact


def test_no_order_meets_two_deadlines_that_can_be_met() -> None:
    """X: 2.5 on at most 2 slots, due at 1.5; Y: 2 on 1 slot, due at 3; 2 slots in all."""
    for order in permutations([0, 1]):
        x, y = (pieces[-1][1] for pieces in pack(2, [2.5, 2], [0, 0], [2, 1], order))
        assert x > 1.5 or y > 3
    x, y = (
        Job(name, (Phase("map", Tasks(max_share, work / max_share)),), deadline=due)
        for name, work, max_share, due in (("x", 2.5, 2, 1.5), ("y", 2.0, 1, 3.0))
    )
    for penalty in ("tardy", "tardiness"):
        chosen = plan([x, y], "flex", objective=penalty, slots=2)
        assert chosen.value == pytest.approx(0.0, abs=1e-9)
        assert chosen.is_exact

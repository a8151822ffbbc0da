"""FLEX, Lemma 1: where some order of the packing scheme is optimal, and where none is."""

from __future__ import annotations

from itertools import permutations

import pytest

from slotwise.allocation.bounds import BoundJobs, lower_bound
from slotwise.allocation.packing import pack
from slotwise.api import plan
from slotwise.model.cluster import Cluster
from slotwise.model.job import Job, Phase, PhaseId, Tasks
from slotwise.model.schedule import Piece, Schedule
from slotwise.objective.objective import Objective


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
    jobs = BoundJobs([1, 1], [0, 0], [0, 0], [40, 40], [8, 8], [5, 5])
    assert lower_bound(jobs, 10, "max") == pytest.approx(8.0)


def test_a_plan_of_these_jobs_does_not_claim_to_be_exact() -> None:
    """FLEX for the makespan plans 8.75 at best, with the bound 8, and claims nothing."""
    chosen = plan(two_jobs(), "flex", objective=Objective("makespan", "max"), slots=10)
    assert 8.0 <= chosen.value <= 8.75 + 1e-9
    assert chosen.bound == pytest.approx(8.0)
    assert chosen.is_exact == (chosen.value == pytest.approx(8.0))

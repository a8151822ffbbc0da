"""Schedule.check finds each kind of fault."""

from __future__ import annotations

import pytest

from slotwise.model.cluster import Cluster, Host
from slotwise.model.job import Job, Phase, PhaseId, Tasks
from slotwise.model.schedule import Piece, Schedule

MAP, REDUCE = PhaseId("j", "map"), PhaseId("j", "reduce")
CLUSTER = Cluster((Host("h", {"map": 4, "reduce": 1}),))
JOB = Job(
    "j",
    (
        Phase("map", Tasks(4, 2.0), kind="map", slots_max=3),
        Phase("reduce", Tasks(1, 2.0), kind="reduce", after=frozenset({"map"})),
    ),
)
GOOD = (Piece(MAP, 0, 2, 3), Piece(MAP, 2, 3, 2), Piece(REDUCE, 3, 5, 1))


def test_a_feasible_schedule_passes() -> None:
    """Map by 3, reduce by 5."""
    schedule = Schedule(GOOD)
    schedule.check([JOB], CLUSTER)
    assert schedule.completion() == {"j": 5}


@pytest.mark.parametrize(
    ("pieces", "fault"),
    [
        ((Piece(MAP, 0, 2, 3), Piece(MAP, 2, 2.5, 2), GOOD[2]), "work"),
        ((*GOOD[:2], Piece(MAP, 5, 6, 1), GOOD[2]), "work"),
        (GOOD[:2], "work"),
        ((Piece(MAP, 0, 2, 4), GOOD[2]), "most shares"),
        ((Piece(MAP, 0, 3, 3), Piece(MAP, 3, 4, -1), GOOD[2]), "most shares"),
        ((Piece(MAP, 0, 2, 3), Piece(MAP, 1, 2, 2), GOOD[2]), "overlap"),
        ((*GOOD[:2], Piece(MAP, 3, 3, 2), GOOD[2]), "length"),
        ((*GOOD[:2], Piece(REDUCE, 2.5, 4.5, 1)), "precedence"),
        ((*GOOD, Piece(PhaseId("j", "sort"), 5, 6, 1)), "known phases"),
        ((*GOOD, Piece(PhaseId("k", "map"), 5, 6, 1)), "known phases"),
    ],
)
def test_each_fault_is_found(pieces: tuple[Piece, ...], fault: str) -> None:
    """Work left or done twice, shares, overlaps, empty pieces, order, strangers."""
    with pytest.raises(AssertionError, match=fault):
        Schedule(pieces).check([JOB], CLUSTER)


def test_a_piece_before_the_arrival_is_found() -> None:
    """Nothing of a job is done before it is there."""
    late = Job("j", (Phase("map", Tasks(1, 2.0)),), arrival=1.0)
    Schedule((Piece(MAP, 1, 3, 1),)).check([late], Cluster.of_slots(1))
    with pytest.raises(AssertionError, match="arrival"):
        Schedule((Piece(MAP, 0.5, 2.5, 1),)).check([late], Cluster.of_slots(1))


def test_more_slots_than_there_are_is_found() -> None:
    """Two jobs that keep their own limits hold 6 of 4 slots, but only between 1 and 2."""
    jobs = [Job(name, (Phase("map", Tasks(3, 2.0), kind="map"),)) for name in "ab"]
    one, other = (PhaseId(name, "map") for name in "ab")
    Schedule((Piece(one, 0, 2, 3), Piece(other, 2, 4, 3))).check(jobs, CLUSTER)
    with pytest.raises(AssertionError, match="capacity"):
        Schedule((Piece(one, 0, 2, 3), Piece(other, 1, 3, 3))).check(jobs, CLUSTER)


def test_each_kind_of_slot_has_its_own_capacity() -> None:
    """One reduce slot does not become two because map slots are free."""
    jobs = [Job(name, (Phase("r", Tasks(1, 2.0), kind="reduce"),)) for name in "ab"]
    pieces = tuple(Piece(PhaseId(name, "r"), 0, 2, 1) for name in "ab")
    with pytest.raises(AssertionError, match="capacity"):
        Schedule(pieces).check(jobs, CLUSTER)

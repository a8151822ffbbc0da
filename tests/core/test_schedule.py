"""Schedule.check finds each kind of fault."""

from __future__ import annotations

import pytest

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.schedule import Piece, Schedule

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
        ((Piece(MAP, 0, 2, 4), GOOD[2]), "max shares"),
        ((Piece(MAP, 0, 3, 3), Piece(MAP, 3, 4, -1), GOOD[2]), "max shares"),
        ((Piece(MAP, 0, 2, 3), Piece(MAP, 1, 2, 2), GOOD[2]), "overlap"),
        ((*GOOD[:2], Piece(MAP, 3, 3, 2), GOOD[2]), "length"),
        ((Piece(MAP, 0, 3.2, 2.5), GOOD[2]), "whole"),
        ((*GOOD[:2], Piece(REDUCE, 2.5, 4.5, 1)), "precedence"),
        ((*GOOD, Piece(PhaseId("j", "sort"), 5, 6, 1)), "known phases"),
        ((*GOOD, Piece(PhaseId("k", "map"), 5, 6, 1)), "known phases"),
    ],
)
def test_each_violation_is_found(pieces: tuple[Piece, ...], fault: str) -> None:
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


def test_waiting_passes_through_phases_without_work() -> None:
    """c comes after b and b after a: b has nothing to do, and c still begins when a is done."""
    a, b, c = Tasks(1, 2.0), Tasks(1, 0.0), Tasks(1, 1.0)
    job = Job("j", (Phase("a", a), Phase("b", b, after="a"), Phase("c", c, after="b")))
    first, last = PhaseId("j", "a"), PhaseId("j", "c")
    Schedule((Piece(first, 0, 2, 1), Piece(last, 2, 3, 1))).check([job], Cluster.of_slots(2))
    with pytest.raises(AssertionError, match="precedence"):
        Schedule((Piece(first, 0, 2, 1), Piece(last, 0, 1, 1))).check(
            [job], Cluster.of_slots(2)
        )


def test_a_continuing_phase_begins_when_the_first_is_done() -> None:
    """In a plan, all of it."""
    job = Job("j", (Phase("a", Tasks(2, 1.0)), Phase("b", Tasks(2, 1.0), continues="a")))
    first, then = PhaseId("j", "a"), PhaseId("j", "b")
    Schedule((Piece(first, 0, 1, 2), Piece(then, 1, 2, 2))).check([job], Cluster.of_slots(4))
    with pytest.raises(AssertionError, match="precedence"):
        Schedule((Piece(first, 0, 1, 2), Piece(then, 0, 1, 2))).check(
            [job], Cluster.of_slots(4)
        )


def test_tiny_work_is_checked_as_strictly() -> None:
    """Work of 1e-9 s behind 1,000 s: neither left out in part nor done side by side."""
    seconds = {"a": 1e3, "b": 1e-9, "c": 1e-9}
    jobs = [Job(name, (Phase("p", Tasks(1, work)),)) for name, work in seconds.items()]
    one = Cluster.of_slots(1)

    def schedule(*spans: tuple[str, float, float]) -> Schedule:
        return Schedule(tuple(Piece(PhaseId(job, "p"), *span, 1) for job, *span in spans))

    big, small = ("a", 0, 1e3), ("b", 1e3, 1e3 + 1e-9)
    schedule(big, small, ("c", 1e3 + 1e-9, 1e3 + 2e-9)).check(jobs, one)
    with pytest.raises(AssertionError, match="capacity"):
        schedule(big, small, ("c", 1e3, 1e3 + 1e-9)).check(jobs, one)
    with pytest.raises(AssertionError, match="work"):
        schedule(("b", 0, 0.999e-9)).check(jobs[1:2], one)

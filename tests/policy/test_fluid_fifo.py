"""FIFO's plan by events, against the fluid schedule, which decides again each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import PRIORITIES, Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.schedule import Piece, Schedule
from slotwise.policy.fair import Fifo
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.planning import fifo_schedule
from tiers import examples

POOLS = PoolTree([Pool()])
CLUSTERS = [
    Cluster.of_slots(1),
    Cluster.of_slots(5),
    Cluster((Host("h", {"map": 3, "reduce": 2}),)),
]


@st.composite
def some_jobs(draw: st.DrawFn) -> tuple[Job, ...]:
    """Jobs of several phases on two kinds of slots, some of them more urgent than others."""
    jobs = []
    for number in range(draw(st.integers(1, 6))):
        phases: list[Phase] = []
        for place in range(draw(st.integers(1, 4))):
            after = draw(st.sets(st.sampled_from([p.name for p in phases]))) if phases else ()
            phases.append(
                Phase(
                    f"p{place}",
                    Tasks(draw(st.integers(1, 6)), draw(st.sampled_from([0.1, 1.0, 1 / 3, 4]))),
                    kind=draw(st.sampled_from(["map", "reduce"])),
                    after=frozenset(after),
                )
            )
        priority = draw(st.sampled_from(list(PRIORITIES)))
        jobs.append(Job(f"j{number}", tuple(phases), priority=priority))
    return tuple(jobs)


def areas(schedule: Schedule) -> dict[tuple[PhaseId, int], float]:
    """How long each phase holds each number of slots."""
    found: dict[tuple[PhaseId, int], float] = {}
    for p in schedule.pieces:
        found[p.phase, p.slots] = found.get((p.phase, p.slots), 0.0) + p.end - p.start
    return {key: round(seconds, 9) for key, seconds in found.items() if seconds > 1e-9}


@settings(max_examples=examples(15, slow=1000))
@given(some_jobs(), st.sampled_from(CLUSTERS))
def test_it_is_the_fluid_schedule(jobs: tuple[Job, ...], cluster: Cluster) -> None:
    """The same completions, and each number of slots held for as long."""
    fast, slow = fifo_schedule(jobs, cluster), fluid_schedule(jobs, cluster, POOLS, Fifo())
    fast.check(jobs, cluster)
    done = {job: round(at, 9) for job, at in slow.completion().items()}
    assert {job: round(at, 9) for job, at in fast.completion().items()} == done
    assert areas(fast) == areas(slow)


def test_a_phase_that_comes_first_takes_slots_from_later_ones() -> None:
    """The first job's reduce is ready at 2: the second job stops, and continues at 3."""
    first = Job(
        "a", (Phase("m", Tasks(1, 2.0)), Phase("r", Tasks(3, 1.0), after=frozenset({"m"})))
    )
    jobs = (first, Job("b", (Phase("m", Tasks(2, 3.0)),)))
    assert fifo_schedule(jobs, Cluster.of_slots(3)).pieces == (
        Piece(PhaseId("a", "m"), 0.0, 2.0, 1),
        Piece(PhaseId("b", "m"), 0.0, 2.0, 2),
        Piece(PhaseId("a", "r"), 2.0, 3.0, 3),
        Piece(PhaseId("b", "m"), 3.0, 4.0, 2),
    )


def test_pieces_are_few_however_many_wait() -> None:
    """A thousand jobs of one task on two slots: a piece each."""
    jobs = [Job(f"j{n}", (Phase("m", Tasks(1, 1.0 + n % 7)),)) for n in range(1000)]
    assert len(fifo_schedule(jobs, Cluster.of_slots(2)).pieces) == 1000

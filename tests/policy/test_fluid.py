"""Plans: the schedule of an allocator from one instant on, in whole slots."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from math import ceil, floor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oracles.packing_scheme import pack_by_the_book
from slotwise.core.cluster import Cluster, Host
from slotwise.core.errors import InputError
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.schedule import Piece
from slotwise.policy.allocator import Allocator
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flex import Flex
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.las import Las
from slotwise.policy.malleable import Malleable, wrap_around
from slotwise.policy.planning import plan_schedules
from slotwise.policy.search.budget import Budget
from slotwise.policy.uwfq import Uwfq
from tiers import examples

DEFAULT = PoolTree([Pool()])


def job(
    name: str, work: float, min_share: int = 0, max_share: int = 100, **rest: object
) -> Job:
    """A job of one phase whose work divides over 1000 tasks."""
    phase = Phase("map", Tasks(1000, work / 1000), slots_min=min_share, slots_max=max_share)
    return Job(name, (phase,), **rest)


@st.composite
def static_jobs(draw: st.DrawFn, dag: bool = True, capacity: int = 8) -> tuple[Job, ...]:
    """Jobs that are all present at 0, some of them with phases that wait for others."""
    jobs = []
    for number in range(draw(st.integers(1, 5))):
        phases: list[Phase] = []
        for place in range(draw(st.integers(1, 3)) if dag else 1):
            max_share = draw(st.integers(1, capacity + 3))
            work = draw(st.sampled_from([1.0, 4.0, 12.0]) | st.floats(0.1, 50))
            after = draw(st.sets(st.sampled_from([p.name for p in phases]))) if phases else ()
            phases.append(
                Phase(
                    f"p{place}",
                    Tasks(20, work / 20),
                    after=frozenset(after),
                    slots_min=draw(st.integers(0, min(2, max_share))),
                    slots_max=max_share,
                )
            )
        weight = draw(st.sampled_from([0.3, 1.0, 2.0]))
        pool = draw(st.sampled_from(["a", "b"]))
        jobs.append(Job(f"j{number}", tuple(phases), weight=weight, pool=pool))
    return tuple(jobs)


ALLOCATORS: list[Allocator] = [
    Fifo(),
    Fair(),
    Flex(),
    Flex(Objective("stretch")),
    Flex(Objective("makespan", "max")),
    Flex(Objective("slowdown"), budget_seconds=0.001),
    Las(),
    Uwfq(),
]
POOLS = PoolTree(
    [Pool("a", 2.0, {"task": 2}, {"task": 5}), Pool("b", 0.7, {}, {}, policy="fifo")]
)
NESTED = PoolTree(
    [
        Pool("top", slots_max={"task": 6}),
        Pool("middle", 2.0, {"task": 3}, parent="top"),
        Pool("a", 2.0, {"task": 2}, {"task": 5}, parent="middle", job_weights="size"),
        Pool("b", policy="fifo", parent="top"),
    ]
)


@settings(max_examples=examples(15, slow=1000))
@given(static_jobs(), st.sampled_from(ALLOCATORS), st.sampled_from([POOLS, NESTED]))
def test_every_plan_is_feasible(
    jobs: tuple[Job, ...], allocator: Allocator, pools: PoolTree
) -> None:
    """Capacity, max shares of jobs and pools, precedence, all work, by all allocators."""
    cluster = Cluster.of_slots(8)
    for schedule in plan_schedules(jobs, cluster, pools, allocator).schedules:
        schedule.check(jobs, cluster)
        pool_of = {one.id: one.pool for one in jobs}
        assert most_at_once([p for p in schedule.pieces if pool_of[p.phase.job] == "a"]) <= 5
        assert most_at_once(list(schedule.pieces)) <= (6 if "top" in pools else 8)


def most_at_once(pieces: list[Piece]) -> int:
    """The most slots that these pieces hold at one instant."""
    changes: defaultdict[float, int] = defaultdict(int)
    for piece in pieces:
        # Ends within rounding of a start free their slots first.
        changes[piece.start] += piece.slots
        changes[piece.end - 1e-9 * max(1.0, piece.end)] -= piece.slots
    held = held_max = 0
    for instant in sorted(changes):
        held += changes[instant]
        held_max = max(held_max, held)
    return held_max


def test_a_pool_never_exceeds_its_max_share_by_a_fraction() -> None:
    """Two jobs of a pool limited to 1 slot get half a slot each, never both at one time."""
    jobs = [job("a1", 1, pool="a"), job("b1", 1), job("a2", 1, pool="a"), job("b2", 1)]
    pools = PoolTree([Pool("a", slots_max={"task": 1}), Pool(slots_max={"task": 1})])
    (schedule,) = plan_schedules(jobs, Cluster.of_slots(2), pools, Fair()).schedules
    schedule.check(jobs, Cluster.of_slots(2))
    assert most_at_once([p for p in schedule.pieces if p.phase.job.startswith("a")]) == 1


def test_phases_of_inner_pools_run_in_parallel() -> None:
    """Half slots in two pools within one limited to 1 are never two slots at one time."""
    pools = PoolTree(
        [
            Pool("z", slots_max={"task": 1}),
            Pool("a", parent="z"),
            Pool("y", parent="z"),
            Pool("m", slots_max={"task": 1}),
        ]
    )
    jobs = [job("a1", 1, pool="a"), job("m1", 1, pool="m"), job("m2", 1, pool="m")]
    jobs.append(job("y1", 1, pool="y"))
    (schedule,) = plan_schedules(jobs, Cluster.of_slots(2), pools, Fair()).schedules
    schedule.check(jobs, Cluster.of_slots(2))
    assert most_at_once([p for p in schedule.pieces if p.phase.job in ("a1", "y1")]) == 1


@settings(max_examples=examples(15, slow=1000))
@given(static_jobs(dag=False))
def test_for_single_phases_the_fluid_way_is_the_packing_scheme(jobs: tuple[Job, ...]) -> None:
    """Slots given in one order, again at every completion, are those of Fig. 3."""
    cluster = Cluster.of_slots(8)
    pools = PoolTree([Pool("a"), Pool("b")])
    place = {one.id: number for number, one in enumerate(reversed(jobs))}

    def backwards(problem: Malleable) -> list[int]:
        return list(range(len(problem)))[::-1]

    phases = [one.phases[0] for one in jobs]
    max_share = [float(min(phase.slots_most, 8)) for phase in phases]
    min_share = [
        float(min(phase.slots_min, m)) for phase, m in zip(phases, max_share, strict=True)
    ]
    if sum(min_share) > 8:
        return
    work = [phase.tasks.work_total() or 0.0 for phase in phases]
    order = sorted(range(len(jobs)), key=lambda j: place[jobs[j].id])
    packing = pack_by_the_book(8, work, min_share, max_share, order)
    ends = {one.id: pieces[-1][1] for one, pieces in zip(jobs, packing, strict=True)}
    fluid = fluid_schedule(jobs, cluster, pools, Flex(ordering=backwards))
    assert fluid.completion() == pytest.approx(ends)


def jobs_of_a_rounded_share() -> tuple[Job, ...]:
    """Jobs of which one gets 1 + 1.2e-12 slots for a time."""
    given = [(0.15, 1, 2, 0.3), (2.1390625, 0, 6, 0.3), (0.2, 0, 5, 2.0), (0.25, 0, 5, 2.0)]
    return tuple(
        Job(
            f"j{number}",
            (Phase("p0", Tasks(20, work), slots_min=least, slots_max=most),),
            weight=weight,
            pool="a",
        )
        for number, (work, least, most, weight) in enumerate(given)
    )


@settings(max_examples=examples(15, slow=1000))
@given(static_jobs(dag=False))
@example(jobs_of_a_rounded_share())
def test_a_plan_of_single_phases_keeps_min_shares(jobs: tuple[Job, ...]) -> None:
    """In whole slots, each job always holds its min share, rounded down."""
    cluster = Cluster.of_slots(8)
    pools = PoolTree([Pool("a"), Pool("b")])
    for aim in (Objective(), Objective("stretch", "max")):
        planned = plan_schedules(jobs, cluster, pools, Flex(aim), Budget(50))
        (schedule,) = planned.schedules
        schedule.check(jobs, cluster)
        for one in jobs:
            min_share = floor(planned.min_share[one.id] + 1e-9)
            mine = [p for p in schedule.pieces if p.phase.job == one.id]
            assert min_share == 0 or covered(mine, min_share)


def covered(pieces: list[Piece], min_share: int) -> bool:
    """Whether pieces cover the time from 0 on without a gap, each with these slots."""
    now = 0.0
    for piece in pieces:
        if abs(piece.start - now) > 1e-9 * max(1.0, now) or piece.slots < min_share:
            return False
        now = piece.end
    return True


def test_fair_gives_equal_jobs_equal_fractions_of_slots() -> None:
    """Three equal jobs on two slots are done by 6; fractions of slots follow each other."""
    jobs = [job(name, 4) for name in "abc"]
    (schedule,) = plan_schedules(jobs, Cluster.of_slots(2), DEFAULT, Fair()).schedules
    schedule.check(jobs, Cluster.of_slots(2))
    assert schedule.completion() == pytest.approx({"a": 4, "b": 6, "c": 6})
    assert all(piece.slots == 1 for piece in schedule.pieces)


def test_a_reduce_begins_when_its_map_ends() -> None:
    """Map and reduce use different kinds of slots; the reduce waits for the map."""
    phases = (
        Phase("map", Tasks(4, 2.0), kind="map"),
        Phase("reduce", Tasks(2, 3.0), kind="reduce", after=frozenset({"map"})),
    )
    cluster = Cluster((Host("h", {"map": 2, "reduce": 1}),))
    (schedule,) = plan_schedules([Job("j", phases)], cluster, DEFAULT, Fifo()).schedules
    assert schedule.pieces == (
        Piece(PhaseId("j", "map"), 0, 4, 2),
        Piece(PhaseId("j", "reduce"), 4, 10, 1),
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Job("late", (Phase("map", Tasks(1, 1.0)),), arrival=3), "present at time 0"),
        (Job("dim", (Phase("map", Tasks(1)),)), "needs its work"),
        (Job("idle", (Phase("map", Tasks(1, 0.0)),)), "work > 0"),
    ],
)
def test_unplannable_problems_are_refused(wrong: Job, message: str) -> None:
    """Later arrivals, unknown work and no work are refused, naming the job."""
    with pytest.raises(InputError, match=message) as caught:
        plan_schedules([wrong], Cluster.of_slots(1), DEFAULT, Fair())
    assert wrong.id in str(caught.value)


@given(
    st.lists(
        st.sampled_from([0.0, 0.5, 1 / 3, 2 / 3, 1.0, 2.5]) | st.floats(1e-6, 4), max_size=8
    ),
    st.sampled_from([0.0, 7.3]),
    st.sampled_from([1.0, 0.1, 250.0]),
)
def test_wrap_around_gives_whole_slots_and_exact_areas(
    shares: list[float], start: float, length: float
) -> None:
    """Whole slots between floor and ceiling of a share, its area exactly, no overlaps."""
    ids = [PhaseId(f"j{number}", "p") for number in range(len(shares))]
    pieces = wrap_around(list(zip(ids, shares, strict=True)), start, start + length)
    for phase, share in zip(ids, shares, strict=True):
        mine = sorted((p for p in pieces if p.phase == phase), key=lambda p: p.start)
        assert sum((p.end - p.start) * p.slots for p in mine) == pytest.approx(
            share * length, abs=1e-9 * length
        )
        assert all(floor(share) <= p.slots <= ceil(share) for p in mine)
        assert all(isinstance(p.slots, int) for p in mine)
        assert all(a.end <= b.start for a, b in pairwise(mine))
        assert all(start <= p.start < p.end <= start + length for p in mine)
    assert most_at_once(pieces) <= ceil(sum(shares) - 1e-9)


def test_a_tiny_interval_gives_no_empty_piece() -> None:
    """Two jobs may end one rounding error apart, with no instants in between."""
    start = 0.5624999999999999
    pieces = wrap_around([(PhaseId("a", "p"), 2.5), (PhaseId("b", "p"), 0.5)], start, 0.5625)
    assert all(piece.start < piece.end for piece in pieces)

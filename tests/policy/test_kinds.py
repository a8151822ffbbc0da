"""A pool's min or max share for several kinds of slots: the division among these kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool, PoolTree, ShareKey
from slotwise.policy.allocator import Allocator, Claims
from slotwise.policy.claims import group_by_shares, urgencies
from slotwise.policy.fair import Fair, Fifo
from slotwise.policy.flex import AddOn, Flex
from slotwise.policy.flowflex.allocator import FlowFlex
from slotwise.policy.las import Las
from slotwise.policy.resource_shares import share_all
from slotwise.policy.uwfq import Uwfq
from tiers import examples

ROUNDING = 1e-6
INF = float("inf")
ALLOCATORS = (
    Fifo(),
    Fair(),
    Flex(),
    Flex(Objective("response", "max")),
    AddOn(),
    FlowFlex(method="fast"),
    Las(),
    Uwfq(),
)


@dataclass(frozen=True)
class Problem:
    """Jobs of one phase in pools on a cluster; the jobs in order of arrival."""

    jobs: Sequence[Job]
    pools: PoolTree
    cluster: Cluster

    def claims(self) -> dict[str, Claims]:
        """Their claims on each kind of slot."""
        found = {}
        for kind, capacity in self.cluster.capacity.items():
            places = [n for n, job in enumerate(self.jobs) if self.kind(job) == kind]
            jobs = [self.jobs[n] for n in places]
            phases = [job.phases[0] for job in jobs]
            paths = [self.path(job) for job in jobs]
            group, groups = group_by_shares(paths, self.pools)
            if jobs:
                found[kind] = Claims(
                    capacity,
                    weight=[job.share_weight for job in jobs],
                    arrival=[job.arrival for job in jobs],
                    work=[phase.tasks.work_total() for phase in phases],
                    min_share=[min(phase.slots_min, phase.slots_most) for phase in phases],
                    max_share=[phase.slots_most for phase in phases],
                    group=group,
                    groups=groups,
                    owner=list(zip(jobs, phases, strict=True)),
                    cluster=self.cluster,
                    priority=urgencies(jobs),
                    place=places,
                )
        return found

    def kind(self, job: Job) -> str:
        """The kind of slots that a job draws on."""
        return self.cluster.slot_kind(job.phases[0].kind)

    def path(self, job: Job) -> tuple[ShareKey, ...]:
        """The shares that a job counts against."""
        return self.pools.shares(job.pool, job.phases[0].kind)

    def share(self, allocator: Allocator, is_whole: bool = False) -> dict[str, float]:
        """The slots of each job."""
        found = {}
        for kind, shares in share_all(allocator, self.claims(), is_whole=is_whole).items():
            mine = [job for job in self.jobs if self.kind(job) == kind]
            found |= {job.id: share for job, share in zip(mine, shares, strict=True)}
        return found

    def members(self) -> dict[ShareKey, list[int]]:
        """The jobs that count against each share."""
        found: dict[ShareKey, list[int]] = {}
        for number, job in enumerate(self.jobs):
            for key in self.path(job):
                found.setdefault(key, []).append(number)
        return found


def job(name: str, kind: str, count: int, work: float = 1.0, **rest: object) -> Job:
    """A single-phase job of equal tasks."""
    return Job(name, (Phase("p", Tasks(count, work), kind),), **rest)


def problem(jobs: Sequence[Job], *pools: Pool, slots: int = 8) -> Problem:
    """Jobs on a host with equal numbers of map and reduce slots."""
    cluster = Cluster((Host("h", {"map": slots, "reduce": slots}),))
    tree = PoolTree(pools).with_pools([job.pool for job in jobs])
    return Problem(jobs, tree, cluster)


def test_fifo_goes_in_order_over_all_kinds() -> None:
    """Three slots: two for the reduces that came first, and one for the maps."""
    jobs = [job("r", "reduce", 2, pool="a"), job("m", "map", 9, pool="a")]
    found = problem(jobs, Pool("a", slots_max=3)).share(Fifo())
    assert found == {"r": 2, "m": 1}


def test_priorities_count_over_all_kinds() -> None:
    """The maps came later but have high priority; on each kind alone all are equal."""
    jobs = [
        job("r", "reduce", 9, pool="a"),
        job("m", "map", 2, arrival=1.0, pool="a", priority="high"),
    ]
    assert problem(jobs, Pool("a", slots_max=3)).share(Fifo()) == {"r": 1, "m": 2}


def test_fair_shares_the_number_by_weight() -> None:
    """Of three slots the job of weight 2 gets two, although it uses another kind."""
    jobs = [
        job("r", "reduce", 9, pool="a"),
        job("m", "map", 9, pool="a", weight=2.0),
        job("o", "map", 9, pool="b"),
    ]
    found = problem(jobs, Pool("a", slots_max=3)).share(Fair())
    assert found == pytest.approx({"r": 1, "m": 2, "o": 6})


@pytest.mark.parametrize("allocator", [Flex(), AddOn(), FlowFlex(method="fast")])
def test_flex_gives_them_to_the_shortest_job(allocator: Allocator) -> None:
    """Two of three slots are for the job of two short reduces, the third for the long maps."""
    jobs = [job("m", "map", 9, 10.0, pool="a"), job("r", "reduce", 2, pool="a")]
    found = problem(jobs, Pool("a", slots_max=3)).share(allocator)
    assert found == pytest.approx({"m": 1, "r": 2})


def test_slots_that_a_pool_has_by_weight_meet_its_guarantee() -> None:
    """It has four reduce slots by its weight, so its guarantee of two takes no map slot."""
    jobs = [
        job("r", "reduce", 9, pool="a"),
        job("m", "map", 9, pool="a"),
        job("o", "map", 9, pool="b", weight=1.0),
    ]
    pools = Pool("a", 0.001, slots_min=2), Pool("b", 1000.0)
    found = problem(jobs, *pools).share(Fair())
    assert found["r"] == 8
    assert found["m"] < 0.001


def test_a_guarantee_covers_all_kinds_together() -> None:
    """A pool of low weight that is guaranteed three has three in all, not of each kind."""
    jobs = [job(kind, kind, 9, pool="a") for kind in ("map", "reduce")]
    jobs += [job(f"other {kind}", kind, 9, pool="b") for kind in ("map", "reduce")]
    pools = Pool("a", 1e-9, slots_min=3), Pool("b")
    found = problem(jobs, *pools).share(Fair())
    assert found["map"] + found["reduce"] == pytest.approx(3)


def test_a_guarantee_is_met_by_the_kind_with_free_slots() -> None:
    """All maps are guaranteed to another pool, so the three are reduces."""
    jobs = [job(kind, kind, 9, pool="a") for kind in ("map", "reduce")]
    jobs += [job(f"other {kind}", kind, 9, pool="b") for kind in ("map", "reduce")]
    pools = Pool("a", 1e-9, slots_min=3), Pool("b", slots_min={"map": 8})
    found = problem(jobs, *pools).share(Fair())
    assert found == pytest.approx(
        {"map": 0, "reduce": 3, "other map": 8, "other reduce": 5}, abs=1e-6
    )


def test_a_guarantee_within_a_limit_of_several_kinds_is_kept() -> None:
    """Of the three slots of the outer pool, two are guaranteed to reduces of two jobs."""
    jobs = [job(name, "map", 1, pool="a1") for name in ("m", "n")]
    jobs += [job("r", "reduce", 2, pool="a1"), job("s", "reduce", 1, pool="a1")]
    pools = Pool("a", slots_max=3), Pool("a1", slots_min={"task": 2, "map": 0}, parent="a")
    found = problem(jobs, *pools, slots=2).share(Fair())
    assert found["r"] + found["s"] == pytest.approx(2)


def test_plans_stay_below_a_max_share_when_slots_are_rounded_up() -> None:
    """1.5 slots of each kind would be two of each; whole slots are two and one."""
    jobs = [job(kind, kind, 9, pool="a") for kind in ("map", "reduce")]
    some = problem(jobs, Pool("a", slots_max=3))
    assert some.share(Fair()) == pytest.approx({"map": 1.5, "reduce": 1.5})
    assert some.share(Fair(), is_whole=True) == {"map": 2, "reduce": 1}


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Pools within pools on two or three kinds; those at the bottom may tell kinds apart."""
    kinds = ["map", "reduce", "task"][: draw(st.integers(2, 3))]
    cluster = Cluster((Host("h", {kind: draw(st.integers(1, 5)) for kind in kinds}),))
    pools: list[Pool] = []
    for name, parent in (("a", None), ("b", None), ("a1", "a"), ("a2", "a"), ("c", None)):
        min_share, max_share = (
            draw(st.sampled_from([0, 0, 1, 2, 5])),
            draw(st.sampled_from([0, 0, 1, 3, 6])),
        )
        by_kind = (
            {"map": draw(st.integers(0, 2))} if name != "a" and draw(st.booleans()) else {}
        )
        limits = {"task": max(min_share, max_share)} if max_share else {}
        pools.append(
            Pool(
                name,
                draw(st.sampled_from([1.0, 3.0, 0.1])),
                slots_min={"task": min_share} | by_kind,
                slots_max=limits | ({"map": 2} if by_kind and draw(st.booleans()) else {}),
                policy=draw(st.sampled_from(["fair", "fifo"])) if name != "a" else "fair",
                parent=parent,
            )
        )
    jobs = []
    for number in range(draw(st.integers(1, 7))):
        count = draw(st.integers(1, 6))
        min_share = min(count, draw(st.sampled_from([0, 0, 0, 1, 2])))
        phase = Phase(
            "p",
            Tasks(count, draw(st.sampled_from([0.5, 1.0, 7.0]))),
            draw(st.sampled_from(["map", "reduce", "copy" if "task" in kinds else "map"])),
            slots_min=min_share,
        )
        jobs.append(
            Job(
                f"j{number}",
                (phase,),
                draw(st.sampled_from([0.0, 1.0])),
                draw(st.sampled_from(["a1", "a2", "b", "c"])),
                weight=draw(st.sampled_from([1.0, 2.0])),
                priority=draw(st.sampled_from(["normal", "high"])),
            )
        )
    jobs.sort(key=lambda job: job.arrival)
    return Problem(jobs, PoolTree(pools), cluster)


@given(problems(), st.sampled_from(ALLOCATORS), st.booleans())
@settings(max_examples=examples(30, slow=3000))
def test_no_number_is_exceeded(some: Problem, allocator: Allocator, is_whole: bool) -> None:
    """No kind exceeds its capacity, no pool its max share; also in whole slots."""
    found = some.share(allocator, is_whole)
    shares = [found[job.id] for job in some.jobs]
    for kind, capacity in some.cluster.capacity.items():
        of_kind = [found[job.id] for job in some.jobs if some.kind(job) == kind]
        assert sum(of_kind) <= capacity + ROUNDING
    for share, job in zip(shares, some.jobs, strict=True):
        assert -ROUNDING <= share <= job.phases[0].slots_most + ROUNDING
    for key, members in some.members().items():
        max_share = some.pools[key.pool].slots_max.get(key.kind, INF)
        by_kind: dict[str, float] = {}
        for number in members:
            kind = some.kind(some.jobs[number])
            by_kind[kind] = by_kind.get(kind, 0.0) + shares[number]
        if is_whole:
            assert sum(ceil(part - ROUNDING) for part in by_kind.values()) <= max_share
        assert sum(by_kind.values()) <= max_share + ROUNDING


@given(problems(), st.sampled_from([a for a in ALLOCATORS if a.keeps_min_shares]))
@settings(max_examples=examples(30, slow=3000))
def test_all_guarantees_are_kept_if_they_can_be(some: Problem, allocator: Allocator) -> None:
    """A linear program decides whether they can; then each phase and pool has its min share."""
    program = _Guarantees(some)
    if not program.can_be_kept:
        return
    found = some.share(allocator)
    for job, min_share in zip(some.jobs, program.min_share, strict=True):
        assert found[job.id] >= min_share - ROUNDING
    for key, members in some.members().items():
        held = sum(found[some.jobs[number].id] for number in members)
        assert held >= program.owed[key] - ROUNDING, key


class _Guarantees:
    """Whether there are shares that keep all guarantees and limits, found by HiGHS.

    The guarantee of a pool is cut to what its jobs can use within their max shares.
    """

    def __init__(self, some: Problem) -> None:
        self.min_share = [min(j.phases[0].slots_min, j.phases[0].slots_most) for j in some.jobs]
        max_share = [job.phases[0].slots_most for job in some.jobs]
        members = some.members()
        limits = {
            key: (
                _row(inside, len(max_share)),
                some.pools[key.pool].slots_max.get(key.kind, INF),
            )
            for key, inside in members.items()
        }
        self.owed = {}
        for key, inside in members.items():
            paths = [some.path(some.jobs[number]) for number in inside]
            below = [limits[other] for path in paths for other in path[path.index(key) :]]
            can_use = _solve(
                -_row(inside, len(max_share)), below, [0.0] * len(max_share), max_share
            )
            assert can_use is not None
            min_share = some.pools[key.pool].slots_min.get(key.kind, 0)
            self.owed[key] = min(min_share, -can_use)
        rows = list(limits.values())
        rows += [
            (-_row(inside, len(max_share)), -self.owed[key]) for key, inside in members.items()
        ]
        for kind, capacity in some.cluster.capacity.items():
            of_kind = [n for n, job in enumerate(some.jobs) if some.kind(job) == kind]
            rows.append((_row(of_kind, len(max_share)), capacity))
        self.can_be_kept = (
            _solve(np.zeros(len(max_share)), rows, self.min_share, max_share) is not None
        )


def _row(members: Sequence[int], count: int) -> np.ndarray:
    row = np.zeros(count)
    row[list(members)] = 1.0
    return row


def _solve(
    goal: np.ndarray,
    rows: Sequence[tuple[np.ndarray, float]],
    min_share: Sequence[float],
    max_share: Sequence[float],
) -> float | None:
    """The minimum of the goal; None if there is no solution."""
    rows = [(row, right) for row, right in rows if right < INF]
    matrix = [row for row, _ in rows] or None
    right = [right for _, right in rows] or None
    found = linprog(goal, matrix, right, bounds=list(zip(min_share, max_share, strict=True)))
    return float(found.fun) if found.status == 0 else None

"""FLEX 4.2: the jobs, the information of the schedulers, and the results."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import pstdev

import numpy as np
import pytest

from experiments.flex.cluster_experiment import (
    ClusterSetting,
    SharedLeast,
    experiment,
    mean_response,
)
from experiments.flex.cluster_jobs import (
    SIZE_MEAN,
    Drawing,
    GridMix,
    SpreadJobs,
    uneven_cluster,
)
from slotwise.core.job import Job, Shuffle
from slotwise.policy.allocator import Claims
from tiers import examples


def drawn(jobs: Drawing, run: int = 0) -> list[Job]:
    """The jobs of one experiment."""
    return jobs.draw(np.random.default_rng([3, run]))


def maps_of(jobs: list[Job]) -> list[int]:
    """The number of maps of each job."""
    return [job.by_name["map"].tasks.count for job in jobs]


def test_the_cluster_is_that_of_the_paper() -> None:
    """26 hosts, 13 in one rack and 13 of twice the cores each by itself; a core has a slot."""
    cluster = uneven_cluster()
    assert cluster.capacity == {"map": 78, "reduce": 78}
    racks = [host.rack for host in cluster.hosts]
    assert (len(racks), racks.count("rack"), len(set(racks))) == (26, 13, 14)
    assert {sum(host.slots.values()) for host in cluster.hosts} == {4, 8}


def test_sizes_have_the_given_deviation() -> None:
    """At 0 all are equal; at 4 the smallest is a tenth of the largest. The unit is that of the
    paper."""
    assert len(set(maps_of(drawn(SpreadJobs(spread=0))))) == 1
    for spread in (1, 4):
        maps = maps_of(drawn(SpreadJobs(spread=spread)))
        assert pstdev(maps) * SIZE_MEAN / 560 == pytest.approx(spread, rel=0.01)
    assert max(maps) / min(maps) == pytest.approx(10, rel=0.02)


def test_points_of_one_experiment_differ_only_in_their_parameter() -> None:
    """Arrivals grow with the gap; the order of the sizes stays the same."""
    one, other = drawn(SpreadJobs(gap=1.0, spread=1)), drawn(SpreadJobs(gap=2.0, spread=3))
    assert one[0].arrival == 0.0 < one[1].arrival
    assert [job.arrival for job in other] == pytest.approx([2 * job.arrival for job in one])
    assert np.argsort(maps_of(one)).tolist() == np.argsort(maps_of(other)).tolist()


def test_more_jobs_are_smaller_in_proportion() -> None:
    """Forty jobs have the work of ten, except for the rounding of their tasks."""
    ten, forty = (sum(maps_of(drawn(SpreadJobs(jobs=count)))) for count in (10, 40))
    assert forty == pytest.approx(ten, rel=0.01)


def test_the_largest_may_come_first() -> None:
    """The others come in random order after it."""
    maps = maps_of(drawn(SpreadJobs(spread=4, largest_first=True)))
    assert maps[0] == max(maps)
    assert sorted(maps) == sorted(maps_of(drawn(SpreadJobs(spread=4))))


def test_the_mix_has_the_number_of_jobs_of_the_paper() -> None:
    """172 jobs; a query is three stages, each of which waits for the one before."""
    jobs = drawn(GridMix())
    assert len(jobs) == 172
    assert {len(job.phases) for job in jobs} == {2, 6}
    query = next(job for job in jobs if len(job.phases) == 6)
    assert [next(iter(phase.after), None) for phase in query.phases] == [
        None, "map-1", "reduce-1", "map-2", "reduce-2", "map-3",
    ]  # fmt: skip


@dataclass
class Recorder:
    """An allocator that records its claims and allocates nothing."""

    reads_work: bool
    phase_seconds: float = 1e-5
    keeps_min_shares: bool = True
    claims: list[Claims] = field(default_factory=list)

    def share(self, claims: Claims) -> list[float]:
        """Record the claims; no slots for anybody."""
        self.claims.append(claims)
        return [0.0] * len(claims)


def min_shares(claims: Claims, slack: float, reads_work: bool = False) -> list[float]:
    """The min shares in the claims of an allocator."""
    recorder = Recorder(reads_work)
    SharedLeast(recorder, slack).share(claims)
    return list(recorder.claims[0].min_share)


def test_jobs_divide_the_min_share_of_their_pool_equally() -> None:
    """6 of 10 slots for three jobs are 2 each; the rest of a narrow one goes to the others."""
    assert min_shares(Claims.of(10, [50, 50, 50]), 0.4) == pytest.approx([2, 2, 2])
    narrow = Claims.of(10, [50, 50, 1], max_share=[10, 10, 1])
    assert min_shares(narrow, 0.4) == pytest.approx([2.5, 2.5, 1])


def test_a_phase_of_unknown_work_has_a_min_share_of_one_slot() -> None:
    """While none of its tasks is done, for allocators that read work."""
    claims = Claims.of(10, [50, 50, 50])
    assert min_shares(claims, 0.9, reads_work=True) == [1, 1, 1]
    known = replace(
        claims, max_share=[9.0, 10.0, 10.0]
    )  # One of ten tasks of the first is done.
    assert min_shares(known, 0.9, reads_work=True) == pytest.approx([1 / 3, 1, 1])
    assert min_shares(known, 0.9) == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("scheme", ["fair", "flex"])
def test_a_job_alone_takes_its_longest_path(scheme: str) -> None:
    """78 maps of 30 s at once, then 78 reduces: 10 s to copy and 60 s to compute."""
    setting = ClusterSetting(SpreadJobs(jobs=1, maps=7.8, reduces=7.8), noise=0.0)
    assert mean_response(setting, scheme, 0, 0) == pytest.approx(100 / 60)


SMALL = SpreadJobs(jobs=4, maps=160.0, reduces=40.0, spread=3)
"""Four jobs of 400 maps and 100 reduces on average."""


def test_flex_is_better_than_fair_and_more_so_with_slack() -> None:
    """FAIR does not depend on the slack; the gain of FLEX grows with it."""
    jobs = replace(SMALL, maps=float(examples(80, slow=160)), reduces=20.0)
    tight, loose = (experiment(ClusterSetting(jobs, slack=s), 0, 0) for s in (0.15, 0.95))
    assert tight["fair"] == pytest.approx(loose["fair"], rel=0.01)
    assert loose["flex"] < tight["flex"] < tight["fair"]


def test_the_same_numbers_give_the_same_experiment() -> None:
    """The number of an experiment determines its jobs."""
    setting = ClusterSetting(SpreadJobs(jobs=2, maps=30.0, reduces=10.0))
    one = experiment(setting, 0, 0)
    assert experiment(setting, 0, 0) == one
    assert experiment(setting, 0, 1) != one


@pytest.mark.slow
def test_separate_copying_frees_the_reduce_slots_that_a_large_job_hoards() -> None:
    """The largest job arrives first and takes all reduce slots, unless copying is separate."""
    jobs = replace(SMALL, spread=4, gap=0.5, largest_first=True)
    held = experiment(ClusterSetting(jobs), 0, 0)
    apart = Shuffle(slow_start=0.05, split=True, copies_per_job=39)
    split = experiment(ClusterSetting(jobs, shuffle=apart), 0, 0)
    assert split["fair"] < 0.9 * held["fair"]
    assert split["flex"] < 0.8 * held["flex"]

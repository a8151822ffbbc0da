"""LAS: the least attained service first, in single decisions, in plans and in runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.fluid_references import FluidJob, course, least_attained
from oracles.pools import INF, inside, pooled, trees
from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool, PoolTree
from slotwise.insight.metrics import MetricsCollector
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.las import Las
from tiers import examples

Simulate = Callable[..., object]


def test_the_job_of_least_attained_service_gets_all_that_it_can_use() -> None:
    """Of 10 slots, the job that attained 2 takes its max share of 6, the next one the rest."""
    claims = replace(Claims.of(10, [9, 9, 9], max_share=[9, 6, 9]), attained=[5, 2, 7])
    assert Las().share(claims) == [4, 6, 0]


def test_jobs_at_the_same_level_share_by_weight() -> None:
    """Jobs of weight 1 and 2 that attained 3 and 6 are level: 9 slots are 3 and 6."""
    claims = replace(Claims.of(9, [9, 9, 9], weight=[1, 2, 1]), attained=[3, 6, 4])
    assert Las().share(claims) == pytest.approx([3, 6, 0])


def test_a_job_of_several_phases_counts_once_at_its_level() -> None:
    """Three phases of a job and one of another that are level: 2 for each phase, and 6."""
    members = [(0, 0, 9)] * 4
    claims = pooled(12, members, [Group(1, 0, INF)], jobs=[0, 0, 0, 3])
    claims = replace(claims, attained=[3, 3, 3, 3])
    assert Las().share(claims) == pytest.approx([2, 2, 2, 6])


def test_levels_that_differ_by_rounding_are_the_same() -> None:
    """0.1 + 0.2 and 0.3 are one level."""
    claims = replace(Claims.of(8, [9, 9]), attained=[0.1 + 0.2, 0.3])
    assert Las().share(claims) == pytest.approx([4, 4])


def test_min_shares_come_first() -> None:
    """The job that attained most keeps its min share of 3."""
    claims = replace(Claims.of(8, [9, 9], min_share=[3, 0]), attained=[90, 0])
    assert Las().share(claims) == [3, 5]


def test_a_min_share_counts_among_jobs_at_the_same_level() -> None:
    """Two jobs share 8 slots equally although one is guaranteed 3."""
    claims = Claims.of(8, [9, 9], min_share=[3, 0])
    assert Las().share(claims) == pytest.approx([4, 4])


def test_a_pool_at_its_max_share_leaves_the_rest_to_others() -> None:
    """Two fresh jobs of a pool limited to 2 get 1 slot each; the job outside gets 6."""
    claims = pooled(8, [(0, 0, 8), (0, 0, 8), (1, 0, 8)], [Group(1, 0, 2), Group(1, 0, INF)])
    assert Las().share(replace(claims, attained=[0, 0, 50])) == pytest.approx([1, 1, 6])


def test_shares_hold_until_a_job_reaches_the_next_level() -> None:
    """A job with 4 slots that attained 2 reaches one without slots that attained 10 in 2 s."""
    claims = replace(Claims.of(4, [99, 99]), attained=[2, 10])
    assert Las().holds_for(claims, Las().share(claims)) == pytest.approx(2.0)


@settings(max_examples=examples(60, slow=2000))
@given(trees(), st.data())
def test_shares_keep_every_limit_and_leave_nothing_that_may_be_used(
    claims: Claims, data: st.DataObject
) -> None:
    """Random trees of pools: max shares, capacity, and no slot idles that a claim may use."""
    attained = [data.draw(st.sampled_from([0.0, 1.0, 1.0, 2.5])) for _ in range(len(claims))]
    shares = Las().share(replace(claims, attained=attained))
    assert sum(shares) <= claims.capacity + 1e-6
    held = [sum(shares[j] for j in inside(claims, p)) for p in range(len(claims.groups))]
    full = [
        total >= group.slots_max - 1e-6
        for total, group in zip(held, claims.groups, strict=True)
    ]
    for total, group in zip(held, claims.groups, strict=True):
        assert total <= group.slots_max + 1e-6
    for j, share in enumerate(shares):
        assert -1e-9 <= share <= claims.max_share[j] + 1e-6
        path = [p for p in range(len(claims.groups)) if j in inside(claims, p)]
        if sum(shares) < claims.capacity - 1e-6 and not any(full[p] for p in path):
            assert share >= claims.max_share[j] - 1e-6, "it could use a slot that is left"


@st.composite
def batches(draw: st.DrawFn) -> list[FluidJob]:
    """Jobs that are present at time 0, some of which can use few slots."""
    number = st.integers(1, 12).map(Fraction)
    weight = st.sampled_from([Fraction(1), Fraction(2), Fraction(1, 2)])
    job = st.builds(
        FluidJob, st.just(Fraction(0)), number, st.integers(1, 4).map(Fraction), weight
    )
    return draw(st.lists(job, min_size=1, max_size=5))


def as_job(number: int, one: FluidJob, tasks: int) -> Job:
    """The job with this number of equal tasks."""
    most = int(one.most)
    phase = Phase("p", Tasks(tasks, float(one.work) / tasks), slots_max=most)
    arrival, weight = float(one.arrival), float(one.weight)
    return Job(f"j{number}", (phase,), arrival=arrival, weight=weight, pool=one.user)


@settings(max_examples=examples(40, slow=1000))
@given(batches())
def test_a_plan_is_the_fluid_limit(batch: list[FluidJob]) -> None:
    """At each event of the fluid system in exact fractions, plans have done the same work."""
    jobs = [as_job(number, one, 12) for number, one in enumerate(batch)]
    plan = fluid_schedule(jobs, Cluster.of_slots(4), PoolTree([Pool("u")]), Las())
    wanted = course(batch, least_attained(4, batch))
    for at, row in zip(wanted.instants, wanted.service, strict=True):
        done = dict.fromkeys([job.id for job in jobs], 0.0)
        for piece in plan.pieces:
            until = min(piece.end, float(at))
            done[piece.phase.job] += max(0.0, until - piece.start) * piece.slots
        assert list(done.values()) == pytest.approx([float(service) for service in row])


@settings(max_examples=examples(5, slow=200))
@given(st.data())
@pytest.mark.slow
def test_a_run_with_small_tasks_follows_the_fluid_limit(
    simulated: Simulate, data: st.DataObject
) -> None:
    """With arrivals and tasks of 0.02 s, each completion differs by less than 20 tasks."""
    batch = [
        FluidJob(
            Fraction(data.draw(st.integers(0, 12)), 4),
            Fraction(data.draw(st.integers(1, 8)), 2),
            Fraction(2),
        )
        for _ in range(data.draw(st.integers(2, 4)))
    ]
    batch.sort(key=lambda one: one.arrival)
    jobs = [as_job(n, one, int(one.work * 50)) for n, one in enumerate(batch)]
    watch = simulated(jobs, Cluster.of_slots(2), [Pool("u")], "las", epoch_seconds=0.01)
    wanted = course(batch, least_attained(2, batch)).completions()
    for job, at in zip(jobs, wanted, strict=True):
        assert abs(watch.state.completed[job.id] - float(at)) < 20 * 0.02


def responses(simulated: Simulate, sizes: list[int], name: str) -> float:
    """The mean response of jobs of these numbers of tasks of 1 s, at load 0.9 on 2 slots."""
    dice, now, jobs = Random(len(sizes)), 0.0, []
    for number, size in enumerate(sizes):
        now += dice.expovariate(0.9 * 2 * len(sizes) / sum(sizes))
        jobs.append(Job(f"j{number}", (Phase("p", Tasks(size, 1.0)),), arrival=now))
    watch = simulated(jobs, Cluster.of_slots(2), (), name)
    return MetricsCollector.of_log(watch.log).outcome().metrics["response_mean"]


@pytest.mark.slow
def test_with_heavy_tails_the_mean_response_is_below_that_of_fair(simulated: Simulate) -> None:
    """Sizes by Pareto's law with exponent 1.1: LAS before FAIR before FIFO, on average."""
    found: dict[str, list[float]] = {"las": [], "fair": [], "fifo": []}
    for seed in range(2):
        dice = Random(seed)
        sizes = [min(60, int(2 * dice.paretovariate(1.1))) for _ in range(30)]
        for name, values in found.items():
            values.append(responses(simulated, sizes, name))
    assert mean(found["las"]) < mean(found["fair"]) < mean(found["fifo"])


def test_with_equal_sizes_it_is_not_better_than_fifo(simulated: Simulate) -> None:
    """Equal jobs under LAS wait for each other, as under FAIR."""
    sizes = [8] * 30
    assert responses(simulated, sizes, "las") > responses(simulated, sizes, "fifo")

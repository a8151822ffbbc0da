"""FAIR's plan in slices of time, against FAIR decided again at each completion."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.schedule import Schedule
from slotwise.policy.allocator import Claims
from slotwise.policy.fair import Fair
from slotwise.policy.fluid import PhaseProgress, progress_of
from slotwise.policy.fluid_fair import FairTimeline, fair_schedule
from slotwise.policy.planning import SLICED_FROM, plain_claims, plan_schedules
from tiers import examples

POOLS = PoolTree(
    [Pool(), Pool("a", 2.0), Pool("b", parent="top"), Pool("c", 3.0, parent="top"), Pool("top")]
)


@st.composite
def many_jobs(draw: st.DrawFn) -> tuple[list[Job], Cluster]:
    """More jobs than slots, some equal, of different weights, in pools within pools."""
    pools = draw(st.sampled_from([["default"], ["a", "b"], ["a", "b", "c", "default"]]))
    works = st.sampled_from([1.0, 2.0, 5.0]) | st.floats(0.01, 9.0)
    jobs = [
        Job(
            f"j{number}",
            (Phase("m", Tasks(tasks, work / tasks)),),
            weight=weight,
            pool=pool,
        )
        for number, (work, tasks, weight, pool) in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        works,
                        st.integers(1, 20),
                        st.sampled_from([1.0, 1.0, 2.0, 5.0]),
                        st.sampled_from(pools),
                    ),
                    min_size=1,
                    max_size=40,
                )
            )
        )
    ]
    return jobs, Cluster.of_slots(draw(st.sampled_from([1, 2, 7, 20, 60])))


def plain(jobs: list[Job], cluster: Cluster) -> tuple[list[PhaseProgress], Claims]:
    """The phases of the jobs, and their claims."""
    claims = plain_claims(jobs, cluster, POOLS)
    assert claims is not None
    return [progress_of(job, phase) for job, phase in claims.owner], claims


def fair_ends(jobs: list[Job], cluster: Cluster) -> dict[str, float]:
    """The completions under FAIR with fractional slots, from event to event."""
    ends, now, left = {}, 0.0, [job.work or 0.0 for job in jobs]
    while jobs:
        _, claims = plain(jobs, cluster)
        shares = Fair().share(claims)
        step = min(work / share for work, share in zip(left, shares, strict=True))
        now += step
        left = [work - share * step for work, share in zip(left, shares, strict=True)]
        done = [work <= 1e-12 * (job.work or 0.0) for work, job in zip(left, jobs, strict=True)]
        ends |= {job.id: now for job, is_done in zip(jobs, done, strict=True) if is_done}
        left = [work for work, is_done in zip(left, done, strict=True) if not is_done]
        jobs = [job for job, is_done in zip(jobs, done, strict=True) if not is_done]
    return ends


@settings(max_examples=examples(15, slow=1000))
@given(many_jobs())
def test_it_is_feasible_and_nobody_is_done_later(problem: tuple[list[Job], Cluster]) -> None:
    """All work, never more slots than the capacity, no completion later than under FAIR."""
    jobs, cluster = problem
    schedule = fair_schedule(*plain(jobs, cluster))
    schedule.check(jobs, cluster)
    done = schedule.completion()
    for job, end in fair_ends(jobs, cluster).items():
        assert done[job] <= end * (1 + 1e-9)


@settings(max_examples=examples(15, slow=1000))
@given(many_jobs())
def test_levels_determine_when_jobs_end(problem: tuple[list[Job], Cluster]) -> None:
    """Completions are those of FAIR, with more and with fewer slots than jobs."""
    jobs, cluster = problem
    _, claims = plain(jobs, cluster)
    ends = zip(claims.owner, FairTimeline(claims).completion, strict=True)
    found = {job.id: end for (job, _), end in ends}
    assert found == pytest.approx(fair_ends(jobs, cluster))


def work_by(schedule: Schedule, instant: float) -> dict[str, float]:
    """The work done on each job by an instant."""
    done: dict[str, float] = {}
    for p in schedule.pieces:
        seconds = max(0.0, min(p.end, instant) - p.start)
        done[p.phase.job] = done.get(p.phase.job, 0.0) + seconds * p.slots
    return done


def test_at_the_end_of_a_slice_all_jobs_have_had_their_share() -> None:
    """A hundred jobs of 1 s to 100 s on two slots, the first slice until the 26th is done.

    Then all others have had 26 s, too. Each of the first jobs completes as under FAIR.
    """
    jobs = [Job(f"j{n}", (Phase("m", Tasks(1, float(n))),)) for n in range(1, 101)]
    cluster = Cluster.of_slots(2)
    schedule = fair_schedule(*plain(jobs, cluster))
    ends = fair_ends(jobs, cluster)
    done = work_by(schedule, ends["j26"])
    assert done == pytest.approx({f"j{n}": float(min(n, 26)) for n in range(1, 101)})
    completion = schedule.completion()
    assert completion == pytest.approx(ends, rel=0.02)
    assert sum(completion[job] == pytest.approx(end) for job, end in ends.items()) > 80


def test_pieces_are_few_however_many_share() -> None:
    """Of n jobs that share a few slots, each has a few pieces, not n."""
    cluster = Cluster.of_slots(10)
    jobs = [
        Job(f"j{n}", (Phase("m", Tasks(4, 1.0 + n * 0.618 % 1)),))
        for n in range(2 * SLICED_FROM)
    ]
    pieces = []
    for count in (SLICED_FROM, 2 * SLICED_FROM):
        (schedule,) = plan_schedules(jobs[:count], cluster, POOLS, Fair()).schedules
        schedule.check(jobs[:count], cluster)
        pieces.append(len(schedule.pieces))
    assert pieces[1] <= 2.5 * pieces[0] <= 2.5 * 12 * SLICED_FROM


def test_a_pool_with_more_slots_than_jobs_does_not_slow_down_the_others() -> None:
    """One of ten jobs has its own pool with most of the slots: there are still few pieces."""
    cluster = Cluster.of_slots(40)
    tree = PoolTree([Pool(), Pool("a", 4.0)])
    jobs = [
        Job(
            f"j{n}",
            (Phase("m", Tasks(8, 1.0 + n * 0.618 % 1)),),
            pool="default" if n % 10 else "a",
        )
        for n in range(SLICED_FROM)
    ]
    (schedule,) = plan_schedules(jobs, cluster, tree, Fair()).schedules
    schedule.check(jobs, cluster)
    assert len(schedule.pieces) < 50 * SLICED_FROM
    claims = plain_claims(jobs, cluster, tree)
    assert claims is not None
    ends, done = FairTimeline(claims).completion, schedule.completion()
    by_fair = {job.id: end for (job, _), end in zip(claims.owner, ends, strict=True)}
    assert all(done[job] <= end * (1 + 1e-9) for job, end in by_fair.items())
    assert sum(done.values()) == pytest.approx(sum(by_fair.values()), rel=0.01)


@pytest.mark.parametrize(
    "pools", [[Pool("a", slots_min={"task": 1})], [Pool("a", job_weights="size")]]
)
def test_cases_that_slices_cannot_represent_are_planned_by_events(pools: list[Pool]) -> None:
    """Guarantees of pools, and weights that change during a job, with a few jobs."""
    jobs = [Job(f"j{n}", (Phase("m", Tasks(1, 1.0)),), pool="a") for n in range(SLICED_FROM)]
    cluster = Cluster.of_slots(2 * SLICED_FROM)
    (schedule,) = plan_schedules(jobs, cluster, PoolTree(pools), Fair()).schedules
    assert {(p.start, p.end, p.slots) for p in schedule.pieces} == {(0.0, 1.0, 1)}

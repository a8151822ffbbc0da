"""UWFQ: virtual finish, the order of service, and what it promises to users and jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.fluid_references import FairTimeline, FluidJob, course, fair_to_users
from oracles.pools import INF, inside, pooled, trees
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode, encode
from slotwise.core.decisions import Reallocate, VirtualTime
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.pools import Pool, PoolTree
from slotwise.insight.replay import replay_log
from slotwise.insight.timeline import timeline_of
from slotwise.policy.allocator import Claims, Group
from slotwise.policy.fluid import fluid_schedule
from slotwise.policy.uwfq import Sized, Uwfq, advanced, user_weight
from tiers import examples

Simulate = Callable[..., object]

TREE = PoolTree([Pool("a"), Pool("b"), Pool("c", weight=2.0)])
EMPTY = VirtualTime(0.0, 4)


def sized(name: str, size: float, attained: float = 0.0, weight: float = 1.0) -> Sized:
    """A job of this size, in the pool that its name begins with."""
    job = Job(name, (Phase("p", Tasks(1, size)),), pool=name[0], weight=weight)
    return Sized(job, size, attained)


def test_the_earliest_virtual_finish_gets_all_that_it_can_use() -> None:
    """Of 10 slots, the job that finishes first takes its max share of 6, the next one 4."""
    claims = replace(Claims.of(10, [9, 9, 9], max_share=[9, 6, 9]), finish=[5, 2, 7])
    assert Uwfq().share(claims) == [4, 6, 0]


def test_min_shares_come_first() -> None:
    """The job that finishes last keeps its min share of 3."""
    claims = replace(Claims.of(8, [9, 9], min_share=[3, 0]), finish=[90, 1])
    assert Uwfq().share(claims) == [3, 5]


def test_a_fifo_pool_keeps_its_places_but_serves_its_first_job_first() -> None:
    """The places 1 and 3 of the pool go to its jobs in order of arrival; 2 is another's."""
    claims = pooled(
        8,
        [(0, 0, 4), (0, 0, 4), (1, 0, 3)],
        [Group(1, 0, INF, "fifo"), Group(1, 0, INF)],
    )
    assert Uwfq().share(replace(claims, finish=[3, 1, 2])) == [4, 1, 3]


def test_all_phases_of_a_job_have_the_place_that_its_fifo_pool_gives_it() -> None:
    """The first job takes the place 1 with both phases, before 2 of another pool."""
    claims = pooled(
        8,
        [(0, 0, 3), (0, 0, 3), (0, 0, 3), (1, 0, 3)],
        [Group(1, 0, INF, "fifo"), Group(1, 0, INF)],
        jobs=[0, 0, 2, 3],
    )
    assert Uwfq().share(replace(claims, finish=[3, 3, 1, 2])) == [3, 3, 0, 2]


def test_users_share_and_each_serves_its_jobs_one_after_another() -> None:
    """Jobs of 4 and 8 of one user finish at 4 and 12, one of 6 of another at 6."""
    virtual = advanced(EMPTY, [sized("a1", 8), sized("a2", 4), sized("b", 6)], TREE, 0.0, 4)
    assert virtual.finish == {"a2": 4, "a1": 12, "b": 6}


def test_a_user_of_twice_the_weight_finishes_in_half_of_the_virtual_time() -> None:
    """6 slot-seconds are 3 for a user of weight 2."""
    assert advanced(EMPTY, [sized("c", 6)], TREE, 0.0, 4).finish == {"c": 3}


def test_a_later_job_begins_at_the_virtual_time_of_its_arrival() -> None:
    """Two users have got 2 each after a second on 4 slots: a third one's job of 1 is at 3."""
    jobs = [sized("a", 8), sized("b", 8)]
    virtual = advanced(EMPTY, jobs, TREE, 0.0, 4)
    tree = PoolTree([*TREE.values(), Pool("d")])
    virtual = advanced(virtual, [*jobs, sized("d", 1)], tree, 1.0, 4)
    assert virtual.now == 2.0
    assert virtual.finish == {"a": 8, "b": 8, "d": 3}


def test_a_small_job_passes_a_large_one_of_its_user_only() -> None:
    """It delays its own user's large job by its size, and nobody else."""
    jobs = [sized("a1", 8), sized("b", 8)]
    virtual = advanced(EMPTY, jobs, TREE, 0.0, 4)
    virtual = advanced(virtual, [*jobs, sized("a2", 1)], TREE, 1.0, 4)
    assert virtual.finish == {"a2": 1, "a1": 9, "b": 8}


def test_a_job_that_is_over_earlier_than_in_the_reference_still_takes_part_in_it() -> None:
    """Its user has used its turn: the next job of the same user comes after it."""
    virtual = advanced(EMPTY, [sized("a1", 8), sized("b1", 8)], TREE, 0.0, 4)
    virtual = advanced(virtual, [sized("b1", 8)], TREE, 2.0, 4)
    later = [sized("b1", 8), sized("a2", 8), sized("c", 8)]
    assert advanced(virtual, later, TREE, 2.0, 4).finish == {"b1": 8, "a2": 16, "c": 8}


def test_a_cancelled_job_has_no_more_work_than_it_can_have_had() -> None:
    """A job of 100 that is gone after a second on 4 slots counts as 4."""
    virtual = advanced(EMPTY, [sized("a1", 100)], TREE, 0.0, 4)
    virtual = advanced(virtual, [sized("a2", 3)], TREE, 1.0, 4)
    assert virtual.finish == {"a2": 7}


def test_jobs_that_were_estimated_too_large_do_not_stay_in_the_reference() -> None:
    """Two at a time are over after 10 seconds on a slot each, of 40. Half would stay."""
    time = EMPTY
    for number in range(50):
        pair = [sized(f"a{number}", 40), sized(f"b{number}", 40)]
        time = advanced(time, pair, TREE, 10.0 * number, 4)
        left = [one.job for user in time.users for one in user.jobs]
        assert left == [f"a{number}", f"b{number}"]


def test_a_late_job_keeps_its_finish_until_it_proves_to_be_larger() -> None:
    """A job of 4 is late; when 8 are expected, the other 4 come anew."""
    virtual = advanced(EMPTY, [sized("a", 4), sized("b", 16)], TREE, 0.0, 4)
    virtual = advanced(virtual, [sized("a", 4), sized("b", 16)], TREE, 3.0, 4)
    assert virtual.now == 8.0
    assert virtual.finish == {"a": 4, "b": 16}
    virtual = advanced(virtual, [sized("a", 8), sized("b", 16)], TREE, 3.0, 4)
    assert virtual.finish == {"a": 12, "b": 16}


def test_a_job_that_came_anew_counts_only_with_what_the_reference_lacks_of_it() -> None:
    """Its finish stays while its size does; when it proves larger once more, 1 comes anew."""
    jobs = [sized("a", 4), sized("b", 16)]
    virtual = advanced(advanced(EMPTY, jobs, TREE, 0.0, 4), jobs, TREE, 3.0, 4)
    jobs = [sized("a", 8), sized("b", 16)]
    for now in (3.0, 3.0, 3.25, 4.5):
        virtual = advanced(virtual, jobs, TREE, now, 4)
        assert virtual.finish == {"a": 12, "b": 16}
    virtual = advanced(virtual, [sized("a", 9), sized("b", 17)], TREE, 5.25, 4)
    assert virtual.late == {}
    assert virtual.finish == {"a": 13, "b": 17}
    jobs = [sized("a", 9), sized("b", 17)]
    virtual = advanced(virtual, jobs, TREE, 5.75, 4)
    assert virtual.late == {"a": (13, 9)}
    virtual = advanced(virtual, [sized("a", 10), sized("b", 17)], TREE, 5.75, 4)
    assert virtual.finish == {"a": virtual.now + 1, "b": 17}


def test_a_job_that_came_anew_and_is_cancelled_counts_with_the_rest_that_it_can_have_had() -> (
    None
):
    """Of 100 the reference had completed 4 and it had attained 6; a second later, 10."""
    jobs = [sized("a1", 4), sized("b", 20)]
    virtual = advanced(advanced(EMPTY, jobs, TREE, 0.0, 4), jobs, TREE, 2.0, 4)
    virtual = advanced(virtual, [sized("a1", 100, 6), sized("b", 20)], TREE, 2.0, 4)
    assert virtual.finish == {"a1": 100, "b": 20}
    for now in (3.0, 3.25):
        virtual = advanced(virtual, [sized("a2", 30), sized("b", 20)], TREE, now, 4)
        assert virtual.finish == {"a2": 40, "b": 20}


def test_a_better_estimate_moves_the_finish() -> None:
    """A job taken for 10 that proves to be 2 passes one of 4 of the same user."""
    virtual = advanced(EMPTY, [sized("a1", 10), sized("a2", 4)], TREE, 0.0, 4)
    virtual = advanced(virtual, [sized("a1", 2), sized("a2", 4)], TREE, 0.25, 4)
    assert virtual.finish == {"a1": 2, "a2": 6}


def test_pools_within_a_pool_divide_its_weight() -> None:
    """Pools of weight 1 and 2 within one of weight 6 weigh 2 and 4."""
    tree = PoolTree(
        [Pool("top", 6.0), Pool("x", 1.0, parent="top"), Pool("y", 2.0, parent="top")]
    )
    assert [user_weight(tree, name) for name in ("x", "y")] == [2.0, 4.0]


def test_the_log_keeps_the_virtual_time() -> None:
    """A decision with a virtual time is the same after it was written and read."""
    virtual = advanced(EMPTY, [sized("a", 4), sized("b", 16)], TREE, 0.0, 4)
    virtual = advanced(virtual, [sized("a", 4), sized("b", 16)], TREE, 3.0, 4)
    entry = Reallocate({PhaseId("a", "p"): 1.0}, 4.0, virtual=virtual)
    assert decode(encode(entry)) == entry


@settings(max_examples=examples(60, slow=2000))
@given(trees(), st.data())
def test_shares_keep_every_limit_and_leave_nothing_that_may_be_used(
    claims: Claims, data: st.DataObject
) -> None:
    """Random trees of pools: max shares, capacity, and no slot idles that a claim may use."""
    finish = [data.draw(st.sampled_from([0.0, 1.0, 1.0, 2.5])) for _ in range(len(claims))]
    shares = Uwfq().share(replace(claims, finish=finish))
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


WEIGHT = {"a": Fraction(1), "b": Fraction(1), "c": Fraction(2)}


@st.composite
def arrivals(
    draw: st.DrawFn, *, at_once: bool = False, in_order: bool = False
) -> list[FluidJob]:
    """Jobs of three users; with `in_order`, those of a user grow, so that none is overtaken."""
    quarters = st.just(0) if at_once else st.integers(0, 16)
    jobs = [
        FluidJob(
            Fraction(draw(quarters), 4),
            Fraction(draw(st.integers(1, 12)), 2),
            Fraction(4),
            Fraction(1) if in_order else draw(st.sampled_from([Fraction(1), Fraction(2)])),
            draw(st.sampled_from("abc")),
        )
        for _ in range(draw(st.integers(1, 7)))
    ]
    jobs.sort(key=lambda one: one.arrival)
    if in_order:
        for user in "abc":
            places = [n for n, one in enumerate(jobs) if one.user == user]
            for n, work in zip(places, sorted(jobs[n].work for n in places), strict=True):
                jobs[n] = replace(jobs[n], work=work)
    return jobs


def reference(jobs: Sequence[FluidJob]) -> FairTimeline:
    """Users and then their jobs share 4 slots by weight, in exact fractions."""
    return course(jobs, fair_to_users(4, jobs, WEIGHT))


def as_job(number: int, one: FluidJob, tasks: int) -> Job:
    """The job with this number of equal tasks."""
    phase = Phase("p", Tasks(tasks, float(one.work) / tasks))
    arrival, weight = float(one.arrival), float(one.weight)
    return Job(f"j{number}", (phase,), arrival=arrival, weight=weight, pool=one.user)


@settings(max_examples=examples(40, slow=2000))
@given(arrivals())
def test_jobs_leave_the_reference_when_users_that_share_complete_them(
    jobs: list[FluidJob],
) -> None:
    """Between two events of the fluid system, the jobs left there are those left here."""
    wanted = reference(jobs)
    ends, virtual = wanted.completions(), EMPTY
    for at, then in zip(wanted.instants, wanted.instants[1:], strict=False):
        for instant in (at, (at + then) / 2):
            come = [
                Sized(as_job(n, one, 1), float(one.work), 0.0)
                for n, one in enumerate(jobs)
                if one.arrival <= instant
            ]
            virtual = advanced(virtual, come, TREE, float(instant), 4)
        busy = {one.job for user in virtual.users for one in user.jobs}
        middle = (at + then) / 2
        assert busy == {
            f"j{n}" for n, one in enumerate(jobs) if one.arrival <= middle and ends[n] > middle
        }


@settings(max_examples=examples(40, slow=2000))
@given(arrivals(at_once=True))
def test_no_job_of_a_plan_completes_later_than_if_users_share(jobs: list[FluidJob]) -> None:
    """Jobs that are all present: each completes when the fluid reference does, or earlier."""
    planned = [as_job(number, one, 12) for number, one in enumerate(jobs)]
    plan = fluid_schedule(planned, Cluster.of_slots(4), TREE, Uwfq())
    for number, at in enumerate(reference(jobs).completions()):
        end = max(piece.end for piece in plan.pieces if piece.phase.job == f"j{number}")
        assert end <= float(at) * (1 + 1e-9)


TASK = 0.125


@settings(max_examples=examples(8, slow=300))
@given(arrivals(in_order=True))
def test_no_job_of_a_run_completes_later_than_two_tasks_after_that(
    simulated: Simulate, jobs: list[FluidJob]
) -> None:
    """Later arrivals, exact sizes, no overtaking within a user, decisions at each end."""
    given_ = [as_job(n, one, int(one.work / Fraction(TASK))) for n, one in enumerate(jobs)]
    watch = simulated(given_, Cluster.of_slots(4), TREE.values(), "uwfq", epoch_seconds=0.001)
    wanted = reference(jobs)
    for job, at in zip(given_, wanted.completions(), strict=True):
        assert watch.state.completed[job.id] <= float(at) + 2 * TASK + 1e-9
    _assert_users_got_their_service(watch, jobs, wanted)
    assert replay_log(watch.log).is_identical


def _assert_users_got_their_service(
    watch: object, jobs: Sequence[FluidJob], wanted: FairTimeline
) -> None:
    """Two tasks later, each user has got the service of the reference, but for one job."""
    spans = [
        (one.attempt.phase.job, one.attempt.start, one.attempt.end)
        for one in timeline_of(watch.log).attempts
    ]
    for user in {one.user for one in jobs}:
        mine = {f"j{n}": float(one.work) for n, one in enumerate(jobs) if one.user == user}
        for at in map(float, wanted.instants):
            then = at + 2 * TASK
            got = sum(max(0.0, min(e, then) - s) for job, s, e in spans if job in mine)
            assert got >= wanted.of_user(user, at) - max(mine.values()) - 1e-9


def test_small_jobs_gain_and_no_user_loses(simulated: Simulate) -> None:
    """A user with six jobs and one with a large and a small job, compared with FAIR.

    The mean response of the small jobs falls by 40 % at least, and no job is more than two
    tasks later.
    """
    jobs = [Job(f"a{n}", (Phase("p", Tasks(8, 1.0)),), pool="a") for n in range(6)]
    jobs += [Job("b0", (Phase("p", Tasks(40, 1.0)),), pool="b")]
    jobs += [Job("b1", (Phase("p", Tasks(4, 1.0)),), pool="b")]
    ends = {
        name: simulated(jobs, Cluster.of_slots(4), TREE.values(), name).state.completed
        for name in ("fair", "uwfq")
    }
    small = [job.id for job in jobs if job.id != "b0"]
    assert mean(ends["uwfq"][one] for one in small) < 0.6 * mean(ends["fair"][o] for o in small)
    assert all(ends["uwfq"][job.id] <= ends["fair"][job.id] + 2.0 for job in jobs)


def test_the_memory_of_jobs_that_are_over_ends_with_the_reference(simulated: Simulate) -> None:
    """When all users are idle in the reference, it remembers nobody but those who came then."""
    jobs = [Job(f"a{n}", (Phase("p", Tasks(4, 1.0)),), arrival=n * 10.0) for n in range(5)]
    watch = simulated(jobs, Cluster.of_slots(4), (), "uwfq")
    assert [len(user.jobs) for user in watch.state.virtual.users] in ([], [1])

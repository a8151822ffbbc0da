"""Limits of how often jobs are stopped within an hour, one scenario per test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.codec import decode_pool, encode_pool
from slotwise.core.decisions import Preempt
from slotwise.core.errors import InputError
from slotwise.core.events import JobChanged, PoolsChanged
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.log import Log
from slotwise.core.pools import Pool, PoolTree, Preemption
from slotwise.core.retries import HOUR, STOPS_MAX, RecentStops
from slotwise.insight.explain import explain
from slotwise.insight.replay import replay_log
from tiers import examples

Simulate = Callable[..., object]
LONG = 20_000.0
BACK = Preemption(least_after=5.0)


def job(name: str, pool: str, count: int, arrival: float = 0.0, **how: object) -> Job:
    """A job of one phase of long tasks."""
    return Job(name, (Phase("p", Tasks(count, LONG), **how),), arrival, pool)


def stopped(log: Log) -> list[tuple[float, str]]:
    """When tasks were asked to stop, and of which job."""
    return [
        (turn.now, decision.phase.job)
        for turn in log.turns
        for decision in turn.decisions
        if isinstance(decision, Preempt)
    ]


def test_a_job_is_stopped_again_when_an_hour_is_over(simulated: Simulate) -> None:
    """Pool b lacks three slots from 10 s on and gets one an hour; nothing else happens then."""
    pools = [Pool("a", stops_per_hour=1), Pool("b", slots_min=3, preemption=BACK)]
    jobs = [job("x", "a", 4), job("y", "b", 3, 10.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert stopped(log) == [(15.0, "x"), (15.0 + HOUR, "x"), (15.0 + 2 * HOUR, "x")]
    assert replay_log(log).is_identical
    waits = explain(log, "y", 20.0).phases[0].shares[0].lacks
    assert waits.endswith(
        "too long: it reclaims the missing slots; stops_per_hour spares job x until 3615 s"
    )
    assert explain(log, "y", 15.0 + 2 * HOUR).phases[0].shares[0].lacks == ""


def test_other_jobs_give_instead(simulated: Simulate) -> None:
    """Of five slots x gives one of its three, which are most above its share, then y gives."""
    pools = [Pool("a", stops_per_hour=1), Pool("b", slots_min=2, preemption=BACK)]
    jobs = [job("x", "a", 3), job("y", "a", 2), job("z", "b", 9, 10.0)]
    log = simulated(jobs, Cluster.of_slots(5), pools).log
    assert stopped(log)[:2] == [(15.0, "x"), (15.0, "y")]


def test_the_tasks_of_a_gang_count_once(simulated: Simulate) -> None:
    """Two gangs of two hold four slots; with two stops an hour both are stopped, one by one."""
    gangs = (Phase("p", Tasks(2, LONG), gang=True), Phase("q", Tasks(2, LONG), gang=True))
    takers = [Pool(name, slots_min=2, preemption=BACK) for name in "bc"]
    jobs = [Job("x", gangs, pool="a"), job("z", "b", 2, 10.0), job("y", "c", 2, 100.0)]
    log = simulated(jobs, Cluster.of_slots(4), [Pool("a", stops_per_hour=2), *takers]).log
    assert stopped(log) == [(15.0, "x")] * 2 + [(105.0, "x")] * 2


def test_a_wide_task_waits_until_a_job_may_be_stopped_twice(simulated: Simulate) -> None:
    """Job x was stopped at 15 s; for two slots on its host it must be stopped twice more."""
    pools = [Pool("a", stops_per_hour=2), Pool("b", slots_min=3, preemption=BACK)]
    jobs = [job("x", "a", 4), job("y", "b", 1, 10.0), job("w", "b", 1, 100.0, slots=2)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert stopped(log)[:3] == [(15.0, "x"), *[(15.0 + HOUR, "x")] * 2]
    lacks = explain(log, "w", 200.0).phases[0].shares[0].lacks
    assert lacks.endswith("stops_per_hour spares job x until 3615 s")


def test_a_job_takes_no_more_from_jobs_of_its_pool(simulated: Simulate) -> None:
    """Job y lacks two slots of its share, and takes one an hour; none where none may be."""
    pools = [Pool("a", stops_per_hour=1, preemption=Preemption(jobs_after=5.0, fraction=1.0))]
    jobs = [job("x", "a", 4), job("y", "a", 4, 10.0)]
    log = simulated(jobs, Cluster.of_slots(4), pools).log
    assert stopped(log)[:2] == [(15.0, "x"), (15.0 + HOUR, "x")]
    never = [Pool("a", stops_per_hour=0, preemption=Preemption(jobs_after=5.0))]
    assert stopped(simulated(jobs, Cluster.of_slots(4), never).log) == []


@pytest.mark.parametrize("how", ["pools", "job"])
def test_what_was_stopped_before_a_change_counts(watched: Simulate, how: str) -> None:
    """The limit becomes 3 at 100 s, after two stops: a third is at once, others are later."""
    back = Pool("b", slots_min=5, preemption=BACK)
    pools = [Pool("a", stops_per_hour=2), Pool("free", stops_per_hour=3), back]
    change = PoolsChanged(100.0, (Pool("a", stops_per_hour=3), *pools[1:]))
    if how == "job":
        change = JobChanged(100.0, "x", "normal", 1.0, "free", None)
    jobs = [job("x", "a", 6), job("y", "b", 5, 10.0)]
    cluster = Cluster.of_slots(6)
    log = watched(SimulatedBackend(cluster, jobs, requests=[change]), jobs, cluster, pools).log
    third = [now for now, _ in stopped(log)][2]
    assert stopped(log)[:2] == [(15.0, "x")] * 2
    assert 100.0 <= third <= 106.0
    assert stopped(log)[3:] == [(15.0 + HOUR, "x")] * 2


def test_a_pool_inherits_its_limit_unless_it_states_one() -> None:
    """The nearest pool that states one counts; InputError for other values."""
    tree = PoolTree(
        [
            *(Pool("top", stops_per_hour=2), Pool("in", parent="top"), Pool("free")),
            *(Pool("own", parent="in", stops_per_hour=9), Pool("below", parent="in")),
        ]
    )
    assert [decode_pool(encode_pool(pool)) for pool in tree.values()] == [*tree.values()]
    assert tree.stop_limits == {"top": 2, "in": 2, "own": 9, "below": 2}
    for wrong in (-1, 1.5, True, STOPS_MAX + 1):
        with pytest.raises(
            InputError, match=r"stops_per_hour is .*; give a whole number from 0"
        ):
            Pool("a", stops_per_hour=wrong)


def test_stops_are_forgotten_after_an_hour() -> None:
    """An hour after a stop, exactly, there may be another; a lowered limit waits for more."""
    stops = RecentStops()
    for now in (0.1, 5.0, 9.0):
        stops.note("x", now)
    assert [stops.left("x", most, 10.0) for most in (0, 2, 3, 4)] == [0, 0, 0, 1]
    assert [stops.more_from("x", most, 10.0) for most in (1, 2, 3, 4)] == [
        *(9.0 + HOUR, 5.0 + HOUR, 0.1 + HOUR, 0.1 + HOUR),
    ]
    assert stops.left("x", 3, 0.1 + HOUR) == 1
    stops.forget("x")
    assert [*stops.jobs] == []


def test_few_stops_are_remembered_of_a_job() -> None:
    """As many as the largest limit."""
    stops = RecentStops()
    for number in range(3 * STOPS_MAX):
        stops.note("x", number * 1e-3)
    assert stops.left("x", STOPS_MAX, 10.0) == 0
    assert stops.more_from("x", STOPS_MAX, 10.0) == 2 * STOPS_MAX * 1e-3 + HOUR


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), min_size=1, max_size=4),
    st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, 0, 1, 2])),
    st.integers(1, 3),
)
@settings(max_examples=examples(40, slow=1000))
def test_as_many_are_stopped_as_any_choice_allows(
    simulated: Simulate,
    running: list[tuple[str, int]],
    limits: tuple[int | None, int | None],
    least: int,
) -> None:
    """At once as many as the largest set of tasks that limits and shares permit to stop."""
    slots = sum(count for _, count in running)
    by_pool = Counter[str]()
    for name, count in running:
        by_pool[name] += count
    left, share = float(slots), {}
    for name, count in by_pool.most_common()[::-1]:
        share[name] = min(count, left / (1 + len(by_pool) - len(share)))
        left -= share[name]
    least = min(least, int(left + 1e-9))
    most = dict(zip("ab", limits, strict=True))
    pools = [Pool(name, stops_per_hour=most[name]) for name in "ab"]
    jobs = [job(f"j{number}", *one) for number, one in enumerate(running)]
    jobs.append(job("z", "t", slots, 10.0))
    takes = Pool("t", slots_min=least, preemption=BACK)
    log = simulated(jobs, Cluster.of_slots(slots), [*pools, takes]).log
    tasks = [(name, number) for number, (name, n) in enumerate(running) for _ in range(n)]

    def may(chosen: tuple[tuple[str, int], ...]) -> bool:
        gives, of_job = Counter(name for name, _ in chosen), Counter(chosen)
        return all(
            by_pool[one] - n >= int(share[one] + 1e-9) for one, n in gives.items()
        ) and all(most[one] is None or n <= most[one] for (one, _), n in of_job.items())

    sizes = range(least + 1)
    largest = max(n for n in sizes if any(map(may, combinations(tasks, n))))
    assert sum(now == 15.0 for now, _ in stopped(log)) == largest

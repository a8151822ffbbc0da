"""Random jobs in pools that take slots back: none is stopped more often than its pool permits.

The stops are counted from the log alone, in each window of an hour.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.test_stopped_again import Case
from properties.test_stopped_again import cases as shorter_cases
from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster
from slotwise.core.decisions import Preempt
from slotwise.core.events import PoolsChanged
from slotwise.core.job import Tasks
from slotwise.core.log import Log, Turn
from slotwise.insight.replay import replay_log
from tiers import examples

LONGER = 30.0
HOUR = 3600.0
Watched = Callable[..., object]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Those of `test_stopped_again`, with longer tasks, min shares and limits."""
    case = draw(shorter_cases())
    jobs = tuple(
        replace(
            job,
            arrival=LONGER * job.arrival,
            phases=tuple(
                replace(phase, tasks=Tasks(phase.tasks.count, LONGER * phase.tasks.work))
                for phase in job.phases
            ),
        )
        for job in case.jobs
    )
    limits = st.sampled_from([None, 0, 1, 1, 2, 5])
    pools = tuple(
        replace(pool, slots_min=draw(st.integers(0, 2)), stops_per_hour=draw(limits))
        for pool in case.pools
    )
    name = draw(st.sampled_from(["fair", "las", "flex"]))
    return replace(case, jobs=jobs, pools=pools, name=name)


def stops(case: Case, log: Log) -> dict[str, list[float]]:
    """When tasks or gangs of each job were asked to stop for a pool, in order."""
    gangs = {(job.id, phase.name) for job in case.jobs for phase in job.phases if phase.gang}
    found = defaultdict[str, list[float]](list)
    for turn in log.turns:
        asked: dict[object, str] = {}
        for decision in turn.decisions:
            if isinstance(decision, Preempt) and decision.pool is not None:
                is_gang = (decision.phase.job, decision.phase.phase) in gangs
                key = decision.phase, None if is_gang else decision.task
                asked[key] = decision.phase.job
        for job in asked.values():
            found[job].append(turn.now)
    return found


def assert_limits_hold(case: Case, log: Log, since: float = 0.0) -> None:
    """From an instant on there are no more stops of a job within any hour than its limit."""
    limits = {
        job.id: pool.stops_per_hour
        for job in case.jobs
        for pool in case.pools
        if pool.name == job.pool
    }
    for job, instants in stops(case, log).items():
        most = limits[job]
        for number, now in enumerate(instants):
            if most is not None and now >= since:
                within = [at for at in instants[: number + 1] if at + HOUR > now]
                assert len(within) <= most, f"{job} is stopped too often at {now}"


def logged(watched: Watched, case: Case, *requests: object) -> Log:
    """The log of a case, run with checks."""
    cluster = Cluster.of_slots(case.slots)
    backend = SimulatedBackend(cluster, case.jobs, case.simulation, requests=requests)
    return watched(backend, case.jobs, cluster, case.pools, case.name, epoch_seconds=60.0).log


def with_limit(case: Case, limit: int | None) -> Case:
    """The case, in which all pools have this limit."""
    pools = tuple(replace(pool, stops_per_hour=limit) for pool in case.pools)
    return replace(case, pools=pools)


@given(cases())
@settings(max_examples=examples(12, slow=2000))
def test_no_job_is_stopped_too_often_in_any_hour(watched: Watched, case: Case) -> None:
    """All jobs end, and the log can be replayed."""
    log = logged(watched, case)
    assert_limits_hold(case, log)
    assert replay_log(log).is_identical


@given(cases(), st.sampled_from([500.0, 2000.0, 5000.0]))
@settings(max_examples=examples(8, slow=1000))
def test_limits_hold_from_when_they_are_stated(watched: Watched, case: Case, at: float) -> None:
    """Stops before that count, too."""
    log = logged(watched, with_limit(case, None), PoolsChanged(at, case.pools))
    assert_limits_hold(case, log, since=at)
    assert replay_log(log).is_identical


@given(cases())
@settings(max_examples=examples(8, slow=1000))
def test_a_limit_that_nobody_reaches_changes_nothing(watched: Watched, case: Case) -> None:
    """No decision differs from those without limits."""

    def decided(limit: int | None) -> list[Turn]:
        turns = logged(watched, with_limit(case, limit)).turns
        return [turn for turn in turns if turn.decisions]

    assert decided(1000) == decided(None)

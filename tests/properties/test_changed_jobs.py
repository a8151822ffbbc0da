"""Jobs are cancelled, changed and grow, and pools change, while they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.codec import decode, encode
from slotwise.core.decisions import GiveUp, Launch
from slotwise.core.events import (
    JobCancelled,
    JobChanged,
    JobsClosed,
    ObjectiveChanged,
    PhaseClosed,
    PoolsChanged,
    Request,
    SchedulerChanged,
    TaskFinished,
    TasksAdded,
)
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header, Log
from slotwise.core.log_validation import LogValidator
from slotwise.core.loop import initial_state, turn
from slotwise.core.pools import Pool, Preemption
from slotwise.insight.metrics import MetricsCollector
from slotwise.insight.replay import replay_log
from slotwise.policy.scheduler import make_scheduler
from tiers import examples

CLUSTER = Cluster((Host("a", {"task": 2}), Host("b", {"task": 1}, speed=0.5)))
PREEMPTION = Preemption(least_after=0.2, fair_after=0.5, grace=0.0)
POOLS = (
    Pool("p", slots_min={"task": 1}, preemption=PREEMPTION),
    Pool("q", slots_max={"task": 1}),
    Pool("r", weight=2.0, jobs_max=1),
)
OTHER_POOLS = (
    Pool("p", slots_max={"task": 1}),
    Pool("q", weight=3.0, preemption=PREEMPTION),
    Pool("r", jobs_max=2),
)
NAMES = ("fifo", "fair", "flex", "flowflex-fast")


@dataclass(frozen=True)
class Case:
    """Jobs, what users ask for, and a scheduler."""

    jobs: tuple[Job, ...]
    requests: tuple[Request, ...]
    name: str
    rest_seconds: float


TIMES = st.integers(0, 40).map(lambda number: number / 8)
POOL_NAMES = st.sampled_from(["p", "q", "r", "new"])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A few jobs, some of which grow, and requests at any time."""
    jobs, requests = [], []
    for number in range(draw(st.integers(1, 5))):
        name, at = f"j{number}", draw(TIMES)
        grows = draw(st.booleans())
        work = draw(st.sampled_from([0.25, 1.0, 2.0]))
        first = Phase("first", Tasks(draw(st.integers(1, 4)), work), grows=grows)
        last = Phase("last", Tasks(2, 0.5), after="first")
        phases = (first, last) if draw(st.booleans()) else (first,)
        job = Job(name, phases, at, draw(POOL_NAMES))
        jobs.append(draw(_with_dependencies(job, jobs)))
        requests += draw(_requests_of(jobs[-1]))
    for _ in range(draw(st.integers(0, 3))):
        pools = draw(st.sampled_from([POOLS, OTHER_POOLS, ()]))
        requests.append(PoolsChanged(draw(TIMES), pools))
    if draw(st.booleans()):
        requests.append(ObjectiveChanged(draw(TIMES), "stretch", "max"))
    if draw(st.booleans()):
        requests.append(SchedulerChanged(draw(TIMES), draw(st.sampled_from(NAMES))))
    rest = draw(st.sampled_from([0.0, 0.05, 3.0]))
    return Case(tuple(jobs), tuple(requests), draw(st.sampled_from(NAMES)), rest)


@st.composite
def _with_dependencies(draw: st.DrawFn, job: Job, others: Sequence[Job]) -> Job:
    """The job, after some of the others, which may arrive later than it does."""
    after, each = set(), set()
    for other in others:
        how = draw(st.sampled_from(["", "", "", "after", "each"]))
        are_arrays = len(job.phases) == len(other.phases) == 1
        counts = {one.phases[0].tasks.count for one in (job, other)}
        if any(one.phases[0].grows for one in (job, other)) or not are_arrays:
            counts = {0, 1}
        if how == "each" and len(counts) == 1:
            each.add(other.id)
        elif how:
            after.add(other.id)
    failed = draw(st.sampled_from(["cancel", "run"]))
    return replace(job, after=after, after_each=each, after_failed=failed)


@st.composite
def _requests_of(draw: st.DrawFn, job: Job) -> list[Request]:
    at, requests = job.arrival, []
    if job.phases[0].grows:
        first = PhaseId(job.id, "first")
        for _ in range(draw(st.integers(0, 3))):
            at += draw(st.sampled_from([0.0, 0.5, 4.0]))
            requests.append(TasksAdded(at, first, draw(st.integers(1, 3))))
        requests.append(PhaseClosed(at + draw(st.sampled_from([0.0, 5.0])), first))
    for _ in range(draw(st.integers(0, 2))):
        priority = draw(st.sampled_from(["normal", "high"]))
        when, pool = job.arrival + draw(TIMES), draw(POOL_NAMES)
        requests.append(JobChanged(when, job.id, priority, 2.0, pool, 9.0))
    if draw(st.integers(0, 3)) == 0:
        requests.append(JobCancelled(job.arrival + draw(TIMES), job.id))
    return requests


def run_case(case: Case) -> Log:
    """Run it, with all checks after each turn."""
    header = Header(
        backend="simulated",
        scheduler={"name": case.name, "rest_seconds": case.rest_seconds},
        objective={"penalty": "response", "aggregate": "sum"},
        cluster=CLUSTER,
        pools=POOLS,
        jobs_expected=None,
    )
    log, state = Log(header), initial_state(header)
    backend = SimulatedBackend(CLUSTER, case.jobs, requests=case.requests)
    scheduler = make_scheduler(**header.scheduler)
    plausible = LogValidator(CLUSTER)
    while not state.is_done:
        events = backend.wait(until=state.next_wakeup())
        turn(scheduler, backend, state, log, events)
        state.check()
        if log.turns and log.turns[-1].now == backend.now:
            plausible.check_turn(backend.now, log.turns[-1].events, log.turns[-1].decisions)
            for entry in (*log.turns[-1].events, *log.turns[-1].decisions):
                assert decode(encode(entry)) == entry
    return log


@given(cases())
@settings(max_examples=examples(60, slow=2000))
def test_all_requests_are_carried_out(case: Case) -> None:
    """Each job is done or was cancelled, each task is done once, replay is identical."""
    log = run_case(case)
    assert replay_log(log).is_identical
    turns = log.turns
    done = Counter(
        (event.phase, event.task)
        for one in turns
        for event in one.events
        if isinstance(event, TaskFinished)
    )
    given_up = {d.job for one in turns for d in one.decisions if isinstance(d, GiveUp)}
    cancelled = {r.job for r in case.requests if isinstance(r, JobCancelled)}
    assert given_up <= _may_fail(case.jobs, cancelled)
    assert set(done.values()) <= {1}
    outcome = MetricsCollector.of_log(log).outcome()
    _assert_in_order(case.jobs, log, given_up)
    for job in case.jobs:
        if job.id not in given_up:
            assert _done(done, job) == _all_tasks(job, case.requests)
            assert outcome.jobs[job.id]["completion"] is not None
    assert outcome.is_over
    if outcome.metrics["value"] is not None:
        assert outcome.bound <= outcome.metrics["value"] * (1 + 1e-9)


def _may_fail(jobs: Sequence[Job], cancelled: set[str]) -> set[str]:
    """These jobs, and those that are cancelled with a job that they wait for."""
    found = set(cancelled)
    for job in jobs:  # Each comes after those that it waits for.
        if job.after_failed == "cancel" and job.predecessors & found:
            found.add(job.id)
    return found


def _assert_in_order(jobs: Sequence[Job], log: Log, given_up: set[str]) -> None:
    """No task began before the jobs, or the tasks, that it waits for were over."""
    over: dict[str, int] = {}
    ended: dict[tuple[str, int], int] = {}
    gone: set[str] = set()
    by_id = {job.id: job for job in jobs}
    for number, one in enumerate(log.turns):
        for event in one.events:
            if isinstance(event, TaskFinished):
                ended[event.phase.job, event.task] = number
            # What a job that was cancelled still does holds back no other.
            if isinstance(event, TaskFinished | PhaseClosed) and event.phase.job not in gone:
                over[event.phase.job] = number
        for decision in one.decisions:
            if isinstance(decision, GiveUp):
                over[decision.job] = number
                gone.add(decision.job)
    for number, one in enumerate(log.turns):
        for decision in one.decisions:
            if isinstance(decision, Launch):
                job = by_id[decision.phase.job]
                assert all(over[name] <= number for name in job.after)
                for name in job.after_each - given_up:
                    assert ended[name, decision.task] <= number


def _done(done: Counter[tuple[PhaseId, int]], job: Job) -> Counter[str]:
    return Counter(phase.phase for phase, _ in done if phase.job == job.id)


def _all_tasks(job: Job, requests: Sequence[Request]) -> Counter[str]:
    counts = Counter({phase.name: phase.tasks.count for phase in job.phases})
    for request in requests:
        if isinstance(request, TasksAdded) and request.phase.job == job.id:
            counts[request.phase.phase] += request.count
    return counts


def test_a_run_ends_only_when_no_more_jobs_come() -> None:
    """A run of no jobs waits until it is closed."""
    log = run_case(Case((), (JobsClosed(7.0),), "fair", 0.0))
    assert [one.now for one in log.turns] == [7.0]


def test_a_rest_between_allocations_delays_no_launch() -> None:
    """Jobs that arrive during the rest take free slots at once."""
    jobs = tuple(Job(f"j{n}", (Phase("p", Tasks(1, 1.0)),), n / 8) for n in range(3))
    log = run_case(Case(jobs, (), "fair", 10.0))
    outcome = MetricsCollector.of_log(log).outcome()
    assert [outcome.jobs[job.id]["start"] for job in jobs] == [0.0, 0.125, 0.25]
    # The third slot has half the speed.
    assert [outcome.jobs[job.id]["completion"] for job in jobs] == [1.0, 1.125, 2.25]

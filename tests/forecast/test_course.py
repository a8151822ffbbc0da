"""One simulated course, beside the run of the real scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from slotwise.backends.simulated.backend import SimulatedBackend
from slotwise.core.cluster import Cluster, Host
from slotwise.core.job import Job, Phase, Tasks
from slotwise.core.loop import run, turn
from slotwise.core.pools import Pool, PoolTree
from slotwise.core.state import State
from slotwise.forecast import courses
from slotwise.forecast.arrivals import PastArrivals
from slotwise.forecast.courses import simulated
from slotwise.forecast.durations import Draws, Floats, PastWork
from slotwise.forecast.situation import (
    Change,
    JobNow,
    PromiseNow,
    Situation,
    changed,
    situation_of,
)
from slotwise.policy.scheduler import make_scheduler

SLOTS = 6


class TrueWork(PastWork):
    """All tasks take what is stated."""

    def draw(self, *given: Any, **_: Any) -> Floats:
        """The base, for each course."""
        return np.broadcast_to(given[2], given[4].shape)


def situation_at_start(
    jobs: Sequence[Job], cluster: Cluster, scheduler: str, pools: Sequence[Pool] = ()
) -> Situation:
    """The state after the first turn, at which these jobs arrive."""
    state, backend = State(cluster, pools), SimulatedBackend(cluster, jobs)
    turn(make_scheduler(scheduler), backend, state, lambda *_: None, backend.wait(0.0))
    return situation_of(state, scheduler, "response")


def ends_of_run(
    jobs: Sequence[Job], cluster: Cluster, scheduler: str, pools: Sequence[Pool] = ()
) -> dict[str, float]:
    """When the jobs end in a run of the scheduler."""
    state, ends = State(cluster, pools), dict[str, float]()

    def note(*_: object) -> None:
        """Note."""
        ends.update(state.completed)

    run(make_scheduler(scheduler), SimulatedBackend(cluster, jobs), state, note)
    return ends


def ends_of_course(situation: Situation) -> dict[str, float]:
    """When the jobs end in a course in which all estimates are true."""
    found = simulated(situation, TrueWork(), PastArrivals(), Draws(1))
    return {job.id: float(found.ends[k, 0]) for k, job in enumerate(situation.jobs)}


def drawn_jobs(seed: int, widest: int = 1, tasks: int = 1, pools: int = 1) -> list[Job]:
    """Fourteen jobs of one phase that arrive at once; no two have the same length."""
    rng = random.Random(seed)
    jobs = []
    for number in range(14):
        seconds = rng.choice([1.0, 2.0, 3.0, 5.0, 8.0]) + number / 64
        count, slots = rng.randint(1, tasks), rng.randint(1, widest)
        phase = Phase("run", Tasks(count, seconds), slots=slots)
        jobs.append(Job(f"j{number:02}", (phase,), pool=f"p{rng.randrange(pools)}"))
    return jobs


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scheduler", ["easy", "easy-sjbf"])
def test_backfilling_is_that_of_the_scheduler(scheduler: str, seed: int) -> None:
    """Backfilling is that of the scheduler."""
    cluster, jobs = Cluster.of_slots(SLOTS), drawn_jobs(seed, widest=SLOTS)
    found = ends_of_course(situation_at_start(jobs, cluster, scheduler))
    assert found == pytest.approx(ends_of_run(jobs, cluster, scheduler))


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_fifo_is_that_of_the_scheduler(seed: int) -> None:
    """The order of fifo is that of the scheduler."""
    cluster, jobs = Cluster.of_slots(SLOTS), drawn_jobs(seed)
    found = ends_of_course(situation_at_start(jobs, cluster, "fifo"))
    assert found == pytest.approx(ends_of_run(jobs, cluster, "fifo"))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheduler", ["fair", "flex", "las", "fifo", "flowflex"])
def test_courses_are_close_to_runs(scheduler: str, seed: int) -> None:
    """Several pools with min and max shares, and jobs of several tasks."""
    cluster = Cluster.of_slots(SLOTS)
    pools = [
        Pool("p0", 1.0, slots_min={"task": 2}),
        Pool("p1", 2.0),
        Pool("p2", 1.0, slots_max={"task": 2}),
    ]
    jobs = drawn_jobs(seed, tasks=8, pools=3)
    found = ends_of_course(situation_at_start(jobs, cluster, scheduler, pools))
    truth = ends_of_run(jobs, cluster, scheduler, pools)
    errors = [abs(found[job] - truth[job]) for job in truth]
    assert sum(errors) / len(errors) < 0.3 * sum(truth.values()) / len(truth)
    assert max(found.values()) == pytest.approx(max(truth.values()), rel=0.35)


@pytest.mark.parametrize("scheduler", ["fair", "flex"])
def test_what_is_promised_is_kept_free(scheduler: str) -> None:
    """Courses are closer to the run than without the promise, of which all slots are needed."""
    cluster, errors = Cluster.of_slots(SLOTS), [0.0, 0.0]
    phase = Phase("run", Tasks(SLOTS, 8.0))
    promised = Job("promised", (phase,), pool="p0", promise=30.0)
    for seed in range(4):
        jobs = [*drawn_jobs(seed, tasks=6), promised]
        situation = situation_at_start(jobs, cluster, scheduler)
        truth = ends_of_run(jobs, cluster, scheduler)
        found = ends_of_course(situation)
        assert found["promised"] <= 30.0
        others = replace(
            situation, jobs=tuple(job._replace(promise=None) for job in situation.jobs)
        )
        for k, ends in enumerate((found, ends_of_course(others))):
            errors[k] += sum(abs(ends[job] - truth[job]) for job in truth)
    assert errors[0] < 0.9 * errors[1]


def test_slots_of_a_promised_job_that_cannot_run_are_free_again() -> None:
    """From the date on; nothing else happens at that instant."""
    jobs = [
        Job("held", (Phase("run", Tasks(1, 1.0)),), pool="closed"),
        Job("other", (Phase("run", Tasks(1, 9.0)),)),
    ]
    situation = situation_at_start(jobs, Cluster.of_slots(1), "fair", [Pool("closed", 0.0)])
    held, other = situation.jobs
    held = held._replace(promise=PromiseNow(4.0, 5.0, 1))
    other = other._replace(
        phases=tuple(one._replace(pending=1, begun=()) for one in other.phases)
    )
    found = ends_of_course(replace(situation, jobs=(held, other)))
    assert found["other"] == pytest.approx(14.0)


def test_phases_wait_for_each_other_and_jobs_too() -> None:
    """Phases wait for each other and jobs too."""
    first = Phase("a", Tasks(4, 2.0))
    second = Phase("b", Tasks(2, 3.0), after=frozenset({"a"}))
    jobs = [
        Job("x", (first, second)),
        Job("y", (Phase("run", Tasks(1, 1.0)),), after=frozenset({"x"})),
    ]
    situation = situation_at_start(jobs, Cluster.of_slots(2), "fair")
    assert ends_of_course(situation) == {"x": 7.0, "y": 8.0}


def test_resources_and_kinds_limit_courses() -> None:
    """Resources and kinds limit courses."""
    hosts = (Host("h", {"map": 4, "reduce": 1}, resources={"memory": 4 << 30}),)
    needs = {"memory": 3 << 30}
    jobs = [
        Job("a", (Phase("m", Tasks(2, 1.0), "map", resources=needs),)),
        Job("b", (Phase("r", Tasks(2, 1.0), "reduce"),)),
    ]
    situation = situation_at_start(jobs, Cluster(hosts), "fair")
    assert ends_of_course(situation) == {"a": 2.0, "b": 2.0}


@pytest.mark.parametrize("scheduler", ["fair", "flex", "las", "fifo", "easy"])
def test_a_job_that_needs_what_no_host_has_leaves_others_their_ends(scheduler: str) -> None:
    """Such a job is left where its host leaves; that must not make other ends unknown."""
    with_gpu, phase = Host("g", {"task": 1}, resources={"gpu": 1}), Phase("run", Tasks(2, 1.0))
    jobs = [Job("a", (replace(phase, resources={"gpu": 1}),)), Job("b", (phase,))]
    hosts = (Host("h", {"task": 1}), with_gpu)
    situation = situation_at_start(jobs, Cluster(hosts), scheduler)
    for gone in (situation, replace(situation, jobs=waiting(situation))):
        ends = ends_of_course(replace(gone, hosts=hosts[:1]))
        assert ends["b"] <= 3.0
    assert ends == {"a": float("inf"), "b": 2.0}


@pytest.mark.parametrize("penalty", ["makespan", "sla", "tardiness"])
def test_jobs_without_a_deadline_have_ends_under_every_objective(penalty: str) -> None:
    """Jobs without a deadline have ends under every objective; those with one go first."""
    phase = Phase("run", Tasks(1, 1.0))
    jobs = [Job(f"j{k}", (phase,), deadline=9.0 if k == 3 else None) for k in range(4)]
    situation = situation_at_start([], Cluster.of_slots(1), "flex")
    new = changed(situation, Change(jobs=tuple(jobs)), Cluster.of_slots(1), PoolTree(()))
    ends = ends_of_course(replace(new, penalty=penalty))
    assert ends == {"j3": 1.0, "j0": 2.0, "j1": 3.0, "j2": 4.0}


def waiting(situation: Situation) -> tuple[JobNow, ...]:
    """The jobs with all tasks pending."""
    return tuple(
        job._replace(phases=[one._replace(pending=2, begun=()) for one in job.phases])
        for job in situation.jobs
    )


def test_a_job_that_cannot_run_has_an_open_end() -> None:
    """A job that cannot run has an open end."""
    closed = Pool("closed", weight=0.0)
    jobs = [Job("a", (Phase("run", Tasks(1, 1.0)),), pool="closed")]
    situation = situation_at_start(jobs, Cluster.of_slots(1), "fair", [closed])
    assert ends_of_course(situation) == {"a": float("inf")}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["fair", "flex", "las", "easy", "easy-sjbf"])
def test_machine_code_simulates_what_python_does(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With arrivals, pools, links and several tasks."""
    pytest.importorskip("numba")
    pools = [
        Pool("p0", slots_min={"task": 2}),
        Pool("p1", 2.0, slots_max={"task": 3}),
        Pool("p2"),
    ]
    jobs = drawn_jobs(1, widest=3 if "easy" in scheduler else 1, tasks=8, pools=3)
    second = Phase("then", Tasks(3, 1.5), after=frozenset({"run"}))
    jobs = [replace(job, phases=(*job.phases, second)) for job in jobs]
    situation = situation_at_start(jobs, Cluster.of_slots(SLOTS), scheduler, pools)
    arrivals = PastArrivals()
    for number, job in enumerate(situation.jobs * 3):
        arrivals.note(job._replace(id=f"old{number}", arrival=number - 60.0))
    if "easy" not in scheduler:
        first = situation.jobs[0]._replace(promise=PromiseNow(20.0, 30.0, 4))
        situation = replace(situation, jobs=(first, *situation.jobs[1:]))
    later = replace(situation, now=5.0)
    assert courses.load_machine_code(waits=True)
    found = []
    for loaded in (courses._loaded, []):
        monkeypatch.setattr(courses, "_loaded", loaded)
        found.append(simulated(later, PastWork(), arrivals, Draws(7)))
    assert (found[0].starts == found[1].starts).all()
    assert (found[0].ends == found[1].ends).all()
    assert np.isfinite(found[0].ends).all()


def test_many_tasks_are_simulated_in_batches() -> None:
    """Many tasks are simulated in batches."""
    jobs = [Job("a", (Phase("run", Tasks(100_000, 1.0)),))]
    situation = situation_at_start(jobs, Cluster.of_slots(100), "fair")
    assert ends_of_course(situation)["a"] == pytest.approx(1000.0, rel=0.05)


@pytest.mark.parametrize("scheduler", ["fair", "flex", "las", "fifo", "easy"])
def test_courses_keep_to_limits_of_resources(scheduler: str) -> None:
    """Two of eight tasks run at once, beside a job that needs none of the resource."""
    cluster = Cluster((Host("h", {"task": SLOTS}, resources={"gpu": 8}),))
    pools = [Pool("lab", resources_max={"gpu": 2}), Pool("p", parent="lab"), Pool("q")]
    jobs = [
        Job("a", (Phase("run", Tasks(8, 3.0), resources={"gpu": 1}),), pool="p"),
        Job("b", (Phase("run", Tasks(2, 5.0)),), pool="p"),
        Job("c", (Phase("run", Tasks(1, 4.0), resources={"gpu": 1}),), pool="q"),
    ]
    found = ends_of_course(situation_at_start(jobs, cluster, scheduler, pools))
    assert found == pytest.approx({"a": 12.0, "b": 5.0, "c": 4.0})
    assert found == pytest.approx(ends_of_run(jobs, cluster, scheduler, pools))

"""Lower bounds with memory and devices: below the optimum of all schedules of whole tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotwise.core.cluster import Cluster, Host
from slotwise.core.events import HostAdded, HostResized
from slotwise.core.job import Job, Phase, PhaseId, Tasks
from slotwise.core.log import Header
from slotwise.core.objective import Objective
from slotwise.insight.bound import Work, objective_bound, sizes_of
from slotwise.insight.present_hosts import PresentHosts
from tiers import examples

TOLERANCE = 1e-9


def job_of(name: str, tasks: int, seconds: float, needs: dict[str, Any], slots: int = 1) -> Job:
    """A job of one phase."""
    return Job(name, (Phase("run", Tasks(tasks, seconds), slots=slots, resources=needs),))


def host(name: str, slots: int, speed: float = 1.0, **resources: Any) -> Host:
    """A host with plain slots."""
    return Host(name, {"task": slots}, speed=speed, resources=resources)


def measured(jobs: list[Job]) -> Work:
    """The stated work of whole tasks, as a run measures it."""
    total, longest = {}, {}
    for job in jobs:
        for phase in job.phases:
            seconds = [phase.tasks.work_of(task) or 0.0 for task in range(phase.tasks.count)]
            total[PhaseId(job.id, phase.name)] = sum(seconds) * phase.slots
            longest[PhaseId(job.id, phase.name)] = max(seconds)
    return Work(total, longest)


def bound_of(jobs: list[Job], cluster: Cluster, objective: Objective) -> float:
    """The lower bound for whole tasks."""
    return objective_bound(objective, jobs, cluster, measured(jobs))


def test_jobs_that_each_need_all_memory_run_one_after_the_other() -> None:
    """Slots alone would let four jobs run at once."""
    jobs = [job_of(f"j{n}", 1, 10.0, {"memory": 4}) for n in range(4)]
    cluster = Cluster((host("a", 4, memory=4),))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(10 + 20 + 30 + 40)


def test_a_phase_has_no_more_tasks_at_once_than_fit_on_the_hosts() -> None:
    """Two tasks of 3 bytes do not fit on a host of 5, so a job of four takes two rounds."""
    jobs = [job_of("j", 4, 10.0, {"memory": 3})]
    cluster = Cluster((host("a", 4, memory=5), host("b", 4, memory=5)))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(20.0)
    assert sizes_of(jobs, cluster, measured(jobs))["j"].alone == pytest.approx(20.0)


def test_parts_of_a_device_are_counted_on_each_device() -> None:
    """Two devices hold two tasks of 0.6, not three."""
    jobs = [job_of("j", 4, 10.0, {"gpu": 0.6})]
    cluster = Cluster((host("a", 4, gpu=2),))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(20.0)


def test_the_longest_task_runs_on_a_host_that_has_its_memory() -> None:
    """The fast host has too little memory."""
    jobs = [job_of("j", 1, 10.0, {"memory": 3})]
    cluster = Cluster((host("slow", 1, memory=4), host("fast", 1, speed=4.0, memory=2)))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(10.0)


def test_a_fast_host_uses_its_memory_faster() -> None:
    """Each job needs all of it, and takes half of the seconds."""
    jobs = [job_of(f"j{n}", 1, 10.0, {"memory": 4}) for n in range(2)]
    cluster = Cluster((host("a", 2, speed=2.0, memory=4),))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(5.0 + 10.0)


def test_phases_side_by_side_share_the_devices_of_a_job_alone() -> None:
    """Two phases of one job, each with all devices, take the sum of their times."""
    phases = [Phase(name, Tasks(1, 5.0), resources={"gpu": 1}) for name in ("one", "two")]
    jobs = [Job("j", tuple(phases))]
    cluster = Cluster((host("a", 8, gpu=1),))
    assert bound_of(jobs, cluster, Objective()) == pytest.approx(10.0)
    assert sizes_of(jobs, cluster, measured(jobs))["j"].alone == pytest.approx(10.0)


class _Task(NamedTuple):
    job: Job
    phase: Phase
    work: float


def _tasks(jobs: list[Job]) -> list[_Task]:
    return [
        _Task(job, phase, phase.tasks.work_of(task) or 0.0)
        for job in jobs
        for phase in job.phases
        for task in range(phase.tasks.count)
    ]


def completions(jobs: list[Job], cluster: Cluster) -> Iterator[dict[str, float]]:
    """The completions of all schedules in which tasks begin in some order, each at once.

    One of them is best for costs that do not fall with time. Nothing is taken from slotwise
    but the amounts of hosts and requests.
    """
    tasks = _tasks(jobs)
    for order in permutations(range(len(tasks))):
        for hosts in product(cluster.hosts, repeat=len(tasks)):
            placed = [(tasks[number], on) for number, on in zip(order, hosts, strict=True)]
            if (ends := _ends(placed)) is not None:
                yield ends


def _ends(placed: list[tuple[_Task, Host]]) -> dict[str, float] | None:
    """When each job is complete; None if a task is before one that it waits for, or too big."""
    left = defaultdict[tuple[str, str], int](int)
    for task, _ in placed:
        left[task.job.id, task.phase.name] += 1
    done: dict[tuple[str, str], float] = defaultdict(float)
    running: list[tuple[float, float, Host, dict[str, int]]] = []
    last = 0.0
    for task, on in placed:
        before = [(task.job.id, name) for name in task.phase.after]
        if any(left[name] for name in before):
            return None
        request = {"task": task.phase.slots, **task.phase.needs}
        if any(amount > on.amounts.get(name, 0) for name, amount in request.items()):
            return None
        at = max([last, task.job.arrival, *(done[name] for name in before)])
        for start in sorted({at, *(end for _, end, _, _ in running if end > at)}):
            held = [more for since, end, host, more in running if host is on and end > start]
            if all(
                sum(more.get(name, 0) for more in held) + amount <= on.amounts.get(name, 0)
                for name, amount in request.items()
            ):
                last = start
                break
        end = last + task.work / on.speed
        running.append((last, end, on, request))
        key = (task.job.id, task.phase.name)
        done[key] = max(done[key], end)
        left[key] -= 1
    ends: dict[str, float] = defaultdict(float)
    for (name, _), end in done.items():
        ends[name] = max(ends[name], end)
    return ends


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Job], Cluster]:
    """Two to four tasks with memory and devices, on one or two hosts."""
    hosts = [host("h0", 2, memory=4, gpu=2)]
    if draw(st.booleans()):
        speed, memory = draw(st.sampled_from([0.5, 1.0, 2.0])), draw(st.integers(1, 6))
        hosts.append(host("h1", draw(st.integers(1, 3)), speed, memory=memory, gpu=1))
    left = draw(st.integers(2, 4))
    jobs = []
    while left:
        phases: list[Phase] = []
        while left and (not phases or draw(st.booleans())):
            count = draw(st.integers(1, left))
            left -= count
            needs = {
                "memory": draw(st.integers(0, 4)),
                "gpu": draw(st.sampled_from([0, 0.5, 1])),
            }
            phases.append(
                Phase(
                    f"p{len(phases)}",
                    Tasks(count, tuple(float(draw(st.integers(1, 4))) for _ in range(count))),
                    slots=draw(st.integers(1, 2)),
                    after=frozenset(draw(st.sets(st.sampled_from([p.name for p in phases]))))
                    if phases
                    else frozenset(),
                    resources=needs,
                )
            )
        arrival = float(draw(st.integers(0, 3)))
        jobs.append(
            Job(
                f"j{len(jobs)}",
                tuple(phases),
                arrival,
                weight=float(draw(st.integers(1, 3))),
                deadline=arrival + draw(st.integers(1, 8)),
            )
        )
    return jobs, Cluster(tuple(hosts))


OBJECTIVES = [
    Objective(),
    Objective("slowdown"),
    Objective("tardiness"),
    Objective("tardy"),
    Objective("response", "max"),
    Objective("tardiness", "max"),
]


@given(problems())
@settings(max_examples=examples(40, slow=400), deadline=None)
def test_no_schedule_is_better_than_the_bound(problem: tuple[list[Job], Cluster]) -> None:
    """For each objective, against the best of all orders on all hosts."""
    jobs, cluster = problem
    by_id, work = {job.id: job for job in jobs}, measured(jobs)
    sizes = sizes_of(jobs, cluster, work)
    found = list({tuple(sorted(ends.items())) for ends in completions(jobs, cluster)})
    for ends in found:
        for name, end in ends:
            assert end - by_id[name].arrival >= sizes[name].alone * (1 - TOLERANCE)
    for objective in OBJECTIVES:
        best = min(objective.value(by_id, dict(ends), sizes) for ends in found)
        bound = objective_bound(objective, jobs, cluster, work)
        assert bound <= best + TOLERANCE * (1 + abs(best)), objective


def test_tasks_of_resized_hosts_are_not_limited_by_the_hosts_of_the_widest_cluster() -> None:
    """Two wide tasks ran at once on the first host; the widest cluster has no such host."""
    cluster = Cluster((host("a", 4, memory=8),))
    hosts = PresentHosts(Header("simulated", {"name": "fair"}, {}, cluster, (), None))
    hosts.resize(HostResized(20.0, "a", {"task": 3}))
    hosts.change(HostAdded(30.0, host("b", 1, speed=1.5, memory=1)), 0)
    jobs = [job_of("j", 2, 10.0, {}, slots=2)]
    bound = objective_bound(
        Objective(), jobs, hosts.widest(), measured(jobs), None, 10.0, (), hosts.has_changed
    )
    assert 5.0 < bound <= 10.0


def test_resources_limit_also_where_hosts_come() -> None:
    """The widest cluster has the most memory of any time."""
    cluster = Cluster((host("a", 4, memory=4_000),))
    hosts = PresentHosts(Header("simulated", {"name": "fair"}, {}, cluster, (), None))
    hosts.change(HostAdded(5.0, host("b", 4, memory=4_000)), 0)
    jobs = [job_of(f"j{n}", 1, 10.0, {"memory": 4_000}) for n in range(4)]
    work = measured(jobs)
    bound = objective_bound(
        Objective(), jobs, hosts.widest(), work, has_changed=hosts.has_changed
    )
    assert bound == pytest.approx(10 + 10 + 20 + 20)

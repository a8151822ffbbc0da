"""Jobs and hosts as the numeric problem of DMRS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from slotwise.core.cluster import Cluster
from slotwise.core.costs import Floats, Ints
from slotwise.core.errors import InputError
from slotwise.core.estimation import MIN_WORK, RUNNING_FLOOR
from slotwise.core.job import Job, Phase, PhaseId
from slotwise.core.pools import Pool
from slotwise.core.snapshot import Snapshot
from slotwise.core.unbegun import Unbegun
from slotwise.policy.dmrs.corrections import Corrected
from slotwise.policy.dmrs.problem import JobColumns, NumericJob, RelatedMachines, Stage


def machines_of(cluster: Cluster) -> list[str]:
    """The host of each machine: every slot is a machine with the speed of its host.

    InputError for a cluster with several kinds of slots.
    """
    if len(cluster.capacity) > 1:
        kinds = ", ".join(sorted(cluster.capacity))
        raise InputError(
            f"cluster: dmrs takes machines that run any task, not slots of kinds {kinds};"
            " give each host slots of one kind: slots: 1"
        )
    (kind,) = cluster.capacity
    return cluster.host_of_slot[kind]


def check_queues(jobs: Sequence[Job], cluster: Cluster, pools: Mapping[str, Pool]) -> None:
    """Raise InputError for jobs, clusters or pools that DMRS does not support."""
    machines_of(cluster)
    for pool in pools.values():
        if pool.has_shares:
            raise InputError(
                f"pool {pool.name!r}: dmrs keeps no shares of pools;"
                " leave out slots_min, slots_max, resources_max and weight 0, or take another"
                " scheduler"
            )
    for job in jobs:
        for phase in job.phases:
            with _naming(job, phase):
                _check(phase)


def related_machines(
    jobs: Sequence[Job], cluster: Cluster, pools: Mapping[str, Pool]
) -> RelatedMachines:
    """The problem of these jobs, or InputError for what cannot be planned."""
    check_queues(jobs, cluster, pools)
    speeds = [cluster.by_name[name].speed for name in machines_of(cluster)]
    return RelatedMachines(np.array(speeds), [_job(job, cluster) for job in jobs])


def _job(job: Job, cluster: Cluster) -> NumericJob:
    place = {phase.name: number for number, phase in enumerate(job.topological)}
    stages = []
    for phase in job.topological:
        cluster.slot_kind(phase.kind)  # For its InputError if no host serves the kind.
        with _naming(job, phase):
            work = _works(phase)
        before = tuple(sorted(place[name] for name in phase.waits_for))
        stages.append(Stage(np.array(work), before))
    return NumericJob(tuple(stages), job.arrival, job.weight)


@contextmanager
def _naming(job: Job, phase: Phase) -> Iterator[None]:
    """Add the job and the phase to an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None


def _check(phase: Phase) -> None:
    if phase.slots_min or phase.slots_max is not None:
        raise InputError(
            "dmrs keeps no min and max shares;"
            " leave out slots_min and slots_max, or take another scheduler"
        )
    if phase.hosts:
        raise InputError(
            "its tasks run only on given hosts, and dmrs places tasks anywhere; leave out"
            " hosts, or take another scheduler"
        )
    if phase.slots > 1:
        raise InputError(
            f"each task occupies {phase.slots} slots, and dmrs places tasks of one slot each;"
            " leave out slots, or take another scheduler"
        )
    if phase.needs:
        raise InputError(
            f"each task requests {phase.needs}, and dmrs places tasks by slots alone;"
            " leave out resources, or take another scheduler"
        )
    if phase.gang:
        raise InputError(
            "its tasks start together, as a gang, and dmrs places each task by itself;"
            " take another scheduler"
        )
    if phase.continues is not None:
        raise InputError("dmrs places no phases that continue others; take another scheduler")


def _works(phase: Phase) -> list[float]:
    """The work of each task, seconds; InputError if it is unknown or not > 0."""
    works = [phase.tasks.work_of(task) for task in range(phase.tasks.count)]
    for task, work in enumerate(works):
        if work is None:
            raise InputError("a plan needs its work; state it")
        if work <= 0:
            raise InputError(
                f"task {task} has work {work:g}; a plan needs work > 0: leave out what has"
                " nothing to do, or simulate"
            )
    return [work for work in works if work is not None]


# The tasks that have not begun at an instant, as the numeric problem of DMRS.


@dataclass(frozen=True, slots=True)
class Machines:
    """The slots of the responsive hosts, by current estimates; time counts from now.

    hosts  the host of each machine
    speed  of each machine
    free   when the attempt that runs there is expected to end
    ends   when the last running attempt of each phase is expected to end
    """

    hosts: Sequence[str]
    speed: Floats
    free: Floats
    ends: Mapping[PhaseId, float]


def machines(snapshot: Snapshot, estimates: Corrected) -> Machines:
    """The machines at an instant. O(phases + running attempts)."""
    hosts: Sequence[str] = machines_of(snapshot.cluster)
    if snapshot.lost:
        hosts = [name for name in hosts if name not in snapshot.lost]
    busy: dict[str, list[float]] = {host: [] for host in estimates.speeds}
    ends: dict[PhaseId, float] = {}
    now, speeds = snapshot.now, estimates.speeds
    for phase in snapshot.phases_left:
        if phase.running:
            factor, last, expected = estimates.factor(phase.id), 0.0, phase.work.expected
            for started, launch in phase.attempts():
                work, host = expected(launch.task) * factor, launch.host
                seconds = (work if work > MIN_WORK else MIN_WORK) / speeds[host]
                left = started + seconds - now
                if left <= 0:  # It is assumed to need this part of its estimate.
                    left = RUNNING_FLOOR * seconds
                busy[host].append(left)
                if left > last:
                    last = left
            ends[phase.id] = last
    free = [busy[host].pop() if busy[host] else 0.0 for host in hosts]
    return Machines(hosts, np.array([speeds[host] for host in hosts]), np.array(free), ends)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The tasks that have not begun, as in `unbegun`; time counts from now.

    problem  None if there are no such tasks, or no machines
    """

    problem: RelatedMachines | None
    unbegun: Unbegun

    @property
    def jobs(self) -> Mapping[str, int]:
        """The number of each job in the problem, by its name."""
        return self.unbegun.of.jobs

    def place(self, phase: PhaseId, task: int) -> int:
        """The index of a task in the problem."""
        unbegun = self.unbegun
        stage = unbegun.of.place[phase]
        begin, end = unbegun.task_first[stage : stage + 2].tolist()
        place: int = begin + unbegun.number[begin:end].searchsorted(task)
        return place


def remaining(snapshot: Snapshot, estimates: Corrected, machines: Machines) -> Remaining:
    """The remaining problem by these estimates.

    A stage is ready at the expected end of all running attempts of the phases that it waits
    for. O(tasks left) in numpy, and O(phases) in Python.
    """
    unbegun = snapshot.unbegun
    if not unbegun.of.phases or not machines.hosts:
        return Remaining(None, unbegun)
    jobs = _jobs(unbegun, machines.ends, estimates)
    return Remaining(RelatedMachines(machines.speed, jobs, machines.free), unbegun)


def _jobs(unbegun: Unbegun, ends: Mapping[PhaseId, float], estimates: Corrected) -> JobColumns:
    """The jobs with their tasks that have not begun."""
    of = unbegun.of
    factor = np.array(estimates.factors_of(of.place))
    work = np.maximum(unbegun.expected * factor.repeat(unbegun.count), MIN_WORK)
    ready = np.zeros(len(of.phases))
    for name, end in ends.items():
        for stage in of.successors.get(name, ()):
            ready[stage] = max(ready[stage], end)
    return JobColumns(
        of.graphs,
        np.minimum.reduceat(ready, of.graphs.first[:-1]),
        of.weight,
        ready,
        of.follows,
        unbegun.task_first,
        work,
        _largest_first(work, unbegun),
    )


def _largest_first(work: Floats, unbegun: Unbegun) -> Ints:
    """The tasks of each stage, the largest first; ties by number.

    The order by expected work is the same, except where rounding makes works equal.
    """
    largest = unbegun.largest
    sizes = work[largest]
    is_tie = (sizes[1:] == sizes[:-1]) & (largest[1:] < largest[:-1])
    if not is_tie.any():
        return largest
    stage_of = np.arange(len(unbegun.count)).repeat(unbegun.count)
    return np.lexsort((-work, stage_of))

"""Jobs and hosts as the numeric problem of DMRS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from slotwise.assignment.dmrs.problem import NumericJob, RelatedMachines, Stage
from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Job, Phase
from slotwise.model.pool import Pool


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
        if pool.slots_min or pool.slots_max:
            raise InputError(
                f"pool {pool.name!r}: dmrs keeps no shares of pools;"
                " leave out slots_min and slots_max, or take another scheduler"
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
    if phase.slots > 1:
        raise InputError(
            f"each task occupies {phase.slots} slots, and dmrs places tasks of one slot each;"
            " leave out slots, or take another scheduler"
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

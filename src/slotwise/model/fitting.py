"""Whether the tasks of a job can run at all, on some host and within shares of pools."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slotwise.model.cluster import Cluster, Host
from slotwise.model.errors import InputError
from slotwise.model.job import Job, Phase
from slotwise.model.pool_tree import PoolTree


def check_fits(job: Job, cluster: Cluster, pools: PoolTree, later: Iterable[Host] = ()) -> None:
    """InputError, with job and phase, if a task or a gang takes more slots than it can get.

    Only phases that take several slots at once are checked: there is a slot for all others.
    A gang may also use hosts that come `later`.
    """
    for phase in job.phases:
        if phase.unit > 1:
            try:
                cluster.check_slots(phase.kind, phase.slots)
                if phase.gang:
                    _with(cluster, later).check_gang(phase.kind, phase.tasks.count, phase.slots)
                if job.pool in pools:
                    _check_share(job, phase, pools)
            except InputError as error:
                raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None


def _check_share(job: Job, phase: Phase, pools: PoolTree) -> None:
    if phase.gang:
        pools.check_slots(job.pool, phase.kind, phase.unit, "the tasks of a gang hold")
    else:
        pools.check_slots(job.pool, phase.kind, phase.slots)


def _with(cluster: Cluster, later: Iterable[Host]) -> Cluster:
    hosts = {host.name: host for host in later} | dict(cluster.by_name)
    return replace(cluster, hosts=tuple(hosts.values()))

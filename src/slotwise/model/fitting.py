"""Whether the tasks of a job can run at all, on some host and within shares of pools."""

from __future__ import annotations

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.model.pool_tree import PoolTree


def check_fits(job: Job, cluster: Cluster, pools: PoolTree) -> None:
    """InputError, with job and phase, if a task occupies more slots than it can ever get.

    Only phases whose tasks occupy several slots are checked: there is a slot for all others.
    """
    for phase in job.phases:
        if phase.slots > 1:
            try:
                cluster.check_slots(phase.kind, phase.slots)
                if job.pool in pools:
                    pools.check_slots(job.pool, phase.kind, phase.slots)
            except InputError as error:
                raise InputError(f"job {job.id!r}, phase {phase.name!r}: {error}") from None

"""Block placement: which hosts hold the input of which task, in a simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slotwise.model.cluster import Cluster
from slotwise.model.job import Block, Job


def place_blocks(
    jobs: tuple[Job, ...], cluster: Cluster, replicas: int, seed: int
) -> tuple[Job, ...]:
    """Give each task that reads input a block on `replicas` hosts drawn at random.

    Phases that wait for others read what those wrote, and phases that name their blocks keep
    them. Same seed, same places. O(tasks * replicas).
    """
    names = np.array([host.name for host in cluster.hosts])
    replicas = min(replicas, len(names))
    if replicas == 0:
        return jobs
    rng = np.random.default_rng([seed, len(jobs)])
    placed = []
    for job in jobs:
        phases = []
        for phase in job.phases:
            if not phase.after and not phase.tasks.blocks:
                blocks = tuple(
                    Block(frozenset(rng.choice(names, replicas, replace=False).tolist()))
                    for _ in range(phase.tasks.count)
                )
                phase = replace(phase, tasks=replace(phase.tasks, blocks=blocks))
            phases.append(phase)
        placed.append(replace(job, phases=tuple(phases)))
    return tuple(placed)

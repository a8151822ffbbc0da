"""What was asked for: an objective and slots in place of the workload's own."""

from __future__ import annotations

import os
from collections.abc import Mapping

from slotwise.model.cluster import Cluster, Host
from slotwise.objective.objective import Objective
from slotwise.sources import Source
from slotwise.workload.workload import Workload

Slots = int | Mapping[str, int]
"""A number of slots that serve every kind, or a number for each kind."""


def objective_of(asked: Objective | str | None, source: Source) -> Objective:
    """The objective asked for, or the workload's own."""
    if isinstance(asked, str):
        return Objective.named(asked)
    return asked or source.workload.objective


def cluster_of(workload: Workload, slots: Slots | None) -> Cluster:
    """The cluster to plan for or to simulate: as many slots as asked for, or the workload's."""
    if isinstance(slots, int):
        return Cluster.of_slots(slots)
    if slots is not None:
        return Cluster((Host("cluster", dict(slots)),))
    return workload.cluster or Cluster.of_slots(processors())


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))

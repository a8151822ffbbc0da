"""Workloads: jobs, pools, a cluster and an objective, as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotwise.model.cluster import Cluster
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.objective.objective import Objective


@dataclass(frozen=True, slots=True)
class ProgramJob:
    """A job that a program does: what to read, what to do with it, where to write.

    Its phases and tasks are known when its input is looked at. `settings` are those of
    slotwise.program.planning.plan_mapreduce.
    """

    id: str
    program: Any
    inputs: tuple[str, ...] = ()
    output: str = ""
    arrival: float = 0.0
    pool: str = "default"
    weight: float = 1.0
    deadline: float | None = None
    steps: tuple[tuple[float, float], ...] = ()
    penalty: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """What is to be scheduled.

    `replicas` is the number of hosts that hold each block of input in a simulation, 0 for
    input that is everywhere. `folder` is what relative paths are relative to.
    """

    jobs: tuple[Job | ProgramJob, ...]
    cluster: Cluster | None = None
    pools: tuple[Pool, ...] = ()
    objective: Objective = field(default_factory=Objective)
    replicas: int = 0
    folder: Path = field(default_factory=Path)

"""Workloads: jobs, pools, a cluster and an objective, as one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slotwise.model.cluster import Cluster
from slotwise.model.errors import InputError
from slotwise.model.job import Job
from slotwise.model.pool import Pool
from slotwise.objective.objective import Objective

SETTINGS = (
    "reducers",
    "parameters",
    "input_format",
    "output_format",
    "split_bytes",
    "memory_bytes",
    "overwrite",
    "slots_min",
    "slots_max",
)
"""What may be said of a program beside its input and output."""


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


def mapreduce(
    program: Any,
    inputs: str | Path | Sequence[str | Path] = (),
    output: str | Path = "",
    *,
    id: str | None = None,
    arrival: float = 0.0,
    pool: str = "default",
    weight: float = 1.0,
    deadline: float | None = None,
    steps: Sequence[tuple[float, float]] = (),
    penalty: str | None = None,
    **settings: Any,
) -> ProgramJob:
    """A MapReduce job: a program by name, as `file.py:Class`, or as an object.

    `deadline`, `steps` and `penalty` are those of a `Job`. `settings` are those named in
    SETTINGS, and `work_dir`, the folder for what is shuffled; their values are checked when the
    job is run.
    """
    known = (*SETTINGS, "work_dir")
    if unknown := sorted(settings.keys() - set(known)):
        raise InputError(f"mapreduce has no setting {unknown[0]!r}; known: {', '.join(known)}")
    if not isinstance(program, str) and id is None:
        id = getattr(program, "name", None) or type(program).__name__
    return ProgramJob(
        id=id or str(program),
        program=program,
        inputs=_texts(inputs),
        output=str(output),
        arrival=arrival,
        pool=pool,
        weight=weight,
        deadline=deadline,
        steps=tuple(steps),
        penalty=penalty,
        settings=settings,
    )


def _texts(paths: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    return (str(paths),) if isinstance(paths, str | Path) else tuple(map(str, paths))

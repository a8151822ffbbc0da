"""The jobs of a draw: five kinds of workloads, each at a given load. All of them are ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import log
from pathlib import Path
from types import MappingProxyType

import numpy as np

from experiments.flex.cluster_jobs import GridMix
from slotwise.core.job import Job, Phase, Tasks
from slotwise.workload.swim import SwimRates, read_swim

SLOTS = 20

JOBS = 60
"""Jobs of a draw, except for `FB_2009`."""

SECONDS = (0.3, 30.0)
"""The range of the median seconds of a task, drawn by its logarithm for each draw: schedulers
assume a constant time of unseen tasks, so the scale matters."""

ALPHA = (1.1, 2.0)
"""The range of the exponent of Pareto distributions, drawn for each draw."""

MIN_TASKS, MAX_TASKS = 5, 500
"""The range of the numbers of tasks where they have a heavy tail."""

LONGEST = 300.0
"""The longest mean task of a job, by the shortest, where tasks have a heavy tail."""

FB_2009 = "FB-2009"
FB_FILE = "FB-2009_samples_24_times_1hr_0.tsv"
FB_JOBS = 150
FB_SCALE = 20
"""The trace is from 600 hosts: bytes are divided by this, except for the start of a task."""

FOLDER_VARIABLE = "SWIM_TRACES"
"""The environment variable that names the folder of SWIM traces."""

Numbers = np.random.Generator


def drawn(workload: str, load: float, numbers: Sequence[int]) -> list[Job]:
    """The jobs of one draw; the same for the same numbers, and at every load but for arrivals.

    The arrivals are scaled so that the work of all jobs takes all slots for `load` of the time
    from the first arrival to the last.
    """
    rng = np.random.default_rng(numbers)
    jobs = WORKLOADS[workload](rng)
    works = [job.work or 0.0 for job in jobs]
    span = jobs[-1].arrival - jobs[0].arrival
    factor = sum(works) / (SLOTS * load * span)
    return [replace(job, arrival=factor * (job.arrival - jobs[0].arrival)) for job in jobs]


def fb_2009() -> Path:
    """The trace of a day on 600 hosts of Facebook: in the folder that `SWIM_TRACES` names, or
    in shared/data/swim beside the folder of the project. It may not be there."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "swim"
    return Path(os.environ.get(FOLDER_VARIABLE, beside)) / FB_FILE


def _gridmix(rng: Numbers) -> list[Job]:
    """Three sizes and four kinds of jobs, with up to six phases; nothing is copied."""
    jobs = GridMix(gap=1.0, small=39, medium=15, large=6, blocks=200).draw(rng)
    return [
        replace(job, phases=tuple(replace(phase, copy=0.0) for phase in job.phases))
        for job in jobs
    ]


def _fb_2009(rng: Numbers) -> list[Job]:
    """Consecutive jobs of the trace, with its arrivals."""
    trace = _trace(fb_2009())
    first = int(rng.integers(len(trace) - FB_JOBS))
    return list(trace[first : first + FB_JOBS])


@lru_cache(maxsize=1)
def _trace(path: Path) -> tuple[Job, ...]:
    plain = SwimRates()
    rates = SwimRates(
        plain.block_bytes * FB_SCALE,
        plain.part_bytes * FB_SCALE,
        plain.input_rate * FB_SCALE,
        plain.shuffle_rate * FB_SCALE,
        plain.output_rate * FB_SCALE,
    )
    return read_swim(path, rates)


def _pareto_tasks(rng: Numbers) -> list[Job]:
    """The number of tasks has a heavy tail; the time of a task varies by job and phase."""
    alpha, scale = rng.uniform(*ALPHA), _scale(rng)
    counts = np.minimum(MAX_TASKS, MIN_TASKS * (1 + rng.pareto(alpha, JOBS)))
    return _made(rng, counts, scale * rng.lognormal(0, 0.5, (JOBS, 2)))


def _pareto_seconds(rng: Numbers) -> list[Job]:
    """The time of a task has a heavy tail, by job and phase; all jobs have as many tasks."""
    alpha, scale = rng.uniform(*ALPHA), _scale(rng)
    seconds = np.minimum(LONGEST, 1 + rng.pareto(alpha, (JOBS, 2)))
    return _made(rng, np.full(JOBS, 30.0), scale * seconds)


def _equal(rng: Numbers) -> list[Job]:
    """All jobs have the same tasks and one phase."""
    scale = _scale(rng)
    jobs = _made(rng, np.full(JOBS, 30.0), np.full((JOBS, 2), scale))
    return [replace(job, phases=job.phases[:1]) for job in jobs]


def _scale(rng: Numbers) -> float:
    least, most = SECONDS
    return float(np.exp(rng.uniform(log(least), log(most))))


def _made(rng: Numbers, counts: np.ndarray, seconds: np.ndarray) -> list[Job]:
    """Jobs with random gaps. Half of them have a second phase, of a fifth as many tasks."""
    arrivals = np.cumsum(rng.exponential(size=JOBS))
    has_second = rng.random(JOBS) < 0.5
    jobs = []
    for number, (count, (first, second)) in enumerate(
        zip(counts.round().astype(int).tolist(), seconds.tolist(), strict=True)
    ):
        phases = [Phase("map", Tasks(count, first))]
        if has_second[number]:
            fewer = Tasks(max(1, count // 5), second)
            phases.append(Phase("reduce", fewer, after=frozenset({"map"})))
        jobs.append(Job(f"job-{number:02}", tuple(phases), float(arrivals[number])))
    return jobs


WORKLOADS: Mapping[str, Callable[[Numbers], list[Job]]] = MappingProxyType(
    {
        "GridMix": _gridmix,
        FB_2009: _fb_2009,
        "Pareto tasks": _pareto_tasks,
        "Pareto seconds": _pareto_seconds,
        "equal": _equal,
    }
)
"""The workloads by name."""

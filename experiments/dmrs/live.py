"""DMRS and its rivals live: real jobs on two hosts of this machine, one of which is slowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import slotwise
from experiments.dmrs.experiment import (
    DMRS,
    OURS,
    WEIGHTS,
    bound_of,
    completion_of,
)
from experiments.dmrs.profiles import MB, REDUCES, write_input
from slotwise.analysis.measured import measured_jobs
from slotwise.estimation.rates import estimate_rates
from slotwise.model.cluster import ANY_KIND, Cluster, Host
from slotwise.record.history import append_history, read_history
from slotwise.workload.workload import ProgramJob, Workload

SCHEDULERS = (OURS, DMRS, "fifo", "identical-machine", "map-only")

FAST, SLOW = "fast", "slow"
SLOW_SPEED = 0.5

SPLIT_BYTES = 4 * MB
"""Of a map."""

SIZES = {
    "wordcount": (5 * MB, 10 * MB),
    "sort": (10 * MB, 30 * MB),
    "terasort": (10 * MB, 30 * MB),
}
"""Input of a small and of a large job of each benchmark, chosen for about equal durations."""

JOBS_EACH = 4
"""Jobs of each benchmark, half of them small."""

SECOND_RELEASE = 3.0
"""The arrival of the second half of the jobs, in seconds."""


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The results of the jobs under one scheduler.

    value, bound  total weighted completion time, weight x seconds, and its lower bound for the
                  task durations of this run
    speed         of the slow host relative to the fast one, measured by the tasks of this run
    """

    scheduler: str
    value: float
    bound: float
    speed: float


def live_runs(
    seed: int,
    number: int,
    schedulers: Sequence[str] = SCHEDULERS,
    scale: float = 1.0,
) -> list[LiveRun]:
    """The same jobs under each scheduler, one run after another; about a minute and a half.

    A run with one slot comes first; all schedulers use its history of the programs. Each
    experiment begins with another scheduler. `scale` multiplies the sizes of the inputs.
    """
    turn = number % len(schedulers)
    with TemporaryDirectory(prefix="slotwise-") as name:
        folder = Path(name)
        inputs = _write_inputs(folder, scale)
        known = folder / "known.db"
        slotwise.run(_samples(inputs, folder), "fifo", slots=1, history=known)
        jobs = draw_jobs(inputs, np.random.default_rng([seed, number]), scale)
        runs = [
            _run(jobs, scheduler, folder, known)
            for scheduler in (*schedulers[turn:], *schedulers[:turn])
        ]
    return sorted(runs, key=lambda run: schedulers.index(run.scheduler))


CLUSTER = Cluster((Host(FAST, {ANY_KIND: 1}), Host(SLOW, {ANY_KIND: 1}, speed=SLOW_SPEED)))


def draw_jobs(
    inputs: dict[tuple[str, int], str], rng: np.random.Generator, scale: float = 1.0
) -> list[ProgramJob]:
    """The jobs in random order, without outputs; a random half of them arrives later."""
    kinds = [
        (benchmark, size)
        for benchmark, sizes in SIZES.items()
        for size in sizes * (JOBS_EACH // len(sizes))
    ]
    weights = rng.integers(*WEIGHTS, size=len(kinds), endpoint=True).tolist()
    order = rng.permutation(len(kinds)).tolist()
    late = set(rng.permutation(len(kinds))[len(kinds) // 2 :].tolist())
    return [
        slotwise.mapreduce(
            kinds[kind][0],
            inputs[kinds[kind]],
            id=f"{kinds[kind][0]}-{place:02}",
            arrival=SECOND_RELEASE * scale if place in late else 0.0,
            weight=float(weight),
            reducers=REDUCES[kinds[kind][0]],
            split_bytes=SPLIT_BYTES,
        )
        for place, (kind, weight) in enumerate(zip(order, weights, strict=True))
    ]


def _run(jobs: Sequence[ProgramJob], scheduler: str, folder: Path, known: Path) -> LiveRun:
    outputs = folder / scheduler
    history = folder / f"{scheduler}.db"
    # No scheduler may use the observations of a run under another one.
    append_history(history, read_history(known))
    mine = tuple(replace(job, output=str(outputs / job.id)) for job in jobs)
    result = slotwise.run(
        Workload(mine, cluster=CLUSTER), scheduler, emulate_hosts=True, history=history
    )
    assert not result.failed, result.failed
    really = Workload(measured_jobs(result.log), cluster=CLUSTER)
    ends = completion_of(result)
    value = sum(job.weight * ends[job.id] for job in jobs)
    seen = [one for one in read_history(history) if one.host in (FAST, SLOW)]
    speeds = {speed.host: speed.speed for speed in estimate_rates(seen).speeds}
    return LiveRun(scheduler, value, bound_of(really), speeds[SLOW] / speeds[FAST])


def _write_inputs(folder: Path, scale: float) -> dict[tuple[str, int], str]:
    """Input of each benchmark and size; the records of two benchmarks are the same."""
    inputs = {}
    for benchmark, sizes in SIZES.items():
        for size in sizes:
            place = folder / f"{benchmark}-{size}"
            place.mkdir()
            inputs[benchmark, size] = write_input(benchmark, place, round(size * scale))
    return inputs


def _samples(inputs: dict[tuple[str, int], str], folder: Path) -> Iterator[ProgramJob]:
    """A small job of each benchmark."""
    for benchmark, (small, _) in SIZES.items():
        yield slotwise.mapreduce(
            benchmark,
            inputs[benchmark, small],
            folder / f"sample-{benchmark}",
            reducers=REDUCES[benchmark],
            split_bytes=SPLIT_BYTES,
        )
